//! Positions in a line.

use serde::{Deserialize, Serialize};

/// A part of a line: byte offsets, `start` inclusive, `end` exclusive. `start == end` is a position between
/// two characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// First byte after the part.
    pub end: usize,
}

impl Span {
    /// The bytes from `start` to `end`.
    pub const fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }
}

/// The source position of a node, in 8 bytes. It does not affect the meaning of the node: all positions are
/// equal and have the same hash, so that rules compare by meaning. The default is the start of the line, for
/// rules that were never text.
#[derive(Clone, Copy, Debug, Default)]
pub struct SourceSpan {
    start: u32,
    end: u32,
}

impl SourceSpan {
    /// The span as byte offsets.
    pub const fn span(self) -> Span {
        Span::new(self.start as usize, self.end as usize)
    }
}

impl From<Span> for SourceSpan {
    /// Offsets above 4 GiB saturate. The parser accepts lines of at most 1 MiB.
    fn from(span: Span) -> Self {
        let narrow = |offset| u32::try_from(offset).unwrap_or(u32::MAX);
        Self { start: narrow(span.start), end: narrow(span.end) }
    }
}

impl PartialEq for SourceSpan {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SourceSpan {}

impl std::hash::Hash for SourceSpan {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}
