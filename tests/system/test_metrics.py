"""Metrics: the text that Prometheus scrapes, checked by its own tools, and scraped by a real Prometheus."""

import contextlib
import http.client
import json
import os
import resource
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

import divvytest

ANN, BEN = 20001, 20002
CONFIG = """
tenants:
  - user: %d
    name: ann
    request: 60%%
  - user: %d
    name: ben "the second"
""" % (ANN, BEN)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def machine(program):
    if os.geteuid() != 0:
        pytest.skip("needs to become other users")
    port = free_port()
    with divvytest.Daemon(CONFIG + "metrics-port: %d\n" % port, env={"POCL_MAX_PTHREAD_COUNT": "1"},
                          system=True) as daemon, divvytest.BusyPrograms(daemon, program("turns")) as programs:
        daemon.compile_kernels(program("turns"))
        daemon.begin, daemon.port = programs.start, port
        yield daemon


def samples(text):
    """Each sample by its name and labels."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name] = float(value)
    return found


def scrape(port, path="/metrics"):
    with urllib.request.urlopen("http://127.0.0.1:%d%s" % (port, path), timeout=20) as answer:
        return answer.read().decode()


def test_the_format_is_right(machine):
    machine.begin(ANN)
    text = machine.cli("metrics")
    assert samples(text)['divvy_device_sessions{device="0"}'] == 1
    values = [line.rsplit(" ", 1)[1] for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"\d+(\.\d{6}|\.\d{9})?", value) for value in values), values
    if not shutil.which("promtool"):
        pytest.skip("needs promtool")
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert checked.returncode == 0 and not checked.stdout + checked.stderr, checked


def test_labels_are_device_and_tenant_only(machine):
    machine.begin(ANN)
    machine.begin(BEN)
    text = machine.cli("metrics")
    labels = set(re.findall(r'[{,]([a-z_]+)="', text))
    assert labels == {"device", "tenant", "version"}
    assert 'tenant="ben \\"the second\\""' in text


def test_figures_agree_with_the_listings(machine):
    machine.begin(ANN)
    machine.begin(BEN)
    def difference():
        """Of what both tenants used and the time in which the device was busy."""
        began, before = time.monotonic(), samples(machine.cli("metrics"))
        time.sleep(2)
        after = samples(machine.cli("metrics"))
        took = time.monotonic() - began
        grew = {name: value - before.get(name, 0) for name, value in after.items()}
        busy = grew['divvy_device_busy_seconds_total{device="0"}']
        assert busy <= took + 0.1 and grew['divvy_device_grants_total{device="0"}'] > 0
        assert after['divvy_tenant_request_ratio{device="0",tenant="ann"}'] == 0.6
        return abs(busy - sum(grew['divvy_tenant_device_seconds_total{device="0",tenant="%s"}' % name]
                              for name in ("ann", 'ben \\"the second\\"')))
    divvytest.assert_median(difference, -1, 0.2)
    name = 'divvy_tenant_device_seconds_total{device="0",tenant="ann"}'
    first = samples(machine.cli("metrics"))[name]
    tenants = {t["name"]: t["devices"][0] for t in json.loads(machine.cli("tenants", "--json"))["tenants"]}
    assert first - 0.1 <= tenants["ann"]["used_s"] <= samples(machine.cli("metrics"))[name] + 0.1


@pytest.mark.parametrize("programs", [1, 2])
def test_used_time_where_two_hold_the_device(program, programs):
    """The listings count a hold in one of two slots as half, as the counters do, while it lasts and when it is over."""
    if os.geteuid() != 0:
        pytest.skip("needs to become other users")
    with divvytest.Daemon(CONFIG + 'devices:\n  - match: "*"\n    slots: 2\n', system=True) as daemon, \
            divvytest.BusyPrograms(daemon, program("turns")) as busy:
        daemon.compile_kernels(program("turns"))
        children = [busy.start(user) for user in (ANN, BEN)[:programs]]
        name = 'divvy_tenant_device_seconds_total{device="0",tenant="ann"}'

        def counted():
            return samples(daemon.cli("metrics"))[name]

        def listed():
            tenants = json.loads(daemon.cli("tenants", "--json"))["tenants"]
            return next(t for t in tenants if t["name"] == "ann")["devices"][0]["used_s"]

        def compare():
            before, used, after = counted(), listed(), counted()
            assert before - 0.001 <= used <= after + 0.001
        divvytest.wait_for(lambda: counted() > 1.5, 60, "it has not used the device")
        last = listed()
        for _ in range(5):   # a counter does not go back
            compare()
            now = listed()
            assert now >= last
            last = now
            time.sleep(0.2)
        for child in children:
            child.kill()
            child.communicate()
        divvytest.wait_for(lambda: not daemon.sessions(), 10, "their sessions do not end")
        assert counted() >= last - 0.001


def test_counters_outlive_the_tenant(machine):
    child = machine.begin(ANN)
    name = 'divvy_tenant_device_seconds_total{device="0",tenant="ann"}'
    divvytest.wait_for(lambda: samples(machine.cli("metrics")).get(name, 0) > 0.6, 20, "it has not used the device")
    child.kill()
    child.communicate()
    divvytest.wait_for(lambda: not machine.sessions(), 10, "its session does not end")
    used = samples(machine.cli("metrics"))[name]
    time.sleep(12)   # after ten seconds divvyd forgets the tenant
    machine.begin(BEN)
    now = samples(machine.cli("metrics"))
    assert now[name] == used > 0.5
    assert 'divvy_tenant_sessions{device="0",tenant="ann"}' not in now


def test_the_port_serves_metrics_and_nothing_else(machine):
    machine.begin(ANN)
    assert "divvy_build_info" in scrape(machine.port)
    for path in ("/v1/sessions", "/v1/whoami", "/v1/devices"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            scrape(machine.port, path)
        assert refused.value.code == 403
    with open(os.path.join(machine.home, "config.yaml"), "w") as file:
        file.write(CONFIG)
    machine.cli("reload")
    with pytest.raises(OSError):
        scrape(machine.port)


def test_wrong_paths_on_the_port_count_against_its_rate(machine):
    def status(path):
        connection = http.client.HTTPConnection("127.0.0.1", machine.port, timeout=20)
        try:
            with contextlib.closing(connection):
                connection.request("GET", path)
                answer = connection.getresponse()
                answer.read()
        except ConnectionError:
            return 429   # it is refused before it has asked
        assert answer.getheader("Connection") == "close", "it would keep one of a few places"
        return answer.status
    began = time.monotonic()
    found = [status("/v1/sessions") for _ in range(300)]
    took = time.monotonic() - began
    assert 100 <= found.count(403) <= 100 + 20 * (took + 1), (found.count(403), took)
    assert found.count(403) + found.count(429) == len(found), found
    divvytest.wait_for(lambda: status("/metrics") == 200, 20, "the rate does not recover")


@pytest.mark.parametrize("sent", [b"", b"x"], ids=["silent", "dribbling"])
def test_idle_connections_do_not_hold_the_port(machine, sent):
    with contextlib.ExitStack() as stack:
        others = [stack.enter_context(socket.create_connection(("127.0.0.1", machine.port), timeout=20))
                  for _ in range(8)]

        def is_served():
            for connection in others:
                with contextlib.suppress(OSError):
                    connection.sendall(sent)
            with contextlib.suppress(OSError):
                return "divvy_build_info" in scrape(machine.port)
            return False
        assert not is_served(), "there are more places"
        divvytest.wait_for(lambda: time.sleep(0.5) or is_served(), 20, "the places are held for ever")


# Does what a service manager does with divvyd-metrics.socket.
ACTIVATED = """#!/usr/bin/python3
import os, socket, sys
port = socket.create_server(("127.0.0.1", %d))
os.dup2(port.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv("%s", ["divvyd", *sys.argv[1:]])
"""


def test_a_port_of_the_service_manager(tmp_path):
    """It serves metrics and nothing else, and a reload leaves it open."""
    port = free_port()
    start = tmp_path / "divvyd"
    daemon = divvytest.Daemon()
    start.write_text(ACTIVATED % (port, daemon.program))
    start.chmod(0o755)
    daemon.program = str(start)
    with daemon:
        assert "divvy_build_info" in scrape(port)
        with pytest.raises(urllib.error.HTTPError) as refused:
            scrape(port, "/v1/sessions")
        assert refused.value.code == 403
        daemon.cli("reload")
        assert samples(scrape(port))["divvy_sessions"] == 0


def test_only_operators_read_them_on_the_socket(machine):
    done = subprocess.run([divvytest.binary("divvy"), "metrics"], env=machine.env(), capture_output=True, text=True,
                          **divvytest.identity(BEN))
    assert done.returncode == 1 and "operator" in done.stderr


def test_a_file_for_a_collector(machine, tmp_path):
    path = tmp_path / "divvy.prom"
    machine.cli("metrics", "-o", str(path))
    assert "divvy_sessions 0\n" in path.read_text() and os.listdir(tmp_path) == ["divvy.prom"]


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: os.symlink("/dev/null", path)], ids=["fifo", "link"])
def test_nothing_stands_in_the_way_of_the_draft(machine, tmp_path, put):
    """Whatever others put beside the file under a name made of the process's number."""
    path = tmp_path / "divvy.prom"

    def prepare():
        os.umask(0o027)
        put("%s.%d.tmp" % (path, os.getpid()))
    done = subprocess.run([divvytest.binary("divvy"), "metrics", "-o", str(path)], env=machine.env(), text=True,
                          capture_output=True, preexec_fn=prepare, timeout=20)
    assert done.returncode == 0, done
    assert "divvy_sessions 0\n" in path.read_text() and path.stat().st_mode & 0o7777 == 0o640
    assert len(os.listdir(tmp_path)) == 2


def test_a_file_that_does_not_fit(machine, tmp_path):
    """The file of before stays, and no draft of the new one."""
    path = tmp_path / "divvy.prom"
    path.write_text("before\n")
    done = subprocess.run([divvytest.binary("divvy"), "metrics", "-o", str(path)], env=machine.env(), text=True,
                          capture_output=True, restore_signals=False,   # SIGXFSZ stays ignored
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512)))
    assert done.returncode == 1 and "cannot write" in done.stderr, done
    assert path.read_text() == "before\n" and os.listdir(tmp_path) == ["divvy.prom"]


