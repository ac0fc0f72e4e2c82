#!/usr/bin/python3
"""The generator: what it makes of a small made-up API is compared with golden files and compiled;
wrong specifications are refused in words; the documents in docs/ are what it makes of the real one.

    test_generator.py            runs the tests
    test_generator.py --accept   writes the golden files anew, to be looked at before they are kept
"""
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", "..", ".."))
GENERATOR = os.path.join(ROOT, "tools", "generate.py")
TOY = os.path.join(HERE, "toy")
GOLDEN = os.path.join(HERE, "golden")
API = os.path.join(ROOT, "api", "opencl")
DOCS = os.path.join(ROOT, "docs")
PRODUCTS = ("toy_wire.h", "toy_client.h", "toy_client.c", "toy_worker.h", "toy_worker.c",
            "toy-coverage.md", "toy-wire.md")
DEFINES = ["-D", "CL_TARGET_OPENCL_VERSION=300"]
for version in ("1_0", "1_1", "1_2", "2_0", "2_1", "2_2"):
    DEFINES += ["-D", "CL_USE_DEPRECATED_OPENCL_%s_APIS" % version]


def generate(spec, *arguments):
    """Runs the generator; the made-up API's header is found beside its specification."""
    environment = dict(os.environ, CPATH=TOY)
    return subprocess.run(["/usr/bin/python3", GENERATOR, spec, *arguments], env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="divvy-generator-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def generated(self):
        """A folder with all that is made of the made-up API."""
        result = generate(TOY, self.folder, "--docs", self.folder)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return self.folder


class GoldenFiles(Case):
    def test_products_are_the_golden_ones(self):
        folder = self.generated()
        self.assertEqual(sorted(os.listdir(folder)), sorted(PRODUCTS))
        for name in PRODUCTS:
            with self.subTest(name):
                self.assertMultiLineEqual(read(folder, name), read(GOLDEN, name))

    def test_products_compile_without_a_warning(self):
        folder = self.generated()
        compiler = (os.environ.get("CC") or "cc").split()
        for name in ("toy_client.c", "toy_worker.c"):
            with self.subTest(name):
                result = subprocess.run(
                    compiler + ["-std=gnu17", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter",
                                "-Wno-missing-field-initializers", "-Wstrict-prototypes",
                                "-Wmissing-prototypes", "-fsyntax-only", "-I" + ROOT, "-I" + TOY,
                                "-I" + folder, os.path.join(folder, name)],
                    stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_unchanged_products_are_not_written_again(self):
        folder = self.generated()
        for name in PRODUCTS:
            os.utime(os.path.join(folder, name), (1, 1))
        self.generated()
        for name in PRODUCTS:
            self.assertEqual(os.stat(os.path.join(folder, name)).st_mtime, 1, name)


class WrongSpecifications(Case):
    """Each starts from the right specification and spoils one thing."""

    def spoil(self, spoil, *arguments):
        spec = os.path.join(self.folder, "spec")
        shutil.copytree(TOY, spec)
        files = {}
        for name in ("api", "messages", "functions"):
            files[name] = yaml.safe_load(read(spec, name + ".yaml"))
        spoil(files)
        for name, content in files.items():
            with open(os.path.join(spec, name + ".yaml"), "w", encoding="utf-8") as file:
                yaml.safe_dump(content, file, sort_keys=False)
        out = os.path.join(self.folder, "out")
        os.mkdir(out)
        return generate(spec, *(arguments or (out,))), out

    def refused(self, spoil, words, *arguments):
        result, out = self.spoil(spoil, *arguments)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(words, result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        self.assertEqual(os.listdir(out), [])

    def test_unspoiled_is_accepted(self):
        result, out = self.spoil(lambda files: None)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertMultiLineEqual(read(out, "toy_client.c"), read(GOLDEN, "toy_client.c"))

    def test_a_function_is_missing(self):
        self.refused(lambda files: files["functions"]["functions"].pop("toyForget"),
                     "toyForget is not in the specification")

    def test_a_function_is_unknown(self):
        def spoil(files):
            files["functions"]["functions"]["toyFly"] = {"does": "hand"}
        self.refused(spoil, "not in the dispatch table: toyFly")

    def test_a_function_is_given_twice(self):
        def spoil(files):
            files["messages"]["functions"] = {"toyForget": {"does": "hand"}}
        self.refused(spoil, "toyForget is specified twice")

    def test_a_function_is_absent_without_a_reason(self):
        def spoil(files):
            del files["functions"]["functions"]["toyForget"]["notes"]
        self.refused(spoil, "toyForget is absent without a reason", "--docs",
                     os.path.join(self.folder, "out"))

    def test_a_command_has_two_tails(self):
        def spoil(files):
            files["functions"]["functions"]["toyEnqueuePaint"]["args"]["colour_size"] = {"bytes": 4}
        self.refused(spoil, "toyEnqueuePaint has two tails")

    def test_a_command_that_does_not_say_what_it_writes(self):
        def spoil(files):
            del files["functions"]["functions"]["toyEnqueueBlink"]["args"]["lamp"]["access"]
        self.refused(spoil, "toyEnqueueBlink does not say whether its access to lamp is read or write")

    def test_an_access_that_is_none(self):
        def spoil(files):
            files["functions"]["functions"]["toyEnqueueDarken"]["args"]["lamps"]["access"] = "look"
        self.refused(spoil, "toyEnqueueDarken does not say whether its access to lamps")

    def test_a_function_without_prototype_is_not_absent(self):
        def spoil(files):
            files["functions"]["functions"]["toyOld"] = {"does": "hand"}
        self.refused(spoil, "toyOld has no prototype but is not absent")

    def test_the_table_is_not_there(self):
        def spoil(files):
            files["api"]["table"] = "toy_chair"
        self.refused(spoil, "no struct toy_chair in toy.h")

    def test_the_header_is_not_there(self):
        def spoil(files):
            files["api"]["header"] = "nowhere.h"
        self.refused(spoil, "cannot read the headers")


class Neutrality(unittest.TestCase):
    """The generator reads the names of an API; it does not know them."""

    @staticmethod
    def code():
        """The program without its own description."""
        text = read(GENERATOR)
        description = ast.get_docstring(ast.parse(text), clean=False)
        return text.replace(description, "")

    def test_no_opencl_name_occurs(self):
        found = re.findall(r"\bcl[A-Z]\w*|\bcl_\w+|\bCL_\w+|(?i:\w*opencl\w*)", self.code())
        self.assertEqual(found, [])

    def test_no_specified_name_occurs(self):
        names = set()
        for name in yaml.safe_load(read(API, "api.yaml"))["files"]:
            part = yaml.safe_load(read(API, name + ".yaml"))
            names |= set(part.get("functions") or {})
        self.assertGreater(len(names), 100)
        words = set(re.findall(r"\w+", self.code()))
        self.assertEqual(sorted(names & words), [])


class Documents(Case):
    """What docs/ says of the real API is what the generator says now."""

    def test_documents_are_up_to_date(self):
        result = generate(API, "--docs", self.folder, *DEFINES)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        made = sorted(os.listdir(self.folder))
        self.assertEqual(made, ["opencl-coverage.md", "opencl-wire.md"])
        for name in made:
            with self.subTest(name):
                self.assertTrue(os.path.exists(os.path.join(DOCS, name)),
                                "make it: tools/generate.py api/opencl --docs docs " + " ".join(DEFINES))
                self.assertMultiLineEqual(read(DOCS, name), read(self.folder, name))


def accept():
    result = generate(TOY, GOLDEN, "--docs", GOLDEN)
    if result.returncode:
        sys.exit(result.stderr)


if __name__ == "__main__":
    if sys.argv[1:] == ["--accept"]:
        accept()
    else:
        unittest.main()
