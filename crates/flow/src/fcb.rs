//! The flow control block: what is kept of a session.
//!
//! An FCB is found by its number and lies in three arrays: two [`Flow`]s, one for each direction and each one cache
//! line, so that a packet of an established session touches one line; the [`SessionState`] part, which is touched when a
//! session begins, changes its state or ends; and the scratchpads.

use bytemuck::{Pod, Zeroable};

use crate::key::{Key, PackedKey, has_tail};

/// Number of a session in its worker's table. Given out again after the session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u32);

/// A direction of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// That of the packet that opened it.
    Forward = 0,
    /// Replies.
    Reverse = 1,
}

/// A session and a direction, or nothing, in 32 bits; what rides in [`mmb_packet::Meta::session`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowRef(pub u32);

impl FlowRef {
    /// No session.
    pub const NONE: FlowRef = FlowRef(u32::MAX);

    /// The direction of a session.
    pub fn new(session: SessionId, direction: Direction) -> FlowRef {
        FlowRef(session.0 << 1 | direction as u32)
    }

    /// Whether there is a session.
    pub fn is_some(self) -> bool {
        self != FlowRef::NONE
    }

    /// The session; meaningless for [`FlowRef::NONE`].
    pub fn session(self) -> SessionId {
        SessionId(self.0 >> 1)
    }

    /// The direction; meaningless for [`FlowRef::NONE`].
    pub fn direction(self) -> Direction {
        if self.0 & 1 == 0 { Direction::Forward } else { Direction::Reverse }
    }

    /// The same session's other direction.
    pub fn opposite(self) -> FlowRef {
        FlowRef(self.0 ^ 1)
    }
}

/// Bits of [`Flow::flags`].
pub mod flow_flags {
    /// Packets of this direction that open, close and ask for nothing may take the short way.
    pub const SETTLED: u8 = 1 << 0;
    /// Addresses or ports of this direction are translated, and [`super::Xlat4`] says how (IPv4 only).
    pub const XLAT4: u8 = 1 << 1;
    /// Translated in some way that [`super::Xlat4`] cannot say: IPv6, sequence numbers, IP identification, flow label.
    pub const XLAT_SLOW: u8 = 1 << 2;
    /// Packets have been seen in this direction.
    pub const SEEN: u8 = 1 << 3;
    /// The session goes through a service chain, and its scratchpad is in use.
    pub const CHAINED: u8 = 1 << 4;
    /// It is that chain which translates, not who finds the session.
    pub const CHAIN_TRANSLATES: u8 = 1 << 5;
    /// Not in the index: of a session that has ended, or the second half of one with one key. The table's own.
    pub(crate) const UNINDEXED: u8 = 1 << 6;
    /// Not a session but a note that its packets go to another worker: [`super::Flow::decision`] is its number.
    pub const REDIRECT: u8 = 1 << 7;
}

/// One direction of a session: one cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Flow {
    /// The key, as the table keeps it: IPv4 in two words, followed by an [`Xlat4`] and [`Flow::opaque4`]; IPv6 in five. The last two
    /// bytes of the second word are no part of it: [`Flow::next_hop`].
    pub(crate) key: [u64; 5],
    /// Bytes, above the upper 8 bits of packets: what is carried out of either goes nowhere, or where it belongs.
    pub(crate) bytes: u64,
    /// Packets: the lower 32 bits.
    pub(crate) packets: u32,
    /// When the last packet came, in milliseconds of the worker's clock.
    pub last_seen: u32,
    /// Number of the cached decision, as the engine above numbers them: 24 bits.
    pub(crate) decision: [u8; 3],
    /// Bits of [`flow_flags`].
    pub flags: u8,
    /// TCP: the highest acknowledgement number seen in this direction.
    pub ack: u32,
}

const _: () = assert!(size_of::<Flow>() == 64);

/// The bits of [`Flow::key`]'s second word that are the key's.
const KEY: u64 = u64::MAX >> u16::BITS;

impl Flow {
    /// A direction that nothing was seen of.
    pub(crate) fn new(key: &PackedKey) -> Flow {
        let ([a, b], [c, d, e]) = (key.head, key.tail);
        Flow { key: [a, b, c, d, e], ..Flow::zeroed() }
    }

