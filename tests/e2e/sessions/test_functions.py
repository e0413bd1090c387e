"""Each built-in function: frames in, frames out, and its records."""

import json
import socket
import struct

import pytest

from lab import frames, traffic, wait
from lab.chainbench import COLLECTOR
from lab.frames import IP, TCP, UDP, Dot1Q, Ether
from lab.natbench import INSIDE, SERVER, SERVER6, Mirror, Speaker
from lab.netns import CLIENT4, SERVER4
from lab.raw import RawPort
from lab.option_bytes import NOP, SACKP, mss, pair, segment, wscale

# For tests that count packets: the end points' kernels send MLD reports (RFC 3810) of their own, which are
# IPv6.
IP4_CHAIN = "add-stateful ip-saddr 10.77.0.0/24 chain c"


def chain(wire, *functions, rule="add-stateful all chain c"):
    """Makes a chain of these functions, each `NAME TYPE ARG…`, for the sessions of the rule."""
    for function in functions:
        wire.daemon.line(f"nf add {function}")
    wire.daemon.line("chain add c " + " | ".join(function.split()[0] for function in functions))
    wire.daemon.line(rule)


@pytest.fixture
def chains(wire):
    """The module's wire; rules, chains and functions are removed afterwards."""
    yield wire
    chain_free(wire)


def chain_free(wire):
    wire.daemon.command("flush")
    config = wire.daemon.command("show", "config").stdout.splitlines()
    for word in ("chain", "nf"):
        for line in config:
            if line.startswith(f"{word} add "):
                wire.daemon.line(f"{word} del {line.split()[2]}")


def udp(sport=1000, dport=2000, size=32, backwards=False, **fields):
    ends = {"src": SERVER4, "dst": CLIENT4} if backwards else {}
    return frames.ether() / frames.ip4(**ends, **fields) / UDP(sport=sport, dport=dport) / frames.payload(size)


def awaited(port, wanted):
    """The first frame for which `wanted` holds, read by scapy."""
    found = []
    port.receive_until(lambda frame: wanted(read := Ether(frame)) and not found.append(read))
    return found[0]


def report(wire, name):
    """The entry of one function in `show functions`."""
    return next(one for one in wire.daemon.json("show", "functions")["functions"] if one["name"] == name)


def test_mss_clamp(chains):
    """The MSS is only lowered, and only in SYNs that have the option; scapy verifies checksums."""
    chain(chains, "clamp mss-clamp 1400")
    long, clamped = pair(mss(1460) + NOP + wscale(7), mss(1400) + NOP + wscale(7))
    same = [bytes(segment(options, **fields)) for options, fields in (
        (mss(1400), {"sport": 1}), (mss(536), {"sport": 2}), (SACKP, {"sport": 3}), (b"", {"sport": 4}),
        (mss(1460), {"sport": 5, "flags": "A"}),
    )]
    # A TCP segment in the middle of no connection opens no session by itself.
    chains.daemon.line("set tcp-pickup on")
    arrived = chains.cross(bytes(long), *same)
    chains.daemon.line("set tcp-pickup off")
    assert arrived == [bytes(clamped), *same]
    six, lowered = pair(mss(1440), mss(1400), ip=lambda: frames.ip6())
    assert chains.cross(bytes(six)) == [bytes(lowered)]


@pytest.mark.parametrize("address", ["ip4", "ip6"])
def test_mark_dscp(chains, address):
    chain(chains, "dscp mark dscp 46")
    if address == "ip4":
        sent = frames.ether() / frames.ip4(tos=0b000001_01) / UDP() / frames.payload()
        after = frames.changed(sent, IP, tos=0b101110_01)
    else:
        sent = frames.ether() / frames.ip6(tc=0b000001_01) / UDP() / frames.payload()
        after = frames.changed(sent, frames.IPv6, tc=0b101110_01)
    (arrived,) = chains.cross(bytes(sent))
    assert arrived == bytes(after) and frames.wrong_checksums(arrived) == []


def test_mark_vlan_priority(chains):
    chain(chains, "priority mark vlan-priority 5")
    tagged = frames.ether() / Dot1Q(vlan=9, prio=1) / frames.ip4() / UDP() / frames.payload()
    plain = bytes(udp())
    after = frames.changed(tagged, Dot1Q, prio=5)
    assert chains.cross(bytes(tagged), plain) == [bytes(after), plain]


