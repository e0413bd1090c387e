//! The outcome of a packet.

/// The next step for a packet.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Next {
    /// The packet goes on: to the other end of the wire, or to routing if it came in by a routed port.
    /// `meta.out_port` is not set.
    #[default]
    Pass,
    /// The packet goes out by `meta.out_port`, or to routing if that is [`mmb_packet::OUT_ROUTED`].
    Send,
    /// The rules in `meta.edits()` edit the packet. Then it goes out as with [`Next::Send`].
    Edit,
    /// The packet is dropped for `meta.drop_reason`.
    Drop,
    /// The packet is freed: a function of its chain has sent its bytes in other frames.
    Consume,
    /// The packet has been replaced by an ICMP error, or by the answer of a function. It goes out by
    /// `meta.out_port`, also if that is a routed port. Its Ethernet addresses are set. The packet that it was
    /// is dropped for `meta.drop_reason`.
    Reply,
    /// The packet is given to the worker in `meta.stage`, which looks it up without another parse.
    HandOff,
    /// The packet is held under the ticket in `meta.stage`: a fragment until
    /// [`crate::Sessions::next_released_fragment`] returns that ticket, a packet in a chain until
    /// [`crate::Sessions::next_held_event`] does.
    Hold,
    /// The packet belongs to a session. The rules that depend on each packet are still to be found for it.
    PerPacketRules,
    /// All rules are still to be found for the packet.
    SlowPath,
    /// The packet goes through the service chain of its session ([`crate::Sessions::process_chain`]), after
    /// the edits of rules in `meta.edits()`. Then it goes out as with [`Next::Send`].
    Chain,
    /// The packet is looked up again: it went through a chain and returns to a host inside.
    Relookup,
    /// The packet was routed ([`crate::Packets::forward`]) and goes out by `meta.out_port`.
    Forwarded,
}

/// The set of outcomes that occur in a vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextSet(u16);

impl NextSet {
    /// Returns the set with one outcome.
    #[inline]
    pub fn one(next: Next) -> NextSet {
        NextSet(1 << next as u8)
    }

    /// Adds an outcome.
    #[inline]
    pub fn insert(&mut self, next: Next) {
        self.0 |= 1 << next as u8;
    }

    /// Whether the outcome occurs.
    #[inline]
    pub fn contains(self, next: Next) -> bool {
        self.0 & 1 << next as u8 != 0
    }

    /// Whether no other outcome occurs.
    #[inline]
    pub fn is_only(self, next: Next) -> bool {
        self.0 & !(1 << next as u8) == 0
    }
}

/// A fragment that is no longer held, by its ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleasedFragment {
    /// The fragment is looked up again.
    Retry(u32),
    /// The fragment is dropped: the first fragment of its datagram did not arrive in time.
    TimedOut(u32),
}
