//! The flow control block (FCB): the stored state of a session.
//!
//! An FCB has a number and lies in several arrays. Two [`Flow`]s, one per direction, take a cache line each.
//! A packet of an established session reads only the line of its direction. The [`SessionState`] is read when
//! a session is opened, changes its state or ends. The scratchpads, the deadlines and what few sessions have
//! are in other arrays of the [`crate::Table`].

use bitflags::bitflags;
use bytemuck::{Pod, Zeroable};

use crate::key::{Key, PackedKey, has_tail};
use crate::track::TrackCore;

/// Number of a session in its worker's table. Numbers are reused after a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u32);

/// Direction of a packet in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the originator: the direction of the packet that opened the session.
    Forward = 0,
    /// To the originator.
    Reverse = 1,
}

/// A session and a direction, or none, in 32 bits. Stored in [`mmb_packet::Meta::session`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowRef(pub u32);

impl FlowRef {
    /// No session.
    pub const NONE: FlowRef = FlowRef(u32::MAX);

    /// The flow of a session in a direction.
    pub fn new(session: SessionId, direction: Direction) -> FlowRef {
        FlowRef(session.0 << 1 | direction as u32)
    }

    /// Whether there is a session.
    pub fn is_some(self) -> bool {
        self != FlowRef::NONE
    }

    /// The session. Meaningless for [`FlowRef::NONE`].
    pub fn session(self) -> SessionId {
        SessionId(self.0 >> 1)
    }

    /// The direction. Meaningless for [`FlowRef::NONE`].
    pub fn direction(self) -> Direction {
        if self.0 & 1 == 0 { Direction::Forward } else { Direction::Reverse }
    }

    /// The flow of the same session in the opposite direction.
    pub fn opposite(self) -> FlowRef {
        FlowRef(self.0 ^ 1)
    }
}

bitflags! {
    /// Flags of [`Flow::flags`].
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
    pub struct FlowFlags: u8 {
        /// Packets with none of SYN, FIN and RST cannot change the session's state. They take the established
        /// path.
        const SETTLED = 1 << 0;
        /// Addresses or ports are translated as [`Xlat4`] describes. IPv4 only.
        const XLAT4 = 1 << 1;
        /// Packets are translated in a way that [`Xlat4`] cannot describe: IPv6, sequence numbers, IP
        /// identification, flow label.
        const XLAT_SLOW = 1 << 2;
        /// Packets of this direction have been seen.
        const SEEN = 1 << 3;
        /// The session goes through a service chain, which uses its scratchpad.
        const CHAINED = 1 << 4;
        /// The chain translates the packets. The session lookup does not.
        const CHAIN_TRANSLATES = 1 << 5;
        /// The flow is not in the index: its session has ended, or it is the reverse flow of a redirect or of
        /// a session whose directions have the same key. Used by the table only.
        const UNINDEXED = 1 << 6;
        /// A redirect: packets belong to another worker. Its number and the state of the redirect are in
        /// [`Flow::decision`].
        const REDIRECT = 1 << 7;
    }
}

/// One direction of a session: one cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Flow {
    /// The packed key. IPv4 takes two words, followed by an [`Xlat4`] and [`Flow::opaque4`]; IPv6 takes five.
    /// The last two bytes of the second word are not part of the key: they hold [`Flow::next_hop`].
    pub(crate) key: [u64; 5],
    /// Bytes in the upper 56 bits, bits 32 to 39 of the packet counter in the lower 8. The bytes wrap without
    /// a carry.
    pub(crate) bytes: u64,
    /// Bits 0 to 31 of the packet counter.
    pub(crate) packets: u32,
    /// Time of the last packet, in milliseconds of the worker's clock.
    pub last_seen: u32,
    /// Number of the cached decision: 24 bits. The caller assigns the numbers.
    pub(crate) decision: [u8; 3],
    /// Flags of the flow.
    pub flags: FlowFlags,
    /// TCP: the last acknowledgement number of this direction ([`crate::latest_ack`]).
    pub ack: u32,
}

const _: () = assert!(size_of::<Flow>() == 64);

