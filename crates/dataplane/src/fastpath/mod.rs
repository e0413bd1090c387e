//! The fast path: flows between af-xdp ports whose packets the kernel sends on by itself, as the engine has done it before.
//!
//! # Theory of operation
//! Over an af-xdp port each packet is copied to the engine and back, and may have to wake it. Where what becomes of a packet is the same
//! for all of its flow ([`mmb_policy::Policy::offload_obstacle`] says of rules whether that is so), the XDP program of the port can do it
//! in the engine's place: it looks the flow up, and rewrites, counts and redirects the packet, or hands it to the engine as ever.
//!
//! *Learning.* What is to be done is read off a packet that the engine has treated, a witness. Of packets of flows that the kernel does
//! not have, some are copied as they come in, as many as is worth it ([`allowance`]): mostly a flow's first one. If that very buffer is
//! with `port-tx` in the same walk, both are compared ([`flow::compare`]): what cannot be done to the one so that the other comes of it
//! is not for the kernel. So the kernel does nothing that the engine has not done, whatever rules and routes there are; a packet that was
//! dropped, has waited, or was another worker's just does not turn up.
//!
//! *Destinations and pairs.* Where there are no rules, and each route has one next hop, what has been done with one packet is done
//! with all to the same destination ([`FastGranularity`]). With rules, of which none needs sessions, it is done with all of the same protocol
//! between the same addresses, unless some rule may look at ports there ([`mmb_policy::PortDependence`]): then with those of its flow. So
//! of many short connections only the first one is the engine's, beginnings and ends included. Whether ports count is asked of the rules
//! that the witness is treated by, before it is treated.
//!
//! *Sessions.* What opens a session is the engine's, and so is the first answer. Then both directions are given to the kernel together:
//! the other one was compared before, and has waited ([`pending`]). Of TCP that is done before the answer leaves, so that what comes
//! of it finds the kernel prepared. The connection is not open then, and its session stays half open until the kernel has seen the
//! one acknowledgement that opens it, before which it sends nothing on in that direction ([`mmb_session::OffloadState::AwaitingAck`]). A session
//! that is not answered is given away only if there is much of it. The kernel sends FINs on and notes them; sessions take the note
//! over ([`mmb_session::OffloadCounters`]).
//!
//! *In force.* Each entry carries the generation of rules, ports and routes under which its witness was treated, and the kernel
//! heeds only those of the generation that stands in its header ([`FastShared`]), which whoever publishes something else changes before
//! the publication returns. All flows then are the engine's again, and are learnt anew.
//!
//! *Counting.* The kernel counts each flow's packets; several times a second the worker that has learnt it credits them to the
//! ports and to the rules that match ([`entries`]), so that what is shown is right within a tenth of a second.
//!
//! *Losses.* A frame that is redirected to an interface which cannot take it is gone. Whether an interface can may change at any time
//! (a veth can as long as its peer receives by NAPI), so the kernel is asked again and again ([`crate::engine::control`]), and all flows come back if one
//! cannot any more.

mod allowance;
mod entries;
#[cfg(test)]
pub(crate) mod fake;
mod flow;
mod kernel;
#[cfg(test)]
mod lab_test;
#[cfg(test)]
mod lab_test_sessions;
mod learn;
mod look;
mod pending;
mod refused;
mod samples;
mod setup;
mod shared;
mod witness;

use std::sync::Arc;

use mmb_dpdk::{FAST_SLOTS, FastGranularity, FastKey, Packet, Slots};
use mmb_route::Routes;
use mmb_session::{Environment, OffloadCandidate, OffloadSource, OffloadState, Sessions};

use crate::engine::snapshot::Snapshot;
use allowance::Allowance;
use entries::{Entries, NoPlace, SWEEP};
use flow::Place;
use kernel::Borrowing;
pub(crate) use kernel::Kernel;
pub(crate) use learn::{Known, is_ruled};
use learn::{Learnt, Seen, pay};
pub use look::{FastPathInfo, FastPortInfo};
pub(crate) use look::{OpenPorts, PortMonitor};
use pending::Pending;
pub(crate) use refused::{FastCounters, Refused};
use samples::Samples;
pub use setup::fast_path_obstacle;
pub(crate) use setup::{learns, pairs, setup};
pub(crate) use shared::{FastEnd, FastSetup, FastShared};
pub(crate) use witness::SampledPacket;
use witness::SampledPackets;

