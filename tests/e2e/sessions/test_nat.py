"""NAT with real clients and servers: mappings, filtering, forwards, hairpins, errors, fragments."""

import json
import re
import socket
import struct

import pytest

from lab import frames, traffic, wait
from lab.frames import ICMP, IP, UDP, Ether, Raw
from lab.natbench import GATEWAY, INSIDE, OTHER, OUTSIDE, ROUTER_MAC, SERVER, Mirror, Speaker
from lab.netns import CLIENT_MAC, CommandFailed
from lab.raw import RawPort

DGRAM, STREAM = socket.SOCK_DGRAM, socket.SOCK_STREAM
POOL = f"nat pool add wan {OUTSIDE[0]}\n"
SOURCE_NAT = "add-stateful ip-saddr 10.0.0.0/24 nat wan\n"


def speaker(nat, source, port=0, kind=DGRAM):
    made = Speaker(nat.hosts, source, port, kind)
    nat.on_close(made.close)
    return made


def mirror(nat, address, port, kind=DGRAM, namespace=None):
    made = Mirror(namespace or nat.servers, address, port, kind)
    nat.on_close(made.close)
    return made


def listening(namespace, port, kind="-tln"):
    """Waits until a program listens on a port."""
    wait.until(lambda: f":{port} " in namespace.run("ss", kind).stdout, f"a listener on port {port}")


PAPER = "add-stateful ip-saddr 10.0.0.0/24 ip-proto tcp tcp-syn shuffle tcp-sport mod ip-saddr 200.0.0.1\n"
DESIGN = "add-stateful ip-saddr 10.0.0.0/24 ip-proto tcp map ip-saddr 200.0.0.1 shuffle tcp-sport\n"


@pytest.mark.parametrize("rule", [PAPER, DESIGN, POOL + SOURCE_NAT], ids=["paper", "design", "pool"])
def test_paper_rules(make_nat, driver, rule):
    """Source NAT with the rules of the paper and the design, on both kinds of ports."""
    nat = make_nat(rule, driver=driver)
    mirror(nat, SERVER, 7000, STREAM)
    for number, host in enumerate(INSIDE):
        asked = speaker(nat, host, 40000 + number, STREAM).connect(SERVER, 7000)
        address, port = asked.ask()
        assert address == "200.0.0.1" and port >= 1024
        assert asked.ask() == (address, port)


def test_real_clients(make_nat, driver):
    """curl, iperf3 both ways over TCP and UDP, DNS, wrk, and a bulk transfer whose bytes are compared."""
    nat = make_nat(POOL + SOURCE_NAT, driver=driver)
    web = traffic.WebServer(nat.servers, 80)
    nat.on_close(web.close)
    assert traffic.fetch(nat.hosts, f"http://{SERVER}/file") == web.content
    log = wait.until(web.log_lines, "the web server's log")
    assert {line.split()[0] for line in log} == {"200.0.0.1"}
    dns = nat.servers.popen(
        "dnsmasq", "--keep-in-foreground", "--no-hosts", "--no-resolv", "--port=53", f"--listen-address={SERVER}",
        "--bind-interfaces", "--address=/mmb.example/192.0.2.7", "--user=root", "--pid-file=",
    )
    assert dns.poll() is None
    listening(nat.servers, 53, "-uln")
    assert nat.hosts.run("dig", "+short", "+tries=2", f"@{SERVER}", "mmb.example").stdout.strip() == "192.0.2.7"
    for number, options in enumerate(([], ["-R"], ["-u", "-b", "50M"], ["-u", "-b", "50M", "-R"])):
        nat.servers.popen("iperf3", "-s", "-1", "-p", 5201 + number, stdout=-3)
        listening(nat.servers, 5201 + number)
        shown = nat.hosts.run("iperf3", "-J", "-t", "1", "-c", SERVER, "-p", 5201 + number, *options).stdout
        end = json.loads(shown)["end"]
        moved = end["sum"]["bytes"] if "sum" in end else end["sum_received"]["bytes"]
        assert moved > 1 << 20, shown
    shown = nat.hosts.run("wrk", "-t1", "-c8", "-d1s", f"http://{SERVER}/file").stdout
    assert "Socket errors" not in shown and "Non-2xx" not in shown, shown
    sent, received = traffic.bulk_transfer(nat.hosts, nat.servers, SERVER, size=32 << 20)
    assert sent == received


