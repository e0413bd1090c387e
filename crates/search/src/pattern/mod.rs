//! Patterns, and how users write them.

use crate::{PatternError, SearchError};

/// Most bytes of a literal, and of the text of a regular expression.
const MOST_BYTES: usize = 1024;
/// Most patterns of a set.
const MOST_PATTERNS: usize = 100_000;

/// Bytes or an expression to search for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// As the user has written it.
    pub text: Box<str>,
    /// What it means.
    pub expression: Expression,
    /// ASCII letters match in either case.
    pub ignores_case: bool,
}

/// The meaning of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Bytes.
    Literal(Box<[u8]>),
    /// A regular expression.
    Regex(Regex),
}

/// A regular expression in the syntax of Hyperscan (PCRE without back references and look-around).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regex {
    /// The text between the slashes.
    pub text: Box<str>,
    /// `.` matches line ends, too (`s`).
    pub dot_matches_all: bool,
    /// `^` and `$` match at line ends, too (`m`).
    pub is_multiline: bool,
}

impl Pattern {
    /// Parses a pattern.
    ///
    /// * `/…/` is a regular expression. Letters behind it: `i` ignores case, `s` lets `.` match line ends,
    ///   `m` lets `^` and `$` match at line ends.
    /// * All else is a literal. `|0d 0a|` are bytes in hexadecimal, and so is `\x0d`. `\n`, `\r`, `\t`, `\0`
    ///   are control characters; `\\`, `\|`, `\/` and `\#` are the characters.
    ///
    /// # Errors
    /// See [`PatternError`].
    pub fn parse(text: &str, ignores_case: bool) -> Result<Pattern, PatternError> {
        let (expression, has_flag) = match text.strip_prefix('/') {
            Some(rest) => {
                let (regex, has_flag) = regex(rest)?;
                (Expression::Regex(regex), has_flag)
            }
            None => (Expression::Literal(literal(text)?.into()), false),
        };
        let len = match &expression {
            Expression::Literal(bytes) => bytes.len(),
            Expression::Regex(regex) => regex.text.len(),
        };
        match len {
            0 => Err(PatternError::Empty),
            len if len > MOST_BYTES => Err(PatternError::TooLong { len, most: MOST_BYTES }),
            _ => Ok(Pattern { text: text.into(), expression, ignores_case: ignores_case || has_flag }),
        }
    }

    /// Parses a pattern on each line. Blanks around a pattern are left out. Lines without anything else, and
    /// lines that begin with `#`, have no pattern. Returns each pattern with the number of its line.
    ///
    /// # Errors
    /// The number of the first line that is wrong, from 1 on, and the reason.
    pub fn parse_lines(
        text: &str,
        ignores_case: bool,
    ) -> Result<Vec<(usize, Pattern)>, (usize, PatternError)> {
        let lines = (1..).zip(text.lines().map(str::trim));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let parse = |(number, line)| match Pattern::parse(line, ignores_case) {
            Ok(pattern) => Ok((number, pattern)),
            Err(error) => Err((number, error)),
        };
        lines.map(parse).collect()
    }

    /// Checks the number of patterns of a set.
    ///
    /// # Errors
    /// There are none, or too many.
    pub(crate) fn check_number(patterns: &[Pattern]) -> Result<(), SearchError> {
        match patterns.len() {
            0 => Err(SearchError::NoPatterns),
            count if count > MOST_PATTERNS => {
                Err(SearchError::TooManyPatterns { count, most: MOST_PATTERNS })
            }
            _ => Ok(()),
        }
    }

    /// Returns the expression in the syntax of Hyperscan.
    pub(crate) fn to_expression(&self) -> String {
        match &self.expression {
            Expression::Regex(regex) => regex.text.to_string(),
            Expression::Literal(bytes) => bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect(),
        }
    }
}

/// Parses what follows the first slash. Returns whether `i` is among the letters.
fn regex(rest: &str) -> Result<(Regex, bool), PatternError> {
    let (text, flags) = rest.rsplit_once('/').ok_or(PatternError::RegexEnd)?;
    if flags.bytes().any(|flag| !b"ism".contains(&flag)) {
        return Err(PatternError::RegexEnd);
    }
    let regex =
        Regex { text: text.into(), dot_matches_all: flags.contains('s'), is_multiline: flags.contains('m') };
    Ok((regex, flags.contains('i')))
}

fn literal(text: &str) -> Result<Vec<u8>, PatternError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, behind @ ..] = rest {
        rest = match byte {
            b'\\' => escape(behind, &mut bytes).ok_or(PatternError::Escape)?,
            b'|' => hexadecimal(behind, &mut bytes).ok_or(PatternError::Hexadecimal)?,
            _ => {
                bytes.push(*byte);
                behind
            }
        };
    }
    Ok(bytes)
}

/// Parses what follows a backslash. Returns the rest.
fn escape<'a>(text: &'a [u8], bytes: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (byte, rest) = match *text {
        [b'x', high, low, ref rest @ ..] => (digit(high)? << 4 | digit(low)?, rest),
        [b'n', ref rest @ ..] => (b'\n', rest),
        [b'r', ref rest @ ..] => (b'\r', rest),
        [b't', ref rest @ ..] => (b'\t', rest),
        [b'0', ref rest @ ..] => (0, rest),
        [byte @ (b'\\' | b'|' | b'/' | b'#'), ref rest @ ..] => (byte, rest),
        _ => return None,
    };
    bytes.push(byte);
    Some(rest)
}

/// Parses bytes up to the next `|`. Returns the rest.
fn hexadecimal<'a>(text: &'a [u8], bytes: &mut Vec<u8>) -> Option<&'a [u8]> {
    let end = text.iter().position(|&byte| byte == b'|')?;
    let digits: Option<Vec<u8>> =
        text[..end].iter().filter(|byte| **byte != b' ').map(|&byte| digit(byte)).collect();
    let digits = digits.filter(|digits| !digits.is_empty() && digits.len() % 2 == 0)?;
    bytes.extend(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]));
    Some(&text[end + 1..])
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests;
