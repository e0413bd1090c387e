//! Keywords of the grammar other than fields, with one line of help each.

use crate::ast::{
    BrokerOption, Cond, ErrorPolicy, Filtering, NatProto, PuntClass, SetKind, ShowSubject, Timeout,
};

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

/// Words after `set`.
pub(crate) const SET: &[Keyword] = &[
    word("on-error", "what becomes of packets whose edits cannot be made: forward or drop"),
    word("timeout", "how long sessions live without packets: set timeout <name> <seconds>"),
    word("tcp-pickup", "whether TCP segments other than SYNs may open sessions: on or off"),
    word("tcp-window-check", "whether TCP segments outside of the window are dropped: on or off"),
    word("punt-limit", "packets per second that the kernel gets: set punt-limit <class> <number>|off"),
    word(
        "session-limit",
        "sessions that a source address may have: set session-limit source <number>|default|off",
    ),
    word("held-packets", "how many packets functions may hold: set held-packets session|worker <number>"),
    word("stream-pickup", "connections whose SYN stream functions have not seen: pass, inspect or reset"),
    word("stream-overflow", "segments that stream functions cannot put in order: drop, pass or reset"),
    word("stream-mptcp", "connections of several paths in front of functions that edit: strip or pass"),
    word(
        "stream-hold-time",
        "how long bytes wait for stream functions although their sender repeats them: set stream-hold-time \
         <milliseconds>",
    ),
    word("martian-check", "whether packets with impossible addresses are dropped before rules: on or off"),
    word(
        "rpf",
        "how routes confirm the sources of routed packets: strict, loose or off, for all or for some interfaces",
    ),
    word("fast-path", "which interfaces' settled flows stay in the kernel: auto, xdp, tc or off"),
    word("log-format", "how the lines of packets that rules log are written: text or json"),
    word("log-to", "where the lines of packets that rules log go: stderr or syslog"),
    word("worker-mode", "what workers do while there are no packets: poll, event or adaptive"),
    word("gro", "whether TCP segments leave as large frames by interfaces that take them: on or off"),
];

/// Words after `set worker-mode`, in the order of [`crate::ProcessMode::ALL`].
pub(crate) const WORKER_MODES: &[Keyword] = &[
    word("poll", "look for packets all the time: a whole processor for each worker"),
    word("event", "sleep until packets come: no processor time without packets"),
    word("adaptive", "look for packets for 200 µs more, then sleep (default)"),
];

/// Words after `set fast-path`.
pub(crate) const FAST_PATH: &[Keyword] = &[
    word("auto", "those of af-xdp and af-packet interfaces"),
    word("xdp", "those of af-xdp interfaces, by a program at XDP"),
    word("tc", "those of af-packet interfaces, by a program at tc"),
    word("off", "none"),
];

/// Words after `set log-format`.
pub(crate) const LOG_FORMAT: &[Keyword] =
    &[word("text", "one line for each packet, for people"), word("json", "one JSON object for each line")];

/// Words after `set log-to`.
pub(crate) const LOG_TO: &[Keyword] = &[
    word("stderr", "to standard error of the daemon: under systemd, to the journal"),
    word("syslog", "to the system's log, by its socket /dev/log"),
];

/// Words after `set rpf`.
pub(crate) const RPF: &[Keyword] = &[
    word("strict", "the route to the source leads out of the port that the packet came in by"),
    word("loose", "there is a route to the source"),
    word("off", "not at all"),
    word("default", "for these interfaces as for all others: set rpf default <interface> …"),
];

/// Words after `set stream-pickup`.
pub(crate) const STREAM_PICKUP: &[Keyword] = &[
    word("pass", "they pass, and are not read"),
    word("inspect", "they are read from the next byte on"),
    word("reset", "they are reset"),
];

/// Words after `set stream-overflow`.
pub(crate) const STREAM_OVERFLOW: &[Keyword] = &[
    word("drop", "the segment is dropped, and its sender repeats it"),
    word("pass", "the connection passes, and is not read any more"),
    word("reset", "the connection is reset"),
];

/// Words after `set stream-mptcp`.
pub(crate) const STREAM_MPTCP: &[Keyword] = &[
    word("strip", "the option is removed from SYNs: one path"),
    word("pass", "they have several paths, and are not edited"),
];

/// Words after `set held-packets`.
pub(crate) const HELD_LIMITS: &[Keyword] =
    &[word("session", "of one session, at one function"), word("worker", "of all sessions of a worker")];

/// Words after settings that are on or off.
pub(crate) const SWITCH: &[Keyword] = &[word("on", "yes"), word("off", "no")];

/// Words after `set timeout`.
pub(crate) const TIMEOUTS: &[(Timeout, Keyword)] = &[
    (Timeout::TcpHandshake, word("tcp-handshake", "a TCP connection that is being opened")),
    (Timeout::TcpEstablished, word("tcp-established", "an open TCP connection")),
    (Timeout::TcpHalfClosed, word("tcp-half-closed", "a TCP connection that one side has closed")),
    (Timeout::TcpClosed, word("tcp-closed", "a TCP connection that both sides have closed")),
    (Timeout::TcpReset, word("tcp-reset", "a TCP connection that was reset")),
    (Timeout::UdpUnreplied, word("udp-unreplied", "UDP before the first reply")),
    (Timeout::UdpReplied, word("udp-replied", "UDP after it")),
    (Timeout::Icmp, word("icmp", "ICMP queries")),
    (Timeout::Other, word("other", "other protocols")),
    (Timeout::Fragment, word("fragment", "fragments whose datagram's first one has not come")),
    (Timeout::Held, word("held", "packets that a function of a chain holds")),
];

