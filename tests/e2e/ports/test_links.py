"""Kernel interfaces that disappear under the daemon and come back, with rules and sessions in force."""

import socket

import pytest

from lab import wait
from lab.natbench import Mirror, Speaker
from lab.netns import CLIENT4, CLIENT_MAC, SERVER4

RULES = "add-stateful in left ip-proto udp accept\nadd ip-proto udp drop\n"


def interface(daemon, name):
    return daemon.interfaces()[name]


def until_state(daemon, name, state):
    def reached():
        entry = interface(daemon, name)
        return entry["state"] == state and entry

    return wait.until(reached, f"interface {name} to be {state}")


def remove_client_link(bench):
    """Deletes the link between client and middlebox, both ends at once."""
    bench.mbox.run("ip", "link", "delete", "m0")


def restore_client_link(bench):
    bench._veth((bench.client, "c0", CLIENT_MAC), (bench.mbox, "m0", None))
    bench.client.run("ip", "address", "add", f"{CLIENT4}/24", "dev", "c0")
    bench.know_neighbours()


@pytest.mark.parametrize("workers", [1, 2])
def test_interface_disappears_and_returns(make_wire, driver, workers):
    """The port of a deleted interface goes down and says why; its namesake is taken; rules, the wire and sessions are
    as before.
    """
    wire = make_wire(driver, RULES, workers=workers)
    bench, daemon = wire.bench, wire.daemon
    bench.know_neighbours()
    mirror = Mirror(bench.server, SERVER4, 5000)
    bench.on_close(mirror.close)
    speaker = Speaker(bench.client, CLIENT4, 4000)
    assert speaker.ask(SERVER4, 5000) == (CLIENT4, 4000)
    speaker.close()
    before = daemon.json("show", "connections")["connections"]
    assert len(before) == 1
    for _ in range(2):
        remove_client_link(bench)
        until_state(daemon, "left", "down")
        wait.until(lambda: "m0 has disappeared" in interface(daemon, "left").get("reason", ""), "the reason")
        assert interface(daemon, "right")["state"] == "up"
        restore_client_link(bench)
        entry = until_state(daemon, "left", "up")
        assert entry["wire"] == "right"
        wait.until(lambda: interface(daemon, "left")["link"], "a carrier")
        # The session of before goes on.
        speaker = Speaker(bench.client, CLIENT4, 4000)
        assert speaker.ask(SERVER4, 5000) == (CLIENT4, 4000)
        speaker.close()
        after = daemon.json("show", "connections")["connections"]
        assert [(one["uid"], one["worker"]) for one in after] == [(one["uid"], one["worker"]) for one in before]
        # And the rules: nothing else comes in from the right.
        stranger = bench.server.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listener = bench.client.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listener.bind((CLIENT4, 4001))
        dropped = daemon.drops().get("rule", 0)
        stranger.sendto(b"?", (CLIENT4, 4001))
        wait.until(lambda: daemon.drops().get("rule", 0) > dropped, "the drop")
        stranger.close()
        listener.close()
    for line in (
        "interface left: the kernel's interface m0 has disappeared; it is opened again",
        "interface left: opened on the kernel's interface m0",
    ):
        wait.until(lambda: daemon.log().count(line) == 2, f"two lines `{line}`")


def test_interface_that_comes_late(make_bench, make_daemon, driver):
    """An interface that was not there at the start is opened as soon as it is there and up."""
    bench = make_bench()
    daemon = make_daemon(bench.mbox, f"interface add late {driver} d0\n")
    assert interface(daemon, "late")["state"] == "down"
    bench.mbox.run("ip", "link", "add", "d0", "type", "veth", "peer", "d1")
    bench.mbox.run("ip", "link", "set", "d1", "up")
    bench.mbox.run("ip", "link", "set", "d0", "up")
    until_state(daemon, "late", "up")
