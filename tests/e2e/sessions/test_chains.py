"""Service chains with real clients and servers: the paper's chains, live changes, load balancing,
translation, errors.
"""

import concurrent.futures
import contextlib
import json
import socket

import pytest

from lab import frames, traffic, wait
from lab.chainbench import VIRTUAL, VIRTUAL6, Echo
from lab.frames import ICMP, IP, TCP, UDP
from lab.natbench import INSIDE, OTHER, OUTSIDE, SERVER, SERVER6, Mirror, Speaker
from lab.netns import CommandFailed

DGRAM, STREAM = socket.SOCK_DGRAM, socket.SOCK_STREAM
POOL = f"nat pool add wan {OUTSIDE[0]}\n"
# The paper's Figure 2: RTP goes by a monitor, HTTP by a filter, all of it to a load balancer, the rest
# nowhere.
FIGURE_2 = (
    "nf add class split rtp: udp-dport 6970 web: tcp-dport 80\n"
    "nf add monitor count\n"
    "nf add filter acl deny ip-saddr 10.0.0.9 allow all\n"
    f"nf add balancer lb {SERVER} {OTHER} by round-robin\n"
    "chain add figure2 class [rtp: monitor, web: filter, else: drop] | balancer\n"
    f"add-stateful ip-daddr {VIRTUAL} chain figure2\n"
)
# Its evaluation chain (section V-E): NAT, statistics, flow statistics, a load balancer, and light ones beside
# them.
SEVEN = (
    POOL + "nf add n nat wan\n"
    "nf add stats count\n"
    "nf add flows monitor\n"
    f"nf add balancer lb {SERVER} {OTHER} by hash\n"
    "nf add clamp mss-clamp 1400\n"
    "nf add dscp mark dscp 10\n"
    "nf add guard acl deny tcp-dport 23 allow all\n"
    "chain add seven guard | stats | n | flows | balancer | clamp | dscp\n"
    f"add-stateful ip-daddr {VIRTUAL} chain seven\n"
)


def entries(bench, *words):
    return bench.connections(*words)["connections"]


def ask(bench, address, port, source=None, patience=wait.PATIENCE):
    """Connects to an `Echo` and sends one request; returns the server's address and the open connection."""
    connection = bench.hosts.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, STREAM)
    connection.settimeout(patience)
    if source:
        connection.bind((source, 0))
    connection.connect((address, port))
    return again(connection), connection


def again(connection):
    connection.sendall(b"?")
    answer = connection.recv(4096)
    if not answer:
        raise ConnectionResetError("the server's end is gone")
    return answer.decode().split()[0]


def echoes(bench, port, *addresses):
    made = {address: Echo(bench.servers, address, port) for address in addresses or (SERVER, OTHER)}
    for echo in made.values():
        bench.on_close(echo.close)
    return made


def web_server(bench, port=80, size=8 << 10):
    web = traffic.WebServer(bench.servers, port, size)
    bench.on_close(web.close)
    return web


def functions(bench):
    """`show functions`: by name."""
    return {one["name"]: one for one in bench.daemon.json("show", "functions")["functions"]}


def test_figure_2(make_chains, driver):
    """The paper's example chain: permitted sessions pass, and replies of balanced sessions come from the
    virtual address.
    """
    bench = make_chains(FIGURE_2, driver=driver)
    web = web_server(bench)
    assert traffic.fetch(bench.hosts, f"http://{VIRTUAL}/file") == web.content
    for _ in range(3):
        traffic.fetch(bench.hosts, f"http://{VIRTUAL}/file")
    for address in (SERVER, OTHER):
        mirror = Mirror(bench.servers, address, 6970)
        bench.on_close(mirror.close)
    for number in range(4):
        speaker = Speaker(bench.hosts, INSIDE[0], 6000 + number)
        bench.on_close(speaker.close)
        assert speaker.ask(VIRTUAL, 6970) == (INSIDE[0], 6000 + number)
    for port in (22, 443):
        with bench.hosts.socket(socket.AF_INET, STREAM) as refused:
            refused.settimeout(0.3)
            assert refused.connect_ex((VIRTUAL, port)) != 0
    with bench.hosts.socket(socket.AF_INET, STREAM) as filtered:
        filtered.settimeout(0.3)
        filtered.bind((INSIDE[8], 0))
        assert filtered.connect_ex((VIRTUAL, 80)) != 0
    drops = bench.daemon.drops()
    assert drops["acl"] >= 1 and drops["chain-class"] >= 2, drops
    backs = [one for one in entries(bench) if one["protocol"] == "udp"]
    assert {one["chain"] for one in backs} == {"figure2"} and len(backs) == 4
    stages = bench.daemon.json("show", "chains")
    assert "figure2" in json.dumps(stages)