/// The bits of the second word of [`Flow::key`] that belong to the key.
const KEY: u64 = u64::MAX >> u16::BITS;

impl Flow {
    /// A flow without packets.
    pub(crate) fn new(key: &PackedKey) -> Flow {
        let ([a, b], [c, d, e]) = (key.head, key.tail);
        Flow { key: [a, b, c, d, e], ..Flow::zeroed() }
    }

    /// The source address of the flow's packets, as in [`crate::Key::source`].
    #[inline]
    pub fn source(&self) -> [u8; 16] {
        self.packed().source()
    }

    pub(crate) fn packed(&self) -> PackedKey {
        let [a, b, tail @ ..] = self.key;
        let key = PackedKey { head: [a, b & KEY], tail };
        if key.is_ip6() { key } else { PackedKey { tail: [0; 3], ..key } }
    }

    /// Whether the flow has this key. The tail counts only for IPv6.
    #[inline(always)]
    pub(crate) fn is(&self, head: &[u64; 2], tail: &[u64; 3]) -> bool {
        self.has_head(head) && self.has_tail_of(head, tail)
    }

    /// Whether the key has this head.
    #[inline(always)]
    pub(crate) fn has_head(&self, head: &[u64; 2]) -> bool {
        (self.key[0] ^ head[0]) | ((self.key[1] ^ head[1]) << (u64::BITS - KEY.count_ones())) == 0
    }

    /// Whether the rest of the key is `tail`. Always true for heads of IPv4 keys.
    #[inline(always)]
    pub(crate) fn has_tail_of(&self, head: &[u64; 2], tail: &[u64; 3]) -> bool {
        !has_tail(head) || self.key[2..] == tail[..]
    }

    /// Whether the index contains the flow.
    #[inline(always)]
    pub(crate) fn is_listed(&self) -> bool {
        !self.flags.contains(FlowFlags::UNINDEXED)
    }

    /// The key.
    pub fn key(&self) -> Key {
        self.packed().unpack()
    }

    /// Counts packets and their bytes.
    #[inline(always)]
    pub fn count(&mut self, packets: u32, bytes: u32) {
        let (sum, more) = self.packets.overflowing_add(packets);
        self.packets = sum;
        self.bytes = self.bytes.wrapping_add(u64::from(bytes) << 8);
        if more {
            self.carry();
        }
    }

    #[cold]
    fn carry(&mut self) {
        self.bytes = self.bytes & !0xff | u64::from((self.bytes as u8).wrapping_add(1));
    }

    /// Packets and bytes. The counters wrap at 2^40 packets and 2^56 bytes.
    pub fn counts(&self) -> (u64, u64) {
        ((self.bytes & 0xff) << 32 | u64::from(self.packets), self.bytes >> 8)
    }

    /// Sets packets and bytes to values of [`Flow::counts`].
    pub fn set_counts(&mut self, [packets, bytes]: [u64; 2]) {
        self.packets = packets as u32;
        self.bytes = bytes << 8 | packets >> 32 & 0xff;
    }

    /// Number of the cached decision; 0 initially. The caller assigns the numbers.
    #[inline(always)]
    pub fn decision(&self) -> u32 {
        let [a, b, c] = self.decision;
        u32::from_le_bytes([a, b, c, 0])
    }

    /// Stores the number of a decision: 24 bits.
    #[inline(always)]
    pub fn set_decision(&mut self, number: u32) {
        let [a, b, c, _] = number.to_le_bytes();
        self.decision = [a, b, c];
    }

    /// Packets and bytes since an earlier value of [`Flow::counts`].
    pub fn counts_since(&self, (packets, bytes): (u64, u64)) -> (u64, u64) {
        let (p, b) = self.counts();
        (p.wrapping_sub(packets) & ((1 << 40) - 1), b.wrapping_sub(bytes) & ((1 << 56) - 1))
    }

    /// Whether the addresses are IPv4.
    #[inline(always)]
    pub fn is_ip4(&self) -> bool {
        let [a, b, ..] = self.key;
        !has_tail(&[a, b])
    }

