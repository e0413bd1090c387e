//! Keywords of the grammar other than fields, with one line of help each.

mod functions;
mod nat;
mod settings;

pub(crate) use functions::*;
pub(crate) use nat::*;
pub(crate) use settings::*;

use crate::ast::{Cond, SetKind, ShowSubject};

/// A keyword and its help text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyword {
    pub word: &'static str,
    pub help: &'static str,
}

const fn word(word: &'static str, help: &'static str) -> Keyword {
    Keyword { word, help }
}

/// First words of a line.
pub(crate) const COMMANDS: &[Keyword] = &[
    word("add", "add a rule: add <match> … <target> …"),
    word("add-stateless", "the same as add"),
    word("add-stateful", "add a rule that applies to whole sessions, in both directions"),
    word("del", "delete a rule: del <index>|<name>"),
    word("flush", "delete all rules"),
    word("list", "show the rules with their counters: list [<match> …]"),
    word("enable", "apply rules to interfaces: enable <interface> …"),
    word("disable", "apply no rules to interfaces: disable <interface> …"),
    word("show", "show the state of the engine: show <what> [verbose]"),
    word("interface", "add or delete an interface"),
    word("wire", "join two interfaces: wire <a> <b>"),
    word("route", "route what comes in by interfaces: route <interface> …"),
    word("set", "change a setting: set <setting> <value>; or a named set: set add <name> <kind> …"),
    word("nat", "add or delete a pool of addresses, or a port forward"),
    word("domain", "add or delete memory for functions in processes of their own"),
    word("nf", "add, delete or tell something to an instance of a network function"),
    word("chain", "add, change or delete a service chain"),
    word("broker", "add or delete a broker, which passes HTTP requests through a chain"),
    word("clear", "end sessions: clear connections [<match> …]"),
    word("history", "show who changed what, or what one change did: history [<revision>]"),
    word(
        "rollback",
        "return to the configuration before the last change, or of a revision: rollback [<revision>]",
    ),
    word("confirm", "keep the change that `apply --confirm` made"),
    word(
        "trace",
        "show the path of the next packets, live: trace [<match> …] [why <rule>] [count <n>] [seconds <n>]",
    ),
    word(
        "capture",
        "show or record packets, live: capture [<match> …] [drops] [rule <rule>] [session <id>] [count <n>] [seconds <n>]",
    ),
];

/// The options of `capture`.
pub(crate) const CAPTURE: &[Keyword] = &[
    word("drops", "only packets that are dropped"),
    word("rule", "only packets to which a rule applies: rule <index>|<name>"),
    word("session", "only packets of a session, until it ends: session <id> (`show connections verbose`)"),
    word("count", "how many packets: count <n>"),
    word("seconds", "for how long: seconds <n>"),
];

/// The options of `trace`.
pub(crate) const TRACE: &[Keyword] = &[
    word("why", "tell which matches of a rule hold: why <index>|<name>"),
    word("count", "how many packets: count <n>"),
    word("seconds", "for how long: seconds <n>"),
];

/// First words of a target.
pub(crate) const TARGETS: &[Keyword] = &[
    word("mod", "write a field: mod <field> <value>"),
    word("add", "add a TCP option: add <option> [<value>]"),
    word("strip", "remove TCP options: strip [!] <option>, strip all"),
    word("map", "give sessions another value: map <field> <value>"),
    word("shuffle", "give sessions a random value: shuffle <field> [<values>]"),
    word("lb", "spread sessions: lb <address> …"),
    word("nat", "give sessions an address and port of a pool: nat <pool>"),
    word("drop", "drop the packet, or some percent of the packets: drop [<percent>]"),
    word("accept", "let no `drop` drop the packet"),
    word("block", "drop the packet, even if another rule accepts it"),
    word("reject", "drop the packet, and tell its sender by a TCP reset or an ICMP error"),
    word("log", "write a line about the packet to the log: log [prefix \"<text>\"]"),
    word("chain", "send sessions through a service chain: chain <name>"),
    word("broker", "send TCP connections to a transparent broker: broker <name>"),
];

/// The option of the target `log`.
pub(crate) const LOG: &[Keyword] =
    &[word("prefix", "the text at the beginning of the line: prefix \"<text>\"")];

