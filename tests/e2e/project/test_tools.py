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


@pytest.fixture
def tree(tmp_path):
    """tree({path: text}) -> a git checkout with these files."""

    def make(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for command in ("init -q", "add -A"):
            subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
        return tmp_path

    return make


def checked(tool, directory):
    """The exit status of a check in a directory, and what it prints about faults."""
    done = subprocess.run([ROOT / "tools" / tool], cwd=directory, capture_output=True, text=True)
    return done.returncode, done.stderr


def modules(count, last):
    """A crate of `count` modules, each of which uses the next one; the last one uses what `last` names."""
    files = {"crates/c/src/lib.rs": "".join(f"mod m{n};\n" for n in range(count))}
    for n in range(count):
        used = f"m{n + 1}::F{n + 1}" if n + 1 < count else last
        files[f"crates/c/src/m{n}.rs"] = f"use crate::{used};\npub struct F{n};\n"
    return files


def test_check_structure_finds_import_circles(tree):
    status, faults = checked("check-structure", tree(modules(5, "m0::F0")))
    assert status == 1 and "5 files import each other in a circle" in faults


@pytest.mark.parametrize("last", ["m3::F3", "m1::F1"], ids=["no circle", "four files"])
def test_check_structure_accepts_small_circles(tree, last):
    assert checked("check-structure", tree(modules(5, last))) == (0, "")


def test_check_structure_follows_reexports(tree):
    """The parent re-exports only, so the circle is the one between the files that define the names."""
    files = modules(5, "F0")
    files["crates/c/src/lib.rs"] += "pub use m0::F0;\n"
    assert "5 files" in checked("check-structure", tree(files))[1]


@pytest.mark.parametrize(
    "files, fault",
    [
        ({"a.rs": "fn f() {\n" + "    g();\n" * 69 + "}\n"}, "function f has 71 lines"),
        ({"a.rs": "struct S {\n" + "".join(f"    a{n}: u8,\n" for n in range(25)) + "}\n"}, "struct S has 25 fields"),
        ({f"d/a{n}.rs": "" for n in range(17)}, "d: 17 source files side by side"),
    ],
    ids=["function", "struct", "folder"],
)
def test_check_structure_finds_what_is_too_large(tree, files, fault):
    status, faults = checked("check-structure", tree(files))
    assert status == 1 and fault in faults


@pytest.mark.parametrize(
    "name, text, fault",
    [
        ("a.rs", "// " + "x" * 108 + "\n", "comment of 111 columns"),
        ("a.c", "/* a\n * " + "x" * 108 + "\n */\n", "comment of 111 columns"),
        ("a.py", "# " + "x" * 109 + "\n", "comment of 111 columns"),
        ("a.md", "x" * 111 + "\n", "line of 111 columns"),
        ("a.rs", "struct Gist;\n", "identifier `Gist`"),
        ("a.rs", "/// The same, of a worker.\n", "unclear phrase `The same,`"),
    ],
)
def test_check_prose_finds_faults(tree, name, text, fault):
    status, faults = checked("check-prose", tree({name: text}))
    assert status == 1 and fault in faults


def test_check_prose_accepts_tables_code_blocks_and_strings(tree):
    long = "x" * 120
    files = {"a.md": f"| {long} |\n\n```\n{long}\n```\n", "a.rs": f'const S: &str = "Gist // {long}";\n'}
    assert checked("check-prose", tree(files)) == (0, "")


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.conf")), ids=lambda path: path.name)
def test_examples_are_right(path):
    assert mmb("check", path).returncode == 0


def documents():
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_documented_rules_are_right(path, tmp_path):
    """Each `mmb add …` of the pages is accepted as a shell would pass it, with the pools, sets, functions,
    chains, brokers and files that it names.
    """
    config = tmp_path / "config"

    def commands(first):
        # What is shown to be refused is.
        lines = re.findall(rf"^(?:\$ )?mmb ({first}.*)$(?!\nerror: )", path.read_text(encoding="utf-8"), re.MULTILINE)
        return {line: joined(shlex.split(line, comments=True)) for line in lines}

    def joined(words):
        """The words as a line of the language: a text of several words is one word for the shell."""
        before = ["", *words]
        texts = ("comment", "prefix")
        pairs = zip(before, words)
        return " ".join(f'"{word}"' if last in texts and " " in word else word for last, word in pairs)

    pools = {words.split()[3]: words for words in commands("nat pool add").values()}
    sets = {f"@{words.split()[2]}": words for words in commands("set add").values()}
    chains = {words.split()[2]: words for words in commands("chain add").values()}
    functions = {words.split()[2]: words for words in commands("nf add").values()}
    brokers = {words.split()[2]: words for words in commands("broker add").values()}

    def with_what_they_name(words):
        """The line, preceded by the lines that define what it names."""
        names = re.sub(r"[][|,:]", " ", words).split()[2 if words.startswith("add") else 3 :]
        known = [*pools.items(), *sets.items(), *functions.items(), *chains.items(), *brokers.items()]
        before = [line for name, line in known if name in names and line != words]
        return [*(line for other in before for line in with_what_they_name(other)), words]

    for line, words in commands("add").items():
        ports = [f"interface add {name} null" for name in ("left", "right", "lan", "wan")]
        lines = dict.fromkeys([*ports, *with_what_they_name(words)])
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        for name in re.findall(r" file (\S+)", config.read_text(encoding="utf-8")):
            (tmp_path / name).write_text("a text\n", encoding="utf-8")
        assert mmb("check", config, cwd=tmp_path).returncode == 0, line


def test_instances_of_the_reference_are_right(tmp_path):
    """Each `nf add …` of the function reference, with the interfaces, pools, files and directories that it names."""
    text = (ROOT / "docs/functions.md").read_text(encoding="utf-8")
    lines = dict.fromkeys(re.findall(r"^nf add .*$", text, re.MULTILINE))
    assert len(lines) > 50
    known = [*(f"interface add {name} null" for name in ("lan", "wan", "ids0")), "nat pool add office 192.0.2.1"]
    config = tmp_path / "config"
    for line in lines:
        config.write_text("\n".join([*known, line]) + "\n", encoding="utf-8")
        for name in re.findall(r" (?:file|known|page) (\S+)", line):
            (tmp_path / name).write_text(f"{0:064}\n", encoding="utf-8")
        for name in re.findall(r" directory (\S+)", line):
            (tmp_path / name).mkdir()
        checked = mmb("check", config, cwd=tmp_path, check=False)
        assert checked.returncode == 0, f"{line}: {checked.stderr}"


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (path.parent / target).exists(), target


def build_book(directory, *links):
    """Runs tools/build-book with a program in the place of mdbook that writes one page of the guide."""
    page = "".join(f'<a href="{link}">' for link in links)
    mdbook = directory / "mdbook"
    mdbook.write_text(f"#!/bin/sh\nmkdir -p $4/guide\necho '{page}' > $4/guide/page.html\n", encoding="utf-8")
    mdbook.chmod(0o755)
    tool = [str(ROOT / "tools" / "build-book"), str(directory / "site")]
    return subprocess.run(tool, env={**os.environ, "MDBOOK": str(mdbook)}, capture_output=True, text=True, check=False)


def test_the_site_has_what_its_pages_link_to(tmp_path):
    links = ["rules.html#a", "../../examples/office.conf", "../../bench/results/nat.svg", "../../CHANGELOG.html#fixed"]
    done = build_book(tmp_path, *links, "../../examples/nf-hello", "../../fuzz/README.html", "https://example.org/")
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    found = re.findall('"(.*?)"', (site / "guide" / "page.html").read_text(encoding="utf-8"))
    assert found[0] == links[0] and found[3] == "../changelog.html#fixed" and found[-1] == "https://example.org/"
    for link, original in zip((found[1], found[2], found[5]), ("examples/office.conf", "bench/results/nat.svg", "fuzz/README.md")):
        assert (site / "guide" / link).read_bytes() == (ROOT / original).read_bytes()
    assert (site / "guide" / found[4] / "Cargo.toml").exists()


def test_a_link_of_the_site_to_nothing_is_named(tmp_path):
    done = build_book(tmp_path, "../../examples/offices.conf")
    assert done.returncode != 0
    assert "guide/page.html links to ../../examples/offices.conf, which does not exist" in done.stderr


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
