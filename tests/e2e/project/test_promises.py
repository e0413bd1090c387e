"""The security page names a test for each promise: these tests exist."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMES = re.findall(r"`([^`]+)`", PAGE)


def sources(pattern, below):
    return {path: path.read_text(encoding="utf-8") for path in (ROOT / below).rglob(pattern)}


def test_end_to_end_tests_exist():
    files = sources("test_*.py", "tests/e2e")
    named = [name for name in NAMES if re.fullmatch(r"(test_\w+\.py::)?test_\w+", name)]
    assert len(named) > 40
    missing = []
    for name in named:
        file, _, function = name.rpartition("::")
        texts = [text for path, text in files.items() if file in ("", path.name)]
        if not any(f"def {function}(" in text for text in texts):
            missing.append(name)
    assert not missing


def test_files_of_tests_exist():
    named = [name for name in NAMES if re.fullmatch(r"test_\w+\.py", name)]
    assert named
    present = {path.name for path in (ROOT / "tests" / "e2e").rglob("test_*.py")}
    assert set(named) <= present


def test_tests_of_crates_exist():
    """`mmb-dpdk port::rss::tests`: the crate, and the path of a module or of a test of it."""
    named = [re.fullmatch(r"mmb-([\w-]+) ([\w:]+)", name) for name in NAMES]
    named = [match.groups() for match in named if match]
    assert len(named) > 10
    missing = []
    for crate, path in named:
        texts = sources("*.rs", f"crates/{crate}").values()
        parts = [part for part in path.split("::") if part != "tests"]
        files = {file.stem for file in (ROOT / "crates" / crate).rglob("*.rs")}
        files |= {file.parent.name for file in (ROOT / "crates" / crate).rglob("*.rs")}
        for part in parts:
            if part not in files and not any(re.search(rf"\b(fn|mod) {part}\b", text) for text in texts):
                missing.append(f"mmb-{crate} {path}: {part}")
    assert not missing
