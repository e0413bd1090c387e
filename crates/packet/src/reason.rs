//! Drop reasons.
//!
//! Fixed reasons are in one table. Network functions register further ones by name; a few numbers are kept
//! for them.

use std::sync::OnceLock;

/// Declares the reasons with their names and descriptions in one table.
macro_rules! drop_reasons {
    ($($reason:ident = $name:literal, $help:literal;)*) => {
        /// Why a packet was dropped. The name is the counter, the line in a trace and the label of the
        /// metric.
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DropReason {
            $(#[doc = $help] $reason,)*
            /// A reason that a network function has registered ([`DropReason::register`]).
            Function0,
            /// See [`DropReason::Function0`].
            Function1,
            /// See [`DropReason::Function0`].
            Function2,
            /// See [`DropReason::Function0`].
            Function3,
            /// See [`DropReason::Function0`].
            Function4,
            /// See [`DropReason::Function0`].
            Function5,
            /// See [`DropReason::Function0`].
            Function6,
            /// See [`DropReason::Function0`].
            Function7,
        }

        impl DropReason {
            /// All fixed reasons; `ALL[i] as usize == i`. [`DropReason::known`] adds those of network
            /// functions.
            pub const ALL: &[DropReason] = &[$(DropReason::$reason),*];

            /// The name, in kebab case; unique, and part of the interface.
            pub fn name(self) -> &'static str {
                match self {
                    $(DropReason::$reason => $name,)*
                    _ => self.registered().map_or("unregistered", |(name, _)| name),
                }
            }

            /// What happened, in one line without a full stop.
            pub fn help(self) -> &'static str {
                match self {
                    $(DropReason::$reason => $help,)*
                    _ => self.registered().map_or("no function has registered it", |(_, help)| help),
                }
            }
        }
    };
}