def test_police(chains):
    """A burst up to the bucket size passes, the rest is dropped and counted; each session has a bucket."""
    chain(chains, "limit police 8kbit burst 2000")
    size = len(bytes(udp()))
    for port in (1, 2):
        arrived = chains.cross(*(bytes(udp(sport=port)) for _ in range(40)))
        assert 2000 // size <= len(arrived) <= 2000 // size + 3, (len(arrived), size)
    assert chains.daemon.drops()["police"] >= 2 * (40 - 2000 // size - 3)


def test_police_by_source(chains):
    """Sessions of one source share a bucket."""
    chain(chains, "limit police 8kbit burst 2000 per source")
    size = len(bytes(udp()))
    arrived = chains.cross(*(bytes(udp(sport=port + 1)) for port in range(40)))
    assert 2000 // size <= len(arrived) <= 2000 // size + 3
    other = chains.cross(*(bytes(udp(src="10.77.0.9")) for _ in range(3)))
    assert len(other) == 3


def test_acl(chains):
    """The first matching clause decides for the session; denied sessions are dropped before the chain."""
    chain(chains, "guard acl allow udp-dport 2000 ip-saddr 10.77.0.0/24 deny udp-dport 2000-2999 allow all")
    assert chains.passes(udp()) and chains.passes(udp(sport=2000, dport=1000, backwards=True), backwards=True)
    assert not chains.passes(udp(dport=2001))
    assert not chains.passes(udp(src="10.78.0.1"))
    assert chains.passes(udp(dport=3000))
    before = chains.daemon.drops()["acl"]
    assert chains.cross(*(bytes(udp(dport=2001)) for _ in range(10))) == []
    assert chains.daemon.drops()["acl"] == before + 10


def test_split(chains):
    """Each class of sessions takes its branch; the function behind the bracket sees all of them."""
    for name in ("class split dns: udp-dport 53 web: tcp-dport 80", "low mark dscp 10", "high mark dscp 46", "all count"):
        chains.daemon.line(f"nf add {name}")
    chains.daemon.line("chain add c class [dns: low, web: high, else: drop] | all")
    chains.daemon.line(IP4_CHAIN)
    sent = [udp(dport=53), segment(b"", dport=80), udp(dport=54)]
    expected = [frames.changed(sent[0], IP, tos=10 << 2), frames.changed(sent[1], IP, tos=46 << 2)]
    assert chains.cross(*map(bytes, sent)) == [bytes(frame) for frame in expected]
    assert report(chains, "all")["packets"] == 2


def test_context_link(chains):
    """Without a function in front of the bracket, the first branch whose functions accept the traffic is
    taken.
    """
    for name in ("proxy synproxy", "stats count"):
        chains.daemon.line(f"nf add {name}")
    chains.daemon.line("chain add c [proxy, else: stats]")
    chains.daemon.line(IP4_CHAIN)
    syn, other = bytes(segment(mss(1460), flags="S", payload=b"")), bytes(udp())
    assert chains.cross(syn, other) == [other]
    assert chains.daemon.drops()["syn-cookie"] >= 1
    assert report(chains, "stats")["packets"] == 1


def test_mirror(make_chains, driver):
    """A copy of each packet is sent by a third port, as it is at that position of the chain."""
    bench = make_chains(
        f"interface add side {driver} m2\nnf add dscp mark dscp 10\nnf add copy mirror side\n"
        "chain add c copy | dscp\nadd-stateful udp-dport 7000 chain c\n",
        driver=driver, side=True,
    )
    watcher = RawPort(bench.watcher, "w0")
    bench.on_close(watcher.close)
    mirror = Mirror(bench.servers, SERVER, 7000)
    bench.on_close(mirror.close)
    speaker = Speaker(bench.hosts, INSIDE[0], 5000)
    bench.on_close(speaker.close)
    for _ in range(3):
        speaker.ask(SERVER, 7000)
    seen = []
    while sum(IP in frame and frame[IP].src == SERVER for frame in seen) < 3:
        seen.append(awaited(watcher, lambda frame: True))
    ways = [(frame[IP].src, frame[IP].dst, frame[UDP].dport) for frame in seen if UDP in frame]
    assert ways[0] == (INSIDE[0], SERVER, 7000) and (SERVER, INSIDE[0], 5000) in ways
    # There, packets have not been marked yet; back, they have.
    assert all(frame[IP].tos == (0 if frame[IP].src == INSIDE[0] else 10 << 2) for frame in seen if UDP in frame)
    with pytest.raises(Exception, match="copy"):
        bench.daemon.line("interface del side")


def test_count_as_json(make_chains, tmp_path):
    """One JSON line per ended session: packets, bytes and TCP flags of both directions."""
    records = tmp_path / "records.json"
    bench = make_chains(f"nf add stats count json {records}\nchain add c stats\nadd-stateful all chain c\n")
    web = traffic.WebServer(bench.servers, 80, 5000)
    bench.on_close(web.close)
    assert traffic.fetch(bench.hosts, f"http://{SERVER}/file") == web.content
    bench.daemon.line("clear connections")

    def ours():
        # The kernels at both ends have sessions of their own.
        lines = records.read_text().splitlines() if records.exists() else []
        return [record for record in map(json.loads, lines) if record["destination"] == SERVER]

    (record,) = wait.until(ours, "a record")
    assert record["packets"][0] >= 4 and record["packets"][1] >= 4 and record["bytes"][1] > 5000, record
    # SYN and ACK from both.
    assert all(flags & 0x12 == 0x12 for flags in record["tcp_flags"]), record


def test_count_as_ipfix(make_chains):
    """An IPFIX record of the session, parsed according to RFC 7011."""
    bench = make_chains(f"nf add stats count ipfix {COLLECTOR}:4739\nchain add c stats\nadd-stateful udp-dport 7000 chain c\n")
    collector = bench.servers.socket(socket.AF_INET, socket.SOCK_DGRAM)
    collector.bind((COLLECTOR, 4739))
    collector.settimeout(wait.PATIENCE)
    bench.on_close(collector.close)
    mirror = Mirror(bench.servers, SERVER, 7000)
    bench.on_close(mirror.close)
    speaker = Speaker(bench.hosts, INSIDE[0], 5000)
    bench.on_close(speaker.close)
    for _ in range(3):
        speaker.ask(SERVER, 7000)
    bench.daemon.line("clear connections")
    templates = {}
    (record,) = wait.until(lambda: records(collector.recv(65535), templates), "a data record")
    assert record[8, 0] == socket.inet_aton(INSIDE[0]) and record[12, 0] == socket.inet_aton(SERVER)
    assert [int.from_bytes(record[key, 0], "big") for key in (7, 11, 4)] == [5000, 7000, 17]
    # packetDeltaCount, and its reverse element (RFC 5103).
    assert [int.from_bytes(record[2, enterprise], "big") for enterprise in (0, 29305)] == [3, 3]
    assert int.from_bytes(record[1, 0], "big") == 3 * (20 + 8 + 2)


def records(message, templates):
    """The data records of an IPFIX message (RFC 7011, section 3), as {(element, enterprise): bytes}; templates are learnt."""
    version, length, _, _, _ = struct.unpack("!HHIII", message[:16])
    assert (version, length) == (10, len(message))
    found, at = [], 16
    while at < length:
        number, size = struct.unpack("!HH", message[at : at + 4])
        body = message[at + 4 : at + size]
        if number == 2:
            while len(body) >= 4 and struct.unpack("!H", body[:2])[0] >= 256:
                (template, count), body = struct.unpack("!HH", body[:4]), body[4:]
                fields = []
                for _ in range(count):
                    (element, width), body = struct.unpack("!HH", body[:4]), body[4:]
                    enterprise = 0
                    if element & 0x8000:
                        (enterprise,), body = struct.unpack("!I", body[:4]), body[4:]
                    fields.append((element & 0x7FFF, enterprise, width))
                templates[template] = fields
        elif number in templates:
            whole = sum(width for _, _, width in templates[number])
            while len(body) >= whole:
                record = {}
                for element, enterprise, width in templates[number]:
                    record[element, enterprise], body = body[:width], body[width:]
                found.append(record)
        at += size
    return found


def test_log(make_chains):
    """One line when a session opens and one when it ends."""
    bench = make_chains("nf add diary log prefix diary\nchain add c diary\nadd-stateful udp-dport 7000 chain c\n")
    mirror = Mirror(bench.servers, SERVER, 7000)
    bench.on_close(mirror.close)
    speaker = Speaker(bench.hosts, INSIDE[0], 5000)
    bench.on_close(speaker.close)
    speaker.ask(SERVER, 7000)
    bench.daemon.line("clear connections")

    def lines():
        found = [line for line in bench.daemon.log().splitlines() if "diary" in line and INSIDE[0] in line]
        return found if len(found) >= 2 else None

    begins, ends = wait.until(lines, "two lines in the log")[:2]
    assert f"diary: begin udp {INSIDE[0]}:5000 -> {SERVER}:7000" in begins, begins
    assert "diary: end udp" in ends and "packets 1 + 1" in ends, ends


SYNPROXY = "nf add proxy synproxy\nnf add stats count\nchain add c proxy | stats\nadd-stateful tcp-dport 80 chain c\nadd-stateful tcp-dport 5001 chain c\n"


def test_synproxy_lets_real_clients_through(make_chains, driver):
    """curl, wrk and a bulk transfer through synproxy: both handshakes complete, and all data arrives."""
    bench = make_chains(SYNPROXY, driver=driver)
    web = traffic.WebServer(bench.servers, 80)
    bench.on_close(web.close)
    for _ in range(3):
        assert traffic.fetch(bench.hosts, f"http://{SERVER}/file") == web.content
    shown = bench.hosts.run("wrk", "-t1", "-c8", "-d1s", f"http://{SERVER}/file").stdout
    assert "Socket errors" not in shown and "Non-2xx" not in shown, shown
    sent, received = traffic.bulk_transfer(bench.hosts, bench.servers, SERVER, size=32 << 20)
    assert sent == received
    assert traffic.fetch(bench.hosts, f"http://[{SERVER6}]/file") == web.content
    assert bench.daemon.drops()["syn-cookie"] >= 5


def test_synproxy_keeps_no_state_of_a_flood(chains):
    """SYNs get cookies and leave no state; a wrong acknowledgement opens nothing, the right one opens a
    session.
    """
    chain(chains, "proxy synproxy", rule="add-stateful tcp-dport 80 chain c")
    chains.left.drain()
    for number in range(200):
        chains.left.send(bytes(segment(mss(1460), sport=1024 + number, dport=80, seq=7 * number, flags="S", payload=b"")))
    answers = {}
    while len(answers) < 200:
        frame = awaited(chains.left, lambda f: TCP in f and f[TCP].sport == 80)
        answers[frame[TCP].dport] = frame
        assert frames.wrong_checksums(bytes(frame)) == []
    for port, frame in answers.items():
        assert frame[TCP].flags == "SA" and frame[TCP].ack == 7 * (port - 1024) + 1 and frame[IP].src == SERVER4
    assert chains.daemon.json("show", "connections")["connections"] == []
    assert len({frame[TCP].seq for frame in answers.values()}) == 200
    good = answers[1024][TCP].seq
    ack = {"sport": 1024, "dport": 80, "seq": 1, "flags": "A", "payload": b""}
    chains.left.send(bytes(segment(b"", ack=(good + 2) & 0xFFFFFFFF, **ack)))
    chains.settle()
    assert chains.daemon.json("show", "connections")["connections"] == []
    assert chains.daemon.drops()["syn-cookie-bad"] == 1
    chains.right.drain()
    chains.left.send(bytes(segment(b"", ack=(good + 1) & 0xFFFFFFFF, **ack)))
    opened = awaited(chains.right, lambda f: TCP in f and f[TCP].dport == 80)
    assert opened[TCP].flags == "S" and opened[TCP].seq == 0 and frames.wrong_checksums(bytes(opened)) == []
    (option,) = [value for name, value in opened[TCP].options if name == "MSS"]
    assert 536 <= option <= 1460
    assert len(chains.daemon.json("show", "connections")["connections"]) == 1
