//! Takes single packets through the sessions of some workers.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use mmb_nf::harness::segments_of;
use mmb_packet::{DropReason, Kind, Meta, PacketBuf, PacketFlags, VecPacket, parse};
use mmb_policy::{Batch, EditLimits, ElementChange, VECTOR};
use mmb_session::{
    ChainBatch, Environment, HeldEvent, Next, Packets, ReleasedFragment, SessionConfig, Sessions,
    SharedSessions, chain_packet,
};

use crate::{Outcome, ProcessedPacket, RuleSet};

/// Room behind the frames of functions, in bytes: at least what is left in a buffer of DPDK.
const FRAME_ROOM: usize = 500;

/// A packet that is being processed.
#[derive(Clone, Debug)]
struct PendingPacket {
    packet: VecPacket,
    meta: Meta,
    in_port: u16,
    worker: usize,
    /// A function of a chain has it, or had it last.
    is_in_chain: bool,
}

impl Packets for PendingPacket {
    fn len(&self) -> usize {
        1
    }

    fn head(&self, _: usize) -> &[u8] {
        self.packet.head()
    }

    fn meta(&self, _: usize) -> &Meta {
        &self.meta
    }

    fn head_and_meta(&mut self, _: usize) -> (&mut [u8], &mut Meta) {
        (self.packet.head_mut(), &mut self.meta)
    }

    fn in_port(&self, _: usize) -> u16 {
        self.in_port
    }

    fn bytes(&self, _: usize) -> u32 {
        u32::try_from(self.packet.len()).unwrap_or(u32::MAX)
    }
}

/// The sessions of some workers, and what surrounds them in the dataplane, in one thread.
#[derive(Debug)]
pub struct SessionHarness {
    workers: Vec<Sessions>,
    rules: RuleSet,
    batch: Batch,
    edits: Vec<u32>,
    /// Fragments that wait, by worker and ticket.
    held: Vec<Vec<Option<PendingPacket>>>,
    /// Packets that functions of chains hold, by worker and ticket.
    held_in_chains: Vec<HashMap<u32, PendingPacket>>,
    now: u32,
}

impl SessionHarness {
    /// Handoffs of a packet until its outcome is [`Outcome::Lost`].
    const MAX_HANDOFFS: u32 = 8;

    /// Returns a harness of `workers` workers, with room for `sessions` sessions each.
    ///
    /// # Errors
    /// As [`Sessions::new`].
    pub fn new(workers: u16, sessions: usize, seed: u64, rules: RuleSet) -> io::Result<SessionHarness> {
        let sessions = sessions * usize::from(workers);
        let config =
            |worker| SessionConfig { sessions, worker, workers, seed, scratchpad: RuleSet::SCRATCHPAD_BYTES };
        let shared = Arc::new(SharedSessions::new(sessions, workers, seed));
        let mut all = (0..workers)
            .map(|worker| Sessions::with_shared(config(worker), shared.clone()))
            .collect::<io::Result<Vec<_>>>()?;
        all.iter_mut().for_each(|sessions| sessions.adopt(&rules, &rules));
        let held = vec![vec![None; Sessions::TICKETS]; all.len()];
        let held_in_chains = vec![HashMap::new(); all.len()];
        let (batch, edits) = (Batch::new(), Vec::new());
        Ok(SessionHarness { workers: all, rules, batch, edits, held, held_in_chains, now: 0 })
    }

    /// Returns the sessions of each worker.
    pub fn workers(&self) -> &[Sessions] {
        &self.workers
    }

    /// Returns the sessions of each worker, mutable, and the rules in force.
    pub fn workers_mut(&mut self) -> (&mut [Sessions], &RuleSet) {
        (&mut self.workers, &self.rules)
    }

    /// Returns the rules in force.
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// Replaces the rules. Returns the previous rules with complete counters.
    pub fn replace_rules(&mut self, rules: RuleSet) -> RuleSet {
        for sessions in &mut self.workers {
            sessions.adopt(&self.rules, &rules);
        }
        std::mem::replace(&mut self.rules, rules)
    }

    /// Replaces the rules by those that differ by a change of elements of sets.
    pub fn replace_elements(&mut self, rules: RuleSet, change: &Arc<ElementChange>) {
        for sessions in &mut self.workers {
            sessions.adopt_elements(change, &self.rules);
        }
        self.rules = rules;
    }

