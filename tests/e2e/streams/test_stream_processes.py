"""Stream functions that read in processes: real connections over bad links, processes that are killed, logs that the daemon writes."""

import os
import random
import signal

import pytest

from lab import traffic, wait
from lab.daemon import process_of, report
from lab.links.impair import BadBench, Impairment
from lab.netns import SERVER4
from sessions.test_processes import apply, send_segments
from streams.test_match import PORT, WORDS, connection, content_with_words, exactly, found_in, has_ended, received

DOMAIN = "domain add tenant private buffers 1024"
# One function more than a chain has in processes.
MANY = tuple(f"m{number}" for number in range(9))


def configuration(*functions, domain=DOMAIN):
    """A chain of functions, for the connections of the tests."""
    named = [f"nf add {name} {rest} process tenant" for name, rest in functions]
    chain = " | ".join(name for name, _ in functions)
    return "\n".join((domain, *named, f"chain add c {chain}", f"add-stateful tcp-dport {PORT} chain c")) + "\n"


def runs_again(daemon, restarts):
    """Whether the process of `m` runs that was started after so many others."""
    values = report(daemon, "m")
    return values["restarts"] == str(restarts) and values["process"] != "none"


def lines_of(log):
    return log.read_text(encoding="ascii").splitlines() if log.exists() else []


def test_each_byte_is_read_once_wherever_segments_are_cut(root, make_daemon, tmp_path):
    """Loss, repetition and other orders in front of processes: all words are found, and no byte counts twice."""
    log = tmp_path / "match.log"
    functions = (("volume", "payload-count"), ("m", f'match "{WORDS[0].decode()}" {WORDS[1].decode()} alert forward log {log}'))
    bad = Impairment(loss=5, duplication=30, reordering=40, cuts=400)
    bench = BadBench(make_daemon, configuration(*functions), seed=3, before=bad)
    try:
        content, expected = content_with_words(random.Random(4))
        with connection(bench, SERVER4) as (near, far):
            assert received((far, near), content) == content
        wait.until(lambda: len(found_in(log)) >= len(expected), "a line for each word")
        assert found_in(log) == expected
        values = report(bench.daemon, "m")
        assert (values["matches"], values["restarts"], values["rejected"]) == (str(len(expected)), "0", "0")
        assert int(values["descriptors"]) > 60 and values["written"] == str(len(expected))
        assert report(bench.daemon, "volume")["bytes forward"] == str(len(content))
    finally:
        bench.close()


@pytest.mark.parametrize("kind", ["private", "zero-copy"])
def test_digests_of_bulk_transfers(make_wire, tmp_path, kind):
    """A process digests what passes at full speed, with two workers; what has no room is repeated and read."""
    log = tmp_path / "digest.log"
    domain = DOMAIN.replace("private buffers 1024", f"{kind} buffers 256")
    wire = make_wire("af-packet", configuration(("d", f"digest sha256 forward file {log}"), domain=domain), workers=2)
    send_segments(wire.client)
    sums = [traffic.bulk_transfer(wire.client, wire.server, SERVER4, port=PORT, size=4 << 20) for _ in range(3)]
    assert all(sent == read for sent, read in sums)
    wait.until(lambda: len(lines_of(log)) == 3, "a line for each connection")
    assert [line.split()[3] for line in lines_of(log)] == [sent for sent, _ in sums]
    values = report(wire.daemon, "d")
    assert (values["streams"], values["rejected"], values["restarts"]) == ("3", "0", "0")
    assert (int(values["in place"]) > 1000) == (kind == "zero-copy")
    wait.until(lambda: wire.daemon.json("show", "domains")["domains"][0]["used"] == 0, "free buffers")


def test_connections_with_a_word_are_reset_and_closed(make_wire):
    wire = make_wire("af-packet", configuration(("m", 'match "evil word" reset'), ("n", 'match "bad word" close')))
    with connection(wire, SERVER4) as (near, far):
        near.sendall(b"an evil ")
        assert exactly(far, 8) == b"an evil "
        near.sendall(b"word")
        for end in (near, far):
            with pytest.raises(ConnectionResetError):
                end.recv(100)
    wait.until(lambda: wire.daemon.drops().get("match"), "the drop")
    with connection(wire, SERVER4) as (near, far):
        near.sendall(b"a bad ")
        assert exactly(far, 6) == b"a bad "
        near.sendall(b"word and more")
        assert far.recv(100) == b"" and has_ended(near)
    assert (report(wire.daemon, "m")["reset sessions"], report(wire.daemon, "n")["closed sessions"]) == ("1", "1")


def test_requests_are_logged(make_wire, tmp_path):
    log = tmp_path / "http.log"
    wire = make_wire("af-packet", configuration(("web", f"http-log common file {log}")))
    server = traffic.WebServer(wire.server, PORT)
    try:
        assert traffic.fetch(wire.client, f"http://{SERVER4}:{PORT}/file") == server.content
        wait.until(lambda: lines_of(log), "a line")
    finally:
        server.close()
    assert f'"GET /file HTTP/1.1" 200 {len(server.content)}' in lines_of(log)[0]


