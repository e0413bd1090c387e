//! Choosing a translation whose replies belong to no other session and come to this worker.
//!
//! Theory of operation. Addresses and the destination port follow from the packet's key. The source port (or
//! the identifier of a query) distinguishes translated sessions. A rule may name a set of ports. Otherwise
//! the port stays if it can; if another session has it, a port of the same parity is preferred (RFC 4787,
//! REQ-4). Ports are tried at random, which soon finds a free one unless nearly all are in use, and then one
//! after the other. Targets without a free port are remembered for a short time ([`super::exhausted`]).
//!
//! With several workers, replies must come to this worker. A port that may be chosen is chosen accordingly.
//! If the port is fixed, or no port is free here, the worker to which replies come opens the session. If that
//! worker has no free port either, it returns the packet, which is then translated to whatever port is free
//! here.

use mmb_flow::{Key, SessionId};
use mmb_packet::{DropReason, PacketBuf};
use mmb_policy::NumberSet;
use rand::Rng;

use super::exhausted::ExhaustedTargets;
use super::opener::Opener;
use super::plan::{TranslationPlan, has_free_port, has_ports};
use super::refusal::Refusal;
use crate::Environment;
use crate::hash::{Purpose, hash_key, scale};
use crate::lifetime::EndReason;
use crate::slow_path::packet::SlowPacket;
use crate::store::SessionStore;

/// Ports of the same parity, and then of any parity, that are tried at random.
const RANDOM_TRIES: u32 = 32;
/// Addresses of a rule that are tried.
const MAX_ADDRESSES: u128 = 4;

/// The ports to choose from.
#[derive(Clone, Copy)]
enum Ports<'a> {
    Range(u16, u16),
    Set(&'a NumberSet),
}

impl Ports<'_> {
    /// Returns the ports that may replace a port without rule: well-known ports replace well-known ports (RFC
    /// 4787, REQ-3 a).
    fn replacing(key: &Key) -> Ports<'static> {
        match u16::from_be_bytes(key.source_port) {
            _ if !has_ports(key) => Ports::Range(0, u16::MAX),
            0..1024 => Ports::Range(1, 1023),
            _ => Ports::Range(1024, u16::MAX),
        }
    }

    fn len(&self) -> u32 {
        match self {
            Ports::Range(low, high) => u32::from(high - low) + 1,
            Ports::Set(values) => values.len().min(1 << 16) as u32,
        }
    }

    fn nth(&self, n: u32) -> u16 {
        match self {
            Ports::Range(low, _) => low.wrapping_add(n as u16),
            Ports::Set(values) => values.nth(u128::from(n)).unwrap_or(0) as u16,
        }
    }

    fn contains(&self, port: u16) -> bool {
        match self {
            Ports::Range(low, high) => (*low..=*high).contains(&port),
            Ports::Set(values) => values.contains(u128::from(port)),
        }
    }
}

/// Why a port cannot be used.
enum PortConflict {
    /// Replies belong to another session.
    InUse,
    /// Replies come to another worker.
    OtherWorker(u16),
}

/// Finds free ports.
#[derive(Debug, Default)]
pub(super) struct PortSearch {
    exhausted: ExhaustedTargets,
}

impl PortSearch {
    /// Searches a port for which `try_port` returns something: first at random, preferably of the parity of
    /// `like`, then one after the other. If there is none, nothing is tried for this `target` for a while.
    /// `now`: milliseconds.
    fn find<R>(
        &mut self,
        target: u64,
        now: u32,
        random: &mut impl Rng,
        (ports, like): (Ports<'_>, Option<u16>),
        mut try_port: impl FnMut(u16) -> Option<R>,
    ) -> Option<R> {
        if self.exhausted.contains(target, now) {
            return None;
        }
        for n in 0..2 * RANDOM_TRIES {
            let mut port = ports.nth(random.random_range(..ports.len()));
            if let Some(like) = like.filter(|_| n < RANDOM_TRIES) {
                port = port & !1 | like & 1;
            }
            if ports.contains(port)
                && let Some(found) = try_port(port)
            {
                return Some(found);
            }
        }
        let start = random.random_range(..ports.len());
        let found = (0..ports.len()).find_map(|step| try_port(ports.nth((start + step) % ports.len())));
        if found.is_none() {
            self.exhausted.insert(target, now);
        }
        found
    }
}

impl Opener {
    /// Returns the reverse key of a session with this key that is translated by the plan, but not by a pool.
    pub(super) fn choose_reverse<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &SlowPacket<'_, E, P>,
        key: &Key,
        plan: &TranslationPlan<'_>,
    ) -> Result<Key, Refusal> {
        let attempts = plan.source.len().max(plan.destination.len()).min(MAX_ADDRESSES) as u64;
        let mut refusal = Refusal::Drop(DropReason::NatExhausted);
        for attempt in 0..attempts {
            let to = plan.target(key, store.config.seed, attempt);
            match self.choose_port(store, pkt, key, plan, to) {
                Err(Refusal::Reject(reason, source)) => refusal = Refusal::Reject(reason, source),
                chosen => return chosen,
            }
        }
        Err(refusal)
    }

