"""`mmb import`: a kernel's packet filter and mmb with the converted rules let the same packets through.

Random rule sets are loaded into the kernel of the middlebox, which routes here, and read back with `iptables-save` and
`nft -j list ruleset`; the kernel forwards packets, and `mmb replay` gets the same ones with the imported rules.
"""

import json
import pathlib
import random
import shutil

import pytest

from lab import captures, frames
from lab.daemon import mmb
from lab.frames import ICMP, TCP, UDP, Ether, ICMPv6EchoRequest, IPv6ExtHdrFragment
from lab.netns import SERVER_MAC
from lab.raw import RawPort

SOURCES = ["10.1.0.1", "10.1.0.77", "10.2.0.9", "192.0.2.5"]
DESTINATIONS = ["198.51.100.7", "198.51.100.8", "203.0.113.5"]
SOURCES6 = ["2001:db8:1::1", "2001:db8:1::77", "2001:db8:9::9"]
DESTINATIONS6 = ["2001:db8:2::7", "2001:db8:3::8"]
PORTS = [22, 53, 80, 443, 8000, 8050, 65535]
# The only difference that a result may have: IPv6 packets here are whole or first fragments.
FRAGMENTS = "#   no test of the protocol matches fragments of IPv6 other than the first"
# A protocol for experiments (RFC 3692) that every rule set lets through first: the last packet of a run.
LAST = 253


class Router:
    """A bench in which the middlebox's kernel routes from client to server."""

    def __init__(self, bench):
        self.mbox = bench.mbox
        self.mac = self.mbox.run("cat", "/sys/class/net/m0/address").stdout.strip()
        for interface in ("m0", "m1"):
            self.mbox.sysctl(f"net/ipv6/conf/{interface}/disable_ipv6", 0)
        for setting in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
            self.mbox.sysctl(f"net/{setting}", 1)
        for name in ("all", "m0", "m1"):
            self.mbox.sysctl(f"net/ipv4/conf/{name}/rp_filter", 0)
        for address, interface in (("192.168.8.1/24", "m0"), ("192.168.9.1/24", "m1"), ("fd99::1/64", "m1")):
            nodad = ("nodad",) if ":" in address else ()
            self.mbox.run("ip", "address", "add", address, "dev", interface, *nodad)
        for gateway in ("192.168.9.2", "fd99::2"):
            self.mbox.run("ip", "neigh", "replace", gateway, "lladdr", SERVER_MAC, "dev", "m1", "nud", "permanent")
            self.mbox.run("ip", "route", "add", "default", "via", gateway, "dev", "m1")
        self.left, self.right = RawPort(bench.client, "c0"), RawPort(bench.server, "s0")

    def passed(self, packets):
        """The serial numbers of the packets that the kernel forwards."""
        self.right.drain()
        for packet in packets:
            self.left.send(packet)
        last = frames.payload()
        self.left.send(self.ether() / frames.ip4(src=SOURCES[0], dst=DESTINATIONS[0], proto=LAST) / last)
        seen = self.right.receive_until(lambda frame: bytes(last) in frame)
        return {frames.serial(frame) for frame in seen if frames.is_ours(frame)}

    def ether(self):
        return Ether(src=frames.CLIENT_MAC, dst=self.mac)

    def close(self):
        self.left.close()
        self.right.close()


