"""The documents: every command in them runs, every sample has the form of what the command prints, and every option,
file, link and probe exists."""

import json
import os
import re
import shutil
import subprocess
import sys
import time

import pytest

import divvytest
import pages
from stage import Stage

STAGES = {"README.md": "tree", "docs/tutorial.md": "tree", "docs/operators.md": "machine",
          "docs/troubleshooting.md": "machine", "docs/lease.md": "tree", "docs/man/divvy.1.scd": "machine"}
TRIES = 5
LEFT_OUT_MAX = 10   # blocks that no test runs

TRIED, CHECKED, ELSEWHERE, LEFT_OUT = [], [], [], []   # for the summary

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs mounts of its own, and other users")


# ---- the form of what a command prints ----

def shapes_of(text):
    """What samples and real output have in common: headings, and the words at the beginning of certain lines."""
    shapes = []
    for line in text.splitlines():
        words = line.split()
        if len(words) > 2 and all(re.fullmatch(r"[A-Z0-9%/. -]+|\d+s|p\d+/p\d+|2pt", word) for word in words) and \
                any(word.isalpha() for word in words):
            shapes.append(" ".join(words))
        elif re.match(r"  (?!To change)[A-Z][a-z]+ +\S", line):   # which not every reason has
            shapes.append(words[0])
        elif words and words[0] in ("device", "session", "divvy", "tenant", "user", "configuration", "kernels"):
            shapes.append(words[0])
    return shapes


def compare(block, command, sample, printed):
    wanted = shapes_of(sample)
    assert wanted, "%s: the sample of '%s' has nothing to compare:\n%s" % (block, command, sample)
    found = shapes_of(printed)
    missing = [shape for shape in wanted if shape not in found]
    assert not missing, "%s: '%s' does not print %s, but\n%s" % (block, command, missing, printed)


def steps_of(block):
    """The commands of a block with the output that the page shows for each: None where it shows none."""
    if block.language == "sh":
        return [(block.text, None)]
    steps = []
    for line in block.text.splitlines(keepends=True):
        if line.startswith("$ "):
            steps.append([line[2:], ""])
        elif steps and steps[-1][0].endswith("\\\n") and not steps[-1][1]:
            steps[-1][0] += line.removeprefix("> ")
        else:
            steps[-1][1] += line
    return [(command, sample or None) for command, sample in steps]


# ---- pages ----

def run_block(stage, block):
    text = block.text
    stage.running(block.marks.get("running", ""))
    for pair in block.marks.get("with", "").split():
        word, _, kind = pair.partition("=")
        assert re.search(r"\b%s\b" % re.escape(word), text), "%s: there is no %s in it" % (block, word)
        text = re.sub(r"\b%s\b" % re.escape(word), stage.stand_in(kind), text)
    block = pages.Block(block.page, block.line, block.language, text, block.marks)
    for command, sample in steps_of(block):
        started = time.monotonic()
        if "stays" in block.marks:
            stage.stays(command)
            printed = ""
        elif "screen" in block.marks:
            printed = stage.screen(command)
        else:
            printed = stage.run(command, int(block.marks.get("fails", "0")))
        print("%s (%.1f s)\n%s%s" % (block, time.monotonic() - started, command, printed))
        for tries in range(TRIES if sample else 0):   # a session may just not wait, for example
            try:
                compare(block, command, sample, printed)
                break
            except AssertionError:
                if tries + 1 == TRIES:
                    raise
            time.sleep(1)
            printed = stage.run(command)


@needs_root
@pytest.mark.parametrize("page", [page for page in STAGES if page.endswith(".md")])
def test_commands(page):
    with Stage(STAGES[page]) as stage:
        for block in pages.blocks_of(page):
            if block.is_run:
                run_block(stage, block)
                TRIED.append(block)
            elif "file" in block.marks:
                stage.run("cat >%s <<'END'\n%sEND\n" % (block.marks["file"], block.text))
            elif block.language == "yaml" and STAGES[page] == "machine" and "check" not in block.marks and \
                    kind_of_yaml(block.text) == "divvy":
                stage.configure(block.text)


@needs_root
def test_examples_of_manuals():
    with Stage("machine") as stage:
        stage.configure("tenants: [{user: root, may-request: 50%, may-class: latency}]")   # as the examples need it
        stage.run("divvy reload")
        stage.running("alice")
        for page in pages.manual_pages():
            for command in pages.examples_of(page):
                command = re.sub(r"^(divvy explain) \d+", r"\1 " + stage.stand_in("SESSION"), command)
                print(command + "\n" + stage.run('cd "$STAGE/work"\n' + command))
                TRIED.append(page + ": " + command)


