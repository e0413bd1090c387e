//! Configuration files.

use super::{Parser, plain};
use crate::ast::Command;
use crate::check::check;
use crate::diag::Diagnostic;
use crate::lex::{Lexer, Tok};
use crate::span::Span;

/// An item of a file with its line number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileItem<T> {
    /// Line number, from 1.
    pub line: u32,
    /// The item.
    pub item: T,
}

/// Maximum number of errors reported for a file.
const MAX_ERRORS: usize = 20;

/// Parses a file. It has the lines of the shell, except `show`, `list`, `del`, `flush`, `clear` and `nf set`,
/// which do not describe a configuration. Rules are not checked: see [`load_file`].
///
/// # Errors
/// At most 20, in line order. A file that is not text (invalid UTF-8, control characters) has one error at
/// the first such position, after those of the lines before.
pub fn parse_file(text: &[u8]) -> Result<Vec<FileItem<Command>>, Vec<Diagnostic>> {
    read(text, |_| Ok(()))
}

/// Parses a file as [`parse_file`] does, and checks every rule with [`check`].
///
/// # Errors
/// Those of [`parse_file`] and of [`check`], at most 20 in total, in line order.
pub fn load_file(text: &[u8]) -> Result<Vec<FileItem<Command>>, Vec<Diagnostic>> {
    read(text, |command| match command {
        Command::Add(rule) => check(rule),
        _ => Ok(()),
    })
}

fn read(
    text: &[u8],
    also: impl Fn(&Command) -> Result<(), Diagnostic>,
) -> Result<Vec<FileItem<Command>>, Vec<Diagnostic>> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut commands = Vec::new();
    let mut errors = Vec::new();
    for (index, bytes) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let source = match text_line(bytes) {
            Ok(source) => source,
            Err(error) => {
                errors.push(error.at_line(line));
                break;
            }
        };
        match file_command(source)
            .and_then(|item| item.map_or(Ok(None), |item| also(&item).map(|()| Some(item))))
        {
            Ok(None) => {}
            Ok(Some(item)) => commands.push(FileItem { line, item }),
            Err(error) => errors.push(error.at_line(line)),
        }
        if errors.len() == MAX_ERRORS {
            break;
        }
    }
    if errors.is_empty() { Ok(commands) } else { Err(errors) }
}

/// The comment at the end of a line, from its `#` on.
pub fn line_comment(line: &str) -> Option<&str> {
    let mut lexer = Lexer::new(line);
    while !matches!(lexer.next().tok, Tok::End | Tok::OpenText) {}
    let rest = line.get(lexer.last_end()..)?;
    let comment = rest.trim();
    let is_apart = rest.len() == line.len() || rest.starts_with(|first: char| first.is_ascii_whitespace());
    (comment.starts_with('#') && is_apart).then_some(comment)
}

/// One line without its carriage return, if it is valid text.
fn text_line(bytes: &[u8]) -> Result<&str, Diagnostic> {
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let line = std::str::from_utf8(bytes).map_err(|error| {
        let start = error.valid_up_to();
        let end = error.error_len().map_or(bytes.len(), |length| start + length);
        Diagnostic::new(Span::new(start, end), "the file is not text: this is not valid UTF-8")
    })?;
    plain(line)?;
    Ok(line)
}

/// The command of a line, if it is allowed in a file.
fn file_command(line: &str) -> Result<Option<Command>, Diagnostic> {
    let command = Parser { abbreviations: false, ..Parser::new(line) }.line()?;
    let word = match command {
        Some(
            Command::Show { .. }
            | Command::ShowConnections { .. }
            | Command::ShowFib { .. }
            | Command::ShowNeighbors { .. },
        ) => "show",
        Some(Command::ClearConnections { .. }) => "clear",
        Some(Command::List { .. }) => "list",
        Some(Command::Trace { .. }) => "trace",
        Some(Command::Capture { .. }) => "capture",
        Some(Command::Del { .. }) => "del",
        Some(Command::NfSet { .. }) => "nf",
        Some(Command::Flush) => "flush",
        Some(Command::History { .. }) => "history",
        Some(Command::Rollback { .. }) => "rollback",
        Some(Command::Confirm) => "confirm",
        _ => return Ok(command),
    };
    let start = line.find(word).unwrap_or(0);
    let written = if word == "nf" { "nf set" } else { word };
    let message = format!("`{written}` has no place in a file");
    let help = "a file describes what there shall be: interface, wire, route, enable, disable, set, nat, domain, nf, \
                chain, broker and add lines";
    Err(Diagnostic::new(Span::new(start, start + word.len()), message).with_help(help))
}