    /// Adds the counters of the workers to those of the rules.
    pub fn flush_counters(&mut self) {
        self.workers.iter_mut().for_each(|sessions| sessions.flush(&self.rules));
    }

    /// Sets the time, in milliseconds. Sessions expire. Returns fragments and held packets that timed out,
    /// and frames that functions emitted.
    pub fn advance(&mut self, now: u32) -> Vec<ProcessedPacket> {
        self.now = now;
        let mut processed = Vec::new();
        for sessions in &mut self.workers {
            while sessions.tick(now, &self.rules, 1000) {}
        }
        self.process_waiting(&mut processed);
        processed
    }

    /// Processes a packet that a port received. Returns the packets whose processing is over: none if this
    /// packet waits, several if it releases others or a function emits frames.
    pub fn process(&mut self, in_port: u16, packet: VecPacket) -> Vec<ProcessedPacket> {
        let mut meta = Meta::default();
        let parsed = parse(packet.head(), packet.len(), &mut meta);
        let done = |outcome, packet| vec![ProcessedPacket { packet, in_port, outcome }];
        match parsed {
            Err(reason) => return done(Outcome::Dropped(reason), packet),
            Ok(()) if meta.kind == Kind::default() => {
                return done(Outcome::Out(self.rules.out_port(in_port)), packet);
            }
            Ok(()) => {}
        }
        let worker = ((u64::from(meta.flow_hash) * self.workers.len() as u64) >> 32) as usize;
        let mut processed = Vec::new();
        let pending = PendingPacket { packet, meta, in_port, worker, is_in_chain: false };
        self.process_on_workers(pending, None, &mut processed);
        self.process_waiting(&mut processed);
        processed
    }

    /// Processes what no longer waits, and the frames of functions.
    fn process_waiting(&mut self, processed: &mut Vec<ProcessedPacket>) {
        loop {
            self.collect_emissions(processed);
            let is_reinjected = self.process_reinjection(processed);
            if !is_reinjected {
                self.process_released(processed);
                self.collect_emissions(processed);
                if !self.workers.iter_mut().any(|sessions| sessions.emissions().has_reinjections()) {
                    return;
                }
            }
        }
    }

    /// Takes a frame of a function through the chain of its session. Returns false if there is none.
    fn process_reinjection(&mut self, processed: &mut Vec<ProcessedPacket>) -> bool {
        let mut workers = self.workers.iter_mut().enumerate();
        let next = workers.find_map(|(worker, sessions)| {
            sessions.emissions().reinject(|one| {
                let (packet, meta) = (VecPacket::with_room(one.frame, FRAME_ROOM), one.meta());
                meta.map(|meta| PendingPacket {
                    packet,
                    meta,
                    in_port: one.in_port,
                    worker,
                    is_in_chain: true,
                })
            })
        });
        let Some(made) = next else { return false };
        if let Ok(mut pending) = made {
            let next = self.process_chain(&mut pending, false);
            self.process_on_workers(pending, Some(next), processed);
        }
        true
    }

    /// Asserts that a packet that rules drop counts for exactly one of them, and no other packet does.
    fn check_decided(&self, before: u64, outcome: Outcome, meta: &Meta) {
        let counted = self.rules.decided_drops() - before;
        match outcome {
            // The rule that dropped the first fragment may be gone.
            Outcome::Dropped(DropReason::Rule) if meta.flags.contains(PacketFlags::FRAGMENT) => {
                assert!(counted <= 1, "{counted} rules dropped one fragment");
            }
            Outcome::Dropped(DropReason::Rule) | Outcome::Answered(_, DropReason::Rule) => {
                assert_eq!(counted, 1, "rules that dropped one packet")
            }
            _ => assert_eq!(counted, 0, "rules dropped a packet: {outcome:?}"),
        }
    }

