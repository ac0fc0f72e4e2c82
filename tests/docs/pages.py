"""The documents as the tests see them: their blocks, the marks that say how a block is tried, and their links.

A mark is a comment of HTML on the line before a block, which readers do not see:

    <!-- test: machine: needs a card -->              not run, for this reason: only its form is checked
    <!-- test: by: tests/machine/inside.py upgrade -->   not run here, but by this file, which finds it by this name
    <!-- test: with: 30=SESSION -->                   words that stand for something of the stage, see stage.py
    <!-- test: running: vision robotics -->           programs of these tenants run meanwhile
    <!-- test: fails: 1 -->                           its last command ends with this status
    <!-- test: screen -->                             a command for a terminal, which the key q ends
    <!-- test: stays -->                              its last command goes on
    <!-- test: check -->                              YAML that is checked, but not given to the stage's daemon
    <!-- test: file: encoder.yaml -->                 YAML that is written to this file

Several are separated by semicolons.
"""

import os
import re
import subprocess

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

BLOCK = re.compile(r"^(?P<mark> *<!-- test: (?P<how>[^\n]*?) -->\n)?(?P<indent> *)```(?P<language>\w*)\n"
                   r"(?P<text>.*?)^(?P=indent)```$", re.M | re.S)
WORDS = {"machine", "by", "with", "running", "fails", "screen", "stays", "check", "file"}


class Block:
    """A block of a page, in its language, with the marks before it."""

    def __init__(self, page, line, language, text, marks):
        self.page, self.line, self.language, self.text, self.marks = page, line, language, text, marks

    def __repr__(self):
        return "%s:%d" % (self.page, self.line)

    @property
    def is_run(self):
        return self.language in ("sh", "console") and not {"machine", "by"} & set(self.marks)


def read(page):
    with open(os.path.join(REPOSITORY, page), encoding="utf-8") as file:
        return file.read()


def marks_of(text, where):
    marks = {}
    for item in (text or "").split(";"):
        if item.strip():
            key, _, value = (part.strip() for part in item.partition(":"))
            assert key in WORDS, "%s: no such mark: %s" % (where, key)
            assert value or key in ("screen", "stays", "check"), "%s: the mark '%s' needs a value" % (where, key)
            marks[key] = value
    return marks


def blocks_of(page):
    """Blocks of a page in Markdown, or of a manual page (EXAMPLES and the like)."""
    text = read(page)
    found = []
    for match in BLOCK.finditer(text):
        line = text[:match.start("text")].count("\n")
        indent = match["indent"]
        body = "".join(row[len(indent):] if row.startswith(indent) else row
                       for row in match["text"].splitlines(keepends=True))
        found.append(Block(page, line, match["language"], body, marks_of(match["how"], "%s:%d" % (page, line))))
    return found


def block_by(name):
    """The commands of the block with this name in a mark `by`."""
    found, = (block for page in markdown_pages() for block in blocks_of(page)
              if block.marks.get("by", "").split()[1:] == [name])
    return found.text


def examples_of(page):
    """The commands under EXAMPLES of a manual page: lines that begin with a tab."""
    text = read(page)
    if "# EXAMPLES" not in text:
        return []
    part = text.split("# EXAMPLES", 1)[1].split("\n# ", 1)[0].replace("++\n", "\n\t").replace("\\_", "_")
    return [line[1:] for line in part.splitlines() if line.startswith("\tdivvy")]


def markdown_pages():
    listed = subprocess.run(["git", "-C", REPOSITORY, "ls-files", "*.md"], capture_output=True, text=True,
                            check=True).stdout.split()
    # the one speaks of what was, the others are samples of a generator's tests
    return [page for page in listed if page != "CHANGELOG.md" and "/golden/" not in page]


def manual_pages():
    return sorted(os.path.join("docs/man", name) for name in os.listdir(os.path.join(REPOSITORY, "docs/man"))
                  if name.endswith(".scd"))


def without_blocks(text):
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.M | re.S)


def anchors_of(page):
    """The names that GitHub gives headings."""
    anchors = set()
    for heading in re.findall(r"^#+ (.*)$", without_blocks(read(page)), re.M):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        anchors.add(re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-"))
    return anchors


def links_of(page):
    """Links to files of the repository: (target, anchor), both may be empty."""
    for target in re.findall(r"\]\(([^)\s]+)\)", without_blocks(read(page))):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor


def command_lines():
    """Every command line of divvy in code of the documents: (page, command)."""
    for page in markdown_pages():
        text = read(page)
        for code in [block.text for block in blocks_of(page) if block.language in ("sh", "console")] + \
                re.findall(r"`([^`\n]+)`", without_blocks(text)):
            shows_output = bool(re.search(r"^\$ ", code, re.M))
            for line in code.replace("\\\n", " ").splitlines():
                if shows_output and not line.startswith("$ "):
                    continue
                for command in re.split(r"&&|\|\||[|;]", re.sub(r"\s#.*", "", line)):
                    yield page, command
    for page in manual_pages():
        for command in examples_of(page):
            yield page, command
