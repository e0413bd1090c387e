//! Errors of commands, files and requests.

use mmb_lang::{Diagnostic, SourceSpan, Span};

use crate::api::{DiagnosticEntry, ErrorReply};

/// Kind of a refusal; decides the HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The text is wrong.
    Invalid,
    /// The text names something that does not exist.
    NotFound,
    /// The text contradicts the configuration.
    Conflict,
    /// The client may not do it.
    Forbidden,
    /// The system refused.
    Failed,
}

/// An error about one word of a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .diagnostic.message)]
pub struct CommandError {
    /// Kind of the error.
    pub kind: RefusalKind,
    /// The message and the place of the word.
    pub diagnostic: Diagnostic,
}

impl CommandError {
    fn new(kind: RefusalKind, message: String, at: SourceSpan) -> CommandError {
        CommandError { kind, diagnostic: Diagnostic::new(at.span(), message) }
    }

    /// A word with an invalid value.
    pub fn invalid(message: String, at: SourceSpan) -> CommandError {
        CommandError::new(RefusalKind::Invalid, message, at)
    }

    /// A word that names something that does not exist.
    pub fn not_found(message: String, at: SourceSpan) -> CommandError {
        CommandError::new(RefusalKind::NotFound, message, at)
    }

    /// A word that contradicts the configuration.
    pub fn conflict(message: String, at: SourceSpan) -> CommandError {
        CommandError::new(RefusalKind::Conflict, message, at)
    }

    /// The client may not do what the word asks for.
    pub fn forbidden(message: String, at: SourceSpan) -> CommandError {
        CommandError::new(RefusalKind::Forbidden, message, at)
    }

    /// The system refused what the word asks for.
    pub fn failed(message: String, at: SourceSpan) -> CommandError {
        CommandError::new(RefusalKind::Failed, message, at)
    }

    /// Adds the way out.
    pub fn help(mut self, help: String) -> CommandError {
        self.diagnostic.help = Some(help);
        self
    }

    /// The refusal of a line. An error without a place marks the last word of the line (`del 7`).
    pub fn in_line(mut self, line: &str) -> Refusal {
        if self.diagnostic.span == Span::default() {
            let end = line.trim_end().len();
            let start = line[..end].rfind(char::is_whitespace).map_or(0, |at| at + 1);
            self.diagnostic.span = Span::new(start, end);
        }
        Refusal::of(self.kind, [(self.diagnostic, line)])
    }
}

impl From<Diagnostic> for CommandError {
    fn from(diagnostic: Diagnostic) -> CommandError {
        CommandError { kind: RefusalKind::Invalid, diagnostic }
    }
}

/// A command, a file or a request that was refused and changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Kind of the refusal.
    pub kind: RefusalKind,
    /// One sentence.
    pub message: String,
    /// Errors with their places, if the refusal is about a text.
    pub diagnostics: Vec<DiagnosticEntry>,
}

impl Refusal {
    fn new(kind: RefusalKind, message: String) -> Refusal {
        Refusal { kind, message, diagnostics: Vec::new() }
    }

    /// A refusal for errors in a text, each given with its line.
    pub fn of<'a>(kind: RefusalKind, errors: impl IntoIterator<Item = (Diagnostic, &'a str)>) -> Refusal {
        let diagnostics: Vec<_> = errors.into_iter().map(|(d, source)| entry(d, source)).collect();
        let message = diagnostics.first().map_or_else(String::new, |d| d.message.clone());
        Refusal { kind, message, diagnostics }
    }

    /// The request is wrong.
    pub fn invalid(message: String) -> Refusal {
        Refusal::new(RefusalKind::Invalid, message)
    }

    /// The request names something that does not exist.
    pub fn not_found(message: String) -> Refusal {
        Refusal::new(RefusalKind::NotFound, message)
    }

    /// The request conflicts with what runs.
    pub fn conflict(message: String) -> Refusal {
        Refusal::new(RefusalKind::Conflict, message)
    }

    /// The client may not do it.
    pub fn forbidden(message: String) -> Refusal {
        Refusal::new(RefusalKind::Forbidden, message)
    }

    /// The system refused.
    pub fn failed(message: String) -> Refusal {
        Refusal::new(RefusalKind::Failed, message)
    }

    /// The refusal for the line without its first `bytes` bytes, which are ASCII: places move to the left.
    pub(crate) fn without_prefix(mut self, bytes: usize) -> Refusal {
        let bytes = bytes as u64;
        for d in &mut self.diagnostics {
            (d.start, d.end) = (d.start.saturating_sub(bytes), d.end.saturating_sub(bytes));
            d.column = d.column.saturating_sub(bytes).max(1);
        }
        self
    }

    /// The document for the client.
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
    /// The diagnostic, to be rendered with its text.
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
        let refusal =
            CommandError::invalid("no such rule".to_owned(), SourceSpan::default()).in_line("del 77 ");
        let entry = &refusal.diagnostics[0];
        assert_eq!((entry.start, entry.end, entry.column), (4, 6, 5));
    }
}
