"""Named sets: elements that commands, files and clocks change, under packets, sessions and NAT."""

import concurrent.futures
import contextlib
import json
import socket

import pytest

from lab import captures, frames, traffic, wait
from lab.daemon import http_connection, mmb
from lab.frames import UDP
from lab.natbench import SERVER
from lab.netns import CLIENT4, SERVER4, SERVER6

STREAM = socket.SOCK_STREAM


@pytest.fixture
def daemon(wire):
    """The daemon of the shared wire; the test's sets are gone afterwards."""
    yield wire.daemon
    wire.daemon.command("flush")
    for entry in wire.daemon.json("show", "sets")["sets"]:
        wire.daemon.command("set", "del", entry["name"])


def udp(source="10.0.0.1", port=9, v6=False):
    ip = frames.ip6(src=source) if v6 else frames.ip4(src=source)
    return frames.ether() / ip / UDP(sport=1, dport=port) / frames.payload()


def elements(daemon, name):
    return {entry["element"]: entry for entry in daemon.json("show", "set", name)["elements"]}


def test_elements_decide_without_a_change_of_rules(wire, daemon):
    daemon.line("set add blocked address")
    daemon.line("set add nets prefix")
    daemon.line("set add web port")
    rules = [
        daemon.add("ip-saddr @blocked block"),
        daemon.add("ip6-saddr @blocked block"),
        daemon.add("ip-saddr @nets udp-dport != @web block"),
    ]
    assert wire.passes(udp())
    daemon.line("set blocked add 10.0.0.1 10.0.0.2 2001:db8::1 comment scanner")
    assert not wire.passes(udp()) and not wire.passes(udp("2001:db8::1", v6=True))
    assert wire.passes(udp("10.0.0.3")) and wire.passes(udp("2001:db8::2", v6=True))
    daemon.line("set blocked del 10.0.0.1")
    assert wire.passes(udp()) and not wire.passes(udp("10.0.0.2"))
    daemon.line("set nets add 10.0.0.0/24 10.0.0.0/8")
    assert not wire.passes(udp(port=80))
    daemon.line("set web add http 8000-8100")
    assert wire.passes(udp(port=80)) and wire.passes(udp(port=8050)) and not wire.passes(udp(port=8101))
    daemon.line("set nets del 10.0.0.0/8")
    assert not wire.passes(udp(port=81)) and wire.passes(udp("10.1.0.1", port=81))
    daemon.line("set nets flush")
    assert wire.passes(udp(port=81))
    assert list(daemon.rules()) == rules
    (entry,) = [entry for entry in daemon.json("show", "sets")["sets"] if entry["name"] == "blocked"]
    assert (entry["kind"], entry["elements"], entry["rules"]) == ("address", 2, rules[:2])
    assert entry["packets"] == sum(daemon.hits(index) for index in rules[:2]) == 3
    assert elements(daemon, "blocked")["10.0.0.2"]["comment"] == "scanner"
    metrics = daemon.request("GET", "/metrics")[1].decode()
    assert 'mmb_set_elements{set="blocked"} 2' in metrics


def test_addresses_with_ports(wire, daemon):
    """Both must be in one element; elements of both families, prefixes and ranges of ports."""
    daemon.line("set add services address-port timeout 1h")
    daemon.line("add in left ip-daddr,udp-dport @services accept")
    daemon.line("add in left ip6-daddr,udp-dport @services accept")
    daemon.line("add in left udp-dport drop")
    to = f"{SERVER4}:80"
    assert not wire.passes(udp(port=80))
    daemon.line(f"set services add {to} {SERVER4}:8000-8100 192.0.2.9:81 [{SERVER6}/120]:domain comment web")
    assert wire.passes(udp(port=80)) and wire.passes(udp(port=8100)) and wire.passes(udp("2001:db8::1", 53, True))
    # The port of another address, another port, the other family.
    assert not any(wire.passes(udp(port=port)) for port in (81, 8101, 53))
    assert not wire.passes(udp("2001:db8::1", 80, True))
    daemon.line(f"set services del {to}")
    assert not wire.passes(udp(port=80)) and wire.passes(udp(port=8000))
    daemon.line(f"set services add {to} timeout 1s")
    wait.until(lambda: not wire.passes(udp(port=80)), "the element is removed")
    assert set(elements(daemon, "services")) == {f"{SERVER4}:8000-8100", "192.0.2.9:81", f"[{SERVER6[:-1]}/120]:53"}
    for bad, words in (
        ("add ip-daddr @services drop", "compare an address and a port with it: ip-daddr,tcp-dport @services"),
        ("set services add 10.0.0.1", "kind address-port"),
        ("set services add 10.0.0.1:99999", "neither a port nor a range of ports"),
        ("add ip-daddr,ip-saddr @services drop", "cannot be the second field"),
    ):
        answer = daemon.line(bad, check=False)
        assert answer.returncode == 1 and words in answer.stderr, (bad, answer.stderr)


