"""The Python client in clients/python, on the control socket and on the network."""

import importlib
import json
import subprocess
import sys

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether

from lab.daemon import ROOT, mmb

CLIENT = ROOT / "clients" / "python"


@pytest.fixture(scope="module")
def package():
    sys.path.insert(0, str(CLIENT))
    yield importlib.import_module("mmb_client")
    sys.path.remove(str(CLIENT))


@pytest.fixture
def daemon(make_bench, make_daemon, tmp_path):
    users = tmp_path / "users"
    (tmp_path / "token").write_text(mmb("token", users, "ci", "operate").stdout, encoding="utf-8")
    config = "interface add n null\nset add blocked address\n"
    return make_daemon(make_bench().mbox, config, arguments=("--api", "127.0.0.1:9080", "--api-users", users))


def test_the_client_is_the_one_of_the_api(make_daemon, tmp_path):
    document = make_daemon().request("GET", "/v1/openapi.json")[1]
    written = tmp_path / "api.py"
    subprocess.run([ROOT / "tools/generate-client", written], input=document, check=True)
    assert written.read_bytes() == (CLIENT / "mmb_client/api.py").read_bytes(), "run tools/generate-client"


def test_each_operation_is_a_method(package, daemon):
    paths = json.loads(daemon.request("GET", "/v1/openapi.json")[1])["paths"]
    operations = {operation["operationId"] for verbs in paths.values() for operation in verbs.values()}
    assert {name for name in vars(package.Client) if not name.startswith("_")} == operations
    client = package.Client(daemon.socket)
    # Every query without parameters answers.
    for path, verbs in paths.items():
        if "get" in verbs and "{" not in path and path != "/v1/trace":
            assert getattr(client, verbs["get"]["operationId"])(), path


def test_rules_sets_and_errors(package, daemon):
    client = package.Client(daemon.socket)
    assert client.add_rule('add tcp-dport 80 drop comment "a/b?c" name web')["index"] == 1
    assert client.rules(match="tcp-dport 80")["rules"][0]["comment"] == "a/b?c"
    client.add_elements("blocked", ["192.0.2.7"], timeout=600)
    assert client.set("blocked")["elements"][0]["element"] == "192.0.2.7"
    client.delete_elements("blocked", ["192.0.2.7"])
    assert client.delete_rule("web")["done"]
    assert client.command("list", format="text")["text"] == client.print("list")
    with pytest.raises(package.ApiError) as error:
        client.delete_rule("web")
    assert error.value.status == 404 and str(error.value) == "there is no rule web"
    with pytest.raises(package.ApiError) as error:
        client.check("add all drop\nadd tcp-dport x drop\n")
    assert error.value.diagnostics[0]["line"] == 2
    with pytest.raises(package.ApiError) as error:
        client.apply("")
    assert error.value.status == 400
    assert client.apply("", allow_empty=True)["done"]


def test_a_frame_is_explained(package, daemon):
    """The frame is scapy's; the values are those that it was made of."""
    client = package.Client(daemon.socket)
    client.add_rule("add tcp-dport 80 drop")
    client.add_rule("add udp-dport 53 accept")
    frame = Ether() / IP(src="192.0.2.7", dst="198.51.100.1") / UDP(sport=5000, dport=53)
    reply = client.explain("n", bytes(frame))
    assert reply["summary"] == "udp 192.0.2.7:5000 > 198.51.100.1:53" and reply["length"] == len(frame)
    (matched, other) = reply["rules"]
    assert (matched["index"], matched["matches"], "decider" in reply) == (2, True, False)
    assert (other["index"], other["matches"], other["checks"][0]["holds"]) == (1, False, False)
    web = Ether() / IP(src="192.0.2.7", dst="198.51.100.1") / TCP(dport=80, flags="S")
    assert client.explain("n", bytes(web))["decider"] == 1
    assert client.explain("n", bytes(web)[:30])["parse_error"]
    assert [rule["packets"] for rule in client.rules()["rules"]] == [0, 0]
    for arguments, status in ((("n", b""), 400), (("nowhere", bytes(web)), 404), (("n", bytes(web), "x"), 404)):
        with pytest.raises(package.ApiError) as error:
            client.explain(*arguments)
        assert error.value.status == status


def test_a_capture_comes_in_pieces(package, daemon):
    pieces = package.Client(daemon.socket).capture("capture seconds 1")
    # The block type of pcapng's section header.
    assert b"".join(pieces)[:4] == bytes.fromhex("0a0d0d0a")


def test_the_network_needs_the_token(package, daemon, tmp_path):
    token = (tmp_path / "token").read_text(encoding="utf-8").strip()
    with daemon.namespace.entered():
        client = package.Client(url="http://127.0.0.1:9080", token=token)
        client.add_rule("add udp-dport 9 drop")
        assert client.history()["revisions"][0]["name"] == "ci"
        with pytest.raises(package.ApiError) as error:
            package.Client(url="http://127.0.0.1:9080").rules()
    assert error.value.status == 401
    for url in ("http://192.0.2.1:9080", "http://box", "ftp://127.0.0.1"):
        with pytest.raises(ValueError):
            package.Client(url=url, token=token)
