//! The short way: packets of sessions about which everything is known.
//!
//! Theory of operation. A vector is looked up as a whole, in passes that wait for memory together: keys and buckets,
//! halves of sessions, decisions. The first of them may have been made ahead, by whoever parsed the packets
//! ([`Sessions::begin_vector`]). A packet then needs its half, 64 bytes, and its decision, 16 bytes: if the half is
//! its packet's, settled, the packet opens, closes and resets nothing, and the decision is up to date (which the half may
//! know itself: [`crate::owed`]), the packet is counted, its half
//! remembers when it came and what it acknowledged, and it is translated in place. Everything else is told apart here
//! and done elsewhere.

use mmb_flow::{Direction, FlowRef, Table, flow_flags, later_ack, translate, translate_ip4};
use mmb_packet::{DropReason, Meta, ParsedHeaders, StageWord, flags};
use mmb_policy::VECTOR;

use crate::decisions::says;
use crate::engine::Sessions;
use crate::gist::{Gist, steady};
use crate::numbers::{Scratch, mangle};
use crate::verdicts::Positions;
use crate::{Environment, Next, NextSet, Packets};

/// How many packets ahead of the one that is taken in, or translated, the caches are told of.
pub(crate) const AHEAD: usize = 4;

impl Sessions {
    /// Finds the session of each packet of a vector and does with it what is known already: `next[at]` says what became
    /// of the packet at `at`. [`Next::PerPacketRules`] and [`Next::SlowPath`] are left to be done; nothing has been changed in
    /// those packets. The edits of rules are appended to `edits`. `now` is in milliseconds and wraps.
    pub fn lookup(
        &mut self,
        now: u32,
        host: &impl Environment,
        packets: &mut impl Packets,
        edits: &mut Vec<u32>,
        next: &mut [Next; VECTOR],
    ) -> NextSet {
        let n = packets.len().min(VECTOR);
        if n == 0 || !self.lookups.take_prefetched(n, [packets.packet_addr(0), packets.packet_addr(n - 1)]) {
            self.version = None;
            self.fill(n, packets);
        }
        self.lookups.find_candidates(&self.table);
        self.lookups.wait_for_flows(&self.table);
        if std::mem::take(&mut self.asked) {
            self.prefetch_decisions();
        }
        let mut rare = Positions::default();
        self.next_hop_misses.clear();
        let (passed, forwarded) = match self.lookups.has_ip6_keys() {
            false => self.verdicts::<false>(now, host, packets, &mut next[..n], &mut rare),
            true => self.verdicts::<true>(now, host, packets, &mut next[..n], &mut rare),
        };
        self.lookups.update_cache();
        let mut tally = NextSet::default();
        for (all, next) in [(passed, Next::Pass), (forwarded, Next::Forwarded)] {
            if all == n {
                tally.add(next);
                return tally;
            }
        }
        for &at in rare.get() {
            if let Some(next) = next.get_mut(usize::from(at)) {
                *next = self.rarely(now, host, packets, usize::from(at), edits);
            }
        }
        next[..n].iter().for_each(|&next| tally.add(next));
        if tally.has(Next::SlowPath) {
            self.prefetch_replies(&next[..n]);
        }
        if tally.has(Next::Chain) {
            self.prefetch_scratchpads(&next[..n]);
        }
        tally
    }

    /// Takes in the packets that come, where nobody has done so ahead.
    #[inline(always)]
    fn fill(&mut self, n: usize, packets: &impl Packets) {
        let gists = &mut self.gists;
        self.lookups.fill(&self.table, n, |at| {
            packets.prefetch(at + AHEAD);
            let (head, meta) = (packets.head(at), packets.meta(at));
            if let Some(gist) = gists.get_mut(at) {
                *gist = Gist::of(head, meta, packets.in_port(at), packets.bytes(at));
            }
            (head, meta)
        });
    }

    /// Takes packets in ahead, while somebody who parses them has them at hand: this first, then [`Sessions::take_in`]
    /// for each, then [`Sessions::are_in`]. All are of one version of IP, as [`mmb_packet::Kind::l3`] has it.
    #[inline(always)]
    pub fn begin_vector(&mut self, version: u8) {
        self.version = Some(version);
        self.lookups.begin();
    }

    /// Takes in the packet at a position of the vector; `bytes`: the length of its frame.
    #[inline(always)]
    pub fn take_in(&mut self, at: usize, head: &[u8], meta: &Meta, in_port: u16, bytes: u32) {
        if let Some(gist) = self.gists.get_mut(at) {
            *gist = Gist::of(head, meta, in_port, bytes);
        }
        self.lookups.push(&self.table, at, head, meta);
    }

    /// The same of an IPv4 packet of which the parse has this in hand; `brought`: the hash that it brings along from
    /// its network card.
    #[inline(always)]
    pub fn take_in4(
        &mut self,
        at: usize,
        common: &ParsedHeaders<8>,
        brought: Option<u32>,
        in_port: u16,
        bytes: u32,
    ) {
        self.gists[at % VECTOR] = Gist::of_common4(common, in_port, bytes);
        self.lookups.push_ip4(&self.table, at, common, brought);
    }