def test_evaluation_chain(make_chains, driver):
    """Seven functions: 8 KiB objects by wrk and curl, and a bulk transfer, all translated and balanced."""
    bench = make_chains(SEVEN, driver=driver)
    web = web_server(bench)
    for _ in range(4):
        assert traffic.fetch(bench.hosts, f"http://{VIRTUAL}/file") == web.content
    shown = bench.hosts.run("wrk", "-t1", "-c8", "-d1s", f"http://{VIRTUAL}/file").stdout
    assert "Socket errors" not in shown and "Non-2xx" not in shown, shown
    log = wait.until(web.log_lines, "the web server's log")
    assert {line.split()[0] for line in log} == {OUTSIDE[0]}
    counted = functions(bench)
    assert all(counted[name]["packets"] > 100 for name in ("guard", "stats", "n", "flows", "balancer", "clamp", "dscp"))
    assert len({counted[name]["packets"] for name in ("stats", "n", "flows", "balancer")}) == 1
    with bench.hosts.socket(socket.AF_INET, STREAM) as telnet:
        telnet.settimeout(0.3)
        assert telnet.connect_ex((VIRTUAL, 23)) != 0
    picture = bench.daemon.command("show", "chains", "verbose").stdout
    for name in ("seven", "guard", "stats", "flows", "balancer", "clamp", "dscp"):
        assert name in picture


@pytest.mark.parametrize("workers", [1, 2])
def test_live_insertion_and_removal(make_chains, driver, workers):
    """Functions are added to and removed from a chain under load, at each position: no session breaks or
    opens anew.
    """
    bench = make_chains(
        POOL + "nf add n nat wan\nnf add stats count\nnf add more count\nnf add clamp mss-clamp 1400\n"
        "chain add web n\nadd-stateful ip-saddr 10.0.0.0/24 chain web\n",
        driver=driver,
        workers=workers,
    )
    web_server(bench)
    echoes(bench, 7000, SERVER)
    connections = [ask(bench, SERVER, 7000)[1] for _ in range(20)]
    before = {one["uid"] for one in entries(bench, "tcp-dport", "7000")}
    bodies = ["stats | n", "stats | n | more", "n | more", "clamp | stats | n | more", "n | stats", "n"]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        bulk = pool.submit(traffic.bulk_transfer, bench.hosts, bench.servers, SERVER, size=96 << 20, patience=60)
        load = pool.submit(bench.hosts.run, "wrk", "-t1", "-c8", "-d3s", f"http://{SERVER}/file")
        changes = 0
        while changes < 12 or not (bulk.done() and load.done()):
            bench.daemon.line(f"chain set web {bodies[changes % len(bodies)]}")
            assert [again(connection) for connection in connections] == [SERVER] * len(connections)
            changes += 1
        sent, received = bulk.result()
        shown = load.result().stdout
    assert sent == received
    assert "Socket errors" not in shown and "Non-2xx" not in shown, shown
    assert {one["uid"] for one in entries(bench, "tcp-dport", "7000")} == before
    for connection in connections:
        connection.close()


