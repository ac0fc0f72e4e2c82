"""The packages, from the build to the purge, in the order of the tests. Each test uses what those before it left."""

import glob
import os
import re
import shutil
import subprocess

import divvytest
import machine as machines
import pages
import recipes
import tree as trees
from machine import ALL, NEWER, USED

CONFIG = "/etc/divvy/divvy.yaml"


# ---- the packages ----

def test_all_packages_are_built_in_the_version_of_the_source(packages):
    version = re.search(r"^  version : '(.*)',", trees.Tree(divvytest.REPOSITORY).read("meson.build"), re.M)[1]
    built = {os.path.basename(path).split("_")[0]: path for path in glob.glob(os.path.join(packages, "*.deb"))}
    assert {name for name in built if not name.endswith("-dbgsym")} == set(ALL)
    assert all(os.path.basename(path).split("_")[1] == version for path in built.values())


def test_lintian_finds_no_fault(suite, packages):
    build = trees.build(machines.PLACE, suite)
    shutil.rmtree(build.path("/packages"), ignore_errors=True)
    shutil.copytree(packages, build.path("/packages"))
    code, said = build.run("sh", "-c", "lintian --allow-root --fail-on error,warning --tag-display-limit 0 "
                           "/packages/*.changes")
    assert code == 0 and not re.search("^[EW]: ", said, re.M), said


# ---- installed ----

def test_they_are_installed(machine):
    machine.put(machine.packages, *USED)
    machine.type("/root/packages/divvy", trees.commands()[1])
    assert machine.must("divvy", "version").startswith("divvy ")
    assert machine.must("getent", "group", "divvy").startswith("divvy:x:")
    assert os.path.isdir(machine.path("/run/divvy/containers"))
    assert os.path.isfile(machine.path("/etc/OpenCL/vendors/divvy.icd"))


def test_the_units_are_enabled_and_valid(machine):
    for unit, state in (("divvyd.service", "enabled"), ("divvyd.socket", "enabled"),
                        ("divvyd-control.socket", "enabled"), ("divvyd-metrics.socket", "disabled")):
        assert machine.run("systemctl", "is-enabled", unit)[1].strip() == state, unit
    said = machine.must("systemd-analyze", "verify", "--man=no", "divvyd.service", "divvyd.socket",
                        "divvyd-control.socket", "divvyd-metrics.socket")
    assert "divvy" not in said, said
    machine.must("test", "-x", machine.unit()["ExecStart"])


def test_the_scripts_keep_programs_through_an_upgrade(machine):
    """An upgrade restarts divvyd, which leaves its workers, and restarts no socket: that would stop divvyd."""
    postinst = machine.read("/var/lib/dpkg/info/divvyd.postinst")
    assert re.findall(r"deb-systemd-invoke (\S+) (.*) >", postinst) == [
        ("start", "divvyd.socket divvyd-control.socket"), ("try-restart", "divvyd.service")], postinst
    prerm = machine.read("/var/lib/dpkg/info/divvyd.prerm")
    assert re.findall(r"deb-systemd-invoke .*", prerm) and prerm.count('"$1" = remove') == 1, prerm


def test_tracers_find_the_probes(machine):
    """A build without the header of probes is silent about it."""
    named = set(re.findall(r"usdt:(/[^:\s]+):divvy:(\w+)", pages.read("docs/operators.md")))
    assert {program for program, _ in named} == {"/usr/sbin/divvyd", "/usr/libexec/divvy/divvy-worker"}
    for program, probe in named:
        said = machine.must("readelf", "-n", program)
        assert probe in re.findall(r"Provider: divvy\s+Name: (\w+)", said), (program, probe, said)


def test_the_manual_is_there(machine):
    for page, words in (("divvy", "run programs on shared accelerators"), ("divvyd", "shares the accelerators"),
                        ("divvy.yaml", "configuration of divvyd"), ("divvy-sim", "divvy-sim")):
        assert words in machine.must("man", page)


def test_the_shells_complete(machine):
    said = machine.must("bash", "-c", """
        . /usr/share/bash-completion/bash_completion
        _completion_loader divvy 2>/dev/null || _comp_load divvy
        COMP_WORDS=(divvy ""); COMP_CWORD=1; COMP_LINE="divvy "; COMP_POINT=6; COMP_TYPE=9
        _divvy; echo "${COMPREPLY[@]}" """)
    assert {"run", "ps", "top", "doctor"} <= set(said.split()), said
    said = machine.must("zsh", "-fc", "autoload -Uz compinit; compinit -u -D; echo $_comps[divvy]; "
                        "autoload +X _divvy && echo loaded")
    assert said.split() == ["_divvy", "loaded"], said


# ---- used ----

