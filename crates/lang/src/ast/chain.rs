//! Service chains: instances of network functions, and the ways that sessions take through them.

use super::Word;

/// `nf add INSTANCE TYPE [ARG…]`: a network function with what it is to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NfAdd {
    /// What chains know it by.
    pub name: Word,
    /// Which function it is.
    pub kind: Word,
    /// What the function is told: words, none of them empty, whose meaning only the function knows. A word
    /// may have blanks.
    pub args: Vec<Box<str>>,
}

/// A service chain: what `chain add NAME BODY` and `chain set NAME BODY` say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chain {
    /// What rules know it by.
    pub name: Word,
    /// The way through it.
    pub body: Body,
}

impl Chain {
    /// Most brackets within brackets. No line makes anybody who walks a chain go deeper.
    pub const MAX_DEPTH: usize = 8;
    /// Most functions and arms of a chain, together.
    pub const MAX_PARTS: usize = 256;
}

/// Steps, one after the other. A chain's is not empty; an arm's may be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Body(pub Vec<Step>);

/// A function, a parting of ways, or both: `INSTANCE`, `[ARM, …]` or `INSTANCE [LABEL: ARM, …]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The instance. None: sessions take the first arm whose kind of traffic they are, and there are arms.
    pub function: Option<Word>,
    /// The ways behind it, by the function's outputs or, without a function, by traffic; none for a plain
    /// function. All that join go on together with the next step.
    pub arms: Vec<Branch>,
}

/// One way of several.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Branch {
    /// With a function, always: the output that leads here. Without, none. `else`, last and with or without a
    /// function: for what no other arm takes, be it outputs or traffic.
    pub label: Option<Word>,
    /// How it ends.
    pub end: BranchEnd,
    /// What stands in it. Empty for an arm that drops.
    pub body: Body,
}

impl Branch {
    /// Whether it is for what no other arm takes.
    pub fn is_else(&self) -> bool {
        self.label.as_ref().is_some_and(|label| &*label.text == "else")
    }
}

/// How an arm ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BranchEnd {
    /// It goes on behind the bracket; an empty one is written `pass`.
    #[default]
    Join,
    /// `drop`.
    Drop,
}

impl From<&str> for Step {
    /// The instance alone.
    fn from(function: &str) -> Self {
        Step { function: Some(function.into()), arms: Vec::new() }
    }
}
