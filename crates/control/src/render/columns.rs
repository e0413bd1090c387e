//! Text in columns.

use std::fmt::Write;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// To the left.
    Left,
    /// To the right.
    Right,
}

/// Columns of text under a header line. Lines have no spaces at their end.
///
/// Long tables are rendered piece by piece. A column is as wide as its widest cell so far.
#[derive(Debug)]
pub(crate) struct Columns<const N: usize> {
    aligns: [Align; N],
    widths: [usize; N],
    rows: Vec<[String; N]>,
    /// Number of rows added, without the header.
    count: usize,
}

impl<const N: usize> Columns<N> {
    /// A table with this header and no rows.
    pub fn new(header: [(&str, Align); N]) -> Self {
        Columns {
            aligns: header.map(|(_, align)| align),
            widths: [0; N],
            rows: vec![header.map(|(name, _)| name.to_owned())],
            count: 0,
        }
    }

    /// Adds a row. A line feed in a cell does not end the row.
    pub fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(one_line));
        self.count += 1;
    }

    /// Whether no row was added.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Renders header and rows.
    pub fn render(mut self) -> String {
        self.flush()
    }

    /// Renders the rows since the last call; the first call adds the header.
    pub fn flush(&mut self) -> String {
        for row in &self.rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for row in self.rows.drain(..) {
            for (column, cell) in row.iter().enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                let width = self.widths[column];
                // Writing to a String cannot fail.
                let _ = match self.aligns[column] {
                    Align::Right => write!(text, "{gap}{cell:>width$}"),
                    Align::Left if column + 1 == N => write!(text, "{gap}{cell}"),
                    Align::Left => write!(text, "{gap}{cell:<width$}"),
                };
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }
}

/// Text of users or packets for one line: line feeds are escaped.
pub(super) fn one_line(text: String) -> String {
    if text.contains('\n') { text.replace('\n', "\\n") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_and_columns_grow() {
        let mut columns = Columns::new([("what", Align::Left), ("n", Align::Right), ("why", Align::Left)]);
        let row = |what: &str, n: u32| [what.to_owned(), n.to_string(), "because".to_owned()];
        assert!(columns.is_empty());
        columns.row(row("a", 12));
        assert_eq!(columns.flush(), "what   n  why\na     12  because\n");
        columns.row(row("abcdef", 3));
        assert_eq!(columns.flush(), "abcdef   3  because\n");
        columns.row(row("b", 4));
        assert_eq!(columns.flush(), "b        4  because\n");
        assert_eq!((columns.flush().as_str(), columns.is_empty()), ("", false));
    }
}
