"""bench/run end to end: the configurations of the box forward traffic, and the measured quantities are
correct.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from scapy.layers.inet import IP

from lab import traffic, wait
from lab.daemon import ROOT, mmb
from lab.netns import run

sys.path.insert(0, str(ROOT / "bench"))

from side import boxes, ends  # noqa: E402
from side.layer7 import balance, heavy, planes, proxies, web, words  # noqa: E402
from side.peers import ovs, rules  # noqa: E402
from side.results import FAST, FAST_TC, MMB, Absent, Experiment, Series  # noqa: E402
from side.stress import changes, flood, loss, update  # noqa: E402
from side.wire import CLIENT, CLIENT6, MIXED_PORTS, OUTSIDE, PORTS, SERVER, SERVER6, Wire  # noqa: E402
from side.workers import load, modes, overheads, processes, vhost  # noqa: E402

WRK = """Running 1s test @ http://10.2.0.2/8
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     3.25ms    1.05ms  20.67ms   88.62%
    Req/Sec     9.52k   462.01    10.05k    90.00%
  9474 requests in 1.00s, 76.25MB read
Requests/sec:   9471.09
Transfer/sec:     76.00MB
"""


def figure(name):
    return Experiment(name, name, "end to end", "x", "unit", "", {}, [])


def test_figures_of_the_same_runs_get_the_values_of_the_same_run():
    runs = iter(range(100))

    def at(x):
        if x == 3:
            raise Absent("too large")
        run = next(runs)
        return run, 10 * run, None if x == 2 else -run

    one, two, three = ends.together([figure("a"), figure("b"), figure("c")], [Series("mmb", at, [1, 2, 3])], 2)
    assert [(point.x, point.values) for point in one.points] == [(1, [0, 2]), (2, [1, 3])]
    assert [(point.x, point.values) for point in two.points] == [(1, [0, 20]), (2, [10, 30])]
    assert [(point.x, point.values) for point in three.points] == [(1, [0, -2])]
    assert one.absent == two.absent == three.absent == {"mmb at x 3": "too large"}


def test_figures_of_runs_that_failed_have_the_values_of_the_others():
    runs = iter([(1, 10), (2, 20)])
    one, two = ends.together([figure("a"), figure("b")], [Series("mmb", lambda x: next(runs), [1])], 4)
    assert one.points[0].values == [1, 2] and two.points[0].values == [10, 20]
    assert one.failed == ["mmb at x 1"] and not two.failed and one.absent == two.absent


def test_percentiles_are_those_of_one_run():
    runs = iter([range(100), range(100, 200)])
    found = ends.percentiles(figure("a"), ["mmb"], lambda name: list(next(runs)), 3)
    assert [(point.x, point.values) for point in found.points] == [(50, [50, 150]), (90, [90, 190]), (99, [99, 199])]
    assert found.failed == ["mmb at x 50"]


def test_what_wrk_prints_is_read():
    asked = web.read(WRK)
    assert asked.rate == 9471.09 and asked.mean == 3250
    assert asked.gbit == pytest.approx(76 * 2**20 * 8 / 1e9)
    errors = "  Socket errors: connect 0, read {}, write 0, timeout 0\n  Non-2xx or 3xx responses: {}\n"
    assert web.read(WRK + errors.format(3, 2)) == asked
    for many in ((300, 0), (0, 300)):
        with pytest.raises(RuntimeError, match="300 of 9474 requests failed"):
            web.read(WRK + errors.format(*many))


@pytest.mark.parametrize("lines", [
    boxes.five_tuples(20, "add-stateful"), boxes.option_rules(100), boxes.monitors(1, True), boxes.monitors(5, False),
    boxes.monitors(5, True),
], ids=["stateful", "options", "one", "together", "apart"])  # fmt: skip
def test_mmb_takes_its_configurations(tmp_path, lines):
    (tmp_path / "rules").write_text(PORTS + lines, encoding="utf-8")
    assert mmb("check", tmp_path / "rules").returncode == 0


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "http"])
def test_nginx_takes_its_configuration(tmp_path, stream):
    if stream and not balance.STREAM.exists():
        pytest.skip("nginx has no stream module here")
    config = balance.nginx(tmp_path, stream).replace(web.PROXY, "127.0.0.1")
    (tmp_path / "config").write_text(config, encoding="utf-8")
    assert run("nginx", "-t", "-q", "-c", tmp_path / "config").returncode == 0


@pytest.fixture(scope="module")
def wire():
    with Wire() as made:
        yield made


@pytest.fixture(scope="module")
def offloading():
    with Wire(offloads=True) as made:
        yield made


@pytest.fixture(scope="module")
def site(wire):
    with web.site(wire, [0, 1]):
        yield


STANDS = {
    "forwarding": boxes.forwarding,
    "firewall": lambda wire: boxes.firewall(wire, 100),
    "tracking": lambda wire: boxes.tracking(wire, 100),
    "nat": boxes.nat,
    "options": lambda wire: boxes.options(wire, 100),
}
NAMES = {
    "forwarding": boxes.FORWARDING, "firewall": boxes.FIREWALL, "tracking": boxes.TRACKING, "nat": boxes.NAT,
    "options": boxes.OPTIONS,
}  # fmt: skip


# Kinds of box by role, for packets of IPv6.
IP6 = boxes.over_ip6(None, 1)


@pytest.mark.parametrize("role, name", [(role, name) for role, names in NAMES.items() for name in names])
def test_what_stands_in_the_box_lets_traffic_pass(wire, site, role, name):
    """Pings and an object both ways; the server sees the client, behind a NAT another one."""
    with STANDS[role](wire)[name]():
        assert wire.round_trips(5)
        assert len(traffic.fetch(wire.client, f"http://{SERVER}/1")) == 1024
        expected = OUTSIDE if role == "nat" and name != "nothing" else CLIENT
        assert seen_by_the_server(wire) == expected


@pytest.mark.parametrize("role, name", [(role, name) for role in IP6 for name in boxes.OVER_IP6 if name in IP6[role]])
def test_what_stands_in_the_box_lets_ip6_pass(wire, role, name):
    with boxes.over_ip6(wire, 100)[role][name]():
        # What is forwarded first may wait for a neighbour.
        assert wire.client.run("ping", "-c", 2, "-i", "0.2", "-W", 5, SERVER6).returncode == 0
        assert seen_by_the_server(wire, SERVER6) == CLIENT6


def test_peers_get_the_same_tuples_of_ip6():
    source, destination, *_ = rules.five_tuples6(100)[0]
    lines = boxes.five_tuples(100, made=rules.five_tuples6).splitlines()
    assert lines[0].startswith(f"add ip6-saddr {source} ip6-daddr {destination} ")
    elements = rules.nft_set(100, ip6=True)
    assert f"{source} . {destination} . " in elements and "ip6 saddr . ip6 daddr . meta l4proto" in elements


@pytest.mark.parametrize("kind", flood.PROTOS)
def test_each_packet_of_a_flood_opens_a_session(wire, kind):
    """Pings get through beside it, and no packet comes to a socket of the server."""
    before = refusals(wire)
    with boxes.tracking(wire, 10)[MMB]() as daemon, flood.flood(wire, flood.PROTOS[kind][1]):
        wait.until(lambda: daemon.json("show", "runtime")["sessions"]["sessions"] > 5000, "5,000 sessions")
        assert wire.round_trips(5)
    assert refusals(wire) == before


def refusals(wire):
    """What the server's kernel has answered to packets for ports that nobody listens on, since it is there."""
    shown = wire.server.run("nstat", "-asz", "TcpOutRsts", "IcmpOutDestUnreachs").stdout
    return [int(line.split()[1]) for line in shown.splitlines() if not line.startswith("#")]


