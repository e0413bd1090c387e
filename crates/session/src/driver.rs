//! A driver that takes single packets through sessions and rules: for tests, fuzzing and offline tools.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use mmb_flow::{NatConfig, SessionSettings};
use mmb_nf::Program;
use mmb_packet::{DropReason, Kind, Meta, OUT_ROUTED, PacketBuf, VecPacket, fill_window, parse};
use mmb_policy::{Batch, EditLimits, Policy, VECTOR};

use crate::{Environment, Next, Packets, ReleasedFragment, SessionConfig, Sessions, chain_packet};

/// The routed ports, and the port by which a destination is reached. By default no port is routed.
#[derive(Clone, Default)]
struct Routing {
    ports: Vec<u16>,
    route: Option<Arc<dyn Fn(IpAddr) -> Option<u16> + Send + Sync>>,
}

impl fmt::Debug for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ports.fmt(f)
    }
}

/// Rules, pools and settings as values, for wires between ports 0 and 1, 2 and 3, and so on, unless they are
/// routed.
#[derive(Debug, Default)]
pub struct Rules {
    /// The rules.
    pub policy: Policy,
    /// Pools and forwards.
    pub nat: Arc<NatConfig>,
    /// The tracker's settings.
    pub settings: SessionSettings,
    /// The service chains that rules name.
    pub chains: Arc<Program>,
    routing: Routing,
    /// Packets and bytes by slot.
    counts: RefCell<Vec<(u64, u64)>>,
}

impl Rules {
    /// Rules that have counted nothing.
    pub fn new(policy: Policy, nat: NatConfig, settings: SessionSettings) -> Rules {
        Rules {
            policy,
            nat: Arc::new(nat),
            settings,
            chains: Arc::default(),
            routing: Routing::default(),
            counts: RefCell::default(),
        }
    }

    /// Bytes that the scratchpads of a [`Driver`] have for functions of chains.
    pub const SCRATCHPAD: usize = 256;

    /// The same with routed ports, and the port by which an address is reached. Frames keep their Ethernet
    /// addresses and their time to live: what routing does to them is not this crate's.
    pub fn routed(
        self,
        ports: &[u16],
        route: impl Fn(IpAddr) -> Option<u16> + Send + Sync + 'static,
    ) -> Rules {
        Rules { routing: Routing { ports: ports.to_vec(), route: Some(Arc::new(route)) }, ..self }
    }

    /// The port by which a packet leaves that goes on as it is, or that routing decides about: what `out` is
    /// compared with. 0xffff if there is no route.
    fn way_out(&self, out_port: u16, to: impl FnOnce() -> Option<IpAddr>) -> u16 {
        match &self.routing.route {
            Some(route) if out_port == OUT_ROUTED => to().and_then(|to| route(to)).unwrap_or(u16::MAX),
            _ => out_port,
        }
    }

    /// Packets and bytes that the rule in a slot has matched, as far as they have been given to it.
    pub fn counts(&self, slot: u32) -> (u64, u64) {
        self.counts.borrow().get(slot as usize).copied().unwrap_or_default()
    }
}

impl Environment for Rules {
    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn nat(&self) -> &Arc<NatConfig> {
        &self.nat
    }

    fn chains(&self) -> &Arc<Program> {
        &self.chains
    }

    fn settings(&self) -> SessionSettings {
        self.settings
    }

    fn out_port(&self, in_port: u16) -> u16 {
        if self.routed(in_port) { OUT_ROUTED } else { in_port ^ 1 }
    }

    fn routed(&self, in_port: u16) -> bool {
        self.routing.ports.contains(&in_port)
    }

    fn count(&self, slot: u32, packets: u32, bytes: u64) {
        let mut counts = self.counts.borrow_mut();
        let at = slot as usize;
        if at >= counts.len() {
            counts.resize(at + 1, (0, 0));
        }
        counts[at].0 += u64::from(packets);
        counts[at].1 += bytes;
    }
}

