"""The pages for users as scripts: what a reader would type, in the order of the page.

A block of a page is one of these:

* `console`: commands behind `$ `, each with its output;
* `sh`: commands whose output does not matter; none of them may fail;
* `mmb`: lines for the shell of mmb; none of them may fail;
* `text`: nothing to type.

Marks, on a line of their own, are invisible to readers of the page:

* `<!-- file: NAME -->`: the next block is the content of this file;
* `<!-- daemon -->`: the command of the next block is the daemon's, in place of the one before; the script goes on when
  it listens; `<!-- daemon: COMMAND -->` if no block has the command;
* `<!-- after: PAGE -->`: the blocks of this page come first;
* `<!-- run: COMMAND -->`: what the text tells in words, or an event that takes time;

In an output, `...` stands for any lines. Numbers, addresses of hardware and the order of lines may differ.
"""

import os
import re
import subprocess

from lab import wait
from lab.daemon import ROOT, binary

TOKEN = re.compile(
    r"^<!-- (?P<mark>after|file|daemon|run)(?:: (?P<value>[^\n]*))? -->$"
    r"|^```(?P<language>\w*)\n(?P<block>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# A network, mounts and processes of its own: nothing of the page is left when its shell has ended.
PRIVATE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c"]
PREPARE = "mount -t tmpfs tmpfs /run && mkdir /run/netns && exec bash --norc --noprofile"


def shape(text):
    """The lines of a text without what differs from run to run."""
    text = re.sub(r"\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b", "MAC", text)
    # A link may come up a moment later.
    lines = text.replace(", no link", "").strip().split("\n")
    for at, line in enumerate(lines):
        # Whether a ping was answered does not differ.
        numbers = r"time \d+ms" if " packets transmitted" in line else r"\d+([.,:-]\d+)*"
        lines[at] = re.sub(r"[ \t]+", " ", re.sub(numbers, "#", line)).strip()
    return lines


def same(printed, expected):
    """Whether an output is what the page says."""
    lines, wanted = shape(printed), shape(expected)
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + "\n" for line in wanted)
    return sorted(lines) == sorted(wanted) or re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


def commands(text):
    """The commands of a block `console`, each with the output behind it."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert parts[0] == "", f"output without a command: {parts[0]}"
    for part in parts[1:]:
        command, _, output = part.partition("\n")
        yield command, output


class Shell:
    """A shell that runs one command after the other."""

    def __init__(self, directory):
        (directory / "bin").mkdir()
        (directory / "bin" / "mmb").symlink_to(binary())
        (directory / "examples").symlink_to(ROOT / "examples")
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

    def succeed(self, script):
        """Runs commands, of which none may fail."""
        self.run("failed=; trap 'failed=$BASH_COMMAND' ERR")
        printed = self.run(script)
        failed = self.run("trap - ERR; echo $failed").strip()
        assert not failed, f"`{failed}` has failed: {printed}"

    def daemon(self, command):
        """Starts the daemon, in place of the one before; what it prints until it listens."""
        self.run("[ -z $daemon ] || { kill $daemon; wait $daemon; }; rm -f daemon.log")
        self.run(f"{command} > daemon.log 2>&1 & daemon=$!")
        self.run("until grep -qs '^listening on' daemon.log || ! kill -0 $daemon; do read -t 0.05 <> <(:); done")
        log = self.run("cat daemon.log")
        assert "listening on" in log, log
        return log

    def close(self):
        self.process.kill()
        self.process.communicate()


class Page:
    """A page while it is typed into a shell."""

    def __init__(self, path, directory, bless):
        self.path, self.directory, self.bless, self.typed = path, directory, bless, 0
        self.mark = (None, None)
        self.shell = Shell(directory)

    def type(self):
        """Types all blocks, in their order; returns the page with the outputs that came, if it shall be blessed."""
        try:
            return TOKEN.sub(self.token, self.path.read_text(encoding="utf-8"))
        finally:
            self.shell.close()

    def token(self, token):
        if token["mark"] == "after":
            TOKEN.sub(self.token, (self.path.parent / token["value"]).read_text(encoding="utf-8"))
        elif token["mark"] == "run":
            self.shell.succeed(token["value"])
        elif token["mark"] == "daemon" and token["value"]:
            self.shell.daemon(token["value"])
        elif token["mark"]:
            self.mark = (token["mark"], token["value"])
        else:
            (mark, name), self.mark = self.mark, (None, None)
            return f"```{token['language']}\n{self.typed_block(mark, name, token['language'], token['block'])}```"
        return token[0]

    def typed_block(self, mark, name, language, block):
        """Types a block; returns it with the outputs that came, if it shall be blessed."""
        if mark == "file":
            (self.directory / name).write_text(block, encoding="utf-8")
        elif language in ("sh", "mmb"):
            self.typed += 1
            self.shell.succeed(block if language == "sh" else f"mmb <<'@'\n{block}@")
        elif language == "console":
            return "".join(self.command(mark, *pair) for pair in commands(block))
        else:
            assert language == "text", f"a block without a mark:\n{block}"
        return block

    def command(self, mark, command, expected):
        """Types a command, and compares what it prints; returns both."""
        self.typed += 1
        printed = self.shell.daemon(command) if mark == "daemon" else self.shell.run(command)
        if same(printed, expected) or (mark == "daemon" and not expected):
            return f"$ {command}\n{expected}"
        assert self.bless, f"$ {command}\n{printed}instead of\n{expected}"
        return f"$ {command}\n" + (printed.rstrip("\n") + "\n" if printed.strip() else "")