def busy(machine, user, children, seconds):
    child = machine.popen("divvy", "run", "--", "turns", "20000", str(seconds), user=user, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    children.append(child)
    line = child.stdout.readline()
    assert line == "ready\n", line
    return child


def test_the_daemon_starts_with_the_recipe_for_a_lab(machine):
    machine.write(CONFIG, machines.lab_with_a_refused_user())
    said = machine.must("divvyd", "--check", CONFIG)
    assert "matches ann: one tenant, vision: request 60%" in said, said
    assert "matches ben: one tenant, robotics: request 40%" in said, said
    machine.start()


def test_two_users_get_60_and_40(machine, children):
    programs = [busy(machine, user, children, 25) for user in ("ann", "ben")]
    for child in programs:
        child.stdin.write("go\n")
        child.stdin.flush()
    part = recipes.part_of("vision", "robotics", machine.tenants)
    assert 58 < part < 62, part
    counts = [int(child.communicate(timeout=60)[0]) for child in programs]
    # as the programs see it themselves, with the first and last moments, when one was alone
    assert 55 < 100 * counts[0] / sum(counts) < 65, counts


def test_a_refusal_is_on_the_screen(machine):
    code, said = machine.run("divvy", "run", "--", "clinfo", "-l", user="eve")
    assert code != 0 and "divvy: " in said and "refuse" in said, (code, said)


def test_programs_need_no_divvy_run(machine):
    said = machine.must("clinfo", "-l", user="ann")
    assert re.search(r"Platform #\d+: divvy", said), said


def test_the_commands_answer(machine, children):
    busy(machine, "ann", children, 60).stdin.write("go\n")
    children[-1].stdin.flush()
    machine.type("/root", trees.commands()[2])
    said = machine.must("divvy", "doctor", user="ann")
    assert "FAULT" not in said, said
    divvytest.wait_for(lambda: "vision" in machine.must("divvy", "ps"), 10, lambda: machine.must("divvy", "ps"))
    assert "turns" in machine.must("divvy", "ps", user="ann")
    assert "turns" not in machine.must("divvy", "ps", user="ben")
    assert "vision" in machine.must("divvy", "top", "-b", "-n", "1")
    assert 'tenant="vision"' in machine.must("divvy", "metrics")
    assert "vision" in machine.must("divvy", "whoami", user="ann")
    machine.must("divvy", "explain")
    machine.must("divvy", "reload")


# ---- upgraded ----

def test_an_upgrade_leaves_programs_running(machine, children):
    newer = trees.packages(machines.PLACE, machine.suite, NEWER)
    child = machine.popen("divvy", "run", "--", "compute", "1", "40", user="ann", stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    children.append(child)
    assert child.stdout.readline() == "ready\n"
    machine.put(newer, *USED)
    assert "compute" in machine.type("/root/packages", pages.block_by("upgraded-packages"))
    assert child.poll() is None
    # as `systemctl restart` does for the scripts of the package
    assert machine.unit()["RestartKillSignal"] == "SIGUSR1" and machine.unit()["KillMode"] == "process"
    machine.signal("SIGUSR1")
    assert child.poll() is None
    machine.start()
    assert NEWER in machine.must("divvy", "version")
    assert "compute" in machine.must("divvy", "ps")
    said = child.communicate(timeout=120)[0]
    assert child.returncode == 0 and re.search(r"^done \d+$", said, re.M), said
    assert machine.read(CONFIG) == machines.lab_with_a_refused_user()


# ---- developed with ----

def test_the_lease_examples_compile(machine):
    machine.install(os.path.join(machines.PLACE, machine.suite, "packages" + NEWER), "libdivvy-lease0", "libdivvy-dev")
    examples = [name for name in os.listdir(machine.path("/usr/share/doc/libdivvy-dev/examples")) if ".c" in name]
    assert examples
    for name in examples:
        for compiler in ("gcc", "g++"):
            machine.must("sh", "-ec", "cd /tmp; cp /usr/share/doc/libdivvy-dev/examples/%s .; gunzip -f *.gz || true; "
                         "%s -Wall -Werror -x %s -o example %s -x none $(pkg-config --cflags --libs divvy-lease); "
                         "ldd example | grep libdivvy-lease.so.0" % (
                             name, compiler, "c++" if compiler == "g++" else "c", name.removesuffix(".gz")))


# ---- gone ----

def test_nothing_is_left_after_a_purge(machine):
    machine.stop()
    assert os.path.exists(machine.path("/var/lib/divvy")) and os.path.exists(machine.path("/var/cache/divvy"))
    machine.apt("remove", *ALL)
    assert os.path.exists(machine.path(CONFIG)) and os.path.exists(machine.path("/var/lib/divvy"))
    machine.type("/root", pages.block_by("purged-packages"))
    machine.must("dpkg", "--purge", *ALL)   # the others
    # what other packages only suggest was not there before
    machine.apt("autoremove", "--purge", "-o", "APT::AutoRemove::RecommendsImportant=false", "-o",
                "APT::AutoRemove::SuggestsImportant=false")
    assert machine.files() - machine.before == set()
    assert not os.path.exists(machine.path("/var/cache/divvy"))
    assert "divvy" not in machine.must("dpkg-query", "-W")
