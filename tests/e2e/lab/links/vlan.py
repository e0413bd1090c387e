"""Kernel end points inside a VLAN."""

import pathlib
import platform
import tempfile

from ..netns import run

SOURCE = pathlib.Path(__file__).with_name("vlan.bpf.c")


def tag(namespace, interface, qinq=False):
    """Sends all frames of `interface` with VLAN 10 (QinQ: 10 in 20) and accepts only such frames. The MTU
    stays that of untagged frames.
    """
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
