"""mmb as a bump in the wire between real end points."""

import pytest

from lab import frames, traffic
from lab.frames import ICMP, IP, TCP, UDP, Dot1AD, Dot1Q, Ether, Raw
from lab.links import vlan
from lab.netns import CLIENT_MAC, SERVER4, SERVER6, SERVER_MAC

MEGABYTE = 1 << 20


def ping(namespace, address, *options):
    """Pings; fails if an answer is missing."""
    shown = namespace.run("ping", "-n", "-c", "5", "-i", "0.02", "-W", "3", *options, address).stdout
    assert "5 packets transmitted, 5 received" in shown
    return shown


def test_arp_and_ping(wire):
    wire.client.run("ip", "neigh", "flush", "dev", "c0")
    ping(wire.client, SERVER4)
    assert SERVER_MAC in wire.client.run("ip", "neigh", "show", SERVER4).stdout


def test_neighbour_discovery_and_ping(wire):
    wire.client.run("ip", "-6", "neigh", "flush", "dev", "c0")
    ping(wire.client, SERVER6)
    assert SERVER_MAC in wire.client.run("ip", "neigh", "show", SERVER6).stdout


@pytest.mark.parametrize("address", [SERVER4, SERVER6], ids=["ip4", "ip6"])
def test_fragmented_ping(wire, address):
    """Fragments pass as fragments; the end points reassemble them."""
    wire.daemon.add("tcp-dport 4444 drop")
    ping(wire.client, address, "-s", "4000")


def test_arp_passes_a_policy_that_drops_everything(wire):
    wire.daemon.add("all drop")
    request = Ether(src=CLIENT_MAC, dst="ff:ff:ff:ff:ff:ff") / frames.ARP(
        psrc="10.77.0.1", pdst=SERVER4, hwsrc=CLIENT_MAC
    )
    wire.left.drain()
    wire.left.send(bytes(request))
    arrived = wire.left.receive_until(
        lambda frame: Ether(frame).haslayer(frames.ARP) and Ether(frame)[frames.ARP].op == 2
    )
    assert all(frame[12:14] != b"\x08\x00" for frame in arrived)
    assert not wire.passes(frames.ether() / frames.ip4() / UDP() / frames.payload())


def test_web_server_reached_through_rules(wire):
    server = traffic.WebServer(wire.server, 8080)
    try:
        there = wire.daemon.add("tcp-dport 80 mod tcp-dport 8080")
        back = wire.daemon.add("tcp-sport 8080 mod tcp-sport 80")
        assert traffic.fetch(wire.client, f"http://{SERVER4}/file") == server.content
        assert traffic.fetch(wire.client, f"http://[{SERVER6}]/file") == server.content
        assert wire.daemon.hits(there) > 0 and wire.daemon.hits(back) > 0
    finally:
        server.close()


def test_udp_dropped_tcp_and_icmp_not(wire):
    index = wire.daemon.add("ip-proto udp drop")
    udp = frames.ether() / frames.ip4() / UDP(sport=1, dport=2) / frames.payload()
    tcp = frames.ether() / frames.ip4() / TCP(sport=1, dport=2) / frames.payload()
    dropped_before = wire.daemon.drops()["rule"]
    assert wire.cross(udp, tcp, udp) == [bytes(tcp)]
    assert wire.daemon.rules()[index]["packets"] == 2
    assert wire.daemon.rules()[index]["bytes"] == 2 * len(udp)
    assert wire.daemon.drops()["rule"] == dropped_before + 2
    ping(wire.client, SERVER4)


def test_icmp_dropped_by_type(wire):
    wire.daemon.add("icmp-type 8 drop")
    lost = wire.client.run("ping", "-n", "-c", "3", "-i", "0.02", "-W", "1", SERVER4, check=False)
    assert "3 packets transmitted, 0 received" in lost.stdout
    ping(wire.client, SERVER6)


@pytest.mark.parametrize("offloads", [True, False], ids=["offloads", "no-offloads"])
@pytest.mark.parametrize("address", [SERVER4, SERVER6], ids=["ip4", "ip6"])
def test_tcp_bulk_transfer_arrives_intact(make_wire, driver, offloads, address):
    """64 MB in each direction through rewriting rules, hashed at both end points; also with the kernel's
    default offloads.
    """
    wire = make_wire(driver, offloads=offloads)
    wire.daemon.add("tcp-dport 5001 mod ip-dscp 10")
    wire.daemon.add("tcp-dport 5001 mod ip6-hop-limit 33")
    sent, received = traffic.bulk_transfer(wire.client, wire.server, address, size=64 * MEGABYTE)
    assert sent == received
    wire.left.close()
    back, received_back = traffic.bulk_transfer(
        wire.server, wire.client, address.replace("::2", "::1").replace("0.2", "0.1"), port=5002, size=64 * MEGABYTE
    )
    assert back == received_back


