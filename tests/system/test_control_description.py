"""docs/control.openapi.yaml describes the control socket: every path, and every member of its answers."""

import http.client
import json
import os
import pathlib
import re
import socket
import subprocess

import jsonschema
import pytest
import yaml

import divvytest

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENT = yaml.safe_load((ROOT / "docs/control.openapi.yaml").read_text())
CONFIG = """
tenants:
  - user: 0
    name: staff
    may-request: 50%
  - user: 20001
    name: absent
    request: 10%
"""


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("divvyd", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(self.path)


@pytest.fixture(scope="module")
def control():
    """Asks a daemon with a program that computes, and one that has ended."""
    turns = os.path.join(divvytest.build_dir(), "tests", "system", "programs", "turns")
    with divvytest.Daemon(CONFIG) as daemon:
        daemon.compile_kernels(turns, 2000)
        child = subprocess.Popen([divvytest.binary("divvy"), "run", "--name", "long", "--", turns, "2000", "600"],
                                 env=daemon.env(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout.readline() == "ready\n"
        child.stdin.write("go\n")
        child.stdin.flush()

        def ask(method, path, lines=False):
            connection = Connection(daemon.dir + "/control/control.sock")
            connection.request(method, path)
            answer = connection.getresponse()
            body = answer.readline() if lines else answer.read()
            connection.close()
            return answer.status, json.loads(body)

        ask.session = daemon.session_of(child.pid)["id"]
        ask.ended = ask("GET", "/v1/ended")[1]["ended"][0]["id"]
        yield ask
        child.kill()
        child.communicate()


def strict(schema):
    """The same without members that the description lacks."""
    if isinstance(schema, dict):
        schema = {key: strict(value) for key, value in schema.items()}
        if schema.get("type") == "object" and "properties" in schema:
            schema["additionalProperties"] = False
    elif isinstance(schema, list):
        schema = [strict(value) for value in schema]
    return schema


def check(name, answer):
    document = strict(DOCUMENT)
    document["$ref"] = "#/components/schemas/" + name
    jsonschema.Draft202012Validator(document).validate(answer)


def schema_of(path, method, status):
    response = DOCUMENT["paths"][path][method]["responses"][str(status)]
    name = response["$ref"].split("/")[-1]
    return DOCUMENT["components"]["responses"][name]["content"]["application/json"]["schema"]["$ref"].split("/")[-1]


@pytest.mark.parametrize("path, asked", [
    ("/v1/version", None), ("/v1/healthz", None), ("/v1/whoami", None), ("/v1/devices", None),
    ("/v1/devices/{index}", "/v1/devices/0"), ("/v1/devices/{index}", "/v1/devices/99"), ("/v1/sessions", None),
    ("/v1/sessions/{id}", "/v1/sessions/SESSION"), ("/v1/sessions/{id}", "/v1/sessions/0"),
    ("/v1/sessions/{id}/explain", "/v1/sessions/SESSION/explain"),
    ("/v1/sessions/{id}/explain", "/v1/sessions/ENDED/explain"), ("/v1/tenants", None),
    ("/v1/tenants/{name}", "/v1/tenants/staff"), ("/v1/tenants/{name}", "/v1/tenants/nobody"), ("/v1/ended", None),
    ("/v1/check", None)])
def test_answers(control, path, asked):
    asked = (asked or path).replace("SESSION", str(control.session)).replace("ENDED", str(control.ended))
    status, answer = control("GET", asked)
    assert status == (404 if asked.endswith(("/99", "/0", "/nobody")) and asked != "/v1/devices/0" else 200)
    check(schema_of(path, "get", status), answer)


def test_a_look(control):
    status, answer = control("GET", "/v1/watch", lines=True)
    assert status == 200
    check("look", answer)


@pytest.mark.parametrize("path, asked, status", [
    ("/v1/tenants/{name}/share", "/v1/tenants/staff/share?weight=2", 200),
    ("/v1/sessions/{id}/share", "/v1/sessions/SESSION/share?request=100000", 200),
    ("/v1/sessions/{id}/share", "/v1/sessions/SESSION/share?wait=1", 400),
    ("/v1/devices/{index}/policy", "/v1/devices/0/policy?name=fair", 200),
    ("/v1/devices/{index}/policy", "/v1/devices/0/policy?name=unfair", 400),
    ("/v1/reload", "/v1/reload", 200), ("/v1/hold", "/v1/hold", 200)])
def test_changes(control, path, asked, status):
    answered, answer = control("POST", asked.replace("SESSION", str(control.session)))
    assert answered == status, answer
    check(schema_of(path, "post", status), answer)


def test_every_path_is_described():
    """Those of the table in routes.c, with their methods and arguments."""
    source = (ROOT / "src/arbiter/control/routes.c").read_text()
    share = re.search(r"#define SHARE_ARGUMENTS (.*)", source).group(1)
    table = source[source.index("} routes[] = {"):source.index("/* ---- arguments ---- */")]
    found = {}
    for method, begin, end, rest in re.findall(
            r'\{"(GET|POST|DELETE)",\s*"([^"]+)",\s*(NULL|"[^"]*"),(.*?\{[^}]*\})\}', table, re.S):
        between = "" if end == "NULL" else {"sessions": "{id}", "tenants": "{name}", "devices": "{index}"}[
            begin.split("/")[2]]
        arguments = re.search(r"\{([^}]*)\}$", rest.strip()).group(1).replace("SHARE_ARGUMENTS", share)
        found[begin + between + end.strip('"').replace("NULL", ""), method.lower()] = sorted(
            re.findall(r'"(\w+)"', arguments))
    described = {(path, method): sorted(parameter["name"] for parameter in operation.get("parameters", []))
                 for path, methods in DOCUMENT["paths"].items() for method, operation in methods.items()
                 if method != "parameters"}
    assert found == described


def test_the_manual_has_every_member():
    """divvyd(8) says what they mean."""
    manual = (ROOT / "docs/man/divvyd.8.scd").read_text().replace("\\_", "_")
    members = {name for schema in DOCUMENT["components"]["schemas"].values() for name in schema.get("properties", {})}
    missing = {name for name in members if not re.search(r"\b%s\b" % re.escape(name), manual)}
    assert not missing
