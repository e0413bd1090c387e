//! Tables of the live view: cells, order, and the numbers of people.

use std::cmp::Ordering;

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A text.
    Text(String),
    /// A number, shown with the prefixes k, M, G, T.
    Number(f64),
    /// A share of 1, shown in percent.
    Share(f64),
    /// The latest values of a rate.
    History(Vec<f64>),
}

/// A row.
#[derive(Clone, Debug)]
pub struct Row {
    /// What identifies the row from one sample to the next.
    pub key: String,
    /// One cell for each column.
    pub cells: Vec<Cell>,
    /// Names and values for the view of this row alone.
    pub detail: Vec<(String, String)>,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Heads of the columns.
    pub columns: Vec<&'static str>,
    /// The rows.
    pub rows: Vec<Row>,
    /// The text in place of the rows if there are none.
    pub empty: &'static str,
}

impl Cell {
    /// A text.
    pub fn text(text: impl ToString) -> Cell {
        Cell::Text(text.to_string())
    }

    /// The order of two cells of a column: texts by letters, numbers by size.
    fn order(&self, other: &Cell) -> Ordering {
        let last = |values: &[f64]| values.last().copied().unwrap_or(0.0);
        match (self, other) {
            (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
            (Cell::Number(a), Cell::Number(b)) | (Cell::Share(a), Cell::Share(b)) => a.total_cmp(b),
            (Cell::History(a), Cell::History(b)) => last(a).total_cmp(&last(b)),
            _ => Ordering::Equal,
        }
    }

    /// Whether the cell stands at the right of its column.
    pub fn is_number(&self) -> bool {
        matches!(self, Cell::Number(_) | Cell::Share(_))
    }

    /// The cell as text. `blocks`: the terminal shows Unicode.
    pub fn show(&self, blocks: bool) -> String {
        match self {
            // Control characters of a text would move the cursor.
            Cell::Text(text) => text.chars().map(|c| if c.is_control() { '?' } else { c }).collect(),
            Cell::Number(number) => human(*number),
            Cell::Share(share) => format!("{:.1}%", share * 100.0),
            Cell::History(values) => sparkline(values, blocks),
        }
    }
}

impl Table {
    /// Orders the rows by a column: numbers from the largest, texts from the first. Equal rows stay in their
    /// order.
    pub fn sort(&mut self, column: usize, reverse: bool) {
        let falls = self
            .rows
            .first()
            .and_then(|row| row.cells.get(column))
            .is_some_and(|cell| !matches!(cell, Cell::Text(_)));
        self.rows.sort_by(|a, b| match (a.cells.get(column), b.cells.get(column)) {
            (Some(a), Some(b)) if falls != reverse => b.order(a),
            (Some(a), Some(b)) => a.order(b),
            _ => Ordering::Equal,
        });
    }
}

/// A number with three to four digits and a prefix.
pub fn human(number: f64) -> String {
    let mut scaled = number;
    for prefix in ["", "k", "M", "G", "T"] {
        if scaled < 999.5 || prefix == "T" {
            let digits = if prefix.is_empty() && scaled.fract() == 0.0 || scaled >= 99.95 { 0 } else { 1 };
            return format!("{scaled:.digits$}{prefix}");
        }
        scaled /= 1000.0;
    }
    String::new()
}

/// A line of bars, one for each value, of which the largest one has the full height.
fn sparkline(values: &[f64], blocks: bool) -> String {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const LETTERS: [char; 9] = [' ', '.', '.', ':', ':', '=', '=', '#', '#'];
    let most = values.iter().copied().fold(0.0, f64::max);
    let bars = if blocks { BLOCKS } else { LETTERS };
    let height = |value: f64| if most > 0.0 { (value / most * 8.0).ceil() as usize } else { 0 };
    values.iter().map(|value| bars[height(*value).min(8)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_prefixes() {
        for (number, text) in [
            (0.0, "0"),
            (7.0, "7"),
            (7.25, "7.2"),
            (999.0, "999"),
            (999.9, "1.0k"),
            (1234.0, "1.2k"),
            (99_960.0, "100k"),
            (123_456_789.0, "123M"),
            (5e15, "5000T"),
        ] {
            assert_eq!(human(number), text, "{number}");
        }
    }

    #[test]
    fn bars_have_the_height_of_their_values() {
        assert_eq!(sparkline(&[0.0, 1.0, 4.0, 8.0], true), " ▁▄█");
        assert_eq!(sparkline(&[0.0, 1.0, 4.0, 8.0], false), " .:#");
        assert_eq!(sparkline(&[0.0, 0.0], true), "  ");
    }

    #[test]
    fn rows_are_sorted_by_a_column() {
        let row = |name: &str, rate| Row {
            key: name.into(),
            cells: vec![Cell::text(name), Cell::Number(rate)],
            detail: Vec::new(),
        };
        let mut table = Table { rows: vec![row("b", 1.0), row("a", 3.0), row("c", 2.0)], ..Table::default() };
        let mut keys = |column, reverse| {
            table.sort(column, reverse);
            table.rows.iter().map(|row| row.key.clone()).collect::<String>()
        };
        assert_eq!((keys(1, false), keys(1, true)), ("acb".into(), "bca".into()));
        assert_eq!((keys(0, false), keys(0, true)), ("abc".into(), "cba".into()));
        assert_eq!(Cell::text("a\x1b[2J").show(true), "a?[2J");
    }
}