/// The outcome of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It goes out by this port; 0xffff: there is no route for it.
    Out(u16),
    /// It is dropped.
    Dropped(DropReason),
    /// It is dropped for that, and the ICMP error that it has become, or a function's answer, goes out by
    /// this port.
    Answered(u16, DropReason),
    /// It is a frame that a function has made, and goes out by this port.
    Emitted(u16),
    /// Its session belongs to another worker than there is: never, unless workers disagree for ever.
    Lost,
}

/// A packet that is done with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// As it has become; if it is dropped, whatever was done until then.
    pub packet: VecPacket,
    /// The port by which it came in; of what a function has made: by which the packet did that made it do so.
    pub in_port: u16,
    /// What became of it.
    pub outcome: Outcome,
}

/// A packet on its way.
#[derive(Clone, Debug)]
struct Traveller {
    packet: VecPacket,
    meta: Meta,
    in_port: u16,
    worker: usize,
}

impl Packets for Traveller {
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

/// Some workers' sessions, and everything around them, in one thread.
#[derive(Debug)]
pub struct Driver {
    workers: Vec<Sessions>,
    rules: Rules,
    batch: Batch,
    edits: Vec<u32>,
    /// By worker and ticket.
    held: Vec<Vec<Option<Traveller>>>,
    now: u32,
}

impl Driver {
    /// Hand-overs after which a packet is given up.
    const MOST_HOPS: u32 = 8;

    /// `workers` workers with room for so many sessions each.
    ///
    /// # Errors
    /// As [`Sessions::new`].
    pub fn new(workers: u16, sessions: usize, seed: u64, rules: Rules) -> io::Result<Driver> {
        let config =
            |worker| SessionConfig { sessions, worker, workers, seed, scratchpad: Rules::SCRATCHPAD };
        let mut all =
            (0..workers).map(|worker| Sessions::new(config(worker))).collect::<io::Result<Vec<_>>>()?;
        all.iter_mut().for_each(|sessions| sessions.adopt(&rules, &rules));
        let held = vec![vec![None; Sessions::TICKETS]; all.len()];
        Ok(Driver { workers: all, rules, batch: Batch::new(), edits: Vec::new(), held, now: 0 })
    }

    /// The sessions of each worker.
    pub fn workers(&self) -> &[Sessions] {
        &self.workers
    }

    /// The sessions of each worker, mutable, and the rules in force.
    pub fn workers_mut(&mut self) -> (&mut [Sessions], &Rules) {
        (&mut self.workers, &self.rules)
    }

    /// The rules in force.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Puts other rules in force. Returns the previous rules, with complete counts.
    pub fn change(&mut self, rules: Rules) -> Rules {
        for sessions in &mut self.workers {
            sessions.adopt(&self.rules, &rules);
        }
        std::mem::replace(&mut self.rules, rules)
    }

    /// Adds what was counted to the counters of the rules.
    pub fn flush(&mut self) {
        self.workers.iter_mut().for_each(|sessions| sessions.flush(&self.rules));
    }

    /// Lets time pass: what is over ends. The fragments that waited in vain are returned.
    pub fn pass(&mut self, now: u32) -> Vec<Sent> {
        self.now = now;
        let mut sent = Vec::new();
        for sessions in &mut self.workers {
            while sessions.tick(now, &self.rules, 1000) {}
        }
        self.redeem(&mut sent);
        self.collect(&mut sent);
        sent
    }

    /// Sends a packet in by a port, and returns what is done with: mostly this packet, but none if it waits,
    /// and more if others waited for it, or functions of chains made some.
    pub fn run(&mut self, in_port: u16, packet: VecPacket) -> Vec<Sent> {
        let mut meta = Meta::default();
        let parsed = parse(packet.head(), packet.len(), &mut meta);
        let done = |outcome, packet| vec![Sent { packet, in_port, outcome }];
        match parsed {
            Err(reason) => return done(Outcome::Dropped(reason), packet),
            Ok(()) if meta.kind == Kind::default() => {
                return done(Outcome::Out(self.rules.out_port(in_port)), packet);
            }
            Ok(()) => {}
        }
        let worker = ((u64::from(meta.flow_hash) * self.workers.len() as u64) >> 32) as usize;
        let mut sent = Vec::new();
        self.travel(Traveller { packet, meta, in_port, worker }, &mut sent);
        self.collect(&mut sent);
        sent
    }

