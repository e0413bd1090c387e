//! The API against its OpenAPI document.

use serde_json::{Value, json};

use crate::harness::{Daemon, Response, daemon};

/// The endpoints of the interface.
const ENDPOINTS: [(&str, &[&str]); 36] = [
    ("/metrics", &["get"]),
    ("/v1/apply", &["post"]),
    ("/v1/brokers", &["get"]),
    ("/v1/capture", &["post"]),
    ("/v1/chains", &["get"]),
    ("/v1/check", &["post"]),
    ("/v1/command", &["post"]),
    ("/v1/config", &["get"]),
    ("/v1/confirm", &["post"]),
    ("/v1/connections", &["delete", "get"]),
    ("/v1/diff", &["post"]),
    ("/v1/domains", &["get"]),
    ("/v1/drops", &["get"]),
    ("/v1/explain", &["post"]),
    ("/v1/explain/capture", &["post"]),
    ("/v1/fast-path", &["get"]),
    ("/v1/fib", &["get"]),
    ("/v1/fields", &["get"]),
    ("/v1/functions", &["get"]),
    ("/v1/history", &["get"]),
    ("/v1/history/{revision}", &["get"]),
    ("/v1/interfaces", &["get"]),
    ("/v1/nat", &["get"]),
    ("/v1/neighbors", &["get"]),
    ("/v1/openapi.json", &["get"]),
    ("/v1/print", &["post"]),
    ("/v1/rollback", &["post"]),
    ("/v1/rules", &["delete", "get", "post"]),
    ("/v1/rules/{rule}", &["delete"]),
    ("/v1/runtime", &["get"]),
    ("/v1/sets", &["get"]),
    ("/v1/sets/{set}", &["get"]),
    ("/v1/sets/{set}/elements", &["delete", "post"]),
    ("/v1/tables", &["get"]),
    ("/v1/trace", &["get"]),
    ("/v1/version", &["get"]),
];

const JSON: &str = "application/json";

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// The document tells which credentials clients show; on the control socket they need none.
#[test]
fn the_document_names_credentials() {
    let document = document(&daemon());
    let schemes = &document["components"]["securitySchemes"];
    assert_eq!((&schemes["token"]["type"], &schemes["token"]["scheme"]), (&"http".into(), &"bearer".into()));
    assert_eq!(schemes["certificate"]["type"], "mutualTLS");
    assert_eq!(document["security"], serde_json::json!([{}, {"token": []}, {"certificate": []}]));
}

fn document(daemon: &Daemon) -> Value {
    let response = daemon.http("GET", "/v1/openapi.json", "application/json", b"");
    assert_eq!(response.status, 200);
    response.json()
}

