//! Both backends, against each other and against naive models.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use proptest::prelude::*;

use super::*;

fn literal(bytes: &[u8], ignores_case: bool) -> Pattern {
    let text = format!("{bytes:?}").into();
    Pattern { text, expression: Expression::Literal(bytes.into()), ignores_case }
}

fn parse(text: &str) -> Pattern {
    Pattern::parse(text, false).unwrap()
}

/// What a scanner reports of a stream that comes in chunks.
fn found(scanner: &mut dyn Scan, chunks: &[&[u8]]) -> Vec<Match> {
    let stream = scanner.open().unwrap();
    let mut matches = BTreeSet::new();
    for chunk in chunks {
        let flow = scanner.scan(stream, chunk, &mut |one| {
            assert!(matches.insert(one), "{one:?} is reported twice");
            ControlFlow::Continue(())
        });
        assert!(flow.is_continue());
    }
    scanner.close(stream);
    matches.into_iter().collect()
}

fn cut<'a>(content: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut chunks = Vec::new();
    let mut rest = content;
    for &at in cuts {
        let (now, behind) = rest.split_at(at.min(rest.len()));
        chunks.push(now);
        rest = behind;
    }
    chunks.push(rest);
    chunks
}

const BACKENDS: [Backend; 2] = [Backend::Hyperscan, Backend::AhoCorasick];

proptest! {
    /// Wherever the chunks are cut, both backends report each end of each literal.
    #[test]
    fn literals_at_any_chunking(
        literals in prop::collection::vec((prop::collection::vec(prop::sample::select(b"abAB\0".to_vec()), 1..5), any::<bool>()), 1..6),
        content in prop::collection::vec(prop::sample::select(b"abAB\0".to_vec()), 0..60),
        cuts in prop::collection::vec(0..20usize, 0..8),
    ) {
        let patterns: Vec<_> = literals.iter().map(|(bytes, ignores_case)| literal(bytes, *ignores_case)).collect();
        let mut expected = Vec::new();
        for end in 1..=content.len() {
            for (number, (bytes, ignores_case)) in literals.iter().enumerate() {
                let there = end.checked_sub(bytes.len()).map(|from| &content[from..end]);
                let is_there = there.is_some_and(|there| match ignores_case {
                    true => there.eq_ignore_ascii_case(bytes),
                    false => there == bytes,
                });
                if is_there {
                    expected.push(Match { end: end as u64, pattern: number as u32 });
                }
            }
        }
        for backend in BACKENDS {
            let set = PatternSet::compile_with(backend, patterns.clone()).unwrap();
            let mut scanner = set.scanner(4).unwrap();
            prop_assert_eq!(&found(&mut *scanner, &cut(&content, &cuts)), &expected, "{:?}", backend);
        }
    }

    /// A regular expression matches at an end if it matches the whole of any range with this end.
    #[test]
    fn regular_expressions_at_any_chunking(
        text in "[ab]([ab]|\\.|\\[ab\\]\\+|\\(a\\|bc\\)|c\\?|\\[\\^a\\]\\{1,3\\}){0,4}",
        ignores_case: bool,
        content in prop::collection::vec(prop::sample::select(b"abcABC\n".to_vec()), 0..20),
        cuts in prop::collection::vec(0..8usize, 0..6),
    ) {
        let model = regex::bytes::Regex::new(&format!("(?{}-u)\\A(?:{text})\\z", if ignores_case { "i" } else { "" })).unwrap();
        let is_match = |end: usize| (0..end).any(|from| model.is_match(&content[from..end]));
        let ends = (1..=content.len()).filter(|&end| is_match(end));
        let expected: Vec<_> = ends.map(|end| Match { end: end as u64, pattern: 0 }).collect();
        let pattern = Pattern::parse(&format!("/{text}/"), ignores_case).unwrap();
        let set = PatternSet::compile_with(Backend::Hyperscan, vec![pattern]).unwrap();
        let mut scanner = set.scanner(1).unwrap();
        prop_assert_eq!(found(&mut *scanner, &cut(&content, &cuts)), expected);
    }

    /// Streams that take turns do not disturb each other, and a slot that is used again is as new.
    #[test]
    fn streams_are_independent(steps in prop::collection::vec((0..4usize, prop::sample::select(b"ab".to_vec()), 0..8u8), 0..80)) {
        for backend in BACKENDS {
            let set = PatternSet::compile_with(backend, vec![parse("abba"), parse("bb")]).unwrap();
            let mut scanner = set.scanner(3).unwrap();
            let mut streams: [Option<(StreamNumber, Vec<u8>)>; 4] = Default::default();
            for &(which, byte, what) in &steps {
                match (&mut streams[which], what) {
                    (place @ Some(_), 0) => scanner.close(place.take().unwrap().0),
                    (Some((stream, content)), _) => {
                        content.push(byte);
                        let mut ended = BTreeSet::new();
                        let _ = scanner.scan(*stream, &[byte], &mut |one| {
                            assert_eq!(one.end, content.len() as u64);
                            ended.insert(one.pattern);
                            ControlFlow::Continue(())
                        });
                        let words: [&[u8]; 2] = [b"abba", b"bb"];
                        let expected = (0..2).filter(|&n| content.ends_with(words[n as usize])).collect();
                        prop_assert_eq!(ended, expected);
                    }
                    (place @ None, _) => *place = scanner.open().map(|stream| (stream, Vec::new())),
                }
                let open = streams.iter().flatten().count();
                prop_assert_eq!(scanner.open_streams(), open);
                prop_assert!(open <= 3);
            }
        }
    }
}

