"""Ports that are added after the start, under the daemon's filter of system calls."""

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

from lab import wait
from lab.netns import SERVER4
from lab.raw import RawPort

FRAME = Ether(dst="02:00:00:00:00:09") / IP(src="10.1.0.1", dst="10.1.0.2") / UDP(sport=1, dport=2) / bytes(64)


@pytest.fixture
def bench(make_bench):
    return make_bench()


def filtered(make_daemon, bench):
    """A daemon without ports, whose threads all have the filter (mode 2)."""
    daemon = make_daemon(bench.mbox)
    assert daemon.status()["Seccomp"] == "2"
    return daemon


@pytest.mark.parametrize("kinds", [("af-xdp", "af-packet"), ("af-packet", "af-xdp")])
def test_kernel_interfaces(bench, make_daemon, kinds):
    daemon = filtered(make_daemon, bench)
    for _ in range(2):
        daemon.line(f"interface add left {kinds[0]} m0")
        daemon.line(f"interface add right {kinds[1]} m1")
        daemon.line("wire left right")
        bench.client.run("ping", "-c", "1", "-W", "10", SERVER4)
        for line in ("wire del left", "interface del left", "interface del right"):
            daemon.line(line)


def test_taps(bench, make_daemon):
    daemon = filtered(make_daemon, bench)
    daemon.line("interface add a tap t0")
    daemon.line("interface add b tap t1")
    daemon.line("wire a b")
    for name in ("t0", "t1"):
        bench.mbox.run("ip", "link", "set", name, "up")
    sender, receiver = RawPort(bench.mbox, "t0"), RawPort(bench.mbox, "t1")
    bench.on_close(sender.close)
    bench.on_close(receiver.close)
    wait.until(lambda: daemon.interfaces()["b"]["link"], "a carrier")
    sender.send(FRAME)
    receiver.receive_until(bytes(FRAME).__eq__)


def test_memif(bench, make_daemon):
    """Two daemons, connected by a socket that both name at run time."""
    server, client = filtered(make_daemon, bench), filtered(make_daemon, bench)
    server.line("interface add peer memif m.sock")
    server.line("interface add left af-packet m0")
    server.line("wire left peer")
    socket = next(server.state_directory.rglob("m.sock"))
    link = next(path for path in client.state_directory.rglob("files") if path.is_dir()) / "m.sock"
    # The other daemon's directory of files.
    link.hardlink_to(socket)
    client.line("interface add peer memif m.sock")
    client.line("interface add right af-packet m1")
    client.line("wire right peer")
    wait.until(lambda: all(daemon.interfaces()["peer"]["link"] for daemon in (server, client)), "the link")
    bench.client.run("ping", "-c", "1", "-W", "10", SERVER4)


def test_captures(bench, make_daemon):
    daemon = filtered(make_daemon, bench)
    files = next(path for path in daemon.state_directory.rglob("files") if path.is_dir())
    wrpcap(str(files / "in.pcap"), [FRAME] * 10)
    daemon.line("interface add n null")
    daemon.line("interface add c pcap in.pcap out.pcap")
    daemon.line("wire c n")
    wait.until(lambda: daemon.interfaces()["c"]["rx_packets"] == 10, "the frames of the capture")
    assert (files / "out.pcap").exists()


def test_network_cards_need_what_a_start_decides(bench, make_daemon):
    """A PCI device needs huge pages, which only a start can reserve: the refusal says so, and nothing else changes."""
    daemon = filtered(make_daemon, bench)
    result = daemon.line("interface add nic pci 0000:ff:1f.7", check=False)
    assert result.returncode == 1 and "huge pages" in result.stderr, result.stderr
    assert daemon.running() and daemon.interfaces() == {}
