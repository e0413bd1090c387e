//! The values of settings: what stands behind `set`.

/// Lifetime of a session without packets, by its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Timeout {
    /// A TCP connection during the handshake.
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
    /// UDP after the first reply.
    UdpReplied,
    /// ICMP queries.
    Icmp,
    /// Other protocols.
    Other,
    /// How long a later fragment waits for the first fragment, and how long a first fragment is remembered.
    Fragment,
    /// How long a function of a chain may hold a packet.
    Held,
}

impl Timeout {
    /// Maximum: 23 days. The clocks count milliseconds in 32 bits, and compare times less than half of their
    /// range apart.
    pub const MAX_SECONDS: u32 = 2_000_000;

    /// All timeouts, in the order of `show`.
    pub const ALL: [Timeout; 11] = [
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
        Timeout::Held,
    ];
}

/// What a limit of held packets is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeldScope {
    /// One session at one function.
    Session,
    /// All sessions of a worker.
    Worker,
}

impl HeldScope {
    /// The greatest limit.
    pub const MAX: u32 = 1_000_000;

    /// The keyword after `set held-packets`.
    pub fn word(self) -> &'static str {
        match self {
            HeldScope::Session => "session",
            HeldScope::Worker => "worker",
        }
    }
}

/// What happens to a packet whose edits cannot all be made, for example because TCP options do not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ErrorPolicy {
    /// It is forwarded unchanged and counted. The default.
    #[default]
    Forward,
    /// It is dropped with the reason.
    Drop,
}

/// Reverse path filter: how the routes to the source of a packet must agree with the port that it came in by
/// (RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReversePathMode {
    /// Not at all. The default.
    #[default]
    Off,
    /// There is a route to the source, by any port (RFC 3704, 2.4).
    Loose,
    /// The best route to the source leads out of the port (RFC 3704, 2.2).
    Strict,
}

impl ReversePathMode {
    /// The keyword after `set rpf`.
    pub fn word(self) -> &'static str {
        match self {
            ReversePathMode::Off => "off",
            ReversePathMode::Loose => "loose",
            ReversePathMode::Strict => "strict",
        }
    }
}

/// Which interfaces' settled flows stay in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FastPathMode {
    /// None. The default.
    #[default]
    Off,
    /// Those of `af-xdp` interfaces, by a program at XDP, and those of `af-packet` interfaces, by one at tc.
    Auto,
    /// Those of `af-xdp` interfaces.
    Xdp,
    /// Those of `af-packet` interfaces.
    Tc,
}

impl FastPathMode {
    /// The keyword after `set fast-path`.
    pub fn word(self) -> &'static str {
        match self {
            FastPathMode::Off => "off",
            FastPathMode::Auto => "auto",
            FastPathMode::Xdp => "xdp",
            FastPathMode::Tc => "tc",
        }
    }
}

/// How lines of packets that rules log are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LogFormat {
    /// For people. The default.
    #[default]
    Text,
    /// A JSON object (RFC 8259) for each line.
    Json,
}

impl LogFormat {
    /// The keyword after `set log-format`.
    pub fn word(self) -> &'static str {
        match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        }
    }
}

/// Where lines of packets that rules log go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LogSink {
    /// Standard error of the daemon. The default.
    #[default]
    Stderr,
    /// The system's log, by its socket (syslog(3)).
    Syslog,
}

impl LogSink {
    /// The keyword after `set log-to`.
    pub fn word(self) -> &'static str {
        match self {
            LogSink::Stderr => "stderr",
            LogSink::Syslog => "syslog",
        }
    }
}
