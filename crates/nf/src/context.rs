//! The context in which a function runs, and the frames that it sends.

mod reinjection;

use mmb_packet::{DropReason, StageWord};

pub use self::reinjection::Reinjection;
use self::reinjection::Reinjections;
use crate::held::{HeldPackets, HeldPlace, HeldQueue, OUTER_SPACE};
use crate::stream::AnswerNumbers;
use crate::tcp_segment::SegmentTo;
use crate::{Packet, Verdict};

/// Where a frame that a function sends goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitTarget {
    /// Out by this port.
    Port(u16),
    /// Out by the port at which the packet came in. When a session begins or ends: the port of its first
    /// packet.
    Ingress,
    /// Where the packet goes. Has no meaning when a session begins or ends, as there is no packet.
    Egress,
}

/// The context in which a function runs.
#[derive(Debug)]
pub struct Context<'a, L> {
    /// Milliseconds of the worker's clock; wraps.
    pub now: u32,
    /// The worker's number.
    pub worker: u16,
    /// The worker's state of the instance.
    pub local: &'a mut L,
    pub(crate) emissions: &'a mut Emissions,
    /// Position of the packet in its vector.
    pub(crate) at: Option<u8>,
    /// The port of [`EmitTarget::Ingress`] if there is no packet.
    pub(crate) ingress: u16,
    pub(crate) holding: Holding<'a>,
}

/// What a function needs to hold packets.
#[derive(Debug)]
pub(crate) struct Holding<'a> {
    pub held: &'a mut HeldPackets,
    /// See [`HeldPlace`].
    pub space: u32,
    pub state: u32,
    /// The packets were held, and go on.
    pub is_resumed: bool,
    /// Position of a packet, and its order.
    pub order: Option<(Option<u8>, u32)>,
    /// The numbers with which the function may answer the client ([`crate::TakenOver`]). None: it may not.
    pub answer: Option<AnswerNumbers>,
    /// In a process: the number of the answer to the client of the packet.
    pub answered: Option<u32>,
}

impl<'a> Holding<'a> {
    /// Makes the value for a function in the flow manager's sessions, with the first state.
    pub fn new(held: &'a mut HeldPackets) -> Holding<'a> {
        let (order, answer, answered) = (None, None, None);
        Holding { held, space: OUTER_SPACE, state: 0, is_resumed: false, order, answer, answered }
    }

    pub fn place(&self, packet: &Packet<'_>) -> HeldPlace {
        HeldPlace { space: self.space, session: packet.session.0, state: self.state }
    }
}

impl<L> Context<'_, L> {
    /// Returns the packets that the function holds of a packet's session and direction.
    pub fn held(&mut self, packet: &Packet<'_>) -> HeldQueue<'_> {
        let place = self.holding.place(packet);
        HeldQueue { held: &mut *self.holding.held, place, direction: packet.direction, is_behind: false }
    }

    /// Returns [`Verdict::Hold`] for the packet that is being processed. The packet gets its place among the
    /// held packets: in front of those whose `order` is greater, modulo 2^32, as with TCP sequence numbers.
    pub fn hold_at(&mut self, order: u32) -> Verdict {
        self.holding.order = Some((self.at, order));
        Verdict::Hold
    }

    /// Returns the verdict on a packet of a function that holds packets. A packet that the function passes
    /// may have to follow others. A packet that it holds may be one too many.
    #[inline(always)]
    pub(crate) fn settle(&mut self, packet: &mut Packet<'_>, verdict: Verdict) -> Verdict {
        let verdict = match verdict {
            Verdict::Pass | Verdict::Branch(_) if self.holding.held.is_draining() => {
                self.follow(packet, verdict)
            }
            Verdict::Hold => self.hold(packet),
            _ => verdict,
        };
        if self.holding.held.has_behind() {
            self.holding.held.flush_behind();
        }
        verdict
    }

    #[cold]
    fn hold(&mut self, packet: &mut Packet<'_>) -> Verdict {
        if self.holding.is_resumed {
            return Verdict::Drop(DropReason::ChainError);
        }
        let order = self.holding.order.take().filter(|(at, _)| *at == self.at).map(|(_, order)| order);
        let place = self.holding.place(packet);
        keep(packet, self.holding.held.hold(place, packet.direction, order))
    }

    #[cold]
    fn follow(&mut self, packet: &mut Packet<'_>, verdict: Verdict) -> Verdict {
        if self.holding.is_resumed {
            return verdict;
        }
        let place = self.holding.place(packet);
        match self.holding.held.follow(place, packet.direction, Some(verdict)) {
            Some(ticket) => keep(packet, ticket),
            None => verdict,
        }
    }

    /// Sends a frame of any length, from its Ethernet header on. The frame is copied. It passes no rule and
    /// no chain.
    ///
    /// Frames beyond [`Emissions::MAX_FRAMES`] or [`Emissions::MAX_BYTES`] of a vector are not sent, and
    /// counted.
    pub fn emit(&mut self, target: EmitTarget, frame: &[u8]) {
        self.emit_segments(target, &[frame]);
    }

    /// Sends a frame that is the concatenation of slices, as [`Context::emit`] does.
    pub fn emit_segments(&mut self, target: EmitTarget, segments: &[&[u8]]) {
        self.emissions.push(target, self.at, self.ingress, segments);
    }

    /// Sends a frame, the concatenation of slices, through the whole chain of a packet's session, as if an
    /// end had sent it. It comes behind the vector that is being processed, and has
    /// [`mmb_packet::PacketFlags::OURS`]. It passes no rule, and is not tracked.
    ///
    /// The limits of [`Context::emit`] hold.
    pub fn reinject(&mut self, packet: &Packet<'_>, to: SegmentTo, segments: &[&[u8]]) {
        if !self.emissions.reinjections.push(packet, to, segments) {
            self.emissions.lost += 1;
        }
    }
}

/// Notes the ticket of a packet.
pub(crate) fn keep(packet: &mut Packet<'_>, ticket: Result<u32, DropReason>) -> Verdict {
    match ticket {
        Ok(ticket) => {
            packet.meta.stage = StageWord::from_ticket(ticket);
            Verdict::Hold
        }
        Err(reason) => Verdict::Drop(reason),
    }
}

/// A frame that a function has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emission<'a> {
    /// The port by which it leaves, or [`mmb_packet::OUT_ROUTED`].
    pub out_port: u16,
    /// The port at which the packet, or the session's first packet, came in.
    pub in_port: u16,
    /// Position of that packet in its vector. None: a session began or ended.
    pub packet: Option<u8>,
    /// The frame takes the place of that packet, or follows it. Others leave before the vector.
    pub is_in_order: bool,
    /// Bytes of payload of each segment of a large frame but the last one ([`mmb_packet::LargeFrame`]). 0:
    /// the frame is an ordinary one.
    pub segment_size: u16,
    /// The frame.
    pub frame: &'a [u8],
}

