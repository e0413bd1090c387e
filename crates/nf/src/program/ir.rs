//! The intermediate representation of compiled chains.
//!
//! Theory of operation. A *body* is a piece of a chain without alternatives: the chain itself, an arm of
//! brackets, or what follows a function `flow`. It is a list of nodes in the order in which forward packets
//! meet them, and a mirrored list for reverse packets. A function with outputs comes before its arms in both.
//! Where paths branch, some bits at the start of a session's scratchpad tell which arm it has taken.

use mmb_lang::Match;

use super::layout::PadLayout;

/// A [`Body`] of a program. Those of the chains come first, in the order of [`crate::ChainId`]s.
pub(crate) type BodyId = u16;

#[derive(Debug, Default)]
pub(crate) struct Body {
    /// Nodes for forward packets.
    pub forward: Box<[Node]>,
    /// Nodes for reverse packets.
    pub reverse: Box<[Node]>,
    /// Bytes of a scratchpad up to the end of the last function of the body.
    pub bytes: usize,
    /// Least time for which sessions are kept, in milliseconds.
    pub timeout: Option<u32>,
}

#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// A function without outputs.
    Function(FunctionNode),
    /// A function with outputs, the arm of each output, and the arms.
    Outputs {
        function: FunctionNode,
        branch: BitField,
        diverges: bool,
        outputs: Box<[u8]>,
        arms: Box<[ArmTarget]>,
    },
    /// The outputs of a stream function in front, which chooses one for its session some time after its
    /// beginning. Packets that come before pass by the arms.
    Choice { function: FunctionNode, branch: BitField, outputs: Box<[u8]>, arms: Box<[ArmTarget]> },
    /// Dispatch by traffic class: the first arm that accepts the session. `signature` identifies the same
    /// dispatch in another program.
    Dispatch { branch: BitField, arms: Box<[DispatchArm]>, signature: u64 },
    /// The end of a group of stream functions of which one edits, with the stream context.
    StreamExit(FunctionNode),
    /// Packets are translated.
    Translate,
    /// Sessions are looked up again, and packets pass the body.
    Flow { instance: u16, stage: u16, body: BodyId },
}

impl Node {
    /// Returns the function that stands here. That of a choice stands in front of it.
    pub fn function(&self) -> Option<&FunctionNode> {
        match self {
            Node::Function(function) | Node::Outputs { function, .. } => Some(function),
            _ => None,
        }
    }

    /// Iterates over all arms.
    pub fn arms(&self) -> impl Iterator<Item = ArmTarget> {
        let (outputs, dispatch): (&[_], &[DispatchArm]) = match self {
            Node::Outputs { arms, .. } | Node::Choice { arms, .. } => (arms, &[]),
            Node::Dispatch { arms, .. } => (&[], arms),
            Node::Function(_) | Node::StreamExit(_) | Node::Translate | Node::Flow { .. } => (&[], &[]),
        };
        outputs.iter().copied().chain(dispatch.iter().map(|arm| arm.target))
    }

    /// Iterates over the arms that a session with these branches has taken.
    pub fn taken_arms(&self, branches: u32) -> impl Iterator<Item = ArmTarget> {
        let (branch, diverges) = match self {
            Node::Outputs { branch, diverges, .. } => (*branch, *diverges),
            Node::Choice { branch, .. } | Node::Dispatch { branch, .. } => (*branch, false),
            // There are no arms.
            Node::Function(_) | Node::StreamExit(_) | Node::Translate | Node::Flow { .. } => {
                (BitField::default(), false)
            }
        };
        let taken = branch.get(branches);
        let is_taken = move |(arm, _): &(usize, ArmTarget)| has_taken(taken, diverges, *arm);
        self.arms().enumerate().filter(is_taken).map(|(_, target)| target)
    }
}

fn has_taken(taken: u32, diverges: bool, arm: usize) -> bool {
    if diverges { taken >> arm & 1 != 0 } else { taken as usize == arm + 1 }
}

/// Returns the arms that a session has taken, from its branch bits.
pub(crate) fn taken_arms(taken: u32, diverges: bool, arms: usize) -> impl Iterator<Item = usize> {
    (0..arms).filter(move |&arm| has_taken(taken, diverges, arm))
}

/// Returns the branch bits of an arm.
pub(crate) fn arm_bits(arm: usize, diverges: bool) -> u32 {
    if diverges { 1 << (arm & 31) } else { arm as u32 + 1 }
}

#[derive(Clone, Debug)]
pub(crate) struct DispatchArm {
    /// Slot of the class in the program's classifier. None: the arm accepts all.
    pub class: Option<u32>,
    pub target: ArmTarget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArmTarget {
    /// Packets pass the body, and go on behind the brackets.
    Body(BodyId),
    Drop,
}

/// A function in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FunctionNode {
    /// Index in the program's instances.
    pub instance: u16,
    pub stage: u16,
    /// Offset of the function's bytes in scratchpads. If the function has another key, they hold the number
    /// of an entry.
    pub offset: u32,
    pub bytes: u32,
    /// The scratchpads belong to another key than the session.
    pub is_keyed: bool,
    /// Forward packets are translated before they reach the function, if they are translated at all.
    pub after_translation: bool,
    /// A stream context keeps bytes, since a function behind it depends on them.
    pub keeps_bytes: bool,
    /// The function belongs to a group of stream functions of which one edits.
    pub edits: bool,
    pub group: GroupPlace,
    /// A stream context: the place of its functions in processes in [`crate::Program::apart`].
    pub apart: Option<u16>,
    /// The function in front of a stream function that translates sequence numbers.
    pub splicer: Option<Splicer>,
}

/// A function that translates the sequence numbers of sessions, and perhaps more of their segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Splicer {
    pub instance: u16,
    /// Offset of its bytes in scratchpads.
    pub offset: u32,
}

/// The place of a stream function in its group, or of the stream context in front of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupPlace {
    /// The stream context's instance.
    pub context: u16,
    /// Offset of its bytes in scratchpads.
    pub offset: u32,
    /// It is a stream function.
    pub is_member: bool,
    /// The function's bit in [`mmb_stream::TcpStream::detached`]. 0: it cannot be detached.
    pub bit: u8,
    /// The bits of all functions of the group.
    pub all: u8,
    /// The chain has no other function.
    pub is_alone: bool,
}

/// Some bits of the word in which sessions remember their branches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BitField {
    pub shift: u8,
    pub width: u8,
}

impl BitField {
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

/// Sessions of one kind: those of the flow manager, or those of a function `flow`.
#[derive(Debug, Default)]
pub(crate) struct SessionSpace {
    /// The function `flow`. None: the flow manager.
    pub flow: Option<u16>,
    pub layout: PadLayout,
}

/// A function at one place of a chain, which has counters of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stage {
    pub chain: u16,
    pub instance: u16,
}

/// A chain of a program.
#[derive(Debug)]
pub(crate) struct Chain {
    pub name: std::sync::Arc<str>,
    /// The body as text of the language.
    pub text: String,
    pub class: Vec<Match>,
    /// Some path translates.
    pub translates: bool,
    /// Some path translates sequence numbers: it does so in front of its stream functions.
    pub is_spliced: bool,
    /// The numbers of the instances, if only brokers can use the chain.
    pub l7: Vec<u16>,
}
