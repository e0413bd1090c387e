//! Packets through the chains of their sessions.
//!
//! Theory of operation. A vector of packets of any sessions and directions is given to the
//! [`mmb_nf::Runner`]. It accesses sessions through [`ChainSessions`]: all scratchpads at once, and the
//! translation of sessions whose chains translate. Then the verdict for each packet becomes the packet's
//! outcome.
//!
//! A packet arrives here some time after the lookup of its session. Meanwhile other packets may have ended
//! the session, and its number may belong to another one. If no session has ended since the last
//! [`Sessions::tick`], when no packet was under way, this cannot be. Otherwise each packet is checked.

use mmb_flow::{Direction, FlowFlags, FlowRef, KeyError, SessionId, Table, parse_key, translate};
use mmb_nf::{ChainVerdict, Emissions, HeldEvent, Packet, SessionAccess, SessionInfo, StageCounters};
use mmb_packet::{DropReason, Meta, flags};
use mmb_policy::VECTOR;

use super::{ChainState, OUT_HAIRPIN, session_info};
use crate::lifetime::EndReason;
use crate::sessions::Sessions;
use crate::translation::record::ScratchLayout;
use crate::{Environment, Next, NextSet};

/// Returns a packet with outcome [`Next::Chain`] for [`Sessions::process_chain`]. `len`: the length of its
/// frame.
pub fn chain_packet<'a>(head: &'a mut [u8], meta: &'a mut Meta, len: u32, in_port: u16) -> Packet<'a> {
    let flow = FlowRef(meta.session);
    Packet { head, tail: None, meta, len, in_port, direction: flow.direction(), session: flow.session() }
}