/// Frames that functions have sent, in order. The buffers are reused.
#[derive(Debug, Default)]
pub struct Emissions {
    records: Vec<Record>,
    bytes: Vec<u8>,
    lost: u64,
    /// Index of the first record whose ports are not resolved yet.
    unresolved: usize,
    reinjections: Reinjections,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    target: EmitTarget,
    out_port: u16,
    in_port: u16,
    packet: Option<u8>,
    /// Some if the chain translates its sessions: whether the function sees forward packets translated.
    after_translation: Option<bool>,
    is_in_order: bool,
    segment_size: u16,
    start: usize,
    len: usize,
}

impl Emissions {
    /// Most frames that wait to be sent.
    pub const MAX_FRAMES: usize = 1024;
    /// Most bytes of frames that wait to be sent: twice those of a vector of large frames.
    pub const MAX_BYTES: usize = 32 << 20;

    pub(crate) fn push(&mut self, target: EmitTarget, packet: Option<u8>, ingress: u16, segments: &[&[u8]]) {
        let has_no_target = packet.is_none() && target == EmitTarget::Egress;
        let len = segments.iter().map(|segment| segment.len()).sum::<usize>();
        if has_no_target || !self.has_room(len) {
            self.lost += 1;
            return;
        }
        let out_port = match target {
            EmitTarget::Port(port) => port,
            EmitTarget::Ingress | EmitTarget::Egress => ingress,
        };
        let start = self.bytes.len();
        segments.iter().for_each(|segment| self.bytes.extend_from_slice(segment));
        self.records.push(Record {
            target,
            out_port,
            in_port: ingress,
            packet,
            after_translation: None,
            is_in_order: false,
            segment_size: 0,
            start,
            len,
        });
    }

    /// Whether a frame of `len` bytes has room.
    fn has_room(&self, len: usize) -> bool {
        self.records.len() < Self::MAX_FRAMES && self.bytes.len() + len <= Self::MAX_BYTES
    }

    /// Sends a frame at the place of a packet among those of its vector.
    pub(crate) fn push_in_order(&mut self, target: EmitTarget, at: usize, segments: &[&[u8]]) {
        let before = self.records.len();
        self.push(target, Some(at as u8), u16::MAX, segments);
        if let Some(record) = self.records.get_mut(before) {
            record.is_in_order = true;
        }
    }

