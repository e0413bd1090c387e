//! Functions `flow`: a flow manager within a chain.
//!
//! Theory of operation. A packet is looked up by its current headers, in a table that belongs to instance and
//! worker. A packet without a session opens one. The functions behind `flow` have their scratchpads in these
//! sessions, and the packet belongs to one of them while it is there. There are no rules and no translation:
//! the tracker follows sessions for their timeouts only. The initiator is that of the outer session. Packets
//! without a key of their own (fragments but the first, ICMP errors), and packets for which the table has no
//! room, bypass the functions behind `flow`.

use std::io;

use mmb_flow::{
    BatchLookup, Direction, FlowFlags, FlowRef, InsertError, Key, KeyError, SessionId, SessionSettings,
    Table, TcpSegment, TrackInput, TrackState, TrackVerdict, latest_ack, parse_key,
};
use mmb_packet::{DropReason, Meta, prefetch};

use super::header::{Header, pads_from};
use super::state::{ActiveProgram, RunnerState};
use crate::held::HeldLevel;
use crate::program::ir::BodyId;
use crate::set::{Set, VECTOR};
use crate::vector::NO_BASE;
use crate::{Packet, PacketView, SessionInfo};

/// Flag of [`mmb_flow::Flow::decision`] for a session that a function has refused. The lower bits are the
/// reason.
const REFUSED: u32 = 1 << 8;
/// Sessions with expired timers that are processed at a time.
const EXPIRE_BATCH: usize = 32;

pub(super) struct NestedSessions {
    /// Index of the state of the function `flow`.
    pub space: u32,
    pub table: Table,
    lookups: Box<BatchLookup>,
    /// Start of each packet's scratchpad, in units of 8 bytes.
    pub bases: Box<[u32; VECTOR]>,
    /// Session and direction of packets outside.
    outside: Box<[(SessionId, Direction); VECTOR]>,
    found: Box<[FlowRef; VECTOR]>,
    /// Sessions that functions have ended, with their `uid`.
    pub ended: Vec<(SessionId, u32)>,
    /// The instance is deleted, and its sessions below this number have ended.
    pub ended_below: u32,
}

/// The context in which packets enter.
pub(super) struct EntryContext<'a> {
    pub state: &'a mut RunnerState,
    pub active: &'a ActiveProgram,
    pub body: BodyId,
    /// Direction of the packets outside.
    pub is_reverse: bool,
    pub now: u32,
}

impl NestedSessions {
    pub fn new(space: u32, sessions: u32, bytes: usize, seed: u64) -> io::Result<NestedSessions> {
        Ok(NestedSessions {
            space,
            table: Table::new(sessions, bytes, seed)?,
            lookups: Box::default(),
            bases: Box::new([NO_BASE; VECTOR]),
            outside: Box::new([(SessionId(0), Direction::Forward); VECTOR]),
            found: Box::new([FlowRef::NONE; VECTOR]),
            ended: Vec::with_capacity(2 * VECTOR),
            ended_below: 0,
        })
    }

