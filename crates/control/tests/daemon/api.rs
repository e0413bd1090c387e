//! The API against its OpenAPI document.

use serde_json::{Value, json};

use crate::harness::{Daemon, Response, daemon};

/// The endpoints, as users know them.
const ENDPOINTS: [(&str, &[&str]); 23] = [
    ("/metrics", &["get"]),
    ("/v1/apply", &["post"]),
    ("/v1/chains", &["get"]),
    ("/v1/check", &["post"]),
    ("/v1/command", &["post"]),
    ("/v1/config", &["get"]),
    ("/v1/connections", &["delete", "get"]),
    ("/v1/diff", &["post"]),
    ("/v1/drops", &["get"]),
    ("/v1/fast-path", &["get"]),
    ("/v1/fib", &["get"]),
    ("/v1/fields", &["get"]),
    ("/v1/functions", &["get"]),
    ("/v1/interfaces", &["get"]),
    ("/v1/nat", &["get"]),
    ("/v1/neighbors", &["get"]),
    ("/v1/openapi.json", &["get"]),
    ("/v1/print", &["post"]),
    ("/v1/rules", &["delete", "get", "post"]),
    ("/v1/rules/{index}", &["delete"]),
    ("/v1/runtime", &["get"]),
    ("/v1/tables", &["get"]),
    ("/v1/version", &["get"]),
];

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

fn document(daemon: &Daemon) -> Value {
    let response = daemon.http("GET", "/v1/openapi.json", "application/json", b"");
    assert_eq!(response.status, 200);
    response.json()
}

/// Asserts that the document describes this response, and that its body is what the document says.
fn validate(document: &Value, method: &str, path: &str, response: &Response) {
    let operation = &document["paths"][path][method];
    let described = &operation["responses"][response.status.to_string()];
    assert!(described.is_object(), "{method} {path}: status {} is not described", response.status);
    let content = described["content"].as_object().unwrap();
    let (media, content) = content
        .iter()
        .find(|(media, _)| response.head.contains(&format!("content-type: {media}")))
        .unwrap_or_else(|| panic!("{method} {path}: not described: {}", response.head));
    if media != "application/json" {
        return;
    }
    // The schema's references point into the document; with it around the schema they resolve.
    let mut schema = content["schema"].clone();
    schema["components"] = document["components"].clone();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let body = response.json();
    let errors: Vec<_> =
        validator.iter_errors(&body).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{method} {path}: {errors:?} in {body}");
}

#[test]
fn the_document_lists_exactly_the_endpoints() {
    let daemon = daemon();
    let document = document(&daemon);
    let paths = document["paths"].as_object().unwrap();
    let mut found: Vec<(String, Vec<String>)> = paths
        .iter()
        .map(|(path, item)| {
            let mut methods: Vec<_> =
                item.as_object().unwrap().keys().filter(|k| METHODS.contains(&k.as_str())).cloned().collect();
            methods.sort();
            (path.clone(), methods)
        })
        .collect();
    found.sort();
    let expected: Vec<_> =
        ENDPOINTS.map(|(p, m)| (p.to_owned(), m.iter().map(|m| m.to_string()).collect::<Vec<_>>())).to_vec();
    assert_eq!(found, expected);
}

#[test]
fn methods_and_paths_that_are_not_described_are_refused_in_our_words() {
    let daemon = daemon();
    for (path, methods) in ENDPOINTS {
        let path = path.replace("{index}", "1");
        for method in METHODS.iter().filter(|m| !methods.contains(m)) {
            let response = daemon.http(&method.to_uppercase(), &path, "application/json", b"");
            assert_eq!(response.status, 405, "{method} {path}");
            assert!(response.json()["error"].is_string());
        }
    }
    let response = daemon.http("GET", "/v1/nothing", "application/json", b"");
    assert_eq!(response.status, 404);
    assert_eq!(response.json()["error"], "there is no GET /v1/nothing; see /v1/openapi.json");
}

