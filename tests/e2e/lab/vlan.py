"""Kernel end points inside a VLAN."""

import pathlib
import platform
import tempfile

from .netns import run

SOURCE = pathlib.Path(__file__).with_name("vlan.bpf.c")


def tag(namespace, interface, qinq=False):
    """Everything that `interface` sends leaves with VLAN 10 (QinQ: 10 around 20), and only frames so tagged are
    taken in. The interface keeps its MTU for the untagged frame."""
    with tempfile.TemporaryDirectory() as directory:
        program = pathlib.Path(directory, "vlan.o")
        run(
            "clang",
            "-O2",
            "-g",
            "-target",
            "bpf",
            f"-I/usr/include/{platform.machine()}-linux-gnu",
            *(["-DQINQ"] if qinq else []),
            "-c",
            SOURCE,
            "-o",
            program,
        )
        namespace.run("tc", "qdisc", "add", "dev", interface, "clsact")
        for direction, section in (("egress", "tc/out"), ("ingress", "tc/in")):
            namespace.run(
                "tc", "filter", "add", "dev", interface, direction, "bpf", "da", "obj", program, "sec", section
            )
