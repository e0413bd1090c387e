use super::*;
use crate::shared::http::testing::{answer_of, made, read_head};

fn rewritten(args: &[&str], target: &str) -> Result<String, L7Verdict> {
    let function: UrlRewrite = made(args).unwrap();
    let mut message = read_head(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    match answer_of(&function, &mut message) {
        L7Verdict::Pass => Ok(String::from_utf8_lossy(message.target()).into_owned()),
        other => Err(other),
    }
}

fn location(args: &[&str], target: &str) -> (u16, String) {
    match rewritten(args, target).unwrap_err() {
        L7Verdict::Answer(answer) => (answer.status, String::from_utf8_lossy(&answer.headers).into_owned()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_rule_that_matches_counts() {
    let args = ["^/old/(.*)", "/new/$1", "^/old", "/other", "^/moved/(.*)", "/$1", "redirect", "308"];
    assert_eq!(rewritten(&args, "/old/a?b=c").as_deref(), Ok("/new/a?b=c"));
    assert_eq!(rewritten(&args, "/old").as_deref(), Ok("/other"));
    assert_eq!(rewritten(&args, "/same").as_deref(), Ok("/same"));
    assert_eq!(location(&args, "/moved/x?y"), (308, "Location: /x?y\r\n".into()));
}

#[test]
fn a_redirect_stays_on_the_host() {
    let args = ["^/r/(.*)", "/$1", "redirect", "302"];
    for target in ["/r//evil.example/x", "/r/\\evil.example/x", "/r///evil.example/x"] {
        assert_eq!(location(&args, target).1, "Location: /evil.example/x\r\n", "{target}");
    }
}

#[test]
fn a_path_that_would_be_invalid_stays() {
    assert_eq!(rewritten(&["^/a", "b"], "/a").as_deref(), Ok("/a"));
}

#[test]
fn errors_name_what_is_wrong() {
    for (args, named) in [
        (&[][..], "1 to 256 rules"),
        (&["^/a"], "`^/a`"),
        (&["(", "/"], "`(`"),
        (&["^/a", "/$1"], "no group 1"),
        (&["^/a", "/b", "redirect"], "a status"),
        (&["^/a", "/b", "redirect", "200"], "`200`"),
    ] {
        let error = made::<UrlRewrite>(args).err().unwrap().to_string();
        assert!(error.contains(named), "{args:?}: {error}");
    }
}
