"""Real programs through chains that edit: what is no HTTP passes untouched, and large transfers are edited."""

import concurrent.futures
import hashlib
import http.server
import os
import socket
import ssl

from lab import wait
from lab.netns import SERVER4, end
from lab.traffic import serving

SSH, TLS, BULK = 2222, 8443, 7000
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

