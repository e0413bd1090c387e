"""Routed mode: Linux owns addresses and routes, mmb forwards, with real hosts on both sides."""

import re
import signal
import socket

import pytest
from scapy.layers.dhcp import BOOTP
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from lab import traffic, wait
from lab.daemon import mmb
from lab.netns import CLIENT_MAC, SERVER_MAC, CommandFailed
from lab.raw import RawPort
from lab.routebench import (
    BOX,
    BOX6,
    CLIENT,
    CLIENT6,
    FAR,
    SERVER,
    SERVER6,
    answered,
    mirror,
    of_way,
    ping,
    speaker,
    url,
    web,
)


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


def test_ssh_beside_a_virtual_address(make_router, tmp_path):
    """The box's address is virtual on one port; a login to the box on another one goes on."""
    bench = make_router(f"add-stateful ip-daddr {BOX} tcp-dport 80 lb {SERVER}\nadd in left tcp-dport 22 drop\n")
    site = web(bench, bench.servers)
    login = ssh_server(bench, tmp_path)
    assert FAR in login("ip", "-o", "-4", "address").stdout
    assert traffic.fetch(bench.client, url(BOX)) == site.content


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
