"""Where bytes of packets and requests are copied, as far as this kernel lets it be counted."""

import contextlib
import json
import os
import pathlib
import re
import subprocess

from .. import lab  # noqa: F401 - finds the laboratory of the end-to-end tests
from ..results import NotInstalled

from lab.daemon import binary  # noqa: E402 isort: skip

TRACING = pathlib.Path("/sys/kernel/tracing")
# The kernel copies from a socket to a program; a program sends, over TCP, which copies once for each call.
RECEIVED, SENT, OF_TCP = "skb:skb_copy_datagram_iovec", "sock:sock_send_length", "ret > 0 && protocol == 6"
# A packet is copied into the memory of an AF_XDP socket (copy mode, which is all that veth has).
REDIRECTED = "xdp:xdp_redirect"
OF_REQUESTS = (
    f"`{RECEIVED}` counts each copy of a socket's bytes to a program of the box, `{SENT}` each call that sends bytes over TCP, which "
    "copies them once. sendfile(2) and splice(2), which copy nothing, are not used by any of them here."
)
OF_PACKETS = (
    f"`{REDIRECTED}` counts packets that the kernel copies into the memory of an AF_XDP socket (veth has no other mode); each packet "
    "that is sent is copied once, too. Copies into the memory of processes and out of it are counted by uprobes in mmb."
)
LIMITS = (
    "More cannot be counted by the kernel of these figures: it has no kprobes (`zgrep KPROBES /proc/config.gz`: `CONFIG_KPROBES is not set`), and refuses "
    "BPF programs of the type fentry and lists of functions for ftrace (`echo _copy_to_iter >/sys/kernel/tracing/set_ftrace_filter`: "
    "`Operation not permitted`). So copies inside of a program (nginx's and HAProxy's buffers, those of mmb's broker) are not in the figure."
)
# mmb's functions that copy packets into the memory of a process, or give a buffer with its packet to the next
# one, and copy out of it.
LINK = "mmb_nf::process::ProcessLink for mmb_fabric::link::Link>"
METHODS = ("send", "detach_buffer", "copy_back")
GROUP = "mmb_copies"


def offsets(program):
    """The places of the functions in a file, by name."""
    segments = [
        (int(virtual, 16), int(offset, 16), int(size, 16))
        for offset, virtual, size in re.findall(
            r"LOAD +0x(\w+) 0x(\w+) 0x\w+ 0x(\w+)", subprocess.run(["readelf", "-lW", program], capture_output=True, text=True, check=True).stdout
        )
    ]
    shown = subprocess.run(["nm", "--demangle", program], capture_output=True, text=True, check=True).stdout
    found = {}
    for address, symbol in re.findall(r"^(\w+) [tT] (.+)$", shown, re.MULTILINE):
        _, is_of_link, method = symbol.partition(f"{LINK}::")
        if is_of_link and method in METHODS:
            start = int(address, 16)
            found[method] = next(start - virtual + offset for virtual, offset, size in segments if virtual <= start < virtual + size)
    return found


def redirected(space):
    """The event of a packet for the AF_XDP sockets of a namespace's interfaces. Other programs of XDP may run beside it."""
    links = json.loads(space.run("ip", "-json", "-details", "link").stdout)
    programs = [link["xdp"]["prog"]["id"] for link in links if "prog" in link.get("xdp", {})]
    return REDIRECTED, " || ".join(f"prog_id == {number}" for number in programs)


def change_probes(line):
    # The file cannot be sought in, as Python does that appends to one.
    file = os.open(TRACING / "uprobe_events", os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, line.encode("ascii"))
    finally:
        os.close(file)


@contextlib.contextmanager
def of_buffers():
    """Probes in mmb's functions that copy; what `counted` takes: events, and where they are counted."""
    if not (TRACING / "uprobe_events").exists():
        subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=True)
    program = os.path.realpath(binary())
    try:
        places = offsets(program)
    except (OSError, subprocess.CalledProcessError):
        raise NotInstalled from None
    if len(places) != len(METHODS):
        raise RuntimeError(f"{program} has no symbols of {', '.join(METHODS)}: is it stripped?")
    for method, place in places.items():
        change_probes(f"p:{GROUP}/{method} {program}:{place:#x}\n")
    try:
        yield [([f"{GROUP}:{method}"], None) for method in METHODS]
    finally:
        for method in places:
            change_probes(f"-:{GROUP}/{method}\n")


def of_packets(sent, redirected, given, detached, back):
    """All copies: by the kernel on both sides, into the first of processes that share a buffer, and out of the last one."""
    return sent + redirected + (given - detached) + back
