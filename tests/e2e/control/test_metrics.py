"""Metrics over TCP, read by Prometheus; the dashboard and the alert rules in packaging/."""

import http.client
import json
import re
import socket

import pytest

from lab import wait
from lab.daemon import ROOT
from lab.netns import Namespace, installed, run

PACKAGING = ROOT / "packaging"
OPEN_METRICS = "application/openmetrics-text"
ADDRESS = ("127.0.0.1", 9777)

# What each family of metrics needs.
CONFIG = """\
interface add lan null
interface add wan af-packet m0
route wan
nat pool add home 192.0.2.1 ports 1024-2047 block 256
nf add limit police 1mbit
chain add c limit
add-stateful out wan nat home
add-stateful in lan chain c
add udp-dport 9 drop name discard
"""


@pytest.fixture(scope="module")
def space(root):
    namespace = Namespace("metrics")
    namespace.run("ip", "link", "add", "m0", "type", "veth", "peer", "name", "c0")
    for name in ("m0", "c0"):
        namespace.run("ip", "link", "set", name, "up")
    yield namespace
    namespace.delete()


@pytest.fixture
def daemon(space, make_daemon):
    daemon = make_daemon(space, CONFIG, arguments=("--metrics", "%s:%d" % ADDRESS))
    wait.until(lambda: "metrics on http://127.0.0.1:9777/metrics" in daemon.log(), "the address in the log")
    return daemon


def get(space, path="/metrics", method="GET", **headers):
    """A request by TCP: status, headers, text."""
    with space.entered():
        connection = http.client.HTTPConnection(*ADDRESS, timeout=wait.PATIENCE)
        connection.connect()
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


def names(text):
    """The names of the metrics in the text format of Prometheus."""
    return set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))


def used(expressions):
    """The names of mmb's metrics in expressions of PromQL."""
    return set(re.findall(r"\bmmb_\w+", "\n".join(expressions)))


def test_both_formats(space, daemon):
    _, headers, text = get(space)
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8" and headers["Vary"] == "accept"
    assert "# TYPE mmb_rule_bytes_total counter" in text and "# UNIT" not in text and "# EOF" not in text
    _, headers, open_text = get(space, Accept=f"{OPEN_METRICS};version=1.0.0,text/plain;q=0.5")
    assert headers["Content-Type"].startswith(OPEN_METRICS)
    assert "# TYPE mmb_rule_bytes counter\n# UNIT mmb_rule_bytes bytes\n" in open_text and open_text.endswith("# EOF\n")
    samples = [{line.split(" ")[0] for line in one.splitlines() if line[0] != "#"} for one in (text, open_text)]
    assert samples[0] == samples[1] and len(samples[0]) > 100
    assert run("promtool", "check", "metrics", input=text).stdout == ""


def test_only_metrics_can_be_read(space, daemon):
    assert get(space, "/v1/config")[0] == 404
    assert get(space, "/v1/rules", "DELETE")[0] == 404
    assert get(space, method="POST")[0] == 405
    assert get(space, method="HEAD")[2] == ""
    assert len(daemon.rules()) == 3


def test_connections_have_a_limit_of_their_own(space, daemon):
    with space.entered():
        held = [socket.create_connection(ADDRESS) for _ in range(128)]
    wait.until(lambda: get(space)[0] == 503, "a refusal")
    assert len(daemon.rules()) == 3
    for connection in held:
        connection.close()
    wait.until(lambda: get(space)[0] == 200, "an answer")


def test_an_address_that_is_taken_is_an_error(space, daemon, make_daemon):
    second = make_daemon(space, "", start=False, arguments=("--metrics", "127.0.0.1:9777"))
    second.launch()
    assert wait.for_end(second.process, "mmb") == 1
    assert "error: cannot listen for metrics on 127.0.0.1:9777: Address already in use" in second.log()


def test_dashboard_and_alerts_use_metrics_that_exist(space, daemon):
    known = names(get(space)[2])
    dashboard = json.loads((PACKAGING / "grafana" / "mmb.json").read_text(encoding="utf-8"))
    shown = used(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    alerts = (PACKAGING / "prometheus" / "mmb.rules.yml").read_text(encoding="utf-8")
    alerting = used(re.findall(r"expr: (.*)", alerts))
    assert len(shown) > 25 and len(alerting) > 8
    assert shown | alerting <= known, (shown | alerting) - known


def test_alerts_fire_as_their_tests_say():
    directory = PACKAGING / "prometheus"
    run("promtool", "check", "rules", directory / "mmb.rules.yml")
    run("promtool", "test", "rules", "mmb.rules.test.yml", cwd=directory)
    tested = set(re.findall(r"alertname: (\w+)", (directory / "mmb.rules.test.yml").read_text(encoding="utf-8")))
    assert tested == set(re.findall(r"alert: (\w+)", (directory / "mmb.rules.yml").read_text(encoding="utf-8")))


def test_prometheus_reads_them(space, daemon, tmp_path):
    """A scrape, and the expressions of the dashboard on what it read."""
    config = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
        "rule_files": [str(PACKAGING / "prometheus" / "mmb.rules.yml")],
        "scrape_configs": [{"job_name": "mmb", "static_configs": [{"targets": ["127.0.0.1:9777"]}]}],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
    options = ["--web.listen-address=127.0.0.1:9090", f"--storage.tsdb.path={tmp_path}/data", "--log.level=warn"]
    with (tmp_path / "log").open("w", encoding="utf-8") as log:
        command = [installed("prometheus"), f"--config.file={tmp_path}/prometheus.yml", *options]
        process = space.popen(*command, stdout=log, stderr=log)

    def query(expression):
        with space.entered():
            connection = http.client.HTTPConnection("127.0.0.1", 9090, timeout=wait.PATIENCE)
            try:
                connection.connect()
            except ConnectionRefusedError:
                return None
        body = "query=" + "".join(f"%{byte:02x}" for byte in expression.encode())
        connection.request("POST", "/api/v1/query", body, {"Content-Type": "application/x-www-form-urlencoded"})
        response = connection.getresponse()
        text = response.read()
        connection.close()
        if response.status == 503:
            # It reads its storage yet.
            return None
        answer = json.loads(text)
        assert answer["status"] == "success", (expression, answer)
        return answer["data"]["result"]

    try:
        wait.until(lambda: query('up{job="mmb"} == 1'), f"a scrape: {(tmp_path / 'log').read_text()}")
        (rules,) = query("mmb_rules")
        assert rules["value"][1] == "3"
        assert [one["metric"]["name"] for one in query("mmb_rule_packets_total{name!=''}")] == ["discard"]
        dashboard = json.loads((PACKAGING / "grafana" / "mmb.json").read_text(encoding="utf-8"))
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                query(target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*"))
    finally:
        process.terminate()
        wait.for_end(process, "prometheus")
