"""bench/run: progress, interruption, failing peers, and resuming."""

import json
import os
import signal
import subprocess
import sys
import types

import pytest

from lab.daemon import ROOT, binary

sys.path.insert(0, str(ROOT / "bench"))

from side import ends, figures, memory, page, progress, results  # noqa: E402
from side.results import ENOUGH, Absent, Experiment, Series  # noqa: E402


def figure(name="try"):
    return Experiment(name, "A try", "memory", "rules", "ticks a packet", "", {}, [])


def measured(name):
    return figure(name).measure([Series("mmb", lambda x: 1, [1])], 1)


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances only by spend(seconds)."""
    now = [0.0]
    monkeypatch.setattr(results, "time", types.SimpleNamespace(monotonic=lambda: now[0]))

    def spend(seconds):
        now[0] += seconds

    return spend


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The directory of the results."""
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    return tmp_path


def test_a_place_that_takes_long_has_fewer_rounds(clock):
    def at(x):
        clock(x)
        return x

    asked = []

    def fails(x):
        asked.append(x)
        clock(ENOUGH)
        raise Absent("too large")

    found = figure().measure([Series("mmb", at, [1, ENOUGH / 2, ENOUGH + 10]), Series("peer", fails, [1])], 4)
    assert [(point.x, len(point.values), point.seconds) for point in found.points] == [
        (1, 4, 4), (ENOUGH / 2, 2, ENOUGH), (ENOUGH + 10, 1, ENOUGH + 10),
    ]  # fmt: skip
    assert asked == [1] and found.rounds == 4 and found.seconds == 4 + ENOUGH + ENOUGH + 10 + ENOUGH
    shown = page.section(found)
    assert "4 rounds in 2 min 44 s" in shown
    assert "* mmb at rules 25: 2 of 4 rounds" in shown and "* mmb at rules 60: 1 of 4 rounds" in shown
    assert "at rules 1: 4" not in shown and "* peer at rules 1: too large" in shown


def test_a_short_run_tells_which_results_have_fewer_places_than_before(kept):
    def run_of(*places):
        def measure(name, rounds, full):
            def at(x):
                if x == 3:
                    raise Absent("too large")
                return x

            return [figure(name).measure([Series("mmb", at, list(places))], 1)]

        found = progress.Run(["one"], 1, False, "")
        found.measure(measure)
        return found.reduced

    assert run_of(1, 2, 3) == [] and run_of(1, 2) == [] and run_of(2, 3) == ["one"]
    assert run_of(1, 2, 4) == [], "more places are no loss"
    (kept / "one.json").unlink()
    assert run_of(1) == []


def test_what_remains_is_told_after_each_round(clock, capsys):
    def at(x):
        clock(x)
        return x

    figure().measure([Series("mmb", at, [10, ENOUGH])], 3)
    told = [line for line in capsys.readouterr().err.splitlines() if "left" in line]
    # The large place is not measured again.
    assert told == ["try 1/3: 1 min 0 s so far, about 20 s left", "try 2/3: 1 min 10 s so far, about 10 s left"]


def test_a_million_is_written_as_one():
    assert figure().place(1_000_000) == "1,000,000" and figure().place(10.0) == "10"


def test_percentiles_of_a_run_that_was_left_out_are_left_out(clock):
    runs = iter([[5] * 100, [7] * 100])

    def times(name):
        clock(ENOUGH / 2)
        return next(runs)

    found = ends.percentiles(figure(), ["mmb"], times, 4)
    assert [(point.x, point.values) for point in found.points] == [(50, [5, 7]), (90, [5, 7]), (99, [5, 7])]


def test_an_experiment_without_values_does_not_cost_the_page(tmp_path):
    def fails(x):
        raise RuntimeError("it broke")

    empty = figure("empty").measure([Series("peer", fails, [1])], 2)
    (tmp_path / "empty.svg").write_text("of the last time")
    figures.draw(empty, tmp_path / "empty.svg")
    shown = page.text([empty, measured("full")], {})
    assert not (tmp_path / "empty.svg").exists() and "empty.svg" not in shown and "full.svg" in shown
    assert "No values." in shown and "* peer at rules 1: failed: it broke" in shown


class Peer:
    """A peer that fails during set-up or tear-down."""

    def __init__(self, up, down):
        self.up, self.down, self.asked_to_go = up, down, False

    def __enter__(self):
        if not self.up:
            raise RuntimeError("no such device")
        return self

    def __exit__(self, *_):
        self.asked_to_go = True
        if not self.down:
            raise RuntimeError("it is still there")

    def cost(self):
        return 5