#[test]
fn every_endpoint_answers_as_the_document_says() {
    let daemon = daemon();
    let document = document(&daemon);
    let call = |method: &str, path: &str, at: &str, media: &str, body: &str, status: u16| {
        let response = daemon.http(&method.to_uppercase(), at, media, body.as_bytes());
        let text = String::from_utf8_lossy(&response.body).into_owned();
        assert_eq!(response.status, status, "{method} {at} {body}: {text}");
        validate(&document, method, path, &response);
        response
    };
    let json = "application/json";
    let command = |line: &str, status| {
        let body = json!({ "line": line }).to_string();
        call("post", "/v1/command", "/v1/command", json, &body, status)
    };
    command("interface add a null", 200);
    command("interface add b null", 200);
    command("wire a b", 200);
    let looks = [
        "list",
        "show tables",
        "show interfaces",
        "show runtime",
        "show drops",
        "show fast-path",
        "show version",
        "show connections",
        "show nat",
        "show chains",
        "show functions",
        "show fib",
        "show neighbors",
    ];
    for line in looks {
        command(line, 200);
    }
    command("nat pool add p 192.0.2.1", 200);
    command("nat forward add tcp 192.0.2.1 80 to 10.0.0.1 80", 200);
    command("nat pool add p 192.0.2.2", 409);
    command("nat pool del q", 404);
    command("nf add x probe", 200);
    command("nf add x probe", 409);
    command("nf add y probe nonsense", 409);
    command("nf add y telescope", 404);
    command("nf set x nonsense", 400);
    command("nf set x sense", 200);
    command("chain add c x", 200);
    command("chain add c x", 409);
    command("chain set c y", 404);
    command("nf del x", 409);
    command("add-stateful ip-df chain c", 200);
    command("show chains verbose", 200);
    command("show functions verbose", 200);
    command("clear connections", 200);
    for (line, format, status) in [("list", "text", 200), ("list", "json", 200), ("list now", "json", 400)] {
        let body = json!({ "line": line, "format": format }).to_string();
        call("post", "/v1/print", "/v1/print", json, &body, status);
    }
    for method in ["get", "delete"] {
        for (query, status) in [
            ("", 200),
            ("?match=tcp-dport%2080", 200),
            ("?match=tcp-win%2080", 400),
            ("?match=in%20nowhere", 404),
        ] {
            let at = format!("/v1/connections{query}");
            call(method, "/v1/connections", &at, json, "", status);
        }
    }
    for path in ["/v1/fib", "/v1/neighbors"] {
        for (query, status) in
            [("", 200), ("?prefix=192.0.2.1", 200), ("?prefix=2001:db8::/32", 200), ("?prefix=x", 400)]
        {
            call("get", path, &format!("{path}{query}"), json, "", status);
        }
    }
    call("get", "/v1/fib", "/v1/fib?limit=3", json, "", 200);
    call("get", "/v1/fib", "/v1/fib?limit=many", json, "", 400);
    command("route a", 409);
    command("route del a", 409);
    command("route nowhere", 404);
    let error = daemon.http("GET", "/v1/connections?match=in%20nowhere", json, b"").json();
    let place = &error["diagnostics"][0];
    assert_eq!((&place["start"], &place["end"], &place["column"]), (&json!(3), &json!(10), &json!(4)));
    command("add in a ip-proto udp drop", 200);
    command("add ip-prot udp drop", 400);
    command("interface add a null", 409);
    command("interface add c af-packet no-such-if0", 422);
    command("del 77", 404);
    command("# nothing", 200);
    call("post", "/v1/command", "/v1/command", json, "{", 400);
    let text = "text/plain";
    call("post", "/v1/check", "/v1/check", text, "add all drop\n", 200);
    call("post", "/v1/check", "/v1/check", text, "add all dorp\n", 400);
    call("post", "/v1/diff", "/v1/diff", text, "add all drop\n", 200);
    call("post", "/v1/diff", "/v1/diff", text, "add\n", 400);
    call("post", "/v1/apply", "/v1/apply", text, "add all drop\n", 200);
    call("post", "/v1/apply", "/v1/apply", text, "\u{0}", 400);
    call("post", "/v1/apply", "/v1/apply", text, "interface add x af-packet no-such-if0\n", 422);
    let added = call("post", "/v1/rules", "/v1/rules", json, r#"{"rule": "add ip-df drop"}"#, 201).json();
    call("post", "/v1/rules", "/v1/rules", json, r#"{"rule": "list"}"#, 400);
    call("post", "/v1/rules", "/v1/rules", json, r#"{}"#, 400);
    call("post", "/v1/rules", "/v1/rules", json, r#"{"rule": "add in nowhere drop"}"#, 404);
    for path in [
        "rules",
        "tables",
        "interfaces",
        "runtime",
        "drops",
        "fast-path",
        "fields",
        "version",
        "config",
        "nat",
        "chains",
        "functions",
        "openapi.json",
    ] {
        let path = format!("/v1/{path}");
        call("get", &path, &path, json, "", 200);
    }
    call("get", "/metrics", "/metrics", json, "", 200);
    let index = &added["index"];
    call("delete", "/v1/rules/{index}", &format!("/v1/rules/{index}"), json, "", 200);
    call("delete", "/v1/rules/{index}", &format!("/v1/rules/{index}"), json, "", 404);
    call("delete", "/v1/rules/{index}", "/v1/rules/one", json, "", 400);
    call("delete", "/v1/rules", "/v1/rules", json, "", 200);
}

#[test]
fn replies_have_the_parts_that_were_asked_for() {
    let daemon = daemon();
    for (format, text, document) in [("text", true, false), ("json", false, true), ("both", true, true)] {
        let body = json!({ "line": "list", "format": format }).to_string();
        let reply = daemon.http("POST", "/v1/command", "application/json", body.as_bytes()).json();
        assert_eq!(reply.get("text").is_some(), text, "{format}");
        assert_eq!(reply.get("json").is_some(), document, "{format}");
    }
}
