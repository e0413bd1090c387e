//! Labels in arguments: the names of outputs.

/// The output of sessions that no clause chooses another one for.
pub(crate) const REST: &str = "rest";

/// Parses a label such as `web:`. Labels differ from all words of matches.
pub(crate) fn label(word: &str) -> Option<&str> {
    let name = word.strip_suffix(':')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(plain)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_addresses_are_distinct() {
        assert_eq!(label("web:"), Some("web"));
        for word in ["web", ":", "80:", "2001:db8::", "fe80::", "::", "we b:"] {
            assert_eq!(label(word), None, "{word}");
        }
    }
}
