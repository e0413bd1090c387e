//! Output that is longer than the screen goes through a pager.
//!
//! Theory of operation. What is written is held until it needs more rows than the terminal has. Then a pager
//! is started and gets it, and what follows, as it comes. Output that fits is printed at its end. The pager
//! runs as the user of this process, and in its place: keys, Ctrl-C among them, are for the pager until it
//! ends. If it ends early, the rest of the output is dropped. If it cannot be started, the output is printed.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::failure::{Failure, Pipe};

/// Options of `less` if the user has none, as git sets them: end if all fits, show colours, keep the screen.
const LESS: &str = "FRX";

/// The pager of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pager {
    /// Output is printed, however long it is.
    Off,
    /// `less`, which may be absent.
    Less,
    /// The command that a variable names, for `sh -c` (POSIX: `PAGER` of `man`).
    Command(OsString),
}

impl Pager {
    /// The pager that the environment names: none if standard output is no terminal, or if `is_off`.
    pub fn new(is_off: bool) -> Pager {
        if is_off || !io::stdout().is_terminal() {
            return Pager::Off;
        }
        Pager::choose(|name| std::env::var_os(name))
    }

    /// The pager of a terminal.
    fn choose(variable: impl Fn(&str) -> Option<OsString>) -> Pager {
        if variable("TERM").is_some_and(|term| term == "dumb") {
            return Pager::Off;
        }
        match variable("MMB_PAGER").or_else(|| variable("PAGER")) {
            None => Pager::Less,
            Some(command) => match command.as_encoded_bytes().trim_ascii() {
                b"" | b"cat" => Pager::Off,
                _ => Pager::Command(command),
            },
        }
    }

    /// An output without data.
    pub fn output(&self) -> Output {
        let stage = match self {
            Pager::Off => Stage::Direct,
            _ => Stage::Held { text: Vec::new(), pager: self.clone(), screen: Screen::of_terminal() },
        };
        Output { direct: Pipe::new(), stage }
    }

    /// Prints a text to standard output.
    pub fn print(&self, text: &str) -> Result<(), Failure> {
        let mut output = self.output();
        output.write(text.as_bytes());
        output.end()
    }

    /// Prints a JSON document as one line.
    pub fn print_json(&self, document: &impl serde::Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(document)
            .map_err(|e| Failure::new(format!("cannot write the output: {e}")))?;
        self.print(&(text + "\n"))
    }

    /// The process to start.
    fn process(&self) -> Option<Command> {
        let mut command = match self {
            Pager::Off => return None,
            Pager::Less => Command::new("less"),
            Pager::Command(text) => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(text);
                shell
            }
        };
        if std::env::var_os("LESS").is_none() {
            command.env("LESS", LESS);
        }
        command.stdin(Stdio::piped());
        Some(command)
    }
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Screen {
    rows: usize,
    columns: usize,
}

impl Screen {
    fn of_terminal() -> Screen {
        tcgetwinsize(io::stdout()).map_or(Screen::new(0, 0), |size| Screen::new(size.ws_row, size.ws_col))
    }

    /// A size; a terminal that does not know its own, such as a serial line, is taken for a VT100.
    fn new(rows: u16, columns: u16) -> Screen {
        let or = |size: u16, default| if size == 0 { default } else { usize::from(size) };
        Screen { rows: or(rows, 24), columns: or(columns, 80) }
    }

    /// Whether a text and the prompt behind it fit.
    fn fits(self, text: &[u8]) -> bool {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let rows = text.split(|byte| *byte == b'\n').map(|line| {
            // Continuation bytes of UTF-8 take no column.
            let columns = line.iter().filter(|byte| **byte & 0xc0 != 0x80).count();
            columns.div_ceil(self.columns).max(1)
        });
        rows.sum::<usize>() < self.rows
    }
}

/// Standard output or a pager, written piece by piece. What is held goes out at the end, also of its scope.
pub struct Output {
    direct: Pipe,
    stage: Stage,
}

