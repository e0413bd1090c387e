//! The fast path: flows between af-xdp ports whose packets the kernel sends on by itself, as the engine has done it before.
//!
//! # Theory of operation
//! Over an af-xdp port each packet is copied to the engine and back, and may have to wake it. Where what becomes of a packet is the same
//! for all of its flow ([`mmb_policy::Policy::unsteady`] says of rules whether that is so), the XDP program of the port can do it
//! in the engine's place: it looks the flow up, and rewrites, counts and redirects the packet, or hands it to the engine as ever.
//!
//! *Learning.* What is to be done is read off a packet that the engine has treated, the witness. One packet of each vector is sampled
//! ([`samples`]); a flow with enough of them has its next sample copied, as it came in. If that very buffer is with `port-tx` in the same
//! walk, both are compared ([`flow::compare`]): what cannot be done to the one so that the other comes of it is not for the
//! kernel. So the kernel does nothing that the engine has not done, whatever rules and routes there are; a packet that was dropped, has
//! waited, or was another worker's just does not turn up.
//!
//! *In force.* Each entry carries the generation of rules, ports and routes under which its witness was treated, and the kernel
//! heeds only those of the generation that stands in its header ([`FastShared`]), which whoever publishes something else changes before
//! the publication returns. All flows then are the engine's again, and are learnt anew.
//!
//! *Counting.* The kernel counts each flow's packets; several times a second the worker that has learnt it credits them to the
//! ports and to the rules that match ([`entries`]), so that what is shown is right within a tenth of a second.
//!
//! *Losses.* A frame that is redirected to an interface which cannot take it is gone. Whether an interface can may change at any time
//! (a veth can as long as its peer receives by NAPI), so the kernel is asked again and again ([`crate::engine`]), and all flows come back if one
//! cannot any more.

mod entries;
#[cfg(test)]
pub(crate) mod fake;
mod flow;
mod kernel;
#[cfg(test)]
mod lab_test;
#[cfg(test)]
mod lab_test_sessions;
mod look;
mod refused;
mod samples;
mod setup;
mod shared;

use std::sync::Arc;

use mmb_dpdk::{FAST_SLOTS, FastAction, FastKey, Packet, Slots};
use mmb_packet::Meta;
use mmb_policy::Policy;
use mmb_route::{HopKind, Routes};
use mmb_session::{Host, Lendable, Sessions};

use crate::snapshot::{Snapshot, path};
use entries::{Credit, Due, Entries, Matched, NoPlace};
use kernel::Borrowing;
pub(crate) use kernel::Kernel;
pub use look::{FastPathInfo, FastPortInfo};
pub(crate) use look::{Looker, OpenPorts};
pub(crate) use refused::{FastCounters, Refused};
use samples::Samples;
pub use setup::fast_path_obstacle;
pub(crate) use setup::{learns, setup};
pub(crate) use shared::{FastEnd, FastSetup, FastShared};

/// Flows that a worker gives to the kernel in a second, at most, and at once: each costs a system call and a look at the rules, and
/// when all flows come back at once the packets in hand go first.
const PER_SECOND: u32 = 1000;
const AT_ONCE: u32 = 32;
/// Rules that may match a flow: each is credited one by one.
const MOST_RULES: usize = 64;

/// The packet that is watched on its way.
#[derive(Default)]
struct Witness {
    /// Where its buffer is; 0: there is none.
    at: usize,
    key: Option<FastKey>,
    port: u16,
    /// As it came.
    before: Vec<u8>,
}

/// What has been learnt in a walk.
struct Learnt {
    key: FastKey,
    action: FastAction,
    generation: u64,
    credit: Credit,
    /// What the parse of the packet found, as it came.
    meta: Meta,
}

/// What is known of the packet that is watched, besides what it was and is.
pub(crate) struct Known {
    /// The slots of the rules that match it.
    pub rules: Vec<u32>,
    /// Its session.
    pub session: Option<Lendable>,
    /// What the parse found, as it came in.
    pub meta: Meta,
}

/// A worker's part.
pub(crate) struct Fast {
    /// Flows are learnt: all that is looked at while they are not.
    learns: bool,
    /// There is something to do between two walks.
    tends: bool,
    setup: Option<Arc<FastSetup>>,
    samples: Option<Samples>,
    entries: Option<Entries>,
    witness: Witness,
    learnt: Option<Learnt>,
    /// Which packet of a vector is the next sample.
    turn: usize,
    /// The time of this walk, and the generation that was in force when it began.
    now: u32,
    in_force: u64,
    /// Sessions that had ended then.
    removals: u32,
    /// Flows that may be given to the kernel now, and when that was reckoned.
    may: u32,
    since: u32,
}

