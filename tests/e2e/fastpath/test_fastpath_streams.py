"""Sessions of stream functions in the fast path."""

import socket

import pytest

from lab import traffic, wait
from lab.fastpath import hits, learnt, the_connection
from lab.netns import SERVER4, SERVER6


def test_a_stream_that_no_function_reads_any_more(fast_wire):
    """`sni` lets go of what does not begin with a ClientHello: the kernel forwards the rest."""
    chain = "nf add names sni errors pass deny a\nchain add tls names\n"
    wire = fast_wire(f"{chain}add-stateful in left tcp-dport 5001 chain tls\n")

    def has_forwarded():
        # A transfer may end before its flow is in the kernel.
        sent, received = traffic.bulk_transfer(wire.client, wire.server, SERVER4)
        assert sent == received
        return hits(wire) > 10_000

    wait.until(has_forwarded, "the kernel to send on what follows")
    every = wire.daemon.json("show", "connections", "tcp-dport", 5001)["connections"]
    assert {one["chain"] for one in every} == {"tls"}


LONGER = "a longer name of nginx/"
EDITED = f'nf add words match nginx/ replace "{LONGER}" reverse first 4096\nchain add web words\n'


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_downloads_whose_heads_are_edited(fast_wire, address):
    """The kernel forwards what is behind the head, with the numbers that both ends expect, also if packets are lost
    behind mmb in both directions.
    """
    wire = fast_wire(f"{EDITED}add-stateful in left tcp-dport 80 chain web\n")
    server = traffic.WebServer(wire.server, 80, size=24 << 20)
    url = f"http://[{address}]/file" if ":" in address else f"http://{address}/file"
    try:
        assert f"Server: {LONGER}" in wire.client.run("curl", "-s", "-D", "-", "-o", "/dev/null", url).stdout
        traffic.lossy(wire.client, 300)
        traffic.lossy(wire.server, 300)
        before = hits(wire)

        def has_forwarded():
            # A download may end before its flow is in the kernel.
            assert traffic.fetch(wire.client, url, patience=40) == server.content
            return hits(wire) > before + 5_000

        wait.until(has_forwarded, "downloads that the kernel forwards", patience=90)
    finally:
        server.close()
    assert sum(wire.daemon.drops().values()) == 0


def test_downloads_with_edited_heads_and_numbers_of_rules(fast_wire):
    """The functions leave behind the head. The numbers of the rule and those of the edits are both kept."""
    wire = fast_wire(f"{EDITED}add-stateful in left tcp-dport 80 shuffle tcp-seq-num shuffle tcp-ack-num chain web\n")
    server = traffic.WebServer(wire.server, 80, size=8 << 20)
    try:
        url = f"http://{SERVER4}/file"
        assert f"Server: {LONGER}" in wire.client.run("curl", "-s", "-D", "-", "-o", "/dev/null", url).stdout
        traffic.lossy(wire.client, 300)
        traffic.lossy(wire.server, 300)
        assert traffic.fetch(wire.client, url, patience=40) == server.content
    finally:
        server.close()
    assert sum(wire.daemon.drops().values()) == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_functions_that_leave_an_edited_connection(fast_wire, workers):
    """Rules and functions are removed: the kernel forwards the connection with offsets. Later functions of a new chain
    see it, and then the kernel again. Both ends always get what the other one has sent.
    """
    chain = 'nf add words match "evil word" replace "harmless words"\nchain add web words\n'
    wire = fast_wire(f"{chain}add-stateful in left tcp-dport 5001 chain web\n", workers=workers)
    with wire.server.entered():
        listener = socket.create_server((SERVER4, 5001))
    near = wire.client.socket(socket.AF_INET, socket.SOCK_STREAM)
    with listener, near:
        near.connect((SERVER4, 5001))
        far, _ = listener.accept()
        with far:
            for end in (near, far):
                end.settimeout(wait.PATIENCE)

            def offloaded(before):
                def more():
                    traffic.exchange(near, far, 64 << 10)
                    return hits(wire) > before + 100

                wait.until(more, "the kernel to take over")

            near.sendall(b"an evil word.")
            assert traffic.read(far, 18) == b"an harmless words."
            far.sendall(b"an evil word.")
            assert traffic.read(near, 18) == b"an harmless words."
            traffic.exchange(near, far)
            wire.daemon.command("del", 1)
            traffic.exchange(near, far)
            offloaded(hits(wire))
            (shown,) = wire.daemon.json("show", "connections", "verbose", "tcp-dport", 5001)["connections"]
            assert "offset +5 / offset +5" in str(shown["functions"]), shown
            wire.daemon.line("nf add volume payload-count")
            wire.daemon.line("chain add other volume")
            wire.daemon.line("add-stateful in left tcp-dport 5001 chain other")
            (index,) = wire.daemon.rules()
            traffic.exchange(near, far)
            wire.daemon.command("del", index)
            traffic.exchange(near, far)
            offloaded(hits(wire))
            near.shutdown(socket.SHUT_WR)
            assert far.recv(1) == b""
        assert near.recv(1) == b""
    wait.until(lambda: the_connection(wire, "tcp-dport", 5001)["state"] == "closed", "the connection to close")
    assert sum(wire.daemon.drops().values()) == 0


def test_functions_get_all_of_their_sessions_beside_the_fast_path(fast_wire, stream):
    chain = "nf add bytes payload-count\nchain add read bytes\n"
    wire = fast_wire(f"{chain}add-stateful in left tcp-dport 5001 chain read\nadd-stateful in left udp-dport accept\n")
    learnt(wire, stream(wire.client, wire.server, SERVER4))
    sent, received = traffic.bulk_transfer(wire.client, wire.server, SERVER4, size=16 << 20)
    assert sent == received
    functions = wire.daemon.json("show", "functions")["functions"]
    (count,) = (one["report"]["bytes forward"] for one in functions if one["name"] == "bytes")
    assert count == str(16 << 20)