drop_reasons! {
    Rule = "rule", "dropped by a rule";
    Ip4Malformed = "ip4-malformed", "IPv4 header with a wrong version, header length or total length";
    Ip4Truncated = "ip4-truncated", "frame shorter than its IPv4 header or total length";
    Ip6Malformed = "ip6-malformed", "IPv6 header with a wrong version, or a jumbogram";
    Ip6Truncated = "ip6-truncated", "frame shorter than its IPv6 header or payload length";
    L4Truncated = "l4-truncated", "packet ends inside its TCP, UDP or ICMP header, or inside IPv6 extension headers";
    L4Malformed = "l4-malformed", "TCP data offset or UDP length below the minimum, or two IPv6 fragment headers";
    TinyFragment = "tiny-fragment", "first fragment without its whole headers, or a fragment that begins inside the TCP header";
    HeaderTooLong = "header-too-long", "headers longer than the contiguous part of the packet";
    VlanDepth = "vlan-depth", "more than four VLAN tags";
    Unwired = "unwired", "input port has no wire";
    PortGone = "port-gone", "output port is closed";
    TxFull = "tx-full", "output port's transmit queue is full";
    TooBig = "too-big", "frame exceeds the output port's maximum length";
    GsoFrame = "gso-frame", "segmentation-offload superframe from a kernel peer";
    HandoffFull = "handoff-full", "queue to another worker is full";
    NoBuffer = "no-buffer", "no packet buffer left";
    OptionSpace = "option-space", "edited TCP options exceed 40 bytes, or the packet exceeds IP's maximum length";
    OptionMtu = "option-mtu", "added TCP options make the frame exceed the output port's maximum length";
    OptionFragment = "option-fragment", "edit would resize TCP options in the first fragment of a datagram";
    OptionRoom = "option-room", "no head room in front of the frame for TCP options";
    SessionFull = "session-full", "session table full, without a half-open session to evict";
    SessionLimit = "session-limit", "source has reached its limit of sessions (`session-limit source`)";
    SessionMiddle = "session-middle", "first packet of a TCP connection is not a SYN, and tcp-pickup is off";
    TcpWindow = "tcp-window", "TCP segment outside its connection's window, and tcp-window-check is on";
    NatExhausted = "nat-exhausted", "no free external address and port for a new session";
    NatLimit = "nat-limit", "source has reached the pool's limit of sessions, or has half of the ports of an address";
    NatUnmapped = "nat-unmapped", "packet to an address and port of a NAT pool without a mapping";
    NatFiltered = "nat-filtered", "packet to a mapped address and port, rejected by the pool's filtering";
    NatFailed = "nat-failed", "headers of a translated session's packet cannot be translated";
    FragmentLost = "fragment-lost", "first fragment did not arrive in time, or too many fragments were waiting";
    FragmentOverlap = "fragment-overlap",
        "fragment that overlaps another one, or of a datagram with overlapping fragments (RFC 5722)";
    IcmpQuote = "icmp-quote", "ICMP error to a NAT pool that quotes a packet of no session";
    IcmpForged = "icmp-forged", "ICMP error that quotes a packet which its session cannot have in flight";
    IcmpRedirect = "icmp-redirect", "ICMP redirect about a packet of a session";
    Ip4Checksum = "ip4-checksum", "invalid IPv4 header checksum on a routed port";
    OtherHost = "other-host", "frame on a routed port for another host's Ethernet address";
    Martian = "martian", "source or destination address that no packet may have (RFC 1812, 5.3.7; RFC 4291, 2.5)";
    ReversePath = "reverse-path", "source to which no route leads, or not by the port that the packet came in by (set rpf)";
    NoRoute = "no-route", "no route to the destination";
    Blackhole = "blackhole", "route of type blackhole";
    UnreachableRoute = "unreachable-route", "route of type unreachable";
    ProhibitedRoute = "prohibited-route", "route of type prohibit";
    NeighborFailed = "neighbor-failed", "next hop does not answer ARP or neighbour discovery";
    NeighborQueue = "neighbor-queue", "next hop's Ethernet address not resolved in time, or too many packets waiting for it";
    TtlExpired = "ttl-expired", "TTL or hop limit expired";
    FragNeeded = "frag-needed", "packet exceeds the output MTU and must not be fragmented";
    PuntNone = "punt-none", "packet for the kernel, but no port leads to it";
    PuntLimitNeighbor = "punt-limit-neighbor", "ARP or neighbour discovery for the kernel above `punt-limit neighbor`";
    PuntLimitRouting = "punt-limit-routing", "packet of a routing protocol for the kernel above `punt-limit routing`";
    PuntLimitLocal = "punt-limit-local", "packet to the machine itself above `punt-limit local`";
    PuntLimitOther = "punt-limit-other", "other frame for the kernel above `punt-limit other`";
    PuntFull = "punt-full", "queue of packets for the kernel is full";
    ChainClass = "chain-class", "no branch of the session's chain accepts its traffic";
    ChainError = "chain-error", "dropped by a function of the session's chain";
    HeldFull = "held-full", "function of a chain may not hold more packets of the session, or of the worker";
    HeldTimeout = "held-timeout", "function of a chain held the packet for longer than the timeout `held`";
    HeldEnded = "held-ended", "session of a held packet ended, or left the function that held the packet";
    StreamWindow = "stream-window", "TCP segment with numbers that the receiver cannot take, in front of a stream function";
    StreamChecksum = "stream-checksum", "TCP segment with a wrong checksum, in front of a stream function that reads its bytes";
    StreamEnd = "stream-end", "TCP segment with bytes behind the end of a stream that a function reads";
    StreamDuplicate = "stream-duplicate", "copy of a TCP segment that waits for the bytes in front of it";
    StreamConflict = "stream-conflict", "retransmission with other bytes than those that stream functions have read";
    StreamFragment = "stream-fragment", "IP fragment of a TCP segment, in front of a stream function (`set stream-overflow`)";
    StreamReset = "stream-reset", "connection that cannot be read (`set stream-pickup`, `set stream-overflow`)";
    StreamRoom = "stream-room", "session for whose streams a function has no room (`set stream-overflow`)";
    Match = "match", "session in which a function `match` has found a pattern";
    Acl = "acl", "session denied by a function `acl`";
    Police = "police", "rate limit of a function `police` exceeded";
    SynCookie = "syn-cookie", "TCP SYN answered by a function `synproxy`";
    SynCookieBad = "syn-cookie-bad", "TCP segment to a function `synproxy` without a valid SYN cookie";
    NoBackend = "no-backend", "function `lb` has no available back end for a new session";
    BackendDown = "backend-down", "the session's back end has failed its health checks";
    ProcessFull = "process-full", "process of a function has no room for the packet";
    ProcessFailed = "process-failed", "process of a function has ended or hangs (`on-failure drop`)";
    ProcessInvalid = "process-invalid", "packet came back from the process of a function with broken headers or invalid edits";
}