    pub(crate) fn packed(&self) -> PackedKey {
        let [a, b, tail @ ..] = self.key;
        let key = PackedKey { head: [a, b & KEY], tail };
        if key.is_ip6() { key } else { PackedKey { tail: [0; 3], ..key } }
    }

    /// Whether this is the direction with a key of that head and, if it has one, tail.
    #[inline(always)]
    pub(crate) fn is(&self, head: &[u64; 2], tail: &[u64; 3]) -> bool {
        self.has_head(head) && self.has_tail_of(head, tail)
    }

    /// Whether the key begins like that.
    #[inline(always)]
    pub(crate) fn has_head(&self, head: &[u64; 2]) -> bool {
        (self.key[0] ^ head[0]) | ((self.key[1] ^ head[1]) << (u64::BITS - KEY.count_ones())) == 0
    }

    /// Whether the rest of a key with that head, if there is any, is this.
    #[inline(always)]
    pub(crate) fn has_tail_of(&self, head: &[u64; 2], tail: &[u64; 3]) -> bool {
        !has_tail(head) || self.key[2..] == tail[..]
    }

    /// Whether it is to be found by its key.
    #[inline(always)]
    pub(crate) fn is_listed(&self) -> bool {
        self.flags & flow_flags::UNINDEXED == 0
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

    /// Packets and bytes so far; they start again from zero after 2^40 and 2^56.
    pub fn counts(&self) -> (u64, u64) {
        ((self.bytes & 0xff) << 32 | u64::from(self.packets), self.bytes >> 8)
    }

    /// Number of the cached decision, as the engine above numbers them; 0 to begin with.
    #[inline(always)]
    pub fn decision(&self) -> u32 {
        let [a, b, c] = self.decision;
        u32::from_le_bytes([a, b, c, 0])
    }

    /// Keeps a decision's number, of which there are 24 bits.
    #[inline(always)]
    pub fn set_decision(&mut self, number: u32) {
        let [a, b, c, _] = number.to_le_bytes();
        self.decision = [a, b, c];
    }

    /// What was counted since [`Flow::counts`] said so.
    pub fn counts_since(&self, (packets, bytes): (u64, u64)) -> (u64, u64) {
        let (p, b) = self.counts();
        (p.wrapping_sub(packets) & ((1 << 40) - 1), b.wrapping_sub(bytes) & ((1 << 56) - 1))
    }

    /// Whether the addresses are IPv4's.
    #[inline(always)]
    pub fn is_ip4(&self) -> bool {
        let [a, b, ..] = self.key;
        !has_tail(&[a, b])
    }

    /// A number that the engine above keeps; 0 to begin with.
    #[inline(always)]
    pub fn next_hop(&self) -> u16 {
        (self.key[1] >> KEY.count_ones()) as u16
    }

    /// Keeps that number.
    #[inline(always)]
    pub fn set_next_hop(&mut self, hop: u16) {
        self.key[1] = self.key[1] & KEY | u64::from(hop) << KEY.count_ones();
    }

    /// Two numbers that the engine above keeps with IPv4 halves; zeros to begin with. Others answer part of their key.
    #[inline(always)]
    pub fn opaque4(&self) -> [u32; 2] {
        bytemuck::cast(self.key[4])
    }

    /// Keeps those numbers. Nothing happens to halves of IPv6 sessions.
    #[inline(always)]
    pub fn set_opaque4(&mut self, note: [u32; 2]) {
        if self.is_ip4() {
            self.key[4] = bytemuck::cast(note);
        }
    }

    /// How this direction is translated; of use only with [`flow_flags::XLAT4`].
    #[inline(always)]
    pub fn xlat4(&self) -> Xlat4 {
        let [_, _, a, b, _] = self.key;
        bytemuck::cast([a, b])
    }

    /// Says how this direction is translated, and sets [`flow_flags::XLAT4`]. Nothing happens to halves of IPv6 sessions.
    #[inline]
    pub fn set_xlat4(&mut self, xlat: &Xlat4) {
        let [a, b, ..] = self.key;
        if !has_tail(&[a, b]) {
            [self.key[2], self.key[3]] = bytemuck::cast(*xlat);
            self.flags |= flow_flags::XLAT4;
        }
    }
}

/// How packets of one direction of an IPv4 session are translated: new addresses and ports, and what that does to the
/// checksums, as ones'-complement sums in native byte order to be added to the complement of the field.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Xlat4 {
    /// Source address, then destination address, as on the wire.
    pub addresses: [u8; 8],
    /// Source port, then destination port. ICMP queries: what the identifier is exclusive-or'ed with, then two zeros.
    pub ports: [u8; 4],
    /// Difference of the header checksum: of the addresses.
    pub ip_delta: u16,
    /// Difference of the transport checksum: of the addresses (not for ICMP) and of the ports.
    pub l4_delta: u16,
}

