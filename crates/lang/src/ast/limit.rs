//! Limits: what `set punt-limit` and `set session-limit` set.

/// A class of packets that mmb gives to the kernel. Each class has a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PuntClass {
    /// ARP and IPv6 neighbour discovery (RFC 826, RFC 4861).
    Neighbor,
    /// Routing protocols, and other protocols between routers and switches.
    Routing,
    /// Other IP packets to a unicast address.
    Local,
    /// All other frames.
    Other,
}

impl PuntClass {
    /// All classes; `ALL[i] as usize == i`.
    pub const ALL: [PuntClass; 4] =
        [PuntClass::Neighbor, PuntClass::Routing, PuntClass::Local, PuntClass::Other];

    /// Maximum of a limit, in packets per second.
    pub const MAX_RATE: u32 = 10_000_000;

    /// The keyword after `set punt-limit`.
    pub fn word(self) -> &'static str {
        crate::keyword::punt_class_word(self)
    }
}

/// Maximum number of sessions of a source address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SessionLimit {
    /// A share of the table.
    #[default]
    Default,
    /// 1 to [`SessionLimit::MAX`].
    Sessions(u32),
    /// No limit.
    Off,
}

impl SessionLimit {
    /// The largest limit.
    pub const MAX: u32 = 10_000_000;
}
