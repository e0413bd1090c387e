"""The life cycle of the daemon: changes under traffic, crashes and orderly stops, ports that come and go,
several workers.
"""

import concurrent.futures
import json
import os
import signal
import stat
import time

import pytest

from lab import frames, traffic, wait
from lab.frames import TCP, UDP, Ether
from lab.netns import SERVER4, SERVER6, SERVER_MAC, Bench
from lab.raw import RawPort
from lab.wire import wire_config

MEGABYTE = 1 << 20


def udp(port=2, **fields):
    return frames.ether() / frames.ip4(**fields) / UDP(sport=1, dport=port) / frames.payload()


def test_rules_added_and_deleted_under_traffic_lose_nothing(make_wire, driver):
    """Only the rule drops packets, and its counter is exact."""
    wire = make_wire(driver)
    wire.bench.know_neighbours()
    wire.right.close()
    kept = traffic.Datagrams(wire.client, wire.server, SERVER4, port=7000)
    kept6 = traffic.Datagrams(wire.client, wire.server, SERVER6, port=7001)
    changes = 0
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        stop = False

        def keep_changing():
            nonlocal changes
            while not stop:
                indexes = [wire.daemon.add(f"udp-dport {port} drop") for port in (8000, 8001)]
                wire.daemon.add("udp-dport 7000 mod ip-dscp 10")
                wire.daemon.command("del", indexes[0])
                wire.daemon.command("flush")
                changes += 1

        changing = pool.submit(keep_changing)
        try:
            while changes < 10 and not changing.done():
                kept.send(1024)
                kept6.send(1024)
        finally:
            stop = True
        changing.result()
    kept.settle()
    kept6.settle()
    drops = wire.daemon.drops()
    assert {reason: count for reason, count in drops.items() if count} == {}
    kept.close()
    kept6.close()


def test_a_drop_rule_takes_out_exactly_what_it_counts(make_wire, driver):
    """A rule is added and deleted under traffic: sent = arrived + counted by the rule."""
    wire = make_wire(driver)
    wire.bench.know_neighbours()
    packet = bytes(udp(8000))
    sent = arrived = dropped = 0
    for _ in range(5):
        index = None
        for burst in range(20):
            if burst == 5:
                index = wire.daemon.add("udp-dport 8000 drop")
            if burst == 15:
                dropped += wire.daemon.hits(index)
                wire.daemon.command("del", index)
            arrived += len(wire.cross(*[packet] * 64))
            sent += 64
    assert dropped == 5 * 10 * 64
    assert sent == arrived + dropped
    assert wire.daemon.drops()["rule"] == dropped


def test_a_new_rule_holds_when_the_command_returns(make_wire, driver):
    """A rule applies to the next packet after `add` returns, and no more after `del` returns."""
    wire = make_wire(driver)
    for _ in range(20):
        index = wire.daemon.add("ip-proto udp drop")
        assert not wire.passes(udp())
        wire.daemon.command("del", index)
        assert wire.passes(udp())


def test_tcp_survives_policy_changes(make_wire, driver):
    """A bulk transfer continues while whole policies are replaced."""
    wire = make_wire(driver)
    policies = []
    for number in range(2):
        path = wire.daemon.directory / f"policy{number}"
        path.write_text(
            wire_config(driver)
            + "add tcp-dport 5001 mod ip-dscp 10\n"
            + f"add udp-dport {number + 1} drop\n" * (number + 1),
            encoding="utf-8",
        )
        policies.append(path)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        transfer = pool.submit(traffic.bulk_transfer, wire.client, wire.server, SERVER4, size=64 * MEGABYTE)
        changes = 0
        while not transfer.done() or changes < 4:
            wire.daemon.command("apply", policies[changes % 2])
            changes += 1
        sent, received = transfer.result()
    assert sent == received


