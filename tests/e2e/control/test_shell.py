"""Bare `mmb`: the interactive shell, on a terminal; output that is longer than the terminal."""

import os
import pty
import re
import shlex
import signal
import subprocess
import termios
import time

import pytest

from lab import wait
from lab.daemon import binary
from lab.netns import installed

#: What a user may have set.
PAGING = {"MMB_PAGER", "PAGER", "LESS", "LESSOPEN", "LINES", "COLUMNS"}
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")


class Terminal:
    """A program on a pseudo terminal, with input and expected output."""

    def __init__(self, home, *argv, **environment):
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (24, 80))
        self.before = termios.tcgetattr(master)
        inherited = {name: value for name, value in os.environ.items() if name not in PAGING}
        own = {"TERM": "xterm", "HOME": str(home), "XDG_STATE_HOME": ""}
        self.process = subprocess.Popen(
            [str(word) for word in argv],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**inherited, **own, **environment},
            start_new_session=True,
            # Ctrl-C is for those whose terminal controls them.
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
        )
        self.master = master
        self.shown = b""

    def type(self, text):
        os.write(self.master, text.encode())

    def expect(self, text):
        """Waits until `text` is shown, and takes the output up to it, which it returns."""
        deadline = time.monotonic() + wait.PATIENCE
        while text.encode() not in ESCAPES.sub(b"", self.shown):
            if not wait.readable([self.master], deadline - time.monotonic()):
                raise wait.Late(f"waited for {text!r}, saw {self.shown[-2000:]!r}")
            try:
                self.shown += os.read(self.master, 65536)
            except OSError:
                raise AssertionError(
                    f"the shell ended before it showed {text!r}; it showed {self.shown[-2000:]!r}"
                ) from None
        before, _, self.shown = ESCAPES.sub(b"", self.shown).partition(text.encode())
        return before.decode()

    def state(self):
        """What programs change of a terminal: flags and characters."""
        return termios.tcgetattr(self.master)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def daemon(make_daemon, root):
    return make_daemon(config="interface add left-side null\n")


@pytest.fixture
def shell(daemon, tmp_path):
    terminal = Terminal(tmp_path, binary(), "--socket", daemon.socket)
    terminal.expect("mmb>")
    yield terminal
    terminal.close()


def test_commands(shell, daemon):
    shell.type("add udp-dport 1 drop\r")
    shell.expect("rule 1 added")
    shell.type("list\r")
    shell.expect("add udp-dport 1 drop")
    shell.type("exit\r")
    assert wait.for_end(shell.process, "the shell") == 0
    assert len(daemon.rules()) == 1


def test_completion_of_commands_fields_and_interfaces(shell, daemon):
    shell.type("fl\t")
    shell.expect("flush")
    shell.type("\x15add tcp-dp\t")
    shell.expect("tcp-dport")
    shell.type("80 mod udp-dp\t")
    shell.expect("udp-dport")
    shell.type("\x15add in left\t")
    shell.expect("left-side")
    shell.type("\x15")


def test_an_error_does_not_end_the_shell(shell):
    shell.type("add tcp-dprot 80 drop\r")
    shell.expect("tcp-dport")
    shell.expect("mmb>")
    shell.type("list\r")
    shell.expect("no rules")


def test_help(shell):
    shell.type("help\r")
    shell.expect("add")


def test_a_question_about_a_file_command_writes_nothing(daemon, tmp_path):
    for command in ("save", "apply", "check", "diff"):
        asked = subprocess.run(
            [binary(), "--socket", daemon.socket], input=f"{command} ?\n", cwd=tmp_path, text=True, capture_output=True, check=True
        )
        assert asked.stdout.startswith(f"{command}: ") and "file" in asked.stdout, asked
    assert not (tmp_path / "?").exists()


def test_history(shell):
    shell.type("add udp-dport 7 drop\r")
    shell.expect("rule 1 added")
    shell.type("\x1b[A\r")
    shell.expect("rule 2 added")


def test_end_of_input_ends_the_shell(shell):
    shell.type("\x04")
    assert wait.for_end(shell.process, "the shell") == 0


RULES = 500
FIRST, LAST = "udp-dport 1001 ", f"udp-dport {1000 + RULES} "


@pytest.fixture
def many(make_daemon, root):
    """A daemon with rules that need many screens."""
    rules = "".join(f"add udp-dport {1000 + n} drop\n" for n in range(1, RULES + 1))
    return make_daemon(config="interface add left-side null\n" + rules)