    fn travel(&mut self, mut traveller: Traveller, sent: &mut Vec<Sent>) {
        for _ in 0..Self::MOST_HOPS {
            self.edits.clear();
            let worker = traveller.worker;
            let next = self.step(&mut traveller);
            let out = traveller.meta.out_port;
            let reason = DropReason::from_number(traveller.meta.drop_reason).unwrap_or(DropReason::Rule);
            let outcome = match next {
                Next::HandOff => {
                    traveller.worker = usize::from(traveller.meta.stage.worker());
                    continue;
                }
                Next::Hold => {
                    let ticket = traveller.meta.stage.ticket() as usize;
                    self.held[worker][ticket] = Some(traveller);
                    return self.redeem(sent);
                }
                Next::Pass => Outcome::Out(self.rules.out_port(traveller.in_port)),
                Next::Send => Outcome::Out(out),
                Next::Edit => self.edit(&mut traveller),
                Next::Drop => Outcome::Dropped(reason),
                Next::Reply => Outcome::Answered(out, reason),
                Next::Relookup => continue,
                Next::PerPacketRules | Next::SlowPath | Next::Chain | Next::Forwarded => Outcome::Lost,
            };
            let outcome = match outcome {
                Outcome::Out(port) => {
                    Outcome::Out(self.by_route(port, traveller.packet.head(), &traveller.meta))
                }
                other => other,
            };
            let Traveller { packet, in_port, .. } = traveller;
            sent.push(Sent { packet, in_port, outcome });
            return self.redeem(sent);
        }
        let Traveller { packet, in_port, .. } = traveller;
        sent.push(Sent { packet, in_port, outcome: Outcome::Lost });
    }

    /// The port by which a packet leaves that is for this one, or to be routed.
    fn by_route(&self, port: u16, head: &[u8], meta: &Meta) -> u16 {
        self.rules.way_out(port, || destination(head, meta))
    }

    /// Takes the frames that functions have made.
    fn collect(&mut self, sent: &mut Vec<Sent>) {
        let mut frames = Vec::new();
        for sessions in &mut self.workers {
            let emissions = sessions.emissions();
            let some = emissions.iter().map(|made| (VecPacket::new(made.frame), made.in_port, made.out_port));
            frames.extend(some);
            emissions.clear();
        }
        sent.extend(frames.into_iter().map(|(packet, in_port, port)| {
            let mut meta = Meta::default();
            let known = parse(packet.head(), packet.len(), &mut meta).is_ok();
            let port = if known { self.by_route(port, packet.head(), &meta) } else { port };
            Sent { packet, in_port, outcome: Outcome::Emitted(port) }
        }));
    }

    /// One worker's part of the way.
    fn step(&mut self, traveller: &mut Traveller) -> Next {
        match self.look_up(traveller) {
            Next::Chain => self.chain(traveller),
            next => next,
        }
    }

    /// A packet in its session's chain.
    fn chain(&mut self, traveller: &mut Traveller) -> Next {
        self.edit(traveller);
        let Driver { workers, rules, now, .. } = self;
        let Some(sessions) = workers.get_mut(traveller.worker) else { return Next::Chain };
        let mut next = [Next::Chain; VECTOR];
        let Traveller { packet, meta, in_port, .. } = traveller;
        let bytes = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        sessions.process_chain(
            *now,
            rules,
            &mut [chain_packet(packet.head_mut(), meta, bytes, *in_port)],
            &mut next,
        );
        next[0]
    }

