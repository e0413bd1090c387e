//! `police`: drops packets, or refuses sessions, beyond a rate.
//!
//! Theory of operation. Each session, source, destination or pair of addresses, or the instance, has a token
//! bucket (the committed one of RFC 2697, color blind). It fills at RATE up to BURST. A packet takes the
//! length of its frame out of it, or one packet. A packet that finds too little is dropped and takes nothing.
//!
//! Packets of a session always come to the same worker, so the bucket of a session is its scratchpad. All
//! other buckets are shared by all workers ([`shared_buckets`]). A worker takes units for several packets at
//! once, and gives back what is left when the bucket changes and at the end of the vector. So what passes is
//! exact also with several workers.
//!
//! Sessions are tested when they are admitted, and counted when they open: a packet may be offered twice.

mod bucket;
mod config;
mod shared_buckets;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytemuck::{Pod, Zeroable};

use bucket::Filling;
use config::PoliceConfig;
use mmb_nf::{Admission, ArgError, Context, DropReason, Function, OpeningPacket, Packet, Properties};
use mmb_nf::{SessionInfo, SessionKey, Setup, Vector, Verdict, WorkerCounters};
use shared_buckets::{Scope, SharedBuckets};

/// Bytes of a burst from which on large frames are taken or dropped as they are: a burst of four of them.
/// With less, their segments have to be treated one by one.
const LEAST_BURST_OF_LARGE: u64 = 256 << 10;
/// Most packets for which a worker takes units at once.
const BLOCK: usize = 16;

/// See the module's documentation.
pub(crate) struct Police {
    config: PoliceConfig,
    filling: Filling,
    /// None: each session has its own.
    shared: Option<SharedBuckets>,
    /// Packets and bytes that were dropped.
    dropped: WorkerCounters<2>,
    /// Packets that opened no session.
    refused: AtomicU64,
}

/// What a rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Packets,
    Sessions,
}

/// A bucket, or where it is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Pad {
    /// The bucket of a session. If buckets are shared: the tag.
    word: u64,
    /// The slot that had the tag.
    slot: u32,
    unused: u32,
}

/// Units that a worker has taken out of a shared bucket and not used yet.
#[derive(Default)]
pub(crate) struct Taken {
    slot: u32,
    units: u64,
    /// Packets for which units are taken.
    packets: u64,
}

impl Function for Police {
    const TYPE: &'static str = "police";
    const USAGE: &'static str = "RATE [burst NUMBER] [per session|source|destination|pair|instance] \
         [forward|reverse]";
    const HELP: &'static str =
        "drops what exceeds bits, packets or new sessions per second, by token buckets";

