"""bench/run: its output, the input of peers, and the program that measures the kernel."""

import os
import signal
import subprocess
import sys

import pytest
import scapy.layers.inet  # noqa: F401 - what rdpcap is to find in the frames
from scapy.utils import rdpcap

from lab.daemon import ROOT, binary, mmb

sys.path.insert(0, str(ROOT / "bench"))

from side import boxes, page, scale  # noqa: E402
from side.peers import acl, fastclick, frames, ovs, rules, search, testpmd, vpp  # noqa: E402
from side.results import AF_PACKET, FAST, MMB, OWN_SEARCH, Absent, Experiment, NotInstalled, Series, load  # noqa: E402
from side.workers import copies  # noqa: E402

# What VPP prints, in the columns that its documentation shows; a node's state may be two words.
SHOW_RUNTIME = """\
Time 11.5, 10 sec internal node vector rate 256.00 loops/sec 41093.16
  vector rates in 1.0523e7, out 1.0521e7, drop 0.0000e0, punt 0.0000e0
             Name                 State         Calls          Vectors        Suspends         Clocks       Vectors/Call
acl-plugin-fa-cleaner-process  event wait                0               0               1          2.84e4            0.00
acl-plugin-in-ip4-fa             active                 40           10240               0          9.90e1          256.00
api-rx-from-ring                any wait                 0               0              30          1.24e5            0.00
ethernet-input                   active                 80           20480               0          1.10e1          256.00
ip4-lookup                       active                 80           20480               0          1.31e1          256.00
pg-input                        polling             473003           20480               0          3.16e2             .04
interface-output                 active                 80           20480               0          5.91e0          256.00
pg0-tx                           active                 40           10240               0          8.02e1          256.00
pg1-tx                           active                 40           10240               0          8.02e1          256.00
unix-epoll-input                polling               2000               0               0          1.53e3            0.00
"""


def measured(unit="ticks a packet"):
    experiment = Experiment("try", "A try", "memory", "rules", unit, "a paper", {"mmb": "as it is"}, ["Nothing else."])
    values = {("mmb", 10): [9, 11, 10], ("mmb", 100): [30, 31, 32], ("peer", 10): [20, 21, 22], ("peer", 100): [15, 16, 14]}
    series = [Series(name, lambda x, name=name: values[name, x].pop(0), [10, 100]) for name in ("mmb", "peer")]
    return experiment.measure(series, 3)


def test_results_are_read_as_they_were_written(tmp_path, monkeypatch):
    monkeypatch.setattr("side.results.RESULTS", tmp_path)
    experiment = measured()
    experiment.save()
    assert load(tmp_path / "try.json") == experiment
    assert (tmp_path / "try.csv").read_text().splitlines()[1] == "mmb,10,10,9,11,3"


def test_the_page_says_first_where_a_peer_is_ahead():
    less, more = (page.section(measured(unit)) for unit in ("ticks a packet", "Gbit/s"))
    assert "peer is ahead at rules 100: 15.0 against 31.0 ticks a packet, 2.07" in less and "ahead at rules 10:" not in less
    assert "peer is ahead at rules 10: 21.0 against 10.0 Gbit/s, 2.10" in more and "ahead at rules 100" not in more
    assert less.index("ahead") < less.index("| mmb |")


def test_the_page_begins_with_all_places_where_a_peer_is_ahead():
    shown = page.text([measured()], {})
    head = "| memory | peer | ahead at | up to |\n|---|---|---|---:|\n"
    assert f"{head}| [A try](#a-try) | peer | rules 100 | 2.07 × |\n" in shown
    assert shown.index("Where a peer is ahead") < shown.index("## Machine") < shown.index("## A try")


def test_a_peer_is_compared_with_the_series_of_mmb_that_does_the_same():
    experiment = Experiment("try", "A try", "memory", "flows", "ticks a packet", "", {}, [])
    values = {"mmb, wire": 5, "mmb, routed": 50, "switch, wire": 10, "router": 20}
    experiment.measure([Series(name, lambda x, name=name: values[name], [1]) for name in values], 1)
    assert [(one.peer, one.mine) for one in page.ahead(experiment)] == [("router", "mmb, routed")]


