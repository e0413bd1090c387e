//! Rewriting of the path of a request, and of the address that a response leads to.

use regex_automata::meta::{Cache, Config, Regex};
use regex_automata::util::captures::Captures;
use regex_automata::util::syntax;

/// Most bytes of a target that is rewritten, before and afterwards.
const MOST_TARGET: usize = 8000;
/// Most bytes of a compiled expression.
const MOST_COMPILED: usize = 256 << 10;

/// A part of the new text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Box<[u8]>),
    /// What a group has matched. 0: all.
    Group(usize),
}

/// Replaces the part of an address that an expression matches.
#[derive(Debug)]
pub(crate) struct UriRewrite {
    regex: Regex,
    parts: Vec<Part>,
    /// Addresses are paths, which begin with a slash, also afterwards.
    is_path: bool,
}

/// What a worker needs for a search.
#[derive(Debug)]
pub(crate) struct Room {
    cache: Cache,
    captures: Captures,
}

/// What has become of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rewritten {
    /// The expression does not match.
    No,
    /// The new text was written.
    Yes,
    /// The new text would be invalid, or too long.
    Refused,
}

impl UriRewrite {
    /// Compiles an expression for paths, and a text in which `$1` or `${1}` stands for a group, and `$$` for
    /// a dollar sign.
    ///
    /// # Errors
    /// The sentence that tells which of both is wrong.
    pub fn of_paths(regex: &str, text: &str) -> Result<UriRewrite, String> {
        Self::new(regex, text, true)
    }

    /// Compiles the same for values of Location (RFC 9110, 10.2.2): whole addresses, or parts of them.
    ///
    /// # Errors
    /// The sentence that tells which of both is wrong.
    pub fn of_locations(regex: &str, text: &str) -> Result<UriRewrite, String> {
        Self::new(regex, text, false)
    }

    fn new(regex: &str, text: &str, is_path: bool) -> Result<UriRewrite, String> {
        // Engines that build their tables while they search would allocate.
        let config = Config::new()
            .hybrid(false)
            .dfa(false)
            .utf8_empty(false)
            .nfa_size_limit(Some(MOST_COMPILED))
            .onepass_size_limit(Some(MOST_COMPILED));
        let syntax = syntax::Config::new().unicode(false).utf8(false);
        let mut builder = Regex::builder();
        let regex = builder.configure(config).syntax(syntax).build(regex).map_err(|error| {
            let reason = error.syntax_error().map_or_else(|| error.to_string(), |error| error.to_string());
            let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            format!("invalid expression `{regex}`: {reason}")
        })?;
        let parts = parse(text).ok_or_else(|| {
            format!("invalid text `{text}`: visible ASCII characters, `$1` for a group and `$$` for a dollar sign are accepted")
        })?;
        let groups = regex.captures_len();
        if let Some(Part::Group(group)) =
            parts.iter().find(|part| matches!(part, Part::Group(group) if *group >= groups))
        {
            return Err(format!("invalid text `{text}`: the expression has no group {group}"));
        }
        Ok(UriRewrite { regex, parts, is_path })
    }

    /// Makes what a worker needs.
    pub fn room(&self) -> Room {
        Room { cache: self.regex.create_cache(), captures: self.regex.create_captures() }
    }

    /// Writes the address with the text in the place of what matches.
    pub fn rewrite(&self, old: &[u8], room: &mut Room, out: &mut Vec<u8>) -> Rewritten {
        let Room { cache, captures } = room;
        if old.len() > MOST_TARGET {
            return Rewritten::Refused;
        }
        self.regex.search_captures_with(cache, &regex_automata::Input::new(old), captures);
        let Some(whole) = captures.get_match() else { return Rewritten::No };
        let start = out.len();
        out.extend_from_slice(&old[..whole.start()]);
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Group(group) => {
                    let span = captures.get_group(*group);
                    out.extend_from_slice(span.and_then(|span| old.get(span.range())).unwrap_or(&[]));
                }
            }
        }
        out.extend_from_slice(&old[whole.end()..]);
        let new = &out[start..];
        let is_valid = if self.is_path { new.starts_with(b"/") } else { !new.is_empty() };
        if is_valid && new.len() <= MOST_TARGET {
            return Rewritten::Yes;
        }
        out.truncate(start);
        Rewritten::Refused
    }
}