/// Bytes of a frame that are copied without much thought.
const SHORT: usize = 256;
/// Packets of a vector that are looked at, at most.
const LOOKS: usize = 32;

/// A worker's part.
pub(crate) struct Fast {
    /// Flows are learnt: all that is looked at while they are not.
    learns: bool,
    /// There is something to do between two walks.
    tends: bool,
    /// Packets open sessions.
    flows: bool,
    setup: Option<Arc<FastSetup>>,
    samples: Samples,
    entries: Option<Entries>,
    allowance: Allowance,
    witnesses: SampledPackets,
    /// What has been learnt in a walk, but for [`Fast::urgent`].
    learnt: Vec<Learnt>,
    /// What has been learnt of answers that are about to go out.
    urgent: Vec<Learnt>,
    pending: Pending,
    /// Which packet of a vector is the next to be looked at.
    turn: usize,
    /// The time of this walk, and the generation that was in force when it began.
    now: u32,
    in_force: u64,
    /// Sessions that had ended then.
    removals: u32,
}

impl Fast {
    pub fn new() -> Fast {
        Fast {
            learns: false,
            tends: false,
            flows: false,
            setup: None,
            samples: Samples::new(),
            entries: None,
            allowance: Allowance::new(),
            witnesses: SampledPackets::default(),
            learnt: Vec::new(),
            urgent: Vec::new(),
            pending: Pending::default(),
            turn: 0,
            now: 0,
            in_force: 0,
            removals: 0,
        }
    }

    /// Whether flows are learnt.
    #[inline(always)]
    pub fn learns(&self) -> bool {
        self.learns
    }

    /// Whether [`Fast::begin`] has something to do.
    #[inline(always)]
    pub fn tends(&self) -> bool {
        self.tends
    }

    /// Whether packets are being watched.
    #[inline(always)]
    pub fn watches(&self) -> bool {
        !self.witnesses.is_empty()
    }

    /// Whether a look at all entries goes on, so that the worker should not sleep.
    pub fn is_sweeping(&self) -> bool {
        self.entries.as_ref().is_some_and(Entries::is_sweeping)
    }

    /// Milliseconds until entries are to be looked at, if there are any.
    pub fn next_sweep(&self) -> Option<u32> {
        self.entries.as_ref().filter(|entries| entries.len() > 0).map(|_| SWEEP)
    }

    /// Takes over a new snapshot; `worker` is one of `workers`.
    pub fn adopt(&mut self, snapshot: &Snapshot, (worker, workers): (usize, usize), sessions: &mut Sessions) {
        self.learns = snapshot.fast.as_ref().is_some_and(|setup| setup.learns);
        self.flows = snapshot.flows;
        if let Some(setup) = &snapshot.fast {
            let other = |old: &Arc<FastSetup>| !old.has_kernel_of(setup);
            if self.setup.as_ref().is_none_or(other) {
                // The ports of the old entries are gone, and all that was in the kernel with them.
                self.entries = None;
                sessions.set_offload_driver(Box::new(Borrowing(setup.kernel.clone())));
            }
            self.setup = Some(setup.clone());
        }
        if self.learns {
            self.entries.get_or_insert_with(|| Entries::new(share(worker, workers)));
            self.samples.clear();
            self.pending.clear();
        }
        self.tends = self.learns || self.entries.as_ref().is_some_and(|entries| entries.len() > 0);
    }

    /// Looks for packets among those that have just come in that are worth being watched; `handed`: another worker has received them.
    pub fn sample(&mut self, slots: &mut Slots<'_>, handed: bool) {
        let n = slots.len();
        let looks = if self.allowance.is_ample() { n.min(LOOKS) } else { n.min(1) };
        for step in 1..=looks {
            if let Some(packet) = slots.get_mut((self.turn + step) % n) {
                self.sample_packet(packet, handed);
            }
        }
        self.turn = self.turn.wrapping_add(looks) & 0xffff;
    }