def test_packets_of_a_flood_are_those_of_first_packets():
    for what, proto in flood.PROTOS.values():
        made = [IP(packet) for packet, _ in zip(flood.packets(proto), range(200))]
        assert len({(packet.src, packet.sport) for packet in made}) > 190, what
        for packet in made:
            assert (packet.proto, packet.dport, packet.dst) == (proto, flood.DISCARD, SERVER)
            assert packet.proto == socket.IPPROTO_UDP or (packet["TCP"].flags == "S" and checksum_is_right(packet))


def checksum_is_right(packet):
    right = packet.copy()
    del right["TCP"].chksum, right.len, right.chksum
    return IP(bytes(right))["TCP"].chksum == packet["TCP"].chksum


def seen_by_the_server(wire, server=SERVER):
    """The source address of the client's connection, as the server sees it."""
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with wire.server.socket(family, socket.SOCK_STREAM) as listener:
        listener.settimeout(5)
        listener.bind((server, 0))
        listener.listen()
        with wire.client.socket(family, socket.SOCK_STREAM) as client:
            client.settimeout(5)
            client.connect(listener.getsockname())
            connection, (address, *_) = listener.accept()
            connection.close()
    return address


def test_xdp_takes_the_frames(wire):
    """The kernel of the box forwards no packet."""
    with boxes.firewall(wire, 10)["XDP"]():
        wire.round_trips(2)
        before = forwarded(wire)
        assert wire.round_trips(5)
        assert forwarded(wire) == before
    wire.round_trips(2)
    assert forwarded(wire) > before


