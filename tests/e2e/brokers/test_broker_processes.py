"""Brokers whose functions are in a domain: the event loop is a process, and its end costs nobody else anything.

MMB_SOAK is the long mode: hundreds of faults, where the ordinary run has a few.
"""

import json
import os
import pathlib
import random
import re
import signal
import socket
import time

from brokers.servers import BOTH_PLACES, LOCAL
from lab import wait
from lab.daemon import binary, children, functions_of, process_of, report

FAULTS = 200 if os.environ.get("MMB_SOAK") else 6
# KiB that the daemon may have more behind all faults: its allocator keeps some.
KEPT = 4096
URL = f"http://{LOCAL}:8080"


def test_the_example_of_the_guide(site):
    """A proxy with checks and rewriting; settings and another chain reach the process, and leave it again."""
    for port in (9001, 9002, 9003):
        site.server(port)

    def servers(count, path="/page"):
        seen = [json.loads(site.curl(f"{URL}{path}")) for _ in range(count)]
        assert {one["path"] for one in seen} == {"/page"}
        return sorted(one["server"] for one in seen)

    daemon = site.start("domain add tenant private", "nf add near respond 200 near")
    for line in (
        f"nf add lb proxy {LOCAL}:9001 {LOCAL}:9002 check http /health every 5 process tenant",
        "nf add urls url-rewrite ^/old/(.*) /$1 process tenant",
        f"nf add other proxy {LOCAL}:9003 process tenant",
        "chain add site lb then urls",
        f"broker add web listen {LOCAL}:8080 chain site",
    ):
        daemon.line(line)
    assert servers(4, "/old/page") == [9001, 9001, 9002, 9002]
    number = process_of(daemon, "lb")
    assert number in functions_of(daemon) and process_of(daemon, "urls") == number
    assert report(daemon, "urls")["paths rewritten"] == "4"
    wait.until(lambda: "checks 1 passed" in report(daemon, "lb")[f"{LOCAL}:9001"], "a check")
    (entry,) = daemon.json("show", "domains")["domains"]
    assert {one["function"]: one.get("process") for one in entry["functions"]} == {"lb": number, "urls": number, "other": None}
    daemon.line(f"nf set lb drain {LOCAL}:9001")
    assert servers(3) == [9002] * 3
    os.kill(number, signal.SIGKILL)
    wait.until(lambda: report(daemon, "lb")["restarts"] == "1", "another process")
    assert servers(3) == [9002] * 3, "what was set outlives the process"
    assert report(daemon, "lb")["last failure"] == "has ended (signal 9)"
    daemon.line("chain set site other")
    assert servers(1) == [9003]
    assert report(daemon, "lb")["process"].startswith("none")
    # Out of the process and into it again: new connections meet the new place, in the same queue.
    daemon.line("chain set site near")
    assert site.curl(URL) == "near"
    daemon.line("chain set site other")
    assert servers(1) == [9003]
    assert site.counters()["requests"] == 1
    daemon.line("broker del web")
    assert report(daemon, "other")["process"].startswith("none")
    assert daemon.stop() == 0


def state_of(daemon, function):
    """What `show domains` knows of the process of a function, without asking it."""
    listed = [one for domain in daemon.json("show", "domains")["domains"] for one in domain["functions"]]
    return next(one for one in listed if one["function"] == function)