def test_what_mmb_does_besides_is_compared_with_peers_that_do_so():
    values = {"mmb": 10, "mmb, apart": 22, "mmb, transparent": 30, "proxy": 20, "proxy, transparent": 25}
    experiment = Experiment("try", "A try", "end to end", "connections", "system calls a request", "", {}, [])
    experiment.measure([Series(name, lambda x, name=name: values[name], [1]) for name in values], 1)
    found = [("proxy", "mmb, apart"), ("proxy, transparent", "mmb, transparent")]
    assert [(one.peer, one.mine) for one in page.ahead(experiment)] == found


def test_peers_are_not_compared_with_packets_of_another_version_of_ip():
    values = {"mmb": 10, "mmb, IPv6": 30, "peer": 20, "other, IPv6": 25}
    experiment = Experiment("try", "A try", "memory", "rules", "ticks a packet", "", {}, [])
    experiment.measure([Series(name, lambda x, name=name: values[name], [1]) for name in values], 1)
    assert [(one.peer, one.mine) for one in page.ahead(experiment)] == [("other, IPv6", "mmb, IPv6")]


def test_peers_are_not_compared_with_rules_that_they_were_not_given():
    values = {"mmb": 10, "mmb, any fields": 30, "peer": 20}
    experiment = Experiment("try", "A try", "memory", "masks", "ticks a packet", "", {}, [])
    experiment.measure([Series(name, lambda x, name=name: values[name], [1]) for name in values], 1)
    assert not page.ahead(experiment)


@pytest.mark.parametrize("unit, mine", [("ticks a packet", "mmb"), ("Gbit/s", FAST)])
def test_peers_are_compared_with_the_best_configuration_of_mmb(unit, mine):
    experiment = Experiment("try", "A try", "end to end", "rules", unit, "", {}, [])
    values = {"mmb": 10, FAST: 20, AF_PACKET: 18, "slow": 1, "middle": 15, "fast": 30}
    experiment.measure([Series(name, lambda x, name=name: values[name], [1]) for name in values], 1)
    less = unit == "ticks a packet"
    assert [(one.peer, one.mine) for one in page.ahead(experiment)] == [("slow" if less else "fast", mine)]
    assert f"| {FAST} | 20.0 |" in page.section(experiment) and "| mmb | 10.0 |" in page.section(experiment)


def test_a_place_that_fails_costs_that_place_only(capsys):
    rounds = iter([[1, 2], [3, 4], None])

    def at(x):
        if x == 2:
            return 5
        return next(rounds)[0]

    experiment = Experiment("try", "A try", "memory", "rules", "ticks a packet", "", {}, [])
    experiment.measure([Series("mmb", at, [1, 2])], 4)
    assert [(point.x, point.values) for point in experiment.points] == [(1, [1, 3]), (2, [5, 5, 5, 5])]
    assert experiment.failed == ["mmb at rules 1"] and "TypeError" in capsys.readouterr().err
    assert "* mmb at rules 1: failed: 'NoneType' object is not subscriptable" in page.section(experiment)


def test_a_peer_that_cannot_is_asked_once_and_the_page_says_why():
    asked = []

    def fail(why):
        def at(x):
            asked.append(x)
            raise why

        return at

    experiment = Experiment("try", "A try", "memory", "rules", "ticks a packet", "", {"gone": "as it comes"}, [])
    series = [Series("mmb", lambda x: 1, [10, 100]), Series("gone", fail(NotInstalled()), [10, 100])]
    experiment.measure([*series, Series("small", fail(Absent("too many")), [100])], 3)
    assert asked == [10, 100]
    shown = page.section(experiment)
    assert "* gone: **not installed**. Configuration: as it comes" in shown and "* small at rules 100: too many" in shown


@pytest.mark.parametrize("command, text", [
    (["nft", "-c", "-f", "-"], rules.nft_set(50)),
    (["nft", "-c", "-f", "-"], rules.nft_rules(50)),
    (["iptables-restore", "--test"], rules.iptables_rules(50)),
], ids=["nft-set", "nft-rules", "iptables"])  # fmt: skip
def test_peers_take_their_rules(make_bench, command, text):
    make_bench().mbox.run(*command, input=text)


