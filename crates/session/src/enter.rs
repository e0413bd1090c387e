//! A session is entered into the table, and gets its rules, its decision, its translation and its chain.

use mmb_flow::{
    Direction, Flow, FlowRef, InsertError, Key, MappingId, SessionId, TrackOutcome, TrackState, Xlat4,
    flow_flags,
};
use mmb_nf::ChainId;
use mmb_packet::PacketBuf;

use crate::Environment;
use crate::attached::Attached;
use crate::engine::{End, Sessions, session_flags};
use crate::lists::EMPTY;
use crate::matched::Matched;
use crate::numbers::Numbers;
use crate::open::as_nat_sees;
use crate::slow::Call;

/// Says how packets of both directions get from one key to another: simply, if no more than these `moves`.
fn translate_halves([there, back]: &mut [Flow; 2], key: &Key, reverse: &Key, moves: bool) {
    match Xlat4::pair(key, reverse).filter(|_| moves) {
        Some([out, home]) => {
            there.set_xlat4(&out);
            back.set_xlat4(&home);
        }
        None => {
            there.flags |= flow_flags::XLAT_SLOW;
            back.flags |= flow_flags::XLAT_SLOW;
        }
    }
}

/// A session to be.
#[derive(Default)]
pub(crate) struct Fresh {
    /// The key of its replies, if addresses or ports change.
    pub moved: Option<Key>,
    pub mapping: Option<MappingId>,
    pub track: TrackState,
    pub seen: TrackOutcome,
    pub acks: [u32; 2],
    pub flags: u8,
    pub mangle: Option<Numbers>,
    /// The chain that it goes through.
    pub chain: Option<ChainId>,
    /// It is translated in the chain.
    pub deferred: bool,
}

/// What a session gets its rules by.
pub(crate) enum By<'a> {
    /// What follows from those that opened it.
    Matched(&'a mut Matched),
    /// Those that it has.
    List(&'a [Attached]),
}

impl Sessions {
    /// Enters a session; the oldest half-open one goes if there is no room. The packet has been looked up.
    pub(crate) fn enter<H: Environment, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        key: &Key,
        fresh: &Fresh,
        by: By<'_>,
    ) -> Result<FlowRef, InsertError> {
        let mut entered = self.enter_table(call, fresh);
        if entered == Err(InsertError::Full)
            && let Some(victim) = self.victim(call)
        {
            self.end(victim, End::Evicted, call.host);
            entered = self.enter_table(call, fresh);
        }
        let id = entered.inspect_err(|_| {
            if let Some(mapping) = fresh.mapping {
                let inbound = fresh.flags & session_flags::INBOUND != 0;
                let reverse = fresh.moved.filter(|_| !inbound);
                let held = reverse.map_or(*key, |reverse| as_nat_sees(key, &reverse.reversed()));
                self.nat.release(mapping, &held, call.now);
            }
        })?;
        self.counters.created += 1;
        self.furnish(call, id, key, fresh, by);
        let found = FlowRef::new(id, Direction::Forward);
        if let Some(numbers) = fresh.mangle {
            self.set_mangle(id, numbers);
        }
        if let Some(chain) = fresh.chain {
            // Functions are told of a session that has had no packet yet.
            self.join_chain(call, found, chain);
            self.table.flow_mut(found).count(1, call.bytes());
        }
        Ok(found)
    }

    /// The session that is to make room. Who has packets of some may know more of them than the table.
    fn victim<H: Environment, P: PacketBuf>(&mut self, call: &Call<'_, H, P>) -> Option<SessionId> {
        loop {
            let victim = self.table.eviction_candidate()?;
            self.settle_loans(call.now, victim, call.host);
            if self.table.is_embryonic(victim) {
                return Some(victim);
            }
        }
    }

    #[inline]
    fn enter_table<H: Environment, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        fresh: &Fresh,
    ) -> Result<SessionId, InsertError> {
        let TrackOutcome { timeout, embryonic, .. } = fresh.seen;
        let deadline = call.now.wrapping_add(timeout);
        self.table.open(&call.sought, fresh.moved.as_ref(), call.now, deadline, embryonic)
    }

    /// Fills in what the table does not know of a new session: all at once, since its memory may be far.
    fn furnish<H: Environment, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        id: SessionId,
        key: &Key,
        fresh: &Fresh,
        by: By<'_>,
    ) {
        let mut flags = fresh.flags;
        if call.is_looped() {
            // What comes back goes back to the inside, where the packet came from.
            flags |= session_flags::LOOP_REVERSE;
        }
        let stamp = self.decisions.stamp(call.in_port);
        let (rules, decision) = match by {
            By::Matched(matched) => (self.rules_of(matched), self.decision_of(call, matched, stamp)),
            By::List(list) => (self.rules.take(list), self.decide(call, list, stamp)),
        };
        let (halves, common) = self.table.parts_mut(id);
        (common.rule_list, common.track, common.flags) = (rules, fresh.track, flags);
        common.mapping = fresh.mapping.map_or(u32::MAX, |mapping| mapping.0);
        common.in_port = [call.in_port, u16::MAX];
        let deferred = if fresh.deferred { flow_flags::CHAIN_TRANSLATES } else { 0 };
        for (way, half) in halves.iter_mut().enumerate() {
            let settled = fresh.seen.settled[way] && flags & session_flags::LOOPS[way] == 0;
            half.ack = fresh.acks[way];
            half.flags |= deferred | if settled { flow_flags::SETTLED } else { 0 };
        }
        if fresh.mangle.is_some() || fresh.moved.is_some() {
            let same = key.reversed();
            let reverse = fresh.moved.unwrap_or(same);
            if fresh.mangle.is_some() || reverse != same {
                translate_halves(halves, key, &reverse, fresh.mangle.is_none());
            }
        }
        let [there, _] = halves;
        there.set_decision(decision);
        there.flags |= flow_flags::SEEN;
        if fresh.chain.is_none() {
            there.count(1, call.bytes());
        }
    }

    /// The number of the list of rules of a session that these open.
    fn rules_of(&mut self, matched: &mut Matched) -> u32 {
        if let Some(number) = matched.list.and_then(|again| self.rules.take_again(again)) {
            return number;
        }
        let number = self.rules.take(&matched.rules);
        matched.list = (number != EMPTY).then(|| self.rules.again(number));
        number
    }

    /// The decision of the first packet's direction.
    fn decision_of<H: Environment, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        matched: &mut Matched,
        stamp: u32,
    ) -> u32 {
        if let Some((under, again)) = matched.decision
            && under == stamp
            && !call.is_looped()
            && let Some(number) = self.decisions.take_again(again)
        {
            self.counters.decided += 1;
            return number;
        }
        let number = self.decide_by(call, &matched.deciding, stamp);
        let lasts = number != EMPTY && !call.is_looped();
        matched.decision = lasts.then(|| (stamp, self.decisions.again(number)));
        number
    }
}
