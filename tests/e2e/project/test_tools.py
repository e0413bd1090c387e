"""The demo, the examples, the pages and the checks in tools/."""

import importlib.machinery
import importlib.util
import os
import re
import shlex
import signal
import subprocess

import pytest

from lab import wait
from lab.daemon import ROOT, binary, mmb


@pytest.fixture(scope="module")
def check_layers():
    loader = importlib.machinery.SourceFileLoader("check_layers", str(ROOT / "tools" / "check-layers"))
    spec = importlib.util.spec_from_loader("check_layers", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def package(name, *dependencies):
    return {"name": name, "dependencies": [{"name": used, "kind": kind} for used, kind in dependencies]}


@pytest.mark.parametrize(
    "user, used, kind, fine",
    [
        ("mmb-dataplane", "mmb-policy", None, True),
        ("mmb-policy", "mmb-dataplane", None, False),
        ("mmb-packet", "mmb-lang", None, False),
        ("mmb-classify", "mmb-rewrite", None, False),
        ("mmb-packet", "mmb-lang", "dev", False),
        ("mmb-packet", "mmb-oracle", "dev", True),
        ("mmb-policy", "mmb-oracle", None, False),
        ("mmb-dataplane", "mmb-dpdk-sys", None, False),
        ("mmb-dataplane", "mmb-control", "build", False),
        ("mmb-stranger", "mmb-packet", None, False),
    ],
)
def test_check_layers(check_layers, user, used, kind, fine):
    packages = [package(user, (used, kind)), package(used)]
    assert (list(check_layers.wrong_arrows(packages)) == []) == fine


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.conf")), ids=lambda path: path.name)
def test_examples_are_right(path):
    assert mmb("check", path).returncode == 0


def documents():
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_documented_rules_are_right(path, tmp_path):
    """Each `mmb add …` of the pages is accepted as a shell would pass it, with the pools, functions and
    chains that it names.
    """
    config = tmp_path / "config"

    def commands(first):
        # What is shown to be refused is.
        lines = re.findall(rf"^(?:\$ )?mmb ({first}.*)$(?!\nerror: )", path.read_text(encoding="utf-8"), re.MULTILINE)
        return {line: " ".join(shlex.split(line, comments=True)) for line in lines}

    pools = {words.split()[3]: words for words in commands("nat pool add").values()}
    chains = {words.split()[2]: words for words in commands("chain add").values()}
    functions = {words.split()[2]: words for words in commands("nf add").values()}

    def with_what_they_name(words):
        """The line, preceded by the lines that define what it names."""
        names = re.sub(r"[][|,:]", " ", words).split()[2 if words.startswith("add") else 3 :]
        known = [*pools.items(), *functions.items(), *chains.items()]
        before = [line for name, line in known if name in names and line != words]
        return [*(line for other in before for line in with_what_they_name(other)), words]

    for line, words in commands("add").items():
        ports = [f"interface add {name} null" for name in ("left", "right", "lan", "wan")]
        lines = dict.fromkeys([*ports, *with_what_they_name(words)])
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        assert mmb("check", config).returncode == 0, line


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (path.parent / target).exists(), target


def demo():
    """A running demo; its output is read line by line."""
    return subprocess.Popen(
        ["/usr/bin/python3", "-u", str(ROOT / "tools" / "demo")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "MMB_BIN": str(binary())},
    )


def namespaces_of(pid):
    return [name for name in os.listdir("/run/netns") if name.startswith(f"mmb{pid}-")]


def test_demo(root):
    process = demo()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "all checks passed" in output and "✗" not in output
    assert namespaces_of(process.pid) == []


def test_demo_cleans_up_when_interrupted(root):
    process = demo()
    try:
        for line in process.stdout:
            if "curl" in line:
                break
        assert namespaces_of(process.pid)
        # A terminal signals the whole foreground process group.
        os.killpg(process.pid, signal.SIGINT)
        process.stdout.read()
        assert wait.for_end(process, "the demo") == 130
        assert namespaces_of(process.pid) == []
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()
