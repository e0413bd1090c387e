"""TCP options: matches, edits byte by byte, and their effect on real connections."""

import socket

import pytest

from lab import frames, traffic
from lab.frames import UDP, IPOption
from lab.netns import SERVER4, SERVER6
from lab.option_bytes import EOL, NOP, SACKP, SYN_OPTIONS, mss, option, pair, sack, segment, timestamp, wscale

STAMP = timestamp(7, 9)
FULL = timestamp(1, 2) + sack(*range(6)) + SACKP + SACKP

MATCHES = [
    ("tcp-opt", [mss(1), NOP + SACKP, option(99)], [b"", NOP * 4, EOL + mss(1)]),
    ("tcp-opt-mss", [mss(0), NOP + mss(1460), option(2, b"abc")], [STAMP, b"\x02", b"\x02\x01\x00\x00"]),
    # Of several, the last one counts that has the length its kind asks for.
    ("tcp-opt-mss > 1460", [mss(1461), mss(1) + mss(65535)], [mss(1460), mss(9000) + mss(1), option(2, b"\xff" * 3)]),
    ("tcp-opt-mss != 1460", [mss(1461)], [mss(1460), b"", option(2, b"x")]),
    ("! tcp-opt-mss 1460", [mss(1461), b"", STAMP], [mss(1460)]),
    ("tcp-opt-mss {536,1200-1300}", [mss(536), mss(1200), mss(1300)], [mss(535), mss(1199), mss(1301)]),
    ("tcp-opt-mss ge 1000 tcp-opt-mss lt 1400", [mss(1000), mss(1399)], [mss(999), mss(1400)]),
    ("tcp-opt-wscale 7", [wscale(7)], [wscale(8), mss(7)]),
    ("tcp-opt-sackp", [SACKP], [sack(1, 2), b""]),
    ("tcp-opt-sack", [sack(1, 2)], [SACKP]),
    ("tcp-opt-sack contains 0x00000002", [sack(1, 2), sack(2, 3)], [sack(1, 3)]),
    ("tcp-opt-timestamp", [STAMP, option(8, b"1234567")], [mss(8)]),
    ("tcp-opt-timestamp 0x700000009", [STAMP, timestamp(1, 1) + STAMP], [timestamp(7, 8), timestamp(9, 7)]),
    ("tcp-opt-timestamp < 0x100000000", [timestamp(0, 5)], [timestamp(1, 0), b""]),
    ("tcp-opt-fast-open 0x0102", [option(34, b"\x01\x02")], [option(34, b"\x01\x02\x03"), option(34)]),
    ("tcp-opt-mptcp", [option(30, b"\x00\x81")], [option(31, b"\x00\x81")]),
    ("tcp-opt 22", [option(22), mss(1) + option(22, b"x")], [mss(22), b""]),
    ("tcp-opt {2,19}", [mss(1), option(19, bytes(16))], [SACKP]),
    ("tcp-opt != 8", [mss(1), SACKP], [STAMP, mss(1) + STAMP, b""]),
    ("tcp-opt >= 30", [option(30, b"ab"), option(254)], [option(29), b""]),
]


@pytest.mark.parametrize("match, having, lacking", MATCHES, ids=[match for match, _, _ in MATCHES])
def test_match(wire, match, having, lacking):
    wire.daemon.add(f"{match} drop")
    having = [bytes(segment(options)) for options in having]
    lacking = [bytes(segment(options)) for options in lacking]
    assert wire.cross(*having, *lacking) == lacking


def test_options_of_ipv6_segments_and_behind_ip_options(wire):
    wire.daemon.add("tcp-opt-mss 1460 drop")
    with_options = frames.ip4(options=[IPOption(b"\x01\x01\x01\x00")])
    assert not wire.passes(segment(mss(1460), ip=frames.ip6()))
    assert not wire.passes(segment(mss(1460), ip=with_options))
    assert wire.passes(segment(mss(1461), ip=frames.ip6()))