    /// The same of an IPv6 packet.
    #[inline(always)]
    pub fn take_in6(
        &mut self,
        at: usize,
        common: &ParsedHeaders<32>,
        brought: Option<u32>,
        in_port: u16,
        bytes: u32,
    ) {
        self.gists[at % VECTOR] = Gist::of_tcp(common.tcp_flags, common.tcp_ack, in_port, bytes);
        self.lookups.push_ip6(&self.table, at, common, brought);
    }

    /// All packets of a vector are in: so many, of which [`Packets::packet_addr`] says this of the first and the last one. Whoever looks
    /// them up next, as they are and in order, need not look at them again. Whoever looks up others does no harm, unless it is
    /// as many that begin and end with the same, and are others in between.
    #[inline(always)]
    pub fn are_in(&mut self, n: usize, ends: [usize; 2]) {
        self.lookups.set_prefetched(n, ends);
    }

    /// The version of IP of all packets of the vector that was looked up last, if it was taken in ahead.
    #[inline(always)]
    pub fn version(&self) -> Option<u8> {
        self.version
    }

    /// Asks for the memory that sessions will want whose packets are all new: where their replies will be looked up, and
    /// the mapping of where they come from.
    fn prefetch_replies(&self, next: &[Next]) {
        let ahead = self.last_pool.and_then(|pool| self.nat.prefetcher(pool));
        let all = next.iter().zip(self.lookups.results()).enumerate();
        let new = all.filter(|(_, (next, found))| **next == Next::SlowPath && **found == FlowRef::NONE);
        self.table.prefetch_replies(&self.lookups, new.map(|(at, _)| at), |key| {
            ahead.as_ref().and_then(|nat| nat.predict_source(key))
        });
    }

    /// Asks for the memory that functions of chains will want.
    fn prefetch_scratchpads(&self, next: &[Next]) {
        for (&found, next) in self.lookups.results().iter().zip(next) {
            if *next == Next::Chain {
                self.table.prefetch_scratch(found.session());
            }
        }
    }

    fn prefetch_decisions(&mut self) {
        let Sessions { table, lookups, decisions, notes, .. } = self;
        let halves = table.flows_mut();
        for found in lookups.results() {
            if let Some(half) = halves.get(found.0 as usize)
                && !(half.is_ip4() && notes.are_current(half.opaque4()[0]))
            {
                decisions.prefetch(half.decision());
            }
        }
    }

    /// A packet whose half is not settled, or one that has been counted and whose rules do more than accept, or whose
    /// translation is not simple.
    #[inline(never)]
    fn rarely(
        &mut self,
        now: u32,
        host: &impl Environment,
        packets: &mut impl Packets,
        at: usize,
        edits: &mut Vec<u32>,
    ) -> Next {
        let (Some(&found), Some(&Gist { in_port, bytes, .. })) =
            (self.lookups.results().get(at), self.gists.get(at))
        else {
            return Next::SlowPath;
        };
        let (head, meta) = packets.head_and_meta(at);
        meta.session = found.0;
        let half = self.table.flow(found);
        let chained = half.flags & flow_flags::CHAINED != 0;
        if half.flags & flow_flags::SETTLED == 0 || meta.flags & flags::LOOPED != 0 {
            if chained && let Some(reason) = self.refuses(found, in_port, bytes) {
                meta.drop_reason = reason as u8;
                return Next::Drop;
            }
            return self.unsettled(now, found, meta);
        }
        let number = half.decision();
        let (says, ack) = (self.decisions.says(number), steady(head, meta).flatten());
        let dropped = match says & (says::DROP | says::CHANCE) {
            0 => Ok(()),
            _ if self.drops(number, says) => Err(DropReason::Rule),
            _ => Ok(()),
        };
        if let Err(reason) = dropped.and_then(|()| self.forward(now, found, head, meta, bytes, ack)) {
            meta.drop_reason = reason as u8;
            return Next::Drop;
        }
        if says & says::EDIT == 0 && !chained {
            return Next::Pass;
        }
        meta.out_port = host.out_port(in_port);
        let next = self.edit(number, meta, edits);
        if chained { Next::Chain } else { next }
    }

    /// Why a packet is dropped whose session a function has refused, if that is so and all rules are known; it is counted
    /// then.
    fn refuses(&mut self, found: FlowRef, in_port: u16, bytes: u32) -> Option<DropReason> {
        let reason = self.refused(found.session())?;
        let (number, stamp) = (self.table.flow(found).decision(), self.decisions.stamp(in_port));
        self.decisions.count(number, stamp, bytes).map(|_| reason)
    }