    /// Number of the cached next hop; 0 initially. The caller assigns the numbers.
    #[inline(always)]
    pub fn next_hop(&self) -> u16 {
        (self.key[1] >> KEY.count_ones()) as u16
    }

    /// Stores the number of a next hop.
    #[inline(always)]
    pub fn set_next_hop(&mut self, hop: u16) {
        self.key[1] = self.key[1] & KEY | u64::from(hop) << KEY.count_ones();
    }

    /// Two words that an IPv4 flow stores for the caller; zero initially. For IPv6 flows they are part of the
    /// key.
    #[inline(always)]
    pub fn opaque4(&self) -> [u32; 2] {
        bytemuck::cast(self.key[4])
    }

    /// Stores the two words of [`Flow::opaque4`]. Does nothing for IPv6 flows.
    #[inline(always)]
    pub fn set_opaque4(&mut self, note: [u32; 2]) {
        if self.is_ip4() {
            self.key[4] = bytemuck::cast(note);
        }
    }

    /// The translation of this direction. Valid only with [`FlowFlags::XLAT4`].
    #[inline(always)]
    pub fn xlat4(&self) -> Xlat4 {
        let [_, _, a, b, _] = self.key;
        bytemuck::cast([a, b])
    }

    /// Stores the translation of this direction and sets [`FlowFlags::XLAT4`]. Does nothing for IPv6 flows.
    #[inline]
    pub fn set_xlat4(&mut self, xlat: &Xlat4) {
        let [a, b, ..] = self.key;
        if !has_tail(&[a, b]) {
            [self.key[2], self.key[3]] = bytemuck::cast(*xlat);
            self.flags |= FlowFlags::XLAT4;
        }
    }
}

/// Translation of one direction of an IPv4 session: new addresses and ports, and the differences of the
/// checksums.
///
/// The differences are ones'-complement sums in native byte order. They are added to the complement of the
/// checksum field.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Xlat4 {
    /// Source address, then destination address, in network byte order.
    pub addresses: [u8; 8],
    /// Source port, then destination port. For ICMP queries: the value that is XORed into the identifier,
    /// then two zeros.
    pub ports: [u8; 4],
    /// Difference of the IPv4 header checksum, for the addresses.
    pub ip_delta: u16,
    /// Difference of the transport checksum, for the addresses (not for ICMP) and the ports.
    pub l4_delta: u16,
}

const _: () = assert!(size_of::<Xlat4>() == 16);

bitflags! {
    /// Flags of [`SessionState::flags`].
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
    pub struct SessionFlags: u8 {
        /// Numbers other than addresses and ports are replaced, as the caller's record of it says.
        const MANGLE = 1 << 0;
        /// Forward packets, once translated, are for an address of NAT and return from there (hairpinning).
        const LOOP_FORWARD = 1 << 1;
        /// Reverse packets are.
        const LOOP_REVERSE = 1 << 2;
        /// The session was opened from outside, by a NAT mapping.
        const INBOUND = 1 << 3;
        /// The session was opened by a forward and needs no rule.
        const RULELESS = 1 << 4;
        /// A function of the chain has refused the session, under some generation of rules.
        const REFUSED = 1 << 5;
        /// The session is counted for its source.
        const COUNTED = 1 << 6;
        /// No function of the session's chain reads it any more. Its packets do not pass the chain, which has
        /// the scratchpad still. The flows do not have [`FlowFlags::CHAINED`].
        const BYPASSES = 1 << 7;
    }
}

impl SessionFlags {
    /// The loop flags by direction.
    pub const LOOPS: [SessionFlags; 2] = [SessionFlags::LOOP_FORWARD, SessionFlags::LOOP_REVERSE];
}

/// The state of a session that both directions share. Established packets do not read it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub struct SessionState {
    /// Time at which the session was opened, in milliseconds of the worker's clock.
    pub created: u32,
    /// Number of the session's rule list. The caller assigns the numbers.
    pub rule_list: u32,
    /// State of the connection tracker, without the windows.
    pub(crate) track: TrackCore,
    /// Properties of the session, which the caller sets.
    pub flags: SessionFlags,
    /// Input ports of both directions; [`SessionState::NO_PORT`]: not known.
    pub(crate) in_ports: [u8; 2],
    /// Incremented each time the number is given to another session: 24 bits.
    pub(crate) uid: [u8; 3],
}