@pytest.mark.parametrize("on_failure", ["drop", "pass"])
def test_a_killed_process(make_wire, tmp_path, on_failure):
    """kill -9 while a connection is open: it is reset, or goes on unread. Counters of sessions go on, and so do others."""
    log = tmp_path / "match.log"
    domain = f"{DOMAIN} on-failure {on_failure}"
    config = configuration(("m", f"match evil alert log {log}"), domain=domain)
    others = f"nf add volume payload-count process tenant\nchain add other volume\nadd-stateful tcp-dport {PORT + 1} chain other\n"
    wire = make_wire("af-packet", config + others, workers=2)
    with connection(wire, SERVER4) as (near, far):
        near.sendall(b"evil")
        assert exactly(far, 4) == b"evil"
        wait.until(lambda: len(lines_of(log)) == 1, "the first line")
        os.kill(process_of(wire.daemon, "m"), signal.SIGKILL)
        wait.until(lambda: runs_again(wire.daemon, 1), "a new process")
        sent, read = traffic.bulk_transfer(wire.client, wire.server, SERVER4, port=PORT + 1, size=1 << 20)
        assert sent == read
        near.sendall(b"more evil")
        if on_failure == "drop":
            with pytest.raises(ConnectionResetError):
                far.recv(100)
        else:
            assert exactly(far, 9) == b"more evil"
    # The next connection is read.
    with connection(wire, SERVER4) as (near, far):
        near.sendall(b"evil")
        assert exactly(far, 4) == b"evil"
        wait.until(lambda: len(lines_of(log)) == 2, "the second line")
    assert report(wire.daemon, "m")["matches"] == "1"
    assert (report(wire.daemon, "volume")["bytes forward"], report(wire.daemon, "volume")["restarts"]) == (str(1 << 20), "0")


def test_kills_under_load_let_nothing_pass_unread(make_wire):
    """A word that is sent again and again never gets through, whenever the process is killed."""
    wire = make_wire("af-packet", configuration(("m", 'match "evil word" reset')), workers=2)
    rng = random.Random(5)
    for number in range(12):
        with connection(wire, SERVER4) as (near, far):
            content = rng.randbytes(200_000) + b"evil word" + rng.randbytes(100_000)
            kill_at = rng.randrange(190_000) if number % 2 else None
            assert b"evil word" not in transferred(wire, near, far, (content, kill_at))
        wait.until(lambda number=number: runs_again(wire.daemon, (number + 1) // 2), "a new process")


def transferred(wire, near, far, sent):
    """What arrives of content, until the connection ends; the process is killed once so many bytes are sent."""
    (content, kill_at), at, read = sent, 0, b""
    near.setblocking(False)
    far.setblocking(False)
    while True:
        try:
            if at < len(content):
                at += near.send(content[at : at + 8192])
            if kill_at is not None and at > kill_at:
                os.kill(process_of(wire.daemon, "m"), signal.SIGKILL)
                kill_at = None
        except BlockingIOError:
            pass
        except ConnectionError:
            return read
        try:
            part = far.recv(1 << 16)
            if not part:
                return read
            read += part
        except BlockingIOError:
            wait.readable([far], 0.01)
        except ConnectionError:
            return read


def test_functions_move_under_a_connection(make_wire, tmp_path):
    """`apply` moves functions into processes and back while a connection is open, which loses nothing."""
    config = configuration(("volume", "payload-count"), ("d", "match nothing alert"))
    wire = make_wire("af-packet", config)
    apart = config.splitlines()
    local = [line.replace(" process tenant", "") for line in apart]
    with connection(wire, SERVER4) as (near, far):
        for lines, places in ((apart, ["tenant"] * 2), (local, [""] * 2), (apart, ["tenant"] * 2), (local, [""] * 2)):
            apply(wire.daemon, tmp_path / "file", lines)
            assert received((far, near), bytes(8192)) == bytes(8192)
            functions = wire.daemon.json("show", "functions")["functions"]
            assert [one["domain"] for one in functions[:2]] == places
        shown = wire.daemon.command("show", "connections", "verbose").stdout
        assert f"{4 * 8192}/0 bytes" in shown, shown


def test_refusals(make_wire):
    """Bad input changes nothing, and each refusal is one sentence with the way out."""
    wire = make_wire("af-packet", configuration(("volume", "payload-count")))
    daemon = wire.daemon
    many = tuple(f"{name} match evil mask process tenant" for name in MANY)
    for line in ("nat pool add office 198.51.100.1", *(f"nf add {function}" for function in many)):
        daemon.line(line)
    before = daemon.command("show", "config").stdout
    for line, sentence in (
        ("nf add x nat office process tenant", "`x` translates sessions in the tables of the workers, which a function in a process cannot do: leave `process` out"),
        (f"chain add other {' | '.join(MANY)}", "`m8` is one stream function in a process too many: at most 8 stand beside one that edits, so leave `process` out of its line"),
    ):
        result = daemon.line(line, check=False)
        assert result.returncode != 0 and sentence in result.stderr, (line, result.stderr)
    assert daemon.command("show", "config").stdout == before