def test_a_real_prometheus_scrapes_it(machine, tmp_path):
    if not shutil.which("prometheus"):
        pytest.skip("needs prometheus")
    machine.begin(ANN)
    config = tmp_path / "prometheus.yml"
    config.write_text("global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: divvy\n    static_configs:\n"
                      "      - targets: ['127.0.0.1:%d']\n" % machine.port)
    port = free_port()
    server = subprocess.Popen(["prometheus", "--config.file", config, "--storage.tsdb.path", tmp_path / "data",
                               "--web.listen-address", "127.0.0.1:%d" % port], stderr=subprocess.DEVNULL)

    def ask():
        try:
            query = "rate(divvy_tenant_device_seconds_total%7Btenant%3D%22ann%22%7D%5B5s%5D)"
            answer = json.loads(scrape(port, "/api/v1/query?query=" + query))
        except OSError:
            return None
        found = answer["data"]["result"]
        return float(found[0]["value"][1]) if found else None
    try:
        part = divvytest.wait_for(ask, 30, "prometheus has no figures of ann")
        divvytest.assert_median(lambda: time.sleep(2) or ask() or 0, 0.5, 1.05)
        assert part is not None

        def is_up():
            up = json.loads(scrape(port, "/api/v1/query?query=up"))["data"]["result"]
            return [one["value"][1] for one in up] == ["1"]
        divvytest.wait_for(is_up, 20, "prometheus does not reach divvyd")
    finally:
        server.terminate()
        server.wait(timeout=30)


INTEGRATION = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "integration")


def test_alerts_fire_when_they_should():
    if not shutil.which("promtool"):
        pytest.skip("needs promtool")
    place = os.path.join(INTEGRATION, "prometheus")
    for command in (["check", "rules", "divvy-alerts.yaml"], ["test", "rules", "divvy-alerts-test.yaml"]):
        done = subprocess.run(["promtool", *command], cwd=place, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_dashboards_and_alerts_name_metrics_that_exist(machine):
    machine.begin(ANN)
    known = set(re.findall(r"^# TYPE (\S+)", machine.cli("metrics"), re.M))
    for name in ("grafana/divvy.json", "prometheus/divvy-alerts.yaml"):
        with open(os.path.join(INTEGRATION, name)) as file:
            used = set(re.findall(r"\bdivvy_[a-z_]+\b", file.read()))
        assert len(used) > 4 and used <= known, used - known


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
