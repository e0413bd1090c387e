"""Routed mode: masquerade, forwards and virtual addresses among the addresses of the box."""

import socket
import time

import pytest

from lab import traffic, wait
from lab.daemon import mmb
from lab.netns import CommandFailed
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

STREAM = socket.SOCK_STREAM


MASQUERADE = "nat pool add home interface right\nadd-stateful out right ip-saddr 10.1.0.0/24 nat home\n"


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
