//! Properties of the search for any patterns and streams. The fuzz target `search` runs them on the fuzzer's
//! bytes. A test of the crate runs them on the corpus and on random bytes.
//!
//! * Any text is a pattern, or is refused.
//! * Wherever a stream is cut, both backends report the same ends of the same literals.
//! * Streams that take turns do not disturb each other.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use mmb_search::{Backend, Expression, Match, Pattern, PatternSet, Scan};

/// Most patterns of an input: compilation takes longer than the search.
const MOST_PATTERNS: usize = 8;

/// Runs the input `bytes`: lines with patterns up to a zero byte, and then chunks. The first byte of a chunk
/// is its length, whose highest bit is the number of the stream. Panics if a property does not hold.
pub fn check(bytes: &[u8]) {
    let at = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let (lines, chunks) = bytes.split_at(at);
    let text = String::from_utf8_lossy(lines);
    let patterns = text.lines().take(MOST_PATTERNS).filter_map(|line| {
        let (ignores_case, line) = line.strip_prefix('~').map_or((false, line), |line| (true, line));
        Pattern::parse(line, ignores_case).ok()
    });
    let literals: Vec<_> = patterns.filter(|one| matches!(one.expression, Expression::Literal(_))).collect();
    if literals.is_empty() {
        return;
    }
    let found = [Backend::AhoCorasick, Backend::Hyperscan].map(|backend| {
        let set = PatternSet::compile_with(backend, literals.clone()).ok()?;
        Some(search(&mut *set.scanner(2).expect("memory"), chunks.get(1..).unwrap_or(&[])))
    });
    let expected = [0, 1].map(|stream| naive(&literals, &content(chunks.get(1..).unwrap_or(&[]), stream)));
    assert_eq!(found[0].as_ref(), Some(&expected), "literals are always compiled");
    // Where the library is not installed, there is nothing to compare.
    if Backend::best() == Backend::Hyperscan {
        assert_eq!(found[1].as_ref(), Some(&expected));
    }
}

type Matches = BTreeSet<Match>;

/// Calls a closure with the stream and the bytes of each chunk.
fn each_chunk<'a>(mut rest: &'a [u8], mut f: impl FnMut(usize, &'a [u8])) {
    while let Some((&first, behind)) = rest.split_first() {
        let (chunk, next) = behind.split_at(usize::from(first & 0x7f).min(behind.len()));
        f(usize::from(first >> 7), chunk);
        rest = next;
    }
}

fn content(chunks: &[u8], wanted: usize) -> Vec<u8> {
    let mut content = Vec::new();
    each_chunk(chunks, |stream, bytes| {
        if stream == wanted {
            content.extend(bytes);
        }
    });
    content
}

fn search(scanner: &mut dyn Scan, chunks: &[u8]) -> [Matches; 2] {
    let mut found = [Matches::new(), Matches::new()];
    let streams = [(); 2].map(|()| scanner.open().expect("room for two streams"));
    assert!(scanner.open().is_none());
    each_chunk(chunks, |stream, bytes| {
        let flow = scanner.scan(streams[stream], bytes, &mut |one| {
            assert!(found[stream].insert(one), "{one:?} is reported twice");
            ControlFlow::Continue(())
        });
        assert!(flow.is_continue());
    });
    found
}

fn naive(literals: &[Pattern], content: &[u8]) -> Matches {
    let mut found = Matches::new();
    for (pattern, one) in (0..).zip(literals) {
        let Expression::Literal(bytes) = &one.expression else { continue };
        let windows = content.windows(bytes.len()).enumerate();
        let is_match = |there: &[u8]| match one.ignores_case {
            true => there.eq_ignore_ascii_case(bytes),
            false => there == &**bytes,
        };
        let matches = windows.filter(|(_, there)| is_match(there));
        found.extend(matches.map(|(from, _)| Match { end: (from + bytes.len()) as u64, pattern }));
    }
    found
}
