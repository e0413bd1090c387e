//! Commands: whole lines of the language.

use mmb_stream::{OnMptcp, OnOverflow, OnPickup};

use super::{
    Broker, CaptureSelection, Chain, Domain, Endpoint4, ErrorPolicy, FastPathMode, HeldScope, LogFormat,
    LogSink, Match, NamedSet, NatForward, NatPool, NatProto, NfInstance, ProcessMode, PuntClass,
    ReversePathMode, Rule, RuleRef, SessionLimit, SetElement, SetElements, Subnet, Timeout, Word,
};

/// One line of the language.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// `add`, `add-stateless`, `add-stateful`.
    Add(Rule),
    /// `del <rule-index>`, `del <rule-name>`.
    Del {
        /// The rule.
        rule: RuleRef,
    },
    /// `flush`: delete all rules.
    Flush,
    /// `list [<match> …]`: show rules.
    List {
        /// Only rules that a packet can match to which all of these apply. Empty: all rules.
        matches: Vec<Match>,
    },
    /// `history [N]`: show the changes of the configuration, or one of them.
    History {
        /// The number of a revision.
        revision: Option<u64>,
    },
    /// `rollback [N]`: return to an earlier configuration.
    Rollback {
        /// The number of a revision; the one before the last change if absent.
        revision: Option<u64>,
    },
    /// `confirm`: keep the change that waits for it.
    Confirm,
    /// `enable <interface> …`, at least one.
    Enable(Vec<Word>),
    /// `disable <interface> …`, at least one.
    Disable(Vec<Word>),
    /// `show <what> [verbose]`.
    Show {
        /// The subject.
        what: ShowSubject,
        /// With every detail.
        verbose: bool,
    },
    /// `interface add NAME KIND …`.
    InterfaceAdd {
        /// The interface's name in mmb.
        name: Word,
        /// The device.
        kind: PortKind,
    },
    /// `interface del NAME`.
    InterfaceDel {
        /// The interface's name in mmb.
        name: Word,
    },
    /// `wire A B`: packets from one port leave by the other.
    Wire {
        /// One end.
        a: Word,
        /// The other end.
        b: Word,
    },
    /// `wire del A`: removes the wire of port `a`.
    Unwire {
        /// Either end.
        a: Word,
    },
    /// `route <interface> …`, at least one: routes packets from these ports by the kernel's routes.
    Route(Vec<Word>),
    /// `route del <interface>`: stops routing packets from the port.
    Unroute {
        /// The interface.
        name: Word,
    },
    /// `show fib [<address>|<prefix>]`: the routes.
    ShowFib {
        /// Only routes within this subnet, or the routes that match an address. None: all.
        within: Option<Subnet>,
    },
    /// `show neighbors [<address>|<prefix>]`: the hosts and routers on connected networks.
    ShowNeighbors {
        /// Only neighbors within this subnet. None: all.
        within: Option<Subnet>,
    },
    /// `set on-error forward`, `set on-error drop`.
    SetOnError(ErrorPolicy),
    /// `show connections [verbose] [<match> …]`.
    ShowConnections {
        /// With every detail.
        verbose: bool,
        /// Only sessions with a packet, in either direction, that matches all of these. Empty: all.
        matches: Vec<Match>,
    },
    /// `clear connections [<match> …]`: ends sessions.
    ClearConnections {
        /// The sessions, as for [`Command::ShowConnections`].
        matches: Vec<Match>,
    },
    /// `trace [<match> …] [why RULE] [count N] [seconds N]`: shows the path of packets.
    Trace {
        /// The packets, as they come in. Empty: all.
        matches: Vec<Match>,
        /// A rule that is explained match by match.
        why: Option<RuleRef>,
        /// How many, from 1 to [`Command::MAX_TRACED`].
        count: u32,
        /// For how long, from 1 to [`CaptureSelection::MAX_SECONDS`]. None: until there are enough.
        seconds: Option<u32>,
    },
    /// `capture [<match> …] [drops] [rule RULE] [session ID] [count N] [seconds N]`: shows packets.
    Capture {
        /// The packets, as they come in. Empty: all.
        matches: Vec<Match>,
        /// Which of them.
        selection: CaptureSelection,
    },
    /// `nat pool add NAME …`.
    NatPoolAdd(NatPool),
    /// `nat pool del NAME`.
    NatPoolDel {
        /// The pool.
        name: Word,
    },
    /// `nat forward add PROTO ADDRESS PORT to ADDRESS PORT`.
    NatForwardAdd(NatForward),
    /// `nat forward del PROTO ADDRESS PORT`.
    NatForwardDel {
        /// The transport protocol.
        proto: NatProto,
        /// The external endpoint.
        outside: Endpoint4,
    },
    /// `domain add NAME private|zero-copy …`.
    DomainAdd(Domain),
    /// `domain del NAME`.
    DomainDel {
        /// The domain.
        name: Word,
    },
    /// `nf add INSTANCE TYPE [ARG…] [process DOMAIN [MODE] [cpu N]]`.
    NfAdd(NfInstance),
    /// `nf del INSTANCE`.
    NfDel {
        /// The instance.
        name: Word,
    },
    /// `nf set INSTANCE WORD…`: sends words to a running function. They are not part of the configuration.
    NfSet {
        /// The instance.
        name: Word,
        /// The words, as in [`NfInstance::args`]; at least one.
        words: Vec<Box<str>>,
    },
    /// `chain add NAME BODY`.
    ChainAdd(Chain),
    /// `chain set NAME BODY`: replaces the chain.
    ChainSet(Chain),
    /// `chain del NAME`.
    ChainDel {
        /// The chain.
        name: Word,
    },
    /// `broker add NAME listen ADDRESS:PORT chain CHAIN …`.
    BrokerAdd(Broker),
    /// `broker del NAME`.
    BrokerDel {
        /// The broker.
        name: Word,
    },
    /// `set add NAME KIND …`.
    SetAdd(NamedSet),
    /// `set del NAME`.
    SetDel {
        /// The set.
        name: Word,
    },
    /// `set NAME add ELEMENT …`.
    ElementAdd(SetElements),
    /// `set NAME del ELEMENT …`.
    ElementDel {
        /// The set.
        name: Word,
        /// At least one.
        elements: Vec<SetElement>,
    },
    /// `set NAME flush`: removes all elements.
    ElementFlush {
        /// The set.
        name: Word,
    },
    /// `show set NAME`: the elements of a set.
    ShowSet {
        /// The set.
        name: Word,
    },
    /// `set timeout NAME SECONDS`.
    SetTimeout {
        /// The timeout.
        timeout: Timeout,
        /// 1 to [`Timeout::MAX_SECONDS`].
        seconds: u32,
    },
    /// `set punt-limit CLASS PACKETS|off`: packets of a class that the kernel gets each second.
    SetPuntLimit {
        /// The class.
        class: PuntClass,
        /// 1 to [`PuntClass::MAX_RATE`]. None: no limit.
        rate: Option<u32>,
    },
    /// `set session-limit source NUMBER|default|off`: sessions that a source address may have open.
    SetSessionLimit(SessionLimit),
    /// `set tcp-pickup on|off`: whether a TCP segment other than a SYN may open a session.
    SetTcpPickup(bool),
    /// `set tcp-window-check on|off`: whether TCP segments outside of the window are dropped.
    SetTcpWindowCheck(bool),
    /// `set stream-pickup pass|inspect|reset`: what becomes of connections whose SYN no stream function saw.
    SetStreamPickup(OnPickup),
    /// `set stream-overflow drop|pass|reset`: what becomes of segments that stream functions cannot put in
    /// order.
    SetStreamOverflow(OnOverflow),
    /// `set stream-mptcp strip|pass`: what becomes of connections that ask for several paths, in front of
    /// functions that edit.
    SetStreamMptcp(OnMptcp),
    /// `set stream-hold-time MILLISECONDS`: how long bytes wait for stream functions although their sender
    /// repeats them. 0 to [`mmb_stream::Policy::MOST_HOLD_TIME`].
    SetStreamHoldTime(u32),
    /// `set held-packets session|worker NUMBER`: how many packets functions of chains may hold.
    SetHeldPackets {
        /// What the limit is for.
        scope: HeldScope,
        /// 0 to [`HeldScope::MAX`].
        packets: u32,
    },
    /// `set martian-check on|off`: whether packets with impossible addresses are dropped before rules.
    SetMartianCheck(bool),
    /// `set rpf strict|loose|off`: how routes confirm the sources of routed packets.
    SetRpf(ReversePathMode),
    /// `set rpf strict|loose|off|default INTERFACE…`: the same for packets that come in by these interfaces.
    SetInterfaceRpf {
        /// None: as `set rpf` without interfaces.
        mode: Option<ReversePathMode>,
        /// The interfaces; at least one.
        names: Vec<Word>,
    },
    /// `set fast-path auto|xdp|tc|off`: which interfaces' settled flows stay in the kernel.
    SetFastPath(FastPathMode),
    /// `set log-format text|json`: how the lines of packets that rules log are written.
    SetLogFormat(LogFormat),
    /// `set log-to stderr|syslog`: where these lines go.
    SetLogTo(LogSink),
    /// `set worker-mode poll|event|adaptive`: what workers do while there are no packets.
    SetWorkerMode(ProcessMode),
    /// `set gro on|off`: whether TCP segments leave as large frames by interfaces that take them.
    SetGro(bool),
}

