//! The offloaded flows of a worker, and the collection of their counters.

use std::collections::HashMap;
use std::fmt;

use mmb_flow::{Direction, FlowRef, SessionId, TcpSegment, TrackInput, flow_flags, later_ack, parse_key};
use mmb_packet::Meta;

use super::{OffloadCandidate, OffloadCounters, OffloadDriver, OffloadSource, OffloadState};
use crate::Environment;
use crate::decisions::says;
use crate::engine::{Sessions, session_flags};

/// A direction that is lent.
#[derive(Clone, Copy)]
struct OffloadedFlow {
    /// What the borrower calls it.
    slot: u32,
    /// Taken over so far.
    packets: u64,
    bytes: u64,
    /// The rules are those under which it was lent, so that they get what is counted.
    current: bool,
}

/// All directions that are lent.
#[derive(Default)]
pub(crate) struct OffloadedFlows {
    borrower: Option<Box<dyn OffloadDriver>>,
    by_session: HashMap<SessionId, [Option<OffloadedFlow>; 2]>,
    /// Slots that were called back.
    back: Vec<u32>,
}

impl fmt::Debug for OffloadedFlows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OffloadedFlows").field("sessions", &self.by_session.len()).finish_non_exhaustive()
    }
}

const WAYS: [Direction; 2] = [Direction::Forward, Direction::Reverse];

impl OffloadSource for Sessions {
    /// Says who borrows; all that another had is forgotten.
    fn set_offload_driver(&mut self, borrower: Box<dyn OffloadDriver>) {
        self.loans = OffloadedFlows { borrower: Some(borrower), ..OffloadedFlows::default() };
    }

    /// Sessions that have ended: while this stays the same, every packet's session is the one that it was.
    fn removals(&self) -> u32 {
        self.removals
    }

    /// The direction of a session that a packet belongs to. `head` and `meta` are as the packet came.
    fn offload_candidate(&self, head: &[u8], meta: &Meta) -> Option<OffloadCandidate> {
        let (found, _) = self.table.find_with_hash(&parse_key(head, meta).ok()?);
        found.is_some().then(|| OffloadCandidate { flow: found, uid: self.table.uid(found.session()) })
    }

    /// Whether a packet of this direction leaves as this one, `head` and `meta` as it went, by what the session is for: rules change
    /// nothing in it.
    fn is_translated_to(
        &self,
        OffloadCandidate { flow: found, .. }: OffloadCandidate,
        head: &[u8],
        meta: &Meta,
    ) -> bool {
        let edits = self.decisions.says(self.table.flow(found).decision()) & says::EDIT != 0;
        !edits && parse_key(head, meta).is_ok_and(|key| key == self.table.key(found.opposite()).reversed())
    }

    /// Whether a direction of a session, whose packets come in by a port, can be lent: under the rules in force, all that is done
    /// to its packets is done alike.
    fn offload_state(
        &self,
        OffloadCandidate { flow: found, uid }: OffloadCandidate,
        in_port: u16,
    ) -> OffloadState {
        const OTHER: u8 = flow_flags::REDIRECT | flow_flags::CHAINED | flow_flags::CHAIN_TRANSLATES;
        const MORE: u8 = session_flags::MANGLE
            | session_flags::LOOP_FORWARD
            | session_flags::LOOP_REVERSE
            | session_flags::REFUSED;
        let id = found.session();
        if self.table.uid(id) != uid {
            return OffloadState::Ended;
        }
        let (half, other) = (self.table.flow(found), self.table.flow(found.opposite()));
        let number = half.decision();
        let plain = half.flags & OTHER == 0
            && self.table.session(id).flags & MORE == 0
            && self.decisions.is_current(number, self.decisions.stamp(in_port))
            && self.decisions.says(number) & (says::DROP | says::CHANCE) == 0;
        if !plain || self.per_packet || self.settings.tcp_window_check {
            return OffloadState::Ineligible;
        }
        if half.flags & flow_flags::SETTLED != 0 {
            return OffloadState::Eligible { reply_settled: other.flags & flow_flags::SETTLED != 0 };
        }
        match self.table.session(id).track.awaited_ack(&self.acks(id)) {
            Some(ack) => OffloadState::AwaitingAck {
                expected_ack: (found.direction() == Direction::Forward).then_some(ack),
            },
            None => OffloadState::Unsettled,
        }
    }

