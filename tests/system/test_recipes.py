"""The commented configuration that is installed: it has every key, its settings are valid, and its recipes do what they
say."""

import contextlib
import json
import os
import re
import subprocess

import pytest

import divvytest
import recipes

SCHEMA = os.path.join(divvytest.REPOSITORY, "src", "arbiter", "config", "schema.c")
# Numbers of groups that need not exist, in place of the groups of the recipes.
VISION, ROBOTICS = 4201, 4202
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root's daemon")


def here(title):
    """The settings of a part, with groups of this machine."""
    text = recipes.read()[title]
    for name, number in (("group: vision", VISION), ("group: robotics", ROBOTICS)):
        text = text.replace(name, "group: %d" % number)
    return text.replace("operator-group: divvy", "operator-group: root")


def check(text, path):
    path.write_text(text)
    done = subprocess.run([divvytest.binary("divvyd"), "--check", str(path)], capture_output=True, text=True,
                          timeout=30)
    assert done.returncode == 0 and "warning" not in done.stdout, done.stdout + done.stderr
    return done.stdout


def test_the_file_is_valid_and_changes_nothing(tmp_path):
    with open(recipes.SAMPLE, encoding="utf-8") as file:
        said = check(file.read(), tmp_path / "divvy.yaml")
    assert said == check("", tmp_path / "empty.yaml")


def test_lines_are_settings_or_explain():
    with open(recipes.SAMPLE, encoding="utf-8") as file:
        for line in file:
            assert re.match(r"##( |$)|# |$", line), line


def test_every_key_is_there(tmp_path):
    text = here(recipes.ALL_KEYS)
    check(text, tmp_path / "divvy.yaml")
    with open(SCHEMA, encoding="utf-8") as file:
        known = set(re.findall(r'CYAML_FIELD_\w+\("([a-z-]+)"', file.read()))
    assert len(known) > 60
    assert known == set(re.findall(r"^[ -]*([a-z-]+):", text, re.M))


@root
def test_keys_with_their_defaults_change_nothing_for_a_program(program):
    plain = re.findall(r"^(?:session-group|tenants-see-own|lease-sessions|sessions-per-user|cache-size|caches-size|"
                       r"sandbox|allow-unsandboxed-workers|worker-users|restart-within|device-order): .*$",
                       here(recipes.ALL_KEYS), re.M)
    assert len(plain) == 11, plain
    with divvytest.Daemon("\n".join(plain) + "\n", system=True) as daemon:
        divvytest.wait_for(lambda: json.loads(daemon.cli("devices", "--json"))["devices"], 30, "no devices")
        done = daemon.run([program("compute"), "1", "0"], user=4101, group=4101, extra_groups=[])
        assert done.returncode == 0 and done.stderr == "", done.stderr


@pytest.mark.parametrize("title, says", [
    (recipes.LAB, ["one tenant, vision: request 60%", "one tenant, robotics: request 40%", "class idle"]),
    (recipes.LAPTOP, ["a tenant for each program"]),
    (recipes.CONTAINERS, ["in cgroups /system.slice/docker-*.scope: a tenant for each cgroup: request 0%, limit 50%"]),
])
def test_a_recipe_is_valid(title, says, tmp_path):
    said = check(here(title), tmp_path / "divvy.yaml")
    for words in says:
        assert words in said, said


def busy(daemon, program, stack, user, group):
    child = daemon.popen([program("turns"), "20000", "600"], user=user, group=user, extra_groups=[group],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    stack.callback(divvytest.kill_group, child)
    assert child.stdout.readline() == "ready\n"
    child.stdin.write("go\n")
    child.stdin.flush()
    return child


@root
def test_two_groups_get_60_and_40(program):
    with divvytest.Daemon(here(recipes.LAB), system=True) as daemon, contextlib.ExitStack() as stack:
        for user, group in ((4101, VISION), (4102, ROBOTICS), (4103, ROBOTICS)):   # two share what robotics gets
            busy(daemon, program, stack, user, group)
        tenants = lambda: daemon.cli("tenants", "--json")
        assert 58 < recipes.part_of("vision", "robotics", tenants) < 62


@root
def test_programs_of_a_laptop_choose_their_share(program):
    with divvytest.Daemon(here(recipes.LAPTOP), system=True) as daemon:
        divvytest.wait_for(lambda: json.loads(daemon.cli("devices", "--json"))["devices"], 30, "no devices")
        done = subprocess.run(
            [divvytest.binary("divvy"), "run", "--request", "70%", "--class", "latency", "--", program("compute"), "1",
             "0"], env=daemon.env(), user=4101, group=4101, extra_groups=[], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
