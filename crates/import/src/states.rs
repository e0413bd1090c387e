//! Connection states, as iptables and nftables match them.

/// A set of connection states. Every packet has exactly one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct States(u8);

impl States {
    /// No state.
    pub const NONE: States = States(0);
    /// The first packet of a connection, whose destination is not translated.
    pub const DIRECT: States = States(1);
    /// The first packet of a connection, whose destination is translated (`--ctstate DNAT`).
    pub const REDIRECTED: States = States(2);
    /// The first packet of a connection (`NEW`).
    pub const NEW: States = States(1 | 2);
    /// A later packet of a connection.
    pub const ESTABLISHED: States = States(4);
    /// An ICMP error about a connection. Helpers, which expect other connections, have no equal.
    pub const RELATED: States = States(8);
    /// A packet of a connection or about it.
    pub const KNOWN: States = States(4 | 8);
    /// A packet that the tracker cannot assign.
    pub const INVALID: States = States(16);
    /// All states. No packet is untracked.
    pub const ALL: States = States(31);

    /// The union.
    pub fn or(self, other: States) -> States {
        States(self.0 | other.0)
    }

    /// The intersection.
    pub fn and(self, other: States) -> States {
        States(self.0 & other.0)
    }

    /// The states of this set that are not in the other.
    pub fn without(self, other: States) -> States {
        States(self.0 & !other.0)
    }

    /// Whether there is no state.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all states are in the other set.
    pub fn is_within(self, other: States) -> bool {
        self.without(other).is_empty()
    }

    /// Whether the set tells packets of connections from first packets, or both from translated ones.
    pub fn distinguishes(self) -> bool {
        let tracked = self.without(States::INVALID);
        !tracked.is_empty() && tracked != States::ALL.without(States::INVALID)
    }

    /// The states of a word of `--ctstate`, `--state` or `ct state`. `UNTRACKED` has none.
    pub fn of(word: &str) -> Option<States> {
        Some(match word.to_ascii_lowercase().as_str() {
            "new" => States::NEW,
            "established" => States::ESTABLISHED,
            "related" => States::RELATED,
            "invalid" => States::INVALID,
            "untracked" => States::NONE,
            _ => return None,
        })
    }
}
