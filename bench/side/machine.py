"""What the figures were measured on and with."""

import contextlib
import pathlib
import platform
import subprocess

from .results import RESULTS, ROOT

CPUINFO = pathlib.Path("/proc/cpuinfo")
FILE = RESULTS / "machine.json"
PACKAGES = (
    "nftables", "iptables", "haproxy", "nginx-light", "iperf3", "wrk", "dpdk-dev", "openvswitch-switch-dpdk", "clang", "libbpf-dev",
)  # fmt: skip
OTHERS = {"vpp": "VPP", "click": "FastClick"}
ABSENT = "not installed"


def describe(before):
    """Facts by name. Peers that are not installed keep what is known of them from `before`: their results stay."""
    facts = {
        "processor": processor(),
        "cores": str(CPUINFO.read_text(encoding="utf-8").count("processor\t")),
        "kernel": platform.release(),
        "mmb": revision(),
    }
    for package in PACKAGES:
        facts[package] = run("dpkg-query", "-W", "-f", "${Version}", package) or before.get(package, ABSENT)
    for program, name in OTHERS.items():
        facts[name] = "found" if run("which", program) else before.get(name, ABSENT)
    return facts


def processor():
    """The processor's name, its family and model, and its widest vector instructions. Names of virtual machines are those
    of several generations, of which some have AVX-512."""
    first = CPUINFO.read_text(encoding="utf-8").split("\n\n")[0]
    fields = dict(line.split(":", 1) for line in first.splitlines() if ":" in line)
    known = {name.strip(): value.strip() for name, value in fields.items()}
    name, family, model = (known.get(field, "?") for field in ("model name", "cpu family", "model"))
    flags = known.get("flags", "").split()
    widest = "AVX-512" if "avx512bw" in flags else "AVX2" if "avx2" in flags else "no AVX2"
    return f"{name}, family {family}, model {model}, {widest}"


def revision():
    """The commit, marked if files other than results differ from it."""
    others = [".", *(f":(exclude){path}" for path in ("bench/results", "docs/performance.md"))]
    changed = run("git", "-C", ROOT, "status", "--porcelain", "--untracked-files=no", "--", *others)
    return run("git", "-C", ROOT, "describe", "--always") + ("-dirty" if changed else "")


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def processor_time(task):
    """CPU nanoseconds that a thread has used; `task`: its directory in /proc."""
    return int((task / "schedstat").read_text(encoding="ascii").split()[0])


def processor_time_of(pids, names=None):
    """CPU nanoseconds that the threads of processes have used: all of them, or those with these names."""
    total = 0
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
            # A thread may end meanwhile.
            with contextlib.suppress(OSError):
                if names is None or (task / "comm").read_text(encoding="utf-8").strip() in names:
                    total += processor_time(task)
    return total