def test_mmb_takes_the_same_rules(tmp_path):
    (tmp_path / "rules").write_text(boxes.five_tuples(50), encoding="utf-8")
    assert mmb("check", tmp_path / "rules").returncode == 0


@pytest.mark.parametrize("made", [rules.five_tuples, rules.masked])
def test_rules_and_flows_have_the_format_of_classbench(tmp_path, made):
    """By mmb, which measures itself with both files; none of the packets matches."""
    (tmp_path / "rules").write_text(rules.classbench(made(50)), encoding="ascii")
    (tmp_path / "trace").write_text(acl.trace(16), encoding="ascii")
    case = ("--case", "classbench", tmp_path / "rules", "--trace", tmp_path / "trace")
    done = mmb("bench", "--json", "--seconds", "0.05", *case)
    assert done.returncode == 0, done.stderr
    assert len(set(made(50))) == 50


def test_classification_alone_is_compared_with_the_same_of_the_same_run(monkeypatch):
    answers = iter([(5, 20), (7, 21), Absent("too large")])

    def classify(_):
        answer = next(answers)
        if isinstance(answer, Absent):
            raise answer
        return answer

    monkeypatch.setattr(acl, "classify", classify)
    experiment = Experiment("try", "A try", "memory", "rules", "ticks a packet", "", {}, [])
    experiment.measure([Series("mmb", lambda x: 40, [1]), *acl.series(lambda x: [], [1])], 3)
    assert [(point.series, point.values) for point in experiment.points] == [
        ("mmb", [40, 40, 40]), (acl.THEIRS, [20, 21]), (acl.OURS, [5, 7]),
    ]  # fmt: skip
    assert not page.ahead(experiment)


def test_a_search_is_compared_with_the_library_in_the_same_run(monkeypatch):
    """The lines are those of `crates/search/examples/search_cost.rs`."""
    shown = "hs_scan_stream     100.5 ns\nhyperscan 5.4.0    104.0 ns\naho-corasick      1800.0 ns\n"
    runs = []

    def measure(literals):
        runs.append(literals)
        return search.read(shown)

    monkeypatch.setattr(search, "measure", measure)
    experiment = Experiment("try", "A try", "memory", "literals", "ns a segment", "", {}, [])
    experiment.measure(search.series([10, 100]), 2)
    assert runs == [10, 100, 10, 100]
    # What mmb does without the library is not what the library is compared with.
    assert [(one.mine, one.theirs, one.ours) for one in page.ahead(experiment)] == [("mmb", 100.5, 104.0)] * 2
    found = {(point.series, point.x): point.values for point in experiment.points}
    assert found[search.RAW, 10] == [100.5, 100.5] and found[MMB, 100] == [104, 104]
    assert found[OWN_SEARCH, 10] == [1800, 1800] and not experiment.failed


def test_a_search_without_the_library_is_left_out(monkeypatch):
    monkeypatch.setattr(search, "is_installed", lambda: False)
    experiment = Experiment("try", "A try", "memory", "literals", "ns a segment", "", {}, [])
    experiment.measure(search.series([10]), 2)
    assert not experiment.points and experiment.absent[search.RAW] == "not installed" and not experiment.failed


def test_the_functions_that_copy_packets_are_found_in_mmb():
    """Probes count their calls, if they keep their names and are not inlined."""
    assert copies.offsets(binary()).keys() == set(copies.METHODS)


def test_captures_hold_each_flow_and_its_answer(tmp_path):
    frames.capture(tmp_path / "pcap", frames.both(40, frames.OUTSIDE))
    packets = rdpcap(str(tmp_path / "pcap"))
    flows = {(packet["IP"].src, packet["UDP"].sport) for packet in packets[::2]}
    assert len(packets) == 80 and len(flows) == 40
    for packet in packets:
        right = packet["IP"].copy()
        del right.chksum
        assert len(packet) == frames.SIZE and packet["IP"].chksum == right.__class__(bytes(right)).chksum
    assert {packet["IP"].dst for packet in packets[1::2]} == {frames.OUTSIDE}
    # In an order that does not follow addresses or ports.
    hosts = [packet["IP"].src for packet in packets[::2]]
    assert hosts != sorted(hosts)