    /// Processes a packet until it is sent or dropped, or waits. `next` is the outcome of its chain, if it
    /// was released there.
    fn process_on_workers(
        &mut self,
        mut pending: PendingPacket,
        mut next: Option<Next>,
        processed: &mut Vec<ProcessedPacket>,
    ) {
        let drops_before = self.rules.decided_drops();
        for _ in 0..Self::MAX_HANDOFFS {
            self.edits.clear();
            let worker = pending.worker;
            let next = next.take().unwrap_or_else(|| self.process_on_worker(&mut pending));
            let out = pending.meta.out_port;
            let reason = DropReason::from_number(pending.meta.drop_reason).unwrap_or(DropReason::Rule);
            let outcome = match next {
                Next::HandOff => {
                    pending.worker = usize::from(pending.meta.stage.worker());
                    continue;
                }
                Next::Hold => {
                    let ticket = pending.meta.stage.ticket();
                    match pending.is_in_chain {
                        true => drop(self.held_in_chains[worker].insert(ticket, pending)),
                        false => self.held[worker][ticket as usize] = Some(pending),
                    }
                    return;
                }
                Next::Pass => Outcome::Out(self.rules.out_port(pending.in_port)),
                Next::Send => Outcome::Out(out),
                Next::Edit => self.edit(&mut pending),
                Next::Drop => Outcome::Dropped(reason),
                Next::Consume => Outcome::Consumed,
                Next::Reply => Outcome::Answered(out, reason),
                Next::Relookup => continue,
                Next::PerPacketRules | Next::SlowPath | Next::Chain | Next::Forwarded => Outcome::Lost,
            };
            let outcome = match outcome {
                Outcome::Out(port) => {
                    Outcome::Out(self.egress_port(port, pending.packet.head(), &pending.meta))
                }
                other => other,
            };
            self.check_decided(drops_before, outcome, &pending.meta);
            let PendingPacket { packet, in_port, .. } = pending;
            return processed.push(ProcessedPacket { packet, in_port, outcome });
        }
        let PendingPacket { packet, in_port, .. } = pending;
        processed.push(ProcessedPacket { packet, in_port, outcome: Outcome::Lost });
    }

    /// Returns the egress port of a packet with this output port.
    fn egress_port(&self, port: u16, head: &[u8], meta: &Meta) -> u16 {
        self.rules.egress_port(port, || destination(head, meta))
    }

    /// Takes the frames that functions emitted.
    fn collect_emissions(&mut self, processed: &mut Vec<ProcessedPacket>) {
        let mut frames = Vec::new();
        for sessions in &mut self.workers {
            let emissions = sessions.emissions();
            for emission in emissions.iter() {
                let segments = segments_of(emission.frame, emission.segment_size).into_iter();
                let ports = (emission.in_port, emission.out_port);
                frames.extend(segments.map(|segment| (VecPacket::new(&segment), ports.0, ports.1)));
            }
            emissions.clear();
        }
        processed.extend(frames.into_iter().map(|(packet, in_port, port)| {
            let mut meta = Meta::default();
            let known = parse(packet.head(), packet.len(), &mut meta).is_ok();
            let port = if known { self.egress_port(port, packet.head(), &meta) } else { port };
            ProcessedPacket { packet, in_port, outcome: Outcome::Emitted(port) }
        }));
    }

    /// Processes a packet on its worker.
    fn process_on_worker(&mut self, pending: &mut PendingPacket) -> Next {
        match self.lookup(pending) {
            Next::Chain => {
                self.edit(pending);
                self.process_chain(pending, false)
            }
            next => next,
        }
    }

    /// Takes a packet through the chain of its session, or from behind the function that has released it.
    fn process_chain(&mut self, pending: &mut PendingPacket, is_released: bool) -> Next {
        pending.is_in_chain = true;
        let SessionHarness { workers, rules, now, .. } = self;
        let Some(sessions) = workers.get_mut(pending.worker) else { return Next::Chain };
        let mut next = [Next::Chain; VECTOR];
        let PendingPacket { packet, meta, in_port, .. } = pending;
        let bytes = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        let packets = &mut ChainBatch::from_iter([chain_packet(packet.head_mut(), meta, bytes, *in_port)]);
        match is_released {
            true => sessions.process_released(*now, rules, packets, &mut next),
            false => sessions.process_chain(*now, rules, packets, &mut next),
        };
        next[0]
    }

    fn lookup(&mut self, pending: &mut PendingPacket) -> Next {
        pending.is_in_chain = false;
        let SessionHarness { workers, rules, batch, edits, now, .. } = self;
        let Some(sessions) = workers.get_mut(pending.worker) else { return Next::SlowPath };
        let mut next = [Next::Pass; VECTOR];
        sessions.lookup(None, *now, rules, pending, edits, &mut next);
        if next[0] == Next::PerPacketRules {
            match_rules(rules, sessions, batch, pending, true);
            sessions.process_per_packet(*now, rules, pending, &batch.hits, edits, &mut next);
        }
        if next[0] != Next::SlowPath {
            return next[0];
        }
        match_rules(rules, sessions, batch, pending, false);
        let PendingPacket { packet, meta, in_port, .. } = pending;
        sessions.process_slow_path(*now, rules, packet, meta, *in_port, &batch.hits, edits)
    }

