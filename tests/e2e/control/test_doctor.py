"""`mmb doctor` on this machine, with faults: limits, capabilities, namespaces, what a killed daemon left."""

import json
import signal
import socket

import pytest

from lab.daemon import binary, mmb
from lab.netns import Namespace, run


def doctor(*words, wrapper=(), **options):
    """The exit status, and the checks by name; several checks of a name are a list."""
    done = run(*wrapper, binary(), "doctor", "--json", *words, check=False, **options)
    report = json.loads(done.stdout)
    found = {}
    for check in report["checks"]:
        found.setdefault(check["check"], []).append(check)
    assert report["failures"] == sum(check["status"] == "failure" for check in report["checks"])
    assert all(("advice" in check) == (check["status"] != "ok") for check in report["checks"])
    assert done.returncode == (1 if report["failures"] else 0), done.stderr
    return done.returncode, found


def one(found, name):
    (check,) = found[name]
    return check["status"], check["text"]


@pytest.fixture
def nobody_answers(tmp_path):
    return ("--socket", tmp_path / "none.sock", "--state-dir", tmp_path)


def test_a_line_for_each_check(nobody_answers, root):
    text = mmb("doctor", *nobody_answers, check=False).stdout
    for line in text.splitlines():
        status, name = line.split()[:2]
        assert status in ("ok", "warning", "failure") and name
    for name in ("huge-pages", "locked-memory", "capabilities", "af-xdp", "bpf", "tcx", "sockmap", "landlock",
                 "user-namespaces", "daemon", "state"):  # fmt: skip
        assert f"  {name} " in text


def test_limits(nobody_answers, root):
    status, found = doctor(*nobody_answers, wrapper=("prlimit", "--nofile=32", "--"))
    assert status == 1 and one(found, "descriptors")[0] == "failure"
    _, found = doctor(*nobody_answers, wrapper=("prlimit", "--nofile=512", "--"))
    assert one(found, "descriptors") == ("warning", "only 512 files may be open")
    small = ("prlimit", "--memlock=65536", "setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", "--")
    _, found = doctor(*nobody_answers, wrapper=small)
    assert one(found, "locked-memory")[0] == "failure" and "64 KiB" in one(found, "locked-memory")[1]


def test_capabilities(nobody_answers, root):
    without = ("setpriv", "--bounding-set=-net_admin,-net_raw", "--inh-caps=-all", "--")
    status, found = doctor(*nobody_answers, wrapper=without)
    assert status == 1
    assert "no CAP_NET_ADMIN, CAP_NET_RAW" in one(found, "capabilities")[1]
    assert one(found, "af-packet")[0] == "failure" and one(found, "af-xdp")[0] == "failure"


def test_interfaces_of_a_namespace(nobody_answers, root):
    space = Namespace("doctor")
    try:
        space.run("ip", "link", "add", "d0", "type", "veth", "peer", "name", "d1")
        space.run("ip", "link", "add", "name", "br", "type", "bridge")
        words = ("d0", "d1", "no-such", *nobody_answers)
        wrapper = space.command("env")
        status, found = doctor(*words, wrapper=wrapper)
        assert status == 1
        assert found["interface d0"][0]["status"] == "failure" and "ip link set d0 up" in found["interface d0"][0]["advice"]
        assert one(found, "interface no-such")[0] == "failure"
        for name in ("d0", "d1"):
            space.run("ip", "link", "set", name, "up")
        space.run("ip", "link", "set", "d1", "master", "br")
        _, found = doctor(*words, wrapper=wrapper)
        assert found["interface d0"][0]["status"] == "ok" and "driver veth" in found["interface d0"][0]["text"]
        assert any("a member of br" in check["text"] for check in found["interface d1"])
    finally:
        space.delete()


def test_a_daemon_and_what_it_leaves(make_bench, make_daemon):
    bench = make_bench()
    bench.mbox.run("ethtool", "-K", "m0", "gro", "on")
    daemon = make_daemon(bench.mbox, "interface add left af-packet m0\ninterface add gone af-packet no-such\n")
    words = ("--socket", daemon.socket, "--state-dir", daemon.state_directory)
    wrapper = bench.mbox.command("env")
    _, found = doctor(*words, wrapper=wrapper)
    assert one(found, "daemon")[0] == "ok" and f"process {daemon.process.pid}" in one(found, "daemon")[1]
    assert one(found, "interface gone")[0] == "failure"
    daemon.stop(signal.SIGKILL)
    _, found = doctor(*words, wrapper=wrapper)
    assert one(found, "daemon") == ("warning", f"{daemon.socket} was left by a daemon that was killed")


def test_a_socket_of_another_program(tmp_path):
    path = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        other.close()
    _, found = doctor("--socket", path, "--state-dir", tmp_path)
    assert one(found, "daemon")[0] == "warning"
    path.unlink()
    path.write_text("no socket", encoding="utf-8")
    _, found = doctor("--socket", path, "--state-dir", tmp_path)
    assert one(found, "daemon")[0] == "failure"