impl Fast {
    pub fn new() -> Fast {
        Fast {
            learns: false,
            tends: false,
            setup: None,
            samples: None,
            entries: None,
            witness: Witness::default(),
            learnt: None,
            turn: 0,
            now: 0,
            in_force: 0,
            removals: 0,
            may: 0,
            since: 0,
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

    /// Whether a packet is being watched.
    #[inline(always)]
    pub fn watches(&self) -> bool {
        self.witness.at != 0
    }

    /// Whether a look at all entries goes on, so that the worker should not sleep.
    pub fn is_sweeping(&self) -> bool {
        self.entries.as_ref().is_some_and(Entries::is_sweeping)
    }

    /// Takes over a new snapshot; `worker` is one of `workers`.
    pub fn adopt(&mut self, snapshot: &Snapshot, (worker, workers): (usize, usize), sessions: &mut Sessions) {
        self.learns = snapshot.fast.as_ref().is_some_and(|setup| setup.learns);
        if let Some(setup) = &snapshot.fast {
            let other = |old: &Arc<FastSetup>| !old.has_kernel_of(setup);
            if self.setup.as_ref().is_none_or(other) {
                // The ports of the old entries are gone, and all that was in the kernel with them.
                self.entries = None;
                sessions.set_borrower(Box::new(Borrowing(setup.kernel.clone())));
            }
            self.setup = Some(setup.clone());
        }
        if self.learns {
            self.entries.get_or_insert_with(|| Entries::new(share(worker, workers)));
            self.samples.get_or_insert_with(Samples::new).clear();
        }
        self.tends = self.learns || self.entries.as_ref().is_some_and(|entries| entries.len() > 0);
    }

    /// Takes a sample of packets that have just come in.
    pub fn sample(&mut self, slots: &mut Slots<'_>) {
        let n = slots.len();
        self.turn = self.turn.wrapping_add(1);
        if n > 0
            && let Some(packet) = slots.get_mut(self.turn % n)
        {
            self.sample_packet(packet);
        }
    }

    /// Takes a packet as a sample.
    fn sample_packet(&mut self, packet: &Packet) {
        let (Some(setup), Some(samples), Some(entries)) = (&self.setup, &mut self.samples, &mut self.entries)
        else {
            return;
        };
        let port = packet.port();
        let Some(from) = setup.from(port) else { return };
        if self.witness.at != 0 || packet.nb_segs() != 1 {
            return;
        }
        let Some(key) = flow::key_of(from.number, packet.data()) else { return };
        if !samples.count(&key, self.now) || self.may == 0 || entries.has(&key, self.in_force) {
            return;
        }
        self.witness.at = place_of(packet);
        self.witness.key = Some(key);
        self.witness.port = port;
        self.witness.before.clear();
        self.witness.before.extend_from_slice(packet.data());
    }

    /// The packet that is watched, if it is among these.
    pub fn find<'a>(&self, packets: &'a [&mut Packet]) -> Option<&'a Packet> {
        packets.iter().map(|packet| &**packet).find(|packet| place_of(packet) == self.witness.at)
    }

    /// The packet that is watched, as it came, and its port.
    pub fn before(&self) -> (&[u8], u16) {
        (&self.witness.before, self.witness.port)
    }

    /// How many sessions had ended when this walk began.
    pub fn removals(&self) -> u32 {
        self.removals
    }

    /// Has seen the packet that is watched go out, as it is now, under this generation.
    pub fn testify(
        &mut self,
        packet: &Packet,
        (snapshot, routes): (&Snapshot, &Routes),
        generation: u64,
        known: Result<Known, Refused>,
        counters: &FastCounters,
    ) {
        self.witness.at = 0;
        let Some(key) = self.witness.key.take() else { return };
        let Some(setup) = &self.setup else { return };
        let (before, port) = (&self.witness.before, self.witness.port);
        let told = known.and_then(|Known { rules, session, meta }| {
            let mut action =
                learn(setup, (&key, snapshot.is_routed(port)), before, packet, (snapshot, routes))?;
            action.track = session.is_some() && key.proto == TCP;
            let rules = matched(rules, &snapshot.policy).ok_or(Refused::Rules)?;
            let (from, to) = ((port, key.port), (packet.meta().out_port, action.out));
            Ok(Learnt { key, action, generation, credit: Credit { from, to, rules, session }, meta })
        });
        match told {
            Ok(learnt) => self.learnt = Some(learnt),
            Err(why) => self.refuse(&key, why, counters),
        }
    }

    fn refuse(&mut self, key: &FastKey, why: Refused, counters: &FastCounters) {
        counters.refuse(why);
        if let Some(samples) = &mut self.samples {
            samples.rest(key, self.now);
        }
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
        (self.now, self.in_force, self.removals) = (now, in_force, sessions.removals());
        if self.witness.at != 0 {
            self.witness.at = 0;
            if let Some(key) = self.witness.key.take() {
                self.refuse(&key, Refused::NotSent, counters);
            }
        }
        let passed = now.wrapping_sub(self.since);
        let more = passed.min(1000) * PER_SECOND / 1000;
        if more > 0 {
            (self.may, self.since) = ((self.may + more).min(AT_ONCE), now);
        }
        if let Some(learnt) = self.learnt.take() {
            self.install(learnt, (sessions, &snapshot.of(worker)), counters);
        }
        let (Some(setup), Some(entries)) = (&self.setup, &mut self.entries) else { return };
        while let Some(slot) = sessions.called_back() {
            entries.revoke(&*setup.kernel, slot, now);
        }
        let before = entries.len();
        entries.sweep(&*setup.kernel, in_force, now, |due| {
            pay(&due, snapshot, worker, counters);
            if let Some(session) = due.credit.session {
                sessions.settle_loan(now, session, due.slot, due.over, &snapshot.of(worker));
            }
        });
        if entries.len() != before {
            counters.entries.set(entries.len() as u64);
            self.tends = self.learns || entries.len() > 0;
        }
    }