def test_killed_under_traffic_leaves_usable_interfaces(make_wire, driver):
    """After SIGKILL the interfaces work with the kernel alone, and a new daemon can take over."""
    wire = make_wire(driver)
    wire.bench.know_neighbours()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        stop = False

        def flood():
            packet = bytes(udp())
            while not stop:
                wire.left.send(packet)

        flooding = pool.submit(flood)
        try:
            wait.until(lambda: wire.right.receive_one(), "traffic to flow")
            assert wire.daemon.stop(signal.SIGKILL) == -signal.SIGKILL
        finally:
            stop = True
        flooding.result()
    mbox = wire.mbox
    mbox.run("ip", "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
    for interface in ("m0", "m1"):
        mbox.run("ip", "link", "set", interface, "master", "bridge")
    mbox.run("ip", "link", "set", "bridge", "up")
    assert "3 received" in wire.client.run("ping", "-n", "-c", "3", "-i", "0.02", "-W", "3", SERVER4).stdout
    sent, received = traffic.bulk_transfer(wire.client, wire.server, SERVER4, size=MEGABYTE)
    assert sent == received
    mbox.run("ip", "link", "delete", "bridge")
    wire.daemon.start()
    wire.settle()
    assert wire.passes(udp())


def interface_state(namespace, interface):
    """All settings of an interface that mmb may change."""
    link = namespace.run("ip", "-details", "-json", "link", "show", "dev", interface).stdout
    offloads = namespace.run("ethtool", "-k", interface).stdout
    (details,) = json.loads(link)
    for noise in ("ifindex", "link_index", "gso_max_size"):
        details.pop(noise, None)
    return details, offloads


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["sigterm", "sigint"])
def test_orderly_stop_leaves_interfaces_as_found(make_bench, make_daemon, driver, number):
    bench = make_bench()
    found = {name: interface_state(bench.mbox, name) for name in ("m0", "m1")}
    daemon = make_daemon(bench.mbox, wire_config(driver))
    assert bench.client.run("ping", "-n", "-c", "1", "-W", "3", SERVER4)
    assert daemon.stop(number) == 0
    assert {name: interface_state(bench.mbox, name) for name in ("m0", "m1")} == found
    assert not daemon.socket.exists()


def test_says_what_it_opened_and_where_it_listens(make_bench, make_daemon, driver):
    daemon = make_daemon(make_bench().mbox, wire_config(driver))
    # A thread of its own writes the log.
    for expected in ("left", "right", "m0", "m1", driver, str(daemon.socket)):
        wait.until(lambda: expected in daemon.log(), f"{expected} in the log")


def test_socket_is_for_owner_and_group_only(make_daemon, root):
    daemon = make_daemon()
    assert stat.S_IMODE(os.stat(daemon.socket).st_mode) == 0o660


def test_two_daemons_side_by_side(make_wire, driver):
    """Two daemons on one machine do not disturb each other."""
    first, second = make_wire(driver), make_wire(driver)
    first.daemon.add("ip-proto udp drop")
    assert not first.passes(udp())
    assert second.passes(udp())
    assert first.daemon.stop() == 0
    assert second.passes(udp())


def test_socket_in_use_is_refused(make_bench, make_daemon):
    daemon = make_daemon(make_bench().mbox)
    daemon.add("all drop")
    second = make_daemon(daemon.namespace, config=None, start=False, arguments=["--socket", daemon.socket])
    second.arguments = ["run", "--socket", daemon.socket]
    second.launch()
    assert wait.for_end(second.process, "the second daemon") != 0
    assert str(daemon.socket) in second.log() and "panic" not in second.log()
    assert len(daemon.rules()) == 1


def test_socket_of_a_dead_daemon_is_taken_over(make_bench, make_daemon):
    daemon = make_daemon(make_bench().mbox)
    daemon.stop(signal.SIGKILL)
    assert daemon.socket.exists()
    daemon.start()
    assert daemon.rules() == {}