FILTERING = {
    "endpoint-independent": "Independent Filter",
    "address-dependent": "Address Dependent Filter",
    "address-and-port-dependent": "Port Dependent Filter",
}


@pytest.mark.parametrize("filtering", FILTERING)
def test_stun_says_what_the_pool_promises(make_nat, filtering):
    """A STUN client (RFC 3489) classifies the NAT: mapping, filtering, port preservation, hairpinning."""
    nat = make_nat(POOL.strip() + f" filtering {filtering}\n" + SOURCE_NAT)
    nat.servers.popen("stund", "-h", SERVER, "-a", OTHER, stdout=-3, stderr=-3)
    listening(nat.servers, 3478, "-uln")
    listening(nat.servers, 3479, "-uln")
    shown = nat.hosts.run("stun", SERVER, "-v", "-p", "40000", "-i", INSIDE[0], check=False)
    said = [line.strip() for line in (shown.stdout + shown.stderr).splitlines() if line.startswith("Primary:")]
    assert said == [f"Primary: Independent Mapping, {FILTERING[filtering]}, preserves ports, will hairpin"], (
        shown.stdout + shown.stderr
    )


def test_endpoint_independent_mapping(make_nat):
    """One inside port has one external port towards all servers (RFC 4787 REQ-1; RFC 5382 REQ-1 for TCP)."""
    nat = make_nat(POOL + SOURCE_NAT)
    for address in (SERVER, OTHER):
        mirror(nat, address, 7000)
        mirror(nat, address, 7001)
        mirror(nat, address, 7000, STREAM)
    asked = speaker(nat, INSIDE[0], 41000)
    assert {asked.ask(address, port) for address in (SERVER, OTHER) for port in (7000, 7001)} == {("200.0.0.1", 41000)}
    streams = {speaker(nat, INSIDE[1], 41002, STREAM).connect(address, 7000).ask() for address in (SERVER, OTHER)}
    assert streams == {("200.0.0.1", 41002)}


def test_ports_are_preserved_and_parity_kept(make_nat):
    """The first host keeps its port; a second host with the same port gets another port of the same parity
    (REQ-4).
    """
    nat = make_nat(POOL + SOURCE_NAT)
    mirror(nat, SERVER, 7000)
    for port in (42000, 42001):
        seen = [speaker(nat, host, port).ask(SERVER, 7000)[1] for host in INSIDE]
        assert seen[0] == port and len(set(seen)) == len(INSIDE)
        assert {number % 2 for number in seen} == {port % 2}


def test_two_hosts_same_port(make_nat):
    """Hosts with the same source port share one external address to one server."""
    nat = make_nat("add-stateful ip-saddr 10.0.0.0/24 ip-proto tcp map ip-saddr 200.0.0.1\n")
    mirror(nat, SERVER, 7000, STREAM)
    streams = [speaker(nat, host, 43000, STREAM).connect(SERVER, 7000) for host in INSIDE]
    first = [stream.ask() for stream in streams]
    assert {address for address, _ in first} == {"200.0.0.1"} and len(set(first)) == len(INSIDE)
    assert first[0][1] == 43000
    assert [stream.ask() for stream in streams] == first


def test_hairpin(make_nat):
    """Two inside hosts communicate by their external addresses and see external addresses (REQ-9)."""
    nat = make_nat(POOL.strip() + " filtering endpoint-independent\n" + SOURCE_NAT)
    mirror(nat, SERVER, 7000)
    one, two = speaker(nat, INSIDE[0], 44000), speaker(nat, INSIDE[1], 44002)
    first, second = one.ask(SERVER, 7000), two.ask(SERVER, 7000)
    one.socket.sendto(b"over the hairpin", second)
    data, peer = two.socket.recvfrom(100)
    assert (data, peer) == (b"over the hairpin", first)
    two.socket.sendto(b"and back", peer)
    assert one.socket.recvfrom(100) == (b"and back", second)