    /// Counts and translates a packet of a settled half.
    #[inline(always)]
    pub(crate) fn forward(
        &mut self,
        now: u32,
        found: FlowRef,
        head: &mut [u8],
        meta: &Meta,
        bytes: u32,
        ack: Option<u32>,
    ) -> Result<(), DropReason> {
        let Some(half) = self.table.flows_mut().get_mut(found.0 as usize) else { return Ok(()) };
        half.count(1, bytes);
        half.last_seen = now;
        if half.flags & flow_flags::XLAT_SLOW != 0 {
            return self.forward_slowly(found, head, meta, ack);
        }
        if let Some(ack) = ack {
            half.ack = later_ack(half.ack, ack);
        }
        if half.flags & (flow_flags::XLAT4 | flow_flags::CHAIN_TRANSLATES) == flow_flags::XLAT4 {
            translate_ip4(&half.xlat4(), head, meta);
        }
        Ok(())
    }

    /// The same where more than IPv4 addresses and ports is replaced, and so what `ack` counts.
    fn forward_slowly(
        &mut self,
        found: FlowRef,
        head: &mut [u8],
        meta: &Meta,
        ack: Option<u32>,
    ) -> Result<(), DropReason> {
        if let Some(ack) = ack {
            let ack = match (found.direction(), self.mangle(found.session())) {
                (Direction::Reverse, Some(mangle)) => ack.wrapping_sub(mangle.sequence),
                _ => ack,
            };
            let half = self.table.flow_mut(found);
            half.ack = later_ack(half.ack, ack);
        }
        match self.table.flow(found).flags & flow_flags::CHAIN_TRANSLATES {
            0 => self.translate(found, head, meta),
            _ => Ok(()),
        }
    }

    /// Whether a decision that may drop, by chance or always, drops a packet.
    pub(crate) fn drops(&mut self, number: u32, says: u64) -> bool {
        if says & says::CHANCE == 0 {
            return true;
        }
        let Sessions { decisions, random, .. } = self;
        decisions.full(number).is_some_and(|full| full.drops(&mut || random.next()))
    }

    /// Hands the edits of a decision to the packet.
    pub(crate) fn edit(&self, number: u32, meta: &mut Meta, edits: &mut Vec<u32>) -> Next {
        let first = edits.len();
        if let Some(full) = self.decisions.full(number) {
            edits.extend_from_slice(full.edits());
        }
        edit_from(first, meta, edits)
    }

    /// A half whose packets have to be looked at, or that is none of this worker's.
    fn unsettled(&mut self, now: u32, found: FlowRef, meta: &mut Meta) -> Next {
        let came_back = meta.flags & (flags::REFUSED | flags::ASTRAY) != 0;
        let worker = self.table.redirect_worker(found).filter(|_| !came_back);
        let Some(worker) = worker else { return Next::SlowPath };
        self.table.flow_mut(found).last_seen = now;
        self.hand_off(meta, worker)
    }

    /// Gives what was counted with a half alone to its rules: before packets are counted otherwise, or it gets another
    /// decision, or ends.
    #[inline]
    pub(crate) fn settle(&mut self, found: FlowRef, host: &impl Environment) {
        let Sessions { table, owed, decisions, .. } = self;
        owed.settle(table.flow_mut(found), decisions, host);
    }

    /// Gives a packet to another worker.
    pub(crate) fn hand_off(&mut self, meta: &mut Meta, worker: u16) -> Next {
        self.counters.redirected += 1;
        meta.flags |= flags::HANDED;
        meta.stage = StageWord::from_worker(worker);
        Next::HandOff
    }

    /// Translates a packet of a session, whatever the way.
    ///
    /// # Errors
    /// As [`mmb_flow::translate`].
    pub(crate) fn translate(&self, found: FlowRef, head: &mut [u8], meta: &Meta) -> Result<(), DropReason> {
        translate_by(&self.table, &self.scratch, found, head, meta)
    }
}

/// The same, of parts.
#[inline(always)]
pub(crate) fn translate_by(
    table: &Table,
    scratch: &Scratch,
    found: FlowRef,
    head: &mut [u8],
    meta: &Meta,
) -> Result<(), DropReason> {
    let half = table.flow(found);
    if half.flags & flow_flags::XLAT4 != 0 {
        translate_ip4(&half.xlat4(), head, meta);
        return Ok(());
    }
    if half.flags & flow_flags::XLAT_SLOW == 0 {
        return Ok(());
    }
    let to = table.key(found.opposite()).reversed();
    let mangle = mangle(table, scratch, found.session());
    translate(head, meta, &half.key(), &to, mangle.as_ref(), found.direction())
}

/// Says where a packet's edits begin; they end where the list does.
pub(crate) fn edit_from(first: usize, meta: &mut Meta, edits: &mut Vec<u32>) -> Next {
    edits.truncate(first + mmb_policy::MAX_EDITS);
    meta.set_edits(first as u32, (edits.len() - first) as u16);
    if meta.edits_len == 0 { Next::Pass } else { Next::Edit }
}
