//! `mmb watch`: repeats a command that shows something.

use std::io::IsTerminal;
use std::thread::sleep;
use std::time::Duration;

use mmb_lang::Command;

use crate::cli::WatchArgs;
use crate::failure::{Failure, Pipe};
use crate::target::Target;

/// Moves the cursor of a terminal to the first line, and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Runs the command until the reader goes, or as often as `--count` says.
pub fn run(args: &WatchArgs, target: &Target) -> Result<(), Failure> {
    let line = args.words.join(" ");
    check(&line)?;
    let mut client = target.connect()?;
    let is_terminal = std::io::stdout().is_terminal();
    let mut left = args.count;
    loop {
        let mut output = Vec::new();
        let gather = |piece: &[u8]| {
            output.extend_from_slice(piece);
            true
        };
        client.print(&line, false, gather).map_err(|e| Failure::of_line(&line, None, &e))?;
        let mut out = Pipe::new();
        let title = format!("{}every {} s: {line}\n\n", if is_terminal { CLEAR } else { "" }, args.interval);
        let is_read = out.write(title.as_bytes()) && out.write(&output);
        out.end()?;
        left = left.map(|left| left.saturating_sub(1));
        if left == Some(0) || !is_read {
            return Ok(());
        }
        sleep(Duration::from_secs_f64(args.interval));
    }
}

/// Whether a command shows something that is there, and changes nothing.
pub fn is_listing(command: &Command) -> bool {
    matches!(
        command,
        Command::List { .. }
            | Command::Show { .. }
            | Command::ShowSet { .. }
            | Command::ShowFib { .. }
            | Command::ShowNeighbors { .. }
            | Command::ShowConnections { .. }
            | Command::History { .. }
    )
}

/// Checks that a line is a listing.
fn check(line: &str) -> Result<(), Failure> {
    match mmb_lang::parse_line(line) {
        Ok(Some(command)) if is_listing(&command) => Ok(()),
        Ok(_) => Err(Failure::usage("`watch` repeats `list`, `show` and `history` only")),
        Err(error) => Err(Failure::usage(error.message)),
    }
}