def test_counts_survive_what_is_added_beside_them(make_chains, tmp_path):
    """A function that stays in a chain keeps its scratchpads when their offsets change."""
    records = tmp_path / "records.json"
    bench = make_chains(
        f"nf add stats count json {records}\nnf add a monitor\nnf add b count\n"
        "chain add web stats\nadd-stateful udp-dport 7000 chain web\n"
    )
    mirror = Mirror(bench.servers, SERVER, 7000)
    bench.on_close(mirror.close)
    speaker = Speaker(bench.hosts, INSIDE[0], 5000)
    bench.on_close(speaker.close)
    for body in ("a | stats", "b | a | stats", "stats | b", "stats"):
        speaker.ask(SERVER, 7000)
        bench.daemon.line(f"chain set web {body}")
    speaker.ask(SERVER, 7000)
    bench.daemon.line("clear connections")
    (line,) = wait.until(lambda: records.exists() and records.read_text().splitlines(), "a record")
    record = json.loads(line)
    assert record["packets"] == [5, 5], record
    # Bytes of IP packets, as IPFIX counts them (RFC 5102, octetDeltaCount).
    assert record["bytes"][0] == 5 * (20 + 8 + 2), record


CHECKED = (
    f"nf add balancer lb {SERVER} {OTHER} by round-robin check tcp 7000 every 0.1\n"
    "nf add stats count\nchain add web stats | balancer\n"
    f"add-stateful ip-daddr {VIRTUAL} ip-proto tcp chain web\n"
)


def backends(bench):
    return functions(bench)["balancer"]["report"]


def state_of(bench, address):
    for key, value in dict(backends(bench)).items():
        if address in key:
            return value
    raise AssertionError(backends(bench))


def test_a_back_end_dies(make_chains, driver):
    """When a server fails, its sessions end and their clients are notified, other sessions continue, and new ones use healthy
    servers; it returns later.
    """
    bench = make_chains(CHECKED, driver=driver)
    servers = echoes(bench, 7000)
    wait.until(lambda: all("up" in state_of(bench, a) for a in (SERVER, OTHER)), "both back ends to be up")
    held = [ask(bench, VIRTUAL, 7000) for _ in range(10)]
    assert sorted(address for address, _ in held) == [SERVER] * 5 + [OTHER] * 5
    dead = servers.pop(OTHER)
    # The host stays, its service goes, and nothing tells the clients so: only mmb does.
    bench.servers.run("ip", "address", "del", f"{OTHER}/24", "dev", "s0")
    wait.until(lambda: "down" in state_of(bench, OTHER), "the back end to be found dead")
    for address, connection in held:
        if address == SERVER:
            assert again(connection) == SERVER
        else:
            with pytest.raises(OSError):
                again(connection)
    assert {ask(bench, VIRTUAL, 7000)[0] for _ in range(4)} == {SERVER}
    dead.close()
    bench.servers.run("ip", "address", "add", f"{OTHER}/24", "dev", "s0")
    echoes(bench, 7000, OTHER)
    wait.until(lambda: "up" in state_of(bench, OTHER), "the back end to come back")
    assert {ask(bench, VIRTUAL, 7000)[0] for _ in range(4)} == {SERVER, OTHER}
    assert bench.daemon.drops()["backend-down"] >= 5


def test_draining(make_chains):
    """A draining server gets no new sessions and keeps its open ones."""
    bench = make_chains(CHECKED)
    echoes(bench, 7000)
    wait.until(lambda: all("up" in state_of(bench, a) for a in (SERVER, OTHER)), "both back ends to be up")
    held = [ask(bench, VIRTUAL, 7000) for _ in range(4)]
    bench.daemon.line(f"nf set balancer drain {OTHER}")
    assert {ask(bench, VIRTUAL, 7000)[0] for _ in range(6)} == {SERVER}
    assert [again(connection) for _, connection in held] == [address for address, _ in held]
    bench.daemon.line(f"nf set balancer undrain {OTHER}")
    assert {ask(bench, VIRTUAL, 7000)[0] for _ in range(6)} == {SERVER, OTHER}
    with pytest.raises(CommandFailed):
        bench.daemon.line("nf set balancer drain 192.0.2.77")