def test_blocks_that_are_left_out():
    """Few, with a reason each, and at least of the form that a shell reads. What other tests run, they name."""
    for page in pages.markdown_pages():
        for block in pages.blocks_of(page):
            if block.language not in ("sh", "console"):
                continue
            if block.is_run:
                assert page in STAGES, "%s: a page with commands needs a stage" % block
                continue
            if "by" in block.marks:
                file, name = block.marks["by"].split()
                assert 'block_by("%s")' % name in pages.read(file), "%s: %s does not run it" % (block, file)
                ELSEWHERE.append(block)
            else:
                LEFT_OUT.append((block, block.marks["machine"]))
            done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
            assert done.returncode == 0, "%s: %s" % (block, done.stderr)
    assert len(LEFT_OUT) <= LEFT_OUT_MAX, LEFT_OUT


# ---- files in the documents ----

def kind_of_yaml(text):
    return ("prometheus" if re.search(r"^(scrape_configs|rule_files):", text, re.M) else
            "workload" if re.search(r"^duration:", text, re.M) else "divvy")


def check_yaml(where, text, tmp_path):
    path = tmp_path / "divvy.yaml"
    path.write_text(text)
    kind = kind_of_yaml(text)
    if kind == "workload":
        command = [divvytest.binary("divvy-sim"), path]
    elif kind == "divvy":
        # users and groups that a page speaks of need not be here
        text = re.sub(r"^( *(?:- )?(?:user|group|operator-group|session-group): )(?!everybody)[a-z][\w-]*",
                      lambda match: match[1] + "root", text, flags=re.M).replace("groups: [render]", "groups: [root]")
        path.write_text(text)
        command = [divvytest.binary("divvyd"), "--check", path]
    else:
        shutil.copy(os.path.join(pages.REPOSITORY, "integration/prometheus/divvy-alerts.yaml"), tmp_path)
        path.write_text(text.replace("/etc/prometheus/", str(tmp_path) + "/"))
        command = ["promtool", "check", "config", path]
    if not shutil.which(command[0]):
        pytest.skip("needs " + command[0])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, "%s: %s%s" % (where, done.stdout, done.stderr)
    CHECKED.append(where)


@pytest.mark.parametrize("page", [page for page in pages.markdown_pages() + pages.manual_pages()
                                  if any(block.language in ("yaml", "json") for block in pages.blocks_of(page))
                                  or page.endswith("5.scd") or page.endswith("sim.1.scd")])
def test_files(page, tmp_path):
    for block in pages.blocks_of(page):
        is_manual = page.endswith(".scd")
        if block.language == "yaml" or (is_manual and re.match(r"[a-z#][^\n]*\n", block.text)):
            check_yaml(block, block.text, tmp_path)
        elif block.language == "json":
            json.loads(block.text)
            CHECKED.append(block)


def test_the_sample_configuration(tmp_path):
    """As it is installed. Other tests try its recipes."""
    check_yaml("integration/divvy.yaml", pages.read("integration/divvy.yaml"), tmp_path)


# ---- messages ----

def literals():
    """All texts in the source of divvy, without their variable parts."""
    texts = []
    for where, _, names in os.walk(os.path.join(pages.REPOSITORY, "src")):
        for name in names:
            if name.endswith((".c", ".h")):
                with open(os.path.join(where, name), encoding="utf-8") as file:
                    text = re.sub(r'(?<!\\)"\s*(?:[A-Z_]+\s*)?"', "", file.read())
                texts += re.findall(r'"((?:[^"\\\n]|\\.)*)"', text)
    return "\n".join(text.replace('\\"', '"').replace("%%", "%").replace("`", "") for text in texts)


