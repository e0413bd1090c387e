"""`mmb top` on a real terminal: tmux, 80 columns and 24 lines."""

import os
import shlex
import subprocess

import pytest

from lab import frames, wait
from lab.daemon import binary, mmb
from lab.frames import UDP
from lab.netns import installed


class Tmux:
    """A terminal on a tmux server of its own."""

    def __init__(self, directory, command, locale="C.UTF-8"):
        self.socket = directory / "tmux"
        self.end = directory / "ended"
        environment = {**os.environ, "LC_ALL": locale, "TERM": "xterm-256color"}
        words = " ".join(shlex.quote(str(word)) for word in command)
        script = f"LC_ALL={locale} {words}; echo $? > {self.end}; sleep 60"
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", script, env=environment)

    def _tmux(self, *words, **options):
        command = [installed("tmux"), "-u", "-S", str(self.socket), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout

    def press(self, *keys):
        self._tmux("send-keys", *keys)

    def screen(self):
        return self._tmux("capture-pane", "-p")

    def shows(self, text):
        """Waits until the screen has a text, and returns the screen."""
        wait.until(lambda: text in self.screen(), f"`{text}` on the screen:\n{self.screen()}")
        return self.screen()

    def status(self):
        """The exit status of the program, when it has ended."""
        wait.until(lambda: self.end.exists() and self.end.read_text(encoding="ascii").strip(), "the end")
        return int(self.end.read_text(encoding="ascii"))

    def close(self):
        self._tmux("kill-server")


@pytest.fixture
def top(tmp_path):
    """top(daemon, *words) -> a terminal with `mmb top`."""
    made = []

    def make(daemon, *words, locale="C.UTF-8"):
        directory = tmp_path / f"terminal{len(made)}"
        directory.mkdir()
        made.append(Tmux(directory, [binary(), "--socket", daemon.socket, "top", *words], locale))
        return made[-1]

    yield make
    for terminal in made:
        terminal.close()


DRIVERS = ["af-packet"]


def test_views_filter_detail_and_pause(wire, top):
    wire.daemon.line("add udp-dport 9 drop name discard")
    wire.daemon.line("add tcp-dport 80 accept")
    terminal = top(wire.daemon)
    packet = bytes(frames.ether() / frames.ip4() / UDP(dport=9) / frames.payload())
    assert "left" in terminal.shows("rx pkt/s")
    terminal.press("2")
    terminal.shows("decided/s")

    def counted():
        wire.cross(*[packet] * 50)
        row = [line for line in terminal.screen().splitlines() if "name discard" in line]
        return row and row[0].split()[1] != "0"

    wait.until(counted, "a rate of the rule")
    terminal.press("/")
    terminal.press("-l", "tcp-dport 80")
    terminal.press("Enter")
    terminal.shows("match: tcp-dport 80")
    wait.until(lambda: "discard" not in terminal.screen() and "add tcp-dport 80 accept" in terminal.screen(), "one rule")
    terminal.press("/", "BSpace")
    terminal.press("-l", " x")
    terminal.press("Enter")
    terminal.shows("error" if "error" in terminal.screen() else "tcp-dport")
    terminal.press("Escape")
    terminal.press("4")
    assert "rule" in terminal.shows("pkt/s over time")
    terminal.press("Enter")
    terminal.shows("from left")
    terminal.press("Escape", "p")
    terminal.shows("PAUSED")
    for key, head in (("3", "protocol" if "protocol" in terminal.screen() else "sessions"), ("5", "NAT pools"), ("6", "functions"), ("7", "of ticks"), ("8", "sleeps/s")):
        terminal.press(key)
        terminal.shows(head)
    assert all(len(line) <= 80 for line in terminal.screen().splitlines())
    terminal.press("q")
    assert terminal.status() == 0


def test_a_locale_without_unicode_gets_ascii(wire, top):
    terminal = top(wire.daemon, "--view", "workers", locale="C")
    terminal.shows("pkt/s over time")
    assert terminal.screen().isascii()
    terminal.press("C-c")
    assert terminal.status() == 0


def test_without_a_terminal_it_is_an_error(wire):
    done = wire.daemon.command("top", check=False)
    assert done.returncode == 2 and "needs a terminal" in done.stderr
    assert mmb("top", "--json", check=False).returncode == 2