/// Words behind the targets of a rule.
pub(crate) const RULE_NAME: &[Keyword] = &[word("name", "name the rule: name <name>")];

/// See [`RULE_NAME`].
pub(crate) const RULE_COMMENT: &[Keyword] =
    &[word("comment", "say what the rule is for: comment \"<text>\"")];

/// Conditions: the word for shells, and the canonical operator.
pub(crate) const CONDS: &[(Cond, &str, Keyword)] = &[
    (Cond::Eq, "eq", word("==", "equal")),
    (Cond::Ne, "ne", word("!=", "not equal")),
    (Cond::Lt, "lt", word("<", "less than")),
    (Cond::Le, "le", word("<=", "at most")),
    (Cond::Gt, "gt", word(">", "more than")),
    (Cond::Ge, "ge", word(">=", "at least")),
    (Cond::Contains, "contains", word("contains", "has the bytes somewhere")),
];

/// Words that start a match, other than fields.
pub(crate) const MATCH_WORDS: &[Keyword] =
    &[word("all", "every packet"), word("!", "turns the next match round")];

/// Subjects of `show`.
pub(crate) const SHOW: &[(ShowSubject, Keyword)] = &[
    (ShowSubject::Tables, word("tables", "the classifier's tables")),
    (ShowSubject::Interfaces, word("interfaces", "interfaces and their counters")),
    (ShowSubject::Runtime, word("runtime", "packets, vectors and clock ticks per node")),
    (ShowSubject::Drops, word("drops", "dropped packets by reason")),
    (ShowSubject::Fields, word("fields", "the fields of the language")),
    (ShowSubject::Nat, word("nat", "NAT pools and their use, and forwards")),
    (ShowSubject::Chains, word("chains", "service chains, and how their sessions' memory is laid out")),
    (
        ShowSubject::Functions,
        word("functions", "instances of network functions and what they say of themselves"),
    ),
    (ShowSubject::Domains, word("domains", "domains, their buffers and the processes of their functions")),
    (ShowSubject::Brokers, word("brokers", "brokers, their connections and their requests")),
    (ShowSubject::Sets, word("sets", "named sets and their sizes")),
    (ShowSubject::FastPath, word("fast-path", "flows that stay in the kernel, and why others do not")),
    (ShowSubject::Version, word("version", "versions of mmb and of what it is built on")),
    (ShowSubject::Config, word("config", "the running configuration as a file")),
];

/// Words after `show <what>`.
pub(crate) const VERBOSE: &[Keyword] = &[word("verbose", "with every detail")];

/// Words after `interface`.
pub(crate) const INTERFACE: &[Keyword] =
    &[word("add", "interface add <name> <kind> …"), word("del", "interface del <name>")];

/// Kinds of interfaces.
pub(crate) const PORTS: &[Keyword] = &[
    word("af-xdp", "a kernel interface through an AF_XDP socket: af-xdp <ifname>"),
    word("af-packet", "a kernel interface through a packet socket: af-packet <ifname>"),
    word("tap", "a new kernel interface: tap [<ifname>]"),
    word("pci", "a network card: pci <address>"),
    word("memif", "shared memory with another process: memif <socket>"),
    word("pcap", "from and to capture files: pcap <rx> <tx>"),
    word("null", "nothing comes in, what goes out is gone"),
];

/// Words after `wire`, other than an interface.
pub(crate) const WIRE: &[Keyword] = &[word("del", "undo the wire of an interface: wire del <interface>")];

/// Words after `route`, other than interfaces.
pub(crate) const ROUTE: &[Keyword] = &[word("del", "route an interface no more: route del <interface>")];

/// Words after `show`, other than a subject of [`SHOW`] or sessions.
pub(crate) const ROUTING: &[Keyword] = &[
    word("fib", "routes: show fib [<address>|<prefix>]"),
    word("neighbors", "hosts on connected networks: show neighbors [<address>|<prefix>]"),
];

/// The other spelling of `neighbors`: accepted, but not offered.
pub(crate) const NEIGHBOURS: &str = "neighbours";