def test_ports_come_and_go_at_run_time(make_bench, make_daemon, driver):
    bench = make_bench()
    daemon = make_daemon(bench.mbox)
    left, right = RawPort(bench.client, "c0"), RawPort(bench.server, "s0")
    for _ in range(3):
        for line in wire_config(driver).splitlines():
            daemon.line(line)
        last = frames.sentinel()
        left.send(last)
        right.receive_until(last.__eq__)
        assert set(daemon.interfaces()) == {"left", "right"}
        refused = daemon.command("interface", "del", "right", check=False)
        assert refused.returncode != 0 and "wire" in refused.stderr
        daemon.command("wire", "del", "left")
        daemon.command("interface", "del", "right")
        assert set(daemon.interfaces()) == {"left"}
        daemon.command("interface", "del", "left")
        assert daemon.interfaces() == {}
    left.close()
    right.close()


def test_a_port_that_cannot_be_opened_does_not_end_the_daemon(make_bench, make_daemon, driver):
    """One port of the configuration has no interface: the daemon reports it and runs the other port."""
    bench = make_bench()
    daemon = make_daemon(bench.mbox, f"interface add left {driver} m0\ninterface add gone {driver} nowhere0\n")
    interfaces = daemon.interfaces()
    assert interfaces["left"]["state"] == "up"
    assert interfaces["gone"]["state"] == "down" and "nowhere0" in interfaces["gone"]["reason"]
    assert "nowhere0" in daemon.log()
    bench.mbox.run("ip", "link", "set", "m1", "down")
    refused = daemon.line(f"interface add right {driver} m1", check=False)
    assert refused.returncode == 0 or "m1" in refused.stderr


def test_interface_that_vanishes_under_the_daemon(make_wire, driver):
    """The other end of the veth pair is deleted: the daemon continues and reports the state."""
    wire = make_wire(driver)
    wire.right.close()
    wire.server.run("ip", "link", "delete", "s0")
    for _ in range(1000):
        wire.left.send(bytes(udp()))
    assert wire.daemon.running()
    wire.daemon.command("wire", "del", "right")
    wire.daemon.command("interface", "del", "right")
    assert set(wire.daemon.interfaces()) == {"left"}


def test_two_workers(make_wire, driver):
    """Two workers share the flows: all packets arrive, counters add up, and TCP throughput shows no
    reordering.
    """
    wire = make_wire(driver, workers=2)
    wire.bench.know_neighbours()
    index = wire.daemon.add("udp-dport 7000 mod ip-dscp 10")
    datagrams = [traffic.Datagrams(wire.client, wire.server, address, port=7000) for address in (SERVER4, SERVER6)]
    for _ in range(4):
        for stream in datagrams:
            stream.send(1024)
    for stream in datagrams:
        stream.settle()
    assert wire.daemon.hits(index) == 2 * 4 * 1024
    wire.right.close()
    wire.left.close()
    sent, received = traffic.bulk_transfer(wire.client, wire.server, SERVER4, size=32 * MEGABYTE)
    assert sent == received


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("workers", [1, 2])
def test_idle_workers_sleep(make_wire, driver, workers, figure):
    """An idle daemon uses less than 2 % of a core. Only this test must wait for a fixed time."""
    wire = make_wire(driver, workers=workers)
    assert wire.passes(udp()) or workers > 1
    seconds = 4
    time.sleep(0.5)
    before = cpu_seconds(wire.daemon.process.pid)
    time.sleep(seconds)
    share = (cpu_seconds(wire.daemon.process.pid) - before) / seconds
    figure(f"idle CPU, {driver}, {workers} worker(s)", f"{share:.2%} of a core")
    assert share < 0.02 * workers