def test_port_forward_tcp_udp(make_nat):
    """Connections to a forwarded port reach the inside host, which sees the client's address."""
    nat = make_nat(
        POOL
        + SOURCE_NAT
        + f"nat forward add tcp {OUTSIDE[0]} 8080 to {INSIDE[2]} 80\n"
        + f"nat forward add udp {OUTSIDE[0]} 5353 to {INSIDE[2]} 53\n"
    )
    mirror(nat, INSIDE[2], 80, STREAM, nat.hosts)
    mirror(nat, INSIDE[2], 53, DGRAM, nat.hosts)
    outside = Speaker(nat.servers, SERVER, 50000, STREAM)
    nat.on_close(outside.close)
    assert outside.connect(OUTSIDE[0], 8080).ask() == (SERVER, 50000)
    asked = Speaker(nat.servers, SERVER, 50001)
    nat.on_close(asked.close)
    assert asked.ask(OUTSIDE[0], 5353) == (SERVER, 50001)
    # What the inside host sends from that port leaves by the forward.
    mirror(nat, OTHER, 7000)
    again = speaker(nat, INSIDE[2], 53)
    assert again.ask(OTHER, 7000) == (OUTSIDE[0], 5353)


def test_unknown_ports_are_dropped_and_counted(make_nat):
    nat = make_nat(POOL + SOURCE_NAT)
    mirror(nat, SERVER, 7000)
    asked = speaker(nat, INSIDE[0], 45000)
    assert asked.ask(SERVER, 7000) == (OUTSIDE[0], 45000)
    for address, port, reason in ((SERVER, 45001, "nat-unmapped"), (OTHER, 45000, "nat-filtered")):
        stray = nat.servers.socket(socket.AF_INET, DGRAM)
        with stray:
            stray.bind((address, 9))
            stray.sendto(b"stray", (OUTSIDE[0], port))
            wait.until(lambda reason=reason: nat.daemon.drops()[reason] == 1, reason)


def test_limit_is_per_source(make_nat):
    """The third mapping of a host is refused with an ICMP error; another host has a limit of its own."""
    nat = make_nat(POOL.strip() + " limit 2\n" + SOURCE_NAT)
    mirror(nat, SERVER, 7000)
    for host in INSIDE[:2]:
        for port in (46000, 46001):
            assert speaker(nat, host, port).ask(SERVER, 7000) == (OUTSIDE[0], port) or host != INSIDE[0]
    refused = speaker(nat, INSIDE[0], 46002)
    refused.socket.connect((SERVER, 7000))
    with pytest.raises(OSError):
        # The error of the first datagram is told at the next call.
        refused.socket.send(b"?")
        refused.socket.recv(100)
    assert nat.daemon.drops()["nat-limit"] == 1


def test_exhaustion_is_answered(make_nat):
    """Exhausted ports: the sender gets type 3, code 13 (RFC 5508 REQ-8), and the drop is counted."""
    nat = make_nat(POOL.strip() + " ports 50000-50003\n" + SOURCE_NAT)
    mirror(nat, SERVER, 7000)
    seen = {speaker(nat, INSIDE[number], 47000).ask(SERVER, 7000)[1] for number in range(4)}
    assert seen == {50000, 50001, 50002, 50003}
    refused = RawPort(nat.hosts, "c0")
    nat.on_close(refused.close)
    packet = IP(src=INSIDE[5], dst=SERVER) / UDP(sport=47000, dport=7000) / frames.payload()
    refused.send(Ether(src=CLIENT_MAC, dst=ROUTER_MAC) / packet)
    answer = Ether(error_of(refused))
    assert (answer.src, answer.dst, answer[IP].dst) == (ROUTER_MAC, CLIENT_MAC, INSIDE[5])
    assert (answer[ICMP].type, answer[ICMP].code) == (3, 13)
    assert bytes(answer[ICMP].payload).startswith(bytes(packet)[:28])
    assert frames.wrong_checksums(bytes(answer)) == []
    assert nat.daemon.drops()["nat-exhausted"] == 1


def error_of(port):
    """The next ICMP error that arrives at a raw port."""
    found = []

    def is_error(frame):
        packet = Ether(frame)
        if ICMP in packet and packet[ICMP].type in (3, 4, 5, 11, 12):
            found.append(frame)
            return True
        return False

    port.receive_until(is_error)
    return found[0]