impl Command {
    /// The largest number of packets of `trace`.
    pub const MAX_TRACED: u32 = 1000;
    /// The number of packets of `trace` without `count`.
    pub const TRACED: u32 = 10;
}

/// The subject of `show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShowSubject {
    /// The classifier's tables.
    Tables,
    /// Ports and their counters.
    Interfaces,
    /// Packets, vectors and ticks per node.
    Runtime,
    /// Drops by reason.
    Drops,
    /// The field table.
    Fields,
    /// NAT pools and their use, and forwards.
    Nat,
    /// Service chains, their traffic and the cost of their functions.
    Chains,
    /// Instances of network functions.
    Functions,
    /// Domains, and the processes of their functions.
    Domains,
    /// Brokers and their counters.
    Brokers,
    /// Named sets.
    Sets,
    /// Flows in the XDP fast path.
    FastPath,
    /// Versions of mmb and of its components.
    Version,
    /// The running configuration, as a file.
    Config,
}

/// The kind of a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PortKind {
    /// `af-xdp IFNAME`: a kernel interface through an AF_XDP socket.
    AfXdp {
        /// The kernel's name of the interface.
        ifname: String,
    },
    /// `af-packet IFNAME`: a kernel interface through a packet socket.
    AfPacket {
        /// The kernel's name of the interface.
        ifname: String,
    },
    /// `tap [IFNAME]`: a new kernel interface.
    Tap {
        /// The kernel's name of the interface. None: the kernel chooses one.
        ifname: Option<String>,
    },
    /// `pci ADDRESS`: a network card driven from user space.
    Pci {
        /// `dddd:bb:dd.f`, lower-case hexadecimal, always with the domain.
        address: String,
    },
    /// `memif SOCKET`: shared memory with another process.
    Memif {
        /// Path of the socket.
        socket: String,
    },
    /// `pcap RX TX`: packets from one capture file, into another.
    Pcap {
        /// The capture that is read.
        rx: String,
        /// The capture that is written.
        tx: String,
    },
    /// `null`: receives nothing, and discards what is sent.
    Null,
}
