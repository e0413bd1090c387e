"""`mmb bench`: the cost of a policy, with generated traffic."""

import json
import time

import pytest

from lab import captures, frames
from lab.daemon import mmb
from lab.frames import UDP


@pytest.fixture
def bench(tmp_path):
    """bench(policy, *options) -> its JSON report."""

    def run(policy, *options, seconds=0.3):
        path = tmp_path / "policy"
        path.write_text(policy, encoding="utf-8")
        return json.loads(mmb("bench", "-c", path, "--seconds", seconds, "--json", *options).stdout)

    return run


def test_report(bench):
    report = bench("add udp-dport 1 drop\n", "--flows", 1000, "--size", 64)
    assert {"packets", "seconds", "pps", "ticks_per_packet", "nodes", "drops", "rules"} <= set(report)
    assert report["packets"] > 100_000
    assert report["pps"] == pytest.approx(report["packets"] / report["seconds"], rel=0.05)
    assert 0.2 < report["seconds"] < 3
    assert 5 < report["ticks_per_packet"] < 5000
    assert [rule["text"] for rule in report["rules"]] == ["add udp-dport 1 drop"]
    for name in ("l2-input", "ip4-input", "classify", "wire-output"):
        node = report["nodes"][name]
        assert set(node) >= {"packets", "vectors", "ticks_per_packet"}
        assert node["packets"] >= node["vectors"] > 0


def test_ticks_per_packet_is_the_sum_of_the_nodes_without_generator_and_sink(bench):
    report = bench("add udp-dport 1 drop\n", "--flows", 100)
    spent = {name: node["packets"] * node["ticks_per_packet"] for name, node in report["nodes"].items()}
    total = report["ticks_per_packet"] * report["packets"]
    inside = sum(cost for name, cost in spent.items() if name not in ("bench-rx", "bench-tx"))
    assert {"bench-rx", "bench-tx"} < set(spent)
    assert total == pytest.approx(inside, rel=0.1)


def test_the_cost_of_counting(bench):
    """Counted packets are those of the ordinary measurement; what counting costs is told beside it."""
    report = bench("add all accept\n", "--counting", "--flows", 100)
    [rule] = report["rules"]
    assert rule["packets"] == report["packets"]
    cost = report["counting"]
    assert cost["rounds"] >= 10 and cost["least_percent"] <= cost["percent"]
    # Both parts are compared with the same path.
    assert cost["clock_ticks_per_packet"] > 0
    ratio = cost["percent"] / cost["clock_percent"]
    assert cost["ticks_per_packet"] / cost["clock_ticks_per_packet"] == pytest.approx(ratio)
    assert "counting" not in bench("add all accept\n")


def test_a_case_against_another(tmp_path):
    """A set is compared with its elements as rules; neither matches a packet."""
    run = ("bench", "--case", "set", "--against", "sources", "--rules", 100, "--seconds", "0.5")
    report = json.loads(mmb(*run, "--json").stdout)
    assert report["case"]["name"] == "set" and report["against"]["rounds"] >= 10
    # A lookup of either costs some ticks; rules that are looked up one by one would cost hundreds.
    assert abs(report["against"]["ticks_per_packet"]) < report["ticks_per_packet"]
    assert "more than the other case: " in mmb(*run).stdout
    refused = mmb("bench", "--case", "stateful", "--against", "sources", check=False)
    assert refused.returncode == 2 and "stateless" in refused.stderr


def test_a_rule_that_drops_everything(bench):
    report = bench("add all drop\n")
    assert report["drops"]["rule"] == pytest.approx(report["packets"], rel=0.01)
    [rule] = report["rules"]
    assert rule["decided"] == rule["packets"] == report["drops"]["rule"]


@pytest.mark.parametrize("proto, dropped", [("tcp", 0.0), ("udp", 1.0), ("mix", 0.5)])
def test_protocols(bench, proto, dropped):
    report = bench("add ip-proto udp drop\n", "--proto", proto, "--flows", 4000)
    assert report["drops"].get("rule", 0) / report["packets"] == pytest.approx(dropped, abs=0.15)


