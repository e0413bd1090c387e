//! Failures of commands: the text for standard error and the exit status.

use std::fmt::Display;
use std::io::{self, Write};

use mmb_control::{ClientError, Refusal};
use mmb_lang::Diagnostic;

/// Exit status of a command that was refused or failed.
pub const FAILED: u8 = 1;
/// Exit status of an invalid command line.
pub const USAGE: u8 = 2;
/// Exit status of an import that could not convert everything.
pub const PARTIAL: u8 = 3;

/// A command that failed.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// The text to print, without the last line feed.
    pub text: String,
    /// The exit status.
    pub status: u8,
}

impl Failure {
    /// A failure with one sentence.
    pub fn new(sentence: impl Display) -> Failure {
        Failure { text: format!("error: {sentence}"), status: FAILED }
    }

    /// A failure with one sentence on an invalid command line.
    pub fn usage(sentence: impl Display) -> Failure {
        Failure { text: format!("error: {sentence}"), status: USAGE }
    }

    /// Errors in a file, with their lines.
    pub fn in_file(name: &str, text: &[u8], errors: &[Diagnostic]) -> Failure {
        let rendered: Vec<_> = errors.iter().map(|d| d.render_in_file(name, text)).collect();
        Failure { text: rendered.join("\n"), status: FAILED }
    }

    /// A file that this process refused.
    pub fn of_file(name: &str, text: &[u8], refusal: &Refusal) -> Failure {
        Failure::located(&refusal.message, &refusal.diagnostics, |d| Failure::in_file(name, text, d))
    }

    /// A file that the daemon refused.
    pub fn of_remote_file(name: &str, text: &[u8], error: &ClientError) -> Failure {
        match error {
            ClientError::Refused(r) => {
                Failure::located(&r.error, &r.diagnostics, |d| Failure::in_file(name, text, d))
            }
            other => Failure::new(other),
        }
    }

    /// A line that the daemon refused. `number` is the number of the line in a script.
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

    /// Adds the number of the line in a script, unless the text has it already.
    pub fn at_line(self, number: u32) -> Failure {
        if self.text.starts_with("line ") {
            return self;
        }
        Failure { text: format!("line {number}: {}", self.text), ..self }
    }

    /// Renders the errors with their places, or else the message.
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

/// Prints to standard output. It is no error if the reader has closed the pipe (`| head`).
pub fn print(text: &str) -> Result<(), Failure> {
    let mut pipe = Pipe::new();
    pipe.write(text.as_bytes());
    pipe.end()
}

/// Standard output, written piece by piece.
pub struct Pipe {
    out: io::Stdout,
    error: Option<io::Error>,
}

impl Pipe {
    /// An output without data.
    pub fn new() -> Pipe {
        Pipe { out: io::stdout(), error: None }
    }

    /// Writes a piece. False after an error, such as a closed pipe.
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        if self.error.is_none() {
            self.error = self.out.write_all(bytes).and_then(|()| self.out.flush()).err();
        }
        self.error.is_none()
    }

    /// Ends the output.
    ///
    /// # Errors
    /// The first error of a write, unless the reader has closed the pipe (`| head`).
    pub fn end(self) -> Result<(), Failure> {
        match self.error {
            Some(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::new(format!("cannot write the output: {e}")))
            }
            _ => Ok(()),
        }
    }
}
