//! The layout of scratchpads as a picture.

use std::fmt::Write;

use super::view::ScratchpadView;
use super::{HEADER_BYTES, Program};

/// Bytes that one character stands for.
const BYTES_PER_CHARACTER: usize = 4;

impl Program {
    /// The flow manager's scratchpads as text, a line for each function: its bytes as `#` where they are, other functions'
    /// that the same sessions may see as `.`, bytes that sessions which see it have no use for as blanks. A character
    /// stands for four bytes.
    ///
    /// ```text
    /// (header)  ##                                  0..8      8
    /// count     ..######                            8..32    24
    /// acl       ..      #                           32..36    4
    /// ```
    pub fn layout_diagram(&self) -> String {
        let places = self.scratchpads();
        let names = places.iter().map(|place| self.instances[place.instance].name());
        let wide = names.map(str::len).max().unwrap_or(0).max("(header)".len());
        let cells = self.bytes().div_ceil(BYTES_PER_CHARACTER);
        let mut text = String::new();
        if self.bytes() > 0 {
            let header = ScratchpadView { instance: usize::MAX, offset: 0, bytes: HEADER_BYTES };
            line(&mut text, "(header)", wide, &row(cells, &header, &[]), &header);
        }
        for place in &places {
            let name = self.instances[place.instance].name();
            line(&mut text, name, wide, &row(cells, place, &self.others(place, &places)), place);
        }
        text
    }

    /// The header, and whoever may see the same sessions.
    fn others(&self, place: &ScratchpadView, places: &[ScratchpadView]) -> Vec<ScratchpadView> {
        let space = self.spaces.first().map(|sessions| &sessions.space);
        let meets = |other: &&ScratchpadView| {
            space.is_some_and(|space| space.meets(place.instance as u16, other.instance as u16))
        };
        let header = ScratchpadView { instance: usize::MAX, offset: 0, bytes: HEADER_BYTES };
        places.iter().filter(meets).copied().chain([header]).collect()
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
