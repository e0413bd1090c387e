//! Functions `flow`: a flow manager within a chain.
//!
//! Theory of operation. A packet is looked up by its headers as they are here, in a table that is the instance's and the
//! worker's. One that no session has opens one; the functions behind `flow` have their scratchpads in these sessions, and the
//! packet belongs to one of them while it is there. There are no rules here and no translation: sessions are followed for
//! their timeouts only. A session's opener is who opened the one outside. Packets without a key of their own (fragments but
//! the first, ICMP errors), and those for which there is no room, pass by the functions behind.

use std::io;

use mmb_flow::{
    BatchLookup, Direction, FlowRef, InsertError, Key, KeyError, SessionId, SessionSettings, Table,
    TcpSegment, TrackInput, TrackState, TrackVerdict, flow_flags, later_ack, parse_key,
};
use mmb_packet::{DropReason, Meta, prefetch};

use super::core::{Core, On};
use super::header::{Header, at};
use crate::program::ir::BodyNo;
use crate::set::{Set, VECTOR};
use crate::vector::NO_BASE;
use crate::{Packet, PacketView, SessionInfo};

/// What [`mmb_flow::Flow::decision`] says of a session that a function has refused: this and the reason.
const REFUSED: u32 = 1 << 8;
/// Sessions whose timers have gone off that are seen to at a time.
const TOGETHER: usize = 32;

pub(super) struct Second {
    pub table: Table,
    lookups: Box<BatchLookup>,
    /// Where each packet's scratchpad begins, in units of 8 bytes.
    pub bases: Box<[u32; VECTOR]>,
    /// What packets belong to outside.
    outside: Box<[(SessionId, Direction); VECTOR]>,
    found: Box<[FlowRef; VECTOR]>,
    /// Sessions that functions have ended in this vector.
    pub ended: Vec<(SessionId, u32)>,
}

/// A vector on its way in.
pub(super) struct Way<'a> {
    pub core: &'a mut Core,
    pub on: &'a On,
    pub body: BodyNo,
    /// Of the packets outside: whether the other sides have sent them.
    pub back: bool,
    pub now: u32,
}

impl Second {
    pub fn new(sessions: u32, bytes: usize, seed: u64) -> io::Result<Second> {
        Ok(Second {
            table: Table::new(sessions, bytes, seed)?,
            lookups: Box::default(),
            bases: Box::new([NO_BASE; VECTOR]),
            outside: Box::new([(SessionId(0), Direction::Forward); VECTOR]),
            found: Box::new([FlowRef::NONE; VECTOR]),
            ended: Vec::with_capacity(VECTOR),
        })
    }

