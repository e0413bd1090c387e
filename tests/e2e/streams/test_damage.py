"""A link damages segments. Receivers drop them and get them again, as if there were no stream functions."""

import random
import socket
import threading

import pytest

from lab.links.impair import BadBench, Impairment
from lab.netns import SERVER4, SERVER6

PORT, PATIENCE = 7000, 60
WORD, NEW = b"evil word", b"good"
FUNCTIONS = {
    "alert": f'match "{WORD.decode()}" alert',
    "digest": "digest sha256 file /dev/null",
    "replace": f'match "{WORD.decode()}" replace {NEW.decode()}',
}


def transferred(bench, address, content):
    """What the server's program reads of content that the client's sends."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with bench.server.socket(family, socket.SOCK_STREAM) as listener, bench.client.socket(family, socket.SOCK_STREAM) as near:
        listener.bind((address, PORT))
        listener.listen()
        for one in (listener, near):
            one.settimeout(PATIENCE)
        near.connect((address, PORT))
        far, _ = listener.accept()

        def send():
            near.sendall(content)
            near.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        received = bytearray()
        with far:
            far.settimeout(PATIENCE)
            while part := far.recv(1 << 20):
                received += part
            sender.join(PATIENCE)
        return bytes(received)


@pytest.mark.parametrize("function, address", [("alert", SERVER4), ("digest", SERVER6), ("replace", SERVER4), ("replace", SERVER6)])
def test_damaged_segments_come_again(root, make_daemon, function, address):
    config = f"nf add m {FUNCTIONS[function]}\nchain add c m\nadd-stateful tcp-dport {PORT} chain c\n"
    rng = random.Random(5)
    content = b"".join(rng.randbytes(30_000) + WORD for _ in range(60))
    bench = BadBench(make_daemon, config, seed=6, before=Impairment(damage=10))
    try:
        received = transferred(bench, address, content)
        # A difference of megabytes would take minutes to print.
        assert hash(received) == hash(content.replace(WORD, NEW) if function == "replace" else content)
        assert bench.links[0].damaged > 5 and bench.daemon.drops()["stream-checksum"] > 0
    finally:
        bench.close()