def test_messages_exist():
    """What the page of symptoms quotes is what the programs say."""
    said = literals()
    quoted = []
    text = pages.without_blocks(pages.read("docs/troubleshooting.md"))
    for line in re.findall(r"^- (`.+?)(?=\n- |\n\n)", text, re.M | re.S):
        quoted += re.findall(r"`([^`]+)`", re.split(r"`:\s", line)[0] + "`")
    for rows in re.findall(r"^\| (?:line|because) \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.M):
        quoted += [row.split(" | ")[0].strip("| `") for row in rows.splitlines()]
    checked = 0
    for message in quoted:
        # numbers, names and the like are filled in
        parts = re.split(r"…|\b[A-Z]\b|'[^']*'|\"[^\"]*\"|\b(?:vision|robotics|lab|latency|worker-memory)\b|/\S+|"
                         r"\d[\d.]*(?:%| ?(?:s|ms|GiB))?|\([^)]*\)|`|; expected|Permission denied|any other text",
                         " ".join(message.split()))
        longest = max((part.strip(" :;,.") for part in parts), key=len)
        if len(longest) < 12 or message.startswith(("-", "divvy ", "systemctl", "sandbox:", "CL_")):
            continue
        assert longest in said, "no program says: %s (of: %s)" % (longest, message)
        checked += 1
    assert checked > 40


# ---- names ----

@pytest.fixture(scope="module")
def help_of():
    known = {}

    def find(program, command=None):
        if (program, command) not in known:
            words = [divvytest.binary(program)] + ([command] if command else []) + ["--help"]
            known[program, command] = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return known[program, command]
    return find


def test_commands_and_options_exist(help_of):
    commands = set(re.findall(r"^  ([a-z]+) {2,}", help_of("divvy"), re.M))
    assert {"run", "ps", "top", "trace"} <= commands
    seen = 0
    for page, line in pages.command_lines():
        match = re.match(r"\s*(?:\$ |\./build/src/cli/|/usr/bin/)?(divvy|divvyd|divvy-sim) +(\S.*)", line)
        if not match:
            continue
        program, rest = match[1], match[2].split(" -- ")[0]
        command = rest.split()[0] if program == "divvy" else None
        if command and not command.startswith("-") and command != "COMMAND":
            for name in command.split("|"):
                assert name in commands, "%s: there is no 'divvy %s': %s" % (page, name, line)
        else:
            command = None
        for option in re.findall(r"(?<!\S)\[?(--[a-z-]+)", rest):
            text = help_of(program, command if command and "|" not in command else None)
            assert option in text or option in ("--version", "--help"), "%s: no option %s: %s" % (page, option, line)
            seen += 1
    assert seen > 40


def test_every_command_has_a_manual(help_of):
    manual = pages.read("docs/man/divvy.1.scd")
    for command in re.findall(r"^  ([a-z]+) {2,}", help_of("divvy"), re.M):
        assert "\n*divvy %s*\n" % command in manual, "divvy(1) does not describe divvy " + command
        for option in set(re.findall(r"^  (?:-\w, )?(--[a-z][a-z-]+)", help_of("divvy", command), re.M)) - \
                {"--help", "--verbose", "--batch"}:
            assert "*" + option in manual, "divvy(1) does not have %s of divvy %s" % (option, command)
    manual = pages.read("docs/man/divvyd.8.scd")
    for option in re.findall(r"--[a-z][a-z-]+", help_of("divvyd")):
        assert "*" + option in manual, "divvyd(8) does not have " + option


def test_metrics_exist():
    """Of the documents, the alerts and the dashboard."""
    with open(os.path.join(pages.REPOSITORY, "src/arbiter/control/metrics.c"), encoding="utf-8") as file:
        known = set(re.findall(r'"(divvy_[a-z_]+)"', file.read()))
    named = set()
    for path in pages.markdown_pages() + ["integration/prometheus/divvy-alerts.yaml", "integration/grafana/divvy.json"]:
        named |= set(re.findall(r"\bdivvy_(?:device|tenant|sessions|build)_?[a-z_]*\b", pages.read(path)))
    assert len(named) > 10 and not named - known, named - known


@pytest.mark.parametrize("page", pages.markdown_pages())
def test_links(page):
    for target, anchor in pages.links_of(page):
        path = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
        assert os.path.exists(os.path.join(pages.REPOSITORY, path)), "%s links to %s: it is not there" % (page, target)
        if anchor and path.endswith(".md"):
            assert anchor in pages.anchors_of(path), "%s links to %s#%s, which is not there" % (page, target, anchor)


def test_every_page_is_found_from_the_readme():
    linked = {target for target, _ in pages.links_of("README.md")}
    missing = [page for page in pages.markdown_pages() if page.startswith("docs/") and page not in linked]
    assert not missing, missing


def paths_of_the_manual():
    """What divvyd(8) says of each path of the control socket: {(method, path): text}. A name in a path is {}."""
    part = pages.read("docs/man/divvyd.8.scd").replace("\\_", "_").split("\n# CONTROL SOCKET\n")[1].split("\n# ")[0]
    found = {}
    for head, text in re.findall(r"^(\*(?:GET|POST|DELETE) .*)\n((?:\t.*\n)+)", part, re.M):
        for route in routes_in(head):
            found[route] = text
    return found


def routes_in(text):
    """Those that a text of divvyd(8) names."""
    return [(method, re.sub(r"_[A-Z]+_", "{}", path.replace("*", "")))
            for method, path in re.findall(r"\*(GET|POST|DELETE)\s+([\w/*]+)", text)]


def test_the_manual_has_every_path():
    """All paths of the table in routes.c, with their arguments, and no others. And each path has the members of its answer,
    by the description of the control socket, which a system test compares with real answers."""
    import yaml
    source = pages.read("src/arbiter/control/routes.c")
    share = re.search(r"#define SHARE_ARGUMENTS (.*)", source)[1]
    table = source.split("} routes[] = {")[1].split("\n};")[0].replace("SHARE_ARGUMENTS", share)
    routes = {(method, begin + ("" if end == "NULL" else "{}" + end.strip('"'))): re.findall(r'"(\w+)"', arguments)
              for method, begin, end, arguments in re.findall(
                  r'\{"([A-Z]+)",\s*"([^"]+)",\s*(NULL|"[^"]*"),[^{]*\{([^}]*)\}\}', table)}
    assert len(routes) == len(re.findall(r'\{"[A-Z]+",', table)) > 20
    manual = paths_of_the_manual()
    assert set(manual) == set(routes)

    description = yaml.safe_load(pages.read("docs/control.openapi.yaml"))

    def resolve(node):
        while "$ref" in node:
            name = node["$ref"]
            node = description
            for step in name.split("/")[1:]:
                node = node[step]
        return node

    def members_of(schema):
        schema = resolve(schema)
        found = set(schema.get("properties", ()))
        for inner in [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), schema.get("items", {})]:
            found |= members_of(inner) if inner else set()
        return found

    operations = {(method.upper(), re.sub(r"\{\w+\}", "{}", path)): operation
                  for path, methods in description["paths"].items() for method, operation in methods.items()
                  if method != "parameters"}
    for route, arguments in routes.items():
        text = manual[route]
        text += "".join(manual[other] for other in routes_in(text))   # whose members are these, too
        content = resolve(operations[route]["responses"]["200"])["content"]
        wanted = set(arguments) | set().union(*(members_of(kind["schema"]) for kind in content.values()))
        missing = wanted - set(re.findall(r"\w+", text))
        assert not missing, "divvyd(8) does not have %s of %s %s" % (sorted(missing), *route)