    /// Finds the sessions of packets, which belong to them from then on until [`Second::go_out`]: those that do, and those
    /// whose session a function has refused.
    pub fn go_in(&mut self, way: &mut Way<'_>, packets: &mut [Packet<'_>], set: Set) -> (Set, Set) {
        self.look_up(packets, set);
        let (mut inside, mut refused) = (Set::EMPTY, Set::EMPTY);
        for (n, i) in set.iter().enumerate() {
            let Some(packet) = packets.get_mut(i) else { break };
            let mut found = self.lookups.results().get(n).copied().unwrap_or(FlowRef::NONE);
            if !(found.is_some() && self.is_steady(found, packet, way.now)) {
                found = self.slowly(way, packet);
            }
            self.found[i] = found;
            if !found.is_some() {
                continue;
            }
            if self.table.flow(found).decision() & REFUSED != 0 {
                refused.insert(i);
                continue;
            }
            inside.insert(i);
            self.outside[i] = (packet.session, packet.direction);
            (packet.session, packet.direction) = (found.session(), found.direction());
        }
        self.find_pads(way, packets, inside);
        (inside, refused)
    }

    /// Packets belong to what they did before.
    pub fn go_out(&mut self, packets: &mut [Packet<'_>], inside: Set) {
        for i in inside.iter() {
            if let Some(packet) = packets.get_mut(i) {
                (packet.session, packet.direction) = self.outside[i];
            }
        }
    }

    fn look_up(&mut self, packets: &[Packet<'_>], set: Set) {
        let none = Meta::default();
        let nothing: (&[u8], &Meta) = (&[], &none);
        let mut those = set.iter();
        self.lookups.fill(&self.table, set.len(), |_| {
            let packet = those.next().and_then(|i| packets.get(i));
            packet.map_or(nothing, |packet| (&*packet.head, &*packet.meta))
        });
        self.lookups.run(&self.table);
    }

    /// Asks for scratchpads, then brings those up to date that are not of this body.
    fn find_pads(&mut self, way: &mut Way<'_>, packets: &[Packet<'_>], inside: Set) {
        let bytes = way.on.program.body(way.body).map_or(0, |body| body.bytes);
        let (pads, stride) = self.table.scratchpads_mut();
        let stride = stride / 8;
        for i in inside.iter() {
            let base = self.found[i].session().0 as usize * stride;
            self.bases[i] = u32::try_from(base).unwrap_or(NO_BASE);
            let pad = at(pads, self.bases[i]);
            for line in (0..bytes).step_by(64) {
                prefetch::read(pad.get(line..).unwrap_or(&[]));
            }
        }
        let mut stale = Set::EMPTY;
        for i in inside.iter() {
            let header = Header::of(at(pads, self.bases[i]));
            if (header.program, header.body) != (way.on.number, way.body) {
                stale.insert(i);
            }
        }
        for i in stale.iter() {
            let (Some(packet), id) = (packets.get(i), self.found[i].session()) else { break };
            let info = self.info(id, way.now);
            let opener = PacketView { head: packet.head, meta: packet.meta, direction: packet.direction };
            way.core.migrate(way.on, way.body, self.table.scratch_mut(id), &info, &opener);
        }
    }

    /// Counts a packet that changes nothing about its session; false for others.
    #[inline(always)]
    fn is_steady(&mut self, found: FlowRef, packet: &Packet<'_>, now: u32) -> bool {
        let half = self.table.flow_mut(found);
        let flags = packet.tcp_flags();
        if half.flags & flow_flags::SETTLED == 0
            || flags & (TcpSegment::SYN | TcpSegment::FIN | TcpSegment::RST) != 0
        {
            return false;
        }
        half.count(1, packet.len);
        half.last_seen = now;
        if flags & TcpSegment::ACK != 0
            && let Some(ack) = packet.l4().get(8..).and_then(<[u8]>::first_chunk)
        {
            half.ack = later_ack(half.ack, u32::from_be_bytes(*ack));
        }
        true
    }

    /// A packet that opens a session, or changes one.
    #[inline(never)]
    fn slowly(&mut self, way: &mut Way<'_>, packet: &Packet<'_>) -> FlowRef {
        let key = match parse_key(packet.head, packet.meta) {
            Ok(key) | Err(KeyError::FirstFragment(key)) => key,
            Err(_) => return FlowRef::NONE,
        };
        let settings = following(way.core.settings);
        let found = self.table.find(&key);
        if found.is_some() {
            if self.lives_until(way.core, found.session(), way.now, &settings).is_some()
                && self.follow(found, packet, way.now, &settings)
            {
                return found;
            }
            self.end(way.core, found.session(), way.now);
        }
        self.open(way, packet, &key, &settings).unwrap_or(FlowRef::NONE)
    }

    /// A packet of a session. False: it opens another connection with the same key.
    fn follow(&mut self, found: FlowRef, packet: &Packet<'_>, now: u32, settings: &SessionSettings) -> bool {
        let (id, traffic) = (found.session(), TrackInput::of(packet.head, packet.meta));
        let halves = [Direction::Forward, Direction::Reverse].map(|way| FlowRef::new(id, way));
        let mut acks = halves.map(|half| self.table.flow(half).ack);
        let mut track = self.table.session(id).track;
        let seen = track.update(found.direction(), &traffic, &mut acks, settings);
        if seen.verdict == TrackVerdict::New {
            return false;
        }
        self.table.session_mut(id).track = track;
        for (half, ack) in halves.into_iter().zip(acks) {
            self.table.flow_mut(half).ack = ack;
        }
        self.note(found, packet.len, now, &seen);
        true
    }

    fn note(&mut self, found: FlowRef, bytes: u32, now: u32, seen: &mmb_flow::TrackOutcome) {
        let id = found.session();
        let half = self.table.flow_mut(found);
        half.count(1, bytes);
        half.last_seen = now;
        for (direction, settled) in [Direction::Forward, Direction::Reverse].into_iter().zip(seen.settled) {
            let half = self.table.flow_mut(FlowRef::new(id, direction));
            half.flags = half.flags & !flow_flags::SETTLED | if settled { flow_flags::SETTLED } else { 0 };
        }
        if !seen.embryonic {
            self.table.remove_embryonic(id);
        }
        let deadline = now.wrapping_add(seen.timeout);
        if (deadline.wrapping_sub(self.table.deadline(id)) as i32) < 0 {
            self.table.arm_timer(id, deadline);
        }
    }

    fn open(
        &mut self,
        way: &mut Way<'_>,
        packet: &Packet<'_>,
        key: &Key,
        settings: &SessionSettings,
    ) -> Option<FlowRef> {
        let direction = if way.back { Direction::Reverse } else { Direction::Forward };
        let (forward, reverse) = if way.back { (key.reversed(), *key) } else { (*key, key.reversed()) };
        let mut acks = [0; 2];
        let (track, seen) =
            TrackState::open(&TrackInput::of(packet.head, packet.meta), &mut acks, settings).ok()?;
        let mut entered = self.table.insert(&forward, &reverse, way.now);
        if entered == Err(InsertError::Full) {
            let victim = self.table.eviction_candidate()?;
            self.end(way.core, victim, way.now);
            entered = self.table.insert(&forward, &reverse, way.now);
        }
        let id = entered.ok()?;
        let common = self.table.session_mut(id);
        (common.track, common.in_port) = (track, [packet.in_port, u16::MAX]);
        for (direction, ack) in [Direction::Forward, Direction::Reverse].into_iter().zip(acks) {
            self.table.flow_mut(FlowRef::new(id, direction)).ack = ack;
        }
        self.table.arm_timer(id, way.now.wrapping_add(seen.timeout));
        let found = FlowRef::new(id, direction);
        self.note(found, packet.len, way.now, &seen);
        let info = self.info(id, way.now);
        let opener = PacketView { head: packet.head, meta: packet.meta, direction };
        way.core.open(way.on, way.body, self.table.scratch_mut(id), &info, &opener, None);
        Some(found)
    }

    pub fn info(&self, id: SessionId, now: u32) -> SessionInfo {
        let [there, back] =
            [Direction::Forward, Direction::Reverse].map(|way| self.table.flow(FlowRef::new(id, way)));
        let (key, common) = (there.key(), self.table.session(id));
        let counts = [there.counts(), back.counts()];
        SessionInfo {
            id,
            key,
            ingress_key: key,
            egress_key: key,
            created: common.created,
            now,
            in_port: common.in_port[0],
            uid: self.table.uid(id),
            packets: counts.map(|(packets, _)| packets),
            bytes: counts.map(|(_, bytes)| bytes),
        }
    }

    /// When a session ends if no packet comes. None: it should have.
    fn lives_until(&self, core: &Core, id: SessionId, now: u32, settings: &SessionSettings) -> Option<u32> {
        let [there, back] =
            [Direction::Forward, Direction::Reverse].map(|way| self.table.flow(FlowRef::new(id, way)));
        let wanted = core.timeout(self.table.scratch(id)).unwrap_or(0);
        let timeout = self.table.session(id).track.timeout(settings).max(wanted);
        let idle = now.wrapping_sub(there.last_seen).min(now.wrapping_sub(back.last_seen));
        (idle < timeout).then(|| now.wrapping_add(timeout - idle))
    }

    /// Ends a session.
    pub fn end(&mut self, core: &mut Core, id: SessionId, now: u32) {
        let info = self.info(id, now);
        core.release(self.table.scratch_mut(id), &info);
        self.table.remove(id);
    }

    /// Ends the sessions that functions have ended.
    pub fn end_some(&mut self, core: &mut Core, now: u32) {
        while let Some((id, uid)) = self.ended.pop() {
            if self.table.is_live(id) && self.table.uid(id) == uid {
                self.end(core, id, now);
            }
        }
    }

    /// Has all later packets of a session dropped.
    pub fn refuse(&mut self, id: SessionId, reason: DropReason) {
        for direction in [Direction::Forward, Direction::Reverse] {
            self.table.flow_mut(FlowRef::new(id, direction)).set_decision(REFUSED | reason as u32);
        }
    }

    /// Why the packet at this position is dropped.
    pub fn refusal(&self, i: usize) -> DropReason {
        let found = self.found.get(i).copied().unwrap_or(FlowRef::NONE);
        let number = if found.is_some() { self.table.flow(found).decision() as u8 } else { 0 };
        DropReason::from_number(number).unwrap_or(DropReason::ChainError)
    }

    /// Ends sessions whose time is over. True: there may be more.
    pub fn tick(&mut self, core: &mut Core, now: u32, budget: &mut u32) -> bool {
        let settings = following(core.settings);
        for _ in 0..TOGETHER {
            let Some(id) = self.table.next_expired(now, budget) else { return false };
            match self.lives_until(core, id, now, &settings) {
                Some(deadline) => self.table.arm_timer(id, deadline),
                None => self.end(core, id, now),
            }
        }
        true
    }
}

/// The settings with which sessions are followed: whether segments are to be dropped is for the flow manager to say.
fn following(settings: SessionSettings) -> SessionSettings {
    SessionSettings { tcp_pickup: true, tcp_window_check: false, ..settings }
}
