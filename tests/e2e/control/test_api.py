"""The control API on its Unix socket, compared with the OpenAPI document that it serves."""

import concurrent.futures
import json
import struct

import pytest

from lab.daemon import mmb

# A capture file with a frame that no rule understands.
CAPTURE = struct.pack("<IHHiIIIIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1, 0, 0, 60, 60) + bytes(60)
# What each operation needs to be answered with success; {rule} is the index of an existing rule.
BODIES = {
    ("post", "/v1/command"): {"line": "list"},
    ("post", "/v1/print"): {"line": "list"},
    ("post", "/v1/apply"): b"add udp-dport 2 drop\n",
    ("post", "/v1/diff"): b"add udp-dport 2 drop\n",
    ("post", "/v1/check"): b"add udp-dport 2 drop\n",
    ("post", "/v1/rules"): {"rule": "add udp-dport 3 drop"},
    ("post", "/v1/explain"): b"a frame that no rule understands",
    ("post", "/v1/explain/capture"): CAPTURE,
    ("post", "/v1/capture"): {"line": "capture seconds 1"},
    ("post", "/v1/sets/{set}/elements"): {"elements": ["80"], "timeout": 60},
    ("delete", "/v1/sets/{set}/elements"): {"elements": ["443"]},
}
# What ends without packets, and what has to be named.
QUERIES = {"/v1/trace": "?seconds=1", "/v1/explain": "?interface=n", "/v1/explain/capture": "?interface=n&packet=1"}


@pytest.fixture
def daemon(make_daemon, root):
    return make_daemon()


def document(daemon):
    status, body = daemon.request("GET", "/v1/openapi.json")
    assert status == 200
    return json.loads(body)


def test_document_is_openapi(daemon):
    served = document(daemon)
    assert served["openapi"].startswith("3.")
    assert {"/v1/rules", "/v1/command", "/v1/apply", "/metrics"} <= set(served["paths"])


def test_every_path_of_the_document_answers_as_documented(daemon):
    for path, operations in document(daemon)["paths"].items():
        for method, operation in operations.items():
            index = daemon.add("udp-dport 1 drop")
            daemon.line("interface add n null", check=False)
            daemon.line("set add web port", check=False)
            daemon.line("set web add 443")
            if path == "/v1/confirm":
                assert daemon.request("POST", "/v1/apply?confirm=60", b"add udp-dport 4 drop\n")[0] == 200
            body = BODIES.get((method, path))
            assert ("requestBody" in operation) == (body is not None), f"{method} {path}"
            data = json.dumps(body).encode() if isinstance(body, dict) else body
            place = path.replace("{rule}", str(index)).replace("{revision}", "1").replace("{set}", "web") + QUERIES.get(path, "")
            status, answer = daemon.request(method.upper(), place, data)
            assert str(status) in operation["responses"] and status < 300, f"{method} {path}: {status} {answer[:500]}"
            kinds = operation["responses"][str(status)]["content"]
            # Where both can be had, JSON is what comes unasked, but for a line's printed answer.
            kind = "application/json"
            if kind in kinds and path != "/v1/print":
                matches(
                    json.loads(answer), operation["responses"][str(status)]["content"][kind]["schema"], document(daemon)
                )


def matches(value, schema, served):
    """A small check of a value against a JSON schema: types, required and known properties."""
    if "$ref" in schema:
        schema = served["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    if "oneOf" in schema or "anyOf" in schema:
        return
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    names = {
        dict: "object",
        list: "array",
        str: "string",
        bool: "boolean",
        int: "integer",
        float: "number",
        type(None): "null",
    }
    name = names[type(value)]
    assert kinds == [None] or name in kinds or (name == "integer" and "number" in kinds), f"{value!r} is no {kinds}"
    if name == "array":
        for item in value:
            matches(item, schema["items"], served)
    if name == "object" and "properties" in schema:
        assert set(schema.get("required", ())) <= set(value)
        assert set(value) <= set(schema["properties"]), f"undocumented: {set(value) - set(schema['properties'])}"
        for key, item in value.items():
            matches(item, schema["properties"][key], served)


def test_metrics(daemon):
    daemon.add("udp-dport 1 drop")
    status, body = daemon.request("GET", "/metrics")
    assert status == 200
    text = body.decode()
    for expected in ('reason="rule"', 'reason="ip4-malformed"', "# TYPE"):
        assert expected in text


def test_rules_over_http(daemon):
    status, body = daemon.request("POST", "/v1/rules", b'{"rule": "add udp-dport 1 drop"}')
    assert status == 201
    index = json.loads(body)["index"]
    assert [rule["index"] for rule in json.loads(daemon.request("GET", "/v1/rules")[1])["rules"]] == [index]
    assert daemon.request("DELETE", f"/v1/rules/{index}")[0] == 200
    assert daemon.request("DELETE", f"/v1/rules/{index}")[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "unknown"),
    [
        ("POST", "/v1/apply?confirm_in=60", b"add udp-dport 2 drop\n", "confirm_in"),
        ("POST", "/v1/rollback?rev=1", b"", "rev"),
        ("POST", "/v1/rules", b'{"rule": "add udp-dport 2 drop", "once": true}', "once"),
        ("DELETE", "/v1/rules?matches=udp-dport%209", b"", "matches"),
        ("DELETE", "/v1/connections?matches=udp-dport%209", b"", "matches"),
        ("POST", "/v1/sets/web/elements", b'{"elements": ["80"], "timout": 60}', "timout"),
    ],
)
def test_unknown_parameters_are_refused(daemon, method, path, body, unknown):
    """A misspelt one would be taken for absent, which means more: without a way back, all rules, or for ever."""
    daemon.line("set add web port")
    daemon.add("udp-dport 1 drop")
    before = daemon.command("show", "config").stdout
    status, reply = daemon.request(method, path, body)
    assert status == 400 and f"unknown field `{unknown}`" in json.loads(reply)["error"], reply
    assert daemon.command("show", "config").stdout == before
    assert json.loads(daemon.request("GET", "/v1/sets/web")[1])["elements"] == []


def test_rules_are_added_while_others_add_and_a_long_change_is_made(daemon):
    """Concurrent changes are all applied, and reads are answered meanwhile."""
    many = "".join(f"add ip-saddr 10.{n >> 8}.{n & 255}.0/24 tcp-dport {n % 60_000 + 1} drop\n" for n in range(20_000))

    def add(port):
        rules = [json.dumps({"rule": f"add tcp-dport {port} tcp-sport {n} drop"}).encode() for n in range(1, 51)]
        answers = [daemon.request("POST", "/v1/rules", rule) for rule in rules]
        assert {status for status, _ in answers} == {201}
        return [json.loads(body)["index"] for _, body in answers]

    with concurrent.futures.ThreadPoolExecutor() as pool:
        applied = pool.submit(daemon.request, "POST", "/v1/apply", many.encode())
        while not applied.done():
            assert daemon.request("GET", "/v1/version")[0] == 200
            assert daemon.request("POST", "/v1/rules", b'{"rule": "add udp-dport 1 drop"}')[0] == 201
        assert applied.result()[0] == 200
        before = len(daemon.rules())
        indexes = [index for some in pool.map(add, range(1, 5)) for index in some]
    assert len(set(indexes)) == 200 and len(daemon.rules()) == before + 200


def test_json_of_a_command_is_the_document_of_its_path(daemon):
    daemon.add("udp-dport 1 drop")
    for words, path in ((["list"], "/v1/rules"), (["show", "tables"], "/v1/tables"), (["show", "drops"], "/v1/drops")):
        assert json.loads(mmb(*words, "--socket", daemon.socket, "--json").stdout) == json.loads(
            daemon.request("GET", path)[1]
        )