EDITS = [
    # rule, options before, options after
    ("tcp-opt-mss mod tcp-opt-mss 1400", SYN_OPTIONS, mss(1400) + SYN_OPTIONS[4:]),
    ("all mod tcp-opt-mss 1400", STAMP, STAMP),
    ("all mod tcp-opt-mss 1400", mss(1) + NOP + mss(2), mss(1400) + NOP + mss(1400)),
    ("all mod tcp-opt-wscale 2", SYN_OPTIONS, SYN_OPTIONS[:-1] + b"\x02"),
    ("all mod tcp-opt-timestamp 0x100000002", NOP + NOP + STAMP, NOP + NOP + timestamp(1, 2)),
    (
        "all mod tcp-opt-fast-open 0xaabbcc",
        NOP + NOP + option(34, b"1234") + mss(5),
        NOP + NOP + option(34, b"\xaa\xbb\xcc") + mss(5),
    ),
    ("all mod tcp-opt 254 0x0102", option(254, b"abcd") + mss(5), option(254, b"\x01\x02") + mss(5)),
    # An option of the wrong length becomes a well-formed one.
    ("all mod tcp-opt-mss 9", option(2, b"abc") + SACKP, mss(9) + SACKP),
    ("all add tcp-opt-mss 536", b"", mss(536)),
    ("all add tcp-opt-mss 536", SACKP + wscale(3), SACKP + wscale(3) + mss(536)),
    ("all add tcp-opt-mss 536", mss(9) + SACKP, mss(536) + SACKP),
    ("all add tcp-opt-sackp", mss(9), mss(9) + SACKP),
    ("all add tcp-opt 254 0xf989", STAMP, STAMP + option(254, b"\xf9\x89")),
    ("all add tcp-opt-mss 1 add tcp-opt-wscale 2", b"", mss(1) + wscale(2)),
    # Padding and what cannot be read behind the options is left out when the area is rebuilt.
    ("all add tcp-opt-sackp", mss(9) + NOP + NOP + NOP + EOL, mss(9) + SACKP),
    ("all add tcp-opt-sackp", mss(9) + b"\x05\x01zz", mss(9) + SACKP),
    ("all strip tcp-opt-timestamp", SYN_OPTIONS, mss(1460) + SACKP + NOP + wscale(7)),
    # NOPs go with the option they stand before.
    ("all strip tcp-opt-timestamp", NOP + NOP + STAMP, b""),
    ("all strip tcp-opt-timestamp", NOP + mss(5) + NOP + NOP + STAMP + NOP + wscale(1), NOP + mss(5) + NOP + wscale(1)),
    ("all strip tcp-opt-mss", mss(1) + SACKP + mss(2), SACKP),
    ("all strip tcp-opt 22", option(22, b"ab") + mss(1), mss(1)),
    ("all strip tcp-opt-sackp strip tcp-opt-wscale", SYN_OPTIONS, mss(1460) + timestamp(0x01020304, 0)),
    ("all strip ! tcp-opt-mss", SYN_OPTIONS, mss(1460)),
    ("all strip all", SYN_OPTIONS, b""),
    ("all strip tcp-opt", SYN_OPTIONS, b""),
    # Nothing to strip: every byte stays, what cannot be read included.
    ("all strip tcp-opt-mss", NOP + SACKP + b"\x05\x01zz\x07", NOP + SACKP + b"\x05\x01zz\x07"),
    # In written order within a rule.
    ("all strip tcp-opt-mss add tcp-opt-mss 7", mss(1) + SACKP, SACKP + mss(7)),
    ("tcp-opt-mss strip", SYN_OPTIONS, SYN_OPTIONS[4:]),
    ("tcp-opt-mss > 1300 mod 1300", SYN_OPTIONS, mss(1300) + SYN_OPTIONS[4:]),
]


@pytest.mark.parametrize("rule, before, after", EDITS, ids=[f"{i} {rule}" for i, (rule, _, _) in enumerate(EDITS)])
@pytest.mark.parametrize("version", ["ip4", "ip6"])
def test_edit(wire, rule, before, after, version):
    sent, expected = pair(before, after, ip=getattr(frames, version))
    wire.daemon.add(rule)
    (arrived,) = wire.cross(sent)
    assert arrived.hex() == expected.hex()
    # What cannot be read stays as it was; scapy would write it otherwise.
    assert sent == expected or frames.wrong_checksums(arrived) == []


def test_rules_edit_one_after_the_other(wire):
    # The window scale keeps the NOP before it; the timestamp is new, and stands behind the others.
    after = mss(1400) + NOP + wscale(7) + timestamp(1, 2)
    sent, expected = pair(SYN_OPTIONS, after, after_dport=8080)
    wire.daemon.add("tcp-opt-mss mod tcp-opt-mss 1400")
    wire.daemon.add("tcp-syn strip ! tcp-opt-mss strip ! tcp-opt-wscale mod tcp-dport 8080")
    wire.daemon.add("tcp-opt-sackp add tcp-opt-timestamp 0x100000002")
    (arrived,) = wire.cross(sent)
    assert arrived.hex() == expected.hex()
    assert frames.wrong_checksums(arrived) == []


def unedited(daemon):
    """Packets that passed unedited, by reason, without zero counters."""
    return {reason: count for reason, count in daemon.json("show", "drops")["unedited"].items() if count}


@pytest.mark.parametrize("policy", ["forward", "drop"])
def test_no_space_for_an_option(wire, policy):
    """More than 40 bytes of options: the packet passes without any edit, or is dropped, and is counted."""
    before = unedited(wire.daemon).get("option-space", 0), wire.daemon.drops()["option-space"]
    wire.daemon.line(f"set on-error {policy}")
    wire.daemon.add("tcp-opt-timestamp add tcp-opt-mss 1400 mod ip-ttl 3")
    packet = bytes(segment(FULL))
    try:
        assert wire.passes(packet) == (policy == "forward")
    finally:
        wire.daemon.line("set on-error forward")
    after = unedited(wire.daemon).get("option-space", 0), wire.daemon.drops()["option-space"]
    assert (after[0] - before[0], after[1] - before[1]) == ((1, 0) if policy == "forward" else (0, 1))


