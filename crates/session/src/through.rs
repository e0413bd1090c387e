//! Packets through the chains of their sessions.
//!
//! Theory of operation. A vector of packets, of whatever sessions and directions, is handed to the [`Runner`], which sees the
//! sessions through a [`SessionAccess`]: all scratchpads at once, and the translation of those whose chains translate. Then each
//! packet's fate is turned into what is to be done with it.
//!
//! A packet comes here some time after its session was found. Other packets may have ended the session meanwhile, and its
//! number may be another one's by now. As long as none has ended since no packet was on its way ([`Sessions::tick`]), that
//! cannot be; else each packet is asked whether it is still the session's.

use mmb_flow::{Direction, FlowRef, KeyError, SessionId, Table, flow_flags, parse_key, translate};
use mmb_nf::{ChainVerdict, Emissions, Packet, SessionAccess, SessionInfo, StageCounters};
use mmb_packet::{DropReason, Meta, flags};
use mmb_policy::VECTOR;

use crate::chains::{OUT_AGAIN, info};
use crate::engine::{End, Sessions};
use crate::hot::translate_by;
use crate::numbers::{Scratch, mangle};
use crate::{Environment, Next, NextSet};

/// A packet that came out as [`Next::Chain`], for [`Sessions::process_chain`]: `len` is the length of its frame.
pub fn chain_packet<'a>(head: &'a mut [u8], meta: &'a mut Meta, len: u32, in_port: u16) -> Packet<'a> {
    let found = FlowRef(meta.session);
    Packet { head, meta, len, in_port, direction: found.direction(), session: found.session() }
}

