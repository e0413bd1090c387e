"""Fixtures of the end-to-end tests: namespaces, daemons and ports; figures for the summary."""

import collections
import importlib.util
import os
import pathlib
import shutil
import signal
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

if importlib.util.find_spec("scapy") is None:
    pytest.exit("the Debian package python3-scapy is not installed: run tools/install-deps", returncode=3)

from lab import daemon as lab_daemon  # noqa: E402
from lab.chainbench import ChainBench  # noqa: E402
from lab.links.impair import BadBench  # noqa: E402
from lab.natbench import NatBench  # noqa: E402
from lab.netns import Bench  # noqa: E402
from lab.routebench import RouteBench  # noqa: E402
from lab.wire import DRIVERS, Wire  # noqa: E402

_figures = []
_daemons = []


def pytest_report_header():
    return f"mmb: {lab_daemon.binary()}"


def pytest_sessionstart(session):
    # A run that is told to end still cleans up behind itself.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not session.config.option.collectonly and not lab_daemon.binary().exists():
        pytest.exit(f"{lab_daemon.binary()} is not there: run `make build` first, or set MMB_BIN", returncode=3)


def pytest_collection_modifyitems(items):
    """Files with many tests come first: at the end, a process with a long file would have all others wait."""
    tests = collections.Counter(item.path for item in items)
    items.sort(key=lambda item: -tests[item.path])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """Adds the daemons' logs to the report of a failed test."""
    report = (yield).get_result()
    if report.failed:
        for daemon in _daemons:
            report.sections.append((f"mmb in {daemon.directory}", daemon.log()[-4000:]))


def pytest_sessionfinish(session):
    """One of several processes of pytest-xdist leaves its figures to the one that prints the summary."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["figures"] = _figures


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    _figures.extend(getattr(node, "workeroutput", {}).get("figures", []))


def pytest_terminal_summary(terminalreporter):
    if os.geteuid() != 0:
        terminalreporter.section("no root")
        terminalreporter.line("What needs network namespaces was skipped; run as root to include it.")
    if _figures:
        terminalreporter.section("figures")
        for name, value in _figures:
            terminalreporter.line(f"{name}: {value}")


@pytest.fixture(scope="session")
def figure():
    """figure(name, value): a measured figure for the end of the report."""
    return lambda name, value: _figures.append((name, value))


@pytest.fixture(scope="session")
def root():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root; run as root to include this test")


@pytest.fixture(params=DRIVERS)
def driver(request):
    return request.param


@pytest.fixture
def make_bench(root):
    """make_bench(**options) -> Bench, removed after the test."""
    benches = []

    def make(**options):
        benches.append(Bench(**options))
        return benches[-1]

    yield make
    for bench in reversed(benches):
        bench.close()


@pytest.fixture
def make_daemon(tmp_path):
    """make_daemon(namespace, config, ...) -> a started Daemon, stopped after the test."""
    made = []

    def make(namespace=None, config="", start=True, **options):
        directory = tmp_path / f"mmb{len(made)}"
        directory.mkdir()
        daemon = lab_daemon.Daemon(namespace, config, directory=directory, **options)
        made.append(daemon)
        _daemons.append(daemon)
        return daemon.start() if start else daemon

    yield make
    for daemon in made:
        daemon.close()
        _daemons.remove(daemon)


@pytest.fixture
def make_wire(make_bench, make_daemon):
    """make_wire(driver, ...) -> a Wire for one test, for tests that change more than rules."""
    wires = []

    def make(driver, config="", workers=1, arguments=(), wrapper=(), **options):
        wires.append(Wire(driver, make_bench(**options), make_daemon, config, workers, arguments, wrapper))
        return wires[-1]

    yield make
    for wire in wires:
        wire.close()


@pytest.fixture
def make_bad(root, make_daemon):
    """make_bad(config, seed, ...) -> BadBench, removed after the test."""
    made = []

    def make(config, seed, **options):
        made.append(BadBench(make_daemon, config, seed, **options))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def make_nat(root, make_daemon):
    """make_nat(config, ...) -> NatBench, removed after the test."""
    made = []

    def make(config="", driver="af-packet", **options):
        made.append(NatBench(driver, make_daemon, config, **options))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def make_chains(root, make_daemon):
    """make_chains(config, ...) -> ChainBench, removed after the test."""
    made = []

    def make(config="", driver="af-packet", **options):
        made.append(ChainBench(driver, make_daemon, config, **options))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def make_router(root, make_daemon):
    """make_router(config, ...) -> RouteBench, removed after the test."""
    made = []

    def make(config="", driver="af-xdp", **options):
        made.append(RouteBench(driver, make_daemon, config, **options))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


def pytest_generate_tests(metafunc):
    """Runs a module's shared wire on each kind of port, unless the module sets DRIVERS."""
    if "shared_wire" in metafunc.fixturenames:
        drivers = getattr(metafunc.module, "DRIVERS", DRIVERS)
        metafunc.parametrize("shared_wire", drivers, indirect=True, scope="module")


@pytest.fixture(scope="module")
def shared_wire(request, root):
    """One wire for all tests of a module."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="mmb-e2e-"))
    daemons = []

    def make_daemon(namespace, config, **options):
        daemons.append(lab_daemon.Daemon(namespace, config, directory=directory, **options))
        _daemons.append(daemons[-1])
        return daemons[-1].start()

    bench = Bench()
    wire = None
    try:
        wire = Wire(request.param, bench, make_daemon)
        yield wire
    finally:
        if wire:
            wire.close()
        for daemon in daemons:
            daemon.close()
            _daemons.remove(daemon)
        bench.close()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def wire(shared_wire):
    """The module's wire, with no rules and no frames of an earlier test."""
    shared_wire.daemon.command("flush")
    shared_wire.settle()
    yield shared_wire
