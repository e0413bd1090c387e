"""Bare `mmb`: the interactive shell, on a terminal."""

import os
import pty
import re
import subprocess
import time

import pytest

from lab import wait
from lab.daemon import binary

ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")


class Terminal:
    """A program on a pseudo terminal, with input and expected output."""

    def __init__(self, home, *argv):
        master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "HOME": str(home), "XDG_STATE_HOME": ""}
        self.process = subprocess.Popen(
            [str(word) for word in argv],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        self.master = master
        self.shown = b""

    def type(self, text):
        os.write(self.master, text.encode())

    def expect(self, text):
        """Waits until `text` is shown, and discards the output up to it."""
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
        plain = ESCAPES.sub(b"", self.shown)
        self.shown = plain[plain.index(text.encode()) + len(text) :]

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


def test_history(shell):
    shell.type("add udp-dport 7 drop\r")
    shell.expect("rule 1 added")
    shell.type("\x1b[A\r")
    shell.expect("rule 2 added")


def test_end_of_input_ends_the_shell(shell):
    shell.type("\x04")
    assert wait.for_end(shell.process, "the shell") == 0