    /// Chooses the source port for a session whose packets go to `to`. Returns the reverse key.
    fn choose_port<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &SlowPacket<'_, E, P>,
        key: &Key,
        plan: &TranslationPlan<'_>,
        to: Key,
    ) -> Result<Key, Refusal> {
        let reject_from = if to.source == key.source { key.destination } else { to.source };
        let choice = plan.source_port.filter(|_| has_ports(key));
        let ports = choice.map_or_else(|| Ports::replacing(key), |choice| Ports::Set(&choice.values));
        let old = u16::from_be_bytes(key.source_port);
        let first = match choice {
            Some(choice) if choice.random => None,
            Some(_) if !ports.contains(old) => Some(
                ports
                    .nth(scale(hash_key(key, store.config.seed, Purpose::Choice), u128::from(ports.len()))
                        as u32),
            ),
            _ => Some(old),
        };
        let can_choose = has_free_port(key) && ports.len() > 1;
        // Functions of another worker may request another destination: a packet that was handed off stays.
        let can_hand_off =
            store.config.can_hand_off(key, pkt.meta.flags) && !(plan.is_requested && pkt.is_handed());
        let mut other_worker = None;
        if let Some(first) = first {
            match try_port(store, pkt, &to, first) {
                Ok(reverse) => return Ok(reverse),
                Err(PortConflict::OtherWorker(worker)) if !can_choose || choice.is_none() => {
                    other_worker = Some(worker);
                }
                Err(_) => {}
            }
        }
        // Without a rule about ports, keeping the port is preferred to keeping the worker.
        if can_choose && (other_worker.is_none() || !can_hand_off) {
            let like = choice.is_none_or(|choice| !choice.random).then_some(old);
            match self.search_port(store, pkt, &to, ports, like) {
                Ok(reverse) => return Ok(reverse),
                Err(other) => other_worker = other,
            }
        }
        match other_worker {
            Some(worker) if can_hand_off => Err(Refusal::HandOff(worker)),
            _ if store.config.workers > 1 && !store.config.is_home(key) => {
                Err(Refusal::Return(store.config.home_worker(key)))
            }
            _ => Err(Refusal::Reject(DropReason::NatExhausted, reject_from)),
        }
    }

    /// Searches a free port, preferably of the parity of `like`. The error is a worker that may have a free
    /// port.
    fn search_port<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &SlowPacket<'_, E, P>,
        to: &Key,
        ports: Ports<'_>,
        like: Option<u16>,
    ) -> Result<Key, Option<u16>> {
        let target = hash_key(&Key { source_port: [0; 2], ..*to }, u64::from(ports.nth(0)), Purpose::Choice);
        // Every worker has some of the ports, the next worker too.
        let workers = store.config.workers;
        let mut other_worker = (workers > 1).then(|| (store.config.worker + 1) % workers);
        let try_port = |port: u16| match try_port(store, pkt, to, port) {
            Ok(reverse) => Some(reverse),
            Err(PortConflict::OtherWorker(worker)) => {
                other_worker = Some(worker);
                None
            }
            Err(PortConflict::InUse) => None,
        };
        let found = self.ports.find(target, pkt.now, &mut self.values.random, (ports, like), try_port);
        found.ok_or(other_worker)
    }
}

/// Returns the reverse key with this source port, if the port can be used.
fn try_port<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &SlowPacket<'_, E, P>,
    to: &Key,
    port: u16,
) -> Result<Key, PortConflict> {
    let reverse = Key { source_port: port.to_be_bytes(), ..*to }.reversed();
    if store.config.workers > 1 {
        let home = store.config.home_worker(&reverse);
        if home != store.config.worker {
            return Err(PortConflict::OtherWorker(home));
        }
    }
    let flow = store.table.find(&reverse);
    if !flow.is_some() {
        return Ok(reverse);
    }
    let holder: SessionId = flow.session();
    store.collect(pkt.now, holder, pkt.env);
    if store.deadline(holder, pkt.now).is_some() {
        return Err(PortConflict::InUse);
    }
    store.end(holder, EndReason::Expired, pkt.env);
    Ok(reverse)
}

#[cfg(test)]
mod tests;
