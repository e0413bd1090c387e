//! Service chains: instances of network functions, and the paths of sessions through them.

use super::Word;

/// `nf add INSTANCE TYPE [ARG…]`: a configured network function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NfInstance {
    /// Name of the instance, for chains.
    pub name: Word,
    /// Type of the function.
    pub kind: Word,
    /// Arguments of the function: non-empty words whose meaning only the function knows. A word may contain
    /// blanks.
    pub args: Vec<Box<str>>,
    /// `process DOMAIN [MODE] [cpu N]`: the function runs in a process of its own.
    pub process: Option<ProcessPlace>,
}

/// `process DOMAIN [poll|event|adaptive] [cpu N]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProcessPlace {
    /// The domain whose memory the process uses.
    pub domain: Word,
    /// What the process does while there are no packets.
    pub mode: ProcessMode,
    /// The processor on which the process runs. None: any.
    pub cpu: Option<u16>,
}

impl ProcessPlace {
    /// The highest number of a processor.
    pub const LAST_CPU: u16 = 1023;
}

/// How the words behind an unquoted `process` are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceWords<'a> {
    /// They are arguments of the function, and so is `process`.
    Arguments,
    NoDomain,
    NoCpu,
    /// The number of the processor is a word yet.
    Place {
        domain: &'a str,
        mode: ProcessMode,
        cpu: Option<&'a str>,
    },
}

impl<'a> PlaceWords<'a> {
    /// Each word with whether it has no quotes.
    pub(crate) fn read(words: &[(&'a str, bool)]) -> PlaceWords<'a> {
        let [(domain, _), rest @ ..] = words else { return PlaceWords::NoDomain };
        let mode = rest.first().filter(|(_, is_bare)| *is_bare);
        let (mode, rest) = match mode.and_then(|(word, _)| ProcessMode::from_word(word)) {
            Some(mode) => (mode, &rest[1..]),
            None => (ProcessMode::default(), rest),
        };
        match rest {
            [] => PlaceWords::Place { domain, mode, cpu: None },
            [("cpu", true)] => PlaceWords::NoCpu,
            [("cpu", true), (number, _)] => PlaceWords::Place { domain, mode, cpu: Some(number) },
            _ => PlaceWords::Arguments,
        }
    }
}

/// What the process of a function, or a worker, does while there are no packets for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProcessMode {
    /// It looks for packets all the time.
    Poll,
    /// It sleeps until somebody wakes it: the worker, or for a worker the kernel.
    Event,
    /// It looks for packets for a while, and then sleeps. The while of a process follows the traffic.
    #[default]
    Adaptive,
}

impl ProcessMode {
    /// All modes.
    pub const ALL: [ProcessMode; 3] = [ProcessMode::Poll, ProcessMode::Event, ProcessMode::Adaptive];

    /// Returns the word of the language.
    pub fn word(self) -> &'static str {
        match self {
            ProcessMode::Poll => "poll",
            ProcessMode::Event => "event",
            ProcessMode::Adaptive => "adaptive",
        }
    }

    /// Returns the mode with this word.
    pub fn from_word(word: &str) -> Option<ProcessMode> {
        ProcessMode::ALL.into_iter().find(|mode| mode.word() == word)
    }
}

/// `domain add NAME private|zero-copy [buffers N] [on-failure pass|drop]`: functions in processes that share
/// memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Domain {
    /// Name of the domain, for functions.
    pub name: Word,
    /// Which packets its processes can read.
    pub kind: DomainKind,
    /// Buffers for packets of all its functions.
    pub buffers: u32,
    /// What becomes of packets while the process of a function is not there.
    pub on_failure: OnFailure,
}

impl Domain {
    /// The buffers of a domain that does not say how many.
    pub const BUFFERS: u32 = 4096;
    /// The fewest and the most buffers of a domain.
    pub const BUFFER_RANGE: std::ops::RangeInclusive<u32> = 64..=131_072;
}

/// Which packets the processes of a domain can read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DomainKind {
    /// Those that are copied into the memory of the domain.
    #[default]
    Private,
    /// All packets of the engine, where they are.
    ZeroCopy,
}

impl DomainKind {
    /// All kinds.
    pub const ALL: [DomainKind; 2] = [DomainKind::Private, DomainKind::ZeroCopy];

    /// Returns the word of the language.
    pub fn word(self) -> &'static str {
        match self {
            DomainKind::Private => "private",
            DomainKind::ZeroCopy => "zero-copy",
        }
    }
}

/// What becomes of packets while the process of a function is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnFailure {
    /// They are dropped.
    #[default]
    Drop,
    /// They pass the function.
    Pass,
}

impl OnFailure {
    /// Returns the word of the language.
    pub fn word(self) -> &'static str {
        match self {
            OnFailure::Drop => "drop",
            OnFailure::Pass => "pass",
        }
    }
}

/// A service chain: `chain add NAME BODY` and `chain set NAME BODY`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chain {
    /// Name of the chain, for rules.
    pub name: Word,
    /// The functions of the chain.
    pub body: Body,
}

impl Chain {
    /// Maximum depth of nested brackets. It bounds the recursion of everything that walks a chain.
    pub const MAX_DEPTH: usize = 8;
    /// Maximum number of functions and branches of a chain together.
    pub const MAX_PARTS: usize = 256;
}

/// Steps in sequence. The body of a chain is not empty; the body of a branch may be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Body(pub Vec<Step>);

/// A function, a branching, or both: `INSTANCE`, `[BRANCH, …]` or `INSTANCE [LABEL: BRANCH, …]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The instance. None: a branching by traffic, which sends a session to the first branch that accepts it.
    pub function: Option<Word>,
    /// Branches after the function, by its outputs; without a function, by traffic. Empty for a plain
    /// function. Branches that join continue with the next step.
    pub arms: Vec<Branch>,
}

/// A branch of a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Branch {
    /// After a function: the output that leads to the branch. Without a function: none. `else`, always last:
    /// the branch for everything that no other branch takes.
    pub label: Option<Word>,
    /// How the branch ends.
    pub end: BranchEnd,
    /// Steps of the branch. Empty for a branch that drops.
    pub body: Body,
}

impl Branch {
    /// Whether this is the branch for everything that no other branch takes.
    pub fn is_else(&self) -> bool {
        self.label.as_ref().is_some_and(|label| &*label.text == "else")
    }
}

/// How a branch ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BranchEnd {
    /// It continues after the bracket. An empty branch is written `pass`.
    #[default]
    Join,
    /// `drop`.
    Drop,
}

impl From<&str> for Step {
    /// A step with only this instance.
    fn from(function: &str) -> Self {
        Step { function: Some(function.into()), arms: Vec::new() }
    }
}