def has_stopped(process):
    """Whether a process runs no instruction any more."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] in "tTZX"
    except OSError:
        return True


def answer_to_a_new_client():
    """Returns once a new client has its answer. One whose connection a dead process had asks again."""
    while True:
        try:
            with socket.create_connection((LOCAL, 8080), timeout=wait.PATIENCE) as client:
                client.sendall(b"GET /file HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                if client.recv(12) == b"HTTP/1.1 200":
                    return
        except ConnectionResetError:
            pass


def leftovers(daemon):
    """Descriptors, threads and processes of a daemon."""
    descriptors, threads = (len(list((daemon.process_directory() / name).iterdir())) for name in ("fd", "task"))
    return descriptors, threads, len(functions_of(daemon)), len(children(daemon.process.pid))


def test_faults_under_load(site):
    """kill -9 and SIGSTOP at random moments: nobody is refused, the broker is back, and the others lose no request."""
    site.web(9001, size=1000)
    daemon = site.start(
        "domain add tenant private",
        "domain add second private",
        f"nf add lb proxy {LOCAL}:9001 process tenant",
        f"nf add neighbour proxy {LOCAL}:9001 process second",
        f"nf add local proxy {LOCAL}:9001",
        "chain add site lb",
        "chain add apart neighbour",
        "chain add here local",
        f"broker add web listen {LOCAL}:8080 chain site",
        f"broker add beside listen {LOCAL}:8081 chain apart",
        f"broker add inside listen {LOCAL}:8082 chain here",
    )
    load = {
        port: site.space.popen("wrk", "-t", 1, "-c", 4, "-d", "1h", f"http://{LOCAL}:{port}/file", stdout=-1, stderr=-1, text=True)
        for port in (8080, 8081, 8082)
    }
    chance, times, before = random.Random(1), {signal.SIGKILL: [], signal.SIGSTOP: []}, None
    for number in range(FAULTS):
        with site.space.entered():
            answer_to_a_new_client()
            if number % 7 == 6:
                # More ends in a row, each within a second, are answered with pauses.
                until = time.monotonic() + 1.1
                while time.monotonic() < until:
                    answer_to_a_new_client()
            wait.until(lambda: state_of(daemon, "lb").get("process"), "a process")
            if number == FAULTS // 3:
                before = (*leftovers(daemon), daemon.memory())
            known, fault = state_of(daemon, "lb"), chance.choice([signal.SIGKILL, signal.SIGSTOP])
            moment = time.monotonic() + chance.random() / 100
            while time.monotonic() < moment:
                answer_to_a_new_client()
            begin = time.monotonic()
            os.kill(known["process"], fault)
            while not has_stopped(known["process"]):
                pass
            answer_to_a_new_client()
            times[fault].append(1000 * (time.monotonic() - begin))
        wait.until(lambda known=known: state_of(daemon, "lb")["restarts"] > known["restarts"], "another process")
    for fault, all_of_it in times.items():
        ordered = sorted(all_of_it) or [0]
        print(f"{fault.name}: {len(all_of_it)} times; first answer after {ordered[len(ordered) // 2]:.1f} ms (median), {ordered[-1]:.1f} ms at most")
    shown = {}
    for port, one in load.items():
        one.send_signal(signal.SIGINT)
        shown[port] = one.communicate(timeout=wait.PATIENCE)[0]
        assert "Requests/sec" in shown[port], shown[port]
    for port in (8081, 8082):
        assert "Non-2xx" not in shown[port] and "Socket errors" not in shown[port], shown[port]
    assert state_of(daemon, "neighbour")["restarts"] == 0
    wait.until(lambda: all(now <= then for now, then in zip(leftovers(daemon), before)), f"as few as {before} descriptors, threads and processes")
    assert daemon.memory() <= before[-1] + KEPT, (daemon.memory(), before)
    print(f"{leftovers(daemon)} descriptors, threads, processes; {daemon.memory()} KiB, {before[-1]} KiB before")
    assert daemon.stop() == 0


def test_logs_and_files(site, tmp_path):
    """Lines of functions come out in the daemon's log and files, and files that functions read get into the process."""
    site.server(9001)
    access, text, patterns = tmp_path / "access.log", tmp_path / "robots.txt", tmp_path / "patterns"
    text.write_text("User-agent: *\n", encoding="utf-8")
    patterns.write_text("evil\n", encoding="utf-8")
    daemon = site.start(
        "domain add tenant private",
        f"nf add log http-log file {access} process tenant",
        "nf add all http-log json process tenant",
        f"nf add ids match file {patterns} alert process tenant",
        "nf add sums digest crc32c process tenant",
        f"nf add robots respond 200 file {text} path /robots.txt process tenant",
        f"nf add lb proxy {LOCAL}:9001 process tenant",
        "chain add site log then all then ids then sums then robots then lb",
        f"broker add web listen {LOCAL}:8080 chain site",
    )

    def lines(word):
        return [line for line in daemon.log().splitlines() if word in line]

    assert site.curl(f"{URL}/robots.txt") == "User-agent: *\n"
    process = process_of(daemon, "robots")
    assert process in functions_of(daemon)
    # What a client says reaches the log, and moves no cursor of those who read it.
    site.curl("-A", "evil\x9b[2J", f"{URL}/a")
    wait.until(lambda: access.exists() and len(access.read_text(encoding="utf-8").splitlines()) == 2, "two requests")
    first, second = access.read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(rf'{LOCAL} - - \[.*\] "GET /robots.txt HTTP/1.1" 200 14 "-" "curl/.*"', first), first
    assert "evil\\xC2\\x9B[2J" in second, second
    wait.until(lambda: len(lines('"target"')) == 2, "two lines of JSON")
    assert [json.loads(line)["status"] for line in lines('"target"')] == [200, 200]
    # The request has it, and so has the server's answer, which repeats the headers.
    wait.until(lambda: len(lines('match: "evil"')) == 2, "two matches")
    assert {line.split()[-1] for line in lines("match: ")} == {"forward", "reverse"}
    wait.until(lambda: len(lines("digest: crc32c ")) == 4, "digests of two connections")
    assert not [line for line in daemon.log().splitlines() if any(one < " " or "\x7f" <= one < "\xa0" for one in line)]
    wait.until(lambda: report(daemon, "ids")["written"] == "2", "what is written is counted")
    assert (report(daemon, "ids")["matches"], report(daemon, "log")["written"], report(daemon, "log")["lost"]) == ("2", "2", "0")
    # More matches than lines in a second: the function says so, as in the daemon.
    site.curl("--data-binary", "evil " * 1000, URL)
    wait.until(lambda: int(report(daemon, "ids").get("matches without a line", 0)) > 0, "matches without a line")
    # A process that takes the place of another one has what the daemon has read.
    text.unlink()
    os.kill(process, signal.SIGKILL)
    wait.until(lambda: report(daemon, "robots")["restarts"] == "1", "another process")
    assert site.curl(f"{URL}/robots.txt") == "User-agent: *\n"
    patterns.write_text("good\n", encoding="utf-8")
    daemon.line("nf set ids reload")
    # The lines of this second may be used up.
    wait.until(lambda: site.curl(f"{URL}/good") is not None and lines('match: "good"'), "the new pattern")
    daemon.line("broker del web")
    assert daemon.stop() == 0


