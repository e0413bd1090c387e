//! Properties of all commands and all texts.

mod chains;
#[path = "../../../../fuzz/src/lang.rs"]
mod promises;
mod rules;

use std::path::Path;

use mmb_lang::{check, parse_line};
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Pieces of typing errors.
const PIECES: &[&str] = &[
    " ",
    "  ",
    "!",
    "=",
    "==",
    "<",
    ">=",
    "{",
    "}",
    ",",
    "-",
    "/",
    "\"",
    "\\",
    "#",
    "\n",
    "\0",
    "é",
    "0",
    "x",
    "0x",
    "65536",
    "/33",
    "not",
    "all",
    "add",
    "mod",
    "drop",
    "strip",
    "tcp-opt",
    "ip-ce",
    "ip-saddr",
    "tcp-payload",
    "in",
    "10.0.0.1",
    "|",
    "[",
    "]",
    ":",
    "else:",
    "then",
    "pass",
    "chain",
    "nf",
    "web",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn commands_print_as_lines_that_parse_to_them(command in rules::command()) {
        let text = command.to_string();
        let parsed = parse_line(&text).map_err(|error| error.render(&text));
        prop_assert_eq!(parsed, Ok(Some(command)), "{}", text);
    }

    /// The parser's result has the shape that the check requires of rules built by hand.
    #[test]
    fn rules_that_parse_are_well_formed(rule in rules::rule()) {
        if let Err(error) = check(&rule) {
            prop_assert!(!error.message.starts_with("malformed"), "{}: {}", rule, error);
        }
    }

    #[test]
    fn mutated_lines_keep_the_promises(
        command in rules::command(),
        slips in prop::collection::vec((any::<Index>(), select(PIECES), 0..6_usize), 1..4),
    ) {
        let mut line = command.to_string();
        for (at, piece, cut) in slips {
            let at = line.floor_char_boundary(at.index(line.len() + 1));
            let end = line.floor_char_boundary((at + cut).min(line.len())).max(at);
            line.replace_range(at..end, piece);
        }
        promises::check(line.as_bytes());
    }

    #[test]
    fn random_text_keeps_the_promises(text in "\\PC{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        promises::check(text.as_bytes());
        promises::check(&bytes);
    }

    #[test]
    fn random_words_keep_the_promises(words in prop::collection::vec(select(PIECES), 0..20)) {
        promises::check(format!("add {}", words.join(" ")).as_bytes());
        promises::check(words.concat().as_bytes());
        promises::check(format!("chain add web {}", words.join(" ")).as_bytes());
        promises::check(format!("nf add web count {}", words.join(" ")).as_bytes());
    }
}

#[test]
fn the_corpus_keeps_the_promises() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/lang");
    let mut seen = 0;
    for file in std::fs::read_dir(corpus).unwrap() {
        promises::check(&std::fs::read(file.unwrap().path()).unwrap());
        seen += 1;
    }
    assert!(seen > 10, "{seen} files in the corpus");
}
