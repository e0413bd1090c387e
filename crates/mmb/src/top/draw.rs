//! The picture of the live view: a head of two lines, a table, and a line of keys.
//!
//! Nothing is drawn with lines or boxes, so that the picture is the same on all terminals. Bars are Unicode
//! where the locale is, else ASCII.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::state::State;
use super::table::{Table, human};
use super::views::View;

const HELP: &str = "\
1-8, Tab, arrows left and right   another view
arrows up and down, Page, Home    another row
Enter                             all about this row; again: back
s                                 order by the next column
r                                 reverse the order
/                                 matches of rules or sessions, then Enter
Esc                               close what is open; then: no matches
p, Space                          pause, and go on
q, Ctrl-C                         quit";

/// Draws the state. `blocks`: the terminal shows Unicode.
pub fn draw(frame: &mut Frame<'_>, state: &State, blocks: bool) {
    let [head, tabs, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Line::raw(head_text(state, head.width)), head);
    frame.render_widget(tabs_line(state.view), tabs);
    match (state.help, state.row().filter(|_| state.detail)) {
        (true, _) => frame.render_widget(Paragraph::new(HELP), body),
        (false, Some(row)) => {
            let width = row.detail.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
            let lines = row.detail.iter().map(|(name, value)| Line::raw(format!("{name:<width$}  {value}")));
            let text = Paragraph::new(lines.collect::<Vec<_>>()).wrap(Wrap { trim: false });
            frame.render_widget(text, body);
        }
        (false, None) => table(frame, body, state, blocks),
    }
    frame.render_widget(foot_line(state), foot);
}

/// The totals that fit the width, from the most important one on.
fn head_text(state: &State, width: u16) -> String {
    let (sample, totals) = (&state.sample, &state.totals);
    let (sessions, up) = (&sample.runtime.sessions, sample.uptime);
    let parts = [
        format!("mmb up {}:{:02}:{:02}", up / 3600, up / 60 % 60, up % 60),
        format!("{} pkt/s", human(totals.packets)),
        format!("{} bit/s", human(totals.bits)),
        format!("{} drops/s", human(totals.drops)),
        format!("{}/{} sessions", human(sessions.sessions as f64), human(sessions.capacity as f64)),
        format!("{} new/s", human(totals.opened)),
        format!("version {}", sample.version),
    ];
    let mut text = String::new();
    for part in parts {
        let gap = if text.is_empty() { "" } else { "  " };
        if text.len() + gap.len() + part.len() > width.into() {
            break;
        }
        text += gap;
        text += &part;
    }
    text
}

fn tabs_line(shown: View) -> Line<'static> {
    let tab = |(at, view): (usize, View)| {
        let style = if view == shown { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        [Span::styled(format!("{} {}", at + 1, view.name()), style), Span::raw("  ")]
    };
    Line::from_iter(View::ALL.into_iter().enumerate().flat_map(tab))
}

fn foot_line(state: &State) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    if let Some(typed) = &state.typed {
        return Line::styled(format!("match: {typed}_"), bold);
    }
    if let Some(error) = &state.error {
        return Line::styled(error.clone(), bold);
    }
    let mut text = String::new();
    if state.paused {
        text.push_str("PAUSED  ");
    }
    if !state.filter.is_empty() && matches!(state.view, View::Rules | View::Sessions) {
        text.push_str(&format!("match: {}  ", state.filter));
    }
    text.push_str("q quit  ? help  s sort  r reverse  / match  Enter detail  p pause");
    Line::raw(text)
}

fn table(frame: &mut Frame<'_>, area: Rect, state: &State, blocks: bool) {
    let Table { columns, rows, empty } = &state.table;
    if rows.is_empty() {
        frame.render_widget(Line::raw(*empty), area);
        return;
    }
    let height = usize::from(area.height).saturating_sub(1);
    // As many rows as fit, with that of the cursor.
    let first = (state.place() + 1).saturating_sub(height);
    let shown = &rows[first..rows.len().min(first + height)];
    let texts: Vec<Vec<String>> =
        shown.iter().map(|row| row.cells.iter().map(|cell| cell.show(blocks)).collect()).collect();
    let (ordered, reverse) = state.order();
    let heads: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(at, name)| match (at == ordered, reverse) {
            (true, false) => format!("{name}*"),
            (true, true) => format!("{name}^"),
            (false, _) => (*name).to_owned(),
        })
        .collect();
    let width_of = |at: usize| {
        let cells = texts.iter().filter_map(|row| row.get(at)).map(|text| text.chars().count());
        cells.chain([heads[at].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width_of).collect();
    let right = |at: usize| rows[0].cells.get(at).is_some_and(|cell| cell.is_number());
    let line = |texts: &[String]| {
        let cell = |(at, text): (usize, &String)| match right(at) {
            true => format!("{text:>width$}", width = widths[at]),
            false => format!("{text:<width$}", width = widths[at]),
        };
        texts.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ")
    };
    let mut lines = vec![Line::styled(line(&heads), Style::new().add_modifier(Modifier::BOLD))];
    lines.extend(texts.iter().enumerate().map(|(at, texts)| {
        let style = match first + at == state.place() {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        };
        Line::styled(line(texts), style)
    }));
    frame.render_widget(Paragraph::new(lines), area);
}
