//! Words of domains, functions, brokers and chains.

use super::{Keyword, word, word_of};
use crate::ast::BrokerOption;

/// Words after `domain`.
pub(crate) const DOMAIN: &[Keyword] =
    &[word("add", "domain add <name> private|zero-copy [buffers <n>] …"), word("del", "domain del <name>")];

/// The kind of a domain.
pub(crate) const DOMAIN_KIND: &[Keyword] = &[
    word("private", "packets are copied into memory that only the domain's functions see"),
    word(
        "zero-copy",
        "functions that change no packet read packets where they are, and can read all of them",
    ),
];

/// Options of a domain.
pub(crate) const DOMAIN_OPTIONS: &[Keyword] = &[
    word("buffers", "buffers for packets: buffers <n>"),
    word("on-failure", "what becomes of packets while a process is not there: on-failure pass|drop"),
];

/// What becomes of packets while a process is not there.
pub(crate) const ON_FAILURE: &[Keyword] =
    &[word("drop", "packets are dropped"), word("pass", "packets pass the function")];

/// The word in front of the domain of a function.
pub(crate) const PROCESS: &str = "process";

/// What a process does while there are no packets, in the order of [`crate::ProcessMode::ALL`].
pub(crate) const PROCESS_MODES: &[Keyword] = &[
    word("poll", "look for packets all the time: the least latency, a whole processor"),
    word("event", "sleep until packets come: no processor time without packets"),
    word("adaptive", "look for packets while they keep coming, else sleep (default)"),
];

/// The word in front of the processor of a process.
pub(crate) const PROCESS_CPU: &[Keyword] = &[word("cpu", "the processor on which the process runs: cpu <n>")];

/// Words after `nf`.
pub(crate) const NF: &[Keyword] = &[
    word("add", "nf add <instance> <type> [<word> …] [process <domain> [poll|event|adaptive] [cpu <n>]]"),
    word("del", "nf del <instance>"),
    word("set", "tell an instance something while it runs: nf set <instance> <word> …"),
];

/// Words after `broker`.
pub(crate) const BROKER: &[Keyword] = &[
    word(
        "add",
        "broker add <name> [listen <address>:<port>] [transparent [keep-source]] chain <chain> [<option> <number>] …",
    ),
    word("del", "broker del <name>"),
];

/// Words behind the name of a broker: where its connections come from, its chain, and what servers see.
pub(crate) const BROKER_WORDS: &[Keyword] = &[
    word("listen", "where clients connect to: listen <address>:<port>"),
    word("transparent", "connections to any address, which rules send: add … broker <name>"),
    word("chain", "the functions that requests pass: chain <name>"),
    word("keep-source", "servers see the addresses of the clients"),
];

/// Options of a broker.
pub(crate) const BROKER_OPTIONS: &[(BrokerOption, Keyword)] = &[
    (BrokerOption::Connections, word("connections", "most connections of clients")),
    (BrokerOption::SourceConnections, word("source-connections", "most connections of a source address")),
    (BrokerOption::BodyLimit, word("body-limit", "most bytes of the body of a request")),
    (
        BrokerOption::HeaderTimeout,
        word("header-timeout", "seconds that a client has for the head of a request"),
    ),
    (BrokerOption::IdleTimeout, word("idle-timeout", "seconds that a connection is kept without a request")),
    (
        BrokerOption::ConnectTimeout,
        word("connect-timeout", "seconds that a server has to accept a connection"),
    ),
    (BrokerOption::ResponseTimeout, word("response-timeout", "seconds that an exchange may wait for a byte")),
    (BrokerOption::TunnelTimeout, word("tunnel-timeout", "seconds that a tunnel is kept without a byte")),
];

/// Words after `chain`.
pub(crate) const CHAIN: &[Keyword] = &[
    word("add", "chain add <name> <function> | <function> …"),
    word("set", "the chain is another from now on: chain set <name> <function> | …"),
    word("del", "chain del <name>"),
];

/// Words after a function of a chain, and its bracket.
pub(crate) const PIPE: &[Keyword] = &[word("|", "on to the next function")];

/// Words after a function, or begins a step without one.
pub(crate) const BRACKET: &[Keyword] =
    &[word("[", "ways part: a [output: b, output: drop] by a's outputs, [a, b, else: c] by kind of traffic")];

/// Words after a branch.
pub(crate) const ARMS: &[Keyword] = &[word(",", "the next way"), word("]", "that was the last way")];

/// Branches without functions.
pub(crate) const ARM_ENDS: &[Keyword] =
    &[word("drop", "packets are dropped"), word("pass", "on behind the bracket, through no function")];

/// Labels of branches without a function in front.
pub(crate) const ELSE: &[Keyword] = &[word("else:", "what no other way takes; stands last")];

/// Keywords of chains, which cannot be names of functions.
pub(crate) fn is_body_word(name: &str) -> bool {
    matches!(name, "then" | "else" | "drop" | "pass")
}

impl BrokerOption {
    /// The keyword.
    pub fn word(self) -> &'static str {
        word_of(BROKER_OPTIONS, self)
    }
}