def test_segments_of_captures_are_those_of_connections(tmp_path):
    frames.capture(tmp_path / "pcap", [*frames.requests(3, frames.SYN), *frames.answers(3, flags=frames.ACK)])
    packets = rdpcap(str(tmp_path / "pcap"))
    assert [str(packet["TCP"].flags) for packet in packets] == ["S", "S", "S", "A", "A", "A"]
    for packet in packets:
        right = packet["IP"].copy()
        del right["TCP"].chksum
        assert packet["TCP"].chksum == right.__class__(bytes(right))["TCP"].chksum
        assert (packet["TCP"].seq, packet["TCP"].ack) == ((1, 1) if packet["TCP"].flags == "A" else (0, 0))


def test_clocks_of_vpp_are_those_between_generator_and_interfaces():
    # The acl plugin sees half of the packets; pg-input, pg0-tx and pg1-tx are the generator's.
    assert vpp.clocks(SHOW_RUNTIME) == pytest.approx(99 / 2 + 11 + 13.1 + 5.91)


def test_vpp_is_not_measured_where_it_drops():
    with pytest.raises(RuntimeError, match="of 20480 packets, VPP forwarded 10240"):
        vpp.clocks("".join(line for line in SHOW_RUNTIME.splitlines(keepends=True) if not line.startswith("pg0-tx")))
    with pytest.raises(RuntimeError, match="VPP generated no packets"):
        vpp.clocks("")


def test_vpp_and_fastclick_get_the_rules():
    five, masked = ("11.0.0.1", "12.0.0.2", "tcp", 7, 8), ("11.0.0.0/16", "12.0.0.0/20", "udp", None, 9)
    commands = vpp.access_list([five, masked], reflect=True).splitlines()
    assert commands[0] == (
        "set acl-plugin acl deny src 11.0.0.1/32 dst 12.0.0.2/32 proto 6 sport 7 dport 8, "
        "deny src 11.0.0.0/16 dst 12.0.0.0/20 proto 17 dport 9, permit+reflect src 0.0.0.0/0 dst 0.0.0.0/0"
    )
    assert commands[1:] == [
        "set acl-plugin interface pg0 input acl 0",
        "set acl-plugin acl deny src 0.0.0.0/0 dst 0.0.0.0/0",
        "set acl-plugin interface pg0 output acl 1",
    ]
    both = vpp.access_list([five, masked]).splitlines()
    assert both[1:] == [f"set acl-plugin interface pg{port} input acl 0" for port in (0, 1)]
    assert fastclick.filters([five, masked]) == (
        "IPFilter(deny tcp && src host 11.0.0.1 && dst host 12.0.0.2 && src port 7 && dst port 8, "
        "deny udp && src net 11.0.0.0/16 && dst net 12.0.0.0/20 && dst port 9, allow all)"
    )
    assert fastclick.filters([five] * (fastclick.MOST + 1)).count("IPFilter(") == 2


@pytest.fixture
def click(tmp_path, monkeypatch):
    """click(script) -> a program of that name is found, which is this shell script."""

    def make(script):
        program = tmp_path / "click"
        program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        forget()

    def forget():
        fastclick.program.cache_clear()
        fastclick.manager.cache_clear()

    yield make
    forget()


def test_fastclick_gets_its_elements(click):
    click("exit 1")
    elements, declared = fastclick.tracker([])
    text = fastclick.configuration("f.pcap", elements, declared)
    assert text.startswith("rw :: IPRewriter(") and "-> [0]rw[0] -> c :: Counter -> Discard;" in text


def test_fastclick_has_buffers_where_it_has_dpdk(click):
    click('[ "$1" = --dpdk ] && ! echo "$*" | grep -q "FlowIPManager("')
    assert fastclick.configuration("f.pcap").startswith("DPDKInfo(NB_MBUF 262144);")
    assert fastclick.program()[:2] == ["click", "--dpdk"] and fastclick.program()[-3:] == ["--", "-j", "1"]
    # The first manager that starts.
    assert fastclick.flows() == "FlowIPManagerHMP(CAPACITY 131072) -> FlowCounter"