def test_generated_addresses(bench):
    report = bench("add ip-saddr 10.0.0.0/8 ip-daddr 198.18.0.0/15 drop\n", "--flows", 5000)
    assert report["drops"]["rule"] == pytest.approx(report["packets"], rel=0.01)
    report = bench("add ip6-saddr 2001:2::/48 ip6-daddr 2001:2::/48 drop\n", "--flows", 5000, "--ip6")
    assert report["drops"]["rule"] == pytest.approx(report["packets"], rel=0.01)


@pytest.mark.parametrize("order", ["uniform", "zipf", "burst"])
def test_orders(bench, order):
    assert bench("", "--order", order, "--flows", 1000)["packets"] > 0


def test_seed_makes_the_same_traffic(bench):
    shares = []
    for _ in range(2):
        report = bench("add udp-sport 1024 drop\nadd ip-saddr 10.0.0.0/11 drop\n", "--seed", 42, "--flows", 64)
        shares.append(report["drops"]["rule"] / report["packets"])
    assert shares[0] == pytest.approx(shares[1], abs=0.01)


def test_frames_of_every_size(bench):
    for size in (64, 128, 1514):
        assert bench("add all mod ip-ttl 9\n", "--size", size, "--flows", 100)["packets"] > 0


def test_capture_as_traffic(bench, tmp_path):
    records = [
        (captures.START, frames.ether() / frames.ip4() / UDP(sport=1, dport=port) / frames.payload())
        for port in (1, 2, 3, 4)
    ]
    (tmp_path / "in.pcap").write_bytes(captures.pcap(records))
    report = bench("add udp-dport 2 drop\n", "--pcap", tmp_path / "in.pcap")
    assert report["drops"]["rule"] == pytest.approx(report["packets"] / 4, rel=0.02)


def test_two_workers(bench):
    assert bench("add udp-dport 1 drop\n", "--workers", 2)["packets"] > 0


PATHS = {
    (): ("ip4-input", "ip4-lookup", "ip4-rewrite"),
    ("--ip6",): ("ip6-input", "ip6-lookup", "ip6-rewrite"),
}


@pytest.mark.parametrize("options", PATHS, ids=["ip4", "ip6"])
def test_routed(bench, options):
    report = bench("", "--mode", "routed", "--routes", 2000, "--flows", 5000, *options)
    assert report["routes"] == 2000 and report["packets"] > 50_000 and not report["drops"]
    nodes = [report["nodes"][name] for name in PATHS[options]]
    assert all(node["packets"] == pytest.approx(report["packets"], rel=0.01) for node in nodes)
    assert report["plain_path"] == pytest.approx(sum(node["ticks_per_packet"] for node in nodes), rel=0.01)
    assert "ratio" not in report and "wire-output" not in report["nodes"]


def test_routed_with_rules(bench):
    """Rules apply to routed packets too, and their cost is reported relative to the path without rules."""
    report = bench("add ip-proto udp drop\nadd ip-proto tcp mod ip-dscp 1\n", "--mode", "routed", "--flows", 4000)
    assert report["drops"]["rule"] / report["packets"] == pytest.approx(0.5, abs=0.1)
    nodes = report["nodes"]
    assert nodes["classify"]["packets"] == pytest.approx(report["packets"], rel=0.01)
    assert nodes["ip4-rewrite"]["packets"] == pytest.approx(nodes["rewrite"]["packets"], rel=0.01)
    # On a busy machine the difference of two costs can be below zero.
    assert report["plain_path"] > 0 and isinstance(report["ratio"], float)


CASES = ["exact", "mixed", "masks", "field-masks", "options", "ranges", "sources", "set"]
SESSION_CASES = ["stateful", "nat", "stateful-nat", "new-sessions"]
CASES6 = [*CASES, "stateful", "new-sessions"]


@pytest.mark.parametrize(("case", "ip6"), [*((case, ()) for case in CASES + SESSION_CASES), *((case, ("--ip6",)) for case in CASES6)])
def test_routed_cases(case, ip6):
    words = ("--mode", "routed", "--case", case, "--rules", 20, "--flows", 500, "--seconds", "0.3", "--json", *ip6)
    report = json.loads(mmb("bench", *words).stdout)
    # On a busy machine the difference of two costs can be below zero.
    assert report["plain_path"] > 0 and isinstance(report["ratio"], float)
    # Sessions that are open know their next hop, and send packets on.
    version = "ip6" if ip6 else "ip4"
    last = "flow-lookup" if case in ("stateful", "nat", "stateful-nat") else f"{version}-rewrite"
    assert report["nodes"][last]["packets"] == pytest.approx(report["packets"], rel=0.02)
    looked_up = report["nodes"].get(f"{version}-lookup", {"packets": 0})["packets"]
    assert looked_up < report["packets"] / 2 if last == "flow-lookup" else looked_up > 0