@pytest.mark.parametrize("how", ["round-robin", "least-connections", "hash"])
def test_balancing(make_chains, how):
    """Each balancing method gives a session one server for its life, for IPv4 and IPv6, and uses several
    servers.
    """
    bench = make_chains(
        f"nf add balancer lb {SERVER} {OTHER} by {how}\nnf add six lb {SERVER6} by {how}\n"
        f"chain add web balancer\nchain add web6 six\nadd-stateful ip-daddr {VIRTUAL} chain web\n"
        f"add-stateful ip6-daddr {VIRTUAL6} chain web6\n",
        workers=2,
    )
    echoes(bench, 7000, SERVER, OTHER, SERVER6)
    held = [ask(bench, VIRTUAL, 7000, source=INSIDE[number % 9]) for number in range(36)]
    served = [address for address, _ in held]
    if how == "hash":
        by_source = {}
        for number, address in enumerate(served):
            by_source.setdefault(number % 9, set()).add(address)
        assert all(len(addresses) == 1 for addresses in by_source.values())
    else:
        assert abs(served.count(SERVER) - served.count(OTHER)) <= 2
    assert [again(connection) for _, connection in held] == served
    assert ask(bench, VIRTUAL6, 7000)[0] == SERVER6


def test_nat_in_a_chain(make_chains, driver):
    """Functions before `nat` see inside addresses, functions behind it outside addresses; ICMP errors are
    translated.
    """
    bench = make_chains(
        POOL + "nf add inside acl allow ip-saddr 10.0.0.1\n"
        "nf add n nat wan\nnf add outside acl deny ip-saddr 10.0.0.0/8 allow all\n"
        "chain add wan inside | n | outside\nadd-stateful ip-saddr 10.0.0.0/24 chain wan\n",
        driver=driver,
    )
    mirror = Mirror(bench.servers, SERVER, 7000)
    bench.on_close(mirror.close)
    speaker = Speaker(bench.hosts, INSIDE[0], 40001)
    bench.on_close(speaker.close)
    assert speaker.ask(SERVER, 7000) == (OUTSIDE[0], 40001)
    assert "1 received" in bench.hosts.run("ping", "-n", "-c1", "-W5", "-I", INSIDE[0], SERVER).stdout
    other = Speaker(bench.hosts, INSIDE[1])
    bench.on_close(other.close)
    other.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        other.ask(SERVER, 7000)
    # A port that nobody listens on: the server's ICMP error comes back to the one who asked.
    refused = Speaker(bench.hosts, INSIDE[0])
    bench.on_close(refused.close)
    refused.connect(SERVER, 7001)
    with pytest.raises(ConnectionRefusedError):
        refused.ask()
    shown = bench.hosts.run("traceroute", "-n", "-q1", "-w2", "-m4", "-s", INSIDE[0], SERVER).stdout
    assert "10.0.0.254" in shown and SERVER in shown, shown
    # Longer than the link's MTU: fragments, which have no ports.
    speaker.socket.sendto(b"?" * 4000, (SERVER, 7000))
    assert speaker.socket.recv(100).decode() == f"{OUTSIDE[0]} 40001"


def test_path_mtu_through_a_chain(make_chains):
    """A router's `fragmentation needed` reaches the sender of a translated and balanced packet."""
    bench = make_chains(SEVEN.replace("mss-clamp 1400", "mss-clamp 9000"), mtu=1400)
    sent, received = traffic.bulk_transfer(bench.hosts, bench.servers, SERVER, size=4 << 20)
    assert sent == received
    web = web_server(bench, size=1 << 20)
    assert traffic.fetch(bench.hosts, f"http://{VIRTUAL}/file") == web.content