enum Stage {
    /// Pieces go to standard output.
    Direct,
    /// The text fits the screen so far.
    Held { text: Vec<u8>, pager: Pager, screen: Screen },
    /// Pieces go to the pager.
    Paged(Running),
    /// Pieces are dropped.
    Over,
}

impl Output {
    /// Writes a piece. False if no more is wanted: after an error, a closed pipe, the end of the pager.
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        match &mut self.stage {
            Stage::Direct => self.direct.write(bytes),
            Stage::Held { text, pager, screen } => {
                text.extend_from_slice(bytes);
                if screen.fits(text) {
                    return true;
                }
                let text = std::mem::take(text);
                self.stage = Running::start(pager).map_or(Stage::Direct, Stage::Paged);
                self.write(&text)
            }
            Stage::Paged(running) => running.write(bytes) || self.leave_pager(),
            Stage::Over => false,
        }
    }

    /// Waits for the pager. True if it was none: its text has been printed, and more can be.
    fn leave_pager(&mut self) -> bool {
        let Stage::Paged(running) = std::mem::replace(&mut self.stage, Stage::Over) else { return false };
        let Some(text) = running.end() else { return false };
        self.stage = Stage::Direct;
        self.direct.write(&text)
    }

    fn finish(&mut self) {
        match &mut self.stage {
            Stage::Held { text, .. } => self.direct.write(text),
            _ => self.leave_pager(),
        };
        self.stage = Stage::Over;
    }

    /// Ends the output, and waits until the pager ends.
    ///
    /// # Errors
    /// The first error of a write to standard output, unless the reader has closed the pipe (`| head`).
    pub fn end(mut self) -> Result<(), Failure> {
        self.finish();
        std::mem::replace(&mut self.direct, Pipe::new()).end()
    }
}

impl Drop for Output {
    /// A failure is told behind what was written before it.
    fn drop(&mut self) {
        self.finish();
    }
}

/// Most bytes that are kept until it is known that there is a pager: more than a pipe and a piece have, so
/// that a process that does not read cannot have taken as many.
const KEPT: usize = 512 << 10;

/// A pager that was started.
struct Running {
    child: Child,
    input: Option<ChildStdin>,
    /// The pieces so far; none once they have more bytes than [`KEPT`].
    kept: Option<Vec<u8>>,
    terminal: Option<Termios>,
    _keys: KeysForPager,
}

impl Running {
    /// Starts a pager, if the system has it.
    fn start(pager: &Pager) -> Option<Running> {
        let keys = KeysForPager::begin().ok()?;
        let terminal = tcgetattr(io::stdout()).ok();
        let mut child = pager.process()?.spawn().ok()?;
        let input = child.stdin.take();
        Some(Running { child, input, kept: Some(Vec::new()), terminal, _keys: keys })
    }

    /// Writes a piece; false if the pager has ended.
    fn write(&mut self, bytes: &[u8]) -> bool {
        self.kept = self.kept.take().filter(|kept| kept.len() + bytes.len() <= KEPT).map(|mut kept| {
            kept.extend_from_slice(bytes);
            kept
        });
        self.input.as_mut().is_some_and(|input| input.write_all(bytes).is_ok())
    }

    /// Waits for the end. Returns what was written if the shell has found no such pager.
    fn end(mut self) -> Option<Vec<u8>> {
        drop(self.input.take());
        let status = self.child.wait();
        if let (Some(terminal), false) = (&self.terminal, status.as_ref().is_ok_and(|s| s.success())) {
            // It may have died in the middle. A terminal that is gone has no state.
            let _ = tcsetattr(io::stdout(), OptionalActions::Now, terminal);
        }
        // POSIX, Shell Command Language: 127 is a command that was not found, 126 one that cannot run.
        self.kept.filter(|_| matches!(status.map(|s| s.code()), Ok(Some(126 | 127))))
    }
}

/// While it lives, Ctrl-C does not end this process. A pager gets it, too, with the action that it chooses.
struct KeysForPager(Arc<AtomicBool>);

