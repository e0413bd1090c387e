#!/usr/bin/python3
"""How long a restart and a takeover interrupt traffic: handover.py [DRIVER [SESSIONS]] (root, after `make build`).

A stream of 1,000 datagrams a second passes NAT; those that are lost, divided by the rate, are the time in which traffic
was blocked. With SESSIONS, as many other sessions are open.
"""

import contextlib
import pathlib
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "e2e"))

from lab import wait  # noqa: E402
from lab.daemon import Daemon  # noqa: E402
from lab.natbench import INSIDE, OUTSIDE, SERVER, NatBench  # noqa: E402

RATE = 1000
CONFIG = f"nat pool add wan {OUTSIDE[0]}-{OUTSIDE[-1]}\nadd-stateful ip-saddr 10.0.0.0/24 nat wan accept\n"
OPEN = """
import socket
for number in range({count}):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("10.0.0.%d" % (number % 9 + 1), number // 9 + 1025))
        one.sendto(b"x", ("{server}", 9))
    if number % 100 == 0:
        __import__("time").sleep(0.002)
"""


def daemon(namespace, config, directory=None, **options):
    directory = directory or tempfile.mkdtemp(prefix="mmb-handover-")
    return Daemon(namespace, config, directory=directory, seed=None, **options).start()


SEND = """
import socket, struct, time
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind(("{source}", 1024))
one.connect(("{server}", 7))
begin = time.monotonic()
for number in range({count}):
    time.sleep(max(0, begin + number / {rate} - time.monotonic()))
    one.send(struct.pack("!I", number))
"""


def interruption(bench, interrupt):
    """Milliseconds without packets while `interrupt` runs."""
    count = 8 * RATE
    with bench.servers.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        receiver.bind((SERVER, 7))
        code = SEND.format(source=INSIDE[0], server=SERVER, count=count, rate=RATE)
        sender = bench.hosts.popen("python3", "-c", code)
        receiver.settimeout(wait.PATIENCE)
        arrived = [receiver.recv(4)]
        interrupt()
        sender.wait()
        receiver.settimeout(1)
        with contextlib.suppress(TimeoutError):
            while number := receiver.recv(4):
                arrived.append(number)
    assert len(set(arrived)) == len(arrived), "no datagram arrives twice"
    return (count - len(arrived)) * 1000 / RATE


def main():
    driver = sys.argv[1] if len(sys.argv) > 1 else "af-packet"
    sessions = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    options = ("--sessions", 1 << 20)
    bench = NatBench(driver, daemon, CONFIG, arguments=options)
    try:
        subprocess.run(bench.hosts.command("python3", "-c", OPEN.format(count=sessions, server=SERVER)), check=True)

        def restart():
            bench.daemon.stop()
            bench.daemon.start()

        def take_over():
            old = bench.daemon
            bench.daemon = daemon(bench.mbox, None, old.directory, arguments=(*options, "--takeover"))
            assert wait.for_end(old.process, "the old daemon") == 0

        for name, interrupt in (("restart", restart), ("takeover", take_over), ("takeover", take_over)):
            print(f"{driver}, {sessions} sessions, {name}: {interruption(bench, interrupt):.0f} ms", flush=True)
        print("\n".join(line for line in bench.daemon.log().splitlines() if " restored in " in line))
    finally:
        bench.daemon.close()
        bench.close()


if __name__ == "__main__":
    main()