@pytest.fixture
def terminal(tmp_path):
    """terminal(*argv, **environment) -> a program on a terminal of 24 lines."""
    made = []

    def make(*argv, **environment):
        made.append(Terminal(tmp_path, *argv, **environment))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_long_list_is_paged_until_the_user_quits(many, terminal):
    installed("less")
    shell = terminal(binary(), "--socket", many.socket, LESS="FRXPthe-pager-asks$")
    shell.expect("mmb>")
    shell.type("list\r")
    shell.expect(FIRST)
    shell.expect("the-pager-asks")
    shell.type("q")
    left = shell.expect("mmb>")
    assert "error" not in left and "add" not in left, "neither a message nor the rest"
    shell.type("list udp-dport 1500\r")
    shell.expect(LAST)
    shell.expect("mmb>")
    shell.type("exit\r")
    assert wait.for_end(shell.process, "the shell") == 0


def test_ctrl_c_is_for_the_pager(many, terminal):
    pager = (
        "trap 'got=interrupt' INT; echo the-pager-runs; cat > /dev/null;"
        "until read key < /dev/tty; do :; done; echo the-pager-got $got $key"
    )
    shell = terminal(binary(), "--socket", many.socket, PAGER=pager)
    shell.expect("mmb>")
    for _ in range(2):
        shell.type("list\r")
        shell.expect("the-pager-runs")
        shell.type("\x03")
        shell.type("quit\r")
        shell.expect("the-pager-got interrupt quit")
        shell.expect("mmb>")
    # Later it ends a live command, as before.
    shell.type("trace\r")
    shell.expect("trace")
    wait.until(lambda: shell.state()[3] & termios.ISIG, "the end of line editing")
    shell.type("\x03")
    assert wait.for_end(shell.process, "the shell") == -signal.SIGINT


def test_a_command_is_paged_with_json_too(many, terminal):
    installed("less")
    for words in (["list"], ["--json", "list"]):
        command = terminal(binary(), "--socket", many.socket, *words, MMB_PAGER="less -XPthe-pager-asks$")
        command.expect("the-pager-asks")
        command.type("q")
        assert wait.for_end(command.process, "the command") == 0
        assert command.state() == command.before


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (["--no-pager", "list"], {"PAGER": "echo paged"}),
        (["list"], {"MMB_PAGER": "", "PAGER": "echo paged"}),
        (["list"], {"MMB_PAGER": "cat", "PAGER": "echo paged"}),
        (["list"], {"TERM": "dumb", "PAGER": "echo paged"}),
        (["list"], {"PAGER": "no-such-pager --option"}),
        (["list"], {"PATH": "/nonexistent"}),
        (["list", "udp-dport", "1500"], {"PAGER": "echo paged"}),
        (["add", "udp-dport", "9", "drop"], {"PAGER": "echo paged"}),
    ],
)
def test_output_without_a_pager(many, terminal, words, environment):
    command = terminal(binary(), "--socket", many.socket, *words, **environment)
    command.expect("rule 501 added" if words[0] == "add" else LAST)
    assert wait.for_end(command.process, "the command") == 0


def test_the_environment_names_the_pager(many, terminal, tmp_path):
    paged = tmp_path / "paged"
    pager = f"(echo $LESS; cat) > {shlex.quote(str(paged))}"
    for environment in ({"PAGER": pager}, {"MMB_PAGER": pager, "PAGER": "false"}):
        command = terminal(binary(), "--socket", many.socket, "list", **environment)
        assert wait.for_end(command.process, "the command") == 0
        options, *lines = paged.read_text(encoding="utf-8").splitlines()
        assert options == "FRX"
        assert "\n".join(lines) + "\n" == many.command("list").stdout
        paged.unlink()


def test_a_killed_pager_leaves_the_terminal_as_it_was(many, terminal):
    command = terminal(
        binary(), "--socket", many.socket, "list", PAGER="stty raw -echo < /dev/tty; echo raw; kill -KILL $$"
    )
    command.expect("raw")
    assert wait.for_end(command.process, "the command") == 0
    assert command.state() == command.before


def test_a_reader_that_goes_is_no_error(many, terminal):
    words = " ".join(shlex.quote(str(word)) for word in (binary(), "--socket", many.socket, "list"))
    script = f"set -o pipefail; {words} | head -n 3; echo status $?"
    command = terminal("bash", "-c", script, PAGER="echo paged")
    command.expect(FIRST)
    command.expect("status 0")
