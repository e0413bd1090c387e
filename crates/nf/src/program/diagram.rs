//! The layout of scratchpads as a diagram.

use std::fmt::Write;

use super::views::ScratchpadView;
use super::{HEADER_BYTES, Program};

/// Bytes that one character stands for.
const BYTES_PER_CHARACTER: usize = 4;

impl Program {
    /// Returns the flow manager's scratchpads as text, one line for each function.
    ///
    /// A character stands for four bytes: `#` bytes of the function, `.` bytes of functions that the same
    /// sessions may pass, blank bytes that such sessions do not use.
    ///
    /// ```text
    /// (header)  ##                                  0..8      8
    /// count     ..######                            8..32    24
    /// acl       ..      #                           32..36    4
    /// ```
    pub fn layout_diagram(&self) -> String {
        let scratchpads = self.scratchpads();
        let names = scratchpads.iter().map(|place| self.instances[place.instance].name());
        let wide = names.map(str::len).max().unwrap_or(0).max("(header)".len());
        let cells = self.bytes().div_ceil(BYTES_PER_CHARACTER);
        let mut text = String::new();
        if self.bytes() > 0 {
            let header = ScratchpadView { instance: usize::MAX, offset: 0, bytes: HEADER_BYTES };
            line(&mut text, "(header)", wide, &row(cells, &header, &[]), &header);
        }
        for place in &scratchpads {
            let name = self.instances[place.instance].name();
            line(&mut text, name, wide, &row(cells, place, &self.others(place, &scratchpads)), place);
        }
        text
    }

    /// Returns the header and the functions that the same sessions may pass.
    fn others(&self, place: &ScratchpadView, scratchpads: &[ScratchpadView]) -> Vec<ScratchpadView> {
        let layout = self.spaces.first().map(|sessions| &sessions.layout);
        let meets = |other: &&ScratchpadView| {
            layout.is_some_and(|layout| layout.meets(place.instance as u16, other.instance as u16))
        };
        let header = ScratchpadView { instance: usize::MAX, offset: 0, bytes: HEADER_BYTES };
        scratchpads.iter().filter(meets).copied().chain([header]).collect()
    }
}

fn row(cells: usize, place: &ScratchpadView, others: &[ScratchpadView]) -> String {
    let covers = |place: &ScratchpadView, cell: usize| {
        let at = cell * BYTES_PER_CHARACTER;
        place.offset < at + BYTES_PER_CHARACTER && at < place.offset + place.bytes
    };
    let cell = |cell| match others.iter().any(|other| covers(other, cell)) {
        _ if covers(place, cell) => '#',
        true => '.',
        false => ' ',
    };
    (0..cells).map(cell).collect()
}

fn line(text: &mut String, name: &str, wide: usize, row: &str, place: &ScratchpadView) {
    let range = format!("{}..{}", place.offset, place.offset + place.bytes);
    let _ = writeln!(text, "{name:wide$}  {row}  {range:>9}  {:>4}", place.bytes);
}