def test_rules_that_go_take_their_chain_along(make_chains):
    """`del` of the rule ends its sessions; chains and functions in use cannot be deleted."""
    bench = make_chains("nf add stats count\nchain add web stats\nadd-stateful udp-dport 7000 chain web\n")
    mirror = Mirror(bench.servers, SERVER, 7000)
    bench.on_close(mirror.close)
    speaker = Speaker(bench.hosts, INSIDE[0])
    bench.on_close(speaker.close)
    speaker.ask(SERVER, 7000)
    state = bench.daemon.state()
    for line, hint in (("chain del web", "rule"), ("nf del stats", "web"), ("chain add web stats", "chain set"),
                       ("nf add stats count", "stats"), ("chain add other nobody", "nobody"), ("nf add x nosuch", "nosuch")):
        with pytest.raises(CommandFailed) as refused:
            bench.daemon.line(line)
        assert hint in str(refused.value), refused.value
        assert bench.daemon.state() == state
    assert len(entries(bench)) == 1
    bench.daemon.line("del 1")
    speaker.ask(SERVER, 7000)
    wait.until(lambda: entries(bench) == [], "the session to go")
    bench.daemon.line("chain del web")
    bench.daemon.line("nf del stats")
    assert functions(bench) == {}


@pytest.mark.parametrize(
    "lines, named",
    [
        (["nf add a split u: udp-dport 53 t: tcp-dport 80", "chain add c a [u: synproxy, t: drop]"], "synproxy"),
        (["nf add s synproxy", "nf add a acl allow ip-proto udp", "nf add u mss-clamp 1400", "chain add c missing"], "missing"),
        (["nat pool add wan 200.0.0.1", "nf add n nat wan", "nf add p police 1mbit per source", "chain add c n | p"], "p"),
        (["nf add n nat nowhere"], "nowhere"),
        (["nf add m mirror nowhere"], "nowhere"),
        (["nf add p police"], "police"),
        (["nf add l lb"], "lb"),
        (["nf add c count", "chain add c c | c"], "c"),
    ],
)
def test_what_cannot_work_is_refused(make_chains, lines, named):
    """The command is refused with the reason, and nothing changes."""
    bench = make_chains()
    for line in lines[:-1]:
        with contextlib.suppress(CommandFailed):
            bench.daemon.line(line)
    state = bench.daemon.state()
    with pytest.raises(CommandFailed) as refused:
        bench.daemon.line(lines[-1])
    assert named in str(refused.value) and "panicked" not in str(refused.value), refused.value
    assert bench.daemon.state() == state


def test_one_instance_in_two_chains(make_chains):
    """An instance in two chains has one offset in the scratchpad and counts for both."""
    bench = make_chains(
        "nf add stats count\nnf add a monitor\nnf add b monitor\n"
        "chain add one a | stats\nchain add two b | stats\n"
        "add-stateful udp-dport 7000 chain one\nadd-stateful udp-dport 7001 chain two\n"
    )
    for port in (7000, 7001):
        mirror = Mirror(bench.servers, SERVER, port)
        bench.on_close(mirror.close)
        speaker = Speaker(bench.hosts, INSIDE[0])
        bench.on_close(speaker.close)
        speaker.ask(SERVER, port)
    counted = functions(bench)
    assert [counted[name]["packets"] for name in ("stats", "a", "b")] == [4, 2, 2]
    assert {one["chain"] for one in entries(bench)} == {"one", "two"}


def test_second_flow_manager(make_chains, driver):
    """Behind `flow`, functions see the sessions of translated packets, with scratchpads of their own."""
    bench = make_chains(
        POOL + "nf add n nat wan\nnf add again flow\nnf add stats count\n"
        "chain add web n | again | stats\nadd-stateful ip-saddr 10.0.0.0/24 chain web\n",
        driver=driver,
    )
    web = web_server(bench, size=1 << 20)
    for _ in range(3):
        assert traffic.fetch(bench.hosts, f"http://{SERVER}/file") == web.content
    counted = functions(bench)
    assert counted["stats"]["packets"] == counted["n"]["packets"] > 100


def test_kept_over_a_restart(make_chains, make_daemon, tmp_path):
    """The output of `show config` starts an equivalent daemon."""
    bench = make_chains(SEVEN)
    config = bench.daemon.command("show", "config").stdout
    assert bench.daemon.stop() == 0
    other = make_daemon(bench.mbox, config)
    assert other.command("show", "config").stdout == config
    assert "seven" in config and "guard | stats | n | flows | balancer | clamp | dscp" in config
