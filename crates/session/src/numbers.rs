//! Numbers that a session replaces besides addresses and ports, and what has to be learnt for that.
//!
//! Theory of operation. What is replaced stands in a [`Mangle`] in the session's [`Record`], which lies behind the bytes of
//! network functions in its scratchpad. All of it is decided by the packet that opens the session, but for the
//! sequence numbers of the other side: what they become is chosen then and kept beside the mangle, and by how much they
//! move is known when that side sends its SYN. Sessions that are picked up in the middle keep their numbers, for the ends
//! know them already.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use mmb_flow::{
    Direction, FlowRef, HostLocation, Key, Mangle, MappingId, SessionId, Table, TcpSegment, TrackInput,
    flow_flags,
};
use mmb_packet::{DropReason, PacketBuf};
use mmb_policy::Choice;

use crate::Environment;
use crate::engine::{Sessions, session_flags};
use crate::plan::{Plan, hash_of, scaled};
use crate::slow::Call;

/// What the engine itself keeps in a session's scratchpad. Of use as far as the session's flags say so.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Record {
    mangle: Mangle,
    /// What the other side's first sequence number is to become.
    pending: u32,
    /// 1: it has not come yet.
    waits: u8,
    /// Why packets are dropped, as a number of [`DropReason`] …
    refused: u8,
    /// … under this generation of rules.
    under: u16,
}

/// Where things stand in the scratchpads of sessions.
#[derive(Clone, Debug)]
pub(crate) struct Scratch {
    /// Bytes of functions, from the beginning on.
    pub functions: usize,
    /// A [`Record`].
    record: Range<usize>,
    /// All of it: whole cache lines, so that what functions look at together lies in as few as can be.
    pub bytes: usize,
}

impl Scratch {
    /// Bytes of a cache line.
    const LINE: usize = 64;

    /// With so many bytes for functions.
    pub fn new(functions: usize) -> Scratch {
        let functions = functions.next_multiple_of(8);
        let record = functions..functions + size_of::<Record>();
        Scratch { functions, bytes: record.end.next_multiple_of(Self::LINE), record }
    }

    /// The engine's own part of a scratchpad.
    pub fn record(&self, scratch: &[u8]) -> Record {
        scratch.get(self.record.clone()).map_or(Record::default(), bytemuck::pod_read_unaligned)
    }
}

/// By how many places a sequence number is moved that is chosen beforehand.
pub(crate) type Numbers = (Mangle, Option<u32>);

impl Sessions {
    fn record(&self, id: SessionId) -> Record {
        self.scratch.record(self.table.scratch(id))
    }

    fn change_record(&mut self, id: SessionId, change: impl FnOnce(&mut Record)) {
        let mut record = self.record(id);
        change(&mut record);
        if let Some(place) = self.table.scratch_mut(id).get_mut(self.scratch.record.clone()) {
            place.copy_from_slice(bytemuck::bytes_of(&record));
        }
    }

    /// The replaced numbers of a session that has such.
    pub(crate) fn mangle(&self, id: SessionId) -> Option<Mangle> {
        mangle(&self.table, &self.scratch, id)
    }

    /// Has numbers replaced: those of the mangle, and the other side's so that its first one becomes `pending`.
    pub(crate) fn set_mangle(&mut self, id: SessionId, (mangle, pending): Numbers) {
        self.table.session_mut(id).flags |= session_flags::MANGLE;
        self.change_record(id, |record| {
            (record.mangle, record.pending) = (mangle, pending.unwrap_or(0));
            record.waits = u8::from(pending.is_some());
        });
    }

    /// Why packets of the session are dropped before anything else is done, if they are.
    pub(crate) fn refused(&self, id: SessionId) -> Option<DropReason> {
        if self.table.session(id).flags & session_flags::REFUSED == 0 {
            return None;
        }
        let Record { refused, under, .. } = self.record(id);
        DropReason::from_number(refused).filter(|_| under == self.decisions.epoch())
    }

    /// Has all packets of the session dropped from now on, until rules change. None of its directions is settled any more, so that packets meet
    /// this wherever they are looked at.
    pub(crate) fn refuse(&mut self, id: SessionId, reason: DropReason) {
        self.table.session_mut(id).flags |= session_flags::REFUSED;
        let under = self.decisions.epoch();
        self.change_record(id, |record| (record.refused, record.under) = (reason as u8, under));
        for way in [Direction::Forward, Direction::Reverse] {
            self.table.flow_mut(FlowRef::new(id, way)).flags &= !flow_flags::SETTLED;
        }
    }

    /// What else is replaced, and the number that the other side's first sequence number becomes, once it has come.
    pub(crate) fn mangle_of<H: Environment, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        key: &Key,
        plan: &Plan<'_>,
        traffic: &TrackInput,
    ) -> Option<Numbers> {
        let opens = match traffic {
            TrackInput::Tcp(segment)
                if segment.flags & (TcpSegment::SYN | TcpSegment::ACK) == TcpSegment::SYN =>
            {
                Some(segment)
            }
            _ => None,
        };
        let sequence =
            plan.sequence.zip(opens).and_then(|(choice, segment)| Some((self.pick(choice, key)?, segment)));
        let chosen =
            plan.acknowledgment.filter(|_| opens.is_some()).and_then(|choice| self.pick(choice, key));
        // What the opener has been told is no matter of choice any more.
        let pending = plan.answers.or(chosen.map(|value| value as u32));
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
        Some((mangle, pending))
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
    pub(crate) fn learn<H: Environment, P: PacketBuf>(&mut self, call: &Call<'_, H, P>, found: FlowRef) {
        if found.direction() == Direction::Forward {
            return;
        }
        let (common, half) = (self.table.session(found.session()), self.table.flow(found));
        if half.flags & flow_flags::SEEN == 0
            && common.flags & session_flags::INBOUND != 0
            && let Some(&[.., a, b, c, d, e, f]) = call.packet.head().first_chunk::<12>()
        {
            let inside = HostLocation { mac: [a, b, c, d, e, f], in_port: call.in_port };
            self.nat.learn(MappingId(common.mapping), inside);
        }
        self.learn_sequence(call, found.session());
    }

    fn learn_sequence<H: Environment, P: PacketBuf>(&mut self, call: &Call<'_, H, P>, id: SessionId) {
        if self.table.session(id).flags & session_flags::MANGLE == 0 || self.record(id).waits == 0 {
            return;
        }
        if let TrackInput::Tcp(segment) = TrackInput::of(call.packet.head(), call.meta)
            && segment.flags & TcpSegment::SYN != 0
        {
            self.change_record(id, |record| {
                record.mangle.acknowledgment = segment.seq.wrapping_sub(record.pending);
                record.waits = 0;
            });
        }
    }
}

/// The same as [`Sessions::mangle`], of parts.
pub(crate) fn mangle(table: &Table, scratch: &Scratch, id: SessionId) -> Option<Mangle> {
    let has = table.session(id).flags & session_flags::MANGLE != 0;
    has.then(|| scratch.record(table.scratch(id)).mangle)
}
