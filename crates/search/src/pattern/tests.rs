use proptest::prelude::*;

use super::*;

fn bytes(text: &str) -> Result<Vec<u8>, PatternError> {
    match Pattern::parse(text, false)?.expression {
        Expression::Literal(bytes) => Ok(bytes.into()),
        Expression::Regex(regex) => panic!("{regex:?}"),
    }
}

#[test]
fn literals() {
    for (text, expected) in [
        ("evil word", &b"evil word"[..]),
        ("|0d 0a|x|00|", b"\r\nx\0"),
        ("\\x41\\n\\r\\t\\0", b"A\n\r\t\0"),
        ("a\\|b\\/\\#\\\\", b"a|b/#\\"),
        ("ä", "ä".as_bytes()),
    ] {
        assert_eq!(bytes(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn wrong_patterns() {
    for (text, error) in [
        ("", PatternError::Empty),
        ("||", PatternError::Hexadecimal),
        ("|4|", PatternError::Hexadecimal),
        ("|4g|", PatternError::Hexadecimal),
        ("a|41", PatternError::Hexadecimal),
        ("a\\", PatternError::Escape),
        ("\\x4", PatternError::Escape),
        ("\\q", PatternError::Escape),
        ("/etc", PatternError::RegexEnd),
        ("/etc/passwd", PatternError::RegexEnd),
        ("//", PatternError::Empty),
        (&"x".repeat(1025), PatternError::TooLong { len: 1025, most: 1024 }),
    ] {
        assert_eq!(Pattern::parse(text, false), Err(error), "{text}");
    }
}

#[test]
fn regular_expressions() {
    let parsed = Pattern::parse("/a.b/c$/is", false).unwrap();
    let expected = Regex { text: "a.b/c$".into(), dot_matches_all: true, is_multiline: false };
    assert!(parsed.ignores_case);
    assert_eq!(parsed.expression, Expression::Regex(expected));
    assert!(!Pattern::parse("/a/m", false).unwrap().ignores_case);
    assert!(Pattern::parse("/a/m", true).unwrap().ignores_case);
}

#[test]
fn a_file_has_a_pattern_on_each_line() {
    let parsed = Pattern::parse_lines("# comment\n\n one two \r\n\\#three\n/f.ur/\n", false).unwrap();
    let found: Vec<_> = parsed.iter().map(|(line, pattern)| (*line, &*pattern.text)).collect();
    assert_eq!(found, [(3, "one two"), (4, "\\#three"), (5, "/f.ur/")]);
    assert_eq!(Pattern::parse_lines("a\n# b\n\\q", false), Err((3, PatternError::Escape)));
}

proptest! {
    /// Bytes in hexadecimal, in both spellings, are those bytes.
    #[test]
    fn any_bytes_can_be_written(content in prop::collection::vec(any::<u8>(), 1..40)) {
        let escaped: String = content.iter().map(|byte| format!("\\x{byte:02X}")).collect();
        let pairs: String = content.iter().map(|byte| format!("{byte:02x} ")).collect();
        prop_assert_eq!(bytes(&escaped), Ok(content.clone()));
        prop_assert_eq!(bytes(&format!("|{pairs}|")), Ok(content));
    }

    #[test]
    fn any_text_is_parsed_or_refused(text: String) {
        let _ = Pattern::parse(&text, false);
        let _ = Pattern::parse_lines(&text, true);
    }
}
