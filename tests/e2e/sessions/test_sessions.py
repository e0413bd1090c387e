"""Stateful rules: reflexive ACLs, deletion and replacement under live sessions, floods, several workers."""

import concurrent.futures
import errno
import socket
import struct

import pytest

from lab import frames, traffic, wait
from lab.frames import ICMP, TCP, UDP
from lab.natbench import INSIDE, SERVER, Mirror, Speaker
from lab.netns import CLIENT4, CLIENT6, SERVER4, SERVER6
from lab.wire import wire_config

STREAM = socket.SOCK_STREAM
# As design section 3 has it: the inside may open TCP connections, replies pass, all other TCP is dropped.
REFLEXIVE = f"add-stateful ip-proto tcp ip-saddr {CLIENT4}/32 accept\nadd ip-proto tcp drop\n"


def tcp(sport, dport, flags, backwards=False, **fields):
    ends = {"src": SERVER4, "dst": CLIENT4} if backwards else {}
    return frames.ether() / frames.ip4(**ends) / TCP(sport=sport, dport=dport, flags=flags, **fields) / frames.payload()


def udp(sport, dport, backwards=False):
    ends = {"src": SERVER4, "dst": CLIENT4} if backwards else {}
    return frames.ether() / frames.ip4(**ends) / UDP(sport=sport, dport=dport) / frames.payload()


def rules(wire, text):
    for line in text.splitlines():
        wire.daemon.line(line)


def entries(daemon, *words):
    """`show connections`: a list."""
    return daemon.json("show", "connections", *words)["connections"]


def test_reflexive_acl(wire):
    """Packet by packet: only replies come in."""
    rules(wire, REFLEXIVE)
    assert not wire.passes(tcp(80, 1000, "S", backwards=True), backwards=True)
    assert not wire.passes(tcp(80, 1000, "SA", backwards=True), backwards=True)
    assert wire.passes(tcp(1000, 80, "S"))
    assert wire.passes(tcp(80, 1000, "SA", backwards=True, ack=1), backwards=True)
    assert wire.passes(tcp(1000, 80, "A"))
    assert not wire.passes(tcp(81, 1000, "SA", backwards=True), backwards=True)
    assert not wire.passes(tcp(80, 1001, "SA", backwards=True), backwards=True)


@pytest.mark.parametrize("server, family", [(SERVER4, socket.AF_INET), (SERVER6, socket.AF_INET6)])
def test_rejected_clients_are_told(wire, server, family):
    """Clients of Linux: a connection is refused at once, and a socket of UDP gets the error of the answer."""
    rules(wire, "add tcp-dport 5001 reject\nadd udp-dport 5001 reject\n")
    with wire.client.socket(family, STREAM) as connection:
        connection.settimeout(wait.PATIENCE)
        with pytest.raises(ConnectionRefusedError):
            connection.connect((server, 5001))
    with wire.client.socket(family, socket.SOCK_DGRAM) as sender:
        sender.settimeout(wait.PATIENCE)
        sender.connect((server, 5001))
        sender.send(b"x")
        with pytest.raises(OSError) as answer:
            sender.recv(1)
    # As Linux maps "administratively prohibited" of ICMP and of ICMPv6.
    assert answer.value.errno == (errno.EHOSTUNREACH if family == socket.AF_INET else errno.EACCES)
    assert wire.daemon.drops()["rule"] >= 2


