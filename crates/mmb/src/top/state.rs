//! The state of the live view, and what keys do to it.

use std::time::Instant;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::sample::{Rates, Sample};
use super::table::{Row, Table};
use super::views::View;

/// What the event loop does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait for a key or the next sample.
    Wait,
    /// Take a sample now: what is shown needs another one.
    Sample,
    /// End.
    Quit,
}

/// The totals in the head.
#[derive(Debug, Default)]
pub struct Totals {
    /// Packets received per second.
    pub packets: f64,
    /// Bits received per second.
    pub bits: f64,
    /// Packets dropped per second.
    pub drops: f64,
    /// Sessions opened per second.
    pub opened: f64,
}

/// The state.
pub struct State {
    /// The view.
    pub view: View,
    /// The column that orders the rows of each view, and whether their order is reversed.
    order: [(usize, bool); View::ALL.len()],
    /// The matches of rules and sessions.
    pub filter: String,
    /// The filter while it is typed.
    pub typed: Option<String>,
    /// No samples are taken.
    pub paused: bool,
    /// The row's own view is open.
    pub detail: bool,
    /// The help is open.
    pub help: bool,
    /// The row of the cursor, by its key, and its place if the row is gone.
    cursor: (String, usize),
    /// The rows of the view.
    pub table: Table,
    /// The sums of the head.
    pub totals: Totals,
    /// The last sample.
    pub sample: Sample,
    /// Why there is no newer one.
    pub error: Option<String>,
    rates: Rates,
}

impl State {
    /// The state before the first sample.
    pub fn new(view: View, filter: String) -> State {
        State {
            view,
            order: View::ALL.map(|view| (view.column(), false)),
            filter,
            typed: None,
            paused: false,
            detail: false,
            help: false,
            cursor: (String::new(), 0),
            table: Table::default(),
            totals: Totals::default(),
            sample: Sample::default(),
            error: None,
            rates: Rates::default(),
        }
    }

    /// Takes over a sample that was read at this moment, or why there is none.
    pub fn take(&mut self, sample: Result<Sample, String>, at: Instant) {
        match sample {
            Ok(sample) => (self.sample, self.error) = (sample, None),
            Err(error) => {
                self.error = Some(error);
                return;
            }
        }
        self.rates.begin(at);
        let sample = &self.sample;
        let interfaces = &sample.interfaces.interfaces;
        let mut rate = |what: &str, value| self.rates.of(format!("total {what}"), value);
        self.totals = Totals {
            packets: rate("packets", interfaces.iter().map(|i| i.rx_packets).sum()),
            bits: 8.0 * rate("bytes", interfaces.iter().map(|i| i.rx_bytes).sum()),
            drops: rate("drops", sample.drops.drops.values().sum()),
            opened: rate("opened", sample.runtime.sessions.created),
        };
        // The counters of all views, so that a view has rates as soon as it is opened.
        for view in View::ALL {
            let table = view.table(sample, &mut self.rates);
            if view == self.view {
                self.table = table;
            }
        }
        self.sort();
    }

    /// Orders the rows, and keeps the cursor on its row.
    fn sort(&mut self) {
        let (column, reverse) = self.order[self.view as usize];
        self.table.sort(column, reverse);
        let place = self.table.rows.iter().position(|row| row.key == self.cursor.0);
        self.move_to(place.unwrap_or(self.cursor.1));
    }

    /// Puts the cursor on a row, or on the last one.
    fn move_to(&mut self, place: usize) {
        let place = place.min(self.table.rows.len().saturating_sub(1));
        let key = self.table.rows.get(place).map(|row| row.key.clone()).unwrap_or_default();
        self.cursor = (key, place);
    }

    /// The place of the cursor.
    pub fn place(&self) -> usize {
        self.cursor.1
    }

    /// The row of the cursor.
    pub fn row(&self) -> Option<&Row> {
        self.table.rows.get(self.cursor.1)
    }

    /// The column that orders the rows, and whether their order is reversed.
    pub fn order(&self) -> (usize, bool) {
        self.order[self.view as usize]
    }

    fn show(&mut self, view: View) -> Step {
        (self.view, self.detail, self.help, self.paused) = (view, false, false, false);
        (self.cursor, self.table) = ((String::new(), 0), Table::default());
        Step::Sample
    }

    /// Acts on a key.
    pub fn press(&mut self, key: KeyEvent) -> Step {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Step::Quit } else { Step::Wait };
        }
        if self.typed.is_some() {
            return self.edit(key.code);
        }
        let (at, all) = (self.view as usize, View::ALL.len());
        match key.code {
            KeyCode::Char('q') => return Step::Quit,
            KeyCode::Esc if self.help || self.detail => (self.help, self.detail) = (false, false),
            KeyCode::Esc if !self.filter.is_empty() => {
                self.filter.clear();
                return Step::Sample;
            }
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            KeyCode::Char(c @ '1'..='8') => return self.show(View::ALL[c as usize - '1' as usize]),
            KeyCode::Tab | KeyCode::Right => return self.show(View::ALL[(at + 1) % all]),
            KeyCode::BackTab | KeyCode::Left => return self.show(View::ALL[(at + all - 1) % all]),
            KeyCode::Char('p' | ' ') => {
                self.paused = !self.paused;
                return if self.paused { Step::Wait } else { Step::Sample };
            }
            KeyCode::Enter => self.detail = !self.detail && self.row().is_some(),
            KeyCode::Char('s') => {
                let (column, _) = self.order[at];
                self.order[at] = ((column + 1) % self.table.columns.len().max(1), false);
                self.sort();
            }
            KeyCode::Char('r') => {
                self.order[at].1 = !self.order[at].1;
                self.sort();
            }
            KeyCode::Char('/') if matches!(self.view, View::Rules | View::Sessions) => {
                self.typed = Some(self.filter.clone());
            }
            KeyCode::Down | KeyCode::Char('j') => self.move_to(self.cursor.1 + 1),
            KeyCode::Up | KeyCode::Char('k') => self.move_to(self.cursor.1.saturating_sub(1)),
            KeyCode::PageDown => self.move_to(self.cursor.1 + 10),
            KeyCode::PageUp => self.move_to(self.cursor.1.saturating_sub(10)),
            KeyCode::Home => self.move_to(0),
            KeyCode::End => self.move_to(usize::MAX),
            _ => {}
        }
        Step::Wait
    }

    /// Acts on a key while the filter is typed.
    fn edit(&mut self, key: KeyCode) -> Step {
        let Some(mut typed) = self.typed.take() else { return Step::Wait };
        match key {
            KeyCode::Enter => {
                self.filter = typed.trim().to_owned();
                return Step::Sample;
            }
            KeyCode::Esc => return Step::Wait,
            KeyCode::Backspace => drop(typed.pop()),
            KeyCode::Char(c) => typed.push(c),
            _ => {}
        }
        self.typed = Some(typed);
        Step::Wait
    }
}