impl Sessions {
    /// Takes packets that came out as [`Next::Chain`], and have been edited as rules say (`meta.edits_len` still says whether),
    /// through the chains of their sessions; at most [`VECTOR`] of them. They come out as [`Next::Send`], [`Next::Drop`],
    /// [`Next::Relookup`] or [`Next::HandOff`]. What functions send is in [`Sessions::emissions`].
    pub fn process_chain(
        &mut self,
        now: u32,
        host: &impl Environment,
        packets: &mut [Packet<'_>],
        next: &mut [Next; VECTOR],
    ) -> NextSet {
        self.clock = now;
        let n = packets.len().min(VECTOR);
        match self.removals == self.calm {
            true => self.run(now, packets.get_mut(..n).unwrap_or_default()),
            false => self.run_some(now, packets.get_mut(..n).unwrap_or_default()),
        }
        let mut tally = NextSet::default();
        for (at, (packet, next)) in packets.iter_mut().zip(next.iter_mut()).enumerate() {
            *next = match self.fates[at] {
                ChainVerdict::Pass if packet.meta.out_port != OUT_AGAIN => Next::Send,
                fate => self.fate(host, packet, fate),
            };
            tally.add(*next);
        }
        tally
    }

    fn run(&mut self, now: u32, packets: &mut [Packet<'_>]) {
        let Sessions { runner, table, scratch, fates, .. } = self;
        runner.run(now, packets, &mut Pads { table, scratch, now }, fates);
    }

    /// The same, of those packets whose sessions are still there.
    #[cold]
    fn run_some(&mut self, now: u32, packets: &mut [Packet<'_>]) {
        let mut all = [ChainVerdict::Drop(DropReason::ChainError); VECTOR];
        let mut first = 0;
        while first < packets.len() {
            let gone = (first..packets.len()).find(|&at| !self.is_still_of(&packets[at]));
            let end = gone.unwrap_or(packets.len());
            self.run(now, &mut packets[first..end]);
            all[first..end].copy_from_slice(&self.fates[..end - first]);
            first = end + 1;
        }
        *self.fates = all;
    }

    /// What becomes of a packet that does not just go on.
    #[inline(never)]
    fn fate(&mut self, host: &impl Environment, packet: &mut Packet<'_>, fate: ChainVerdict) -> Next {
        let reason = match fate {
            ChainVerdict::Pass => return self.again(host, packet),
            ChainVerdict::Drop(reason) => reason,
            ChainVerdict::Refuse(reason) => {
                if self.goes_through_chain(packet.session) {
                    self.refuse(packet.session, reason);
                }
                reason
            }
            ChainVerdict::End(reason) => {
                // Another packet before it may have done so.
                if self.goes_through_chain(packet.session) {
                    self.end(packet.session, End::Function, host);
                }
                reason
            }
        };
        packet.meta.drop_reason = reason as u8;
        Next::Drop
    }

    /// Turns a packet back to the inside; as [`Sessions::turn_back`] does with those of no chain.
    fn again(&mut self, host: &impl Environment, packet: &mut Packet<'_>) -> Next {
        if !self.goes_through_chain(packet.session) {
            packet.meta.drop_reason = DropReason::ChainError as u8;
            return Next::Drop;
        }
        let key = self.table.key(packet.found().opposite()).reversed();
        let owner = self.first_worker(host.nat(), &key);
        packet.meta.flags |= flags::LOOPED;
        packet.meta.edits_len = 0;
        match owner == self.config.worker {
            true => Next::Relookup,
            false => self.hand_off(packet.meta, owner),
        }
    }

    fn goes_through_chain(&self, id: SessionId) -> bool {
        let found = FlowRef::new(id, Direction::Forward);
        self.table.is_live(id) && self.table.flow(found).flags & flow_flags::CHAINED != 0
    }

    /// Whether the session that a packet was found to be of is there, and still the one: translated already, or not yet.
    fn is_still_of(&self, packet: &Packet<'_>) -> bool {
        if !self.goes_through_chain(packet.session) {
            return false;
        }
        let found = packet.found();
        match parse_key(packet.head, packet.meta) {
            // Edits may have changed the key.
            _ if packet.meta.edits_len != 0 => true,
            Ok(key) | Err(KeyError::FirstFragment(key)) => {
                key == self.table.key(found) || key == self.table.key(found.opposite()).reversed()
            }
            Err(_) => true,
        }
    }

    /// The frames that functions have made since they were last cleared, to be sent by ports, and cleared. To be looked at
    /// after everything that may end or open sessions. A port that there is not: the frame has nowhere to go.
    pub fn emissions(&mut self) -> &mut Emissions {
        self.runner.emissions()
    }

    /// What functions are measured with.
    pub fn set_clock(&mut self, ticker: fn() -> u64) {
        self.runner.set_clock(ticker);
    }

    /// What the stages of the chains in force have counted, by their numbers.
    pub fn chain_counters(&self) -> &[StageCounters] {
        self.runner.counters()
    }
}

/// The sessions of packets that are in their chains.
struct Pads<'a> {
    table: &'a mut Table,
    scratch: &'a Scratch,
    now: u32,
}

impl SessionAccess for Pads<'_> {
    #[inline(always)]
    fn pads(&mut self) -> (&mut [u8], usize) {
        self.table.scratchpads_mut()
    }

    #[inline(always)]
    fn translate(&mut self, found: FlowRef, head: &mut [u8], meta: &Meta) -> Result<(), DropReason> {
        if self.table.flow(found).flags & flow_flags::CHAIN_TRANSLATES == 0 {
            return Ok(());
        }
        match meta.edits_len {
            0 => translate_by(self.table, self.scratch, found, head, meta),
            _ => self.translate_edited(found, head, meta),
        }
    }

    fn info(&self, id: SessionId) -> SessionInfo {
        info(self.table, id, self.now)
    }
}

impl Pads<'_> {
    /// The same of a packet that rules may have given other addresses and ports: checksums follow from what it is now.
    #[cold]
    fn translate_edited(&self, found: FlowRef, head: &mut [u8], meta: &Meta) -> Result<(), DropReason> {
        let half = self.table.flow(found);
        if half.flags & (flow_flags::XLAT4 | flow_flags::XLAT_SLOW) == 0 {
            return Ok(());
        }
        let (Ok(from) | Err(KeyError::FirstFragment(from))) = parse_key(head, meta) else {
            return translate_by(self.table, self.scratch, found, head, meta);
        };
        let to = self.table.key(found.opposite()).reversed();
        let mangle = mangle(self.table, self.scratch, found.session());
        translate(head, meta, &from, &to, mangle.as_ref(), found.direction())
    }
}