@pytest.mark.parametrize(
    "allowed, there, back",
    [
        (f"ip-saddr {CLIENT4}", udp(1, 2), udp(2, 1, backwards=True)),
        (
            f"ip-saddr {CLIENT4}",
            frames.ether() / frames.ip4() / ICMP(type=8, id=7) / frames.payload(),
            frames.ether() / frames.ip4(src=SERVER4, dst=CLIENT4) / ICMP(type=0, id=7) / frames.payload(),
        ),
        (
            f"ip6-saddr {CLIENT6}",
            frames.ether() / frames.ip6() / UDP(sport=1, dport=2) / frames.payload(),
            frames.ether() / frames.ip6(src=SERVER6, dst=CLIENT6) / UDP(sport=2, dport=1) / frames.payload(),
        ),
        (
            f"ip-saddr {CLIENT4}",
            frames.ether() / frames.ip4(proto=47) / frames.payload(),
            frames.ether() / frames.ip4(src=SERVER4, dst=CLIENT4, proto=47) / frames.payload(),
        ),
    ],
    ids=["udp", "ping", "udp-ip6", "gre"],
)
def test_replies_pass_for_every_protocol(wire, allowed, there, back):
    rules(wire, f"add-stateful {allowed} accept\nadd all drop\n")
    assert not wire.passes(back, backwards=True)
    assert wire.passes(there)
    assert wire.passes(back, backwards=True)


def test_a_ping_does_not_open_the_way_for_the_other_sides_pings(wire):
    rules(wire, f"add-stateful ip-saddr {CLIENT4} accept\nadd all drop\n")
    assert wire.passes(frames.ether() / frames.ip4() / ICMP(type=8, id=9) / frames.payload())
    request = frames.ether() / frames.ip4(src=SERVER4, dst=CLIENT4) / ICMP(type=8, id=9) / frames.payload()
    assert not wire.passes(request, backwards=True)


def test_targets_apply_to_both_directions(wire):
    """The rule matches outgoing packets; its edits also apply to replies."""
    wire.daemon.line("add-stateful tcp-dport 80 mod ip-dscp 10")
    for packet, backwards in ((tcp(1200, 80, "S"), False), (tcp(80, 1200, "SA", backwards=True), True)):
        (seen,) = wire.cross(packet, backwards=backwards)
        assert seen == frames.changed(packet, "IP", tos=10 << 2)


def test_deleted_rule_ends_its_part(wire):
    """A session of another rule continues; a session that only the deleted rule permitted ends."""
    index = wire.daemon.json("add-stateful", "tcp-dport", "80", "accept")["index"]
    wire.daemon.line("add-stateful tcp-dport 81 accept")
    wire.daemon.line("add all drop")
    for port in (80, 81):
        assert wire.passes(tcp(1300, port, "S"))
        assert wire.passes(tcp(port, 1300, "SA", backwards=True), backwards=True)
    wire.daemon.command("del", index)
    assert not wire.passes(tcp(80, 1300, "A", backwards=True), backwards=True)
    assert not wire.passes(tcp(1300, 80, "A"))
    assert wire.passes(tcp(81, 1300, "A", backwards=True), backwards=True)
    wire.daemon.command("flush")
    wire.daemon.line("add all drop")
    assert not wire.passes(tcp(81, 1300, "A", backwards=True), backwards=True)


def test_connections_are_shown_filtered_and_cleared(wire):
    wire.daemon.line("add-stateful ip-proto tcp mod ip-dscp 0")
    wire.daemon.line("clear connections")
    for port in (1400, 1401):
        assert wire.passes(tcp(port, 80, "S"))
    assert wire.passes(tcp(80, 1400, "SA", backwards=True, ack=1), backwards=True)
    shown = {entry["forward"]["source_port"]: entry for entry in entries(wire.daemon)}
    assert set(shown) == {1400, 1401}
    forward, reverse = shown[1400]["forward"], shown[1400]["reverse"]
    assert (forward["source"], forward["destination"], forward["destination_port"]) == (CLIENT4, SERVER4, 80)
    assert (reverse["source"], reverse["source_port"], reverse["destination"]) == (SERVER4, 80, CLIENT4)
    assert (forward["packets"], reverse["packets"]) == (1, 1)
    assert shown[1400]["state"] != shown[1401]["state"]
    only = entries(wire.daemon, "tcp-sport", "1401")
    assert [entry["forward"]["source_port"] for entry in only] == [1401]
    wire.daemon.line("clear connections tcp-sport 1401")
    assert [entry["forward"]["source_port"] for entry in entries(wire.daemon)] == [1400]
    text = wire.daemon.command("show", "connections").stdout
    assert f"{CLIENT4}:1400" in text and f"{SERVER4}:80" in text
    refused = wire.daemon.command("show", "connections", "tcp-win", "5", check=False)
    assert refused.returncode != 0 and "tcp-win" in refused.stderr