def test_fragments_keep_their_length(wire):
    wire.daemon.add("tcp-syn add tcp-opt-mss 1400")
    fragment = segment(payload=bytes(frames.payload(1200)), ip=frames.ip4(flags="MF", id=5))
    before = unedited(wire.daemon).get("option-fragment", 0)
    assert wire.passes(fragment)
    assert unedited(wire.daemon)["option-fragment"] == before + 1


def test_a_frame_that_would_not_fit_the_mtu_is_counted(wire):
    wire.daemon.add("tcp-ack add tcp-opt-mss 1400")
    fits = segment(payload=bytes(frames.payload(1460 - 4)), flags="A")
    too_long = segment(payload=bytes(frames.payload(1460)), flags="A")
    before = unedited(wire.daemon).get("option-mtu", 0)
    (longer,) = wire.cross(fits)
    assert len(longer) == 1514 and frames.wrong_checksums(longer) == []
    assert wire.passes(too_long)
    assert unedited(wire.daemon)["option-mtu"] == before + 1


def test_what_has_no_tcp_header_is_left_alone(wire):
    wire.daemon.add("all strip all add tcp-opt-mss 1400")
    assert wire.passes(frames.ether() / frames.ip4() / UDP() / frames.payload())
    assert wire.passes(frames.ether() / frames.ip4(proto=6, frag=100) / frames.payload())


def test_a_tcp_header_that_is_cut_short_is_dropped(wire):
    wire.daemon.add("all strip all add tcp-opt-mss 1400")
    assert wire.cross(frames.ether() / frames.ip4(proto=6) / frames.payload(16)) == []
    assert wire.daemon.drops()["l4-truncated"] == 1


class Connection:
    """The kernel's tcp_info of a connection through the wire, after data in both directions."""

    def __init__(self, client, server, address, port=5002):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with server.entered():
            listener = socket.create_server((address, port), family=family)
        with listener, client.socket(family, socket.SOCK_STREAM) as near:
            near.settimeout(10)
            listener.settimeout(10)
            near.connect((address, port))
            far, _ = listener.accept()
            with far:
                far.settimeout(10)
                near.sendall(b"there")
                assert far.recv(16) == b"there"
                far.sendall(b"and back")
                assert near.recv(16) == b"and back"
                # struct tcp_info: byte 5 has the options of the handshake (1: timestamps, 2: SACK, 4: window
                # scale).
                options = far.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[5]
                self.timestamps, self.sack, self.wscale = bool(options & 1), bool(options & 2), bool(options & 4)
                self.mss = far.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)


@pytest.mark.parametrize("address", [SERVER4, SERVER6], ids=["ip4", "ip6"])
def test_a_real_handshake_without_its_options(wire, address):
    plain = Connection(wire.client, wire.server, address)
    assert plain.timestamps and plain.sack and plain.wscale
    wire.daemon.add("tcp-syn strip tcp-opt-timestamp")
    assert not Connection(wire.client, wire.server, address, 5003).timestamps
    wire.daemon.add("tcp-syn strip ! tcp-opt-mss")
    bare = Connection(wire.client, wire.server, address, 5004)
    assert not (bare.timestamps or bare.sack or bare.wscale)


@pytest.mark.parametrize("address", [SERVER4, SERVER6], ids=["ip4", "ip6"])
def test_clamping_the_mss_of_real_connections(wire, address):
    """Both end points respect the clamped MSS; the stream arrives intact."""
    rule = wire.daemon.add("tcp-opt-mss > 600 mod tcp-opt-mss 600")
    assert Connection(wire.client, wire.server, address, 5005).mss <= 600
    assert wire.daemon.hits(rule) == 2
    sent, received = traffic.bulk_transfer(wire.client, wire.server, address, port=5006, size=8 << 20)
    assert sent == received


def test_stripping_timestamps_of_whole_connections(wire):
    wire.daemon.add("tcp-opt-timestamp strip")
    sent, received = traffic.bulk_transfer(wire.client, wire.server, SERVER4, port=5007, size=8 << 20)
    assert sent == received
    # After the handshake without them, neither end sends any.
    assert sum(rule["packets"] for rule in wire.daemon.rules().values()) < 10


def test_adding_an_option_to_full_segments_of_a_real_stream(wire):
    """Segments that fill the MTU have no room for another option: they pass unedited and are counted."""
    before = unedited(wire.daemon).get("option-mtu", 0)
    wire.daemon.add("tcp-dport 5008 add tcp-opt 254 0xf989")
    sent, received = traffic.bulk_transfer(wire.client, wire.server, SERVER4, port=5008, size=8 << 20)
    assert sent == received
    assert unedited(wire.daemon)["option-mtu"] > before
