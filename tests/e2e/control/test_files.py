"""Files that clients name: nothing of the machine is deleted, truncated or written behind the administrator's back."""

import os
import socket

import pytest

from lab import captures

KEPT = "kept\n"


@pytest.fixture
def daemon(make_daemon, tmp_path):
    daemon = make_daemon()
    daemon.files = daemon.state_directory / "files"
    return daemon


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_text(KEPT, encoding="utf-8")
    return path


def refused(daemon, line, *texts):
    """The refusal of a line that changes nothing, as (status, sentence)."""
    before = daemon.state()
    status, body = daemon.request("POST", "/v1/command", f'{{"line": {line!r}}}'.replace("'", '"').encode())
    answer = daemon.line(line, check=False)
    assert answer.returncode == 1 and all(text in answer.stderr for text in texts), answer.stderr
    assert daemon.state() == before
    return status, body.decode()


def test_a_client_names_no_file_outside_the_directory(daemon, secret, tmp_path):
    """Each line deleted, truncated or wrote a file of root's when the daemon opened what it was told."""
    (daemon.files / "in").write_bytes(captures.pcap([]))
    for line in (
        f"interface add m memif {secret}",
        f"interface add p pcap in {secret}",
        f"interface add p pcap {secret} out",
        "interface add p pcap in ../../../secret",
        f"interface add p pcap in {tmp_path}/new",
    ):
        status, _ = refused(daemon, line, "is outside", str(daemon.files))
        assert status == 403, line
    for line in (f"nf add l log file {tmp_path}/new", f"nf add c count json {secret}"):
        refused(daemon, line, "is outside", str(daemon.files))
    assert secret.read_text(encoding="utf-8") == KEPT
    assert not (tmp_path / "new").exists()


def test_links_in_the_directory_lead_nowhere(daemon, secret):
    (daemon.files / "in").write_bytes(captures.pcap([]))
    (daemon.files / "link").symlink_to(secret)
    (daemon.files / "up").symlink_to(secret.parent)
    for line in (
        "interface add p pcap in link",
        "interface add p pcap in up/secret",
        "interface add m memif link",
        "interface add m memif up/sock",
    ):
        refused(daemon, line)
    assert secret.read_text(encoding="utf-8") == KEPT
    assert (daemon.files / "link").is_symlink()


def test_a_capture_is_not_overwritten_and_a_memif_socket_replaces_only_a_socket(daemon):
    for name in ("out", "m"):
        (daemon.files / name).write_text(KEPT, encoding="utf-8")
    (daemon.files / "in").write_bytes(captures.pcap([]))
    refused(daemon, "interface add p pcap in out", "exists already")
    refused(daemon, "interface add m memif m", "exists already")
    assert [(daemon.files / name).read_text(encoding="utf-8") for name in ("out", "m")] == [KEPT, KEPT]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stale:
        stale.bind(str(daemon.files / "stale"))
    daemon.line("interface add m memif stale")
    daemon.line("interface add p pcap in new")
    assert (daemon.files / "new").stat().st_mode & 0o777 == 0o640


def test_no_control_character_is_written(daemon):
    refused(daemon, 'nf add l log prefix "x\\n* * * * * root id"', "must not have control characters")
    refused(daemon, 'nf add l log file "a\\x1b"', "control characters")


def test_what_the_administrator_names_may_be_anywhere(make_daemon, tmp_path, secret):
    (tmp_path / "in").write_bytes(captures.pcap([]))
    config = f"interface add p pcap {tmp_path}/in {tmp_path}/out\n"
    daemon = make_daemon(config=config)
    assert daemon.interfaces()["p"]["state"] == "up"
    daemon.command("interface", "del", "p")
    # The same file again, by a client: the administrator has granted its paths.
    daemon.command("apply", daemon.config)
    assert daemon.interfaces()["p"]["state"] == "up"
    refused(daemon, f"interface add q pcap {tmp_path}/in {secret}", "is outside")


def test_a_fifo_stops_nothing(daemon):
    """A FIFO without a writer held the lock on changes, and SIGTERM, for ever."""
    os.mkfifo(daemon.files / "fifo")
    refused(daemon, "interface add p pcap fifo out", "not a regular file")
    refused(daemon, "interface add p pcap in fifo")
    daemon.line("add all drop")
    daemon.line("nf add l log file fifo")
    assert daemon.stop() == 0