const _: () = assert!(size_of::<SessionState>() == 24);

impl SessionState {
    /// Stands for a port that is not known. Ids of ports are below it.
    const NO_PORT: u8 = u8::MAX;

    /// The input port of each direction; `u16::MAX` if no packet has come.
    pub fn in_ports(&self) -> [u16; 2] {
        self.in_ports.map(|port| if port == Self::NO_PORT { u16::MAX } else { port.into() })
    }

    /// Stores the input port of a direction.
    pub fn set_in_port(&mut self, direction: Direction, port: u16) {
        self.in_ports[direction as usize] = u8::try_from(port).unwrap_or(Self::NO_PORT);
    }

    /// Incarnation of the number.
    pub(crate) fn uid(&self) -> u32 {
        let [a, b, c] = self.uid;
        u32::from_le_bytes([a, b, c, 0])
    }

    /// The incarnation of the next session with the number.
    pub(crate) fn next_uid(&self) -> [u8; 3] {
        let [a, b, c, _] = self.uid().wrapping_add(1).to_le_bytes();
        [a, b, c]
    }
}

#[cfg(test)]
mod tests {
    use mmb_packet::Kind;

    use super::*;

    fn flow(kind: u8) -> Flow {
        let key = Key { source: [7; 16], destination: [9; 16], kind, proto: 6, ..Key::default() };
        Flow::new(&key.pack())
    }

    #[test]
    fn counts_go_beyond_32_bits() {
        let mut flow = flow(Kind::IP4);
        let (mut packets, mut bytes) = (0u64, 0u64);
        for (p, b) in [(u32::MAX, u32::MAX), (1, 0), (0, 1), (5, 7), (u32::MAX, 1), (1 << 31, u32::MAX)] {
            flow.count(p, b);
            (packets, bytes) = (packets + u64::from(p), bytes + u64::from(b));
            assert_eq!(flow.counts(), (packets, bytes));
        }
        (flow.packets, flow.bytes) = (u32::MAX, u64::MAX);
        assert_eq!(flow.counts(), ((1 << 40) - 1, (1 << 56) - 1));
        flow.count(1, 3);
        assert_eq!(flow.counts(), (0, 2), "each starts again by itself");
    }

    #[test]
    fn fields_do_not_touch_each_other() {
        let xlat = Xlat4 { addresses: [1; 8], ports: [2; 4], ip_delta: 3, l4_delta: 4 };
        let mut four = flow(Kind::IP4 | Kind::TCP);
        let key = four.key();
        four.flags = FlowFlags::SETTLED;
        four.set_decision(0xff_fffe);
        four.set_xlat4(&xlat);
        assert_eq!((four.decision(), four.xlat4(), four.key()), (0xff_fffe, xlat, key));
        assert_eq!(four.flags, FlowFlags::SETTLED | FlowFlags::XLAT4);
        assert_eq!((four.counts(), four.next_hop()), ((0, 0), 0));
        four.set_next_hop(0xabcd);
        assert_eq!((four.next_hop(), four.key(), four.xlat4()), (0xabcd, key, xlat));
        assert!(four.has_head(&key.pack().head) && !four.has_head(&key.reversed().pack().head));
        let mut six = flow(Kind::IP6 | Kind::TCP);
        let key = six.key();
        six.set_xlat4(&xlat);
        assert_eq!((six.key(), six.flags), (key, FlowFlags::empty()), "there is no room for it");
    }

    #[test]
    fn a_flow_reference_has_session_and_direction() {
        let found = FlowRef::new(SessionId(5), Direction::Reverse);
        assert_eq!((found.session(), found.direction()), (SessionId(5), Direction::Reverse));
        assert_eq!(found.opposite(), FlowRef::new(SessionId(5), Direction::Forward));
        assert!(found.is_some() && !FlowRef::NONE.is_some());
    }
}
