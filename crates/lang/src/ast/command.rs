//! Lines of the language as a whole.

use std::net::IpAddr;

use super::{Chain, Endpoint4, Match, NatForward, NatPool, NatProto, NfAdd, Rule, Word, address_bits};

/// One line of the language.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// `add`, `add-stateless`, `add-stateful`.
    Add(Rule),
    /// `del <rule-index>`.
    Del {
        /// The rule's index, from 1.
        index: u32,
    },
    /// `flush`: delete all rules.
    Flush,
    /// `list`: show all rules.
    List,
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
        /// What it is made of.
        kind: PortKind,
    },
    /// `interface del NAME`.
    InterfaceDel {
        /// The interface's name in mmb.
        name: Word,
    },
    /// `wire A B`: what comes in at one goes out at the other.
    Wire {
        /// One end.
        a: Word,
        /// The other end.
        b: Word,
    },
    /// `wire del A`: undoes the wire that `a` is an end of.
    Unwire {
        /// Either end.
        a: Word,
    },
    /// `route <interface> …`, at least one: what comes in there is routed, with the kernel's routes.
    Route(Vec<Word>),
    /// `route del <interface>`: it is routed no more.
    Unroute {
        /// The interface.
        name: Word,
    },
    /// `show fib [<address>|<prefix>]`: the routes.
    ShowFib {
        /// Only those in this subnet, or, of an address, those that it falls into; without, all.
        within: Option<Subnet>,
    },
    /// `show neighbors [<address>|<prefix>]`: the hosts and routers on connected networks.
    ShowNeighbors {
        /// Only those with addresses in this subnet; without, all.
        within: Option<Subnet>,
    },
    /// `set on-error forward`, `set on-error drop`.
    SetOnError(ErrorPolicy),
    /// `show connections [verbose] [<match> …]`.
    ShowConnections {
        /// With every detail.
        verbose: bool,
        /// Only those of which a packet, in one of the directions, matches all of this; without any, all.
        matches: Vec<Match>,
    },
    /// `clear connections [<match> …]`: ends sessions.
    ClearConnections {
        /// Which, as for [`Command::ShowConnections`].
        matches: Vec<Match>,
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
        /// What it is known as outside.
        outside: Endpoint4,
    },
    /// `nf add INSTANCE TYPE [ARG…]`.
    NfAdd(NfAdd),
    /// `nf del INSTANCE`.
    NfDel {
        /// The instance.
        name: Word,
    },
    /// `nf set INSTANCE WORD…`: tells a function something while it runs, which is no part of the
    /// configuration.
    NfSet {
        /// The instance.
        name: Word,
        /// What it is told, as [`NfAdd::args`]; at least one word.
        words: Vec<Box<str>>,
    },
    /// `chain add NAME BODY`.
    ChainAdd(Chain),
    /// `chain set NAME BODY`: the chain is another from now on.
    ChainSet(Chain),
    /// `chain del NAME`.
    ChainDel {
        /// The chain.
        name: Word,
    },
    /// `set timeout NAME SECONDS`.
    SetTimeout {
        /// Which.
        timeout: Timeout,
        /// 1 to [`Timeout::MAX_SECONDS`].
        seconds: u32,
    },
    /// `set tcp-pickup on|off`: whether a TCP segment other than a SYN may open a session.
    SetTcpPickup(bool),
    /// `set tcp-window-check on|off`: whether TCP segments outside of the window are dropped.
    SetTcpWindowCheck(bool),
    /// `set xdp-fast-path on|off`: whether settled flows between af-xdp interfaces stay in the kernel.
    SetXdpFastPath(bool),
}

/// An address or a subnet, of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subnet {
    /// Address of the network: bits behind `len` are zero.
    pub address: IpAddr,
    /// Bits that count; all of them, 32 or 128, for a single address.
    pub len: u8,
}

impl Subnet {
    /// Whether it is a single address.
    pub fn is_address(&self) -> bool {
        self.len >= address_bits(&self.address)
    }
}

/// How long a session lives without packets, by its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Timeout {
    /// A TCP connection that is being opened.
    TcpHandshake,
    /// An open TCP connection.
    TcpEstablished,
    /// A TCP connection that one side has closed.
    TcpHalfClosed,
    /// A TCP connection that both sides have closed.
    TcpClosed,
    /// A TCP connection that was reset.
    TcpReset,
    /// UDP before the first reply.
    UdpUnreplied,
    /// UDP after it.
    UdpReplied,
    /// ICMP queries.
    Icmp,
    /// Other protocols.
    Other,
    /// How long fragments wait for the first one of their datagram, and it is remembered for those behind it.
    Fragment,
}

impl Timeout {
    /// The longest that can be set: 23 days. Clocks of 32 bits count milliseconds, and compare times that are
    /// less than half of their range apart.
    pub const MAX_SECONDS: u32 = 2_000_000;

    /// All of them, in the order that they are listed in.
    pub const ALL: [Timeout; 10] = [
        Timeout::TcpHandshake,
        Timeout::TcpEstablished,
        Timeout::TcpHalfClosed,
        Timeout::TcpClosed,
        Timeout::TcpReset,
        Timeout::UdpUnreplied,
        Timeout::UdpReplied,
        Timeout::Icmp,
        Timeout::Other,
        Timeout::Fragment,
    ];

    /// The word behind `set timeout`.
    pub fn word(self) -> &'static str {
        crate::keyword::timeout_word(self)
    }
}

/// What becomes of a packet whose edits cannot all be made, because TCP options do not fit, say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ErrorPolicy {
    /// It goes on just as it came, and is counted. What stands when nothing is set.
    #[default]
    Forward,
    /// It is dropped, with the reason.
    Drop,
}

impl ErrorPolicy {
    /// The word behind `set on-error`.
    pub fn word(self) -> &'static str {
        crate::keyword::on_error_word(self)
    }
}

/// The subject of `show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShowSubject {
    /// The classifier's tables.
    Tables,
    /// Ports and their counters.
    Interfaces,
    /// Packets, vectors and cycles per node.
    Runtime,
    /// Drops by reason.
    Drops,
    /// The field table.
    Fields,
    /// NAT pools and their use, and forwards.
    Nat,
    /// Service chains.
    Chains,
    /// Instances of network functions.
    Functions,
    /// Flows that stay in the kernel.
    FastPath,
    /// Versions of mmb and of what it is built on.
    Version,
    /// The running configuration, as a file that gives it again.
    Config,
}

/// What a port is made of.
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
        /// The kernel's name for it; the kernel chooses one when it is not given.
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
    /// `null`: nothing comes in, what goes out is gone.
    Null,
}