@pytest.mark.parametrize("qinq", [False, True], ids=["vlan", "qinq"])
def test_tcp_inside_vlans(make_wire, driver, qinq):
    """Real TCP of kernel peers inside tags, rewritten by rules that look at the inner headers; the ends take
    frames in only with the right tags. Tags that the peer's kernel leaves beside the frame reach no XDP program, and
    AF_PACKET's driver does not tell an 802.1ad tag from another, so the peers put them into the frame."""
    wire = make_wire(driver)
    for end_point, interface in ((wire.client, "c0"), (wire.server, "s0")):
        # A link of this MTU has no room for two tags around a full-sized packet.
        end_point.run("ip", "route", "replace", "10.77.0.0/24", "dev", interface, "mtu", 1492)
        vlan.tag(end_point, interface, qinq)
        if driver == "af-xdp":
            assert "ethtool -K PEER txvlan off" in " ".join(wire.daemon.interfaces()["left"]["notes"])
            end_point.run("ethtool", "-K", interface, "txvlan", "off")
        if qinq:
            end_point.run("ethtool", "-K", interface, "tx-vlan-stag-hw-insert", "off")
    index = wire.daemon.add("tcp-dport 5001 mod ip-ttl 50")
    sent, received = traffic.bulk_transfer(wire.client, wire.server, SERVER4, size=8 * MEGABYTE)
    assert sent == received
    assert wire.daemon.hits(index) > 100


@pytest.mark.parametrize("envelope", ["vlan", "qinq"])
def test_tagged_frames_classified_by_inner_header(wire, envelope):
    tags = Dot1Q(vlan=100, prio=5) if envelope == "vlan" else Dot1AD(vlan=7, prio=1) / Dot1Q(vlan=100, prio=5)
    wire.daemon.add("udp-dport 2 drop")
    wire.daemon.add("udp-dport 3 mod udp-dport 4")
    dropped, edited, left_alone = (
        frames.ether() / tags / frames.ip4() / UDP(sport=1, dport=port) / frames.payload() for port in (2, 3, 5)
    )
    assert wire.cross(dropped, edited, left_alone) == [frames.changed(edited, UDP, dport=4), bytes(left_alone)]


def untouched():
    """Frames that must not be changed."""
    mac = frames.ether()
    mark = frames.payload
    yield "arp", Ether(src=CLIENT_MAC, dst=SERVER_MAC) / frames.ARP(pdst="10.77.0.99") / mark(30)
    yield "lldp", Ether(src=CLIENT_MAC, dst="01:80:c2:00:00:0e", type=0x88CC) / mark(60)
    yield "stp", frames.Dot3(src=CLIENT_MAC, dst="01:80:c2:00:00:00") / frames.LLC() / mark(40)
    yield "pause-like", Ether(src=CLIENT_MAC, dst="01:80:c2:00:00:01", type=0x8808) / mark(46)
    yield "mpls", Ether(src=CLIENT_MAC, dst=SERVER_MAC, type=0x8847) / mark(100)
    yield "pppoe", Ether(src=CLIENT_MAC, dst=SERVER_MAC, type=0x8864) / mark(100)
    yield "short", Raw(bytes(mac)[:12] + b"\x88\xb6" + bytes(mark(16)))
    yield "tagged-arp", mac / Dot1Q(vlan=3) / frames.ARP() / mark(30)
    yield "ip4", mac / frames.ip4() / UDP() / mark(100)
    yield "ip4-bad-header-checksum", mac / frames.ip4(chksum=0x1234) / UDP() / mark(100)
    yield "ip4-trailer", Raw(bytes(mac / frames.ip4() / UDP() / mark(20)) + b"trailing bytes")
    yield "ip4-unknown-protocol", mac / frames.ip4(proto=253) / mark(100)
    yield "tcp-bad-checksum", mac / frames.ip4() / TCP(chksum=0x1234) / mark(100)
    yield "ip6", mac / frames.ip6() / UDP() / mark(100)
    yield "ip6-no-next-header", mac / frames.ip6(nh=59) / mark(100)
    yield "ip6-later-fragment", mac / frames.ip6() / frames.IPv6ExtHdrFragment(offset=100, id=1, nh=17) / mark(64)
    yield "ip4-later-fragment", mac / frames.ip4(frag=100, proto=17) / mark(64)
    yield "ip6-esp", mac / frames.ip6(nh=50) / mark(100)
    yield "full-size", mac / frames.ip4() / UDP() / mark(1472)
    yield "full-size-tagged", mac / Dot1Q(vlan=9) / frames.ip4() / UDP() / mark(1472)


