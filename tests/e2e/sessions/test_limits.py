"""Limits of sessions: a host that opens too many is stopped and named, and others go on."""

import socket

import pytest

from lab import wait
from lab.natbench import Mirror, Speaker
from lab.netns import CLIENT4, SERVER4

RULES = "add-stateful in left ip-proto udp accept\nadd ip-proto udp drop\nset session-limit source 20\n"
OTHER4 = "10.77.0.9"


@pytest.mark.parametrize("workers", [1, 2])
def test_source_at_its_limit_is_stopped_and_named(make_wire, workers):
    """One host opens as many sessions as it may; the log, `show runtime` and the metrics have its address."""
    wire = make_wire("af-packet", RULES, workers=workers)
    bench, daemon = wire.bench, wire.daemon
    bench.client.run("ip", "address", "add", f"{OTHER4}/24", "dev", "c0")
    bench.know_neighbours()
    bench.server.run("ip", "neigh", "replace", OTHER4, "lladdr", bench.client.run(
        "cat", "/sys/class/net/c0/address").stdout.strip(), "dev", "s0", "nud", "permanent")
    mirror = Mirror(bench.server, SERVER4, 5000)
    bench.on_close(mirror.close)
    sender = bench.client.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bench.on_close(sender.close)
    sender.bind((CLIENT4, 4000))
    for port in range(6000, 6050):
        sender.sendto(b"?", (SERVER4, port))
    wait.until(lambda: daemon.drops()["session-limit"] == 30, "the drops")
    assert len(daemon.json("show", "connections")["connections"]) == 20
    # Another host is not touched, and neither is a change of the limit.
    speaker = Speaker(bench.client, OTHER4, 4000)
    bench.on_close(speaker.close)
    assert speaker.ask(SERVER4, 5000) == (OTHER4, 4000)
    sources = wait.until(lambda: daemon.json("show", "runtime")["sessions"]["limited_sources"], "a report")
    assert [(source["address"], source["limit"]) for source in sources] == [(CLIENT4, 20)]
    assert f"source {CLIENT4} reached its limit of 20 sessions" in daemon.command("show", "runtime").stdout
    line = f"sessions: {CLIENT4} has reached its limit of 20 sessions; "
    wait.until(lambda: line in daemon.log(), "the log line")
    metrics = daemon.request("GET", "/metrics")[1]
    text = metrics.decode() if isinstance(metrics, bytes) else metrics
    assert f'mmb_sessions_limited_source{{source="{CLIENT4}"}} 20' in text
    assert "set session-limit source 20\n" in daemon.command("show", "config").stdout
    assert "an eighth" in daemon.command("set", "session-limit", "source", "default").stdout
    sender.sendto(b"?", (SERVER4, 7000))
    wait.until(lambda: len(daemon.json("show", "connections")["connections"]) == 22, "one more session")