@pytest.mark.parametrize("up, down", [(True, True), (True, False), (False, True)], ids=["well", "down", "up"])
def test_a_peer_that_cannot_be_set_up_or_taken_down_costs_itself_only(up, down):
    stands = Peer(up, down)
    with memory.peer(stands) as peer:
        found = figure().measure([Series("mmb", lambda x: 1, [1]), Series("peer", lambda x: peer.cost(), [1])], 2)
    assert [(point.series, point.values) for point in found.points] == [("mmb", [1, 1])] + [("peer", [5, 5])] * up
    assert stands.asked_to_go == up
    assert found.absent == ({} if up else {"peer at rules 1": "failed: could not be set up: no such device"})


def test_what_fails_within_a_peer_is_not_swallowed():
    with pytest.raises(ValueError, match="mine"), memory.peer(Peer(True, True)):
        raise ValueError("mine")


def test_a_run_that_is_cut_off_goes_on(kept):
    """Finished experiments are kept and not measured again; the interrupted one is measured again."""
    asked = []

    def experiment(name, rounds, full):
        asked.append((name, rounds, full))
        if name == "b" and len(asked) == 2:
            raise KeyboardInterrupt
        if name == "a":
            raise RuntimeError("it broke")
        return [measured(name), measured(f"{name}-more")]

    first = progress.start(["a", "b", "c"], None, True)
    with pytest.raises(KeyboardInterrupt):
        first.measure(experiment)
    assert first.left == ["b", "c"] and not (kept / "b.json").exists()
    again = progress.resume()
    assert again == first and again.failed == ["a"]
    again.measure(experiment)
    rounds = progress.ROUNDS[progress.FULL]
    assert asked == [(name, rounds, True) for name in "abbc"]
    assert again.failed == ["a"] and again.figures == ["b", "b-more", "c", "c-more"]
    assert results.load(kept / "c-more.json").points[0].values == [1]
    with pytest.raises(progress.CannotResume, match="no run was cut off"):
        progress.resume()


def test_a_run_does_not_go_on_with_another_mmb(kept, monkeypatch, tmp_path):
    progress.start(["a"], 1, False).keep()
    (tmp_path / "mmb").write_bytes(b"new")
    monkeypatch.setenv("MMB_BIN", str(tmp_path / "mmb"))
    with pytest.raises(progress.CannotResume, match="mmb has changed"):
        progress.resume()


def test_a_run_says_what_remains_by_what_it_took_the_last_time(kept, capsys):
    short = {"a": {"rounds": 3, "seconds": 30}, "b": {"rounds": 3, "seconds": 60}}
    known = {"short": short, "full": {"a": {"rounds": 5, "seconds": 600}}}
    progress.write(progress.times(), known)
    assert progress.start(["a", "b"], None, False).outlook("a") == "== a, 1 of 2: about 1 min 30 s left"
    full = progress.start(["a", "b", "c"], None, True)
    assert full.outlook("a") == "== a, 1 of 3: about 11 min 40 s left, and 1 that nobody has timed"
    assert progress.start(["a"], 1, False).outlook("a") == "== a, 1 of 1: about 10 s left"
    progress.start(["c"], 2, True).measure(lambda name, rounds, full: [measured(name)])
    known["full"]["c"] = {"rounds": 2, "seconds": pytest.approx(0, abs=5)}
    assert progress.read(progress.times()) == known
    assert "== c, 1 of 1: 1 that nobody has timed" in capsys.readouterr().err


def test_where_the_time_went(kept, clock):
    def at(x):
        clock(x)
        return x

    one = figure("one").measure([Series("mmb", at, [1, 2]), Series("peer", at, [30])], 2)
    one.save()
    measured("shared").save()
    run = progress.Run(["one"], 2, False, "", figures=["one", "shared"])
    assert run.spent() == ["measuring took 1 min 6 s", "one: 1 min 6 s, peer 1 min 0 s, mmb 6 s; longest: peer at rules 30, 1 min 0 s"]


def test_the_program_ends_in_order_when_it_is_told_to(tmp_path):
    """The run prints how to resume, and the page exists."""
    environment = {**os.environ, "BENCH_RESULTS": str(tmp_path / "results"), "MMB_BIN": str(binary())}
    command = [ROOT / "bench" / "run", "--rounds", "2", "options", "chains"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr:
                if line.startswith("options 1/2: mmb at 1:"):
                    break
            process.send_signal(signal.SIGTERM)
            told = process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert process.returncode == 130 and "goes on with options, chains" in told
    unfinished = json.loads((tmp_path / "results" / "unfinished.json").read_text())
    assert (unfinished["names"], unfinished["done"], unfinished["rounds"]) == (["options", "chains"], [], 2)
    assert (tmp_path / "results" / "performance.md").read_text().startswith("# Performance")
    environment["MMB_BIN"] = "/bin/true"
    for words, why in ([], "mmb has changed"), (["--full"], "--resume goes on with"):
        command = [ROOT / "bench" / "run", "--resume", *words]
        refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert refused.returncode == 2 and why in refused.stderr