@pytest.fixture
def router(make_bench):
    for program in ("iptables-save", "nft"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    router = Router(make_bench())
    yield router
    router.close()


def some_packet(dice, router):
    six = dice.random() < 0.3
    sources, destinations = (SOURCES6, DESTINATIONS6) if six else (SOURCES, DESTINATIONS)
    addresses = {"src": dice.choice(sources), "dst": dice.choice(destinations)}
    dscp = dice.choice([0, 0, 46, 8]) << 2
    ip = frames.ip6(**addresses, tc=dscp) if six else frames.ip4(**addresses, tos=dscp)
    sport, dport = dice.choice(PORTS), dice.choice(PORTS)
    kind = dice.randrange(6)
    if kind < 3:
        options = [("MSS", dice.choice([536, 1460, 1461]))] if dice.random() < 0.5 else []
        flags = dice.choice(["S", "SA", "A", "FA", "R", "SF", "PA"])
        upper = TCP(sport=sport, dport=dport, flags=flags, options=options)
    elif kind == 3 or (kind == 5 and six):
        upper = UDP(sport=sport, dport=dport)
    elif kind == 4:
        upper = ICMPv6EchoRequest() if six else ICMP(type=dice.choice([0, 8, 3]), code=dice.choice([0, 4]))
    else:
        ip.proto = 47
        upper = b""
    size = dice.choice([16, 200, 1200])
    if six and kind < 3 and dice.random() < 0.2:
        ip = ip / IPv6ExtHdrFragment(id=7)
    return bytes(router.ether() / ip / upper / frames.payload(size))


def some_match(dice):
    """Options of iptables for one rule."""
    words = []

    def add(chance, *some):
        if dice.random() < chance:
            words.extend((["!"] if dice.random() < 0.2 else []) + list(some))

    add(0.3, "-s", dice.choice(["10.0.0.0/8", "10.1.0.0/16", "10.1.0.77", "192.0.2.0/24"]))
    add(0.2, "-d", dice.choice(["198.51.100.0/24", "198.51.100.7", "203.0.113.0/25"]))
    add(0.1, "-i", dice.choice(["m0", "m1"]))
    add(0.1, "-o", dice.choice(["m0", "m1"]))
    protocol = dice.choice([None, "tcp", "tcp", "udp", "icmp", "gre"])
    if protocol:
        words += ["-p", protocol]
    if protocol in ("tcp", "udp"):
        add(0.5, "--dport", dice.choice(["80", "1:443", "8000:", ":52"]))
        add(0.2, "--sport", dice.choice(["22", "53:8000"]))
        if dice.random() < 0.3:
            words += ["-m", "multiport"]
            add(1, dice.choice(["--dports", "--sports", "--ports"]), dice.choice(["22,80", "53,8000:8100,443"]))
    if protocol == "tcp":
        flags = dice.choice([("SYN,ACK", "SYN"), ("ALL", "ACK"), ("SYN,FIN", "SYN,FIN"), ("RST", "NONE")])
        add(0.4, "--tcp-flags", *flags)
        if dice.random() < 0.2:
            words += ["-m", "tcpmss"]
            add(1, "--mss", dice.choice(["1461:65535", "536"]))
    if protocol == "icmp":
        add(0.6, "--icmp-type", dice.choice(["8", "0"]))
    if dice.random() < 0.15:
        words += ["-m", "iprange"]
        add(1, "--src-range", "10.1.0.2-10.2.0.9")
    if dice.random() < 0.15:
        words += ["-m", "length"]
        add(1, "--length", "100:600")
    if dice.random() < 0.15:
        words += ["-m", "dscp"]
        add(1, "--dscp", dice.choice(["46", "8"]))
    return " ".join(words)


def some_iptables(dice):
    lines = ["*filter", f":FORWARD {dice.choice(['ACCEPT', 'DROP'])} [0:0]", ":web - [0:0]", ":deep - [0:0]"]
    lines.append(f"-A FORWARD -p {LAST} -j ACCEPT")
    targets = {"FORWARD": ["ACCEPT", "DROP", "web", "RETURN"], "web": ["ACCEPT", "DROP", "deep", "RETURN"]}
    for chain, count in (("FORWARD", 6), ("web", 4), ("deep", 3)):
        for _ in range(count):
            target = dice.choice(targets.get(chain, ["ACCEPT", "DROP", "RETURN"]))
            lines.append(f"-A {chain} {some_match(dice)} -j {target}")
    return "\n".join([*lines, "COMMIT", ""])


PAIRS = "198.51.100.7 . 80, 198.51.100.8 . 1-443, 203.0.113.0/24 . 8000-8100, 10.1.0.0/24 . 22"
PAIR_MATCHES = [
    "ip daddr . tcp dport @pairs",
    "ip daddr . udp dport @pairs",
    "ip saddr . tcp dport != @pairs",
    "ip6 daddr . tcp dport @pairs6",
    "ip6 daddr . udp sport != @pairs6",
]
PROTOCOL_MATCHES = ["meta nfproto != ipv4", "meta protocol != ip6", "meta nfproto != ipv6", "meta l4proto udp"]
NFT_MATCHES = [
    "ip saddr 10.0.0.0/8",
    "ip saddr @some",
    "ip saddr != 10.1.0.2-10.2.0.9",
    "ip daddr { 198.51.100.7, 203.0.113.0/25 }",
    "ip6 saddr 2001:db8:1::/48",
    "ip6 daddr != 2001:db8:3::8",
    "iifname \"m0\"",
    "oifname != { \"m0\", \"m9\" }",
    "meta nfproto ipv6",
    "meta l4proto { tcp, udp }",
    "meta l4proto tcp",
    "ip protocol gre",
    "tcp dport { 80, 443, 8000-8100 }",
    "tcp sport != 22",
    "udp dport >= 53",
    "th dport 1-443",
    "tcp flags & (syn|ack) == syn",
    "tcp flags syn",
    "tcp flags != fin|ack",
    "tcp option maxseg size > 1460",
    "icmp type { echo-request, 0 }",
    "icmpv6 type echo-request",
    "ip dscp ef",
    "ip6 dscp cs1",
    "ip length < 600",
    "ip saddr . tcp dport { 10.1.0.1 . 80, 10.1.0.77 . 443 }",
]


def some_nft(dice, pairs):
    """`pairs`: the randomness of the rules with addresses and ports, and of the one with a protocol."""

    def rule(targets):
        matches = dice.sample(NFT_MATCHES, dice.choice([0, 1, 1, 2]))
        return "    " + " ".join(matches + [dice.choice(targets)]) + "\n"

    verdicts = ["accept", "drop", "return"]
    web = "".join(rule(verdicts) for _ in range(3))
    vmap = "    ip daddr vmap { 198.51.100.7 : accept, 198.51.100.8 : jump web, 203.0.113.5 : drop }\n"
    rules = [rule([*verdicts, "counter accept", "jump web"]) for _ in range(6)]
    rules.insert(dice.randrange(7), vmap if dice.random() < 0.5 else "")
    for match in pairs.sample(PAIR_MATCHES, 2):
        rules.insert(pairs.randrange(len(rules)), f"    {match} {pairs.choice(verdicts)}\n")
    match = pairs.choice(PROTOCOL_MATCHES)
    rules.insert(pairs.randrange(len(rules)), f"    {match} {pairs.choice(verdicts)}\n")
    return (
        "table inet filter {\n"
        "  set some { type ipv4_addr; flags interval; elements = { 10.1.0.0/24, 192.0.2.5 } }\n"
        f"  set pairs {{ type ipv4_addr . inet_service; flags interval; elements = {{ {PAIRS} }} }}\n"
        "  set pairs6 { type ipv6_addr . inet_service; elements = { 2001:db8:2::7 . 443, 2001:db8:3::8 . 53 } }\n"
        f"  chain web {{\n{web}  }}\n"
        "  chain forward {\n"
        f"    type filter hook forward priority 0; policy {dice.choice(['accept', 'drop'])};\n"
        f"    meta l4proto {LAST} accept\n"
        f"{''.join(rules)}  }}\n}}\n"
    )


def contradictory(error):
    """nft itself refuses some combinations of matches (`conflicting protocols specified`)."""
    return "conflicting" in error or "cannot be used together" in error


def replayed(tmp_path, rules, packets):
    """The serial numbers of the packets that pass `mmb replay` with these rules."""
    policy, captured, out = tmp_path / "policy", tmp_path / "in.pcap", tmp_path / "out.pcap"
    ends = "interface add m0 null\ninterface add m1 null\ninterface add m9 null\nwire m0 m1\n"
    policy.write_text(ends + rules, encoding="utf-8")
    captured.write_bytes(captures.pcap([(captures.START, packet) for packet in packets]))
    mmb("replay", "-c", policy, captured, "-w", out, "--in", "m0")
    return {frames.serial(frame) for _, frame in captures.read(out)}


def compare(tmp_path, router, packets, format_, saved):
    imported = mmb("import", format_, "-", input=saved, check=False)
    lines = imported.stdout.splitlines()
    unequal = {lines[at + 1] for at, line in enumerate(lines) if line.startswith(("# not mapped", "# differs"))}
    assert unequal <= {FRAGMENTS} and imported.returncode == (3 if unequal else 0), imported.stdout
    kernel, ours = router.passed(packets), replayed(tmp_path, imported.stdout, packets)
    wrong = [packet.hex() for packet in packets if frames.serial(packet) in kernel ^ ours]
    assert not wrong, f"{saved}\n{imported.stdout}\n{len(wrong)} packets, the first: {wrong[0]}"
    return len(kernel)


def test_rules_of_iptables_decide_the_same(router, tmp_path):
    passed = total = 0
    for seed in range(25):
        dice = random.Random(seed)
        # IPv6 passes: the rules are those of IPv4 only.
        packets = [some_packet(dice, router) for _ in range(150)]
        router.mbox.run("iptables-restore", input=some_iptables(dice))
        saved = router.mbox.run("iptables-save", "-t", "filter").stdout
        passed += compare(tmp_path, router, packets, "iptables-save", saved)
        total += len(packets)
    assert 0.1 < passed / total < 0.9


def test_rules_of_nft_decide_the_same(router, tmp_path):
    passed = total = 0
    for seed in range(40):
        dice = random.Random(seed)
        packets = [some_packet(dice, router) for _ in range(150)]
        router.mbox.run("nft", "flush", "ruleset")
        loaded = router.mbox.run("nft", "-f", "-", input=some_nft(dice, random.Random(f"pairs {seed}")), check=False)
        if loaded.returncode != 0:
            assert contradictory(loaded.stderr), loaded.stderr
            continue
        saved = router.mbox.run("nft", "-j", "list", "ruleset").stdout
        passed += compare(tmp_path, router, packets, "nft", saved)
        total += len(packets)
    assert total > 15 * 150 and 0.1 < passed / total < 0.9


@pytest.mark.parametrize(
    ("policy", "rules"),
    [
        ("drop", "meta l4proto udp accept"),
        ("accept", "meta l4proto udp drop"),
        ("drop", "meta l4proto udp return; accept"),
        ("accept", "meta l4proto { icmp, udp } drop"),
    ],
)
def test_the_protocol_of_fragments_decides(router, tmp_path, policy, rules):
    """A rule on the protocol decides about all fragments of IPv4: they have no header, but the protocol."""
    later = frames.ip4(src=SOURCES[0], dst=DESTINATIONS[0], proto=17, frag=100) / frames.payload(200)
    first = frames.ip4(src=SOURCES[0], dst=DESTINATIONS[0], flags="MF") / UDP(sport=1, dport=2) / frames.payload(792)
    tcp = frames.ip4(src=SOURCES[0], dst=DESTINATIONS[0]) / TCP(sport=1, dport=2) / frames.payload()
    packets = [bytes(router.ether() / packet) for packet in (first, later, tcp)]
    chain = f"type filter hook forward priority 0; policy {policy};\nip protocol {LAST} accept\n{rules}\n"
    router.mbox.run("nft", "-f", "-", input=f"table inet filter {{ chain forward {{ {chain} }}\n}}\n")
    saved = router.mbox.run("nft", "-j", "list", "ruleset").stdout
    assert compare(tmp_path, router, packets, "nft", saved) == {"drop": 2, "accept": 1}[policy] - ("return" in rules)


TYPICAL = pathlib.Path(__file__).parents[3] / "crates/import/tests/data"
HOST = ("--outside", "eth0", "--local", "198.51.100.2")


NAMES = ["home-router.rules", "docker.rules", "ufw.rules", "home-router.json", "firewalld.json"]


@pytest.mark.parametrize("name", NAMES)
def test_typical_rulesets_become_configurations(make_bench, tmp_path, name):
    """Rulesets as people have them, read back from the kernel, are converted wholly to a valid configuration."""
    kernel, rules = make_bench().mbox, (TYPICAL / name).read_text(encoding="utf-8")
    if name.endswith(".rules"):
        kernel.run("iptables-restore", input=rules)
        format_, saved = "iptables-save", kernel.run("iptables-save").stdout
    else:
        kernel.run("nft", "-j", "-f", "-", input=rules)
        format_, saved = "nft", kernel.run("nft", "-j", "list", "ruleset").stdout
    imported = mmb("import", format_, *HOST, "-", input=saved, check=False)
    total = imported.stderr.splitlines()[-1].split()
    assert total[0] == total[2], imported.stderr
    config = tmp_path / "config"
    interfaces = ("lan", "wan", "eth0", "eth1", "docker0")
    ends = "".join(f"interface add {interface} null\n" for interface in interfaces)
    config.write_text(ends + imported.stdout, encoding="utf-8")
    assert mmb("check", config).stdout.endswith("ok\n")


def test_json(tmp_path):
    path = tmp_path / "set"
    path.write_text("@10.0.0.0/8\t192.0.2.1/32\t0 : 65535\t80 : 80\t0x06/0xFF\t0x0000/0x0000\n", encoding="utf-8")
    document = json.loads(mmb("import", "classbench", path, "--json").stdout)
    expected = "add ip-saddr 10.0.0.0/8 ip-daddr 192.0.2.1 ip-proto tcp tcp-dport 80 drop"
    assert document == {"rules": [expected], "remarks": []}