/// Returns the position of the path in a target. None: it has none.
pub(crate) fn path_of(target: &[u8]) -> Option<usize> {
    if target.starts_with(b"/") {
        return Some(0);
    }
    let authority = target.windows(3).position(|three| three == b"://")? + 3;
    let path = target.get(authority..)?.iter().position(|&byte| b"/?".contains(&byte))?;
    (target.get(authority + path) == Some(&b'/')).then_some(authority + path)
}

fn parse(text: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut plain = Vec::new();
    let mut rest = text.as_bytes();
    while let [byte, behind @ ..] = rest {
        rest = behind;
        match (byte, behind) {
            (b'$', [b'$', behind @ ..]) => {
                plain.push(b'$');
                rest = behind;
            }
            (b'$', _) => {
                let (group, behind) = group(behind)?;
                if !plain.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut plain).into()));
                }
                parts.push(Part::Group(group));
                rest = behind;
            }
            (byte, _) if byte.is_ascii_graphic() => plain.push(*byte),
            _ => return None,
        }
    }
    if !plain.is_empty() {
        parts.push(Part::Text(plain.into()));
    }
    Some(parts)
}

/// Reads the number of a group, with or without braces. Returns the rest.
fn group(text: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = match text {
        [b'{', behind @ ..] => {
            let end = behind.iter().position(|&byte| byte == b'}')?;
            (&behind[..end], &behind[end + 1..])
        }
        _ => text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count().min(1)),
    };
    let number = std::str::from_utf8(number).ok().filter(|number| number.len() <= 2)?.parse().ok()?;
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(regex: &str, text: &str, path: &str) -> Result<String, Rewritten> {
        let rewrite = UriRewrite::of_paths(regex, text).unwrap();
        let mut out = Vec::new();
        match rewrite.rewrite(path.as_bytes(), &mut rewrite.room(), &mut out) {
            Rewritten::Yes => Ok(String::from_utf8(out).unwrap()),
            other => Err(other),
        }
    }

    #[test]
    fn groups_are_inserted() {
        assert_eq!(rewritten("^/old/(.*)", "/new/$1", "/old/a?b").as_deref(), Ok("/new/a?b"));
        assert_eq!(rewritten("^/(a)(b)?", "/${1}0$2$$", "/a/x").as_deref(), Ok("/a0$/x"));
        assert_eq!(rewritten("b+", "[$0]", "/abbc/b").as_deref(), Ok("/a[bb]c/b"));
        assert_eq!(rewritten("^/x", "/y", "/z"), Err(Rewritten::No));
        assert_eq!(rewritten("^/", "y", "/z"), Err(Rewritten::Refused));
        assert_eq!(
            rewritten("z", &"0".repeat(4000), &format!("/{}z", "a".repeat(4000))),
            Err(Rewritten::Refused)
        );
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for (regex, text) in [
            ("(", "/"),
            ("a", "/$1"),
            ("(a)", "/$"),
            ("a", "/ "),
            ("a", "/\r"),
            ("a", "/${x}"),
            ("a{9999}{99}", "/"),
        ] {
            assert!(UriRewrite::of_paths(regex, text).is_err(), "{regex} {text}");
        }
    }

    #[test]
    fn a_target_has_a_path() {
        let found = [&b"/a"[..], b"http://h/a", b"http://h", b"*", b"h:80", b"http://h?/a"].map(path_of);
        assert_eq!(found, [Some(0), Some(8), None, None, None, None]);
    }
}