def test_first_packet_latency(make_wire, driver, figure):
    """Reported with a generous limit: the time includes the kernel's veth, Python and a shared core."""
    wire = make_wire(driver)
    for pause, count, bound in ((0.0, 200, 20_000), (0.01, 50, 20_000), (1.0, 3, 50_000)):
        taken = wire.one_way(udp(), pause, count)
        median = taken[len(taken) // 2]
        figure(f"one way, {driver}, after {pause * 1000:g} ms", f"median {median:.0f} µs, worst {taken[-1]:.0f} µs")
        assert median < bound


def test_tap_port(make_bench, make_daemon):
    """A tap port creates a kernel interface, wired to a veth: the middlebox's kernel communicates through
    mmb.
    """
    bench = make_bench()
    daemon = make_daemon(
        bench.mbox, "interface add left af-packet m0\ninterface add host tap mmbtap0\nwire left host\n"
    )
    bench.mbox.run("ip", "link", "set", "mmbtap0", "up")
    bench.mbox.run("ip", "address", "add", "10.77.0.3/24", "dev", "mmbtap0")
    assert "3 received" in bench.client.run("ping", "-n", "-c", "3", "-i", "0.05", "-W", "3", "10.77.0.3").stdout
    daemon.add("ip-proto icmp drop")
    assert (
        "0 received"
        in bench.client.run("ping", "-n", "-c", "2", "-i", "0.05", "-W", "1", "10.77.0.3", check=False).stdout
    )
    assert daemon.stop() == 0
    assert bench.mbox.run("ip", "link", "show", "mmbtap0", check=False).returncode != 0


def test_memif_between_two_daemons(make_bench, make_daemon, tmp_path):
    """client = left, memif ~ memif, right = server: two daemons connected by shared memory."""
    bench = make_bench()
    path = tmp_path / "memif.sock"
    make_daemon(bench.mbox, f"interface add left af-packet m0\ninterface add joint memif {path}\nwire left joint\n")
    make_daemon(bench.mbox, f"interface add right af-packet m1\ninterface add joint memif {path}\nwire right joint\n")
    left, right = RawPort(bench.client, "c0"), RawPort(bench.server, "s0")
    packet = bytes(frames.ether() / frames.ip4() / TCP() / frames.payload())
    wait.until(lambda: left.send(packet) or right.receive_one() == packet, "a packet to cross both daemons")
    left.close()
    right.close()


def test_pcap_and_null_ports(make_bench, make_daemon, tmp_path):
    """A capture file as a port: its frames are received, and sent frames are written."""
    from scapy.utils import rdpcap, wrpcap

    packets = [udp(port) for port in (1, 2, 3)]
    wrpcap(str(tmp_path / "in.pcap"), packets)
    wrpcap(str(tmp_path / "none.pcap"), [])
    daemon = make_daemon(
        make_bench().mbox,
        f"interface add sink pcap {tmp_path}/none.pcap {tmp_path}/out.pcap\ninterface add nowhere null\n"
        f"interface add source pcap {tmp_path}/in.pcap {tmp_path}/back.pcap\nwire source sink\nadd udp-dport 2 drop\n",
    )
    wait.until(lambda: daemon.interfaces()["sink"]["tx_packets"] >= 2, "the capture to pass")
    assert daemon.stop() == 0
    assert [bytes(packet) for packet in rdpcap(str(tmp_path / "out.pcap"))] == [bytes(packets[0]), bytes(packets[2])]


def test_bench_namespaces_are_gone_afterwards(root):
    bench = Bench()
    names = [namespace.name for namespace in (bench.client, bench.mbox, bench.server)]
    bench.close()
    assert not any(os.path.exists(f"/run/netns/{name}") for name in names)


def test_traffic_is_visible_to_scapy(make_wire, driver):
    """A full round trip, server answering: the kernel accepts what mmb rewrote."""
    wire = make_wire(driver)
    wire.bench.know_neighbours()
    wire.daemon.add("udp-dport 9 mod udp-dport 7000")
    stream = traffic.Datagrams(wire.client, wire.server, SERVER4, port=7000)
    packet = frames.ether(dst=SERVER_MAC) / frames.ip4() / UDP(sport=1, dport=9) / frames.Raw(bytes(48))
    wire.left.send(bytes(packet))
    stream.sent = 1
    stream.settle()
    (arrived,) = [frame for frame in iter(wire.right.receive_one, None) if Ether(frame).haslayer(UDP)]
    assert Ether(arrived)[UDP].dport == 7000 and frames.wrong_checksums(arrived) == []
    stream.close()
