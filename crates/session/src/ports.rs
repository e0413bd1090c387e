//! The choice of a translation whose replies no other session gets, and which come to this worker.
//!
//! Theory of operation. Addresses, and the destination's port, follow from the packet's key. The source port (a query's
//! identifier) is what makes translated sessions differ: a rule may name a set for it; else it stays if it can, and
//! another one is taken if another session has it, of the same parity if there is one (RFC 4787 REQ-4). Ports are tried
//! at random, which finds one quickly unless nearly all are in use, then one after the other. Where all were in use is
//! remembered for a moment ([`Exhausted`](crate::exhausted::Exhausted)).
//!
//! With several workers a reply has to come to this one. A port that may be chosen is chosen so. If it may not, or none
//! is left here, the worker that the replies come to opens the session; if that one has none left either, it gives the
//! packet back, to be translated to whatever there is here.

use mmb_flow::{Key, SessionId};
use mmb_packet::{DropReason, PacketBuf};
use mmb_policy::NumberSet;

use crate::Environment;
use crate::engine::{End, Sessions};
use crate::open::Refusal;
use crate::plan::{Plan, has_free_port, has_ports, hash_of, scaled};
use crate::slow::Call;

/// How many ports of the same parity, and then of any, are tried at random.
const PROBES: u32 = 32;
/// How many of a rule's addresses are tried.
const ADDRESSES: u128 = 4;

/// The ports that may be taken.
#[derive(Clone, Copy)]
enum Ports<'a> {
    Range(u16, u16),
    Set(&'a NumberSet),
}

impl Ports<'_> {
    /// Those that may stand for a port that no rule speaks of: well-known ones for well-known ones (RFC 4787 REQ-3 a).
    fn instead_of(key: &Key) -> Ports<'static> {
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

    fn nth(&self, place: u32) -> u16 {
        match self {
            Ports::Range(low, _) => low.wrapping_add(place as u16),
            Ports::Set(values) => values.nth(u128::from(place)).unwrap_or(0) as u16,
        }
    }

    fn contains(&self, port: u16) -> bool {
        match self {
            Ports::Range(low, high) => (*low..=*high).contains(&port),
            Ports::Set(values) => values.contains(u128::from(port)),
        }
    }
}

/// What speaks against a port.
enum Against {
    /// Another session gets the replies.
    Taken,
    /// Another worker does.
    Elsewhere(u16),
}

impl Sessions {
    /// The reverse key of a session with this key that is to be translated by the plan (but not out of a pool).
    pub(crate) fn choose<H: Environment, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        key: &Key,
        plan: &Plan<'_>,
    ) -> Result<Key, Refusal> {
        let attempts = plan.source.len().max(plan.destination.len()).min(ADDRESSES) as u64;
        let mut refusal = Refusal::Drop(DropReason::NatExhausted);
        for attempt in 0..attempts {
            let to = plan.target(key, self.config.seed, attempt);
            match self.choose_port(call, key, plan, to) {
                Err(Refusal::Tell(reason, source)) => refusal = Refusal::Tell(reason, source),
                chosen => return chosen,
            }
        }
        Err(refusal)
    }

    fn choose_port<H: Environment, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        key: &Key,
        plan: &Plan<'_>,
        to: Key,
    ) -> Result<Key, Refusal> {
        let full = Refusal::Tell(
            DropReason::NatExhausted,
            if to.source == key.source { key.destination } else { to.source },
        );
        let choice = plan.source_port.filter(|_| has_ports(key));
        let ports = choice.map_or_else(|| Ports::instead_of(key), |choice| Ports::Set(&choice.values));
        let old = u16::from_be_bytes(key.source_port);
        let first = match choice {
            Some(choice) if choice.random => None,
            Some(_) if !ports.contains(old) => {
                Some(ports.nth(scaled(hash_of(key, self.config.seed), u128::from(ports.len())) as u32))
            }
            _ => Some(old),
        };
        let free = has_free_port(key) && ports.len() > 1;
        // Workers need not agree on what a function wishes: where the packet was handed to, it stays.
        let may_hand = self.may_hand(key, call.meta.flags) && !(plan.wished && call.is_handed());
        let mut elsewhere = None;
        if let Some(first) = first {
            match self.try_port(call, &to, first) {
                Ok(reverse) => return Ok(reverse),
                Err(Against::Elsewhere(worker)) if !free || choice.is_none() => elsewhere = Some(worker),
                Err(_) => {}
            }
        }
        // Where no rule lets choose, a port is kept rather than the worker.
        if free && (elsewhere.is_none() || !may_hand) {
            match self.search(call, &to, ports, choice.is_none_or(|choice| !choice.random).then_some(old)) {
                Ok(reverse) => return Ok(reverse),
                Err(other) => elsewhere = other,
            }
        }
        match elsewhere {
            Some(worker) if may_hand => Err(Refusal::Elsewhere(worker)),
            _ if self.config.workers > 1 && !self.is_home(key) => Err(Refusal::Back(self.home(key))),
            _ => Err(full),
        }
    }

    /// A port out of many, preferably of the parity of `like`. The error is a worker that may have one.
    fn search<H: Environment, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        to: &Key,
        ports: Ports<'_>,
        like: Option<u16>,
    ) -> Result<Key, Option<u16>> {
        let place = hash_of(&Key { source_port: [0; 2], ..*to }, u64::from(ports.nth(0)));
        // Some port or other always belongs to the next worker.
        let mut elsewhere = (self.config.workers > 1).then(|| (self.config.worker + 1) % self.config.workers);
        if self.exhausted.is(place, call.now) {
            return Err(elsewhere);
        }
        let mut attempt = |sessions: &mut Sessions, port: u16| match sessions.try_port(call, to, port) {
            Ok(reverse) => Some(reverse),
            Err(Against::Elsewhere(worker)) => {
                elsewhere = Some(worker);
                None
            }
            Err(Against::Taken) => None,
        };
        for probe in 0..2 * PROBES {
            let mut port = ports.nth(self.random.below(ports.len()));
            if let Some(like) = like.filter(|_| probe < PROBES) {
                port = port & !1 | like & 1;
            }
            if ports.contains(port)
                && let Some(reverse) = attempt(self, port)
            {
                return Ok(reverse);
            }
        }
        let start = self.random.below(ports.len());
        for step in 0..ports.len() {
            if let Some(reverse) = attempt(self, ports.nth((start + step) % ports.len())) {
                return Ok(reverse);
            }
        }
        self.exhausted.add(place, call.now);
        Err(elsewhere)
    }

    /// The reverse key with this source port, if it can be had.
    fn try_port<H: Environment, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        to: &Key,
        port: u16,
    ) -> Result<Key, Against> {
        let reverse = Key { source_port: port.to_be_bytes(), ..*to }.reversed();
        if self.config.workers > 1 {
            let home = self.home(&reverse);
            if home != self.config.worker {
                return Err(Against::Elsewhere(home));
            }
        }
        let found = self.table.find(&reverse);
        if !found.is_some() {
            return Ok(reverse);
        }
        let holder: SessionId = found.session();
        self.settle_loans(call.now, holder, call.host);
        if self.lives_until(holder, call.now).is_some() {
            return Err(Against::Taken);
        }
        self.end(holder, End::Expired, call.host);
        Ok(reverse)
    }
}
