//! All errors of a line, verbatim: `errors.txt` has the output for each line.

use mmb_lang::{Command, Diagnostic, check, check_filter, parse_line};

/// The error of a line, from the parser or the check.
fn error(line: &str) -> Option<Diagnostic> {
    match parse_line(line) {
        Ok(Some(Command::Add(rule))) => check(&rule).err(),
        Ok(Some(Command::ShowConnections { matches, .. } | Command::ClearConnections { matches })) => {
            check_filter(&matches).err()
        }
        Ok(_) => None,
        Err(error) => Some(error),
    }
}

#[test]
fn messages_and_carets() {
    for expected in include_str!("errors.txt").trim_end().split("\n\n") {
        let line = expected.lines().nth(1).unwrap().strip_prefix("  ").unwrap();
        let rendered = error(line).map(|error| error.render(line));
        assert_eq!(rendered.as_deref(), Some(expected), "{line}");
    }
}

#[test]
fn blanks_comments_and_mmb_shift_the_caret() {
    let line = "\tmmb  add\ttcp-dport  80x drop # why";
    let shown = "error: `80x` is not a number
   mmb  add tcp-dport  80x drop # why
                       ^^^
  help: `tcp-dport` takes 0 to 65535 or a service name";
    assert_eq!(error(line).unwrap().render(line), shown);
    let line = "add tcp-dport 80   # drop";
    let shown = "error: the rule has no target
  add tcp-dport 80   # drop
                  ^
  help: say what happens to the packets: mod <field> <value>, add, strip, drop or accept";
    assert_eq!(error(line).unwrap().render(line), shown);
}

#[test]
fn a_line_that_is_too_long() {
    let line = format!("add {} drop", "tcp-syn ".repeat(140_000));
    let error = error(&line).unwrap();
    assert_eq!(error.message, "the line has 1120009 bytes; a line may have 1048576 at most");
    let rendered = error.render(&line);
    assert!(rendered.len() < 500 && rendered.contains("\n  add tcp-syn tcp-syn "), "{rendered}");
    assert!(parse_line(&format!("add all drop{}", " ".repeat((1 << 20) - 12))).unwrap().is_some());
}

/// A chain with this many functions and branches, in parallel or in sequence.
fn chain_of(parts: usize, side_by_side: bool) -> String {
    match side_by_side {
        // The branch and its function.
        true => format!("chain add web [{}]", vec!["a"; parts / 2].join(",")),
        false => format!("chain add web {}", vec!["a"; parts].join("|")),
    }
}

#[test]
fn chains_have_bounds() {
    for side_by_side in [true, false] {
        assert_eq!(error(&chain_of(256, side_by_side)), None);
        let message = "a chain has 256 functions and branches at most, all brackets together";
        assert_eq!(error(&chain_of(258, side_by_side)).unwrap().message, message);
    }
    let nested = |depth: usize| format!("chain add web {}a{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(error(&nested(8)), None);
    assert_eq!(error(&nested(9)).unwrap().message, "brackets in a chain nest 8 deep at most");
    assert_eq!(error(&nested(500_000)).unwrap().span.start, 22);
    assert!(error(&format!("chain add web {}", "a [x: ".repeat(100_000))).is_some());
}

#[test]
fn a_long_line_is_shown_where_it_is_wrong() {
    let line = format!("add {}tcp-snn {}drop", "tcp-syn ".repeat(1000), "tcp-ack ".repeat(1000));
    let before = format!("yn {}", "tcp-syn ".repeat(8));
    let after = &"tcp-ack ".repeat(10)[..140 - 60 - 8];
    let shown = format!(
        "error: unknown field `tcp-snn`\n  …{}tcp-snn {after}…\n  {}^^^^^^^\n  help: did you mean `tcp-syn`?",
        &before[before.len() - 60..],
        " ".repeat(61)
    );
    assert_eq!(error(&line).unwrap().render(&line), shown);
}

#[test]
fn control_characters_reach_no_terminal() {
    let line = "add tcp-dport \u{1b}[31m80 drop";
    let shown = "error: the line contains the control character U+001B; rules are plain text
  add tcp-dport \u{fffd}[31m80 drop
                ^";
    assert_eq!(error(line).unwrap().render(line), shown);
    assert!(error("add all drop\0").is_some());
    assert!(error("add all drop\nadd all drop").is_some());
    assert!(error("add all drop\r\n").is_none());
    // Not a control character, but not printable either.
    let line = "add tcp-\u{202e}dport 80 drop";
    assert!(!error(line).unwrap().render(line).contains('\u{202e}'));
}

#[test]
fn a_diagnostic_travels_as_json() {
    let error = error("add tcp-dprot 80 drop").unwrap().at_line(3);
    let json = serde_json::to_string(&error).unwrap();
    assert_eq!(
        json,
        r#"{"line":3,"span":{"start":4,"end":13},"message":"unknown field `tcp-dprot`","help":"did you mean `tcp-dport`?"}"#
    );
    assert_eq!(serde_json::from_str::<Diagnostic>(&json).unwrap(), error);
    assert_eq!(error.to_string(), "unknown field `tcp-dprot`; did you mean `tcp-dport`?");
}
