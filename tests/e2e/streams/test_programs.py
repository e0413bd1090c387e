"""Real programs through chains that edit: what is no HTTP passes untouched, and large transfers are edited."""

import concurrent.futures
import hashlib
import http.server
import os
import re
import socket
import ssl

import pytest

from lab import wait
from lab.netns import SERVER4, end
from lab.traffic import WebServer, serving

WEB, SSH, TLS, BULK = 80, 2222, 8443, 7000
OLD, NEW = b"attack", b"a longer text"
EDITED = f'nf add words http-edit type * errors pass body replace {OLD.decode()} "{NEW.decode()}"\n'
CONFIG = f"{EDITED}chain add c words\nadd-stateful ip-proto tcp chain c\n"
# 1 GiB in the long mode.
SIZE = 1 << 30 if os.environ.get("E2E_LONG") else 4 << 20
BLOCK = (OLD.ljust(1024, b".")) * 64


def test_secure_shell_passes_untouched(make_wire, tmp_path):
    """scp of a file, there and back, by a chain that edits HTTP on all ports."""
    wire = make_wire("af-packet", CONFIG)
    for name in ("host", "client"):
        wire.client.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name)
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    (tmp_path / "config").write_text(
        f"Port {SSH}\nListenAddress {SERVER4}\nHostKey {tmp_path}/host\nAuthorizedKeysFile {tmp_path}/client.pub\n"
        f"StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n",
        encoding="ascii",
    )
    server = wire.server.popen("/usr/sbin/sshd", "-D", "-e", "-f", tmp_path / "config")
    try:
        wait.until(lambda: wire.server.listens(SSH), "the server to listen")
        content = os.urandom(1 << 20) + OLD * 1000
        (tmp_path / "file").write_bytes(content)
        options = ("-q", "-P", SSH, "-i", tmp_path / "client", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no")
        copy = ("scp", *options, "-o", "UserKnownHostsFile=/dev/null")
        wire.client.run(*copy, tmp_path / "file", f"root@{SERVER4}:{tmp_path}/there")
        wire.client.run(*copy, f"root@{SERVER4}:{tmp_path}/there", tmp_path / "back")
    finally:
        end(server)
    assert (tmp_path / "there").read_bytes() == content
    assert (tmp_path / "back").read_bytes() == content


class Page(http.server.BaseHTTPRequestHandler):
    """Answers with a page that has the word."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(BLOCK)))
        self.end_headers()
        self.wfile.write(BLOCK)

    def log_message(self, *_):
        pass


def test_tls_passes_untouched(make_wire, tmp_path):
    wire = make_wire("af-packet", CONFIG)
    (key, certificate) = (tmp_path / "key", tmp_path / "certificate")
    subject = ("-subj", f"/CN={SERVER4}", "-addext", f"subjectAltName=IP:{SERVER4}")
    wire.client.run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, *subject)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(wire.server, (SERVER4, TLS), Page, context):
        url = f"https://{SERVER4}:{TLS}/"
        command = ("curl", "-sS", "--noproxy", "*", "--max-time", "40", "--cacert", certificate, url)
        assert wire.client.run(*command).stdout.encode() == BLOCK


def receive(connection):
    """The digest of all bytes until the other end closes, and how many there are."""
    digest, count = hashlib.sha256(), 0
    while part := connection.recv(1 << 18):
        digest.update(part)
        count += len(part)
    return digest.hexdigest(), count


def send(connection):
    for _ in range(SIZE // len(BLOCK)):
        connection.sendall(BLOCK)
    connection.shutdown(socket.SHUT_WR)


def test_large_transfers_are_edited(make_wire):
    """A download and an upload at the same time, with a replaced word in each KiB."""
    words = f'nf add words match {OLD.decode()} replace "{NEW.decode()}"\n'
    wire = make_wire("af-packet", f"{words}chain add c words\nadd-stateful tcp-dport {BULK} chain c\n")
    with wire.server.entered():
        listener = socket.create_server((SERVER4, BULK))
    with listener, wire.client.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
        client.settimeout(wait.PATIENCE)
        client.connect((SERVER4, BULK))
        server, _ = listener.accept()
        server.settimeout(wait.PATIENCE)
        with server, concurrent.futures.ThreadPoolExecutor(4) as pool:
            sent = [pool.submit(send, one) for one in (client, server)]
            received = [pool.submit(receive, one) for one in (client, server)]
            found = [one.result() for one in received]
            for one in sent:
                one.result()
    expected, edited = hashlib.sha256(), BLOCK.replace(OLD, NEW)
    for _ in range(SIZE // len(BLOCK)):
        expected.update(edited)
    assert found == [(expected.hexdigest(), SIZE // len(BLOCK) * len(edited))] * 2


# What wrk does with each answer: it compares the body with a file. A thread has variables of its own.
COMPARE = """
local threads = {}
function setup(thread) table.insert(threads, thread) end
function init() local file = io.open("EXPECTED", "rb"); expected = file:read("*a"); file:close(); good, bad = 0, 0 end
function response(status, headers, body) if status == 200 and body == expected then good = good + 1 else bad = bad + 1 end end
function done() print("good " .. threads[1]:get("good") .. " bad " .. threads[1]:get("bad")) end
"""


@pytest.mark.parametrize("close", [False, True], ids=["kept", "one each"])
@pytest.mark.parametrize("driver", ["af-packet", "af-xdp"])
def test_each_page_for_wrk_is_edited(make_wire, tmp_path, driver, close):
    """Many pages of nginx a second, over connections that stay, or a new one for each page."""
    wire = make_wire(driver, CONFIG)
    page = BLOCK[: 8 << 10]
    (tmp_path / "expected").write_bytes(page.replace(OLD, NEW))
    (tmp_path / "compare.lua").write_text(COMPARE.replace("EXPECTED", str(tmp_path / "expected")), encoding="ascii")
    web = WebServer(wire.server, WEB)
    try:
        web.put("page", page)
        header = ("-H", "Connection: close") if close else ()
        asked = ("wrk", "-t1", "-c16", "-d1s", "--timeout", "20s", *header, "-s", tmp_path / "compare.lua", f"http://{SERVER4}/page")
        shown = wire.client.run(*asked).stdout
    finally:
        web.close()
    good, bad = map(int, re.search(r"good (\d+) bad (\d+)", shown).groups())
    assert good > 16 and bad == 0 and "Socket errors" not in shown, shown