@pytest.mark.parametrize("kind", [FAST, FAST_TC])
@pytest.mark.parametrize("role", ["forwarding", "firewall", "tracking", "nat"])
def test_settled_flows_stay_in_the_kernel_with_the_fast_path(wire, role, kind):
    """Without the fast path, mmb processes all packets."""
    with STANDS[role](wire)[kind]() as daemon:
        assert wire.round_trips(200)
        assert daemon.json("show", "fast-path")["packets"] > 100
    with STANDS[role](wire)[MMB]() as daemon:
        assert wire.round_trips(200)
        assert not daemon.json("show", "fast-path")["packets"]


@pytest.mark.parametrize("setting, merges", [("on", True), ("off", False)])
def test_segments_are_merged_on_ports_of_two_kinds(offloading, setting, merges):
    """The port to the client cannot receive large frames; the one to the server can send them."""
    with offloading.mmb_on_packet_sockets(f"set gro {setting}\n{boxes.STATEFUL}", MIXED_PORTS) as daemon:
        assert offloading.goodput(1)[0] > 0
        left, right = daemon.json("show", "interfaces")["interfaces"]
        assert (left["tx_merged"], right["tx_merged"] > 0) == (0, merges)


def test_a_daemon_that_is_not_ready_in_time_does_not_stay_in_the_box(wire, monkeypatch):
    """A peer that stays would distort later measurements."""
    before = wire.box.pids()
    monkeypatch.setattr("lab.wait.PATIENCE", 0)
    with pytest.raises(wait.Late), wire.mmb(boxes.five_tuples(1000)):
        pass
    assert wire.box.pids() == before


def forwarded(wire):
    names, values = (line.split() for line in wire.box.run("cat", "/proc/net/snmp").stdout.splitlines()[:2])
    return int(values[names.index("ForwDatagrams")])


def test_mmb_tracks_what_the_kernel_tracks(wire):
    with wire.mmb(f"add-stateful ip-saddr {boxes.CLIENTS} accept\n") as daemon:
        seen_by_the_server(wire)
        assert daemon.json("show", "connections")["connections"]
    with boxes.tracking(wire, 10)["nftables, set"]():
        assert "ct state" in wire.box.run("nft", "list", "ruleset").stdout
    assert wire.box.run("nft", "list", "ruleset").stdout == ""


def test_goodput_and_its_cpu_time(wire):
    """The server's interface has received the same number of segments."""
    before = update.count(wire.server, "s0", "rx")
    gbit, seconds = wire.goodput(1)
    segments = gbit * 1e9 / 8 / 1448
    # The server may count over a little less than the second.
    assert 0.98 * segments < update.count(wire.server, "s0", "rx") - before < 2 * segments
    assert 0 < seconds * gbit < 2 * os.cpu_count()


