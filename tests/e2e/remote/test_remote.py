"""The API on the network: TLS, tokens, certificates, roles, and the same commands from another machine."""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess

import pytest

from lab import wait
from lab.daemon import binary, mmb
from lab.netns import run

PORT = 9443
ADDRESS = f"127.0.0.1:{PORT}"
URL = f"https://localhost:{PORT}"


class Authority:
    """A certificate authority of openssl, and the certificates that it signs."""

    def __init__(self, directory, name):
        self.directory = directory
        self.certificate = directory / f"{name}.pem"
        self.key = directory / f"{name}.key"
        run(
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2,
            "-subj", f"/CN={name}", "-keyout", self.key, "-out", self.certificate,
        )

    def sign(self, name, subject, *extensions):
        """The paths of a certificate and of its key."""
        request, certificate, key = (self.directory / f"{name}.{end}" for end in ("csr", "pem", "key"))
        run(
            "openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-subj", subject, "-keyout", key, "-out", request,
        )
        text = self.directory / f"{name}.ext"
        text.write_text("basicConstraints=CA:FALSE\n" + "".join(f"{line}\n" for line in extensions), encoding="utf-8")
        run(
            "openssl", "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-days", 2,
            "-extfile", text, "-out", certificate,
        )
        return certificate, key