impl ChainState {
    /// Takes packets through their chains, and stores the verdicts.
    fn run(&mut self, table: &mut Table, now: u32, packets: &mut [Packet<'_>]) {
        let ChainState { runner, layout, verdicts, .. } = self;
        runner.run(now, packets, &mut ChainSessions { table, layout, now }, verdicts);
    }

    /// Takes those packets through their chains whose sessions still exist.
    #[cold]
    fn run_checked(&mut self, table: &mut Table, now: u32, packets: &mut [Packet<'_>]) {
        let mut all = [ChainVerdict::Drop(DropReason::ChainError); VECTOR];
        let mut first = 0;
        while first < packets.len() {
            let ended = (first..packets.len()).find(|&at| !is_packet_of_session(table, &packets[at]));
            let end = ended.unwrap_or(packets.len());
            self.run(table, now, &mut packets[first..end]);
            all[first..end].copy_from_slice(&self.verdicts[..end - first]);
            first = end + 1;
        }
        *self.verdicts = all;
    }
}

impl Sessions {
    /// Takes packets with outcome [`Next::Chain`], at most [`VECTOR`], through the chains of their sessions.
    /// Edits of rules have been made (`meta.edits_len` still tells whether there were any). The outcomes are
    /// [`Next::Send`], [`Next::Drop`], [`Next::Relookup`], [`Next::HandOff`] or [`Next::Hold`]. The frames
    /// that functions send are in [`Sessions::emissions`].
    ///
    /// A packet with [`Next::Hold`] is kept under the ticket in `meta.stage` until
    /// [`Sessions::next_held_event`] returns that ticket. These tickets and those of fragments are apart.
    pub fn process_chain(
        &mut self,
        now: u32,
        env: &impl Environment,
        packets: &mut [Packet<'_>],
        next: &mut [Next; VECTOR],
    ) -> NextSet {
        self.lifetime.now = now;
        let n = packets.len().min(VECTOR);
        let batch = packets.get_mut(..n).unwrap_or_default();
        match self.lifetime.removals == self.lifetime.removals_at_tick {
            true => self.chains.run(&mut self.table, now, batch),
            false => self.chains.run_checked(&mut self.table, now, batch),
        }
        self.apply_verdicts(env, packets, next)
    }

    /// Takes released packets on through the rest of their chains, at most [`VECTOR`], in the order of
    /// [`Sessions::next_held_event`]. `meta` is as [`Sessions::process_chain`] left it. Outcomes are those of
    /// that method.
    pub fn process_released(
        &mut self,
        now: u32,
        env: &impl Environment,
        packets: &mut [Packet<'_>],
        next: &mut [Next; VECTOR],
    ) -> NextSet {
        self.lifetime.now = now;
        let n = packets.len().min(VECTOR);
        let ChainState { runner, layout, verdicts, .. } = &mut self.chains;
        let sessions = &mut ChainSessions { table: &mut self.table, layout, now };
        runner.resume(now, packets.get_mut(..n).unwrap_or_default(), sessions, verdicts);
        self.apply_verdicts(env, packets, next)
    }

    /// Turns the verdicts of a vector into outcomes.
    #[inline(always)]
    fn apply_verdicts(
        &mut self,
        env: &impl Environment,
        packets: &mut [Packet<'_>],
        next: &mut [Next; VECTOR],
    ) -> NextSet {
        let mut set = NextSet::default();
        for (at, (packet, next)) in packets.iter_mut().zip(next.iter_mut()).enumerate() {
            *next = match self.chains.verdicts[at] {
                ChainVerdict::Pass if packet.meta.out_port != OUT_HAIRPIN => Next::Send,
                verdict => self.apply_verdict(env, packet, verdict),
            };
            set.insert(*next);
        }
        set
    }

    /// Returns the outcome of a packet that is dropped or hairpinned.
    #[inline(never)]
    fn apply_verdict(
        &mut self,
        env: &impl Environment,
        packet: &mut Packet<'_>,
        verdict: ChainVerdict,
    ) -> Next {
        let id = packet.session;
        let reason = match verdict {
            ChainVerdict::Pass => return self.hairpin_from_chain(env, packet),
            ChainVerdict::Hold => return Next::Hold,
            ChainVerdict::Drop(reason) => reason,
            ChainVerdict::Refuse(reason) => {
                if has_chain(&self.table, id) {
                    let epoch = self.cache.decisions.epoch();
                    self.chains.layout.refuse(&mut self.table, id, reason, epoch);
                }
                reason
            }
            ChainVerdict::End(reason) => {
                // An earlier packet of the vector may have ended the session.
                if has_chain(&self.table, id) {
                    self.end(id, EndReason::Function, env);
                }
                reason
            }
        };
        packet.meta.drop_reason = reason as u8;
        Next::Drop
    }

    /// Returns a packet from inside to another host inside.
    fn hairpin_from_chain(&mut self, env: &impl Environment, packet: &mut Packet<'_>) -> Next {
        if !has_chain(&self.table, packet.session) {
            packet.meta.drop_reason = DropReason::ChainError as u8;
            return Next::Drop;
        }
        let key = self.table.key(packet.flow_ref().opposite()).reversed();
        let owner = self.first_worker(env.nat(), &key);
        packet.meta.flags |= flags::LOOPED;
        packet.meta.edits_len = 0;
        match owner == self.config.worker {
            true => Next::Relookup,
            false => self.hand_off(packet.meta, owner),
        }
    }

    /// Returns the next packet that functions hold no longer. Released packets are given to
    /// [`Sessions::process_released`] before any other packet is processed.
    pub fn next_held_event(&mut self) -> Option<HeldEvent> {
        self.chains.runner.next_held_event()
    }

    /// Whether [`Sessions::next_held_event`] returns an event.
    #[inline(always)]
    pub fn has_held_events(&self) -> bool {
        self.chains.runner.has_held_events()
    }

    /// Returns the number above all tickets of packets that functions hold. It grows only in
    /// [`Sessions::adopt`].
    pub fn held_capacity(&self) -> usize {
        self.chains.runner.held().1
    }

    /// Returns the frames that functions have made, to be sent and cleared by the caller. To be called after
    /// anything that may open or end sessions. A frame for a port that does not exist is discarded.
    pub fn emissions(&mut self) -> &mut Emissions {
        self.chains.runner.emissions()
    }

    /// Sets the clock by which functions are measured.
    pub fn set_clock(&mut self, clock: fn() -> u64) {
        self.chains.runner.set_clock(clock);
    }

    /// Returns the counters of the chains' stages, by stage number.
    pub fn chain_counters(&self) -> &[StageCounters] {
        self.chains.runner.counters()
    }
}

/// Whether the session exists and goes through a chain.
fn has_chain(table: &Table, id: SessionId) -> bool {
    let flow = FlowRef::new(id, Direction::Forward);
    table.is_live(id) && table.flow(flow).flags.contains(FlowFlags::CHAINED)
}

/// Whether a packet still belongs to the session of its lookup. The packet may have been translated already.
fn is_packet_of_session(table: &Table, packet: &Packet<'_>) -> bool {
    if !has_chain(table, packet.session) {
        return false;
    }
    let flow = packet.flow_ref();
    match parse_key(packet.head, packet.meta) {
        // Edits may have changed the key.
        _ if packet.meta.edits_len != 0 => true,
        Ok(key) | Err(KeyError::FirstFragment(key)) => {
            key == table.key(flow) || key == table.key(flow.opposite()).reversed()
        }
        Err(_) => true,
    }
}

/// The sessions of packets in chains.
struct ChainSessions<'a> {
    table: &'a mut Table,
    layout: &'a ScratchLayout,
    now: u32,
}

impl SessionAccess for ChainSessions<'_> {
    #[inline(always)]
    fn pads(&mut self) -> (&mut [u8], usize) {
        self.table.scratchpads_mut()
    }

    #[inline(always)]
    fn translate(&mut self, flow: FlowRef, head: &mut [u8], meta: &Meta) -> Result<(), DropReason> {
        if !self.table.flow(flow).flags.contains(FlowFlags::CHAIN_TRANSLATES) {
            return Ok(());
        }
        match meta.edits_len {
            0 => self.layout.translate(self.table, flow, head, meta),
            _ => self.translate_edited(flow, head, meta),
        }
    }

    fn info(&self, id: SessionId) -> SessionInfo {
        session_info(self.table, id, self.now)
    }

    fn uid(&self, id: SessionId) -> Option<u32> {
        has_chain(self.table, id).then(|| self.table.uid(id))
    }
}

impl ChainSessions<'_> {
    /// Translates a packet to which rules may have given other addresses and ports: from its present key.
    #[cold]
    fn translate_edited(&self, flow_ref: FlowRef, head: &mut [u8], meta: &Meta) -> Result<(), DropReason> {
        if !self.table.flow(flow_ref).flags.intersects(FlowFlags::XLAT4 | FlowFlags::XLAT_SLOW) {
            return Ok(());
        }
        let (Ok(from) | Err(KeyError::FirstFragment(from))) = parse_key(head, meta) else {
            return self.layout.translate(self.table, flow_ref, head, meta);
        };
        let to = self.table.key(flow_ref.opposite()).reversed();
        let mangle = self.layout.mangle(self.table, flow_ref.session());
        translate(head, meta, &from, &to, mangle.as_ref(), flow_ref.direction())
    }
}