    fn install(
        &mut self,
        learnt: Learnt,
        (sessions, host): (&mut Sessions, &impl Host),
        counters: &FastCounters,
    ) {
        let (Some(setup), Some(entries)) = (&self.setup, &mut self.entries) else { return };
        self.may = self.may.saturating_sub(1);
        let Learnt { key, action, generation, credit, meta } = learnt;
        let session = credit.session;
        if session.is_some() && sessions.can_lend(&self.witness.before, &meta, self.witness.port) != session {
            // It has ended since, or is another now.
            return;
        }
        match entries.install(&*setup.kernel, (&key, &action), generation, credit, self.now) {
            Ok(slot) => {
                if let Some(session) = session {
                    sessions.lend(self.now, session, slot, host);
                }
                counters.installed.add(1);
                counters.entries.set(entries.len() as u64);
            }
            Err(NoPlace::Full) => self.refuse(&key, Refused::Full, counters),
            Err(NoPlace::Refused) => self.refuse(&key, Refused::Kernel, counters),
        }
    }
}

/// Where a packet's buffer is.
fn place_of(packet: &Packet) -> usize {
    std::ptr::from_ref(packet).addr()
}

/// The slots of one of `workers`.
fn share(worker: usize, workers: usize) -> std::ops::Range<u32> {
    let each = (FAST_SLOTS - 1) / workers as u32;
    let first = 1 + worker as u32 * each;
    first..first + each
}

/// What the kernel is to do with the packets of a flow, of which one came as `before` and goes out as `packet`.
fn learn(
    setup: &FastSetup,
    (key, is_routed): (&FastKey, bool),
    before: &[u8],
    packet: &Packet,
    (snapshot, routes): (&Snapshot, &Routes),
) -> Result<FastAction, Refused> {
    let meta = packet.meta();
    let out = setup.to(meta.out_port).ok_or(Refused::Target)?;
    if packet.nb_segs() != 1 {
        return Err(Refused::Otherwise);
    }
    let done = flow::compare(key, is_routed, before, packet.data())?;
    let longest = snapshot.frame_max(meta.out_port, ETHERNET).saturating_sub(usize::from(ETHERNET));
    let mut max_len = u16::try_from(longest).unwrap_or(u16::MAX);
    if is_routed {
        // What the engine has found, for the length that it allows. A next hop that is being asked after is to see packets of
        // the engine's, which asks the kernel to ask.
        let hop = routes.hops.get(meta.edits_at);
        let addresses = packet.data().first_chunk::<12>();
        let is_it =
            hop.kind == HopKind::Forward && hop.port == meta.out_port && addresses == Some(&hop.header);
        if !is_it || hop.nudge {
            return Err(Refused::NextHop);
        }
        max_len = max_len.min(hop.mtu);
    }
    Ok(done.by(out, max_len))
}

/// The protocol whose acknowledgements sessions keep.
const TCP: u8 = 6;
/// Bytes of an Ethernet header.
const ETHERNET: u16 = 14;

/// The rules in these slots; none if they are too many.
fn matched(slots: Vec<u32>, policy: &Policy) -> Option<Box<[Matched]>> {
    if slots.len() > MOST_RULES {
        return None;
    }
    slots.into_iter().map(|slot| Some((slot, policy.rule_id(slot)?))).collect()
}

/// Whether rules apply to what comes in by a port.
pub(crate) fn is_ruled(snapshot: &Snapshot, port: u16) -> bool {
    snapshot.path(port) & path::RULES != 0
}

/// Credits packets that the kernel has sent on. Rules and ports that are gone, or are others now, get nothing.
fn pay(due: &Due<'_>, snapshot: &Snapshot, worker: usize, counters: &FastCounters) {
    counters.packets.add(due.packets);
    counters.bytes.add(due.bytes);
    let (from, to) = (due.credit.from, due.credit.to);
    for (is_in, (id, number)) in [(true, from), (false, to)] {
        if let Some(port) = snapshot.port(id).filter(|port| port.device().fast_port() == Some(number)) {
            port.credit(is_in, due.packets, due.bytes);
        }
    }
    let packets = u32::try_from(due.packets).unwrap_or(u32::MAX);
    for (slot, id) in &due.credit.rules {
        if snapshot.policy.rule_id(*slot) == Some(*id) {
            snapshot.counters[worker].count(*slot, packets, due.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_shared_out_and_the_first_is_nobodys() {
        for workers in 1..=crate::config::MAX_WORKERS {
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