class Remote:
    """A daemon with the API on the network, and what its clients have."""

    def __init__(self, directory):
        self.directory = directory
        self.authority = Authority(directory, "authority")
        self.server = self.authority.sign("server", "/CN=box", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        self.users = directory / "users"
        self.tokens = {}
        for name, role in (("grafana", "read"), ("ci", "operate"), ("root", "admin")):
            self.tokens[name] = self.make_token(name, role)
        self.daemon = None

    def make_token(self, name, role):
        """Makes a user; the file with the token."""
        file = self.directory / f"{name}.token"
        file.write_text(mmb("token", self.users, name, role).stdout, encoding="utf-8")
        return file

    def options(self):
        certificate, key = self.server
        return (
            "--api", ADDRESS, "--api-users", self.users, "--api-cert", certificate, "--api-key", key,
            "--api-client-ca", self.authority.certificate,
        )

    def command(self, user, *words, check=True, **options):
        """A command of another machine, as a user with a token."""
        target = ["--remote", URL, "--ca", self.authority.certificate, "--token-file", self.tokens[user]]
        return self.daemon.namespace.run(binary(), *words, *target, check=check, **options)

    def context(self):
        return ssl.create_default_context(cafile=str(self.authority.certificate))

    def request(self, method, path, body=None, token=None, context=None, **headers):
        """A request by Python's HTTPS: status and document."""
        with self.daemon.namespace.entered():
            connection = http.client.HTTPSConnection("localhost", PORT, timeout=wait.PATIENCE, context=context or self.context())
            connection.connect()
        if token:
            headers["Authorization"] = "Bearer " + self.tokens[token].read_text(encoding="utf-8").strip()
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        document = json.loads(answer.read())
        connection.close()
        return answer.status, document

    def refused(self, reason):
        metrics = self.daemon.request("GET", "/metrics")[1].decode()
        return int(metrics.split(f'mmb_api_refused_total{{reason="{reason}"}} ')[1].split("\n")[0])


@pytest.fixture
def remote(make_bench, make_daemon, tmp_path):
    remote = Remote(tmp_path)
    remote.daemon = make_daemon(make_bench().mbox, "interface add n null\n", arguments=remote.options())
    wait.until(lambda: f"API on https://{ADDRESS}" in remote.daemon.log(), "the address in the log")
    return remote


def test_each_command_works_from_another_machine(remote):
    rule = remote.command("ci", "add", "tcp-dport", "80", "drop", "comment", "two words")
    assert "1" in rule.stdout
    assert remote.command("grafana", "list").stdout == remote.daemon.command("list").stdout
    assert remote.command("grafana", "show", "interfaces", "--json").stdout == remote.daemon.command(
        "show", "interfaces", "--json"
    ).stdout
    config = remote.directory / "new.conf"
    config.write_text("interface add n null\nadd udp-dport 53 accept\n", encoding="utf-8")
    assert "+ add udp-dport 53 accept" in remote.command("ci", "diff", config).stdout
    remote.command("ci", "apply", config)
    assert [rule["text"] for rule in remote.daemon.rules().values()] == ["add udp-dport 53 accept"]
    saved = remote.directory / "saved.conf"
    result = remote.command("grafana", "save", check=False)
    assert result.returncode == 1 and "`mmb save FILE` writes one on this machine" in result.stderr
    remote.command("grafana", "save", saved)
    assert "add udp-dport 53 accept" in saved.read_text(encoding="utf-8")
    script = remote.command("ci", input="flush\nadd ip-proto icmp accept\n")
    assert script.returncode == 0 and len(remote.daemon.rules()) == 1
    environment = {
        **os.environ, "MMB_REMOTE": URL, "MMB_CA": str(remote.authority.certificate), "MMB_TOKEN_FILE": str(remote.tokens["grafana"]),
    }
    assert "icmp" in remote.daemon.namespace.run(binary(), "list", env=environment).stdout


def test_roles(remote):
    for words in (["add", "all", "drop"], ["flush"], ["clear", "connections"]):
        result = remote.command("grafana", *words, check=False)
        assert result.returncode == 1 and f"the role read does not permit `{words[0]}`" in result.stderr
    status, document = remote.request("DELETE", "/v1/rules", token="grafana")
    assert status == 403 and "the role read does not permit" in document["error"]
    assert remote.request("GET", "/v1/rules", token="grafana")[0] == 200
    assert remote.refused("role") == 4
    # Nobody on the network names a file outside of the daemon's directory.
    for user in ("ci", "root"):
        result = remote.command(user, "interface", "add", "f", "pcap", "/etc/passwd", "/tmp/out.pcap", check=False)
        assert result.returncode == 1 and "the only directory in which a command may name files" in result.stderr
        remote.command(user, "add", "all", "accept", "name", user)
    assert len(remote.daemon.rules()) == 2


def test_changes_are_logged_with_their_user(remote):
    remote.command("ci", "add", "tcp-dport", "80", "drop")
    remote.command("ci", "del", "77", check=False)
    remote.command("grafana", "flush", check=False)
    wait.until(lambda: "refused change by grafana" in remote.daemon.log(), "the refused change")
    lines = [line for line in remote.daemon.log().splitlines() if "change by" in line]
    assert lines == [
        "change by ci at 127.0.0.1: add tcp-dport 80 drop",
        "refused change by ci at 127.0.0.1 (404): del 77",
        "refused change by grafana at 127.0.0.1 (403): flush",
    ]
    last = remote.daemon.json("history")["revisions"][0]
    assert (last["name"], last["address"], "user" in last) == ("ci", "127.0.0.1", False)
    assert "ci at 127.0.0.1" in remote.command("grafana", "history").stdout


def test_without_a_valid_token_nothing_is_served(remote):
    for headers in (
        {}, {"Authorization": "Bearer mmb_" + "0" * 64}, {"Authorization": "Basic Y2k6Y2k="}, {"Authorization": "Bearer"},
    ):
        for path in ("/v1/rules", "/metrics", "/v1/openapi.json", "/"):
            status, document = remote.request("GET", path, **headers)
            assert status == 401 and document["error"], (headers, path)
    assert remote.refused("credentials") == 16
    remote.tokens["nobody"] = remote.directory / "nobody.token"
    remote.tokens["nobody"].write_text("mmb_" + "f" * 64 + "\n", encoding="utf-8")
    result = remote.command("nobody", "list", check=False)
    assert result.returncode == 1 and result.stderr == "error: the token is not valid\n"
    # The file of users has no token.
    assert not any(file.read_text(encoding="utf-8").strip() in remote.users.read_text(encoding="utf-8") for file in remote.tokens.values())


def test_pages_of_other_sites_are_refused(remote):
    assert remote.request("GET", "/v1/rules", token="ci", Origin=URL)[0] == 200
    for origin in ("https://evil.example", "null", f"http://localhost:{PORT}"):
        status, document = remote.request("GET", "/v1/rules", token="ci", Origin=origin)
        assert status == 403 and "pages of other sites" in document["error"]


def test_certificates_of_clients(remote):
    with remote.users.open("a", encoding="utf-8") as users:
        users.write("operate alice certificate CN=alice,O=Example Works\n")
    remote.daemon.send_signal(signal.SIGHUP)
    wait.until(lambda: "certificates and users of the API reloaded" in remote.daemon.log(), "the new users")
    usage = "extendedKeyUsage=clientAuth"
    alice = remote.authority.sign("alice", "/O=Example Works/CN=alice", usage)
    subject = run("openssl", "x509", "-in", alice[0], "-noout", "-subject", "-nameopt", "RFC2253").stdout
    assert subject.strip() == "subject=CN=alice,O=Example Works"
    options = ["--remote", URL, "--ca", remote.authority.certificate]
    space = remote.daemon.namespace

    def run_with(pair, *words):
        return space.run(binary(), *words, *options, "--cert", pair[0], "--key", pair[1], check=False)

    assert run_with(alice, "add", "all", "drop").returncode == 0
    assert remote.daemon.json("history")["revisions"][0]["name"] == "alice"
    # Signed by the authority, but no user.
    result = run_with(remote.authority.sign("bob", "/O=Example Works/CN=bob", usage), "list")
    assert result.returncode == 1 and "the certificate names no user" in result.stderr
    # The same name, signed by another authority.
    other = Authority(remote.directory, "other")
    result = run_with(other.sign("mallory", "/O=Example Works/CN=alice", usage), "list")
    assert result.returncode == 1 and "the certificate names no user" not in result.stderr
    # A certificate of a server is none of a client.
    result = run_with(remote.authority.sign("web", "/O=Example Works/CN=alice", "extendedKeyUsage=serverAuth"), "list")
    assert result.returncode == 1
    # The client does not trust another authority's daemon.
    result = space.run(binary(), "list", "--remote", URL, "--ca", other.certificate, "--token-file", remote.tokens["ci"], check=False)
    assert result.returncode == 1 and "certificate" in result.stderr and "cannot connect" in result.stderr


def test_users_change_while_the_daemon_runs(remote):
    """A removed user is refused at the next request of an open connection; a wrong file changes nothing."""
    with remote.daemon.namespace.entered():
        connection = http.client.HTTPSConnection("localhost", PORT, timeout=wait.PATIENCE, context=remote.context())
        connection.connect()
    headers = {"Authorization": "Bearer " + remote.tokens["ci"].read_text(encoding="utf-8").strip()}

    def status():
        connection.request("GET", "/v1/version", headers=headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    assert status() == 200
    text = remote.users.read_text(encoding="utf-8")
    remote.users.write_text(text + "write x token abc\n", encoding="utf-8")
    remote.daemon.send_signal(signal.SIGHUP)
    wait.until(lambda: "users of the API are not reloaded" in remote.daemon.log(), "the error")
    assert f"{remote.users}: line 4: unknown role `write`" in remote.daemon.log()
    assert status() == 200
    remote.users.write_text("".join(line for line in text.splitlines(True) if " ci " not in line), encoding="utf-8")
    remote.daemon.send_signal(signal.SIGHUP)
    wait.until(lambda: "users of the API reloaded" in remote.daemon.log(), "the new users")
    assert status() == 401
    assert remote.command("grafana", "list").returncode == 0
    # A new certificate, for a new name.
    certificate, key = remote.authority.sign("renewed", "/CN=box", "subjectAltName=DNS:renewed.example")
    certificate.replace(remote.server[0])
    key.replace(remote.server[1])
    remote.daemon.send_signal(signal.SIGHUP)
    wait.until(lambda: remote.command("grafana", "list", check=False).returncode == 1, "the new certificate")


def test_strangers_take_no_place_of_users(remote):
    """Connections without credentials have places of their own, so many of one host, and a time limit."""
    with remote.daemon.namespace.entered():
        held = [socket.create_connection(("127.0.0.1", PORT)) for _ in range(200)]
    wait.until(lambda: remote.refused("connections") >= 184, "refusals")
    remote.daemon.command("list")
    assert len(remote.daemon.rules()) == 0
    # Another host finds a place at once: the handshakes of the first one have not ended.
    token = remote.tokens["grafana"].read_text(encoding="utf-8").strip()
    answer = remote.daemon.namespace.run(
        "curl", "-sf", "--interface", "127.0.0.2", "--cacert", remote.authority.certificate, "-H", f"Authorization: Bearer {token}",
        f"https://127.0.0.1:{PORT}/v1/version",
    )
    assert json.loads(answer.stdout)["pid"] == remote.daemon.process.pid
    # Handshakes that do not come.
    wait.until(lambda: remote.refused("handshake") >= 16, "the end of the handshakes")
    wait.until(lambda: remote.command("grafana", "list", check=False).returncode == 0, "a place")
    for connection in held:
        connection.close()


def test_the_audit_file_has_changes_and_refused_logins(make_bench, make_daemon, tmp_path):
    """One line of JSON each, with who, from where, what and the result; SIGHUP opens a renamed file again."""
    users, token, audit = tmp_path / "users", tmp_path / "token", tmp_path / "audit"
    token.write_text(mmb("token", users, "ci", "operate").stdout, encoding="utf-8")
    daemon = make_daemon(
        make_bench().mbox, "interface add n null\n",
        arguments=("--api", "127.0.0.1:9080", "--api-users", users, "--audit", audit),
    )

    def lines(file=audit):
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]

    assert lines() == [] and audit.stat().st_mode & 0o777 == 0o640
    options = ("--remote", "http://127.0.0.1:9080", "--token-file", token)
    daemon.line("add tcp-dport 80 drop")
    daemon.command("list")
    daemon.namespace.run(binary(), "del", "77", *options, check=False)
    request = ("curl", "-s", "-H", "Authorization: Bearer mmb_0", "http://127.0.0.1:9080/v1/rules")
    daemon.namespace.run(*request)
    wait.until(lambda: len(lines()) == 3, "the records")
    local, remote, login = lines()
    assert (local["event"], local["what"], local["result"], local["user"]) == ("change", "add tcp-dport 80 drop", "done", os.geteuid())
    assert (remote["name"], remote["address"], remote["what"], remote["result"], remote["status"]) == ("ci", "127.0.0.1", "del 77", "refused", 404)
    assert (login["event"], login["what"], login["status"], login["reason"]) == ("login", "GET /v1/rules", 401, "the token is not valid")
    assert login["address"] == "127.0.0.1" and "mmb_0" not in audit.read_text(encoding="utf-8")
    daemon.line("set add web port")
    assert daemon.request("POST", "/v1/sets/web/elements", b'{"elements": ["80", "443"], "timeout": 60}')[0] == 200
    assert daemon.request("DELETE", "/v1/sets/web/elements", b'{"elements": ["443"]}')[0] == 200
    wait.until(lambda: len(lines()) == 6, "the records")
    assert [line["what"] for line in lines()[4:]] == ["set web add 80 443 timeout 60s", "set web del 443"]
    old = audit.rename(tmp_path / "audit.1")
    daemon.send_signal(signal.SIGHUP)
    wait.until(lambda: audit.exists() and lines() and lines()[-1]["what"].startswith("reload of "), "the record of the reload")
    assert len(lines(old)) == 6
    # The name cannot be opened: the earlier file is kept.
    kept = audit.rename(tmp_path / "audit.2")
    audit.mkdir()
    daemon.send_signal(signal.SIGHUP)
    wait.until(lambda: "cannot open the audit file" in daemon.log(), "the error")
    daemon.line("flush")
    wait.until(lambda: lines(kept)[-1]["what"] == "flush", "the record")


def test_plain_http_and_old_tls_are_refused(remote):
    with remote.daemon.namespace.entered(), socket.create_connection(("127.0.0.1", PORT)) as plain:
        plain.sendall(b"GET /v1/rules HTTP/1.1\r\nHost: localhost\r\n\r\n")
        plain.settimeout(wait.PATIENCE)
        assert not plain.recv(4096).startswith(b"HTTP")
    context = remote.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        remote.request("GET", "/v1/rules", token="ci", context=context)


def test_curl_is_a_client(remote):
    token = remote.tokens["grafana"].read_text(encoding="utf-8").strip()
    answer = remote.daemon.namespace.run(
        "curl", "-sf", "--cacert", remote.authority.certificate, "-H", f"Authorization: Bearer {token}", f"{URL}/v1/version",
    )
    assert json.loads(answer.stdout)["pid"] == remote.daemon.process.pid


def test_what_is_not_safe_does_not_start(make_daemon, tmp_path):
    users = tmp_path / "users"
    run(binary(), "token", users, "ci", "operate")

    def error(*options):
        daemon = make_daemon(None, "", start=False, arguments=options)
        daemon.launch()
        return wait.for_end(daemon.process, "mmb"), daemon.log()

    status, text = error("--api", f"0.0.0.0:{PORT}", "--api-users", users)
    assert status == 1 and "would send tokens unencrypted: give --api-cert and --api-key, or a loopback address" in text
    status, text = error("--api", ADDRESS, "--web", "[::]:9081", "--api-users", users)
    assert status == 1 and "--web [::]:9081 would send tokens unencrypted" in text
    for option in ("--api", "--web"):
        status, text = error(option, ADDRESS)
        assert status == 2 and f"{option} needs --api-users FILE; `mmb token FILE NAME admin` writes a user" in text
    assert error("--api-users", users)[0] == 2
    users.write_text("operate alice certificate CN=alice\n", encoding="utf-8")
    status, text = error("--api", ADDRESS, "--api-users", users)
    assert status == 1 and "--api-client-ca names the authority" in text
    status, text = error("--api", ADDRESS, "--api-users", tmp_path / "none")
    assert status == 1 and f"cannot read {tmp_path}/none" in text
    for words in (("--remote", "http://192.0.2.1", "list"), ("--remote", "box", "list"), ("--remote", URL, "doctor")):
        assert subprocess.run([binary(), *words], check=False, capture_output=True).returncode != 0


def test_loopback_without_tls(make_bench, make_daemon, tmp_path):
    users, token = tmp_path / "users", tmp_path / "token"
    token.write_text(run(binary(), "token", users, "ci", "operate").stdout, encoding="utf-8")
    daemon = make_daemon(make_bench().mbox, "", arguments=("--api", "127.0.0.1:9080", "--api-users", users))
    wait.until(lambda: "API on http://127.0.0.1:9080" in daemon.log(), "the address in the log")
    options = ("--remote", "http://127.0.0.1:9080")
    daemon.namespace.run(binary(), "add", "all", "drop", *options, "--token-file", token)
    assert len(daemon.rules()) == 1
    result = daemon.namespace.run(binary(), "list", *options, check=False)
    assert result.returncode == 1 and "this needs a token" in result.stderr
    # A name that an attacker makes lead to the loopback address.
    answer = daemon.namespace.run(
        "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--resolve", "evil.example:9080:127.0.0.1", "-H",
        "Authorization: Bearer " + token.read_text(encoding="utf-8").strip(), "http://evil.example:9080/v1/rules",
    )
    assert answer.stdout == "403"