    /// Sends a frame at the place of a packet, as [`Emissions::push_in_order`]. `payload` appends to the
    /// headers what follows them, `len` bytes. If it returns false, nothing is sent. `segment_size`: see
    /// [`Emission::segment_size`]. Returns the frame, to be completed.
    pub(crate) fn push_built(
        &mut self,
        target: EmitTarget,
        at: usize,
        headers: &[u8],
        (len, segment_size): (usize, u16),
        payload: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> Option<&mut [u8]> {
        let (start, before) = (self.bytes.len(), self.records.len());
        if !self.has_room(headers.len() + len) {
            self.lost += 1;
            return None;
        }
        self.push_in_order(target, at, &[headers]);
        if !payload(&mut self.bytes) {
            self.records.truncate(before);
            self.bytes.truncate(start);
            return None;
        }
        let frame = self.bytes.get_mut(start..)?;
        let record = self.records.get_mut(before)?;
        (record.segment_size, record.len) = (segment_size, frame.len());
        Some(frame)
    }

    /// Replaces the bytes of a frame.
    pub(crate) fn replace(&mut self, index: usize, frame: &[u8]) {
        let start = self.bytes.len();
        if let Some(record) = self.records.get_mut(index).filter(|_| start + frame.len() <= Self::MAX_BYTES) {
            (record.start, record.len) = (start, frame.len());
            self.bytes.extend_from_slice(frame);
        }
    }

    /// Notes the place of the function that has sent all frames from `first` on.
    pub(crate) fn set_place(&mut self, first: usize, translates: bool, after_translation: bool) {
        for record in self.records.iter_mut().skip(first) {
            record.after_translation = translates.then_some(after_translation);
        }
    }

    /// Completes the frames from `first` on that functions have sent to `Ingress` or `Egress`.
    ///
    /// The closure gets the packet's position, whether the frame goes where the packet goes, whether the
    /// function sees forward packets translated (None: the chain does not translate), and the frame. If it
    /// returns false, the frame is not sent.
    pub(crate) fn finish(
        &mut self,
        first: usize,
        mut f: impl FnMut(u8, bool, Option<bool>, &mut [u8]) -> bool,
    ) {
        let Emissions { records, bytes, lost, unresolved, .. } = self;
        let mut index = 0;
        records.retain_mut(|record| {
            index += 1;
            let Some(packet) = record.packet.filter(|_| index > first) else { return true };
            let frame = bytes.get_mut(record.start..record.start + record.len).unwrap_or(&mut []);
            let is_sent = matches!(record.target, EmitTarget::Port(_))
                || f(packet, record.target == EmitTarget::Egress, record.after_translation, frame);
            *lost += u64::from(!is_sent);
            is_sent
        });
        *unresolved = records.len();
    }

    /// Changes all frames from `first` on. The closure gets the packet's position, whether the frame goes
    /// where the packet goes, and the frame.
    pub(crate) fn change(&mut self, first: usize, mut f: impl FnMut(u8, bool, &mut [u8])) {
        let Emissions { records, bytes, .. } = self;
        for record in records.iter().skip(first) {
            let frame = bytes.get_mut(record.start..record.start + record.len);
            if let (Some(packet), Some(frame)) = (record.packet, frame) {
                f(packet, record.target == EmitTarget::Egress, frame);
            }
        }
    }

    /// Whether frames are to pass chains.
    #[inline]
    pub fn has_reinjections(&self) -> bool {
        !self.reinjections.is_empty()
    }

    /// Removes the first frame that is to pass a chain, and gives it to a closure. None: there is none.
    pub fn reinject<R>(&mut self, f: impl FnOnce(Reinjection<'_>) -> R) -> Option<R> {
        self.reinjections.pop(f)
    }

    /// Sets the ports of new frames. The closure returns input and output port of the packet at a position.
    /// Returns the index of the first new frame.
    pub(crate) fn resolve(&mut self, ports: impl Fn(u8) -> Option<(u16, u16)>) -> usize {
        let first = std::mem::replace(&mut self.unresolved, self.records.len());
        for record in self.records.iter_mut().skip(first) {
            if let Some((in_port, out_port)) = record.packet.and_then(&ports) {
                record.in_port = in_port;
                match record.target {
                    EmitTarget::Port(_) => {}
                    EmitTarget::Ingress => record.out_port = in_port,
                    EmitTarget::Egress => record.out_port = out_port,
                }
            }
        }
        first
    }

    /// Orders the frames by their places among the packets of their vector. Those that leave before it come
    /// first. Returns whether there are others.
    pub fn sort(&mut self) -> bool {
        let place = |record: &Record| {
            if record.is_in_order { record.packet.map_or(0, |at| at as u16 + 1) } else { 0 }
        };
        let has_places = self.records.iter().any(|record| record.is_in_order);
        if has_places {
            // Frames begin in the order in which they were made.
            self.records.sort_unstable_by_key(|record| (place(record), record.start));
        }
        has_places
    }

    /// Whether there are no frames but those that are to pass chains.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the number of frames.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Iterates over the frames.
    pub fn iter(&self) -> impl Iterator<Item = Emission<'_>> {
        self.records.iter().map(|record| Emission {
            out_port: record.out_port,
            in_port: record.in_port,
            packet: record.packet,
            is_in_order: record.is_in_order,
            segment_size: record.segment_size,
            frame: self.bytes.get(record.start..record.start + record.len).unwrap_or(&[]),
        })
    }

    /// Removes all frames, after they are sent. Those that are to pass chains stay.
    pub fn clear(&mut self) {
        self.records.clear();
        self.bytes.clear();
        self.unresolved = 0;
    }

    /// Returns the number of frames that were not kept, for want of room or of a target.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests;
