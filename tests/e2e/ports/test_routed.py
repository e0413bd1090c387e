"""Routed mode: Linux owns addresses and routes, mmb forwards, with real hosts on both sides."""

import re
import signal
import socket
import time

import pytest
from scapy.layers.dhcp import BOOTP
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from lab import frames, traffic, wait
from lab.daemon import mmb
from lab.natbench import Mirror, Speaker
from lab.netns import CLIENT_MAC, SERVER_MAC, CommandFailed
from lab.raw import RawPort
from lab.routebench import (
    BOX,
    BOX6,
    CLIENT,
    CLIENT6,
    FAR,
    FAR6,
    SERVER,
    SERVER6,
    answered,
    of_way,
    ping,
)

DGRAM, STREAM = socket.SOCK_DGRAM, socket.SOCK_STREAM
BOTH = [pytest.param(SERVER, id="ip4"), pytest.param(SERVER6, id="ip6")]


def speaker(bench, source, port=0, kind=DGRAM, namespace=None):
    made = Speaker(namespace or bench.client, source, port, kind)
    bench.on_close(made.close)
    return made


def mirror(bench, address, port, kind=DGRAM, namespace=None):
    made = Mirror(namespace or bench.servers, address, port, kind)
    bench.on_close(made.close)
    return made


def web(bench, namespace, port=80, **options):
    server = traffic.WebServer(namespace, port, **options)
    bench.on_close(server.close)
    return server


def url(address, port=80):
    return f"http://[{address}]:{port}/file" if ":" in address else f"http://{address}:{port}/file"


@pytest.mark.parametrize("workers", [1, 2])
def test_real_clients(make_router, driver, workers):
    """Pings lose one hop, and a web page and a bulk transfer arrive intact, on both kinds of ports and IP
    versions.
    """
    bench = make_router(driver=driver, workers=workers)
    site = web(bench, bench.servers)
    for server in (SERVER, SERVER6):
        assert answered(bench.client, server, count=5) == [63] * 5
        assert traffic.fetch(bench.client, url(server)) == site.content
    sent, received = traffic.bulk_transfer(bench.client, bench.servers, SERVER, size=16 << 20)
    assert sent == received
    sent, received = traffic.bulk_transfer(bench.servers, bench.client, CLIENT6, size=16 << 20)
    assert sent == received
    # Large frames count once.
    nodes = bench.daemon.nodes()
    assert nodes["ip4-rewrite"] > 200 and nodes["ip6-rewrite"] > 200


def test_the_box_itself(make_router, driver):
    """The box's services stay with its kernel: pings, web pages, and its own connections to both sides."""
    bench = make_router(driver=driver)
    here = web(bench, bench.mbox)
    there = web(bench, bench.servers)
    for address in (BOX, BOX6):
        # From the kernel itself: no router in between has counted a hop.
        assert answered(bench.client, address, count=3) == [64] * 3
        assert traffic.fetch(bench.client, url(address)) == here.content
    # By the address on the other side, too.
    assert traffic.fetch(bench.client, url(FAR)) == here.content
    for server in (SERVER, SERVER6):
        assert traffic.fetch(bench.mbox, url(server)) == there.content


