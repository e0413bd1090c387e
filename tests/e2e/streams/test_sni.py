"""`sni` in live connections: curl, OpenSSL and Python, with mmb between them and a TLS server."""

import pathlib
import socket
import ssl
import subprocess
import threading

import pytest

from lab import wait
from lab.daemon import report
from lab.frames import IP, TCP, Ether
from lab.netns import SERVER4, SERVER6
from lab.wire import PLACES, chain

PORT = 8443


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", "/CN=example.com", "-out", files[0], "-keyout", files[1]]
    subprocess.run(command, check=True, capture_output=True)
    return files


class Server:
    """A TLS server that answers each connection with the name that it was asked for."""

    def __init__(self, namespace, certificate, address):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        context.sni_callback = self.note_name
        self.context = context
        # The names of all ClientHellos.
        self.names = []
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.listener = namespace.socket(family, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((address, PORT))
        self.listener.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    def note_name(self, connection, name, _):
        connection.name = name
        self.names.append(name)

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection):
        try:
            with self.context.wrap_socket(connection, server_side=True) as secured:
                secured.recv(1000)
                name = str(getattr(secured, "name", None)).encode()
                secured.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(name), name))
                secured.unwrap()
        except OSError:
            connection.close()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture
def serve(certificate):
    made = []

    def make(namespace, address=SERVER4):
        made.append(Server(namespace, certificate, address))
        return made[-1]

    yield make
    for server in made:
        server.close()


def fetch(namespace, name, *arguments, address=SERVER4):
    host = f"[{address}]" if ":" in address else address
    resolve = f"{name}:{PORT}:{host}"
    command = ["curl", "-sSk", "--noproxy", "*", "--max-time", 20, "--resolve", resolve, *arguments]
    return namespace.run(*command, f"https://{name}:{PORT}/", check=False)


def client_hello(name):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


def records(hello, size):
    """The message in records of some bytes."""
    parts = [hello[at : at + size] for at in range(5, len(hello), size)]
    return b"".join(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in parts)


def payloads(sniffer):
    """Returns the payloads of the segments to the server that a packet socket has got."""
    found = b""
    while True:
        try:
            frame = Ether(sniffer.recv(65536))
        except BlockingIOError:
            return found
        if frame.haslayer(TCP) and frame[TCP].dport == PORT:
            length = frame[IP].len - 4 * frame[IP].ihl - 4 * frame[TCP].dataofs
            found += bytes(frame[TCP].payload)[:length]


@pytest.mark.parametrize("driver, address", [("af-xdp", SERVER4), ("af-packet", SERVER6)])
@PLACES
def test_names_decide(make_wire, serve, driver, address, place):
    wire = make_wire(driver, chain("sni deny ads.example *.ads.example", place, PORT))
    serve(wire.server, address)
    for version in ("--tlsv1.3", "--tls-max=1.2"):
        option = version.split("=")
        assert fetch(wire.client, "www.example", *option, address=address).stdout == "www.example"
        refused = fetch(wire.client, "x.ads.EXAMPLE", *option, address=address)
        # 35: the handshake has failed.
        assert refused.returncode == 35 and "unrecognized name" in refused.stderr
    host = f"[{address}]" if ":" in address else address
    target = ("-connect", f"{host}:{PORT}", "-noservername")
    nameless = wire.client.run("openssl", "s_client", "-brief", *target, check=False, input="GET /\r\n")
    assert "CONNECTION ESTABLISHED" in nameless.stderr
    counted = report(wire.daemon)
    assert [counted[name] for name in ("allowed", "denied", "without a name")] == ["3", "2", "1"]
    assert wire.daemon.drops()["sni-denied"] > 0


@PLACES
def test_the_server_gets_no_byte_of_a_refused_hello(make_wire, serve, place):
    wire = make_wire("af-packet", chain("sni deny ads.example", place, PORT))
    serve(wire.server)
    hello = client_hello("ads.example")
    for sent, size in ((hello, 1000), (hello, 40), (hello, 1), (records(hello, 20), 100), (records(hello, 1), 2000)):
        with (
            wire.server.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as sniffer,
            wire.client.socket(socket.AF_INET, socket.SOCK_STREAM) as connection,
        ):
            sniffer.setblocking(False)
            connection.settimeout(20)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.connect((SERVER4, PORT))
            for at in range(0, len(sent), size):
                connection.sendall(sent[at : at + size])
            answer = b""
            while part := connection.recv(100):
                answer += part
            assert payloads(sniffer) == b""
        # A fatal alert, unrecognized_name.
        assert answer == bytes([21, 3, 3, 0, 2, 2, 112])


