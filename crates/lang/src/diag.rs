//! Error messages: one sentence, the position in the line, the way out.

use std::fmt;

use serde::{Deserialize, Serialize};
use unicode_width::UnicodeWidthChar;

use crate::span::Span;

/// An error in a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// Line in the file, from 1; 0 for a line without a file.
    pub line: u32,
    /// The offending words; empty where something is missing.
    pub span: Span,
    /// The error: one sentence that names the offending thing, without a full stop.
    pub message: String,
    /// How to correct it.
    pub help: Option<String>,
}

/// Maximum number of bytes of a line that are printed. Longer lines are cut around the offending position.
const SHOWN: usize = 140;
/// Bytes printed before the offending position if a line is cut.
const SHOWN_BEFORE: usize = 60;
/// Maximum number of characters of a word that a message repeats.
const QUOTED: usize = 40;

impl Diagnostic {
    /// A message about a position, without help and file.
    pub fn new(span: Span, message: impl Into<String>) -> Self {
        Self { line: 0, span, message: message.into(), help: None }
    }

    /// Adds help to the message.
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Sets the line number.
    pub fn at_line(mut self, line: u32) -> Self {
        self.line = line;
        self
    }

    /// Column of the offending position, in characters from 1.
    pub fn column(&self, source_line: &str) -> usize {
        let before = &source_line[..source_line.floor_char_boundary(self.span.start)];
        before.chars().count() + 1
    }

    /// The message for a terminal, the line below, carets under the offending words, then the help: two to
    /// four lines, without a newline at the end. Control characters of the line never reach the terminal;
    /// long lines are cut.
    ///
    /// ```
    /// let line = "add tcp-dprot 80 drop";
    /// let error = mmb_lang::parse_line(line).unwrap_err();
    /// assert_eq!(error.render(line), "\
    /// error: unknown field `tcp-dprot`
    ///   add tcp-dprot 80 drop
    ///       ^^^^^^^^^
    ///   help: did you mean `tcp-dport`?");
    /// ```
    pub fn render(&self, source_line: &str) -> String {
        let place = match self.line {
            0 => "error".to_owned(),
            line => format!("line {line}, column {}", self.column(source_line)),
        };
        self.render_with(&place, source_line)
    }

    /// The message with `NAME:LINE:COLUMN:` instead of `error:`. `text` is the whole file.
    pub fn render_in_file(&self, name: &str, text: &[u8]) -> String {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let index = (self.line as usize).saturating_sub(1);
        let line = text.split(|&byte| byte == b'\n').nth(index).unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        self.render_with(&format!("{name}:{}:{}", self.line, self.column(&line)), &line)
    }

    fn render_with(&self, place: &str, source_line: &str) -> String {
        let (source, carets) = excerpt(source_line, self.span);
        let mut out = format!("{place}: {}\n  {source}\n  {carets}", self.message);
        if let Some(help) = &self.help {
            out.push_str("\n  help: ");
            out.push_str(help);
        }
        out
    }
}

impl fmt::Display for Diagnostic {
    /// Message and help in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Diagnostic {}

/// The line, or the part around the span, and the line of carets below it.
fn excerpt(line: &str, span: Span) -> (String, String) {
    let line = line.trim_end_matches(['\n', '\r']);
    let (mut from, mut to) = (0, line.len());
    if line.len() > SHOWN {
        from = line.floor_char_boundary(span.start.min(line.len()).saturating_sub(SHOWN_BEFORE));
        to = line.floor_char_boundary(from + SHOWN);
    }
    let mut source = if from > 0 { "…".to_owned() } else { String::new() };
    let mut indent = source.chars().count();
    let mut carets = 0;
    for (at, c) in line[from..to].char_indices() {
        let (c, width) = visible(c);
        source.push(c);
        match from + at {
            at if at < span.start => indent += width,
            at if at < span.end => carets += width,
            _ => {}
        }
    }
    if to < line.len() {
        source.push('…');
    }
    (source, " ".repeat(indent) + &"^".repeat(carets.max(1)))
}

/// The printed form of a character and its columns. Tabs become blanks, invisible characters become
/// replacement characters.
fn visible(c: char) -> (char, usize) {
    match c.width() {
        _ if c == '\t' => (' ', 1),
        Some(width) if width > 0 => (c, width),
        _ => (char::REPLACEMENT_CHARACTER, 1),
    }
}

/// A word of the user in backquotes, shortened and safe for terminals.
pub(crate) fn quote(word: &str) -> String {
    let mut chars = word.chars();
    let mut out = String::from("`");
    out.extend(chars.by_ref().take(QUOTED).map(|c| visible(c).0));
    if chars.next().is_some() {
        out.push('…');
    }
    out.push('`');
    out
}

/// The most similar candidate, if the edit distance is at most a third of the word's length, or 1.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest_distance(word, candidates).map(|(_, candidate)| candidate)
}

/// Like [`nearest`], with the edit distance.
pub(crate) fn nearest_distance<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<(usize, &'a str)> {
    if word.is_empty() || word.len() > QUOTED {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let limit = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&word, candidate), candidate))
        .filter(|&(distance, candidate)| distance <= limit && distance < candidate.len())
        .min_by_key(|&(distance, _)| distance)
}

/// Help that suggests the most similar candidate if `word` may be a typing error, otherwise `otherwise`.
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>, otherwise: &str) -> String {
    match nearest(word, candidates) {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None => otherwise.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carets_stand_under_wide_and_hidden_characters() {
        let line = "a\t日本 \u{202e}x";
        let at = line.find('x').unwrap();
        let error = Diagnostic::new(Span::new(at, at + 1), "no").at_line(7);
        assert_eq!(error.render(line), "line 7, column 7: no\n  a 日本 \u{fffd}x\n          ^");
        assert_eq!(
            error.render_in_file("f", format!("{}{line}\n", "\n".repeat(6)).as_bytes()).lines().next(),
            Some("f:7:7: no")
        );
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let line = format!("{}BAD{}", "é".repeat(1000), "z".repeat(1000));
        let rendered = Diagnostic::new(Span::new(2000, 2003), "no").render(&line);
        let lines: Vec<&str> = rendered.lines().collect();
        assert_eq!(lines[1], format!("  …{}BAD{}…", "é".repeat(30), "z".repeat(77)));
        assert_eq!(lines[2], format!("  {}^^^", " ".repeat(31)));
    }

    #[test]
    fn spans_that_do_not_fit_the_line_do_no_harm() {
        for (start, end) in [(0, 0), (3, 1), (1, 900), (900, 901), (2, 3)] {
            for line in ["", "é", "abé", "add all drop"] {
                Diagnostic::new(Span::new(start, end), "no").render(line);
                Diagnostic::new(Span::new(start, end), "no").at_line(5).render_in_file("f", line.as_bytes());
            }
        }
    }

    #[test]
    fn nearest_names() {
        let names = ["tcp", "udp", "tcp-dport", "tcp-sport"];
        assert_eq!(nearest("tpc", names), Some("tcp"));
        assert_eq!(nearest("TCP-DPROT", names), Some("tcp-dport"));
        assert_eq!(nearest("http", names), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest(&"x".repeat(1 << 20), names), None);
    }
}
