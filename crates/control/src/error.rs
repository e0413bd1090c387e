//! Why a command was refused.

use mmb_lang::{Diagnostic, SourceSpan, Span};

use crate::api::{DiagnosticEntry, ErrorReply};

/// What kind of refusal; decides the HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The text is wrong.
    Invalid,
    /// It names something that does not exist.
    NotFound,
    /// It contradicts what there is.
    Conflict,
    /// The system refused.
    Failed,
}

/// An error about one word of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind.
    pub kind: RefusalKind,
    /// One sentence, and its place.
    pub diagnostic: Diagnostic,
}

impl Fault {
    /// An error at `at`.
    pub fn new(kind: RefusalKind, message: String, at: SourceSpan) -> Fault {
        Fault { kind, diagnostic: Diagnostic::new(at.span(), message) }
    }

    /// A word that makes no sense.
    pub fn invalid(message: String, at: SourceSpan) -> Fault {
        Fault::new(RefusalKind::Invalid, message, at)
    }

    /// A contradiction to what there is.
    pub fn conflict(message: String, at: SourceSpan) -> Fault {
        Fault::new(RefusalKind::Conflict, message, at)
    }

    /// Adds the way out.
    pub fn help(mut self, help: String) -> Fault {
        self.diagnostic.help = Some(help);
        self
    }

    /// The refusal of the line it was found in. An error without a place is about the line's last word (`del 7`).
    pub fn in_line(mut self, line: &str) -> Refusal {
        if self.diagnostic.span == Span::default() {
            let end = line.trim_end().len();
            let start = line[..end].rfind(char::is_whitespace).map_or(0, |at| at + 1);
            self.diagnostic.span = Span::new(start, end);
        }
        Refusal::of(self.kind, [(self.diagnostic, line)])
    }
}

impl From<Diagnostic> for Fault {
    fn from(diagnostic: Diagnostic) -> Fault {
        Fault { kind: RefusalKind::Invalid, diagnostic }
    }
}

/// A command, a file or a request that was refused; it changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What kind.
    pub kind: RefusalKind,
    /// One sentence.
    pub message: String,
    /// Where in the text, if it is about a text.
    pub diagnostics: Vec<DiagnosticEntry>,
}

impl Refusal {
    fn new(kind: RefusalKind, message: String) -> Refusal {
        Refusal { kind, message, diagnostics: Vec::new() }
    }

    /// Errors found in a text, each with the line it is in.
    pub fn of<'a>(kind: RefusalKind, errors: impl IntoIterator<Item = (Diagnostic, &'a str)>) -> Refusal {
        let diagnostics: Vec<_> = errors.into_iter().map(|(d, source)| entry(d, source)).collect();
        let message = diagnostics.first().map_or_else(String::new, |d| d.message.clone());
        Refusal { kind, message, diagnostics }
    }

    /// The text is wrong.
    pub fn invalid(message: String) -> Refusal {
        Refusal::new(RefusalKind::Invalid, message)
    }

    /// It names something that does not exist.
    pub fn not_found(message: String) -> Refusal {
        Refusal::new(RefusalKind::NotFound, message)
    }

    /// The system refused.
    pub fn failed(message: String) -> Refusal {
        Refusal::new(RefusalKind::Failed, message)
    }

    /// The same refusal of a text that lacks the first `bytes` bytes, all of them of one byte each.
    pub(crate) fn without_first(mut self, bytes: usize) -> Refusal {
        let less = bytes as u64;
        for d in &mut self.diagnostics {
            (d.start, d.end) = (d.start.saturating_sub(less), d.end.saturating_sub(less));
            d.column = d.column.saturating_sub(less).max(1);
        }
        self
    }

    /// The document sent to the client.
    pub fn into_reply(self) -> ErrorReply {
        ErrorReply { error: self.message, diagnostics: self.diagnostics }
    }
}

fn entry(d: Diagnostic, source: &str) -> DiagnosticEntry {
    let column = d.column(source) as u64;
    let (start, end) = (d.span.start as u64, d.span.end as u64);
    DiagnosticEntry { line: d.line, column, start, end, message: d.message, help: d.help }
}

impl DiagnosticEntry {
    /// The diagnostic, to render it with its text.
    pub fn diagnostic(&self) -> Diagnostic {
        let narrow = |offset| usize::try_from(offset).unwrap_or(usize::MAX);
        let span = Span::new(narrow(self.start), narrow(self.end));
        Diagnostic { line: self.line, span, message: self.message.clone(), help: self.help.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_a_place_marks_the_last_word() {
        let refusal = Fault::invalid("no such rule".to_owned(), SourceSpan::default()).in_line("del 77 ");
        let entry = &refusal.diagnostics[0];
        assert_eq!((entry.start, entry.end, entry.column), (4, 6, 5));
    }
}