    type Pad = Pad;
    type Local = Taken;

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let config = PoliceConfig::parse(setup.args)?;
        let is_shared = config.scope != Scope::Key(SessionKey::Session);
        Ok(Police {
            filling: config.filling(),
            shared: is_shared.then(|| SharedBuckets::new(config.scope, setup.seed)),
            config,
            dropped: WorkerCounters::new(setup.workers),
            refused: AtomicU64::new(0),
        })
    }

    fn properties(&self) -> Properties {
        let key = match self.config.scope {
            Scope::Key(key) if self.config.unit != Unit::Sessions => key,
            _ => SessionKey::Session,
        };
        let counts_sessions = self.config.unit == Unit::Sessions;
        let needs_worker = counts_sessions.then_some("counts sessions before they are opened");
        let takes_large_frames = match self.config.unit {
            Unit::Bytes => self.config.burst >= LEAST_BURST_OF_LARGE,
            Unit::Packets => false,
            Unit::Sessions => true,
        };
        Properties { key, needs_worker, is_read_only: true, takes_large_frames, ..Properties::default() }
    }

    fn admit(&self, packet: &mut OpeningPacket<'_>, _: &mut Taken) -> Admission {
        let Some(shared) = self.shared.as_ref().filter(|_| self.config.unit == Unit::Sessions) else {
            return Admission::Open;
        };
        let slot = shared.slot(shared.tag(packet.key), u32::MAX, packet.now, &self.filling).0;
        let word = slot.bucket.load(Relaxed);
        if self.filling.has(word, packet.now, self.filling.cost(self.config.unit.units(0))) {
            return Admission::Open;
        }
        self.refused.fetch_add(1, Relaxed);
        Admission::Drop(DropReason::Police)
    }

    fn open(&self, pad: &mut Pad, session: &SessionInfo, cx: &mut Context<'_, Taken>) {
        let Some(shared) = &self.shared else { return };
        if self.config.unit != Unit::Sessions {
            let tag = shared.tag(&session.key);
            *pad = Pad { word: tag, slot: shared.slot(tag, u32::MAX, cx.now, &self.filling).1, unused: 0 };
        } else if session.created == cx.now {
            let tag = shared.tag(&session.ingress_key);
            let slot = shared.slot(tag, u32::MAX, cx.now, &self.filling).0;
            self.filling.take_always(&slot.bucket, cx.now, self.filling.cost(self.config.unit.units(0)));
        }
    }

    #[inline(always)]
    fn packet(&self, packet: &mut Packet<'_>, pad: &mut Pad, cx: &mut Context<'_, Taken>) -> Verdict {
        if !self.config.direction.is(packet.direction) {
            return Verdict::Pass;
        }
        let cost = self.filling.cost(self.config.unit.units(packet.len));
        let passes = match &self.shared {
            None => {
                let taken;
                (pad.word, taken) = self.filling.take(pad.word, cx.now, cost, cost);
                taken >= cost
            }
            Some(shared) => self.take_shared(shared, pad, cost, cx),
        };
        if passes {
            return Verdict::Pass;
        }
        self.dropped.add(cx.worker, 0, 1);
        self.dropped.add(cx.worker, 1, u64::from(packet.len));
        Verdict::Drop(DropReason::Police)
    }

    fn vector(&self, vector: &mut Vector<'_, '_, Self>) {
        if self.config.unit == Unit::Sessions {
            return;
        }
        vector.local().packets = vector.len().min(BLOCK) as u64;
        vector.for_each(|packet, pad, cx| self.packet(packet, pad, cx));
        if let Some(shared) = &self.shared {
            self.give_back(shared, vector.local());
        }
    }

    fn report(&self) -> Vec<(String, String)> {
        let PoliceConfig { unit, rate, burst, .. } = self.config;
        let [packets, bytes] = [0, 1].map(|which| self.dropped.sum(which).to_string());
        let mut report = vec![
            ("rate".into(), format!("{rate} {}", unit.rate_name())),
            ("burst".into(), format!("{burst} {}", unit.name())),
        ];
        if unit == Unit::Sessions {
            report.push(("refused packets".into(), self.refused.load(Relaxed).to_string()));
        } else {
            report.extend([("dropped packets".into(), packets), ("dropped bytes".into(), bytes)]);
        }
        if let Some(collisions) = self.shared.as_ref().map(SharedBuckets::collisions).filter(|n| *n > 0) {
            report.push(("bucket collisions".into(), collisions.to_string()));
        }
        report
    }
}

impl Police {
    #[inline(always)]
    fn take_shared(
        &self,
        shared: &SharedBuckets,
        pad: &mut Pad,
        cost: u64,
        cx: &mut Context<'_, Taken>,
    ) -> bool {
        let slot;
        (slot, pad.slot) = shared.slot(pad.word, pad.slot, cx.now, &self.filling);
        if cx.local.slot != pad.slot || cx.local.units < cost {
            self.give_back(shared, cx.local);
            let most = cost * cx.local.packets;
            let units = self.filling.take_shared(&slot.bucket, cx.now, cost, most);
            (cx.local.slot, cx.local.units) = (pad.slot, units);
        }
        let passes = cx.local.units >= cost;
        cx.local.units -= if passes { cost } else { 0 };
        passes
    }

    /// Gives back what a worker has not used.
    #[inline(always)]
    fn give_back(&self, shared: &SharedBuckets, taken: &mut Taken) {
        if taken.units > 0 {
            shared.give_back(taken.slot, std::mem::take(&mut taken.units), &self.filling);
        }
    }
}

#[cfg(test)]
mod tests;
