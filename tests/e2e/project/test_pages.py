"""The pages for users: each command block is typed in the order of the page, and prints what the page says.

In a page, a block `console` has commands behind `$ ` and their output. `<!-- file: NAME -->` in front of a block writes
it to a file, `<!-- daemon -->` starts its command and waits until it listens. Numbers and addresses of hardware may
differ. MMB_BLESS=1 writes what is printed into the page.
"""

import json
import os
import pathlib
import re
import subprocess

import pytest

from lab import wait
from lab.daemon import ROOT, binary

DOCS = ROOT / "docs"
BLOCK = re.compile(r"(?:<!-- (daemon|file: \S+) -->\n)?```(\w*)\n(.*?)```\n", re.DOTALL)
# A network, mounts and processes of its own: nothing of the page is left when its shell has ended.
PRIVATE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c"]
PREPARE = "mount -t tmpfs tmpfs /run && mkdir /run/netns && exec bash --norc --noprofile"


def shape(text):
    """A text without what differs from run to run."""
    text = re.sub(r"\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b", "MAC", text)
    lines = text.split("\n")
    for at, line in enumerate(lines):
        # Whether a ping was answered does not differ.
        numbers = r"time \d+ms" if " packets transmitted" in line else r"\d+([.,:-]\d+)*"
        lines[at] = re.sub(numbers, "#", line)
    return re.sub(r"[ \t]+", " ", "\n".join(lines)).strip()


class Shell:
    """A shell that runs one command after the other."""

    def __init__(self, directory):
        (directory / "bin").mkdir()
        (directory / "bin" / "mmb").symlink_to(binary())
        environment = {
            **os.environ,
            "PATH": f"{directory}/bin:{os.environ['PATH']}:/usr/sbin:/sbin",
            "STATE_DIRECTORY": str(directory / "state"),
            "LC_ALL": "C.UTF-8",
        }
        environment.pop("MMB_SOCKET", None)
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen([*PRIVATE, PREPARE], cwd=directory, env=environment, **options)

    def run(self, command):
        """The output of a command."""
        self.process.stdin.write(f"{command}\necho; echo '@end'\n".encode())
        self.process.stdin.flush()
        output = b""
        while not output.endswith(b"\n@end\n"):
            assert wait.readable([self.process.stdout], 30), f"`{command}` has not ended: {output.decode()}"
            piece = os.read(self.process.stdout.fileno(), 65536)
            assert piece, f"`{command}` has ended the shell: {output.decode()}"
            output += piece
        return output.removesuffix(b"\n@end\n").decode()

    def daemon(self, command):
        """Starts the daemon and waits for it."""
        self.run(f"{command} > daemon.log 2>&1 &")
        self.run("until grep -q '^listening on' daemon.log || ! jobs %% > /dev/null; do read -t 0.05 <> <(:); done")
        log = self.run("cat daemon.log")
        assert "listening on" in log, log

    def close(self):
        self.process.kill()
        self.process.communicate()


def commands(text):
    """The commands of a block, each with the output behind it."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert parts[0] == "", f"output without a command: {parts[0]}"
    for part in parts[1:]:
        command, _, output = part.partition("\n")
        yield command, output


@pytest.mark.parametrize("page", ["tutorial", "cookbook"])
def test_each_command_prints_what_the_page_says(page, root, tmp_path):
    path = DOCS / f"{page}.md"
    text = path.read_text(encoding="utf-8")
    shell, typed, blessed = Shell(tmp_path), 0, text
    try:
        for kind, language, block in BLOCK.findall(text):
            if kind.startswith("file: "):
                (tmp_path / kind.removeprefix("file: ")).write_text(block, encoding="utf-8")
                continue
            assert language == "console", f"a block without a mark:\n{block}"
            new = ""
            for command, expected in commands(block):
                typed += 1
                if kind == "daemon":
                    shell.daemon(command)
                    new += f"$ {command}\n"
                    continue
                printed = shell.run(command)
                printed = "" if printed.strip() == "" else printed.rstrip("\n") + "\n"
                new += f"$ {command}\n{printed}"
                if "MMB_BLESS" not in os.environ:
                    assert shape(printed) == shape(expected), f"$ {command}\n{printed}instead of\n{expected}"
            blessed = blessed.replace(block, new)
    finally:
        shell.close()
    assert typed > 20
    if "MMB_BLESS" in os.environ:
        path.write_text(blessed, encoding="utf-8")


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


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_anchors_exist(page):
    text = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text):
        other = (page.parent / target).resolve() if target else page
        assert anchor in anchors(other), f"{target}#{anchor}"


def test_the_dashboard_is_json():
    dashboard = json.loads(pathlib.Path(ROOT / "packaging/grafana/mmb.json").read_text(encoding="utf-8"))
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