def test_round_trips_under_load_are_under_load(wire):
    before = update.count(wire.server, "s0", "rx")
    with wire.load("20M", 30):
        assert wire.round_trips(100)
    assert update.count(wire.server, "s0", "rx") - before > 200


@pytest.mark.parametrize("name", list(balance.setup()))
def test_load_balancers_answer(wire, site, name):
    for address in balance.BACKENDS[1:]:
        wire.server.run("ip", "address", "replace", f"{address}/24", "dev", "s0")
    wire.box.run("ip", "route", "replace", f"{balance.VIRTUAL}/32", "via", balance.BACKENDS[0])
    with balance.stand(wire, name) as address:
        assert len(traffic.fetch(wire.client, f"http://{address}/1")) == 1024
        assert web.ask(wire, address, 0, 1).rate > 1


@pytest.mark.parametrize("name", [processes.LOCAL, *processes.MODES])
def test_functions_in_processes_let_traffic_pass(wire, name):
    with wire.mmb(processes.chain(name, 2)) as daemon:
        assert wire.round_trips(5)
        restarts = [one["restarts"] for domain in daemon.json("show", "domains")["domains"] for one in domain["functions"]]
        assert restarts == ([] if name == processes.LOCAL else [0, 0])


@pytest.mark.skipif(not ovs.PROGRAM.exists(), reason="Open vSwitch with DPDK is not installed (bench/install-peers)")
def test_packets_pass_the_functions_behind_the_switch():
    with Wire() as wire, vhost.switched(wire, 2) as functions:
        assert len(wire.round_trips(5)) == 5
        functions[1].send_signal(signal.SIGSTOP)
        wait.until(lambda: wire.client.run("ping", "-c1", "-W1", SERVER, check=False).returncode == 1, "a lost ping")


@pytest.mark.parametrize("place", range(len(modes.PLACES)))
@pytest.mark.parametrize("name", modes.MODES)
def test_workers_of_each_mode_forward(wire, name, place):
    with modes.stand(wire, name, place) as daemon:
        assert modes.after_pauses(wire, 5)
        assert f"set worker-mode {name}" in daemon.command("show", "config").stdout or name == "adaptive"
        before = modes.processor(daemon)
        assert wire.round_trips(20) and modes.processor(daemon) > before


@pytest.mark.parametrize("name", heavy.setup())
def test_each_function_of_a_heavy_chain_computes(wire, site, name):
    with heavy.stand(wire, name, 2) as (address, daemon):
        assert heavy.measured(wire, address)[0] > 1
        heavy.check(daemon, name, 2)


def test_proxies_change_paths(tmp_path):
    """Each of them sends requests to both servers, with another path."""
    log = tmp_path / "log"
    tmp_path.chmod(0o755)
    lines = f" log_format line '$server_addr $uri'; server {{ listen {web.PORT}; access_log {log} line; location / {{ return 200 {'x' * 1024}; }} }}"
    with Wire() as wire, web.configured(wire.server, ["nginx", "-c"], "servers", lambda at: web.nginx_http(at, lines)):
        proxies.add_servers(wire)
        apart = proxies.add_bridge(wire)
        for name in proxies.setup():
            log.write_text("", encoding="ascii")
            with proxies.stand(wire, apart, name):
                for _ in range(4):
                    proxies.check(wire, name)
                assert proxies.measured(wire, 2)[0] > 1
            assert set(log.read_text(encoding="ascii").splitlines()) == {f"{server} /1" for server in proxies.SERVERS}, name


def test_words_of_pages_are_replaced():
    with Wire() as wire, web.site(wire, [8], words.TEXT):
        for name in words.setup():
            with words.stand(wire, name) as (address, computed):
                words.check(wire, name, address, 8)
                before = computed()
                assert web.ask(wire, address, 8, 1).rate > 1
                assert (computed() > before) == (name != "nothing"), name


