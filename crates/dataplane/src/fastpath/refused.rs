//! Why flows are not given to the kernel, and what a worker counts of this and of those that are.

use crate::engine::counters::Counter;

/// Why a flow is not given to the kernel, though it has enough packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its packet was not sent in the walk in which it came: it was dropped, it waits, or another worker has it.
    NotSent,
    /// Something else was done to its packet than a rewrite of addresses, ports and Ethernet header.
    Otherwise,
    /// Its way out is no af-xdp port, or one whose interface takes no redirected frames.
    Target,
    /// Its next hop is not settled.
    NextHop,
    /// It has no session, or one of which the engine has to see each packet.
    Session,
    /// Too many rules match.
    Rules,
    /// All slots are taken.
    Full,
    /// The kernel did not take it.
    Kernel,
}

impl Refused {
    /// All there are.
    pub const ALL: [Refused; 8] = [
        Refused::NotSent,
        Refused::Otherwise,
        Refused::Target,
        Refused::NextHop,
        Refused::Session,
        Refused::Rules,
        Refused::Full,
        Refused::Kernel,
    ];

    /// For how long the flow is left alone, in milliseconds: not for long where
    /// its first packet waited for its next hop, or was in a walk in which some session ended.
    pub(super) fn rest(self) -> u32 {
        match self {
            Refused::NotSent | Refused::NextHop | Refused::Session => 100,
            _ => 10_000,
        }
    }

    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Refused::NotSent => "not-sent",
            Refused::Otherwise => "other-change",
            Refused::Target => "no-redirect",
            Refused::NextHop => "next-hop",
            Refused::Session => "session",
            Refused::Rules => "many-rules",
            Refused::Full => "full",
            Refused::Kernel => "kernel",
        }
    }
}

/// What a worker counts of it.
#[derive(Debug, Default)]
pub(crate) struct FastCounters {
    pub entries: Counter,
    pub installed: Counter,
    pub packets: Counter,
    pub bytes: Counter,
    refused: [Counter; Refused::ALL.len()],
}

impl FastCounters {
    pub(super) fn refuse(&self, why: Refused) {
        self.refused[why as usize].add(1);
    }

    /// Flows that were not given to the kernel, for one reason.
    pub fn refused(&self, why: Refused) -> u64 {
        self.refused[why as usize].get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_place_and_its_own_name() {
        for (at, why) in Refused::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, at);
            assert!(Refused::ALL.iter().filter(|other| other.name() == why.name()).count() == 1);
        }
    }
}