UNTOUCHED = dict(untouched())


@pytest.mark.parametrize("name", UNTOUCHED)
@pytest.mark.parametrize("backwards", [False, True], ids=["there", "back"])
def test_untouched_frames_pass_byte_for_byte(wire, name, backwards):
    wire.daemon.add("tcp-dport 4444 mod tcp-dport 5555")
    assert wire.passes(UNTOUCHED[name], backwards=backwards)


def malformed():
    """Packets whose bytes contradict their ethertype, and the expected drop reasons."""
    mac = frames.ether()
    mark = frames.payload
    yield "ip4-version-5", Ether(src=CLIENT_MAC, dst=SERVER_MAC, type=0x0800) / Raw(b"\x55" + bytes(19)) / mark(
        40
    ), "ip4-malformed"
    yield "ip4-short-ihl", mac / frames.ip4(ihl=4) / mark(40), "ip4-malformed"
    yield "ip4-total-below-header", mac / frames.ip4(len=19) / mark(40), "ip4-malformed"
    yield "ip4-short-udp-header", mac / frames.ip4(proto=17, len=24) / Raw(bytes(4)) / mark(20), "l4-truncated"
    yield "ip4-total-beyond-frame", mac / frames.ip4(len=1000) / mark(40), "ip4-truncated"
    yield "ip6-version-4", Ether(src=CLIENT_MAC, dst=SERVER_MAC, type=0x86DD) / Raw(b"\x40" + bytes(39)) / mark(
        40
    ), "ip6-malformed"
    yield "ip6-payload-beyond-frame", mac / frames.ip6(plen=1000) / mark(40), "ip6-truncated"
    yield "tcp-offset-beyond-packet", mac / frames.ip4() / TCP(dataofs=15) / mark(16), "l4-truncated"
    yield "tcp-offset-short", mac / frames.ip4() / TCP(dataofs=4) / mark(16), "l4-malformed"
    yield "udp-length-short", mac / frames.ip4() / UDP(len=7) / mark(16), "l4-malformed"
    yield "ip6-udp-length-0", mac / frames.ip6() / UDP(len=0) / mark(16), "l4-malformed"
    yield "icmp-cut", mac / frames.ip4(proto=1, len=27) / ICMP() / mark(16), "l4-truncated"
    yield "ip4-tiny-fragment", mac / frames.ip4(proto=6, flags="MF") / mark(16), "tiny-fragment"
    yield "ip4-fragment-offset-1", mac / frames.ip4(proto=6, frag=1) / mark(40), "tiny-fragment"
    yield "ip6-tiny-fragment", mac / frames.ip6() / frames.IPv6ExtHdrFragment(nh=60, m=1) / Raw(
        b"\x06\x01" + bytes(14)
    ) / mark(16), "tiny-fragment"
    yield "ip6-two-fragment-headers", mac / frames.ip6() / frames.IPv6ExtHdrFragment() / frames.IPv6ExtHdrFragment(
    ) / UDP() / mark(16), "l4-malformed"
    tags = mac
    for _ in range(5):
        tags /= Dot1Q(vlan=0)
    yield "five-vlan-tags", tags / frames.ip4() / UDP() / mark(16), "vlan-depth"


MALFORMED = {name: (frame, reason) for name, frame, reason in malformed()}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_packets_are_dropped_with_their_reason(wire, name):
    """Malformed packets are dropped where rules apply, because rules cannot be evaluated for them."""
    frame, reason = MALFORMED[name]
    wire.daemon.add("tcp-dport 4444 drop")
    before = wire.daemon.drops()[reason]
    assert not wire.passes(frame)
    assert wire.daemon.drops()[reason] == before + 1


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_packets_pass_a_wire_without_rules(wire, name):
    assert wire.passes(MALFORMED[name][0])