@PLACES
def test_the_second_hello_is_decided(make_wire, serve, place):
    """A server asks for another ClientHello (HelloRetryRequest), and takes the name of that."""
    wire = make_wire("af-packet", chain("sni deny ads.example", place, PORT))
    server = serve(wire.server)
    # The first ClientHello of OpenSSL has a key for X25519.
    server.context.set_ecdh_curve("prime256v1")
    assert fetch(wire.client, "www.example").stdout == "www.example"
    with wire.client.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(wait.PATIENCE)
        connection.connect((SERVER4, PORT))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="www.example")
        for sent in ("first", "second"):
            while not outgoing.pending:
                with pytest.raises(ssl.SSLWantReadError):
                    client.do_handshake()
                if not outgoing.pending:
                    incoming.write(connection.recv(1000))
            hello = outgoing.read()
            assert hello.count(b"www.example") == 1, sent
            connection.sendall(hello if sent == "first" else hello.replace(b"www.example", b"ads.example"))
        answer = b""
        while part := connection.recv(100):
            answer += part
    # What is left of the HelloRetryRequest, and a fatal alert, unrecognized_name.
    assert answer.endswith(bytes([21, 3, 3, 0, 2, 2, 112]))
    assert "ads.example" not in server.names and server.names.count("www.example") >= 2
    counted = report(wire.daemon)
    assert (counted["allowed"], counted["denied"]) == ("2", "1")


@PLACES
def test_what_is_not_tls_is_reset(make_wire, serve, place):
    wire = make_wire("af-packet", chain("sni allow www.example", place, PORT))
    serve(wire.server)
    with wire.client.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(20)
        connection.connect((SERVER4, PORT))
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            connection.recv(100)
    assert fetch(wire.client, "www.example").stdout == "www.example"
    assert report(wire.daemon)["not TLS, or malformed"] == "1"


@pytest.mark.parametrize("driver, address", [("af-xdp", SERVER4), ("af-packet", SERVER6)])
@PLACES
def test_names_choose_outputs(make_wire, serve, driver, address, place):
    line = f"sni deny ads.example org: *.org video: v.example{place}"
    counts = "".join(f"nf add {name} count\n" for name in "ovr")
    lines = chain(line, port=PORT).replace("chain add c f", f"{counts}chain add c f [org: o, video: v, rest: r]")
    wire = make_wire(driver, ("domain add tenant private\n" if place else "") + lines)
    serve(wire.server, address)
    wanted = {"o": 3, "v": 2, "r": 1}
    for name, connections in (("www.example.org", 3), ("v.example", 2), ("example.com", 1)):
        for _ in range(connections):
            assert fetch(wire.client, name, address=address).stdout == name
    assert "unrecognized name" in fetch(wire.client, "ads.example", address=address).stderr
    # A long message in many segments.
    with wire.client.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(wait.PATIENCE)
        connection.connect((address, PORT))
        hello = client_hello("www.example.org")
        for at in range(0, len(hello), 50):
            connection.sendall(hello[at : at + 50])
        # A record of the handshake: the ServerHello.
        assert connection.recv(1) == b"\x16"
        wanted["o"] += 1
    functions = {one["name"]: one["report"] for one in wire.daemon.json("show", "functions")["functions"]}
    assert (functions["f"]["allowed"], functions["f"]["denied"]) == ("7", "1")
    # Sessions that a function counts have begun behind the handshake.
    for name, connections in wanted.items():
        assert int(functions[name]["packets"]) >= 4 * connections - 1, (name, functions[name])


# The first datagram of a QUIC client that asks for example.com (RFC 9001, A.2), and of one with aioquic that
# asks for quic.example.com.
RECORDED = pathlib.Path(__file__).parents[3] / "crates/tls/src/quic"
ANSWER = b"an answer"


@pytest.mark.parametrize("driver, address", [("af-packet", SERVER4), ("af-xdp", SERVER6)])
@PLACES
def test_names_in_quic(make_wire, driver, address, place):
    lines = chain("sni deny example.com", place, PORT).replace("tcp-dport", "udp-dport")
    wire = make_wire(driver, lines)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    denied, allowed = ((RECORDED / f"{name}.bin").read_bytes() for name in ("rfc9001", "aioquic"))
    with wire.server.socket(family, socket.SOCK_DGRAM) as server:
        server.bind((address, PORT))
        server.settimeout(wait.PATIENCE)
        with wire.client.socket(family, socket.SOCK_DGRAM) as client:
            client.connect((address, PORT))
            for datagram in (denied, b"\x40 and what follows it"):
                client.send(datagram)
            wait.until(lambda: wire.daemon.drops().get("sni-denied") == 2, "the drops")
        with wire.client.socket(family, socket.SOCK_DGRAM) as client:
            client.connect((address, PORT))
            client.settimeout(wait.PATIENCE)
            for datagram in (allowed, b"\x40 and what follows it"):
                client.send(datagram)
                received, sender = server.recvfrom(4000)
                assert received == datagram
                server.sendto(ANSWER, sender)
                assert client.recv(100) == ANSWER
        # Another protocol does not begin so.
        with wire.client.socket(family, socket.SOCK_DGRAM) as client:
            client.connect((address, PORT))
            client.send(b"\x12\x34\x01\0\0\x01 a query")
            wait.until(lambda: wire.daemon.drops().get("sni-invalid") == 1, "the drop")
    counted = report(wire.daemon)
    names = ("allowed", "denied", "not TLS, or malformed")
    assert [counted[name] for name in names] == ["1", "1", "1"]
