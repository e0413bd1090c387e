//! How commands fail: a text for standard error, printed once, and the exit status.

use std::fmt::Display;
use std::io::{self, Write};

use mmb_control::{ClientError, Refusal};
use mmb_lang::Diagnostic;

/// Exit status of a command that was refused or failed.
pub const FAILED: u8 = 1;
/// Exit status of a command line that makes no sense.
pub const USAGE: u8 = 2;
/// Exit status of an import that left something out.
pub const PARTLY: u8 = 3;

/// A command that failed.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// What to print, without the last line feed.
    pub text: String,
    /// The exit status.
    pub status: u8,
}

impl Failure {
    /// One sentence.
    pub fn new(sentence: impl Display) -> Failure {
        Failure { text: format!("error: {sentence}"), status: FAILED }
    }

    /// One sentence about a command line that makes no sense.
    pub fn usage(sentence: impl Display) -> Failure {
        Failure { text: format!("error: {sentence}"), status: USAGE }
    }

    /// Errors in a file.
    pub fn in_file(name: &str, text: &[u8], errors: &[Diagnostic]) -> Failure {
        let rendered: Vec<_> = errors.iter().map(|d| d.render_in_file(name, text)).collect();
        Failure { text: rendered.join("\n"), status: FAILED }
    }

    /// A file that was refused, by this process.
    pub fn of_file(name: &str, text: &[u8], refusal: &Refusal) -> Failure {
        Failure::located(&refusal.message, &refusal.diagnostics, |d| Failure::in_file(name, text, d))
    }

    /// A file that was refused by the daemon.
    pub fn of_file_there(name: &str, text: &[u8], error: &ClientError) -> Failure {
        match error {
            ClientError::Refused(r) => {
                Failure::located(&r.error, &r.diagnostics, |d| Failure::in_file(name, text, d))
            }
            other => Failure::new(other),
        }
    }

    /// A line that was refused by the daemon; `number` is its place in a script.
    pub fn of_line(line: &str, number: Option<u32>, error: &ClientError) -> Failure {
        let render = |errors: &[Diagnostic]| {
            let rendered: Vec<_> =
                errors.iter().map(|d| d.clone().at_line(number.unwrap_or(0)).render(line)).collect();
            Failure { text: rendered.join("\n"), status: FAILED }
        };
        match error {
            ClientError::Refused(r) => Failure::located(&r.error, &r.diagnostics, render),
            other => Failure::new(other),
        }
    }

    /// The same, with the line of the script that it happened in, unless that is said already.
    pub fn at_line(self, number: u32) -> Failure {
        if self.text.starts_with("line ") {
            return self;
        }
        Failure { text: format!("line {number}: {}", self.text), ..self }
    }

    fn located(
        message: &str,
        entries: &[mmb_control::api::DiagnosticEntry],
        render: impl FnOnce(&[Diagnostic]) -> Failure,
    ) -> Failure {
        let errors: Vec<_> = entries.iter().map(|e| e.diagnostic()).collect();
        if errors.is_empty() { Failure::new(message) } else { render(&errors) }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::new(error)
    }
}

/// Prints to standard output. A reader that has seen enough (`| head`) is no error.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut pipe = Pipe::new();
    pipe.write(text.as_bytes());
    pipe.end()
}

/// Standard output, piece by piece.
pub struct Pipe {
    out: io::Stdout,
    error: Option<io::Error>,
}

impl Pipe {
    /// Nothing written yet.
    pub fn new() -> Pipe {
        Pipe { out: io::stdout(), error: None }
    }

    /// Writes a piece. False: nobody reads more.
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        if self.error.is_none() {
            self.error = self.out.write_all(bytes).and_then(|()| self.out.flush()).err();
        }
        self.error.is_none()
    }

    /// What went wrong. A reader that has seen enough (`| head`) is no error.
    pub fn end(self) -> Result<(), Failure> {
        match self.error {
            Some(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::new(format!("cannot write the output: {e}")))
            }
            _ => Ok(()),
        }
    }
}

/// Prints a JSON document as one line.
pub fn print_json(document: &impl serde::Serialize) -> Result<(), Failure> {
    let text =
        serde_json::to_string(document).map_err(|e| Failure::new(format!("cannot write the output: {e}")))?;
    print(&(text + "\n"))
}
