//! Words of settings: `set …`.

use super::{Keyword, word, word_of};
use crate::ast::{ErrorPolicy, PuntClass, Timeout};

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

/// Words after `set on-error`.
pub(crate) const ON_ERROR: &[(ErrorPolicy, Keyword)] = &[
    (ErrorPolicy::Forward, word("forward", "they go on as they came, and are counted")),
    (ErrorPolicy::Drop, word("drop", "they are dropped, with the reason")),
];

impl ErrorPolicy {
    /// The keyword after `set on-error`.
    pub fn word(self) -> &'static str {
        word_of(ON_ERROR, self)
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
