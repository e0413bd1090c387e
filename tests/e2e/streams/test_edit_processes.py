"""Stream functions that edit in processes: real connections over bad links, and processes that are killed."""

import os
import random
import signal
import threading

import pytest

from lab import traffic, wait
from lab.daemon import process_of, report
from lab.links.impair import Impairment
from lab.netns import SERVER4, SERVER6
from lab.traffic import curl, url
from lab.wire import chain
from sessions.test_processes import apply
from streams import test_match
from streams.test_http import DENSE, PAGE, edited, edits, serve
from streams.test_match import PORT, connection, exactly
from streams.test_stream_processes import DOMAIN, configuration, runs_again, transferred

# Fixtures of other files.
__all__ = ["serve"]

WORD = b"evil word"
NEW = {"mask": b"*" * len(WORD), "remove": b"", "replace": b"a word that is much longer than the other one"}


def words_of(what):
    return f'match "{WORD.decode()}" {what}' + (f' "{NEW[what].decode()}"' if what == "replace" else "")


def content_with_words(rng, words=60):
    return b"".join(rng.randbytes(rng.randrange(3000)) + WORD for _ in range(words)) + b"."


def exchanged(near, far, sent, expected):
    """Sends contents in both directions at the same time. Returns what both ends have got when each has all."""
    got = [b"", b""]

    def read(at, end):
        got[at] = exactly(end, len(expected[at]))

    threads = [threading.Thread(target=end.sendall, args=(content,)) for end, content in zip((near, far), sent)]
    threads += [threading.Thread(target=read, args=one) for one in ((0, far), (1, near))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


def both_ways(near, far, contents):
    """As above, for contents in which words are replaced."""
    expected = [content.replace(WORD, contents["new"]) for content in contents["sent"]]
    return exchanged(near, far, contents["sent"], expected)


@pytest.mark.parametrize("what", ["mask", "remove", "replace"])
def test_words_are_edited_over_bad_links(make_bad, what):
    """Loss, repetition and other orders on both sides, and bytes in both directions: each word is edited."""
    bad = Impairment(loss=5, duplication=30, reordering=40, cuts=400)
    bench = make_bad(configuration(("m", words_of(what))), seed=5, before=bad, behind=bad)
    rng = random.Random(6)
    sent = [content_with_words(rng), content_with_words(rng, 30)]
    with connection(bench, SERVER4) as (near, far):
        got = both_ways(near, far, {"sent": sent, "new": NEW[what]})
        assert got == [content.replace(WORD, NEW[what]) for content in sent]
    values = report(bench.daemon, "m")
    assert (values["edited"], values["restarts"], values["rejected"]) == ("90", "0", "0")


@pytest.mark.parametrize("workers, address", [(1, SERVER4), (2, SERVER6)])
def test_bulk_transfers_are_edited(make_wire, workers, address):
    """Many connections at full speed, with one worker and with two; all buffers are free at the end."""
    config = configuration(("m", words_of("replace")), domain=DOMAIN.replace("1024", "256"))
    wire = make_wire("af-packet", config, workers=workers)
    content = content_with_words(random.Random(7), 1000)
    for _ in range(3):
        with connection(wire, address) as (near, far):
            got = both_ways(near, far, {"sent": [content, content], "new": NEW["replace"]})
            counts = {name: count for name, count in wire.daemon.drops().items() if count}
            assert [one == content.replace(WORD, NEW["replace"]) for one in got] == [True, True], counts
    values = report(wire.daemon, "m")
    assert (values["edited"], values["restarts"], values["rejected"]) == ("6000", "0", "0")
    wait.until(lambda: wire.daemon.json("show", "domains")["domains"][0]["used"] == 0, "free buffers")


def http_configuration(tmp_path):
    """As in the tests of functions in the worker, with a text in a file."""
    return chain(edits(tmp_path), " process tenant")


def test_edits_of_pages_survive_loss(make_bad, serve, tmp_path):
    bad = Impairment(loss=30, duplication=30, reordering=30, cuts=100)
    bench = make_bad(http_configuration(tmp_path), seed=4, before=bad, behind=bad)
    serve(bench.server)
    bodies = [tmp_path / f"body{n}" for n in range(3)]
    for body, path in zip(bodies, ["/page", "/chunks", "/page"]):
        curl(bench.client, "--max-time", 60, "-o", body, url(path))
        # A text may get through if its end is lost in front of mmb; what is not edited is the same.
        assert body.read_bytes().replace(b"evil", b"friendly") == edited(PAGE)
    assert sum(link.lost for link in bench.links) > 0


def test_a_segment_becomes_many(make_wire, serve, tmp_path):
    """A process returns up to 63 KiB for a packet: all of a compressed page that is in one."""
    wire = make_wire("af-packet", http_configuration(tmp_path))
    serve(wire.server)
    assert curl(wire.client, url("/dense")).stdout.encode() == edited(DENSE)


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_datagrams_are_edited(make_wire, address):
    rules = configuration(("m", "match evil replace harmless")) + f"add-stateful udp-dport {PORT} chain c\n"
    wire = make_wire("af-packet", rules)
    test_match.exchange_datagrams(wire.client, wire.server, address)
    values = report(wire.daemon, "m")
    names = ("edited", "edited in two datagrams", "not edited: mtu")
    assert [values[name] for name in names] == [str(test_match.EDITED), "1", "1"]


@pytest.mark.parametrize("on_failure", ["drop", "pass"])
def test_a_killed_process(make_wire, on_failure):
    """kill -9: the connection is reset, or what was held back goes on and nothing is edited any more."""
    config = configuration(("m", "match evil replace harmless"), domain=f"{DOMAIN} on-failure {on_failure}")
    others = (
        "nf add n match nothing replace good process tenant\nchain add other n\n"
        f"add-stateful tcp-dport {PORT + 1} chain other\n"
    )
    wire = make_wire("af-packet", config + others, workers=2)
    with connection(wire, SERVER4) as (near, far):
        near.sendall(b"evil ev")
        assert exactly(far, 9) == b"harmless "
        os.kill(process_of(wire.daemon, "m"), signal.SIGKILL)
        wait.until(lambda: runs_again(wire.daemon, 1), "a new process")
        sent, read = traffic.bulk_transfer(wire.client, wire.server, SERVER4, port=PORT + 1, size=1 << 20)
        assert sent == read
        if on_failure == "drop":
            near.sendall(b"il evil")
            with pytest.raises(ConnectionResetError):
                far.recv(100)
        else:
            near.sendall(b"il evil")
            assert exactly(far, 9) == b"evil evil"
            far.sendall(b"evil")
            assert exactly(near, 4) == b"evil"
    with connection(wire, SERVER4) as (near, far):
        near.sendall(b"evil.")
        assert exactly(far, 9) == b"harmless."
    assert report(wire.daemon, "n")["restarts"] == "0"


def test_kills_under_load_let_nothing_pass_unedited(make_wire):
    """Whenever the process is killed, the receiver gets the beginning of the edited content."""
    wire = make_wire("af-packet", configuration(("m", words_of("replace"))), workers=2)
    rng = random.Random(8)
    for number in range(8):
        with connection(wire, SERVER4) as (near, far):
            content = content_with_words(rng, 150)
            kill_at = rng.randrange(150_000) if number % 2 else None
            read = transferred_all(wire, (near, far), (content, kill_at))
            expected = content.replace(WORD, NEW["replace"])
            assert expected.startswith(read), number
            assert kill_at is not None or read == expected
        wait.until(lambda number=number: runs_again(wire.daemon, (number + 1) // 2), "a new process")


def transferred_all(wire, ends, sent):
    """What arrives of content. The sender ends the stream, so that the receiver knows when it has all."""
    near, far = ends
    content, kill_at = sent
    if kill_at is None:
        sender = threading.Thread(target=lambda: (near.sendall(content), near.close()), daemon=True)
        sender.start()
        read = b""
        while part := far.recv(1 << 16):
            read += part
        sender.join()
        return read
    return transferred(wire, near, far, sent)


def test_functions_that_edit_move_under_a_connection(make_wire, tmp_path):
    """`apply` moves a function into a process and back while a connection is open, which loses nothing."""
    config = configuration(("m", "match evil replace harmless"))
    wire = make_wire("af-packet", config)
    apart = config.splitlines()
    local = [line.replace(" process tenant", "") for line in apart]
    with connection(wire, SERVER4) as (near, far):
        for lines in (apart, local) * 3:
            apply(wire.daemon, tmp_path / "file", lines)
            near.sendall(b"an evil word.")
            assert exactly(far, 17) == b"an harmless word."
            far.sendall(b"evil.")
            assert exactly(near, 9) == b"harmless."


@pytest.mark.parametrize("place", ["", " process tenant", " process other"])
def test_functions_that_read_stand_beside(make_wire, place):
    """A function in front of the one that edits reads what arrives, and one behind it what leaves."""
    functions = f"domain add other private\nnf add a payload-count{place}\nnf add b payload-count{place}\n"
    config = configuration(("m", "match evil replace harmless")).replace("chain add c m", f"{functions}chain add c a | m | b")
    wire = make_wire("af-packet", config)
    with connection(wire, SERVER4) as (near, far):
        near.sendall(b"an evil word.")
        assert exactly(far, 17) == b"an harmless word."
        far.sendall(b"evil.")
        assert exactly(near, 9) == b"harmless."
    counts = [(report(wire.daemon, name)["bytes forward"], report(wire.daemon, name)["bytes reverse"]) for name in "ab"]
    assert counts == [("13", "9"), ("17", "5")]


# What each function replaces, and by what: each one reads what the one in front has left.
STEPS = (("evil word", "word that is bad"), ("is bad", "was"), ("word that was", "worn wo"), ("worn", "a much longer word"))
PLACES = {
    "one domain": (" process tenant",) * 4,
    "two domains": (" process tenant", " process other") * 2,
    "worker between": ("", " process tenant", "", " process other"),
    "worker around": (" process tenant", "", " process tenant", ""),
}


def steps(places):
    """A chain of functions at these places."""
    functions = [f'nf add m{n} match "{old}" replace "{new}"{place}' for n, ((old, new), place) in enumerate(zip(STEPS, places))]
    domain = DOMAIN.replace("1024", "4096")
    others = [f"chain add c {' | '.join(f'm{n}' for n in range(len(STEPS)))}", f"add-stateful tcp-dport {PORT} chain c"]
    return "\n".join((domain, domain.replace("tenant", "other"), *functions, *others)) + "\n"


def after_steps(content, steps=STEPS):
    for old, new in steps:
        content = content.replace(old.encode(), new.encode())
    return content


def both_after_steps(sent):
    """What arrives at both ends. Replies meet the functions in the other order."""
    return [after_steps(sent[0]), after_steps(sent[1], STEPS[::-1])]


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
def test_several_functions_edit_over_bad_links(make_bad, places):
    bad = Impairment(loss=5, duplication=30, reordering=40, cuts=400)
    bench = make_bad(steps(places), seed=7, before=bad, behind=bad)
    rng = random.Random(9)
    sent = [content_with_words(rng), content_with_words(rng, 30)]
    with connection(bench, SERVER4) as (near, far):
        got = exchanged(near, far, sent, both_after_steps(sent))
        assert got == both_after_steps(sent)
    for number, place in enumerate(places):
        values = report(bench.daemon, f"m{number}")
        assert values["edited"] == ("60" if number else "90"), (number, values)
        assert not place or values["restarts"] == "0"


@pytest.mark.parametrize("places", [PLACES["one domain"], PLACES["two domains"]], ids=["one domain", "two domains"])
def test_bulk_transfers_pass_several_processes(make_wire, places):
    wire = make_wire("af-packet", steps(places), workers=2)
    content = content_with_words(random.Random(10), 1000)
    expected = both_after_steps([content] * 2)
    for _ in range(2):
        with connection(wire, SERVER6) as (near, far):
            got = exchanged(near, far, [content] * 2, expected)
            counts = {name: count for name, count in wire.daemon.drops().items() if count}
            assert got == expected, counts
    assert [report(wire.daemon, f"m{n}")["edited"] for n in range(4)] == ["4000", "2000", "2000", "2000"]
    wait.until(lambda: all(domain["used"] == 0 for domain in wire.daemon.json("show", "domains")["domains"]), "free buffers")


def test_words_and_pages_are_edited_in_two_domains(make_wire, serve, tmp_path):
    """A page meets `match` in one process first, and then `http-edit` in another one, which reads what it has left."""
    words = 'domain add other private\nnf add w match evil replace EVIL process other\n'
    config = http_configuration(tmp_path).replace("replace evil friendly", "replace EVIL friendly")
    wire = make_wire("af-packet", words + config.replace("chain add c f", "chain add c f | w"))
    serve(wire.server)
    body = tmp_path / "body"
    curl(wire.client, "-o", body, url("/page"))
    assert body.read_bytes() == edited(PAGE)


def test_a_killed_process_between_others(make_wire):
    wire = make_wire("af-packet", steps(PLACES["two domains"]))
    with connection(wire, SERVER4) as (near, far):
        near.sendall(b"an evil word.")
        assert exactly(far, len(after_steps(b"an evil word."))) == after_steps(b"an evil word.")
        os.kill(process_of(wire.daemon, "m1"), signal.SIGKILL)
        wait.until(lambda: report(wire.daemon, "m1")["restarts"] == "1", "a new process")
        near.sendall(b"an evil word.")
        with pytest.raises(ConnectionResetError):
            far.recv(100)
    with connection(wire, SERVER4) as (near, far):
        near.sendall(b"an evil word.")
        assert exactly(far, len(after_steps(b"an evil word."))) == after_steps(b"an evil word.")


def test_files_are_read_in_processes(make_wire, tmp_path):
    """The daemon passes the files that a function names. `reload` passes the new one, also to later processes."""
    words = tmp_path / "words"
    words.write_text("evil\n", encoding="ascii")
    wire = make_wire("af-packet", configuration(("m", f"match file {words} mask")))
    with connection(wire, SERVER4) as (near, far):
        near.sendall(b"evil good.")
        assert exactly(far, 10) == b"**** good."
    replaced = tmp_path / "replaced"
    replaced.write_text("good\n", encoding="ascii")
    replaced.rename(words)
    wire.daemon.line("nf set m reload")
    for restarts in range(2):
        with connection(wire, SERVER4) as (near, far):
            near.sendall(b"evil good.")
            assert exactly(far, 10) == b"evil ****."
        if not restarts:
            os.kill(process_of(wire.daemon, "m"), signal.SIGKILL)
            wait.until(lambda: runs_again(wire.daemon, 1), "a new process")
    words.unlink()
    refused = wire.daemon.line("nf set m reload", check=False)
    assert refused.returncode != 0 and "words" in refused.stderr