/// Words after `show` and `clear`, other than a subject of [`SHOW`].
pub(crate) const CONNECTIONS: &[Keyword] = &[word("connections", "sessions")];

/// Words after `show` for the elements of one set.
pub(crate) const SHOW_SET: &[Keyword] = &[word("set", "the elements of a named set: show set <name>")];

/// Words after `set` for named sets.
pub(crate) const NAMED_SETS: &[Keyword] = &[
    word("add", "set add <name> address|prefix|port [timeout <time>] [file <file>] [comment <text>]"),
    word("del", "set del <name>"),
];

/// Kinds of named sets.
pub(crate) const SET_KINDS: &[(SetKind, Keyword)] = &[
    (SetKind::Address, word("address", "IPv4 and IPv6 addresses")),
    (SetKind::Prefix, word("prefix", "prefixes; the set has all addresses that they contain")),
    (SetKind::Port, word("port", "ports and ranges of ports")),
    (
        SetKind::AddressPort,
        word("address-port", "addresses with ports: 192.0.2.1:443, [2001:db8::1]:8000-8100"),
    ),
];

/// Options of a new set.
pub(crate) const SET_OPTIONS: &[Keyword] = &[
    word("timeout", "how long elements stay: timeout <number>s|m|h|d"),
    word("file", "a file with elements: file <file>"),
    word("comment", "say what the set is for: comment \"<text>\""),
];

/// Words after `set` and the name of a set.
pub(crate) const SET_ACTIONS: &[Keyword] = &[
    word("add", "set <name> add <element> … [timeout <time>] [comment <text>]"),
    word("del", "set <name> del <element> …"),
    word("flush", "remove all elements: set <name> flush"),
];

/// Options of new elements.
pub(crate) const ELEMENT_OPTIONS: &[Keyword] = &[
    word("timeout", "how long the elements stay: timeout <number>s|m|h|d"),
    word("comment", "say why they are there: comment \"<text>\""),
];

/// Words after `strip`, other than an option.
pub(crate) const STRIP: &[Keyword] = &[
    word("!", "keep this option and remove all that no `strip !` names"),
    word("all", "remove all options"),
];

/// Whether a target is for stateful rules only.
pub(crate) fn is_stateful(target: &str) -> bool {
    matches!(target, "map" | "shuffle" | "lb" | "nat" | "chain" | "broker")
}

/// Whether `name` starts a target.
pub(crate) fn is_target(name: &str) -> bool {
    TARGETS.iter().any(|keyword| keyword.word == name)
}

/// Whether `name` starts a name or a comment of a rule.
pub(crate) fn is_label(name: &str) -> bool {
    matches!(name, "name" | "comment")
}

/// Whether `name` ends the words of a target, because it starts something else.
pub(crate) fn ends_target(name: &str) -> bool {
    is_target(name) || is_label(name)
}

/// The condition that a word stands for (`eq`, `ne`, …).
pub(crate) fn cond_word(name: &str) -> Option<Cond> {
    CONDS.iter().find(|(_, word, _)| *word == name).map(|(cond, ..)| *cond)
}

/// The operator of a condition.
pub(crate) fn cond_sign(cond: Cond) -> &'static str {
    CONDS.iter().find(|entry| entry.0 == cond).map_or("", |(.., keyword)| keyword.word)
}

/// Words that cannot be names of interfaces: rules would become ambiguous.
pub(crate) fn is_reserved(name: &str) -> bool {
    // The first test is for speed: the parser looks up values here too.
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && (crate::field(name).is_some()
            || ends_target(name)
            || cond_word(name).is_some()
            || matches!(name, "all" | "not" | "del"))
}

/// The words of a table.
pub(crate) fn words(table: &'static [Keyword]) -> impl Iterator<Item = &'static str> + Clone {
    table.iter().map(|keyword| keyword.word)
}

/// The word of a subject of `show`.
pub(crate) fn show_word(what: ShowSubject) -> &'static str {
    word_of(SHOW, what)
}

fn word_of<T: PartialEq>(table: &'static [(T, Keyword)], what: T) -> &'static str {
    table.iter().find(|(known, _)| *known == what).map_or("", |(_, keyword)| keyword.word)
}