/// Words after `set punt-limit`.
pub(crate) const PUNT_CLASSES: &[(PuntClass, Keyword)] = &[
    (PuntClass::Neighbor, word("neighbor", "ARP and neighbour discovery")),
    (PuntClass::Routing, word("routing", "routing protocols: OSPF, BGP, IS-IS, RIP, BFD, VRRP, …")),
    (
        PuntClass::Local,
        word("local", "other packets to the machine itself, and to routes left to the kernel"),
    ),
    (PuntClass::Other, word("other", "all other frames")),
];

/// The value of a limit that is not a number.
pub(crate) const LIMIT: &[Keyword] = &[word("off", "no limit")];

/// Words after `set session-limit`.
pub(crate) const SESSION_LIMITS: &[Keyword] = &[word("source", "of a source address")];

/// Values of `set session-limit` other than a number.
pub(crate) const SESSION_LIMIT: &[Keyword] =
    &[word("default", "an eighth of all sessions"), word("off", "no limit")];

/// Words after `nat`.
pub(crate) const NAT: &[Keyword] =
    &[word("pool", "addresses for the target nat"), word("forward", "send what comes to a port to a host")];

/// Words after `nat pool`.
pub(crate) const NAT_POOL: &[Keyword] =
    &[word("add", "nat pool add <name> <addresses> …"), word("del", "nat pool del <name>")];

/// What stands for the addresses of a pool.
pub(crate) const POOL_INTERFACE: &[Keyword] =
    &[word("interface", "the address of a routed interface, also when it changes: interface <name>")];

/// Words after `nat forward`.
pub(crate) const NAT_FORWARD: &[Keyword] = &[
    word("add", "nat forward add tcp|udp <address> <port> to <address> <port>"),
    word("del", "nat forward del tcp|udp <address> <port>"),
];

/// Words after the addresses of a pool.
pub(crate) const POOL_OPTIONS: &[Keyword] = &[
    word("ports", "the ports it gives out: ports <low>-<high>"),
    word("block", "ports that a host gets at a time: block <number>"),
    word("limit", "sessions that a host may have: limit <number>"),
    word("filtering", "who may send from outside: filtering <how>"),
];

/// Words after `filtering`.
pub(crate) const FILTERING: &[(Filtering, Keyword)] = &[
    (Filtering::EndpointIndependent, word("endpoint-independent", "anybody")),
    (Filtering::AddressDependent, word("address-dependent", "addresses that were sent to")),
    (
        Filtering::AddressAndPortDependent,
        word("address-and-port-dependent", "addresses and ports that were sent to"),
    ),
];

/// Words after `nat forward add` and `nat forward del`.
pub(crate) const NAT_PROTOS: &[(NatProto, Keyword)] =
    &[(NatProto::Tcp, word("tcp", "TCP")), (NatProto::Udp, word("udp", "UDP"))];

/// The word between the endpoints of a forward.
pub(crate) const TO: &[Keyword] = &[word("to", "the host behind NAT: to <address> <port>")];

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

/// Words after `set on-error`.
pub(crate) const ON_ERROR: &[(ErrorPolicy, Keyword)] = &[
    (ErrorPolicy::Forward, word("forward", "they go on as they came, and are counted")),
    (ErrorPolicy::Drop, word("drop", "they are dropped, with the reason")),
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

impl ErrorPolicy {
    /// The keyword after `set on-error`.
    pub fn word(self) -> &'static str {
        word_of(ON_ERROR, self)
    }
}

/// The word of a subject of `show`.
pub(crate) fn show_word(what: ShowSubject) -> &'static str {
    word_of(SHOW, what)
}

impl BrokerOption {
    /// The keyword.
    pub fn word(self) -> &'static str {
        word_of(BROKER_OPTIONS, self)
    }
}

impl Timeout {
    /// The keyword after `set timeout`.
    pub fn word(self) -> &'static str {
        word_of(TIMEOUTS, self)
    }
}

/// The word of a class of packets for the kernel.
pub(crate) fn punt_class_word(class: PuntClass) -> &'static str {
    word_of(PUNT_CLASSES, class)
}

/// The word of a pool's filtering.
pub(crate) fn filtering_word(filtering: Filtering) -> &'static str {
    word_of(FILTERING, filtering)
}

/// The word of a forward's protocol.
pub(crate) fn nat_proto_word(proto: NatProto) -> &'static str {
    word_of(NAT_PROTOS, proto)
}

fn word_of<T: PartialEq>(table: &'static [(T, Keyword)], what: T) -> &'static str {
    table.iter().find(|(known, _)| *known == what).map_or("", |(_, keyword)| keyword.word)
}
