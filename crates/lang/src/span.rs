//! Where things stand in a line.

use serde::{Deserialize, Serialize};

/// A piece of one line: byte offsets, `start` included, `end` not. `start == end` points between two
/// characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// First byte behind.
    pub end: usize,
}

impl Span {
    /// The bytes from `start` to `end`.
    pub const fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }
}

/// Where a node of a rule was written, in 8 bytes. It is no part of what the node means: any two are equal
/// and hash alike, so that rules compare by meaning. The default, for rules that were never text, is the
/// start of the line.
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
    /// Offsets past 4 GiB saturate; the parser takes lines of 1 MiB at most.
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
