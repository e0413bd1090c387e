//! What chains are compiled to.
//!
//! Theory of operation. A *body* is a piece of a chain without an alternative: the chain itself, an arm of a bracket, or
//! what stands behind a function `flow`. It is a list of nodes in the order in which packets of the opener meet them, and
//! another one for the other direction, which is the mirror image; but who is asked where to go is asked first in both.
//! Where a session's ways part, some bits at the beginning of its scratchpad say which it has taken.

use mmb_lang::Match;

use super::layout::Space;

/// A [`Body`] of a program. Those of the chains come first, in the order of [`crate::ChainId`]s.
pub(crate) type BodyNo = u16;

#[derive(Debug, Default)]
pub(crate) struct Body {
    /// For packets of sessions' openers.
    pub there: Box<[Node]>,
    /// For those of the other sides.
    pub back: Box<[Node]>,
    /// Bytes of the scratchpads up to the end of what functions in the body keep there.
    pub bytes: usize,
    /// How long sessions must be kept, in milliseconds.
    pub timeout: Option<u32>,
}

#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// A function without outputs.
    Function(Place),
    /// A function with outputs, the arm of each, and what is behind them.
    Outputs { place: Place, ways: Bits, diverges: bool, outputs: Box<[u8]>, arms: Box<[End]> },
    /// By the traffic that a session is: the first arm that takes it.
    Class { ways: Bits, arms: Box<[ClassArm]>, sign: u64 },
    /// Here packets are translated.
    Translate,
    /// Sessions are looked up anew, and go through the body.
    Flow { instance: u16, stage: u16, body: BodyNo },
}

#[derive(Clone, Debug)]
pub(crate) struct ClassArm {
    /// The rule in the program's classes that accepts it. None: it takes all.
    pub class: Option<u32>,
    pub end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Into a body, and on behind the bracket.
    Body(BodyNo),
    Drop,
}

/// A function in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Position in the program's instances.
    pub instance: u16,
    pub stage: u16,
    /// Where its bytes begin in the sessions' scratchpads; those of a function with another key: its entry's number.
    pub offset: u32,
    pub bytes: u32,
    /// Its scratchpads belong to another key than the session.
    pub keyed: bool,
    /// PacketView's packets come here translated, if they are.
    pub behind: bool,
}

/// Some bits of the word in which sessions remember their ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bits {
    pub shift: u8,
    pub width: u8,
}

impl Bits {
    pub fn mask(self) -> u32 {
        ((1u64 << self.width) - 1) as u32
    }

    #[inline]
    pub fn get(self, word: u32) -> u32 {
        word >> (self.shift & 31) & self.mask()
    }

    #[inline]
    pub fn set(self, word: &mut u32, value: u32) {
        *word = *word & !(self.mask() << (self.shift & 31)) | (value & self.mask()) << (self.shift & 31);
    }
}

/// Sessions of one kind: those of the flow manager, or those that a function `flow` finds.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// The function `flow`; none for the flow manager's.
    pub flow: Option<u16>,
    pub space: Space,
}

/// A function at one place of a chain: what counters are kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stage {
    pub chain: u16,
    pub instance: u16,
}

/// A chain of a program.
#[derive(Debug)]
pub(crate) struct Chain {
    pub name: std::sync::Arc<str>,
    /// Its body in the language.
    pub text: String,
    pub class: Vec<Match>,
    /// The first arm of some way translates.
    pub translates: bool,
}