def ssh_server(bench, tmp_path):
    """An ssh server of the box; runs a command there, as the client."""
    for key in ("host", "user"):
        bench.mbox.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / key)
    options = {
        "HostKey": tmp_path / "host",
        "AuthorizedKeysFile": tmp_path / "user.pub",
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
        "PermitRootLogin": "yes",
        "ListenAddress": BOX,
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    bench.mbox.run("mkdir", "-p", "/run/sshd")
    bench.mbox.popen("/usr/sbin/sshd", "-D", "-f", "/dev/null", *words, stderr=-3)
    wait.until(lambda: bench.mbox.listens(22, BOX), "sshd to listen")
    quiet = ["-F", "/dev/null", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    return lambda *command: bench.client.run("ssh", *quiet, "-i", tmp_path / "user", f"root@{BOX}", *command)


def test_ssh_to_the_box(make_router, tmp_path):
    """An ssh login to the router itself."""
    bench = make_router()
    assert FAR in ssh_server(bench, tmp_path)("ip", "-o", "-4", "address").stdout


def dhcp_server(bench, tmp_path):
    """A DHCP server at s0 for addresses from 10.2.0.50 on."""
    bench.servers.popen(
        *("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--interface=s0"),
        *("--bind-interfaces", "--no-ping", "--leasefile-ro", "--user=root", f"--pid-file={tmp_path / 'pid'}"),
        "--dhcp-range=10.2.0.50,10.2.0.60,255.255.255.0,1h",
        stderr=-3,
    )
    wait.until(lambda: ":67 " in bench.servers.run("ss", "-uln").stdout, "dnsmasq to listen")


def test_lease_for_the_box(make_router, tmp_path):
    """A DHCP client of the box gets a lease, although rules drop what comes in: the server sends its replies to
    the offered address, which the box does not have yet.
    """
    bench = make_router(config="add in right drop\n")
    dhcp_server(bench, tmp_path)
    for addressed in (True, False):
        if not addressed:
            bench.ip("-4 address flush dev m1")
        client = ("udhcpc", "-i", "m1", "-n", "-q", "-f", "-t", "3", "-T", "2", "-s", "/bin/true")
        done = bench.mbox.run(*client, check=False)
        assert re.search(r"lease of 10\.2\.0\.\d+ obtained", done.stdout + done.stderr), done.stderr


def test_lease_for_a_host_behind_the_box(make_router):
    """A DHCP reply for a host behind the router is forwarded: it has the host's Ethernet address inside."""
    bench = make_router()
    mac = bench.mbox.run("cat", "/sys/class/net/m1/address").stdout.strip()
    port = RawPort(bench.client, "c0")
    bench.on_close(port.close)
    sender = RawPort(bench.servers, "s0")
    bench.on_close(sender.close)
    assert answered(bench.client, SERVER) == [63]
    head = Ether(src=SERVER_MAC, dst=mac) / IP(src=SERVER, dst=CLIENT) / UDP(sport=67, dport=68)
    # To the router's own client, to a host's client, and no DHCP at all. The first one stays with the kernel.
    for payload in (boot_reply(mac), boot_reply(CLIENT_MAC), b"other"):
        sender.send(bytes(head / payload))
    seen = [Ether(frame) for frame in port.receive_until(lambda frame: frame.endswith(b"other"))]
    replies = [bytes(packet[UDP].payload) for packet in seen if UDP in packet and packet[UDP].dport == 68]
    assert replies == [bytes(boot_reply(CLIENT_MAC))]


def test_a_forged_lease_does_not_pass_rules(make_router):
    """A DHCP reply with the router's own chaddr to a host behind it goes no further, although the kernel would
    forward what it gets.
    """
    bench = make_router(config="add in right drop\n")
    bench.mbox.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
    mac = bench.mbox.run("cat", "/sys/class/net/m1/address").stdout.strip()
    port = RawPort(bench.client, "c0")
    bench.on_close(port.close)
    sender = RawPort(bench.servers, "s0")
    bench.on_close(sender.close)
    own = RawPort(bench.mbox, "m1")
    bench.on_close(own.close)
    bench.mbox.run("ip", "neigh", "replace", CLIENT, "lladdr", CLIENT_MAC, "dev", "m0")
    forged = Ether(src=SERVER_MAC, dst=mac) / IP(src=SERVER, dst=CLIENT) / UDP(sport=67, dport=68) / boot_reply(mac)
    kept = forged.copy()
    kept[IP].dst = "255.255.255.255"
    sender.send(forged)
    own.receive_until(lambda frame: frame == bytes(kept))
    # What the kernel sends to the host later has not overtaken the reply.
    assert bench.mbox.run("ping", "-c", "1", "-W", "5", CLIENT).returncode == 0
    arrived = port.receive_until(lambda frame: frame[23] == socket.IPPROTO_ICMP)
    assert not [frame for frame in arrived if frame[23] == socket.IPPROTO_UDP]


def boot_reply(mac):
    """A DHCP server's reply to the client with this Ethernet address, as far as a router reads it."""
    return BOOTP(op=2, chaddr=bytes.fromhex(mac.replace(":", "")) + bytes(10), yiaddr=CLIENT)


@pytest.mark.parametrize("server", BOTH)
def test_traceroute_shows_the_box(make_router, driver, server):
    bench = make_router(driver=driver)
    version, box = ("-6", BOX6) if ":" in server else ("-4", BOX)
    for kind in ([], ["-T", "-p", "80"]):
        shown = bench.client.run("traceroute", version, "-n", "-q", "1", "-m", "4", *kind, server).stdout
        hops = [line.split()[1] for line in shown.splitlines()[1:]]
        assert hops == [box, server], shown


def test_path_mtu(make_router, driver):
    """A link with an MTU of 1400: packets with DF and IPv6 packets cause an error, others are fragmented; TCP
    adapts.
    """
    bench = make_router(driver=driver)
    bench.ip("link set m1 mtu 1400")
    bench.servers.run("ip", "link", "set", "s0", "mtu", 1400)
    wait.until(lambda: "mtu = 1400" in ping(bench.client, SERVER, "-M", "do", "-s", "1472"), "fragmentation needed")
    bench.client.run("ip", "route", "flush", "cache")
    shown = bench.client.run("tracepath", "-n", SERVER).stdout
    assert re.search(r"Resume: pmtu 1400 ", shown), shown
    bench.client.run("ip", "route", "flush", "cache")
    assert answered(bench.client, SERVER, "-M", "dont", "-s", "1472") == [63]
    # Far more than a frame: fragments of the client's own are cut once more.
    assert answered(bench.client, SERVER, "-M", "dont", "-s", "9000") == [63]
    wait.until(lambda: "mtu=1400" in ping(bench.client, SERVER6, "-M", "do", "-s", "1452"), "packet too big")
    bench.client.run("ip", "-6", "route", "flush", "cache")
    assert "pmtu 1400" in bench.client.run("tracepath", "-6", "-n", SERVER6).stdout
    for server in (SERVER, SERVER6):
        bench.client.run("ip", "-6" if ":" in server else "-4", "route", "flush", "cache")
        sent, received = traffic.bulk_transfer(bench.client, bench.servers, server, size=4 << 20)
        assert sent == received


def test_first_packet_waits_for_its_neighbour(make_router, driver):
    """An unknown neighbour: the kernel resolves it, and the first packet is not lost."""
    bench = make_router(driver=driver)
    bench.add(bench.servers, "s0", "10.2.0.77/24", "fd02::77/64")
    for address in ("10.2.0.77", "fd02::77"):
        assert bench.daemon.json("show", "neighbors", address)["neighbors"] == []
        assert answered(bench.client, address) == [63]
        (found,) = bench.daemon.json("show", "neighbors", address)["neighbors"]
        assert found["mac"] == "02:00:00:00:00:02"


def test_neighbour_that_does_not_answer(make_router, driver):
    """An absent neighbour: the sender gets an ICMP error from the box's address on its side."""
    bench = make_router(driver=driver)
    for address, box, words in (
        ("10.2.0.99", BOX, "Destination Host Unreachable"),
        ("fd02::99", BOX6, "Destination unreachable: Address unreachable"),
    ):
        shown = ping(bench.client, address)
        assert re.search(rf"From {box} icmp_seq=1 {words}", shown), shown
    assert bench.daemon.drops()["neighbor-failed"] >= 2


def test_neighbour_gets_another_address(make_router, driver):
    """The server's Ethernet address changes under traffic: packets use the new address once the kernel has
    learned it.
    """
    bench = make_router(driver=driver)
    assert answered(bench.client, SERVER) == [63]
    bench.servers.run("ip", "link", "set", "s0", "address", "02:00:00:00:00:55")
    bench.servers.run("ip", "route", "replace", "default", "via", FAR)
    bench.ip(f"neigh replace {SERVER} lladdr 02:00:00:00:00:55 dev {bench.face(1)} nud reachable")
    wait.until(lambda: " 0% packet loss" in ping(bench.client, SERVER), "an answer by the new address")


def test_kinds_of_routes(make_router, driver):
    """The kernel's special routes and missing routes cause the ICMP errors that Linux sends."""
    bench = make_router(driver=driver)
    for number, kind in enumerate(("unreachable", "prohibit", "blackhole")):
        bench.ip(f"route add {kind} 10.20.{number}.0/24")
        bench.ip(f"-6 route add {kind} fd20:{number}::/32")
        bench.until_routed(f"10.20.{number}.1", kind)
        bench.until_routed(f"fd20:{number}::1", kind)
    said = {
        "10.20.0.1": "Destination Host Unreachable",
        "10.20.1.1": "Packet filtered",
        "10.66.0.1": "Destination Net Unreachable",
        "fd20:0::1": "Destination unreachable: No route",
        "fd20:1::1": "Destination unreachable: Administratively prohibited",
        "fd66::1": "Destination unreachable: No route",
    }
    for address, words in said.items():
        shown = ping(bench.client, address)
        assert f"From {BOX6 if ':' in address else BOX} icmp_seq=1 {words}" in shown, shown
    shown = ping(bench.client, "10.20.2.1", "-W", "1")
    assert "100% packet loss" in shown and "From" not in shown
    drops = bench.daemon.drops()
    for reason, least in (("blackhole", 1), ("no-route", 2), ("unreachable-route", 2), ("prohibited-route", 2)):
        assert drops[reason] >= least, drops


def test_routes_change_under_traffic(make_router, driver):
    """The route changes several times under traffic: no datagram is lost."""
    bench = make_router(driver=driver, ways=2)
    gateways = [of_way(way)[0][1] for way in (1, 2)]
    bench.ip(f"route add 10.9.0.0/16 via {gateways[0]}")
    bench.until_routed("10.9.0.1")
    for gateway in gateways:
        # Few packets wait for a neighbour that is not known yet.
        assert answered(bench.client, gateway)
    flow = traffic.Datagrams(bench.client, bench.servers, "10.9.0.1")
    try:
        flow.send(200)
        flow.settle()
        for turn in range(20):
            bench.ip(f"route replace 10.9.0.0/16 via {gateways[(turn + 1) % 2]}")
            flow.send(100)
        flow.settle()
    finally:
        flow.close()
    assert min(bench.received("s1"), bench.received("s2")) > 300


@pytest.mark.parametrize("version", [4, 6])
def test_ecmp_spreads_flows(make_router, driver, version):
    """Three next hops share the flows; each flow stays with one of them."""
    bench = make_router(driver=driver, ways=3)
    at = 0 if version == 4 else 1
    network, address = ("10.9.0.0/16", "10.9.1.1") if version == 4 else ("fd09::/64", "fd09::11")
    hops = " ".join(f"nexthop via {of_way(way)[at][1]}" for way in (1, 2, 3))
    bench.ip(f"-{version} route add {network} {hops}")
    bench.until_routed(address)
    assert len(bench.route_of(address)["next_hops"]) == 3
    for way in (1, 2, 3):
        assert answered(bench.client, of_way(way)[at][1])
    mirror(bench, address, 7000)
    source = CLIENT if version == 4 else CLIENT6

    def counted():
        return [bench.received(f"s{way}") for way in (1, 2, 3)]

    before = counted()
    for _ in range(240):
        made = Speaker(bench.client, source)
        made.ask(address, 7000)
        made.close()
    spread = [after - first for after, first in zip(counted(), before)]
    # Of 240 throws among three: 80, with a deviation of 7.3; five of them to either side.
    assert all(44 <= packets <= 140 for packets in spread) and sum(spread) >= 240, spread
    one = speaker(bench, source)
    before = counted()
    for _ in range(60):
        one.ask(address, 7000)
    assert sum(after - first >= 60 for after, first in zip(counted(), before)) == 1


def test_link_goes_down_and_comes_back(make_router, driver):
    """With one of two links down, the other carries all traffic; a route by a link that is down is not used.
    """
    bench = make_router(driver=driver, ways=2)
    hops = " ".join(f"nexthop via {of_way(way)[0][1]}" for way in (1, 2))
    bench.ip(f"route add 10.9.0.0/16 {hops}")
    bench.ip(f"route add 10.8.0.0/16 via {of_way(2)[0][1]}")
    bench.until_routed("10.8.0.1")
    mirror(bench, "10.9.1.1", 7000)
    assert Speaker(bench.client, CLIENT).ask("10.9.1.1", 7000)

    def living(address):
        return [hop for hop in bench.route_of(address)["next_hops"] if hop["state"] != "dead"]

    bench.ip(f"link set {bench.face(3)} down")
    wait.until(lambda: len(living("10.9.0.1")) == 1, "one next hop to be left")
    wait.until(lambda: bench.route_of("10.8.0.1") is None, "the route by the downed link to go")
    for _ in range(40):
        made = Speaker(bench.client, CLIENT)
        assert made.ask("10.9.1.1", 7000)
        made.close()
    bench.ip(f"link set {bench.face(3)} up")
    bench.ip(f"route replace 10.9.0.0/16 {hops}")
    wait.until(lambda: len(living("10.9.0.1")) == 2, "both next hops")
    wait.until(lambda: " 0% packet loss" in ping(bench.client, of_way(2)[0][1]), "the way to work again")


def test_masquerade_behind_the_box(make_router, driver):
    """NAT to the box's own outside address; the box's own connections continue beside it."""
    config = f"nat pool add wan {FAR} ports 20000-40000\nadd-stateful out right ip-saddr 10.1.0.0/24 nat wan\n"
    bench = make_router(config, driver=driver, ways=1)
    mirror(bench, SERVER, 7000, STREAM)
    mirror(bench, SERVER, 7000)
    address, port = speaker(bench, CLIENT, 30001, STREAM).connect(SERVER, 7000).ask()
    assert (address, port) == (FAR, 30001)
    assert speaker(bench, CLIENT, 30002).ask(SERVER, 7000) == (FAR, 30002)
    # By another interface nothing is translated.
    (_, other), _ = of_way(1)
    mirror(bench, other, 7000)
    assert speaker(bench, CLIENT, 30003).ask(other, 7000) == (CLIENT, 30003)
    # The box keeps its own services at that address, and its own connections.
    here = web(bench, bench.mbox)
    assert traffic.fetch(bench.servers, url(FAR)) == here.content
    assert answered(bench.servers, FAR) == [64]
    there = web(bench, bench.servers)
    assert traffic.fetch(bench.mbox, url(SERVER)) == there.content
    # An error about a translated packet reaches who sent it: the box is seen, and so is the server behind it.
    shown = bench.client.run("traceroute", "-n", "-q", "1", "-m", "4", SERVER).stdout
    assert [line.split()[1] for line in shown.splitlines()[1:]] == [BOX, SERVER], shown
    bench.ip("link set m1 mtu 1400")
    wait.until(lambda: "mtu = 1400" in ping(bench.client, SERVER, "-M", "do", "-s", "1472"), "fragmentation needed")


MASQUERADE = "nat pool add home interface right\nadd-stateful out right ip-saddr 10.1.0.0/24 nat home\n"


def pool(bench):
    return bench.daemon.json("show", "nat")["pools"][0]


def test_masquerade_follows_the_interface(make_router, driver, tmp_path):
    """A pool has the address of an interface. When it changes, so does the pool within a second: sessions of the old
    address end, and new ones have the new address.
    """
    bench = make_router(MASQUERADE, driver=driver)
    wait.until(lambda: pool(bench)["addresses"] == [FAR, FAR], "the pool's first address")
    mirror(bench, SERVER, 7000)
    mirror(bench, SERVER, 7000, STREAM)
    asked = speaker(bench, CLIENT, 30002)
    stream = speaker(bench, CLIENT, 30001, STREAM).connect(SERVER, 7000)
    assert (asked.ask(SERVER, 7000), stream.ask()) == ((FAR, 30002), (FAR, 30001))
    here = web(bench, bench.mbox)
    assert traffic.fetch(bench.servers, url(FAR)) == here.content
    other = "10.2.0.77"
    # With another prefix length, it is no secondary address of the first one.
    bench.ip(f"address add {other}/25 dev {bench.face(1)}")
    began = time.monotonic()
    bench.ip(f"address del {FAR}/24 dev {bench.face(1)}")
    wait.until(lambda: pool(bench)["addresses"] == [other, other], "the pool's next address")
    assert time.monotonic() - began < 1
    assert asked.ask(SERVER, 7000) == (other, 30002)
    assert FAR not in bench.daemon.command("show", "connections", "udp-sport", "30002").stdout
    assert speaker(bench, CLIENT, 30003, STREAM).connect(SERVER, 7000).ask() == (other, 30003)
    # A file with the same pool keeps the sessions.
    saved = tmp_path / "saved"
    saved.write_text(bench.daemon.command("show", "config").stdout, encoding="utf-8")
    assert "nat pool add home interface right\n" in saved.read_text(encoding="utf-8")
    bench.daemon.command("apply", saved)
    assert pool(bench)["addresses"] == [other, other]
    assert asked.ask(SERVER, 7000) == (other, 30002)
    # Without an address nothing leaves untranslated.
    bench.ip(f"address del {other}/25 dev {bench.face(1)}")
    wait.until(lambda: pool(bench)["addresses"] == ["", ""], "the pool without address")
    bench.ip(f"address add {FAR}/24 dev {bench.face(1)}")
    wait.until(lambda: pool(bench)["addresses"] == [FAR, FAR], "the first address again")
    # The kernel has forgotten the neighbour with the route: the first packet may be lost.
    wait.until(lambda: " 0% packet loss" in ping(bench.client, SERVER), "the route to work again")
    assert asked.ask(SERVER, 7000) == (FAR, 30002)
    log = bench.daemon.log()
    assert f"nat: pool home: right has {other}" in log and "nat: pool home: right has no address" in log


def test_masquerade_refusals(make_router):
    """What a pool cannot follow, and what an interface that a pool follows cannot lose."""
    bench = make_router(MASQUERADE, ways=1)

    def refused(line):
        with pytest.raises(CommandFailed) as failure:
            bench.daemon.line(line)
        return str(failure.value)

    wait.until(lambda: pool(bench)["addresses"] == [FAR, FAR], "the pool's address")
    assert "there is no interface `wan`" in refused("nat pool add p interface wan")
    assert "the pools p and home share addresses" in refused("nat pool add p 10.2.0.0/28")
    bench.daemon.line("route del right")
    wait.until(lambda: pool(bench)["addresses"] == ["", ""], "the pool without address")
    bench.daemon.line("flush")
    assert "NAT pool `home` follows interface `right`" in refused("interface del right")
    assert "until `route" not in bench.daemon.line("nat pool add q interface left").stdout
    assert "until `route right`" in bench.daemon.line("nat pool add r interface right").stdout
    # Ports of the machine's own connections.
    bench.mbox.sysctl("net/ipv4/ip_local_port_range", "30000 40000")
    shares = "shares the ports 35000-40000 with connections of the machine itself"
    assert shares in bench.daemon.line("nat pool add s interface way1 ports 35000-50000").stdout
    bench.daemon.line("nat pool del s")
    assert "shares" not in bench.daemon.line("nat pool add s interface way1 ports 1024-29999").stdout


def test_forward_to_the_inside(make_router, driver):
    """A forwarded port of the box's outside address: translated before routing, and translated back in
    replies.
    """
    bench = make_router(f"nat pool add wan {FAR}\nnat forward add tcp {FAR} 8080 to {CLIENT} 80\n", driver=driver)
    inside = web(bench, bench.client)
    assert traffic.fetch(bench.servers, url(FAR, 8080)) == inside.content
    assert {line.split()[0] for line in inside.log_lines()} == {SERVER}


VIRTUAL = """\
add-stateful ip-daddr {%s} tcp-dport 80 lb %s accept
add-stateful ip6-daddr %s tcp-dport 80 lb %s accept
add in right drop
""" % (f"{BOX},{FAR}", SERVER, BOX6, SERVER6)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_boxs_addresses_are_virtual_addresses(make_router, driver, workers):
    """`lb` at addresses of the box: what the rules name goes to the servers and comes back translated; all else is the
    kernel's as before, whatever rules drop.
    """
    bench = make_router(VIRTUAL, driver=driver, workers=workers)
    there, here = web(bench, bench.servers), web(bench, bench.mbox, port=8080)
    for address in (BOX, FAR, BOX6):
        assert traffic.fetch(bench.client, url(address)) == there.content
        assert answered(bench.client, address, count=3) == [64] * 3
        assert traffic.fetch(bench.client, url(address, 8080)) == here.content
    assert {line.split()[0] for line in there.log_lines()} == {CLIENT, CLIENT6}
    # `add in right drop` is not about the machine's own packets: it opens connections and answers others.
    assert traffic.fetch(bench.mbox, url(SERVER)) == there.content
    assert traffic.fetch(bench.servers, url(FAR, 8080)) == here.content
    # Large and fragmented packets for the kernel, and its errors.
    assert answered(bench.client, BOX, "-s", "4000") == [64]
    with pytest.raises(CommandFailed):
        bench.client.run("curl", "-sf", "-m", "5", url(BOX, 81))
    # The rules gone, the address is the kernel's alone.
    own = web(bench, bench.mbox)
    bench.daemon.line("flush")
    assert traffic.fetch(bench.client, url(BOX)) == own.content
    # A rule that comes takes new connections.
    bench.daemon.line(f"add-stateful ip-daddr {BOX} tcp-dport 80 map ip-daddr {SERVER}")
    assert traffic.fetch(bench.client, url(BOX)) == there.content


def test_ssh_beside_a_virtual_address(make_router, tmp_path):
    """The box's address is virtual on one port; a login to the box on another one goes on."""
    bench = make_router(f"add-stateful ip-daddr {BOX} tcp-dport 80 lb {SERVER}\nadd in left tcp-dport 22 drop\n")
    site = web(bench, bench.servers)
    login = ssh_server(bench, tmp_path)
    assert FAR in login("ip", "-o", "-4", "address").stdout
    assert traffic.fetch(bench.client, url(BOX)) == site.content


def test_a_rule_that_names_no_address_leaves_the_box_alone(make_router, driver):
    """Rules that redirect all of a port, or a whole subnet, do not name the box: its services stay with the kernel."""
    config = f"add-stateful in left tcp-dport 80 lb {SERVER}\nadd-stateful ip-daddr 10.1.0.0/24 tcp-dport 80 lb {SERVER}\n"
    bench = make_router(config, driver=driver)
    here, there = web(bench, bench.mbox), web(bench, bench.servers)
    assert traffic.fetch(bench.client, url(BOX)) == here.content
    assert traffic.fetch(bench.client, url("10.9.0.9")) == there.content


def test_a_virtual_address_beside_masquerade(make_router, driver):
    """A pool, a forward and a balanced port share the outside address of the box with the box itself."""
    config = (
        f"nat pool add home interface right ports 20000-40000\nadd-stateful out right ip-saddr 10.1.0.0/24 nat home\n"
        f"nat forward add tcp {FAR} 8080 to {CLIENT} 80\n"
        f"add-stateful in right ip-daddr {FAR} tcp-dport 80 lb {CLIENT}\n"
    )
    bench = make_router(config, driver=driver)
    wait.until(lambda: pool(bench)["addresses"] == [FAR, FAR], "the pool's address")
    inside, here = web(bench, bench.client), web(bench, bench.mbox, port=8081)
    mirror(bench, SERVER, 7000, STREAM)
    for port, site in ((80, inside), (8080, inside), (8081, here)):
        assert traffic.fetch(bench.servers, url(FAR, port)) == site.content, port
    assert speaker(bench, CLIENT, 30001, STREAM).connect(SERVER, 7000).ask() == (FAR, 30001)


HOME_ROUTER = f"""*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A PREROUTING -d {FAR} -i right -p tcp --dport 8080 -j DNAT --to-destination {CLIENT}:80
-A POSTROUTING -s 10.1.0.0/24 -o right -j MASQUERADE
COMMIT
*filter
:FORWARD DROP [0:0]
-A FORWARD -s 10.1.0.0/24 -i right -j DROP
-A FORWARD -m conntrack --ctstate INVALID -j DROP
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -i left -o right -j ACCEPT
-A FORWARD -d {CLIENT} -i right -o left -p tcp --dport 80 -m conntrack --ctstate NEW -j ACCEPT
COMMIT
"""


def test_imported_home_router(make_bench, make_router):
    """The rules of a home router, read back from a kernel and imported: inside hosts reach the outside under the
    router's address, and outside hosts reach a forwarded port and nothing else.
    """
    kernel = make_bench().mbox
    kernel.run("iptables-restore", input=HOME_ROUTER)
    imported = mmb("import", "iptables-save", "-", input=kernel.run("iptables-save").stdout, check=False)
    assert "7 of 7 rules converted, 1 with a difference" in imported.stderr, imported.stderr
    bench = make_router(imported.stdout)
    wait.until(lambda: pool(bench)["addresses"] == [FAR, FAR], "the pool's address")
    mirror(bench, SERVER, 7000)
    assert speaker(bench, CLIENT, 30002).ask(SERVER, 7000) == (FAR, 30002)
    inside, outside = web(bench, bench.client), web(bench, bench.servers)
    assert traffic.fetch(bench.client, url(SERVER)) == outside.content
    assert {line.split()[0] for line in outside.log_lines()} == {FAR}
    assert traffic.fetch(bench.servers, url(FAR, 8080)) == inside.content
    # Neither the inside address nor another port of it.
    assert "1 received" not in ping(bench.servers, CLIENT, "-W", "1")
    assert bench.servers.run("curl", "-s", "-m", "1", url(CLIENT, 8080), check=False).returncode == 28


def test_rules_see_in_and_out(make_router, driver):
    """`in` is the input port and `out` the port of the route; a reflexive rule permits replies."""
    bench = make_router(driver=driver, ways=1)
    (_, other), (_, other6) = of_way(1)
    for address in (SERVER, other, SERVER6, other6):
        assert answered(bench.client, address)
    bench.daemon.line("add out way1 drop")
    for address, passes in ((SERVER, True), (other, False), (SERVER6, True), (other6, False)):
        assert ("1 received" in ping(bench.client, address, "-W", "1")) == passes, address
    # The route changes, and with it what leaves there.
    bench.servers.run("ip", "address", "add", f"{SERVER}/32", "dev", "s1")
    bench.ip(f"route add {SERVER}/32 via {other}")
    bench.until_routed(SERVER, "unicast")
    assert "1 received" not in ping(bench.client, SERVER, "-W", "1")
    bench.ip(f"route del {SERVER}/32")
    bench.until_routed(SERVER, "neighbor")
    bench.daemon.line("flush")
    bench.daemon.line("add in right drop")
    bench.daemon.line("add-stateful in left out right accept")
    assert answered(bench.client, SERVER)
    assert "1 received" not in ping(bench.servers, CLIENT, "-W", "1")


def test_edits_come_before_the_route(make_router, driver):
    """A rule that changes the destination changes the route."""
    bench = make_router(driver=driver, ways=1)
    mirror(bench, of_way(1)[0][1], 7000)
    bench.daemon.line(f"add-stateful ip-daddr 10.77.0.1 map ip-daddr {of_way(1)[0][1]}")
    before = bench.received("s1")
    assert speaker(bench, CLIENT, 30001).ask("10.77.0.1", 7000) == (CLIENT, 30001)
    assert bench.received("s1") > before


def test_what_a_router_does_not_forward(make_router, driver):
    """Frames to other hosts, link broadcasts, bad headers and martians are dropped (RFC 1812, 4.2.2, 5.3.4,
    5.3.7).
    """
    bench = make_router(driver=driver)
    assert answered(bench.client, SERVER)
    left, right = RawPort(bench.client, "c0"), RawPort(bench.servers, "s0")
    bench.on_close(left.close)
    bench.on_close(right.close)
    box_mac = "02:00:00:00:02:00"

    def packet(mac=box_mac, source=CLIENT, destination=SERVER, **fields):
        ip = frames.IP(src=source, dst=destination, **fields)
        return frames.Ether(src="02:00:00:00:00:01", dst=mac) / ip / frames.UDP(sport=1, dport=9) / frames.payload()

    bad = [
        packet(mac="02:00:00:00:09:09"),
        packet(mac="ff:ff:ff:ff:ff:ff"),
        packet(mac="01:00:5e:00:00:01"),
        packet(source="127.0.0.1"),
        packet(source="0.1.2.3"),
        packet(source="224.0.0.1"),
        packet(source="255.255.255.255"),
        packet(destination="127.0.0.1"),
        packet(destination="10.2.0.255"),
        packet(chksum=0x1234),
        packet(version=5),
        packet(ihl=4),
    ]
    good = [packet(), packet(options=frames.IPOption(b"\x94\x04\x00\x00"))]
    right.drain()
    for sent in (*bad, *good):
        left.send(sent)
    came = []
    # Two, one after the other: what shares a vector with the first has come when the second has.
    for last in (packet(), packet()):
        number = frames.serial(bytes(last))
        left.send(last)
        came += right.receive_until(lambda frame: frames.is_ours(frame) and frames.serial(frame) == number)
    serials = {frames.serial(frame) for frame in came if frames.is_ours(frame)}
    assert serials == {frames.serial(bytes(sent)) for sent in good}


def test_killed_daemon_leaves_the_kernel_its_interfaces(make_router, driver):
    """After SIGKILL the kernel answers on the real interface, and a new daemon forwards again."""
    bench = make_router(driver=driver)
    assert answered(bench.client, SERVER)
    bench.daemon.stop(signal.SIGKILL)
    if driver == "af-xdp":
        assert answered(bench.client, BOX) == [64]
    bench.daemon.start()
    if driver != "af-xdp":
        # The twins went with the daemon, and their addresses and routes with them.
        bench.add(bench.mbox, "left", f"{BOX}/24")
        bench.add(bench.mbox, "right", f"{FAR}/24")
    bench.until_routed(FAR, "local")
    wait.until(lambda: " 0% packet loss" in ping(bench.client, SERVER), "traffic to cross again")


def test_interfaces_change_their_mode(make_router, driver):
    """`route del` and `route add` at run time; a wire and routing exclude each other with an error."""
    bench = make_router(driver=driver)
    assert answered(bench.client, SERVER)
    for line, words in (("wire left right", "route del"), ("route nothing", "nothing")):
        with pytest.raises(CommandFailed) as refused:
            bench.daemon.line(line)
        assert words in str(refused.value)
    assert "route left\nroute right\n" in bench.daemon.command("show", "config").stdout
    if driver == "af-xdp":
        bench.daemon.line("route del left")
        assert "1 received" not in ping(bench.client, SERVER, "-W", "1")
        bench.daemon.line("route left")
        wait.until(lambda: " 0% packet loss" in ping(bench.client, SERVER), "traffic to cross again")


def test_apply_keeps_traffic(make_router):
    """A file with other rules is applied under traffic: no datagram is lost, and routes stay."""
    bench = make_router()
    assert answered(bench.client, SERVER)
    flow = traffic.Datagrams(bench.client, bench.servers, SERVER)
    text = bench.daemon.config.read_text(encoding="utf-8")
    try:
        flow.send(100)
        for turn in range(10):
            bench.daemon.config.write_text(f"{text}add udp-dport {turn + 1} drop\n", encoding="utf-8")
            bench.daemon.command("apply", bench.daemon.config)
            flow.send(100)
        flow.settle()
    finally:
        flow.close()


def test_show_and_metrics(make_router):
    """The output of `show`: routes in the syntax of Linux, neighbours, counters by interface and reason."""
    bench = make_router()
    assert answered(bench.client, SERVER)
    ping(bench.client, "10.66.0.1")
    shown = bench.daemon.command("show", "fib").stdout
    for words in ("10.2.0.0/24", "fd02::/64", "local"):
        assert words in shown, shown
    inside = bench.daemon.json("show", "fib", "10.2.0.0/16")["routes"]
    assert {route["prefix"] for route in inside} >= {"10.2.0.0/24", "10.2.0.1/32", "10.2.0.255/32"}
    neighbours = bench.daemon.json("show", "neighbors")["neighbors"]
    assert {one["address"] for one in neighbours} >= {CLIENT, SERVER}
    left = bench.daemon.interfaces()["left"]
    assert left["routed"] and left["drops"]["no-route"] == 1
    status, body = bench.daemon.request("GET", "/metrics")
    assert status == 200
    text = body.decode()
    assert 'mmb_interface_drops_total{interface="left",reason="no-route"} 1' in text
    for name in ("mmb_router_resyncs_total", "mmb_router_lag_seconds", "mmb_router_routes"):
        assert name in text


def test_replay_has_no_routes(tmp_path, make_daemon):
    """A configuration with routing cannot be replayed; the error gives the reason."""
    from lab.daemon import mmb

    config = tmp_path / "routed.conf"
    config.write_text("interface add a null\ninterface add b null\nroute a b\n")
    done = mmb("replay", "-c", config, "/dev/null", "-w", tmp_path / "out.pcap", check=False)
    assert done.returncode != 0 and "route" in done.stderr