PROGRAMS_WITH_PROBES = {"divvyd": "src/arbiter", "divvy-worker": "src/worker"}


@pytest.mark.parametrize("program", PROGRAMS_WITH_PROBES)
def test_probes_exist(program):
    """All probes in the source are in the table, and the other way round. The one-liners for bpftrace use all of them, and
    a program that was built with probes has them."""
    written = set()
    for where, _, names in os.walk(os.path.join(pages.REPOSITORY, PROGRAMS_WITH_PROBES[program])):
        for name in names:
            with open(os.path.join(where, name), encoding="utf-8") as file:
                written |= set(re.findall(r"DV_PROBE3\((\w+),", file.read()))
    described = set(re.findall(r"^\| `(\w+)` \| `%s` \|" % program, pages.read("docs/operators.md"), re.M))
    named = set()
    for page in pages.markdown_pages():
        named |= set(re.findall(r"usdt:/[^:\s']+/%s:divvy:(\w+)" % program, pages.read(page)))
    assert written and written == described == named, (written, described, named)
    notes = subprocess.run(["readelf", "-n", divvytest.binary(program)], capture_output=True, text=True,
                           check=False).stdout
    built = set(re.findall(r"Provider: divvy\s+Name: (\w+)", notes))
    assert built in (set(), written), built


def test_packages_of_the_readme():
    """Every library that the build asks for is in one of them."""
    with open(os.path.join(pages.REPOSITORY, "README.md"), encoding="utf-8") as file:
        block = re.search(r"```sh\n([^`]*?apt-get install.*?)```", file.read(), re.S)[1]
    packages = {word.strip("\\") for word in block.split()}
    wanted = set()
    for where, _, names in os.walk(pages.REPOSITORY):
        if "meson.build" in names and "/build" not in where:
            with open(os.path.join(where, "meson.build"), encoding="utf-8") as file:
                wanted |= set(re.findall(r"(?<!_)dependency\('([\w.-]+)'", file.read()))
    for name in wanted - {"threads"}:
        place = subprocess.run(["pkg-config", "--variable=pcfiledir", name], capture_output=True, text=True,
                               check=False)
        assert place.returncode == 0, "pkg-config does not know " + name
        path = os.path.realpath(os.path.join(place.stdout.strip(), name + ".pc"))
        owner = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True, check=False)
        if owner.returncode == 0:
            assert owner.stdout.split(":")[0] in packages, "%s needs %s" % (name, owner.stdout)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