#[test]
fn a_scan_ends_when_it_is_told() {
    for backend in BACKENDS {
        let set = PatternSet::compile_with(backend, vec![parse("ab")]).unwrap();
        let mut scanner = set.scanner(1).unwrap();
        let stream = scanner.open().unwrap();
        let mut ends = Vec::new();
        let flow = scanner.scan(stream, b"xabxab", &mut |one| {
            ends.push(one.end);
            ControlFlow::Break(())
        });
        assert!(flow.is_break() && ends == [3]);
        // The stream is as new.
        let flow = scanner.scan(stream, b"ab", &mut |one| {
            ends.push(one.end);
            ControlFlow::Continue(())
        });
        assert!(flow.is_continue() && ends == [3, 2], "{ends:?}");
    }
}

#[test]
fn the_end_of_a_stream_matches() {
    let set = PatternSet::compile(vec![parse("/end$/"), parse("/^be/"), parse("/(?i)x\\x00y/")]).unwrap();
    let mut scanner = set.scanner(1).unwrap();
    assert_eq!(
        found(&mut *scanner, &[b"bebe", b" X\0", b"Y"]),
        [Match { end: 2, pattern: 1 }, Match { end: 8, pattern: 2 }]
    );
    let stream = scanner.open().unwrap();
    let mut ends = Vec::new();
    let mut note = |one: Match| {
        ends.push((one.pattern, one.end));
        ControlFlow::Continue(())
    };
    let _ = scanner.scan(stream, b"end the end", &mut note);
    let _ = scanner.finish(stream, &mut note);
    let _ = scanner.finish(stream, &mut note);
    assert_eq!(ends, [(0, 11)]);
}

#[test]
fn streams_beyond_the_room_are_not_opened() {
    for backend in BACKENDS {
        let set = PatternSet::compile_with(backend, vec![parse("a")]).unwrap();
        let mut scanner = set.scanner(2).unwrap();
        let first = scanner.open().unwrap();
        assert!(scanner.open().is_some() && scanner.open().is_none());
        scanner.close(first);
        scanner.close(first);
        assert_eq!((scanner.open_streams(), scanner.most_streams()), (1, 2));
        // A closed stream, and one that never was, are not read.
        let mut reported = 0;
        let _ = scanner.scan(StreamNumber::new(9).unwrap(), b"a", &mut |_| {
            reported += 1;
            ControlFlow::Continue(())
        });
        assert_eq!((reported, scanner.open(), scanner.open()), (0, Some(first), None));
    }
}

#[test]
fn errors_name_the_pattern() {
    let refused = |backend, texts: &[&str]| {
        let error =
            PatternSet::compile_with(backend, texts.iter().map(|text| parse(text)).collect()).unwrap_err();
        (error.index(), error.to_string())
    };
    let (index, message) = refused(Backend::Hyperscan, &["a", "/(b/"]);
    assert!(index == Some(1) && message.contains("parenthes"), "{message}");
    let (index, message) = refused(Backend::Hyperscan, &["/a*/"]);
    assert!(index == Some(0) && message.contains("empty"), "{message}");
    let (index, message) = refused(Backend::AhoCorasick, &["a", "b", "/c/"]);
    assert_eq!(index, Some(2));
    assert!(message.contains("`/c/` needs the library Hyperscan"), "{message}");
    assert_eq!(refused(Backend::Hyperscan, &[]).1, "there are no patterns");
    let many = vec![parse("a"); 100_001];
    assert_eq!(
        PatternSet::compile(many).unwrap_err(),
        SearchError::TooManyPatterns { count: 100_001, most: 100_000 }
    );
}

#[test]
fn ten_thousand_literals() {
    let words: Vec<_> = (0..10_000u32).map(|n| format!("word{:08x}", n.wrapping_mul(0x9e37_79b9))).collect();
    for backend in BACKENDS {
        let set = PatternSet::compile_with(backend, words.iter().map(|word| parse(word)).collect()).unwrap();
        assert!(set.stream_bytes() < 4096, "{backend:?}: {}", set.stream_bytes());
        let mut scanner = set.scanner(1).unwrap();
        let content = format!("{}{}", words[77], words[9_999]);
        let matches = found(&mut *scanner, &cut(content.as_bytes(), &[5, 9]));
        assert_eq!(matches, [Match { end: 12, pattern: 77 }, Match { end: 24, pattern: 9_999 }]);
    }
}