    /// Lends a direction that can be, under this name. If it is lent under another, that is over.
    fn offload(&mut self, now: u32, it: OffloadCandidate, slot: u32, host: &impl Environment) {
        let (id, way) = (it.flow.session(), it.flow.direction() as usize);
        let mut loans = self.loans.by_session.get(&id).copied().unwrap_or_default();
        if let Some(old) = loans[way] {
            self.take_over_all(now, id, &mut loans, host);
            self.loans.back.push(old.slot);
        }
        loans[way] = Some(OffloadedFlow { slot, packets: 0, bytes: 0, current: true });
        self.loans.by_session.insert(id, loans);
    }

    /// Takes over what was counted of a session that has lent a direction under this name; `over`: it is given back.
    fn collect_offloaded(
        &mut self,
        now: u32,
        it: OffloadCandidate,
        slot: u32,
        over: bool,
        host: &impl Environment,
    ) {
        let (id, way) = (it.flow.session(), it.flow.direction() as usize);
        let Some(loans) = self.loans.by_session.get(&id) else { return };
        let mut loans = *loans;
        if loans[way].is_none_or(|loan| loan.slot != slot) {
            return;
        }
        self.take_over_all(now, id, &mut loans, host);
        if over {
            loans[way] = None;
        }
        if loans.iter().all(Option::is_none) {
            self.loans.by_session.remove(&id);
        } else {
            self.loans.by_session.insert(id, loans);
        }
    }

    /// A name under which nothing is lent any more, since it was called back.
    fn next_revoked(&mut self) -> Option<u32> {
        self.loans.back.pop()
    }
}

impl Sessions {
    /// Takes over what was counted of a session.
    #[inline]
    pub(crate) fn settle_loans(&mut self, now: u32, id: SessionId, host: &impl Environment) {
        if !self.loans.by_session.is_empty() {
            self.settle_both(now, id, host);
        }
    }

    #[cold]
    fn settle_both(&mut self, now: u32, id: SessionId, host: &impl Environment) {
        let Some(loans) = self.loans.by_session.get(&id) else { return };
        let mut loans = *loans;
        self.take_over_all(now, id, &mut loans, host);
        self.loans.by_session.insert(id, loans);
    }

    /// Takes a session back, with all that was counted of it.
    #[inline]
    pub(crate) fn revoke(&mut self, now: u32, id: SessionId, host: &impl Environment) {
        if !self.loans.by_session.is_empty() {
            self.call_both_back(now, id, host);
        }
    }

    #[cold]
    fn call_both_back(&mut self, now: u32, id: SessionId, host: &impl Environment) {
        let Some(loans) = self.loans.by_session.get(&id) else { return };
        let slots = loans.map(|loan| loan.map(|loan| loan.slot));
        if let Some(borrower) = &self.loans.borrower {
            slots.iter().flatten().for_each(|&slot| borrower.revoke(slot));
        }
        self.settle_both(now, id, host);
        self.loans.by_session.remove(&id);
        self.loans.back.extend(slots.into_iter().flatten());
    }

    /// Other rules come: what was counted is the old ones', and what is counted from now on, by packets that were on their way,
    /// nobody's.
    pub(crate) fn settle_all_loans(&mut self, host: &impl Environment) {
        let ids: Vec<SessionId> = self.loans.by_session.keys().copied().collect();
        ids.into_iter().for_each(|id| self.settle_both(self.clock, id, host));
        let loans = self.loans.by_session.values_mut().flatten().flatten();
        loans.for_each(|loan| loan.current = false);
    }