@BOTH_PLACES
def test_files_of_a_directory(site):
    """Clients get them, in a process that can open none; what is not there goes on to the server."""
    site.server(9001)
    daemon = site.start(f"nf add lb proxy {LOCAL}:9001")
    pages = daemon.state_directory / "files" / "site"
    pages.mkdir(parents=True)
    texts = {f"page{number}.html": f"page {number}" for number in range(100)}
    for name, text in {**texts, "index.html": "home"}.items():
        (pages / name).write_text(text, encoding="utf-8")
    for line in ("nf add pages respond 200 directory site path /static", "chain add site pages then lb", f"broker add web listen {LOCAL}:8080 chain site"):
        daemon.line(line)
    assert site.curl(f"{URL}/static/") == "home"
    assert site.curl(*(f"{URL}/static/{name}" for name in texts)) == "".join(texts.values())
    assert site.curl("-I", f"{URL}/static/page1.html").splitlines()[0].strip() == "HTTP/1.1 200 OK"
    for path in ("/static/none.html", "/index.html", "/static/..%2findex.html"):
        assert "server" in json.loads(site.curl("--path-as-is", f"{URL}{path}")), path
    assert report(daemon, "pages")["requests answered"] == "102"


def test_streams_are_closed_and_reset(site):
    """The actions of `match` on the connection of a client."""
    site.server(9001)
    daemon = site.start(
        "domain add tenant private",
        "nf add ids match evil reset http-body process tenant",
        "nf add end match wicked close process tenant",
        f"nf add lb proxy {LOCAL}:9001 process tenant",
        "chain add site ids then end then lb",
        f"broker add web listen {LOCAL}:8080 chain site",
    )
    assert site.curl("--data-binary", "good", URL) == "good"
    for text in ("evil", "wicked"):
        refused = site.space.run("curl", "--silent", "--noproxy", "*", "--data-binary", text, URL, check=False)
        assert refused.returncode in (52, 56), refused
    assert site.counters()["refused"] == 2
    wait.until(lambda: 'match: "evil"' in daemon.log() and 'match: "wicked"' in daemon.log(), "both lines")
    assert process_of(daemon, "ids") == process_of(daemon, "end")