def test_port_blocks_log_one_line(make_nat):
    """A host's ports come from its block; the daemon logs each block once."""
    nat = make_nat(POOL.strip() + " ports 10000-19999 block 100\n" + SOURCE_NAT)
    mirror(nat, SERVER, 7000)
    seen = {host: {speaker(nat, host).ask(SERVER, 7000)[1] for _ in range(20)} for host in INSIDE[:2]}
    blocks = {host: {(port - 10000) // 100 for port in ports} for host, ports in seen.items()}
    assert all(len(block) == 1 for block in blocks.values()) and blocks[INSIDE[0]] != blocks[INSIDE[1]]

    def lines():
        return [line for line in nat.daemon.log().splitlines() if "block" in line and OUTSIDE[0] in line]

    wait.until(lambda: len(lines()) == 2, "two lines about blocks")
    for host, block in blocks.items():
        (low,) = block
        about = [line for line in lines() if host in line]
        assert len(about) == 1 and f"{10000 + low * 100}-{10099 + low * 100}" in about[0], lines()


def test_ping_traceroute_and_path_mtu(make_nat, driver):
    """traceroute and path MTU discovery through the NAT: each hop and the small link are visible."""
    nat = make_nat(POOL + SOURCE_NAT + "add-stateful ip6-saddr fd00:a::/64 accept\n", driver=driver, mtu=1400)
    assert "3 received" in nat.hosts.run("ping", "-n", "-c", "3", "-i", "0.05", "-W", "3", SERVER).stdout
    for way in (["-I"], ["-U"], ["-T", "-p", "9"]):
        shown = nat.hosts.run("traceroute", "-n", "-q", "1", "-w", "3", "-m", "5", *way, SERVER).stdout
        hops = [line.split()[1] for line in shown.splitlines() if re.match(r"\s*\d", line)]
        assert hops == [GATEWAY, SERVER], shown
    shown = nat.hosts.run("tracepath", "-n", "-m", "5", SERVER).stdout
    assert re.search(r"Resume: pmtu 1400 ", shown), shown
    nat.hosts.run("ip", "route", "flush", "cache")
    sent, received = traffic.bulk_transfer(nat.hosts, nat.servers, SERVER, size=4 << 20)
    assert sent == received


def test_icmp_errors_from_inside(make_nat):
    """An ICMP error of an inside router contains neither its own nor the inside host's address."""
    nat = make_nat(POOL + SOURCE_NAT)
    mirror(nat, SERVER, 7000)
    inside, outside = RawPort(nat.hosts, "c0"), RawPort(nat.router, "r0")
    nat.on_close(inside.close)
    nat.on_close(outside.close)
    asked = speaker(nat, INSIDE[0], 48000)
    assert asked.ask(SERVER, 7000) == (OUTSIDE[0], 48000)
    outside.drain()
    quoted = IP(src=SERVER, dst=INSIDE[0], ttl=60, id=7) / UDP(sport=7000, dport=48000) / Raw(b"late" * 4)
    error = IP(src="10.0.0.99", dst=SERVER) / ICMP(type=11, code=0) / Raw(bytes(quoted)[:28])
    inside.send(Ether(src=CLIENT_MAC, dst=ROUTER_MAC) / error)
    seen = Ether(error_of(outside))
    assert (seen[IP].src, seen[IP].dst) == (OUTSIDE[0], SERVER)
    within = IP(bytes(seen[ICMP].payload))
    assert (within.src, within.dst) == (SERVER, OUTSIDE[0])
    assert within.chksum == IP(frames.rebuilt(IP(src=SERVER, dst=OUTSIDE[0], ttl=60, id=7, len=44, proto=17))).chksum
    assert checksum(bytes(seen)[34 : 14 + seen[IP].len]) == 0


def checksum(data):
    """The Internet checksum of bytes that contain one: 0 when it is right (RFC 1071)."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total >> 16) + (total & 0xFFFF)
    return total ^ 0xFFFF


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=["in-order", "backwards", "mixed"])
def test_fragments_in_any_order(make_nat, order):
    """Fragments of a datagram get the same translation in any order of arrival (RFC 4787 REQ-14)."""
    nat = make_nat(POOL + SOURCE_NAT)
    inside, outside = RawPort(nat.hosts, "c0"), RawPort(nat.router, "r0")
    nat.on_close(inside.close)
    nat.on_close(outside.close)
    data = bytes(range(256)) * 12
    whole = IP(src=INSIDE[0], dst="198.51.100.77", id=4711) / UDP(sport=49000, dport=7000) / Raw(data)
    body = bytes(whole)[20:]
    pieces = [body[:1200], body[1200:2400], body[2400:]]
    for number in order:
        last = number == 2
        header = IP(src=INSIDE[0], dst="198.51.100.77", id=4711, proto=17, frag=150 * number, flags=0 if last else 1)
        inside.send(Ether(src=CLIENT_MAC, dst=ROUTER_MAC) / header / Raw(pieces[number]))
    got = {}

    def is_last(frame):
        packet = Ether(frame)
        if IP in packet and packet[IP].id == 4711 and packet[IP].proto == 17:
            got[packet[IP].frag] = packet
        return len(got) == 3

    outside.receive_until(is_last)
    assert {packet[IP].src for packet in got.values()} == {OUTSIDE[0]}
    joined = b"".join(bytes(got[offset][IP].payload) for offset in sorted(got))
    udp = UDP(joined)
    assert (udp.sport, udp.dport, joined[8:]) == (49000, 7000, data)
    assert joined == bytes(IP(frames.rebuilt(IP(src=OUTSIDE[0], dst="198.51.100.77") / UDP(sport=49000, dport=7000) / Raw(data))).payload)


def test_large_pings_through_the_nat(make_nat, driver):
    """Fragments both ways with the kernel at both ends."""
    nat = make_nat(POOL + SOURCE_NAT + "add-stateful ip6-saddr fd00:a::/64 accept\nadd ip6-daddr fd00:a::/64 drop\n", driver=driver)
    for address in (SERVER, "2001:db8::2"):
        try:
            shown = nat.hosts.run("ping", "-n", "-c", "5", "-i", "0.05", "-W", "3", "-s", "6000", address).stdout
        except CommandFailed as failed:
            raise AssertionError(f"{failed}\n{nat.daemon.drops()}") from failed
        assert "5 received" in shown


def test_balancing(make_nat):
    """`lb` distributes new sessions over the servers; the client sees the virtual address."""
    nat = make_nat(f"add-stateful ip-daddr 198.51.100.100 ip-proto tcp tcp-dport 80 lb {SERVER} {OTHER}\n")
    webs = [Mirror(nat.servers, address, 80, STREAM) for address in (SERVER, OTHER)]
    for web in webs:
        nat.on_close(web.close)
    for _ in range(40):
        stream = Speaker(nat.hosts, INSIDE[0], 0, STREAM).connect("198.51.100.100", 80)
        assert stream.ask()[0] == INSIDE[0]
        stream.close()
    assert all(len(web._connections) >= 5 for web in webs)


def test_64000_hosts_one_port(tmp_path, root):
    """64,000 hosts with one source port, one destination and one external address: all pass with distinct
    ports.
    """
    from lab.daemon import mmb

    count = 64_000
    source, sink = tmp_path / "in.pcap", tmp_path / "out.pcap"
    head = struct.pack("!6s6sH", bytes.fromhex("0200000000fe"), bytes.fromhex("020000000001"), 0x0800)
    with source.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number in range(count):
            address = struct.pack("!I", 0x0A000000 + number + 1)
            tcp = bytearray(struct.pack("!HHIIBBHHH", 1024, 80, number, 0, 0x50, 2, 65535, 0, 0))
            pseudo = address + bytes([198, 51, 100, 2, 0, 6, 0, 20])
            tcp[16:18] = struct.pack("!H", checksum(bytes(tcp) + pseudo))
            ip = bytearray(struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, 6, 0) + address + bytes([198, 51, 100, 2]))
            ip[10:12] = struct.pack("!H", checksum(bytes(ip)))
            file.write(struct.pack("<IIII", 1, number, 54, 54) + head + ip + tcp)
    config = tmp_path / "nat.conf"
    for rule in (
        "add-stateful ip-saddr 10.0.0.0/8 ip-proto tcp map ip-saddr 200.0.0.1 shuffle tcp-sport",
        "nat pool add wan 200.0.0.1 ports 1024-65535\nadd-stateful ip-saddr 10.0.0.0/8 nat wan",
    ):
        config.write_text(f"interface add a null\ninterface add b null\nwire a b\n{rule}\n", encoding="utf-8")
        mmb("replay", "-c", config, source, "-w", sink)
        data = sink.read_bytes()[24:]
        assert len(data) == count * 70
        seen = {data[at + 16 + 26 : at + 16 + 30] + data[at + 16 + 34 : at + 16 + 36] for at in range(0, len(data), 70)}
        assert len(seen) == count and {tuple[:4] for tuple in seen} == {bytes([200, 0, 0, 1])}
        broken = [at for at in range(0, 70 * 1000, 70) if frames.wrong_checksums(data[at + 16 : at + 70])]
        assert not broken