    /// Edits a packet. A packet that cannot be edited continues unchanged, as in the dataplane.
    fn edit(&self, pending: &mut PendingPacket) -> Outcome {
        let slots = self.edits.get(pending.meta.edits()).unwrap_or(&[]);
        let limits = EditLimits { frame_max: |_| usize::MAX };
        let _refused = self.rules.policy.edit(slots, &mut pending.packet, &mut pending.meta, limits);
        Outcome::Out(pending.meta.out_port)
    }

    /// Processes the packets that no longer wait, of all workers.
    fn process_released(&mut self, processed: &mut Vec<ProcessedPacket>) {
        while self.process_held(processed) || self.process_fragment(processed) {}
    }

    /// Processes a fragment that no longer waits. Returns false if there is none.
    fn process_fragment(&mut self, processed: &mut Vec<ProcessedPacket>) -> bool {
        let mut workers = self.workers.iter_mut().enumerate();
        let next = workers.find_map(|(worker, sessions)| Some((worker, sessions.next_released_fragment()?)));
        let Some((worker, released)) = next else { return false };
        let (ReleasedFragment::Retry(ticket) | ReleasedFragment::TimedOut(ticket)) = released;
        let pending = self.held[worker].get_mut(ticket as usize).and_then(Option::take);
        match (pending, released) {
            (Some(pending), ReleasedFragment::Retry(_)) => {
                self.process_on_workers(pending, None, processed);
            }
            (Some(PendingPacket { packet, in_port, .. }), ReleasedFragment::TimedOut(_)) => {
                let outcome = Outcome::Dropped(DropReason::FragmentLost);
                processed.push(ProcessedPacket { packet, in_port, outcome });
            }
            (None, _) => {}
        }
        true
    }

    /// Processes a packet that a function of a chain no longer holds. Returns false if there is none.
    fn process_held(&mut self, processed: &mut Vec<ProcessedPacket>) -> bool {
        let mut workers = self.workers.iter_mut().enumerate();
        let next = workers.find_map(|(worker, sessions)| Some((worker, sessions.next_held_event()?)));
        let Some((worker, event)) = next else { return false };
        let (HeldEvent::Released(ticket) | HeldEvent::Dropped(ticket, _)) = event;
        match (self.held_in_chains[worker].remove(&ticket), event) {
            (Some(mut pending), HeldEvent::Released(_)) => {
                let next = self.process_chain(&mut pending, true);
                self.process_on_workers(pending, Some(next), processed);
            }
            (Some(PendingPacket { packet, in_port, .. }), HeldEvent::Dropped(_, reason)) => {
                processed.push(ProcessedPacket { packet, in_port, outcome: Outcome::Dropped(reason) });
            }
            (None, _) => {}
        }
        true
    }
}

/// Finds the rules that match a packet, among all rules or among the rules for each packet.
fn match_rules(
    rules: &RuleSet,
    sessions: &Sessions,
    batch: &mut Batch,
    pending: &PendingPacket,
    per_packet: bool,
) {
    let PendingPacket { packet, meta, in_port, .. } = pending;
    let (policy, in_port) = (&rules.policy, *in_port);
    let mut out_port = rules.out_port(in_port);
    if policy.needs_out_port() {
        let to = sessions.effective_destination(rules, packet.head(), meta);
        out_port = rules.egress_port(out_port, || to.or_else(|| destination(packet.head(), meta)));
    }
    let classifier = policy.per_packet().filter(|_| per_packet).unwrap_or(policy.classifier());
    classifier.classify_one(batch, packet.head(), meta, [in_port, out_port]);
}

/// Returns the destination address of an IP packet.
fn destination(head: &[u8], meta: &Meta) -> Option<IpAddr> {
    let ip = head.get(usize::from(meta.l3_off)..)?;
    match meta.kind.l3() {
        Kind::IP4 => Some(IpAddr::from(*ip.get(16..)?.first_chunk::<4>()?)),
        Kind::IP6 => Some(IpAddr::from(*ip.get(24..)?.first_chunk::<16>()?)),
        _ => None,
    }
}