/// Asserts that the document describes the response, and that the body has the schema of the document.
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
    // References of the schema point into `components` of the document.
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
fn unknown_methods_and_paths_are_refused_with_a_document() {
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

/// Sends requests and validates the responses by the OpenAPI document.
struct Checker {
    daemon: Daemon,
    document: Value,
}

impl Checker {
    fn new() -> Checker {
        let daemon = daemon();
        let document = document(&daemon);
        Checker { daemon, document }
    }

    /// Sends a request to `uri`, which belongs to the endpoint `path`.
    fn call(&self, method: &str, path: &str, uri: &str, media: &str, body: &str, status: u16) -> Response {
        let response = self.daemon.http(&method.to_uppercase(), uri, media, body.as_bytes());
        let text = String::from_utf8_lossy(&response.body).into_owned();
        assert_eq!(response.status, status, "{method} {uri} {body}: {text}");
        validate(&self.document, method, path, &response);
        response
    }

    /// Sends a request with a JSON document.
    fn json(&self, method: &str, path: &str, uri: &str, body: &str, status: u16) -> Response {
        self.call(method, path, uri, JSON, body, status)
    }

    /// Posts a text.
    fn post_text(&self, path: &str, body: &str, status: u16) {
        self.call("post", path, path, "text/plain", body, status);
    }

    /// Runs lines of the language, each with the status that it must get.
    fn commands(&self, lines: &[(&str, u16)]) {
        for (line, status) in lines {
            let body = json!({ "line": line }).to_string();
            self.json("post", "/v1/command", "/v1/command", &body, *status);
        }
    }
}

#[test]
fn replies_to_commands_have_their_schema() {
    let checker = Checker::new();
    checker.commands(&[("interface add a null", 200), ("interface add b null", 200), ("wire a b", 200)]);
    let shows = [
        "list",
        "show tables",
        "show interfaces",
        "show runtime",
        "show drops",
        "show fast-path",
        "show brokers",
        "show domains",
        "show version",
        "show connections",
        "show nat",
        "show chains",
        "show functions",
        "show fib",
        "show neighbors",
    ];
    checker.commands(&shows.map(|line| (line, 200)));
    checker.commands(&[
        ("nat pool add p 192.0.2.1", 200),
        ("nat forward add tcp 192.0.2.1 80 to 10.0.0.1 80", 200),
        ("nat pool add p 192.0.2.2", 409),
        ("nat pool del q", 404),
        ("nf add x probe", 200),
        ("nf add x probe", 409),
        ("nf add y probe nonsense", 409),
        ("nf add y telescope", 404),
        ("nf set x nonsense", 400),
        ("nf set x sense", 200),
        ("chain add c x", 200),
        ("chain add c x", 409),
        ("chain set c y", 404),
        ("nf del x", 409),
        ("add-stateful ip-df chain c", 200),
        ("show chains verbose", 200),
        ("show functions verbose", 200),
        ("clear connections", 200),
        ("route a", 409),
        ("route del a", 409),
        ("route nowhere", 404),
        ("add in a ip-proto udp drop", 200),
        ("add ip-prot udp drop", 400),
        ("interface add a null", 409),
        ("interface add c af-packet no-such-if0", 422),
        ("del 77", 404),
        ("# nothing", 200),
    ]);
    checker.json("post", "/v1/command", "/v1/command", "{", 400);
    for (line, format, status) in [("list", "text", 200), ("list", "json", 200), ("list now", "json", 400)] {
        let body = json!({ "line": line, "format": format }).to_string();
        checker.json("post", "/v1/print", "/v1/print", &body, status);
    }
}

#[test]
fn replies_to_queries_have_their_schema() {
    let checker = Checker::new();
    for method in ["get", "delete"] {
        for (query, status) in [
            ("", 200),
            ("?match=tcp-dport%2080", 200),
            ("?match=tcp-win%2080", 400),
            ("?match=in%20nowhere", 404),
        ] {
            checker.json(method, "/v1/connections", &format!("/v1/connections{query}"), "", status);
        }
    }
    for path in ["/v1/fib", "/v1/neighbors"] {
        for (query, status) in
            [("", 200), ("?prefix=192.0.2.1", 200), ("?prefix=2001:db8::/32", 200), ("?prefix=x", 400)]
        {
            checker.json("get", path, &format!("{path}{query}"), "", status);
        }
    }
    // What is sent while packets pass comes in chunks.
    let traced = checker.daemon.http("GET", "/v1/trace?seconds=1", JSON, b"");
    assert_eq!(traced.status, 200);
    assert!(String::from_utf8_lossy(&traced.body).contains("{\"packets\":["));
    for (query, status) in [("match=out%20a", 404), ("count=0", 400)] {
        checker.json("get", "/v1/trace", &format!("/v1/trace?{query}"), "", status);
    }
    for (line, status) in
        [("capture drops seconds 1", 200), ("capture drop", 400), ("capture rule 7", 404), ("list", 400)]
    {
        let body = json!({ "line": line }).to_string();
        checker.json("post", "/v1/capture", "/v1/capture", &body, status);
    }
    checker.daemon.run("interface add f null").unwrap();
    for (query, frame, status) in [
        ("interface=f", "not a frame", 200),
        ("interface=f&out=f", "\0", 200),
        ("interface=f", "", 400),
        ("", "frame", 400),
        ("interface=nowhere", "frame", 404),
        ("interface=f&out=nowhere", "frame", 404),
    ] {
        checker.json("post", "/v1/explain", &format!("/v1/explain?{query}"), frame, status);
    }
    checker.json("get", "/v1/fib", "/v1/fib?limit=3", "", 200);
    checker.json("get", "/v1/fib", "/v1/fib?limit=many", "", 400);
    let error = checker.daemon.http("GET", "/v1/connections?match=in%20nowhere", JSON, b"").json();
    let place = &error["diagnostics"][0];
    assert_eq!((&place["start"], &place["end"], &place["column"]), (&json!(3), &json!(10), &json!(4)));
}

#[test]
fn replies_to_files_and_rules_have_their_schema() {
    let checker = Checker::new();
    checker.post_text("/v1/check", "add all drop\n", 200);
    checker.post_text("/v1/check", "add all dorp\n", 400);
    checker.post_text("/v1/diff", "add all drop\n", 200);
    checker.post_text("/v1/diff", "add\n", 400);
    checker.post_text("/v1/apply", "add all drop\n", 200);
    checker.post_text("/v1/apply", "\u{0}", 400);
    checker.post_text("/v1/apply", "interface add x af-packet no-such-if0\n", 422);
    let rules = |body: &str, status| checker.json("post", "/v1/rules", "/v1/rules", body, status);
    let added = rules(r#"{"rule": "add ip-df drop"}"#, 201).json();
    rules(r#"{"rule": "list"}"#, 400);
    rules(r#"{}"#, 400);
    rules(r#"{"rule": "add in nowhere drop"}"#, 404);
    let delete = |uri: &str, status| checker.json("delete", "/v1/rules/{rule}", uri, "", status);
    let uri = format!("/v1/rules/{}", added["index"]);
    delete(&uri, 200);
    delete(&uri, 404);
    delete("/v1/rules/one", 404);
    delete("/v1/rules/0", 400);
    checker.json("delete", "/v1/rules", "/v1/rules", "", 200);
}

#[test]
fn replies_about_sets_have_their_schema() {
    let checker = Checker::new();
    checker.commands(&[("set add b address timeout 1h", 200), ("add ip-saddr @b block", 200)]);
    let path = "/v1/sets/{set}/elements";
    let change = |method: &str, uri: &str, body: &str, status| checker.json(method, path, uri, body, status);
    let uri = "/v1/sets/b/elements";
    change("post", uri, r#"{"elements": ["192.0.2.1", "::1"], "timeout": 60, "comment": "why"}"#, 200);
    change("post", uri, r#"{"elements": ["192.0.2.0/24"]}"#, 400);
    change("post", uri, r#"{"elements": []}"#, 400);
    change("post", uri, r#"{"elements": ["192.0.2.1"], "timeout": 0}"#, 400);
    change("post", "/v1/sets/c/elements", r#"{"elements": ["192.0.2.1"]}"#, 404);
    let sets = checker.json("get", "/v1/sets", "/v1/sets", "", 200).json();
    assert_eq!((&sets["sets"][0]["elements"], &sets["sets"][0]["rules"]), (&json!(2), &json!([1])));
    let list = checker.json("get", "/v1/sets/{set}", "/v1/sets/b", "", 200).json();
    assert_eq!(list["elements"][0]["element"], "192.0.2.1");
    checker.json("get", "/v1/sets/{set}", "/v1/sets/c", "", 404);
    change("delete", uri, r#"{"elements": ["192.0.2.1"]}"#, 200);
    change("delete", uri, r#"{"elements": ["192.0.2.1"]}"#, 404);
}

#[test]
fn documents_have_their_schema() {
    let checker = Checker::new();
    checker.commands(&[
        ("set add s port", 200),
        ("interface add a null", 200),
        ("interface add b null", 200),
        ("wire a b", 200),
        ("nat pool add p 192.0.2.1", 200),
        ("nf add x probe", 200),
        ("chain add c x", 200),
        ("add-stateful ip-df chain c", 200),
        ("add in a ip-proto udp drop", 200),
    ]);
    for path in [
        "rules",
        "tables",
        "interfaces",
        "runtime",
        "drops",
        "fast-path",
        "brokers",
        "domains",
        "sets",
        "fields",
        "version",
        "config",
        "nat",
        "chains",
        "functions",
        "openapi.json",
    ] {
        let path = format!("/v1/{path}");
        checker.json("get", &path, &path, "", 200);
    }
    checker.json("get", "/metrics", "/metrics", "", 200);
}

#[test]
fn replies_have_the_parts_of_the_format() {
    let daemon = daemon();
    for (format, text, document) in [("text", true, false), ("json", false, true), ("both", true, true)] {
        let body = json!({ "line": "list", "format": format }).to_string();
        let reply = daemon.http("POST", "/v1/command", "application/json", body.as_bytes()).json();
        assert_eq!(reply.get("text").is_some(), text, "{format}");
        assert_eq!(reply.get("json").is_some(), document, "{format}");
    }
}