def test_an_explanation_tells_the_pair_that_is_not_in_the_set(daemon, tmp_path):
    daemon.line("set add services address-port")
    daemon.line(f"set services add {SERVER4}:80")
    daemon.line("add ip-daddr,udp-dport @services drop")
    config, packets = tmp_path / "rules", tmp_path / "in.pcap"
    config.write_text(daemon.json("show", "config")["config"])
    packets.write_bytes(captures.pcap([(captures.START, udp(port=81))]))
    told = mmb("explain", "-c", config, packets, "--why", "1").stdout
    assert "ip-daddr,udp-dport @services" in told and f"{SERVER4}:81" in told, told


def test_many_addresses_with_ports(make_daemon, tmp_path):
    """A file with 100,000 elements, and a thousand changes behind it."""
    daemon = make_daemon()
    lines = [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}:{1 + n % 60000}" for n in range(100_000)]
    (daemon.state_directory / "files" / "services").write_text("\n".join(lines))
    daemon.line("set add services address-port file services")
    daemon.add("ip-daddr,tcp-dport @services accept")
    connection = http_connection(daemon)
    for number in range(1000):
        connection.request("POST", "/v1/sets/services/elements", json.dumps({"elements": [f"192.0.2.1:{1 + number}"]}))
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
    connection.close()
    (entry,) = daemon.json("show", "sets")["sets"]
    assert (entry["kind"], entry["elements"]) == ("address-port", 101_000)


def test_elements_expire(wire, daemon):
    daemon.line("set add blocked address timeout 1h")
    daemon.add("ip-saddr @blocked block")
    daemon.line("set blocked add 10.0.0.2")
    daemon.line("set blocked add 10.0.0.1 timeout 1s")
    assert not wire.passes(udp())
    wait.until(lambda: wire.passes(udp()), "the element is removed")
    left = elements(daemon, "blocked")
    assert list(left) == ["10.0.0.2"] and 3590 < left["10.0.0.2"]["expires"] <= 3600
    assert not wire.passes(udp("10.0.0.2"))


def test_files_describe_sets(make_daemon, tmp_path):
    """What has no time belongs to the configuration; what has one stays when a file is applied."""
    daemon = make_daemon()
    (daemon.state_directory / "files" / "cn.csv").write_text("geoname_id,network\n1,1.0.1.0/24\n1,2001:250::/35\n")
    text = (
        'set add blocked address comment "from the log"\nset add cn prefix file cn.csv\n'
        "set blocked add 192.0.2.1\nset blocked add 192.0.2.7 comment \"port scan\"\nadd ip-saddr @blocked ip-daddr @cn block\n"
    )
    file = tmp_path / "policy"
    file.write_text(text)
    daemon.command("apply", file)
    assert daemon.json("show", "config")["config"] == text
    assert set(elements(daemon, "cn")) == {"1.0.1.0/24", "2001:250::/35"}
    daemon.line("set blocked add 192.0.2.99 timeout 1h")
    daemon.line("set blocked add 192.0.2.50")
    daemon.line("set blocked del 192.0.2.1")
    difference = daemon.command("diff", file).stdout
    assert "- set blocked add 192.0.2.50" in difference and "+ set blocked add 192.0.2.1\n" in difference
    assert "192.0.2.99" not in difference
    daemon.command("apply", file)
    assert set(elements(daemon, "blocked")) == {"192.0.2.1", "192.0.2.7", "192.0.2.99"}
    # A change leads back to the elements that were there before it.
    daemon.line("set blocked add 192.0.2.51")
    file.write_text("set add blocked address\n")
    daemon.command("apply", file)
    daemon.command("rollback")
    assert set(elements(daemon, "blocked")) == {"192.0.2.1", "192.0.2.7", "192.0.2.51", "192.0.2.99"}
    for bad, words in (
        ("add ip-saddr @none drop", "there is no set `none`"),
        ("add tcp-dport @cn drop", "of kind prefix"),
        ("add ip-saddr {@blocked,10.0.0.1} drop", "not an IPv4 address"),
        ("set blocked add 10.0.0.0/8", "kind address"),
        ("set del blocked", "rule 1 refers to the set"),
        ("set blocked del 10.9.9.9", "not in the set"),
        ("set add blocked port", "already"),
        ("set add x prefix file ../../etc/passwd", "outside"),
        ("set blocked add 10.0.0.1 timeout 0s", "invalid time"),
        ("set tcp-pikup on", "unknown setting"),
    ):
        before = daemon.state()
        answer = daemon.line(bad, check=False)
        assert answer.returncode == 1 and words in answer.stderr, (bad, answer.stderr)
        assert daemon.state() == before, bad