/// Reasons that network functions can register, in the order of their numbers.
const FUNCTION_REASONS: [DropReason; 8] = [
    DropReason::Function0,
    DropReason::Function1,
    DropReason::Function2,
    DropReason::Function3,
    DropReason::Function4,
    DropReason::Function5,
    DropReason::Function6,
    DropReason::Function7,
];

/// Names and helps of [`FUNCTION_REASONS`]. Entries are set in order and never change.
static REGISTERED: [OnceLock<(&str, &str)>; FUNCTION_REASONS.len()] =
    [const { OnceLock::new() }; FUNCTION_REASONS.len()];

impl DropReason {
    /// Whether the headers behind the network header are the reason. The network header is valid: the packet
    /// can be forwarded where no rules apply.
    #[inline]
    pub fn is_transport_error(self) -> bool {
        matches!(self, DropReason::L4Truncated | DropReason::L4Malformed | DropReason::TinyFragment)
    }

    /// The number of reasons, those that no function has registered included.
    pub const COUNT: usize = Self::ALL.len() + FUNCTION_REASONS.len();

    /// The reason whose number is in [`crate::Meta::drop_reason`].
    #[inline]
    pub fn from_number(number: u8) -> Option<DropReason> {
        let number = usize::from(number);
        let registered = || FUNCTION_REASONS.get(number - Self::ALL.len()).copied();
        Self::ALL.get(number).copied().or_else(|| registered().filter(|reason| reason.registered().is_some()))
    }

    /// Registers a reason of a network function for the life of the process. A name that is known already
    /// keeps its reason and its help. None: there is no room for another reason.
    pub fn register(name: &'static str, help: &'static str) -> Option<DropReason> {
        if let Some(known) = Self::find(name) {
            return Some(known);
        }
        // Another thread may take an entry in between, with the same name or another one.
        let mut entries = FUNCTION_REASONS.into_iter().zip(&REGISTERED);
        let taken = entries.find(|(_, entry)| entry.get_or_init(|| (name, help)).0 == name);
        taken.map(|(reason, _)| reason)
    }

    /// All reasons that have a name: the fixed ones and those that functions have registered.
    pub fn known() -> impl Iterator<Item = DropReason> {
        let registered = FUNCTION_REASONS.into_iter().filter(|reason| reason.registered().is_some());
        Self::ALL.iter().copied().chain(registered)
    }

    /// The reason with a name.
    pub fn find(name: &str) -> Option<DropReason> {
        Self::known().find(|reason| reason.name() == name)
    }

    /// Name and help of a registered reason.
    fn registered(self) -> Option<(&'static str, &'static str)> {
        let entry = REGISTERED.get((self as usize).checked_sub(Self::ALL.len())?)?;
        entry.get().copied()
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
        assert_eq!(DropReason::from_number(DropReason::COUNT as u8), None);
        assert_eq!(DropReason::Function7 as usize + 1, DropReason::COUNT);
        let names: HashSet<_> = DropReason::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), DropReason::ALL.len());
    }

    #[test]
    fn functions_register_their_own_reasons() {
        let reason = DropReason::register("quota", "quota used up").unwrap();
        assert_eq!((reason.name(), reason.help()), ("quota", "quota used up"));
        assert_eq!(DropReason::register("quota", "again"), Some(reason));
        assert_eq!(DropReason::register("acl", "a fixed reason"), Some(DropReason::Acl));
        assert_eq!(DropReason::from_number(reason as u8), Some(reason));
        assert_eq!(DropReason::known().count(), DropReason::ALL.len() + 1);
        let names = ["r1", "r2", "r3", "r4", "r5", "r6", "r7"];
        assert!(names.iter().all(|name| DropReason::register(name, "one more").is_some()));
        assert_eq!(DropReason::register("r8", "one too many"), None);
        assert_eq!(DropReason::known().count(), DropReason::COUNT);
    }

    #[test]
    fn display_honours_width() {
        assert_eq!(format!("{:>6}", DropReason::Rule), "  rule");
    }
}