    fn sample_packet(&mut self, packet: &Packet, handed: bool) {
        let (Some(setup), Some(entries)) = (&self.setup, &mut self.entries) else { return };
        let Some(from) = setup.from(packet.port()) else { return };
        let data = packet.data();
        if packet.nb_segs() != 1 || !self.witnesses.has_room(data.len()) {
            return;
        }
        let Some(key) = flow::key_of(from.number, data) else { return };
        let (key, place) = match shared::granularity(self.in_force) {
            FastGranularity::Destination => {
                (FastKey::for_destination(key.port, key.destination), Place::First)
            }
            FastGranularity::Pair if setup.is_pair(packet.port(), &key) => {
                (key.without_ports(), Place::First)
            }
            _ => (key, flow::place(&key, data, self.flows)),
        };
        if place == Place::Useless {
            return;
        }
        let Some(often) = self.samples.count((&key, handed), self.now) else { return };
        if entries.has(&key, self.in_force) {
            return;
        }
        let (may, paid) = match place {
            // It may be the one that a session was waiting for, unless it brings much.
            Place::Later if self.flows => (self.allowance.is_some() && (often || data.len() <= SHORT), false),
            Place::Later if !often => (false, false),
            Place::Opening => (self.allowance.spend_opening(), false),
            _ => (self.allowance.spend(often), true),
        };
        if may {
            self.witnesses.watch(packet, (key, handed), (often, paid));
        }
    }

    /// If a packet is one of those that are watched: what is known of it, and no more watching.
    #[inline]
    pub fn witness(&mut self, packet: &Packet) -> Option<SampledPacket> {
        self.witnesses.take(packet)
    }

    /// A packet as it came, and its port.
    pub fn before(&self, witness: &SampledPacket) -> (&[u8], u16) {
        (self.witnesses.before(witness), witness.port)
    }

    /// How many sessions had ended when this walk began.
    pub fn removals(&self) -> u32 {
        self.removals
    }

    /// Has seen a packet that was watched go out, as it is now, under this generation.
    pub fn learn_from_tx(
        &mut self,
        (packet, witness): (&Packet, &SampledPacket),
        sight: (&Snapshot, &Routes),
        generation: u64,
        known: Result<Known, Refused>,
        counters: &FastCounters,
    ) {
        let Some(setup) = &self.setup else { return };
        let (key, handed, port) = (witness.key, witness.handed, witness.port);
        let seen = Seen { key, handed, port, before: self.witnesses.before(witness), packet };
        match known
            .and_then(|known| seen.teaches(setup, sight, known, (generation, witness.often, witness.paid)))
        {
            Ok(learnt) => {
                let is_urgent = learnt.credit.session.is_some() && flow::is_answer(&key, seen.before);
                if is_urgent { &mut self.urgent } else { &mut self.learnt }.push(learnt);
            }
            Err(why) => self.refuse((&key, handed), why, counters),
        }
    }

    /// Gives connections to the kernel whose answers are about to go out, before what they bring comes in.
    pub fn settle_answers(
        &mut self,
        (sessions, host): (&mut Sessions, &impl Environment),
        counters: &FastCounters,
    ) {
        while let Some(learnt) = self.urgent.pop() {
            self.settle(learnt, (sessions, host), counters);
        }
    }

    fn refuse(&mut self, (key, handed): (&FastKey, bool), why: Refused, counters: &FastCounters) {
        counters.refuse(why);
        self.samples.rest((key, handed), self.now, why.rest());
    }

    /// Between two walks: gives the kernel what was learnt in the last one, and credits what it has counted.
    pub fn begin(
        &mut self,
        (now, in_force): (u32, u64),
        snapshot: &Snapshot,
        worker: usize,
        sessions: &mut Sessions,
        counters: &FastCounters,
    ) {
        if in_force != self.in_force {
            // What was not for the kernel may be now.
            self.samples.clear();
        }
        (self.now, self.in_force, self.removals) = (now, in_force, sessions.removals());
        while let Some((key, handed)) = self.witnesses.missing() {
            self.refuse((&key, handed), Refused::NotSent, counters);
        }
        self.allowance.refill(now);
        while let Some(learnt) = self.learnt.pop() {
            self.settle(learnt, (sessions, &snapshot.of(worker)), counters);
        }
        let (Some(setup), Some(entries)) = (&self.setup, &mut self.entries) else { return };
        while let Some(slot) = sessions.next_revoked() {
            entries.revoke(&*setup.kernel, slot, now);
        }
        let before = entries.len();
        let allowance = &mut self.allowance;
        entries.sweep(&*setup.kernel, in_force, now, |due| {
            allowance.earn(due.earned);
            pay(&due, snapshot, worker, counters);
            if let Some(session) = due.credit.session {
                sessions.collect_offloaded(now, session, due.slot, due.over, &snapshot.of(worker));
            }
        });
        if entries.len() != before {
            counters.entries.set(entries.len() as u64);
            self.tends = self.learns || entries.len() > 0;
        }
    }