def test_routed_configuration_and_capture(bench, tmp_path):
    """`--mode routed` accepts a wire's configuration; the frames of a capture are readdressed to the port and
    have routes.
    """
    frame = frames.ether() / frames.ip4() / UDP(sport=1, dport=2) / frames.payload()
    (tmp_path / "in.pcap").write_bytes(captures.pcap([(captures.START, frame)]))
    policy = "interface add a null\ninterface add b null\nwire a b\nadd in a udp-dport 2 mod udp-dport 3\n"
    report = bench(policy, "--mode", "routed", "--pcap", tmp_path / "in.pcap")
    assert report["rules"][0]["packets"] == pytest.approx(report["packets"], rel=0.01)
    assert report["nodes"]["ip4-rewrite"]["packets"] == pytest.approx(report["packets"], rel=0.01)


def test_text_for_people(tmp_path):
    path = tmp_path / "policy"
    path.write_text("add udp-dport 1 drop\n", encoding="utf-8")
    shown = mmb("bench", "-c", path, "--seconds", "0.2").stdout
    for expected in ("classify", "ip4-input", "packets"):
        assert expected in shown
    assert "neighbor-rx" not in shown, "a node without packets"


def test_a_hundred_thousand_rules(bench, tmp_path, figure):
    """100,000 rules load in 2 s and cost little more than ten. The limits are doubled for busy machines."""
    rules = []
    for n in range(100_000):
        addresses = f"ip-saddr 172.16.{n >> 8 & 255}.{n & 255} ip-daddr 192.0.2.{n % 251}"
        rules.append(f"add ip-proto tcp {addresses} tcp-sport {n % 60000 + 1} tcp-dport {n // 7 % 60000 + 1} drop\n")
    ten = min(bench("".join(rules[:10]), "--seed", 1)["ticks_per_packet"] for _ in range(3))
    many = min(bench("".join(rules), "--seed", 1)["ticks_per_packet"] for _ in range(3))
    figure("ticks per packet, 10 / 100,000 five-tuple rules", f"{ten:.1f} / {many:.1f} ({many / ten:.2f} x)")
    assert many < 2 * ten
    path = tmp_path / "many"
    path.write_text("".join(rules), encoding="utf-8")
    start = time.monotonic()
    mmb("check", path)
    taken = time.monotonic() - start
    figure("100,000 rules read and compiled by `mmb check`", f"{taken:.2f} s")
    # Not the figure (that is for the bench), but far from what anything quadratic would take on a busy
    # machine.
    assert taken < 20


@pytest.mark.parametrize(
    "options, word",
    [
        (["--flows", "0"], "flows"),
        (["--size", "100000"], "100000"),
        (["--proto", "sctp"], "sctp"),
        (["--order", "none"], "none"),
        (["--seconds", "0"], "seconds"),
        (["--pcap", "/nonexistent/in.pcap"], "/nonexistent/in.pcap"),
        (["--routes", "10"], "--mode routed"),
        (["--mode", "routed", "--routes", "0"], "routes"),
        (["--mode", "routed", "--null-ports"], "null ports"),
        (["--counting", "--null-ports"], "--null-ports"),
        (["--against", "sources"], "--against"),
    ],
)
def test_bad_options(tmp_path, options, word):
    path = tmp_path / "policy"
    path.write_text("", encoding="utf-8")
    refused = mmb("bench", "-c", path, *options, check=False)
    assert refused.returncode != 0 and word in refused.stderr and "panicked" not in refused.stderr


def test_the_memory_of_sessions(bench):
    """The two flows of a session take a cache line each (docs/stations/sessions.md)."""
    stateful = "add-stateful ip-saddr 10.0.0.0/8 accept\n"
    sessions = bench(stateful, "--flows", 20_000, "--sessions", 40_000)["sessions"]
    assert sessions["open"] == 20_000 and 128 < sessions["bytes"] < 2048
    assert "sessions" not in bench("add all accept\n")
    assert "sessions" not in bench(stateful, "--workers", 2)