    /// Takes over what was counted of both directions. What closes the connection is looked at when it is known what both sides
    /// have acknowledged.
    fn take_over_all(
        &mut self,
        now: u32,
        id: SessionId,
        loans: &mut [Option<OffloadedFlow>; 2],
        host: &impl Environment,
    ) {
        let tally =
            |loan: &Option<OffloadedFlow>| Some(self.loans.borrower.as_ref()?.counters(loan.as_ref()?.slot));
        let tallies = loans.each_ref().map(tally);
        if let Some(OffloadCounters { age, ack: Some(_), .. }) = tallies[Direction::Forward as usize] {
            self.complete(now.wrapping_sub(age), id);
        }
        let mut news = [None; 2];
        for (((way, loan), borrowed), new) in WAYS.into_iter().zip(loans).zip(tallies).zip(&mut news) {
            if let (Some(loan), Some(borrowed)) = (loan, borrowed) {
                *new = self.take_over(now, FlowRef::new(id, way), loan, borrowed, host);
            }
        }
        for (way, new) in WAYS.into_iter().zip(news) {
            if let Some((last, OffloadCounters { ack: Some(ack), fin, .. })) = new
                && (fin.is_some() || self.table.session(id).track.has_fin())
            {
                self.note(last, FlowRef::new(id, way), ack, fin);
            }
        }
    }

    /// The originator's first packet that was sent on, if it was lent before: it acknowledged what it had to.
    fn complete(&mut self, last: u32, id: SessionId) {
        if let Some(ack) = self.table.session(id).track.awaited_ack(&self.acks(id)) {
            self.note(last, FlowRef::new(id, Direction::Forward), ack, None);
        }
    }

    /// Tells the tracker of a direction's last segment, which acknowledged `ack` and, if it was a FIN, ended with `fin`.
    fn note(&mut self, last: u32, found: FlowRef, ack: u32, fin: Option<u32>) {
        let id = found.session();
        let (mut track, mut acks) = (self.table.session(id).track, self.acks(id));
        let (flags, seq) = match fin {
            Some(end) => (TcpSegment::FIN | TcpSegment::ACK, end.wrapping_sub(1)),
            None => (TcpSegment::ACK, acks[found.direction().opposite() as usize]),
        };
        let segment = TcpSegment { seq, ack, flags, ..TcpSegment::default() };
        let seen = track.update(found.direction(), &TrackInput::Tcp(segment), &mut acks, &self.settings);
        self.table.session_mut(id).track = track;
        self.set_acks(id, acks);
        self.heed(last, id, &seen);
    }

    /// Takes over what was counted of a direction. What that is, and when the last packet came; none if there was none since.
    fn take_over(
        &mut self,
        now: u32,
        found: FlowRef,
        loan: &mut OffloadedFlow,
        borrowed: OffloadCounters,
        host: &impl Environment,
    ) -> Option<(u32, OffloadCounters)> {
        let OffloadCounters { packets, bytes, age, ack, .. } = borrowed;
        let (more, length) = (packets.wrapping_sub(loan.packets), bytes.wrapping_sub(loan.bytes));
        if more == 0 {
            return None;
        }
        (loan.packets, loan.bytes) = (packets, bytes);
        // Before anything is counted that is not owed.
        self.settle(found, host);
        let half = self.table.flow_mut(found);
        let (mut packets, mut bytes) = (more, length);
        while packets > 0 || bytes > 0 {
            let part = |left: u64| u32::try_from(left).unwrap_or(u32::MAX);
            half.count(part(packets), part(bytes));
            packets -= u64::from(part(packets));
            bytes -= u64::from(part(bytes));
        }
        let last = now.wrapping_sub(age);
        if last.wrapping_sub(half.last_seen).cast_signed() > 0 {
            half.last_seen = last;
        }
        let last = half.last_seen;
        if let Some(ack) = ack {
            half.ack = later_ack(half.ack, ack);
        }
        if loan.current {
            self.decisions.credit(half.decision(), more, length, host);
        }
        Some((last, borrowed))
    }
}
