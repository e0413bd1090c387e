use proptest::prelude::*;

use super::Literals;
use crate::Pattern;

fn literals(words: &[&str], ignores_case: bool) -> Literals {
    let parse = |word: &&str| Pattern::parse(word, ignores_case).unwrap();
    Literals::new(&words.iter().map(parse).collect::<Vec<_>>()).unwrap()
}

/// The naive way over a whole text: at each position the longest literal.
fn replaced(words: &[String], text: &[u8], ignores_case: bool) -> Vec<u8> {
    let is_at = |at: usize, word: &str| {
        text.get(at..at + word.len()).is_some_and(|bytes| match ignores_case {
            true => bytes.eq_ignore_ascii_case(word.as_bytes()),
            false => bytes == word.as_bytes(),
        })
    };
    let (mut out, mut at) = (Vec::new(), 0);
    while at < text.len() {
        match words.iter().filter(|word| is_at(at, word)).map(|word| word.len()).max() {
            Some(len) => {
                out.push(b'#');
                at += len;
            }
            None => {
                out.push(text[at]);
                at += 1;
            }
        }
    }
    out
}

/// What a function does that gets chunks, and again what it has held back.
fn streamed(literals: &Literals, chunks: &[&[u8]]) -> Vec<u8> {
    let (mut out, mut held) = (Vec::new(), Vec::new());
    for (n, chunk) in chunks.iter().enumerate() {
        held.extend_from_slice(chunk);
        let mut at = 0;
        let open = literals.scan(&held, n + 1 == chunks.len(), |range| {
            out.extend_from_slice(&held[at..range.start]);
            out.push(b'#');
            at = range.end;
        });
        out.extend_from_slice(&held[at..open]);
        assert!(held.len() - open < literals.longest(), "no more waits than the longest literal");
        held.drain(..open);
    }
    assert!(held.is_empty());
    out
}

proptest! {
    #[test]
    fn chunks_do_not_matter(
        words in proptest::collection::vec("[abAB]{1,5}", 1..6),
        text in "[abABc]{0,40}",
        cuts in proptest::collection::vec(0_usize..41, 0..6),
        ignores_case: bool,
    ) {
        let compiled = literals(&words.iter().map(String::as_str).collect::<Vec<_>>(), ignores_case);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let chunks: Vec<&[u8]> = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]).collect();
        let expected = replaced(&words, text.as_bytes(), ignores_case);
        prop_assert_eq!(streamed(&compiled, &chunks), expected);
    }
}

#[test]
fn a_literal_that_may_go_on_waits() {
    let set = literals(&["ab", "abc"], false);
    let mut found = Vec::new();
    assert_eq!(set.scan(b"xab", false, |range| found.push(range)), 1);
    assert!(found.is_empty());
    assert_eq!(set.scan(b"abd", false, |range| found.push(range)), 3);
    assert_eq!((found.len(), &found[0]), (1, &(0..2)));
}

#[test]
fn regular_expressions_are_refused() {
    let patterns = [Pattern::parse("a", false).unwrap(), Pattern::parse("/b+/", false).unwrap()];
    let error = Literals::new(&patterns).unwrap_err();
    assert_eq!((error.index(), error.to_string().contains("literals")), (Some(1), true));
}
