//! Why packets are dropped.

/// Declares the reasons, their names and their help in one table.
macro_rules! drop_reasons {
    ($($reason:ident = $name:literal, $help:literal;)*) => {
        /// Why a packet was dropped. The name is the counter, the line in a trace and the label of a metric alike.
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DropReason {
            $(#[doc = $help] $reason,)*
        }

        impl DropReason {
            /// All reasons; `ALL[i] as usize == i`.
            pub const ALL: &[DropReason] = &[$(DropReason::$reason),*];

            /// The name, in kebab case; unique, and part of the interface.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$reason => $name,)* }
            }

            /// What happened, in one line without a full stop.
            pub const fn help(self) -> &'static str {
                match self { $(DropReason::$reason => $help,)* }
            }
        }
    };
}

drop_reasons! {
    Rule = "rule", "a rule said drop";
    Ip4Malformed = "ip4-malformed", "IPv4 header with a wrong version, header length or total length";
    Ip4Truncated = "ip4-truncated", "frame shorter than its IPv4 header or total length";
    Ip6Malformed = "ip6-malformed", "IPv6 header with a wrong version, or a jumbogram";
    Ip6Truncated = "ip6-truncated", "frame shorter than its IPv6 header or payload length";
    HeaderTooLong = "header-too-long", "headers longer than the contiguous part of the packet";
    Unwired = "unwired", "input port has no wire";
    PortGone = "port-gone", "output port is closed";
    TxFull = "tx-full", "output port's transmit queue is full";
    TooBig = "too-big", "frame larger than the output port takes";
    GsoFrame = "gso-frame", "segmentation-offload superframe from a kernel peer";
    HandoffFull = "handoff-full", "queue to another worker is full";
    NoBuffer = "no-buffer", "no packet buffer left";
    OptionSpace = "option-space", "TCP options edited to more than 40 bytes, or the packet to more than IP can count";
    OptionMtu = "option-mtu", "TCP options added to a frame that the output port would not take with them";
    OptionFragment = "option-fragment", "TCP options resized in the first fragment of a datagram";
    OptionRoom = "option-room", "no room in front of the frame for TCP options";
    SessionFull = "session-full", "no room for another session, and none that is only half open to take its place";
    SessionMiddle = "session-middle", "first packet seen of a TCP connection does not open it, and tcp-pickup is off";
    TcpWindow = "tcp-window", "TCP segment outside of the window of its connection, and tcp-window-check is on";
    NatExhausted = "nat-exhausted", "no external address and port left to translate a new session to";
    NatLimit = "nat-limit", "source has as many translated sessions as the pool allows each";
    NatUnmapped = "nat-unmapped", "packet to an address of a NAT pool that nothing is mapped to there";
    NatFiltered = "nat-filtered", "packet to a mapped address and port from where the pool's filtering lets nothing in";
    NatFailed = "nat-failed", "packet of a translated session whose headers cannot be translated";
    FragmentLost = "fragment-lost", "fragment whose first fragment did not come in time, or too many that waited";
    IcmpQuote = "icmp-quote", "ICMP error to a NAT pool about a packet of no session";
    Ip4Checksum = "ip4-checksum", "IPv4 header with a wrong checksum, on a routed port";
    OtherHost = "other-host", "frame on a routed port for the Ethernet address of somebody else";
    Martian = "martian", "source or destination address that must not be forwarded (RFC 1812, 5.3.7; RFC 4291, 2.5)";
    NoRoute = "no-route", "no route to the destination";
    Blackhole = "blackhole", "route of type blackhole";
    UnreachableRoute = "unreachable-route", "route of type unreachable";
    ProhibitedRoute = "prohibited-route", "route of type prohibit";
    NeighborFailed = "neighbor-failed", "next hop does not answer ARP or neighbour discovery";
    NeighborQueue = "neighbor-queue", "next hop's Ethernet address not known in time, or too many packets that waited for it";
    TtlExpired = "ttl-expired", "TTL or hop limit used up";
    FragNeeded = "frag-needed", "packet larger than the way out takes, and not to be fragmented";
    PuntNone = "punt-none", "packet for the kernel, and no port that leads to it";
    ChainClass = "chain-class", "no branch of the session's chain takes its kind of traffic";
    ChainError = "chain-error", "a function of the session's chain said drop";
    Acl = "acl", "a function `acl` denied the session";
    Police = "police", "a function `police` has let as much pass as it may";
    SynCookie = "syn-cookie", "TCP SYN that a function `synproxy` has answered itself";
    SynCookieBad = "syn-cookie-bad", "TCP segment to a function `synproxy` that answers no SYN cookie of the last minutes";
    NoBackend = "no-backend", "no back end of a function `lb` is there to take a new session";
    BackendDown = "backend-down", "the session's back end has failed its health checks";
}

impl DropReason {
    /// The reason whose number is in [`crate::Meta::drop_reason`].
    #[inline]
    pub fn from_number(number: u8) -> Option<DropReason> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

impl std::fmt::Display for DropReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_names_and_table_agree() {
        for (i, &reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(reason as usize, i);
            assert_eq!(DropReason::from_number(i as u8), Some(reason));
            assert!(reason.name().bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-'));
            assert!(!reason.help().ends_with('.'));
        }
        assert_eq!(DropReason::from_number(DropReason::ALL.len() as u8), None);
        let names: HashSet<_> = DropReason::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), DropReason::ALL.len());
    }

    #[test]
    fn display_honours_width() {
        assert_eq!(format!("{:>6}", DropReason::Rule), "  rule");
    }
}
