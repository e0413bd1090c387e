//! Patterns in which `*` stands for any bytes.

/// Whether a text matches a pattern in which `*` stands for any bytes.
pub(crate) fn matches(pattern: &[u8], text: &[u8], is_caseless: bool) -> bool {
    let is_equal = |a: u8, b: u8| if is_caseless { a.eq_ignore_ascii_case(&b) } else { a == b };
    // Where to try again: behind the last `*`, with one byte more for it.
    let (mut p, mut t, mut again) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                again = Some((p, t));
            }
            Some(&byte) if is_equal(byte, text[t]) => (p, t) = (p + 1, t + 1),
            _ => {
                let Some((behind, from)) = again else { return false };
                (p, t, again) = (behind, from + 1, Some((behind, from + 1)));
            }
        }
    }
    pattern.get(p..).unwrap_or(&[]).iter().all(|&byte| byte == b'*')
}

/// Whether a path is the one of a rule or below it. With `*` in the rule, the whole path has to match.
pub(crate) fn matches_path(rule: &[u8], path: &[u8]) -> bool {
    if rule.contains(&b'*') {
        return matches(rule, path, false);
    }
    let below = path.strip_prefix(rule);
    below.is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || rule.ends_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_bytes() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "A", false),
            ("a", "ab", false),
            ("", "", true),
            ("*", "", true),
            ("*.a", "b.a", true),
            ("*.a", ".a", true),
            ("*.a", "a", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*aab", "aaaab", true),
            ("a**", "a", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes(), false), expected, "{pattern} {text}");
        }
        assert!(matches(b"*.Example", b"a.eXAMPLE", true));
    }

    #[test]
    fn paths_end_at_slashes() {
        for (rule, path, expected) in [
            ("/a", "/a", true),
            ("/a", "/a/b", true),
            ("/a", "/ab", false),
            ("/a/", "/a/b", true),
            ("/a/", "/a", false),
            ("/", "/x", true),
            ("/a*", "/ab/c", true),
            ("*.php", "/x/y.php", true),
            ("*.php", "/x/y.php5", false),
        ] {
            assert_eq!(matches_path(rule.as_bytes(), path.as_bytes()), expected, "{rule} {path}");
        }
    }
}