    /// Gives a flow to the kernel; that of a session with the other direction, once that is known as well.
    fn settle(
        &mut self,
        learnt: Learnt,
        (sessions, host): (&mut Sessions, &impl Environment),
        counters: &FastCounters,
    ) {
        let Some(session) = learnt.credit.session else {
            return self.install(learnt, (sessions, host), counters);
        };
        match sessions.offload_state(session, learnt.credit.from.0) {
            OffloadState::Ended => {}
            OffloadState::Ineligible => self.refuse((&learnt.key, learnt.handed), Refused::Session, counters),
            OffloadState::Eligible { reply_settled } if reply_settled || learnt.often => {
                let other = self.pending.take(session.other());
                let may = learnt.paid || (other.is_some() || learnt.often) && self.allowance.spend(true);
                let Some(other) = other else {
                    return if may {
                        self.install(learnt, (sessions, host), counters)
                    };
                };
                if !may {
                    return self.pending.keep(session.other(), other);
                }
                self.install(learnt, (sessions, host), counters);
                if let OffloadState::Eligible { .. } =
                    sessions.offload_state(session.other(), other.credit.from.0)
                {
                    self.install(*other, (sessions, host), counters);
                }
            }
            OffloadState::AwaitingAck { expected_ack: awaits } => {
                self.settle_answered(learnt, session, awaits, (sessions, host), counters)
            }
            OffloadState::Eligible { .. } | OffloadState::Unsettled => {
                self.pending.keep(session, Box::new(learnt))
            }
        }
    }

    /// The same of a connection of which only the third packet is missing: with the other direction, or not yet.
    fn settle_answered(
        &mut self,
        mut learnt: Learnt,
        session: OffloadCandidate,
        awaits: Option<u32>,
        (sessions, host): (&mut Sessions, &impl Environment),
        counters: &FastCounters,
    ) {
        let Some(mut other) = self.pending.take(session.other()) else {
            return self.pending.keep(session, Box::new(learnt));
        };
        let OffloadState::AwaitingAck { expected_ack: others } =
            sessions.offload_state(session.other(), other.credit.from.0)
        else {
            return;
        };
        self.allowance.answered();
        if !(learnt.paid || other.paid || self.allowance.spend(false)) {
            return;
        }
        (learnt.action.awaited_ack, other.action.awaited_ack) = (awaits, others);
        self.install(learnt, (sessions, host), counters);
        self.install(*other, (sessions, host), counters);
    }

    fn install(
        &mut self,
        learnt: Learnt,
        (sessions, host): (&mut Sessions, &impl Environment),
        counters: &FastCounters,
    ) {
        let (Some(setup), Some(entries)) = (&self.setup, &mut self.entries) else { return };
        let Learnt { key, handed, action, generation, credit, .. } = learnt;
        if generation != self.in_force || entries.has(&key, generation) {
            return;
        }
        let session = credit.session;
        match entries.install(&*setup.kernel, (&key, &action), generation, credit, self.now) {
            Ok(slot) => {
                if let Some(session) = session {
                    sessions.offload(self.now, session, slot, host);
                }
                counters.installed.add(1);
                counters.entries.set(entries.len() as u64);
            }
            Err(NoPlace::Full) => self.refuse((&key, handed), Refused::Full, counters),
            Err(NoPlace::Refused) => self.refuse((&key, handed), Refused::Kernel, counters),
        }
    }
}

/// The slots of one of `workers`.
fn share(worker: usize, workers: usize) -> std::ops::Range<u32> {
    let each = (FAST_SLOTS - 1) / workers as u32;
    let first = 1 + worker as u32 * each;
    first..first + each
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_shared_out_and_the_first_is_nobodys() {
        for workers in 1..=crate::engine::config::MAX_WORKERS {
            let mut next = 1;
            for worker in 0..workers {
                let share = share(worker, workers);
                assert_eq!(share.start, next);
                assert!(share.len() > 4000);
                next = share.end;
            }
            assert!(next <= FAST_SLOTS);
        }
    }
}