    fn look_up(&mut self, traveller: &mut Traveller) -> Next {
        let Driver { workers, rules, batch, edits, now, .. } = self;
        let Some(sessions) = workers.get_mut(traveller.worker) else { return Next::SlowPath };
        let mut next = [Next::Pass; VECTOR];
        sessions.lookup(None, *now, rules, traveller, edits, &mut next);
        if next[0] == Next::PerPacketRules {
            find_rules(rules, sessions, batch, traveller, true);
            sessions.process_per_packet(*now, rules, traveller, &batch.hits, edits, &mut next);
        }
        if next[0] != Next::SlowPath {
            return next[0];
        }
        find_rules(rules, sessions, batch, traveller, false);
        let Traveller { packet, meta, in_port, .. } = traveller;
        sessions.process_slow_path(*now, rules, packet, meta, *in_port, &batch.hits, edits)
    }

    /// As the dataplane does: what cannot be edited goes on as it is.
    fn edit(&self, traveller: &mut Traveller) -> Outcome {
        let slots = self.edits.get(traveller.meta.edits()).unwrap_or(&[]);
        let limits = EditLimits { frame_max: |_| usize::MAX };
        let _refused = self.rules.policy.edit(slots, &mut traveller.packet, &mut traveller.meta, limits);
        Outcome::Out(traveller.meta.out_port)
    }

    /// Sends on what waits no longer, with whatever worker.
    fn redeem(&mut self, sent: &mut Vec<Sent>) {
        let next = |workers: &mut Vec<Sessions>| {
            workers
                .iter_mut()
                .enumerate()
                .find_map(|(worker, sessions)| Some((worker, sessions.next_released_fragment()?)))
        };
        while let Some((worker, ticket)) = next(&mut self.workers) {
            let (ReleasedFragment::Retry(number) | ReleasedFragment::TimedOut(number)) = ticket;
            let Some(traveller) = self.held[worker].get_mut(number as usize).and_then(Option::take) else {
                continue;
            };
            match ticket {
                ReleasedFragment::Retry(_) => self.travel(traveller, sent),
                ReleasedFragment::TimedOut(_) => {
                    let outcome = Outcome::Dropped(DropReason::FragmentLost);
                    let Traveller { packet, in_port, .. } = traveller;
                    sent.push(Sent { packet, in_port, outcome });
                }
            }
        }
    }
}

/// Finds the rules that match a packet: all of them, or those that look at each packet.
fn find_rules(
    rules: &Rules,
    sessions: &Sessions,
    batch: &mut Batch,
    traveller: &Traveller,
    per_packet: bool,
) {
    let Traveller { packet, meta, in_port, .. } = traveller;
    let (policy, in_port) = (&rules.policy, *in_port);
    let mut out_port = rules.out_port(in_port);
    if policy.needs_out_port() {
        let to = sessions.effective_destination(rules, packet.head(), meta);
        out_port = rules.way_out(out_port, || to.or_else(|| destination(packet.head(), meta)));
    }
    batch.len = 1;
    match policy.per_packet().filter(|_| per_packet) {
        Some(part) => {
            fill_window(packet.head(), meta, in_port, out_port, part.chunks(), &mut batch.windows[0]);
            if part.needs_bytes() {
                part.inspect(batch, 0, packet.head(), meta);
            }
            part.classify(batch);
        }
        None => {
            fill_window(packet.head(), meta, in_port, out_port, policy.chunks(), &mut batch.windows[0]);
            if policy.needs_bytes() {
                policy.inspect(batch, 0, packet.head(), meta);
            }
            policy.classify(batch);
        }
    }
}

/// The destination address of an IP packet.
fn destination(head: &[u8], meta: &Meta) -> Option<IpAddr> {
    let ip = head.get(usize::from(meta.l3_off)..)?;
    match meta.kind.l3() {
        Kind::IP4 => Some(IpAddr::from(*ip.get(16..)?.first_chunk::<4>()?)),
        Kind::IP6 => Some(IpAddr::from(*ip.get(24..)?.first_chunk::<16>()?)),
        _ => None,
    }
}