def test_states_follow_the_connection(wire):
    """A handshake, a close from each side, and a reset."""
    wire.daemon.line("add-stateful tcp-dport 80 accept")
    wire.daemon.line("clear connections")

    def state():
        (entry,) = entries(wire.daemon, "tcp-sport", "1500")
        return entry["state"]

    seen = []
    for packet, backwards in (
        (tcp(1500, 80, "S", seq=100), False),
        (tcp(80, 1500, "SA", backwards=True, seq=500, ack=101), True),
        (tcp(1500, 80, "A", seq=101, ack=501), False),
        (tcp(1500, 80, "FA", seq=133, ack=501), False),
        (tcp(80, 1500, "FA", backwards=True, seq=501, ack=166), True),
    ):
        assert wire.passes(packet, backwards=backwards)
        seen.append(state())
    assert len(set(seen)) == 5 and "established" in seen[2], seen


@pytest.mark.parametrize("picked_up", (False, True))
def test_guessed_segments_end_no_connection(wire, picked_up):
    """An attacker who does not see the connection sends RSTs and FINs all over the sequence space, then SYNs.
    No kernel is at the ends: nothing but the sequence numbers tells that the segments are forged.
    """
    wire.daemon.line("add-stateful tcp-dport 80 accept")
    wire.daemon.line("add ip-proto tcp drop")
    wire.daemon.line("clear connections")
    port = 1502 + picked_up
    data = {"seq": 101, "ack": 501}
    if not picked_up:
        scale = {"options": [("WScale", 10)]}
        assert wire.passes(tcp(port, 80, "S", seq=100, **scale))
        assert wire.passes(tcp(80, port, "SA", backwards=True, seq=500, ack=101, **scale), backwards=True)
    assert wire.passes(tcp(port, 80, "A", **data))
    assert wire.passes(tcp(80, port, "A", backwards=True, seq=501, ack=133), backwards=True)
    (before,) = entries(wire.daemon, "tcp-sport", port)
    assert before["state"] == "established"
    for guess in range(0, 1 << 32, 1 << 25):
        # The ack of a guess is as unknown as its number.
        segment = {"seq": guess + 700, "ack": (guess + 0x40000000) % (1 << 32)}
        for flags in ("R", "RA", "FA", "S"):
            wire.left.send(tcp(port, 80, flags, **segment))
            wire.right.send(tcp(80, port, flags, backwards=True, **segment))
    wire.settle()
    # The next segments of the hosts end what guessed acknowledgements have done.
    assert wire.passes(tcp(port, 80, "A", seq=133, ack=533))
    assert wire.passes(tcp(80, port, "A", backwards=True, seq=533, ack=165), backwards=True)
    (after,) = entries(wire.daemon, "tcp-sport", port)
    assert (after["uid"], after["state"]) == (before["uid"], "established")
    # The expected numbers end it.
    assert wire.passes(tcp(80, port, "R", backwards=True, seq=533), backwards=True)
    (after,) = entries(wire.daemon, "tcp-sport", port)
    assert after["state"] == "reset"


def test_settings_decide_about_segments_from_nowhere(wire):
    """Without pick-up only a SYN opens a connection."""
    wire.daemon.line("add-stateful tcp-dport 80 accept")
    wire.daemon.line("add all drop")
    assert wire.passes(tcp(1600, 80, "A"))
    wire.daemon.line("set tcp-pickup off")
    try:
        assert not wire.passes(tcp(1601, 80, "A"))
        assert wire.passes(tcp(1601, 80, "S"))
    finally:
        wire.daemon.line("set tcp-pickup on")