def test_truncated_at_every_byte(wire):
    """A packet truncated at any byte is dropped or passed on unchanged; the daemon survives."""
    whole = bytes(
        frames.ether()
        / Dot1Q(vlan=1)
        / frames.ip6()
        / frames.IPv6ExtHdrHopByHop()
        / TCP(options=[("MSS", 1460)])
        / frames.payload()
    )
    wire.daemon.add("tcp-dport 80 mod tcp-dport 81")
    arrived = wire.cross(*(whole[:cut] for cut in range(14, len(whole))))
    assert all(frame in whole for frame in arrived)
    assert wire.daemon.running()


def test_jumbo_frames(make_wire):
    """MTU 9000: frames that fill several packet buffers are classified, rewritten and forwarded."""
    wire = make_wire("af-packet", mtu=9000)
    wire.daemon.add("udp-dport 2 mod udp-dport 3")
    for size in (1473, 2000, 4000, 8972):
        packet = frames.ether() / frames.ip4() / UDP(sport=1, dport=2) / frames.payload(size)
        assert wire.cross(packet) == [frames.changed(packet, UDP, dport=3)]
    ping(wire.client, SERVER4, "-M", "do", "-s", "8972")
    sent, received = traffic.bulk_transfer(wire.client, wire.server, SERVER4, size=16 * MEGABYTE)
    assert sent == received


def test_mtu_too_large_for_xdp_is_refused_with_a_way_out(make_bench, make_daemon):
    bench = make_bench(mtu=9000)
    daemon = make_daemon(bench.mbox)
    refused = daemon.line("interface add left af-xdp m0", check=False)
    assert refused.returncode != 0
    assert "9000" in refused.stderr and "af-packet" in refused.stderr and "MTU" in refused.stderr.upper()
    daemon.line("interface add left af-packet m0")


def test_accept_protects_from_drop_and_edit_leaves_others_alone(wire):
    wire.daemon.add("ip-proto udp drop")
    wire.daemon.add("udp-dport 53 accept")
    dns = frames.ether() / frames.ip4() / UDP(sport=1, dport=53) / frames.payload()
    other = frames.ether() / frames.ip4() / UDP(sport=1, dport=54) / frames.payload()
    assert wire.cross(dns, other) == [bytes(dns)]


def test_drop_a_share(wire):
    """`drop 25` drops a quarter of the packets; the counters are exact."""
    wire.daemon.add("udp-dport 2 drop 25")
    before = wire.daemon.drops()["rule"]
    packet = bytes(frames.ether() / frames.ip4() / UDP(sport=1, dport=2) / frames.payload())
    arrived = sum(len(wire.cross(*[packet] * 100)) for _ in range(20))
    assert 2000 - arrived == wire.daemon.drops()["rule"] - before
    # Binomial: 500 expected, standard deviation 19.4; five of them either way.
    assert 400 < 2000 - arrived < 600


def test_redirect_with_mod_out(wire):
    """`mod out` sends a packet by another interface than the wire's other end, here back to the sender."""
    wire.daemon.add("udp-dport 2 mod out left")
    packet = frames.ether() / frames.ip4() / UDP(sport=1, dport=2) / frames.payload()
    last = bytes(frames.ether() / frames.ip4() / UDP(sport=1, dport=2) / frames.payload())
    wire.left.drain()
    assert not wire.passes(packet)
    wire.left.send(last)
    assert bytes(packet) in wire.left.receive_until(last.__eq__)


def test_enable_and_disable(wire):
    """Rules apply only to packets that come in by enabled interfaces."""
    wire.daemon.add("ip-proto udp drop")
    packet = frames.ether() / frames.ip4() / UDP(sport=1, dport=2) / frames.payload()
    assert not wire.passes(packet)
    wire.daemon.command("disable", "left")
    assert wire.passes(packet)
    assert not wire.passes(packet, backwards=True)
    wire.daemon.command("enable", "left")
    assert not wire.passes(packet)


def test_rule_on_header_bytes_of_ip_only(wire):
    """A frame that is not IP matches no rule, not even `all`."""
    index = wire.daemon.add("all drop")
    assert wire.passes(Ether(src=CLIENT_MAC, dst=SERVER_MAC, type=0x88B6) / frames.payload(60))
    assert wire.daemon.hits(index) == 0
    assert not wire.passes(frames.ether() / IP(dst=SERVER4) / frames.payload())
