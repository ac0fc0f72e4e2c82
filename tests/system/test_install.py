"""`ninja install` puts every file in its place, keeps an edited configuration, and `ninja uninstall` removes the rest."""

import os
import re
import shutil
import subprocess

import pytest

import divvytest

# For the prefix /usr/local, which is the default. LIB stands for the directory of libraries.
INSTALLED = """
/etc/OpenCL/vendors/divvy.icd
/etc/cdi/divvy.yaml
/etc/divvy/divvy.yaml
/usr/local/LIB/libdivvy-opencl.so
/usr/local/LIB/libdivvy-opencl.so.1
/usr/local/bin/divvy
/usr/local/bin/divvy-sim
/usr/local/lib/systemd/system/divvyd-control.socket
/usr/local/lib/systemd/system/divvyd-metrics.socket
/usr/local/lib/systemd/system/divvyd.service
/usr/local/lib/systemd/system/divvyd.socket
/usr/local/lib/sysusers.d/divvy.conf
/usr/local/lib/tmpfiles.d/divvy.conf
/usr/local/libexec/divvy/divvy-worker
/usr/local/sbin/divvyd
/usr/local/share/bash-completion/completions/divvy
/usr/local/share/divvy/vendors/divvy.icd
/usr/local/share/doc/divvy/examples/divvy-alerts.yaml
/usr/local/share/doc/divvy/examples/divvy-dashboard.json
/usr/local/share/doc/divvy/examples/divvy.yaml
/usr/local/share/man/man1/divvy-sim.1
/usr/local/share/man/man1/divvy.1
/usr/local/share/man/man5/divvy.yaml.5
/usr/local/share/man/man8/divvyd.8
/usr/local/share/zsh/site-functions/_divvy
"""
CONFIG = "etc/divvy/divvy.yaml"


def meson(*arguments):
    done = subprocess.run([*arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def option(name):
    text = meson("meson", "introspect", "--buildoptions", divvytest.build_dir())
    return re.search(r'"name": "%s", "value": "([^"]*)"' % name, text)[1]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A directory into which divvy was installed."""
    if option("prefix") != "/usr/local":
        pytest.skip("this build tree is for another prefix")
    root = tmp_path_factory.mktemp("root")
    install(root)
    return root


def install(root):
    meson("meson", "install", "-C", divvytest.build_dir(), "--no-rebuild", "--destdir", str(root))


def files(root):
    return {"/" + os.path.relpath(path, root) for path in divvytest.files_under(root)}


def test_all_files_are_installed(root):
    found = {path for path in files(root) if "/share/divvy/sim/" not in path and "/include/" not in path and
             "lease" not in path}
    assert found == set(INSTALLED.replace("LIB", option("libdir")).split())


def test_paths_in_files_are_those_of_the_installation(root):
    library = "/usr/local/%s/libdivvy-opencl.so.1" % option("libdir")
    unit = (root / "usr/local/lib/systemd/system/divvyd.service").read_text()
    assert "\nExecStart=/usr/local/sbin/divvyd\n" in unit
    assert "exec /usr/local/bin/divvy reload" in unit and "/usr/bin/divvy" not in unit
    assert (root / "etc/OpenCL/vendors/divvy.icd").read_text() == library + "\n"
    cdi = (root / "etc/cdi/divvy.yaml").read_text()
    assert cdi.count(library) == 2 and "hostPath: /usr/local/share/divvy/vendors/divvy.icd" in cdi
    for path in re.findall(r"hostPath: (/usr/.*)", cdi):
        assert (root / path[1:]).exists(), path


def rendered(page):
    """A manual page as a terminal shows it, but in one line."""
    if shutil.which("groff"):
        text = meson("groff", "-man", "-Tascii", "-P-cbou", str(page))
    else:
        text = re.sub(r"\\f[BIRP]|\\&", "", page.read_text())
    return " ".join(text.split())


def test_manual_pages_show_names_as_they_are(root):
    """Underscores and asterisks are signs of the language in which the pages are written."""
    pages = sorted((root / "usr/local/share/man").glob("man?/*"))
    if not pages:
        pytest.skip("built without scdoc")
    texts = {page.name: rendered(page) for page in pages}
    assert re.search(r"such as (those that begin with )?POCL_\*?, CUDA_\*?, HSA_\*? or MESA_\*?, where divvyd is",
                     texts["divvyd.8"]), re.findall(r"ENVIRONMENT.*FILES", texts["divvyd.8"])
    for name, text in texts.items():
        marks = re.findall(r".{,30}(?:\\_|(?<!\x22)\*\w+\*|(?<![\w/.])_\w+_(?!\w)).{,30}", text)
        assert not marks, (name, marks)


def purged(tmp_path, **env):
    """What the package would remove, without doing it."""
    (tmp_path / "rm").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (tmp_path / "rm").chmod(0o755)
    script = os.path.join(divvytest.REPOSITORY, "debian", "divvyd.postrm")
    said = subprocess.run(["/bin/sh", script, "purge"], capture_output=True, text=True, timeout=30, check=True,
                          env={"PATH": "%s:/usr/bin:/bin" % tmp_path, **env}).stdout
    return [word for word in said.split() if not word.startswith("-")]


def test_a_purge_keeps_to_its_root(tmp_path):
    """dpkg can work on a tree without changing into it."""
    places = ["/var/lib/divvy", "/var/cache/divvy", "/run/divvy"]
    assert purged(tmp_path) == places
    assert purged(tmp_path, DPKG_ROOT="/tree") == ["/tree" + place for place in places]


def test_the_package_with_the_cdi_file_needs_the_library_in_it():
    """Without it every container that asks for the device fails to start."""
    debian = os.path.join(divvytest.REPOSITORY, "debian")
    owner = {}
    for name in os.listdir(debian):
        if name.endswith(".install"):
            with open(os.path.join(debian, name), encoding="utf-8") as file:
                owner.update((line.rsplit("/", 1)[-1].strip(), name.removesuffix(".install")) for line in file
                             if "libdivvy-opencl.so.1" in line or "cdi/" in line)
    with open(os.path.join(debian, "control"), encoding="utf-8") as file:
        depends = dict(re.findall(r"^Package: (\S+)$.*?^Depends: (.*?)$", file.read(), re.M | re.S))
    assert owner["libdivvy-opencl.so.1"] in (owner["divvy.yaml"], *re.findall(r"[\w-]+", depends[owner["divvy.yaml"]]))


def test_the_installed_configuration_is_valid(root):
    meson(str(root / "usr/local/sbin/divvyd"), "--check", str(root / CONFIG))


def test_an_edited_configuration_is_kept_and_the_rest_removed(root):
    (root / CONFIG).write_text("sessions-per-user: 7\n")
    install(root)
    assert (root / CONFIG).read_text() == "sessions-per-user: 7\n"
    meson("ninja", "-C", divvytest.build_dir(), "uninstall")
    assert files(root) == {"/" + CONFIG}