def test_timeouts_end_sessions(wire):
    rules(wire, "add-stateful udp-dport 53 accept\nadd ip-proto udp drop\nset timeout udp-unreplied 1\n")
    try:
        assert wire.passes(udp(1700, 53))
        assert wire.passes(udp(53, 1700, backwards=True), backwards=True)
        assert wire.passes(udp(1701, 53))
        wait.until(lambda: not entries(wire.daemon, "udp-sport", "1701"), "the session to expire")
        assert not wire.passes(udp(53, 1701, backwards=True), backwards=True)
        assert wire.passes(udp(53, 1700, backwards=True), backwards=True)
    finally:
        wire.daemon.line("set timeout udp-unreplied 120")


def test_apply_under_load_breaks_nothing(make_wire, driver):
    """Whole policies are replaced under a connection that both permit."""
    wire = make_wire(driver)
    policies = []
    for number in range(2):
        path = wire.daemon.directory / f"policy{number}"
        extra = "".join(f"add-stateful udp-dport {port} accept\n" for port in range(1, 2 + 50 * number))
        path.write_text(wire_config(driver) + extra + REFLEXIVE, encoding="utf-8")
        policies.append(path)
    wire.daemon.command("apply", policies[0])
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        transfer = pool.submit(traffic.bulk_transfer, wire.client, wire.server, SERVER4, size=64 << 20)
        changes = 0
        while not transfer.done() or changes < 4:
            changes += 1
            wire.daemon.command("apply", policies[changes % 2])
        sent, received = transfer.result()
    assert sent == received


@pytest.mark.parametrize("rule", ["nat", "map", "reflexive"])
def test_two_workers(make_nat, driver, rule):
    """Both directions of a session are processed by one worker, whichever receives them."""
    text = {
        "nat": "nat pool add wan 200.0.0.1\nadd-stateful ip-saddr 10.0.0.0/24 nat wan\n",
        "map": "add-stateful ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1 shuffle tcp-sport\n",
        "reflexive": "add-stateful ip-saddr 10.0.0.0/24 accept\nadd ip-saddr 198.51.100.0/24 drop\n",
    }[rule]
    nat = make_nat(text, driver=driver, workers=2)
    made = Mirror(nat.servers, SERVER, 7000, STREAM)
    nat.on_close(made.close)
    streams = [Speaker(nat.hosts, host, 0, STREAM).connect(SERVER, 7000) for host in INSIDE * 5]
    for stream in streams:
        nat.on_close(stream.close)
    for _ in range(3):
        seen = [stream.ask() for stream in streams]
    assert len(set(seen)) == len(streams)
    assert {address for address, _ in seen} == ({"200.0.0.1"} if rule != "reflexive" else set(INSIDE))
    sent, received = traffic.bulk_transfer(nat.hosts, nat.servers, SERVER, size=16 << 20)
    assert sent == received
    assert sum(worker["sessions"] for worker in nat.daemon.json("show", "runtime")["workers"]) >= len(streams)


def test_syn_flood_leaves_established_alone(make_wire, driver):
    """A flood of ten times as many SYNs as the table has room for: open and new connections continue."""
    bench_rules = "add-stateful tcp-dport 5001-5002 accept\nadd-stateful tcp-dport 9 accept\nadd ip-proto tcp drop\n"
    wire = make_wire(driver, bench_rules, arguments=("--sessions", "1024"))
    made = Mirror(wire.server, SERVER4, 5002, STREAM)
    stream = Speaker(wire.client, CLIENT4, 0, STREAM).connect(SERVER4, 5002)
    assert stream.ask()[0] == CLIENT4
    flood = bytes(tcp(1, 9, "S"))
    for number in range(10_240):
        # Another source each time; the checksum does not matter to anybody on the way.
        wire.left.send(flood[:26] + struct.pack("!I", 0x0B000000 + number) + flood[30:])
        if number % 256 == 0:
            wire.settle()
    wire.settle()
    assert stream.ask()[0] == CLIENT4
    sent, received = traffic.bulk_transfer(wire.client, wire.server, SERVER4, size=1 << 20)
    assert sent == received
    stream.close()
    made.close()