def test_the_reason_is_what_fastclick_said_last(click):
    click("echo 'config:1: unknown element class FlowIPNAT' >&2; echo 'Router could not be initialized!' >&2; exit 1")
    with pytest.raises(RuntimeError, match="unknown element class FlowIPNAT Router could not be initialized!"):
        fastclick.cost(fastclick.flows_nat(), 4)


def test_packets_of_fastclick_are_counted_between_two_times():
    assert fastclick.seconds_each("EAL: x\nat 100.5 32\nat 100.7 1032\n") == pytest.approx(0.2 / 1000)
    for shown in ("at 100.5 32\n", "at 100.5 1024\nat 100.6 1024\n", ""):
        with pytest.raises(RuntimeError, match="did not forward the packets"):
            fastclick.seconds_each(shown)


def test_testpmd_is_measured():
    """testpmd on null ports, and on the ports of the Open vSwitch measurement."""
    assert testpmd.ticks("net_null0", "net_null1") > 0 and testpmd.replayed(65536) > 0


@pytest.mark.skipif(not ovs.PROGRAM.exists(), reason="Open vSwitch with DPDK is not installed (bench/install-peers)")
def test_open_vswitch_is_measured():
    """Rules, tracking and NAT have a cost and forward the flows in both directions; a switch that drops them
    is not measured.
    """
    with ovs.OpenVSwitch() as switch:
        plain = switch.cost(flows=64)
        assert plain > 0
        for text, hidden in (
            (rules.open_flows(rules.masked(20), ovs.PASS), None), (ovs.ROUTES, None),
            (rules.open_flows(rules.five_tuples(20), ovs.TRACK, table=1), None), (ovs.NAT, frames.OUTSIDE),
        ):  # fmt: skip
            assert switch.cost(text, 64, hidden) > plain
        with pytest.raises(RuntimeError, match="sent 0"):
            switch.cost("priority=1,actions=drop\n", 64)


@pytest.mark.skipif(not ovs.PROGRAM.exists(), reason="Open vSwitch with DPDK is not installed (bench/install-peers)")
def test_an_open_vswitch_that_dies_costs_its_own_values_only():
    """Results of other series are kept when a peer fails to stop."""
    experiment = Experiment("try", "A try", "memory", "rules", "ticks a packet", "", {}, [])
    with ovs.OpenVSwitch() as switch:
        os.kill(switch.daemons[1], signal.SIGKILL)
        experiment.measure([Series("Open vSwitch", lambda x: switch.added(rules.NFT_KNOWN), [1]), Series("mmb", lambda x: 1, [1])], 2)
    assert [(point.series, point.values) for point in experiment.points] == [("mmb", [1, 1])]
    assert experiment.failed == ["Open vSwitch at rules 1"]


@pytest.mark.parametrize("program, options", [
    ("drop", []), ("firewall", ["rules=1000"]), ("tracker", ["rules=1000", "tracked=1"]),
    ("pass", ["live=1", "interface=m0"]),
], ids=["drop", "firewall", "tracker", "stack"])  # fmt: skip
def test_the_kernel_is_measured(make_bench, tmp_path, program, options):
    """Programs load, run and take time, and packets of the last one pass the network stack."""
    subprocess.run(["make", "-s", "-C", ROOT / "bench" / "kernel", f"OUT={tmp_path}"], check=True)
    bench = make_bench()
    bench.mbox.run("ethtool", "-K", "m0", "gro", "on")
    mac = bench.mbox.run("cat", "/sys/class/net/m0/address").stdout.strip()
    shown = bench.mbox.run(tmp_path / "cost", tmp_path / f"{program}.o", *options, f"mac={mac}").stdout
    assert float(shown) > 0
    if program == "pass":
        counted = bench.mbox.run("cat", "/proc/net/snmp").stdout.splitlines()[:2]
        names, values = (line.split() for line in counted)
        assert int(values[names.index("InReceives")]) > 1000


@pytest.mark.parametrize("name", scale.OURS)
def test_scale_is_measured(name):
    """Each series has a value at its first place, and words about its configuration. On a busy machine a cost that is the
    difference of two may be less than nothing.
    """
    experiment = scale.ALL[name](0, False)
    assert list(experiment.setup) == [series for series, *_ in scale.OURS[name]]
    for _, at, places, _ in scale.OURS[name]:
        assert isinstance(at(places[0]), float)
