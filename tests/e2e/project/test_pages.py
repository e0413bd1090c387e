"""The pages for users: what they tell to type works and prints what they say (pages.py has the marks of pages).

MMB_BLESS=1 writes what is printed into the page.
"""

import json
import os
import pathlib
import re

import pytest

from lab.daemon import ROOT
from pages import Page

DOCS = ROOT / "docs"


TYPED = [*(DOCS / f"{name}.md" for name in ("tutorial", "cookbook", "user-guide", "operations")), *sorted(DOCS.glob("guide/*.md"))]


@pytest.mark.parametrize("path", TYPED, ids=lambda path: path.stem)
def test_each_command_prints_what_the_page_says(path, root, tmp_path):
    page = Page(path, tmp_path, bless="MMB_BLESS" in os.environ)
    text = page.type()
    if page.bless:
        path.write_text(text, encoding="utf-8")


def test_every_drop_reason_is_on_the_page(root, make_daemon):
    """Also those of functions; and no other."""
    text = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` \| (.*?) \| .+ \|$", text, re.MULTILINE))
    drops = make_daemon().drops()
    assert sorted(rows) == sorted(drops)
    source = (ROOT / "crates/packet/src/reason.rs").read_text(encoding="utf-8")
    helps = dict(re.findall(r'= "([a-z0-9-]+)",\s*"((?:[^"\\]|\\.)*)";', source))
    assert len(helps) > 60
    assert {name: rows[name] for name in helps} == helps


def test_every_page_is_in_the_book():
    summary = (DOCS / "SUMMARY.md").read_text(encoding="utf-8")
    listed = re.findall(r"\]\(([^)]+)\)", summary)
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} - {"SUMMARY.md"}
    assert sorted(listed) == sorted(pages)


def anchors(path):
    """The anchors of the heads of a page."""
    heads = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda path: path.name)
def test_anchors_exist(page):
    text = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text):
        other = (page.parent / target).resolve() if target else page
        assert anchor in anchors(other), f"{target}#{anchor}"


def test_the_dashboard_is_json():
    dashboard = json.loads(pathlib.Path(ROOT / "packaging/grafana/mmb.json").read_text(encoding="utf-8"))
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