@pytest.fixture
def connected(make_wire):
    """A wire with a TCP connection: (wire, client's end, server's end) once `connect()` is called."""
    with contextlib.ExitStack() as stack:
        wire = make_wire("af-packet")

        def connect():
            listener = stack.enter_context(wire.server.socket(socket.AF_INET, STREAM))
            listener.bind((SERVER4, 5001))
            listener.listen()
            client = stack.enter_context(wire.client.socket(socket.AF_INET, STREAM))
            client.settimeout(wait.PATIENCE)
            client.connect((SERVER4, 5001))
            server = stack.enter_context(listener.accept()[0])
            server.settimeout(wait.PATIENCE)
            return client, server

        yield wire, connect


def stops_with(daemon, ends, name, element):
    """A connection stops while a set has an element, and goes on without it."""
    client, server = ends
    daemon.line(f"set {name} add {element}")
    dropped = daemon.drops()["rule"]
    client.sendall(b"b")
    wait.until(lambda: daemon.drops()["rule"] > dropped, "the segment to be dropped")
    assert not wait.readable([server], 0)
    daemon.line(f"set {name} del {element}")
    assert server.recv(1) == b"b", "TCP repeats the segment, which passes now"


def test_a_blocked_connection_stops_and_others_go_on(connected):
    """Open connections are judged anew when an element comes; those that are not concerned notice nothing."""
    wire, connect = connected
    daemon = wire.daemon
    for line in (
        "set add blocked address",
        "set add inside address",
        f"set inside add {CLIENT4}",
        "add-stateful ip-saddr @inside accept",
        "add ip-proto tcp drop",
        "add ip-saddr @blocked block",
    ):
        daemon.line(line)
    client, server = connect()
    for number in range(5):
        daemon.line(f"set blocked add 192.0.2.{number}")
        client.sendall(b"%d" % number)
        assert server.recv(1) == b"%d" % number
    daemon.line(f"set inside del {CLIENT4}")
    client.sendall(b"a")
    assert server.recv(1) == b"a", "the session stays open"
    stops_with(daemon, (client, server), "blocked", CLIENT4)


def test_an_address_with_a_port_blocks_this_port_alone(connected):
    wire, connect = connected
    daemon = wire.daemon
    for line in (
        "set add services address-port",
        "set add closed address-port",
        f"set services add {SERVER4}:5000-5001",
        "add-stateful ip-daddr,tcp-dport @services accept",
        "add ip-proto tcp drop",
        "add ip-daddr,tcp-dport @closed block",
    ):
        daemon.line(line)
    client, server = connect()
    daemon.line(f"set closed add {SERVER4}:5002 192.0.2.1:5001")
    client.sendall(b"a")
    assert server.recv(1) == b"a"
    (session,) = daemon.json("show", "connections", "ip-daddr,tcp-dport", "@services")["connections"]
    assert not daemon.json("show", "connections", "ip-daddr,tcp-dport", "@closed")["connections"], session
    stops_with(daemon, (client, server), "closed", f"{SERVER4}:5001")


def test_a_thousand_changes_do_not_cut_a_transfer(make_nat):
    """The elements of a set in a NAT rule change as fast as one client can, under a transfer through the rule."""
    nat = make_nat("nat pool add p 200.0.0.1\nset add inside prefix\nset inside add 0.0.0.0/0\n"
                   "add-stateful in left ip-saddr @inside nat p\n")
    daemon = nat.daemon
    connection = http_connection(daemon)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        transfer = pool.submit(traffic.bulk_transfer, nat.hosts, nat.servers, SERVER, size=32 << 20)
        changes = 0
        while not transfer.done() or changes < 1000:
            body = json.dumps({"elements": [f"10.{changes >> 8 & 255}.{changes & 255}.0/24"]})
            connection.request("POST", "/v1/sets/inside/elements", body)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()
            changes += 1
        sent, received = transfer.result()
    connection.close()
    assert sent == received
    assert len(elements(daemon, "inside")) == min(changes, 65536) + 1


def test_clients_that_change_a_set_at_the_same_time(daemon):
    """Their changes may be made together, and each has its own answer."""
    daemon.line("set add blocked address")
    daemon.add("ip-saddr @blocked block")

    def change(client):
        connection = http_connection(daemon)
        statuses = []
        for number in range(100):
            # Every tenth element is no address.
            element = "10.0.0.0/8" if number % 10 == 9 else f"10.0.{client}.{number}"
            connection.request("POST", "/v1/sets/blocked/elements", json.dumps({"elements": [element]}))
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
        connection.close()
        return statuses

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        statuses = list(pool.map(change, range(4)))
    assert statuses == [[400 if number % 10 == 9 else 200 for number in range(100)]] * 4
    assert len(elements(daemon, "blocked")) == 4 * 90