impl KeysForPager {
    fn begin() -> io::Result<KeysForPager> {
        /// Whether Ctrl-C ends the process, as without a handler.
        static ENDS: OnceLock<Arc<AtomicBool>> = OnceLock::new();
        let ends = match ENDS.get() {
            Some(ends) => ends.clone(),
            None => {
                let ends = Arc::new(AtomicBool::new(true));
                signal_hook::flag::register_conditional_default(signal_hook::consts::SIGINT, ends.clone())?;
                ENDS.get_or_init(|| ends).clone()
            }
        };
        ends.store(false, SeqCst);
        Ok(KeysForPager(ends))
    }
}

impl Drop for KeysForPager {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(variables: &[(&str, &str)]) -> Pager {
        Pager::choose(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_environment_chooses_the_pager() {
        let command = |text: &str| Pager::Command(text.into());
        assert_eq!(chosen(&[]), Pager::Less);
        assert_eq!(chosen(&[("TERM", "xterm")]), Pager::Less);
        assert_eq!(chosen(&[("PAGER", "more")]), command("more"));
        assert_eq!(chosen(&[("PAGER", "more"), ("MMB_PAGER", "less -S")]), command("less -S"));
        for off in ["", " ", "cat", " cat "] {
            assert_eq!(chosen(&[("PAGER", off)]), Pager::Off, "{off:?}");
            assert_eq!(chosen(&[("PAGER", "more"), ("MMB_PAGER", off)]), Pager::Off, "{off:?}");
        }
        assert_eq!(chosen(&[("PAGER", "cat -n")]), command("cat -n"));
        assert_eq!(chosen(&[("PAGER", "more"), ("TERM", "dumb")]), Pager::Off);
        assert_eq!(Pager::new(true), Pager::Off);
    }

    #[test]
    fn a_text_fits_with_the_prompt() {
        let screen = Screen::new(4, 10);
        let fits = |text: &str| screen.fits(text.as_bytes());
        assert!(fits("") && fits("\n\n\n") && fits("a\nb\nc\n") && fits("a\nb\nc"));
        assert!(!fits("a\nb\nc\nd\n") && !fits("a\nb\nc\nd") && !fits("\n\n\n\n"));
        // Lines that are wrapped need more rows.
        assert!(fits(&format!("{}\nb\n", "x".repeat(20))) && fits(&"x".repeat(30)));
        assert!(!fits(&format!("{}\nb\n", "x".repeat(21))) && !fits(&"x".repeat(31)));
        assert!(fits(&"é".repeat(30)) && !fits(&"é".repeat(31)));
    }

    #[test]
    fn a_terminal_without_a_size_has_24_rows() {
        assert_eq!(Screen::new(0, 0), Screen { rows: 24, columns: 80 });
        assert_eq!(Screen::new(50, 0), Screen { rows: 50, columns: 80 });
    }

    #[test]
    fn a_shell_without_the_pager_returns_the_text() {
        let run = |command: &str, pieces: &[&[u8]]| {
            let mut running = Running::start(&Pager::Command(command.into())).unwrap();
            let written = pieces.iter().take_while(|piece| running.write(piece)).count();
            (written, running.end())
        };
        assert_eq!(run("exec 2>/dev/null; mmb-has-no-such-pager", &[b"one\n"]).1, Some(b"one\n".to_vec()));
        let text = vec![b'x'; KEPT / 4];
        let piece = text.as_slice();
        // The pipe cannot take the piece, so that the end of the shell is seen.
        assert_eq!(run("exec 2>/dev/null; mmb-has-no-such-pager", &[piece]), (0, Some(text.clone())));
        assert_eq!(run("cat >/dev/null", &[piece; 9]), (9, None));
        assert_eq!(run("head -n 0", &[piece; 9]), (0, None), "ended early");
        assert_eq!(run("cat >/dev/null; exit 127", &[piece; 9]), (9, None), "it has read");
    }
}