def test_a_broker_that_starts_is_shown(site):
    """`show brokers` waits for no process: it tells that one is being started."""
    daemon = site.start(
        "domain add tenant private",
        "nf add page respond 200 hello process tenant",
        "chain add site page",
        f"broker add web listen {LOCAL}:8080 chain site",
    )
    wait.until(lambda: len(functions_of(daemon)) == 3, "two spare processes")
    (supervisor,) = [pid for pid, word in children(daemon.process.pid).items() if word == "function-supervisor"]
    spares = [pid for pid in functions_of(daemon) if pid != process_of(daemon, "page")]
    # Nobody replaces the spare processes, which do not answer.
    for process in [supervisor, *spares]:
        os.kill(process, signal.SIGSTOP)
    begin = time.monotonic()
    adding = site.space.popen(binary(), *f"broker add more listen {LOCAL}:8081 chain site --socket".split(), daemon.socket)

    def states():
        return {one["name"]: "starting" if one["starting"] else "up" for one in daemon.json("show", "brokers")["brokers"]}

    wait.until(lambda: states() == {"web": "up", "more": "starting"}, "a broker that starts")
    assert "starting" in daemon.command("show", "brokers").stdout
    assert time.monotonic() - begin < 4, "nobody waited until the process counts as one that does not answer"
    assert site.curl(URL) == "hello"
    os.kill(supervisor, signal.SIGCONT)
    assert adding.wait(wait.PATIENCE) == 0
    assert states() == {"web": "up", "more": "up"}
    assert site.curl(f"http://{LOCAL}:8081") == "hello"


def test_a_process_without_rights(site):
    """What the kernel says about the process of a broker; its sockets are those that it was given."""
    daemon = site.start(
        "domain add tenant private",
        "nf add page respond 200 hello process tenant",
        "chain add site page",
        f"broker add web listen {LOCAL}:8080 chain site",
    )
    assert site.curl(URL) == "hello"
    directory = pathlib.Path("/proc") / str(process_of(daemon, "page"))
    status = dict(line.split(":\t", 1) for line in (directory / "status").read_text(encoding="utf-8").splitlines() if ":\t" in line)
    assert (status["NoNewPrivs"], status["Seccomp"], int(status["CapEff"], 16)) == ("1", "2", 0)
    assert os.readlink(directory / "ns/net") != os.readlink(daemon.process_directory() / "ns/net")


def test_what_cannot_be_is_refused(site):
    """One sentence each, and nothing has changed."""
    daemon = site.start(
        "domain add tenant private",
        "domain add second private",
        "nf add lb proxy 192.0.2.1 process tenant",
        "nf add urls url-rewrite ^/a /b",
        "nf add filter http-filter block path /x process tenant",
        "nf add page respond 200 hello process second",
        "nf add stats count process tenant",
        "chain add site lb",
        f"broker add web listen {LOCAL}:8080 chain site",
    )
    before = daemon.state()
    for line, sentence in (
        ("chain add both lb then urls", "`lb` runs in domain `tenant` and `urls` in the daemon"),
        ("chain set site lb then page", "`lb` runs in domain `tenant` and `page` in domain `second`"),
        ("chain add both stats then lb", "a chain has functions of one kind"),
        ("nf add x proxy 192.0.2.2 process tenant poll", "leave `poll` out"),
        ("nf add x proxy 192.0.2.2 process none", "there is no domain `none`"),
        ("nf add x respond 200 file missing.txt process tenant", "cannot open missing.txt"),
        ("nf add x http-log file /no/such/directory/log process tenant", "outside"),
        ("domain del tenant", "domain `tenant` is used by function `lb`"),
    ):
        refused = daemon.line(line, check=False)
        assert refused.returncode == 1 and sentence in refused.stderr, (line, refused)
        assert daemon.state() == before, line
