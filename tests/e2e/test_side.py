"""bench/run: what it writes, what it hands to peers, and the program that measures the kernel."""

import subprocess
import sys

import pytest

from lab.daemon import ROOT, mmb

sys.path.insert(0, str(ROOT / "bench"))

from side import ends, page, rules  # noqa: E402
from side.results import Experiment, Series, load  # noqa: E402


def measured(unit="ticks a packet"):
    experiment = Experiment("try", "A try", "memory", "rules", unit, "a paper", {"mmb": "as it is"}, ["Nothing else."])
    values = {("mmb", 10): [9, 11, 10], ("mmb", 100): [30, 31, 32], ("peer", 10): [20, 21, 22], ("peer", 100): [15, 16, 14]}
    series = [Series(name, lambda x, name=name: values[name, x].pop(0), [10, 100]) for name in ("mmb", "peer")]
    return experiment.measure(series, 3)


def test_results_are_read_as_they_were_written(tmp_path, monkeypatch):
    monkeypatch.setattr("side.results.RESULTS", tmp_path)
    experiment = measured()
    experiment.save()
    assert load(tmp_path / "try.json") == experiment
    assert (tmp_path / "try.csv").read_text().splitlines()[1] == "mmb,10,10,9,11,3"


def test_the_page_says_first_where_a_peer_is_ahead():
    less, more = (page.section(measured(unit)) for unit in ("ticks a packet", "Gbit/s"))
    assert "peer is ahead at rules 100: 15.0 against 31.0 ticks a packet, 2.07" in less and "ahead at rules 10:" not in less
    assert "peer is ahead at rules 10: 21.0 against 10.0 Gbit/s, 2.10" in more and "ahead at rules 100" not in more
    assert less.index("ahead") < less.index("| mmb |")


@pytest.mark.parametrize("command, text", [
    (["nft", "-c", "-f", "-"], rules.nft_set(50)),
    (["nft", "-c", "-f", "-"], rules.nft_rules(50)),
    (["iptables-restore", "--test"], f"*filter\n{rules.iptables_rules(50)}COMMIT\n"),
], ids=["nft-set", "nft-rules", "iptables"])  # fmt: skip
def test_peers_take_their_rules(make_bench, command, text):
    make_bench().mbox.run(*command, input=text)


def test_mmb_takes_the_same_rules(tmp_path):
    (tmp_path / "rules").write_text(ends.mmb_rules(50), encoding="utf-8")
    assert mmb("check", tmp_path / "rules").returncode == 0


@pytest.mark.parametrize("program, options", [
    ("drop", []), ("firewall", ["rules=1000"]), ("tracker", ["rules=1000", "tracked=1"]),
    ("pass", ["live=1", "interface=m0"]),
], ids=["drop", "firewall", "tracker", "stack"])  # fmt: skip
def test_the_kernel_is_measured(make_bench, tmp_path, program, options):
    """Programs load, run, and take some time, and packets of the last one come by the network stack."""
    subprocess.run(["make", "-s", "-C", ROOT / "bench" / "kernel", f"OUT={tmp_path}"], check=True)
    bench = make_bench()
    bench.mbox.run("ethtool", "-K", "m0", "gro", "on")
    mac = bench.mbox.run("cat", "/sys/class/net/m0/address").stdout.strip()
    shown = bench.mbox.run(tmp_path / "cost", tmp_path / f"{program}.o", *options, f"mac={mac}").stdout
    assert float(shown) > 0
    if program == "pass":
        counted = bench.mbox.run("cat", "/proc/net/snmp").stdout.splitlines()[:2]
        names, values = (line.split() for line in counted)
        assert int(values[names.index("InReceives")]) > 1000
