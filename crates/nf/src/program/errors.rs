//! Errors of the compilation of instances and chains.

use crate::ArgError;

/// The configuration item that a [`ProgramError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramItem {
    /// An instance, by its index in [`crate::ProgramSpec::functions`].
    Function(usize),
    /// A chain, by its index in [`crate::ProgramSpec::chains`].
    Chain(usize),
}

/// Why instances and chains cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct ProgramError {
    /// The item that is wrong.
    pub item: ProgramItem,
    /// The word of its line that is wrong, if it is a single one.
    pub word: Option<String>,
    /// The error.
    #[source]
    pub error: ChainError,
}

/// The error of an instance or a chain. Fields are names and traffic classes as they are in the
/// configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant describes it")]
pub enum ChainError {
    #[error("a function `{0}` exists already")]
    DuplicateFunction(String),
    #[error("a chain `{0}` exists already")]
    DuplicateChain(String),
    #[error("`{0}`: functions that edit streams must be next to all other stream functions of a chain")]
    SplitEdits(String),
    #[error(
        "`{name}` reads streams, and `{splicer}` opens connections in the place of their servers: put `{name}` directly \
         behind `{splicer}`, in the same brackets"
    )]
    StreamsApart { name: String, splicer: String },
    #[error("there are more than {max} {what}")]
    TooMany { what: &'static str, max: usize },
    #[error("there is no type of function `{name}`; {help}")]
    UnknownType { name: String, help: String },
    #[error(transparent)]
    Args(#[from] ArgError),
    #[error("there is no function `{name}`; {help}")]
    UnknownFunction { name: String, help: String },
    #[error("`{name}` works on packets, and `{only}` in brokers: a chain has functions of one kind")]
    L7Mixed { name: String, only: String },
    #[error("brackets cannot be used with `{0}`: a chain of brokers is a plain list")]
    L7Brackets(String),
    #[error("`{0}` stands twice in a chain of brokers")]
    L7Twice(String),
    #[error(
        "`{name}` reads the bytes of connections, and `{first}` in front of it whole messages: put `{name}` before \
         `{first}`"
    )]
    L7Order { name: String, first: String },
    #[error(
        "`{first}` runs {place} and `{second}` {other}: the functions of a chain of brokers run all in the daemon, \
         or in the same domain and on the same `cpu`"
    )]
    L7Places { first: String, place: String, second: String, other: String },
    #[error("`{0}` works in brokers, whose processes sleep while nothing comes: leave `poll` out")]
    L7Polls(String),
    #[error(
        "`{name}` is one stream function in a process too many: at most {max} stand beside one that edits, so leave \
         `process` out of its line"
    )]
    TooManyApart { name: String, max: usize },
    #[error("`{first}` and `{second}` both choose servers: a chain of brokers has one such function")]
    L7Servers { first: String, second: String },
    #[error("there is no domain `{name}`; {help}")]
    UnknownDomain { name: String, help: String },
    #[error("`{name}` {reason}, which a function in a process cannot do: leave `process` out")]
    NeedsWorker { name: String, reason: String },
    #[error("the process of `{name}` has not started: {reason}")]
    NoProcess { name: String, reason: String },
    #[error("`{name}` runs in a process and cannot be behind `{flow}`: put it before `{flow}`")]
    ProcessBehindFlow { name: String, flow: String },
    #[error("brackets of the chain are nested too deep")]
    TooDeep,
    #[error("a path has too many brackets: a session remembers its path in {bits} bits")]
    TooManyBranches { bits: u8 },
    #[error(
        "chain `{chain}` needs {bytes} bytes of scratchpad for each session, and there are {limit}: start mmb with \
         `--scratchpad {bytes}`, or use fewer functions on a path"
    )]
    ScratchpadFull { chain: String, bytes: usize, limit: usize },
    #[error("no session can use the chain, which accepts `{class}`: {why}")]
    EmptyClass { class: String, why: String },
    #[error("the traffic `{class}` cannot be classified: {why}")]
    InvalidClass { class: String, why: String },
    #[error("no packet reaches `{0}`: all paths in front of it drop")]
    Unreachable(String),
    #[error(
        "no packet reaches `{name}`: it accepts `{class}`, and `{before}` in front of it accepts only `{other}`"
    )]
    DisjointFunctions { name: String, class: String, before: String, other: String },
    #[error(
        "no packet reaches `{name}`: it accepts `{class}`, and sessions on this path are `{path}` ({why})"
    )]
    DisjointPath { name: String, class: String, path: String, why: String },
    #[error("`{0}` is used twice on one path; add a second instance with `nf add`")]
    UsedTwice(String),
    #[error(
        "`{name}` is keyed by the {key}, which `{translator}` in front of it has replaced: put `{name}` before \
         `{translator}`"
    )]
    KeyTranslated { name: String, key: &'static str, translator: String },
    #[error("`{name}` translates, which only sessions before `{flow}` can do: put it before `{flow}`")]
    TranslatesBehindFlow { name: String, flow: String },
    #[error(
        "`{name}` translates, but `{router}` cannot tell in advance which sessions get there: put `{name}` before \
         `{router}`"
    )]
    TranslatesUnrouted { name: String, router: String },
    #[error("`{0}` translates, and only some paths to it do: all of them have to translate, or none")]
    TranslatesPartly(String),
    #[error("`{name}` and `{other}` on one path both translate {what}: remove one of them")]
    TranslatesTwice { name: String, other: String, what: &'static str },
    #[error("`{name}` holds packets, and more than {max} functions of type flow are in front of it")]
    HoldsTooDeep { name: String, max: usize },
    #[error("`{0}` translates, which a function with outputs cannot do")]
    TranslatesWithOutputs(String),
    #[error(
        "`{name}` translates, but accepts only some of the traffic that reaches it ({class}): put it into brackets \
         with `else: pass`"
    )]
    TranslatesConditionally { name: String, class: String },
    #[error(
        "`{0}` chooses an output when its session has begun, so that no arm behind it can be `drop`: let `{0}` refuse \
         such sessions"
    )]
    DropsChosen(String),
    #[error("`{0}` is of type flow and has no outputs for brackets")]
    FlowHasNoOutputs(String),
    #[error("`{0}` has no outputs, so that no brackets can follow it")]
    NoOutputs(String),
    #[error(
        "`{name}` has the outputs {outputs}: say in brackets where they lead, as in `{name} [{first}: pass]`"
    )]
    BracketsMissing { name: String, outputs: String, first: String },
    #[error(
        "each arm in the brackets behind `{name}` begins with one of its outputs ({outputs}) and a colon"
    )]
    LabelMissing { name: String, outputs: String },
    #[error("`{name}` has no output `{label}`; it has {outputs}")]
    UnknownOutput { name: String, label: String, outputs: String },
    #[error("the output `{label}` of `{name}` has two arms")]
    DuplicateOutput { name: String, label: String },
    #[error("the output `{output}` of `{name}` has no arm: add `{output}: pass` or `{output}: drop`")]
    OutputWithoutArm { name: String, output: String },
    #[error("every output of `{0}` has an arm, so that `else:` is never used")]
    UnusedElse(String),
    #[error("there is no output `{0}:` without a function; only `else:` can be a label here")]
    LabelWithoutFunction(String),
    #[error("the arm that begins with `{0}` accepts all traffic, so that nothing is left for the next one")]
    ArmTakesAll(String),
    #[error("`{name}` is behind two outputs of `{router}`, and one session can leave by both")]
    SharedBehindOutputs { name: String, router: String },
}

/// A [`ChainError`] and the word of the chain that it is about.
pub(crate) type Located = (ChainError, Option<String>);

/// Fails with an error about a word.
pub(crate) fn fail<T>(word: &str, error: ChainError) -> Result<T, Located> {
    Err((error, Some(word.to_owned())))
}

impl From<ChainError> for Located {
    fn from(error: ChainError) -> Located {
        (error, None)
    }
}