const _: () = assert!(size_of::<Xlat4>() == 16);

/// What both directions share, but for the packets' short way.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub struct SessionState {
    /// Links of the timer wheel.
    pub(crate) timer: [u32; 2],
    /// Links of the list of half-open sessions, oldest first.
    pub(crate) embryonic: [u32; 2],
    /// When the timer goes off, in milliseconds of the worker's clock.
    pub(crate) expires: u32,
    /// When the session began, likewise.
    pub created: u32,
    /// Number of the list of rules that the session has, as the engine above numbers them.
    pub rule_list: u32,
    /// Number of the NAT mapping that it holds; `u32::MAX`: none.
    pub mapping: u32,
    /// What the tracker keeps.
    pub track: crate::TrackState,
    /// State of the table's own: is the session in the list of half-open ones, and the like.
    pub(crate) table_flags: u8,
    /// For the engine above.
    pub flags: u8,
    /// The ports by which packets of both directions came in.
    pub in_port: [u16; 2],
    /// Counts up each time the number is given to another session.
    pub(crate) uid: u32,
}

const _: () = assert!(size_of::<SessionState>() == 64);

#[cfg(test)]
mod tests {
    use mmb_packet::Kind;

    use super::*;

    fn half(kind: u8) -> Flow {
        let key = Key { source: [7; 16], destination: [9; 16], kind, proto: 6, ..Key::default() };
        Flow::new(&key.pack())
    }

    #[test]
    fn counts_go_beyond_32_bits() {
        let mut half = half(Kind::IP4);
        let (mut packets, mut bytes) = (0u64, 0u64);
        for (p, b) in [(u32::MAX, u32::MAX), (1, 0), (0, 1), (5, 7), (u32::MAX, 1), (1 << 31, u32::MAX)] {
            half.count(p, b);
            (packets, bytes) = (packets + u64::from(p), bytes + u64::from(b));
            assert_eq!(half.counts(), (packets, bytes));
        }
        (half.packets, half.bytes) = (u32::MAX, u64::MAX);
        assert_eq!(half.counts(), ((1 << 40) - 1, (1 << 56) - 1));
        half.count(1, 3);
        assert_eq!(half.counts(), (0, 2), "each starts again by itself");
    }

    #[test]
    fn fields_do_not_touch_each_other() {
        let xlat = Xlat4 { addresses: [1; 8], ports: [2; 4], ip_delta: 3, l4_delta: 4 };
        let mut four = half(Kind::IP4 | Kind::TCP);
        let key = four.key();
        four.flags = flow_flags::SETTLED;
        four.set_decision(0xff_fffe);
        four.set_xlat4(&xlat);
        assert_eq!((four.decision(), four.xlat4(), four.key()), (0xff_fffe, xlat, key));
        assert_eq!(four.flags, flow_flags::SETTLED | flow_flags::XLAT4);
        assert_eq!((four.counts(), four.next_hop()), ((0, 0), 0));
        four.set_next_hop(0xabcd);
        assert_eq!((four.next_hop(), four.key(), four.xlat4()), (0xabcd, key, xlat));
        assert!(four.has_head(&key.pack().head) && !four.has_head(&key.reversed().pack().head));
        let mut six = half(Kind::IP6 | Kind::TCP);
        let key = six.key();
        six.set_xlat4(&xlat);
        assert_eq!((six.key(), six.flags), (key, 0), "there is no room for it");
    }

    #[test]
    fn found_is_session_and_direction() {
        let found = FlowRef::new(SessionId(5), Direction::Reverse);
        assert_eq!((found.session(), found.direction()), (SessionId(5), Direction::Reverse));
        assert_eq!(found.opposite(), FlowRef::new(SessionId(5), Direction::Forward));
        assert!(found.is_some() && !FlowRef::NONE.is_some());
    }
}
