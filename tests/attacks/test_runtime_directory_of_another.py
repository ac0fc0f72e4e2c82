"""Another user has made the runtime directory first, as a link or as its own."""

import os
import shutil
import subprocess
import tempfile

import pytest

import divvytest
import innocents

VICTIM = 4001


@pytest.mark.parametrize("how", ("link", "own", "shared"))
def test_divvyd_does_not_move_in(how):
    home = tempfile.mkdtemp(prefix="dv-", dir="/tmp")
    os.chmod(home, 0o777)
    directory, target = os.path.join(home, "run"), os.path.join(home, "target")
    os.mkdir(target)
    os.chown(target, VICTIM, VICTIM)
    if how == "link":
        os.symlink(target, directory)
        os.lchown(directory, innocents.ATTACKER, innocents.ATTACKER)
    else:
        os.mkdir(directory)
        os.chown(directory, *[innocents.ATTACKER if how == "own" else VICTIM] * 2)
        os.chmod(directory, 0o755 if how == "own" else 0o777)
    try:
        done = subprocess.run([divvytest.binary("divvyd"), "--user", "--dir", directory], user=VICTIM,
                              group=VICTIM, extra_groups=[], capture_output=True, text=True, timeout=30)
        assert done.returncode != 0 and "cannot" in done.stderr, done.stderr
        assert os.listdir(target) == []
    finally:
        shutil.rmtree(home)
