//! Configuration files: lines, numbered.

use super::{Parser, plain};
use crate::ast::Command;
use crate::check::check;
use crate::diag::Diagnostic;
use crate::span::Span;

/// Something and the line it stands in, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileItem<T> {
    /// Line number, from 1.
    pub line: u32,
    /// The thing.
    pub item: T,
}

/// Most errors reported for one file.
const MAX_ERRORS: usize = 20;

/// Reads a file: the same lines as in the shell, without `show`, `list`, `del`, `flush`, `clear` and `nf
/// set`, which ask, undo or command and have no place in a description. Rules are not checked ([`load_file`]
/// does that).
///
/// # Errors
/// Up to 20, in order of lines. A file that is not text (invalid UTF-8, control characters) has one error at
/// the first such place, behind those of the lines before.
pub fn parse_file(text: &[u8]) -> Result<Vec<FileItem<Command>>, Vec<Diagnostic>> {
    read(text, |_| Ok(()))
}

/// Like [`parse_file`], and every rule passes [`check`].
///
/// # Errors
/// Those of [`parse_file`] and of [`check`], together up to 20, in order of lines.
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

/// One line without its carriage return, if it is text.
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

/// The command of a line, if it may stand in a file.
fn file_command(line: &str) -> Result<Option<Command>, Diagnostic> {
    let command = Parser::new(line).line()?;
    let word = match command {
        Some(
            Command::Show { .. }
            | Command::ShowConnections { .. }
            | Command::ShowFib { .. }
            | Command::ShowNeighbors { .. },
        ) => "show",
        Some(Command::ClearConnections { .. }) => "clear",
        Some(Command::List) => "list",
        Some(Command::Del { .. }) => "del",
        Some(Command::NfSet { .. }) => "nf",
        Some(Command::Flush) => "flush",
        _ => return Ok(command),
    };
    let start = line.find(word).unwrap_or(0);
    let written = if word == "nf" { "nf set" } else { word };
    let message = format!("`{written}` has no place in a file");
    let help = "a file describes what there shall be: interface, wire, route, enable, disable, set, nat, nf, chain and add lines";
    Err(Diagnostic::new(Span::new(start, start + word.len()), message).with_help(help))
}
