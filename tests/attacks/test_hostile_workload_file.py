"""The simulator reads a file from another user."""

import os
import resource
import subprocess

import pytest

import divvytest

ALIASES = ("a: &a [x, x, x, x, x, x, x, x, x]\n" +
           "".join("%s: &%s [%s]\n" % (name, name, ", ".join(["*" + before] * 9))
                   for before, name in zip("abcdefgh", "bcdefghi")))
FILES = {
    "aliases": ALIASES,
    "deep": "tenants: " + "[" * 100000,
    "long": "tenants:\n" + "  - {name: x, kernel: 1ms}\n" * 200000,
    "numbers": "duration: 99999999999999999999s\ndevices:\n  - {name: g, copies: 4294967295}\n"
               "tenants:\n  - {name: x, kernel: 1us, copies: 4294967295, burst: 18446744073709551615}\n",
    "zero": "duration: 1s\ndevices:\n  - {name: g, copies: 0}\ntenants:\n  - {name: x, kernel: 0us, weight: 0}\n",
    "bytes": bytes(range(256)) * 64,
}


def bounded():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))


@pytest.mark.parametrize("kind", FILES)
def test_a_hostile_file_is_refused(tmp_path, kind):
    path = tmp_path / "workload.yaml"
    data = FILES[kind]
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    done = subprocess.run([os.path.join(divvytest.build_dir(), "src", "sim", "divvy-sim"), str(path)],
                          capture_output=True, text=True, errors="replace", timeout=60, preexec_fn=bounded)
    assert done.returncode > 0, (done.returncode, done.stdout[-300:], done.stderr[-300:])
    assert len(done.stderr) < 4096 and "\x1b" not in done.stderr