def test_packets_and_requests_share_a_box(wire, site):
    proxies.add_servers(wire)
    for name in planes.setup():
        with planes.both_planes(wire, name):
            goodput, requests, share = planes.beside(wire, planes.BOTH)
            assert goodput > 0 and requests > 1 and 0 < share < 1
    with planes.both_planes(wire, planes.MMB):
        arrived = planes.through(wire)
        assert len(arrived) == planes.LONG and max(arrived) > 100


def test_packets_pass_the_dataplane_in_front_of_a_broker(wire, site):
    proxies.add_servers(wire)
    with proxies.stand(wire, [], proxies.TRANSPARENT):
        before = update.count(wire.server, "s0", "rx")
        proxies.check(wire, proxies.TRANSPARENT)
        assert web.ask(wire, proxies.address(proxies.TRANSPARENT) + proxies.OLD.rstrip("/"), proxies.SIZE, 1, 2, kept=True).rate > 1
        assert update.count(wire.server, "s0", "rx") > before


def test_what_the_box_cannot_forward_is_too_fast(wire):
    """Half of the frames are dropped, but for small ones."""
    chain = "  type filter hook forward priority 0;\n  udp length > 1000 numgen inc mod 2 == 0 drop\n"
    with boxes.netfilter(wire, f"table ip t {{\n chain f {{\n{chain} }}\n}}\n"):
        received, lost = loss.attempt(wire, 1200, 1000)
        assert 400 < received < 600 and 0.4 < lost < 0.6
        received, lost = loss.attempt(wire, 500, 1000)
        assert 900 < received < 1100 and lost < 0.1
        assert loss.largest(wire, 1200) == 0


def test_round_trips_beside_a_rate_are_beside_it(wire):
    before = update.count(wire.server, "s0", "rx")
    assert loss.beside(wire, 2000) > 0
    assert update.count(wire.server, "s0", "rx") - before > loss.PINGS + 1500


def test_the_time_of_a_box_follows_its_load(wire, site):
    proxies.add_servers(wire)
    with proxies.stand(wire, [], proxies.PROCESS):
        proxies.check(wire, proxies.PROCESS)
        idle = load.share([wire.box], lambda: time.sleep(1))
        found = []
        busy = load.share([wire.box], lambda: found.append(load.asked(wire, 500)))
        assert idle < busy and 400 < found[0] < 600
    with wire.mmb(processes.chain("event", 3)):
        assert wire.round_trips(20)
        found = []
        busy = load.share([wire.box], lambda: found.extend(loss.attempt(wire, load.FRAME, 500, seconds=1)))
        assert busy > 0 and 400 < found[0] < 600


@pytest.mark.parametrize("apart", [boxes.in_a_row, None], ids=["boxes", "one"])
def test_a_chain_of_monitors_lets_traffic_pass(apart):
    with Wire(2 if apart else 1) as wire:
        stand = apart(wire, 2) if apart else wire.mmb(boxes.monitors(2, True))
        with stand:
            assert wire.round_trips(5)
            assert seen_by_the_server(wire) == CLIENT