    /// Moves packets to their sessions here, until [`NestedSessions::exit`]. Returns the packets that have
    /// one, and those whose session a function has refused.
    pub fn enter(
        &mut self,
        entry: &mut EntryContext<'_>,
        packets: &mut [Packet<'_>],
        set: Set,
    ) -> (Set, Set) {
        self.look_up(packets, set);
        let (mut inside, mut refused) = (Set::EMPTY, Set::EMPTY);
        for (n, i) in set.iter().enumerate() {
            let Some(packet) = packets.get_mut(i) else { break };
            let mut found = self.lookups.results().get(n).copied().unwrap_or(FlowRef::NONE);
            if !(found.is_some() && self.count_established(found, packet, entry.now)) {
                found = self.process_uncommon(entry, packet);
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
        self.prefetch_pads(entry, packets, inside);
        (inside, refused)
    }

    /// Moves packets that were held here to their sessions, until [`NestedSessions::exit`]. Returns those
    /// whose sessions exist. `level_of` returns the session of the packet at a position.
    pub fn reenter(
        &mut self,
        packets: &mut [Packet<'_>],
        set: Set,
        level_of: impl Fn(usize) -> Option<HeldLevel>,
    ) -> Set {
        let mut inside = Set::EMPTY;
        for i in set.iter() {
            let (Some(packet), Some(HeldLevel { flow, uid, .. })) = (packets.get_mut(i), level_of(i)) else {
                continue;
            };
            let id = flow.session();
            if !self.table.is_live(id) || self.table.uid(id) != uid {
                continue;
            }
            inside.insert(i);
            (self.found[i], self.outside[i]) = (flow, (packet.session, packet.direction));
            self.bases[i] = self.table.scratchpads_mut().1.of(id);
            (packet.session, packet.direction) = (id, flow.direction());
        }
        inside
    }

    /// Returns the session of a packet that is inside.
    pub fn level(&self, packet: &Packet<'_>) -> HeldLevel {
        let (flow, uid) = (packet.flow_ref(), self.table.uid(packet.session));
        HeldLevel { state: self.space as usize, flow, uid }
    }

    /// Moves packets back to their outer sessions.
    pub fn exit(&mut self, packets: &mut [Packet<'_>], inside: Set) {
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

    /// Prefetches scratchpads, then migrates those that are not of this body.
    fn prefetch_pads(&mut self, entry: &mut EntryContext<'_>, packets: &[Packet<'_>], inside: Set) {
        let bytes = entry.active.program.body(entry.body).map_or(0, |body| body.bytes);
        self.find_pads(inside);
        let (pads, _) = self.table.scratchpads_mut();
        for i in inside.iter() {
            let pad = pads_from(pads, self.bases[i]);
            for line in (0..bytes).step_by(64) {
                prefetch::read(pad.get(line..).unwrap_or(&[]));
            }
        }
        let mut stale = Set::EMPTY;
        for i in inside.iter() {
            let header = Header::read(pads_from(pads, self.bases[i]));
            if (header.program, header.body) != (entry.active.number, entry.body) {
                stale.insert(i);
            }
        }
        for i in stale.iter() {
            let (Some(packet), id) = (packets.get(i), self.found[i].session()) else { break };
            let info = self.info(id, entry.now);
            let view = PacketView { head: packet.head, meta: packet.meta, direction: packet.direction };
            self.table.reserve_scratch(id, entry.active.program.bytes_behind(entry.body));
            let pad = (self.space, self.table.scratch_mut(id));
            entry.state.migrate(entry.active, entry.body, pad, &info, Some(&view));
        }
        if !stale.is_empty() {
            // Larger scratchpads may be in another place.
            self.find_pads(inside);
        }
    }

    /// Computes the starts of the packets' scratchpads.
    fn find_pads(&mut self, inside: Set) {
        let (_, starts) = self.table.scratchpads_mut();
        inside.for_each(|i| self.bases[i] = starts.of(self.found[i].session()));
    }

    /// Counts a packet that does not change the state of its session. Returns false for other packets.
    #[inline(always)]
    fn count_established(&mut self, found: FlowRef, packet: &Packet<'_>, now: u32) -> bool {
        let half = self.table.flow_mut(found);
        let flags = packet.tcp_flags();
        if !half.flags.contains(FlowFlags::SETTLED)
            || flags & (TcpSegment::SYN | TcpSegment::FIN | TcpSegment::RST) != 0
        {
            return false;
        }
        half.count(1, packet.len);
        half.last_seen = now;
        if flags & TcpSegment::ACK != 0
            && let Some(ack) = packet.l4().get(8..).and_then(<[u8]>::first_chunk)
        {
            half.ack = latest_ack(half.ack, u32::from_be_bytes(*ack));
        }
        true
    }

    /// Processes a packet that opens a session or changes its state.
    #[inline(never)]
    fn process_uncommon(&mut self, entry: &mut EntryContext<'_>, packet: &Packet<'_>) -> FlowRef {
        let key = match parse_key(packet.head, packet.meta) {
            Ok(key) | Err(KeyError::FirstFragment(key)) => key,
            Err(_) => return FlowRef::NONE,
        };
        let settings = tracking_settings(entry.state.settings);
        let found = self.table.find(&key);
        if found.is_some() {
            if self.lives_until(entry.state, found.session(), entry.now, &settings).is_some()
                && self.follow(found, packet, entry.now, &settings)
            {
                return found;
            }
            self.end(entry.state, found.session(), entry.now);
        }
        self.open(entry, packet, &key, &settings).unwrap_or(FlowRef::NONE)
    }

    /// Tracks a packet of a session. Returns false if it opens another connection with the same key.
    fn follow(&mut self, found: FlowRef, packet: &Packet<'_>, now: u32, settings: &SessionSettings) -> bool {
        let (id, traffic) = (found.session(), TrackInput::of(packet.head, packet.meta));
        let halves = [Direction::Forward, Direction::Reverse].map(|direction| FlowRef::new(id, direction));
        let mut acks = halves.map(|half| self.table.flow(half).ack);
        let mut track = self.table.track(id);
        let seen = track.update(found.direction(), &traffic, &mut acks, settings);
        if seen.verdict == TrackVerdict::New {
            return false;
        }
        self.table.set_track(id, &track);
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
            half.flags.set(FlowFlags::SETTLED, settled);
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
        entry: &mut EntryContext<'_>,
        packet: &Packet<'_>,
        key: &Key,
        settings: &SessionSettings,
    ) -> Option<FlowRef> {
        let direction = if entry.is_reverse { Direction::Reverse } else { Direction::Forward };
        let (forward, reverse) =
            if entry.is_reverse { (key.reversed(), *key) } else { (*key, key.reversed()) };
        let mut acks = [0; 2];
        let (track, seen) =
            TrackState::open(&TrackInput::of(packet.head, packet.meta), &mut acks, settings).ok()?;
        let mut entered = self.table.insert(&forward, &reverse, entry.now);
        if entered == Err(InsertError::Full) {
            let victim = self.table.eviction_candidate()?;
            self.end(entry.state, victim, entry.now);
            entered = self.table.insert(&forward, &reverse, entry.now);
        }
        let id = entered.ok()?;
        self.table.set_track(id, &track);
        let common = self.table.session_mut(id);
        common.set_in_port(Direction::Forward, packet.in_port);
        common.set_in_port(Direction::Reverse, u16::MAX);
        for (direction, ack) in [Direction::Forward, Direction::Reverse].into_iter().zip(acks) {
            self.table.flow_mut(FlowRef::new(id, direction)).ack = ack;
        }
        self.table.arm_timer(id, entry.now.wrapping_add(seen.timeout));
        let found = FlowRef::new(id, direction);
        self.note(found, packet.len, entry.now, &seen);
        let info = self.info(id, entry.now);
        let view = PacketView { head: packet.head, meta: packet.meta, direction };
        self.table.reserve_scratch(id, entry.active.program.bytes_behind(entry.body));
        let pad = (self.space, self.table.scratch_mut(id));
        entry.state.open(entry.active, entry.body, pad, &info, Some(&view));
        Some(found)
    }

    pub fn info(&self, id: SessionId, now: u32) -> SessionInfo {
        SessionInfo::untranslated(&self.table, id, now)
    }

    /// Returns when a session expires without packets. None: it has expired.
    fn lives_until(
        &self,
        state: &RunnerState,
        id: SessionId,
        now: u32,
        settings: &SessionSettings,
    ) -> Option<u32> {
        let [there, back] = [Direction::Forward, Direction::Reverse]
            .map(|direction| self.table.flow(FlowRef::new(id, direction)));
        let wanted = state.timeout(self.table.scratch(id)).unwrap_or(0);
        let timeout = self.table.track(id).timeout(settings).max(wanted);
        let idle = now.wrapping_sub(there.last_seen).min(now.wrapping_sub(back.last_seen));
        (idle < timeout).then(|| now.wrapping_add(timeout - idle))
    }

    /// Ends a session.
    pub fn end(&mut self, state: &mut RunnerState, id: SessionId, now: u32) {
        let info = self.info(id, now);
        state.release((self.space, self.table.scratch_mut(id)), &info);
        self.table.remove(id);
    }

    /// Removes the sessions that functions have ended. If functions have released packets, these go on first.
    pub fn end_sessions(&mut self, state: &mut RunnerState, now: u32) {
        if state.held.is_draining() && self.ended.len() <= VECTOR {
            return;
        }
        while let Some((id, uid)) = self.ended.pop() {
            if self.table.is_live(id) && self.table.uid(id) == uid {
                self.end(state, id, now);
            }
        }
    }

    /// Makes all later packets of a session be dropped.
    pub fn refuse(&mut self, id: SessionId, reason: DropReason) {
        for direction in [Direction::Forward, Direction::Reverse] {
            self.table.flow_mut(FlowRef::new(id, direction)).set_decision(REFUSED | reason as u32);
        }
    }

    /// Returns why the packet at a position is dropped.
    pub fn refusal(&self, i: usize) -> DropReason {
        let found = self.found.get(i).copied().unwrap_or(FlowRef::NONE);
        let number = if found.is_some() { self.table.flow(found).decision() as u8 } else { 0 };
        DropReason::from_number(number).unwrap_or(DropReason::ChainError)
    }

    /// Ends expired sessions. Returns true if more may have expired.
    pub fn expire(&mut self, state: &mut RunnerState, now: u32, budget: &mut u32) -> bool {
        let settings = tracking_settings(state.settings);
        for _ in 0..EXPIRE_BATCH {
            let Some(id) = self.table.next_expired(now, budget) else { return false };
            match self.lives_until(state, id, now, &settings) {
                Some(deadline) => self.table.arm_timer(id, deadline),
                None => self.end(state, id, now),
            }
        }
        true
    }
}

/// Returns the settings of the tracker here. Dropping segments is left to the flow manager.
fn tracking_settings(settings: SessionSettings) -> SessionSettings {
    SessionSettings { tcp_pickup: true, tcp_window_check: false, ..settings }
}
