//! `mmb top`: a live view of the running daemon, over its API.
//!
//! Theory of operation. The loop waits for a key or for the time of the next sample. A sample has the
//! documents of the API at a moment; the views make tables of it and of the rates since the sample before.
//! All state is a value that keys and samples change, so that tests draw it without terminal and daemon.

mod draw;
mod sample;
mod state;
mod table;
mod views;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use mmb_control::Client;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use self::sample::Sample;
use self::state::{State, Step};
pub use self::views::View;
use crate::cli::TopArgs;
use crate::failure::Failure;
use crate::target::Target;

/// Runs until the user quits.
///
/// # Errors
/// Standard output is no terminal, or no daemon answers at the start.
pub fn run(args: &TopArgs, target: &Target) -> Result<(), Failure> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::usage("`mmb top` needs a terminal; `mmb show` prints the same counters"));
    }
    let view = View::ALL.into_iter().find(|view| view.name() == args.view).unwrap_or(View::Ports);
    let mut state = State::new(view, args.matches.join(" "));
    let mut client = target.connect()?;
    let first = Sample::read(&mut client, view.extra(), &state.filter).map_err(Failure::new)?;
    state.take(Ok(first), Instant::now());
    let failed = |e: std::io::Error| Failure::new(format!("cannot use this terminal: {e}"));
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let period = Duration::from_millis(u64::from(args.interval.max(1)) * 1000);
    let ended = watch(&mut terminal, &mut client, &mut state, period);
    ratatui::restore();
    ended.map_err(failed)
}

/// Draws, and acts on keys and time.
fn watch(
    terminal: &mut DefaultTerminal,
    client: &mut Client,
    state: &mut State,
    period: Duration,
) -> std::io::Result<()> {
    let blocks = is_utf8(|name| std::env::var(name).ok());
    let mut next = Instant::now() + period;
    loop {
        terminal.draw(|frame| draw::draw(frame, state, blocks))?;
        let now = Instant::now();
        let mut step = if now >= next && !state.paused { Step::Sample } else { Step::Wait };
        let wait = if state.paused { period } else { next.saturating_duration_since(now) };
        if step == Step::Wait
            && event::poll(wait)?
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            step = state.press(key);
        }
        match step {
            Step::Quit => return Ok(()),
            Step::Wait => {}
            Step::Sample => {
                let sample = Sample::read(client, state.view.extra(), &state.filter);
                state.take(sample.map_err(|e| e.to_string()), Instant::now());
                next = Instant::now() + period;
            }
        }
    }
}

/// Whether the locale is one of UTF-8 (locale(7)).
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &&str| variable(name).is_some_and(|value| !value.is_empty());
    let name = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find(set).and_then(&variable);
    name.is_some_and(|name| name.to_ascii_lowercase().replace('-', "").contains("utf8"))
}

#[cfg(test)]
mod tests;