@pytest.mark.parametrize("name, kept", [
    ("nftables, set", lambda wire: wire.box.run("nft", "list", "set", "ip", "t", "s").stdout.count(" . ") // 4 - update.BEFORE - 1),
    ("iptables-restore", lambda wire: wire.box.run("iptables", "-S", "FORWARD").stdout.count("-j DROP") - update.BEFORE_LINEAR),
    ("mmb", None),
], ids=["nftables", "iptables-restore", "mmb"])  # fmt: skip
def test_rules_are_added_under_load(wire, name, kept):
    """Rules that are counted as added are present."""
    with update.PEERS[name](wire) as (add, finish):
        adding = update.Adding(add, finish, rules.five_tuples(100_000, seed=2))
        rate, lost = update.under_load(wire, adding, 1)
        assert adding.done > 0 and rate > 0 and 0 <= lost <= 1000
        if kept:
            assert kept(wire) == adding.done


def test_requests_to_mmb_go_ahead_of_their_answers(tmp_path):
    """The number of requests is exact; each answer counts once, however it is segmented, and a refusal is no
    result.
    """
    created = b'HTTP/1.1 201 Created\r\nContent-Length: 9\r\ndate: now\r\n\r\n{"a": 1}\n'
    refused = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        with contextlib.closing(update.Requests(tmp_path / "s")) as api, listener.accept()[0] as daemon:
            for _ in range(update.AHEAD):
                api.post("/v1/rules", {"rule": "add all drop"})
            answers = (update.AHEAD + 1) * created
            daemon.sendall(answers[:100])
            api.post("/v1/rules", {"rule": "add all drop"})
            assert (api.sent, api.answered) == (update.AHEAD + 1, 1)
            daemon.sendall(answers[100:])
            api.wait()
            assert api.answered == api.sent and not api.read
            daemon.sendall(created + refused)
            api.post("/v1/rules", {})
            api.post("/v1/rules", {})
            with pytest.raises(RuntimeError, match="400 Bad Request"):
                api.wait()
            assert daemon.recv(1 << 20).count(b"POST /v1/rules HTTP/1.1\r\n") == update.AHEAD + 3


def test_what_the_box_drops_is_lost(wire):
    chain = "  type filter hook forward priority 0;\n  udp length > 1000 numgen inc mod 2 == 0 drop\n"
    lines = f"table ip t {{\n chain f {{\n{chain} }}\n}}\n"
    with boxes.netfilter(wire, lines), update.nothing(wire) as (add, finish):
        _, lost = update.under_load(wire, update.Adding(add, finish, [None]), 1)
    # A busy machine loses more.
    assert 350 < lost < 1000


def rules_of(box, name):
    """How many rules there are, and whether the last of the other ones is among them."""
    text = box.command("list").stdout if name == MMB else box.run("nft", "list", "ruleset").stdout
    last = rules.five_tuples(changes.ALL_RULES, 2)[-1]
    # Type and rule of the set have dots, too.
    count = text.count("drop") if name == MMB else text.count(" . ") // 4 - 2
    return count, last[0] in text and last[1] in text


@pytest.mark.parametrize("name", list(changes.PEERS))
def test_what_is_changed_under_load_has_changed(wire, name, monkeypatch):
    """Rules are added, or replaced by others, or a chain is."""
    monkeypatch.setattr(changes, "ALL_RULES", 500)
    monkeypatch.setattr(changes, "BEFORE", 100)

    def under_load(place, times):
        with changes.PEERS[name](wire, place) as (box, change):
            for n in range(times):
                change(n)
            yield box
            assert wire.round_trips(2)

    for box in under_load(changes.ADD, 3):
        assert rules_of(box, name)[0] == 103
    for times, has_others in ((1, True), (2, False)):
        for box in under_load(changes.REPLACE, times):
            assert rules_of(box, name) == (500, has_others)
    for times, functions in ((1, 2), (2, 1)):
        for box in under_load(changes.CHAIN, times):
            shown = box.json("show", "chains") if name == MMB else box.run("nft", "list", "chain", "ip", "t", "c").stdout
            assert str(shown).count("'function'" if name == MMB else "counter") == functions, shown


def test_a_rule_that_cannot_be_added_is_no_result(wire):
    def fails(_):
        raise subprocess.SubprocessError("no")

    adding = update.Adding(fails, update.at_once, [None])
    with contextlib.suppress(OSError):
        adding.start()
    with pytest.raises(subprocess.SubprocessError):
        adding.stop()


def test_counts_are_those_of_a_process_and_its_children():
    """In whatever namespace: functions have one of their own."""
    command = ["unshare", "--net", "sh", "-c", "sleep 60 & echo $!; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            child = int(process.stdout.readline())
            assert overheads.lineage([process.pid]) == [process.pid, child]
        finally:
            process.kill()
            os.kill(child, signal.SIGKILL)
