//! Numbers that a session replaces besides addresses and ports, and what has to be learnt for that.
//!
//! Theory of operation. What is replaced stands in a [`Mangle`] in the session's scratchpad, whose layout is computed as
//! for network functions ([`mmb_flow::layout`]). All of it is decided by the packet that opens the session, but for the
//! sequence numbers of the other side: what they become is chosen then and kept beside the record, and by how much they
//! move is known when that side sends its SYN. Sessions that are picked up in the middle keep their numbers, for the ends
//! know them already.

use std::io;
use std::ops::Range;

use mmb_flow::layout::{Graph, Order};
use mmb_flow::{Direction, Found, Inside, Key, Mangle, MappingId, Segment, SessionId, Traffic, half_flags};
use mmb_packet::PacketBuf;
use mmb_policy::Choice;

use crate::Host;
use crate::engine::{Sessions, session_flags};
use crate::plan::{Plan, hash_of, scaled};
use crate::slow::Call;

/// Where things stand in the scratchpads of sessions.
#[derive(Clone, Debug)]
pub(crate) struct Scratch {
    /// A [`Mangle`].
    mangle: Range<usize>,
    /// What the other side's first sequence number is to become, 4 bytes.
    pending: Range<usize>,
    pub bytes: usize,
}

impl Scratch {
    /// Most bytes that a session can have.
    const LIMIT: usize = 4096;

    pub fn new() -> io::Result<Scratch> {
        let mut graph = Graph::default();
        let mangle = graph.add(size_of::<Mangle>(), align_of::<Mangle>());
        let pending = graph.add(size_of::<u32>(), align_of::<u32>());
        graph.edge(mangle, pending);
        let layout = graph.layout(Order::Maximal, Self::LIMIT).map_err(io::Error::other)?;
        Ok(Scratch { mangle: layout.place(mangle), pending: layout.place(pending), bytes: layout.bytes() })
    }
}

impl Sessions {
    /// The record of replaced numbers of a session that has one.
    pub(crate) fn mangle(&self, id: SessionId) -> Option<Mangle> {
        if self.table.common(id).flags & session_flags::MANGLE == 0 {
            return None;
        }
        self.table.scratch(id).get(self.scratch.mangle.clone()).map(bytemuck::pod_read_unaligned)
    }

    /// What the other side's first sequence number is to become, once it has come; 0: what it is.
    pub(crate) fn pending(&self, id: SessionId) -> u32 {
        self.table.scratch(id).get(self.scratch.pending.clone()).map_or(0, bytemuck::pod_read_unaligned)
    }

    /// Writes both.
    pub(crate) fn set_mangle(&mut self, id: SessionId, mangle: &Mangle, pending: u32) {
        self.table.common_mut(id).flags |= session_flags::MANGLE;
        let Scratch { mangle: at, pending: behind, .. } = self.scratch.clone();
        let scratch = self.table.scratch_mut(id);
        for (place, bytes) in [(at, bytemuck::bytes_of(mangle)), (behind, bytemuck::bytes_of(&pending))] {
            if let Some(place) = scratch.get_mut(place) {
                place.copy_from_slice(bytes);
            }
        }
    }

    /// What else is replaced, and the number that the other side's first sequence number becomes, once it has come.
    pub(crate) fn mangle_of<H: Host, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        key: &Key,
        plan: &Plan<'_>,
        traffic: &Traffic,
    ) -> Option<(Mangle, u32)> {
        let opens = match traffic {
            Traffic::Tcp(segment) if segment.flags & (Segment::SYN | Segment::ACK) == Segment::SYN => {
                Some(segment)
            }
            _ => None,
        };
        let sequence =
            plan.sequence.zip(opens).and_then(|(choice, segment)| Some((self.pick(choice, key)?, segment)));
        let pending =
            plan.acknowledgment.filter(|_| opens.is_some()).and_then(|choice| self.pick(choice, key));
        let ip_id = plan.ip_id.and_then(|choice| Some((self.pick(choice, key)? as u16, choice.random)));
        let label = plan.label.and_then(|choice| self.pick(choice, key));
        if sequence.is_none() && pending.is_none() && ip_id.is_none() && label.is_none() {
            return None;
        }
        let at = usize::from(call.meta.l3_off);
        let head = call.packet.head().get(at..).unwrap_or(&[]);
        let mut mangle = Mangle::default();
        if let Some((value, segment)) = sequence {
            mangle.sequence = (value as u32).wrapping_sub(segment.seq);
        }
        if let (Some((value, random)), Some(&[.., high, low])) = (ip_id, head.first_chunk::<6>()) {
            let old = u16::from_be_bytes([high, low]);
            mangle.ip_id = if random { value.wrapping_sub(old) } else { value };
            mangle.fixed_id = u8::from(!random);
        }
        if let (Some(value), Some(&[_, high, middle, low])) = (label, head.first_chunk::<4>()) {
            mangle.old_label = u32::from_be_bytes([0, high & 0x0f, middle, low]);
            mangle.new_label = value as u32;
        }
        Some((mangle, pending.map_or(0, |value| value as u32)))
    }

    /// One of the values: at random, or as follows from the key.
    fn pick(&mut self, choice: &Choice, key: &Key) -> Option<u128> {
        let draw = match choice.random {
            true => u64::from(self.random.next()) << 32 | u64::from(self.random.next()),
            false => hash_of(key, self.config.seed),
        };
        choice.values.nth(scaled(draw, choice.values.len()))
    }

    /// Learns from a packet of a session what had to wait for it: how the other side counts, where an inside host is.
    pub(crate) fn learn<H: Host, P: PacketBuf>(&mut self, call: &Call<'_, H, P>, found: Found) {
        let (common, half) = (self.table.common(found.session()), self.table.half(found));
        if found.direction() == Direction::Forward || half.flags & half_flags::SEEN != 0 {
            return;
        }
        if common.flags & session_flags::INBOUND != 0
            && let Some(&[.., a, b, c, d, e, f]) = call.packet.head().first_chunk::<12>()
        {
            let inside = Inside { mac: [a, b, c, d, e, f], in_port: call.in_port };
            self.nat.learn(MappingId(common.mapping), inside);
        }
        self.learn_sequence(call, found.session());
    }

    fn learn_sequence<H: Host, P: PacketBuf>(&mut self, call: &Call<'_, H, P>, id: SessionId) {
        if self.table.common(id).flags & session_flags::MANGLE == 0 {
            return;
        }
        let (Some(mut mangle), pending) = (self.mangle(id), self.pending(id)) else { return };
        if let Traffic::Tcp(segment) = Traffic::of(call.packet.head(), call.meta)
            && segment.flags & Segment::SYN != 0
            && pending != 0
        {
            mangle.acknowledgment = segment.seq.wrapping_sub(pending);
            self.set_mangle(id, &mangle, 0);
        }
    }
}
