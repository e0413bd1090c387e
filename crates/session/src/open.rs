//! Packets of no session: some open one.
//!
//! Theory of operation. Rules judge first: what is dropped opens nothing. Then NAT is asked about packets to its
//! addresses, unless a rule translates their source first (an inside host that turns to another one by its external
//! address). Then the stateful rules that match are asked what they give to the session ([`Plan`]), and a translation is
//! found whose replies no other session gets, and which come to this worker ([`crate::ports`]). If there is none here
//! but may be with another worker, the packet is handed to that one, and a note of it is left for those behind it.
//! At last the session is entered, and gets its rules, its decision and its translation.

use mmb_flow::{
    Complaint, Direction, Found, Half, InsertError, Inside, Key, Mangle, MappingId, NatConfig, NatError,
    PoolId, Refused, Seen, SessionId, Track, Traffic, Xlat4, answer, half_flags,
};
use mmb_packet::{DropReason, PacketBuf, flags};
use mmb_policy::Policy;

use crate::attached::{self, Attached};
use crate::engine::{End, Sessions, session_flags};
use crate::plan::{NewAddress, Plan, wide};
use crate::related::is_pool;
use crate::slow::Call;
use crate::{Host, Next};

/// For how long it is remembered that packets go to another worker, after the last one. Milliseconds.
pub(crate) const REDIRECT_LIFE: u32 = 120_000;

/// Why there is no session here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Drop(DropReason),
    /// It is another worker's to open.
    Elsewhere(u16),
    /// It was given by this worker, which may do without what there is not here.
    Back(u16),
    /// The sender is told that it cannot be translated, by this address.
    Tell(DropReason, [u8; 16]),
}

impl From<DropReason> for Refusal {
    fn from(reason: DropReason) -> Refusal {
        Refusal::Drop(reason)
    }
}

/// The key of a session that a pool translates as the pool is to see it: whom the host really talks to is what filtering
/// goes by, where rules translate the destination as well.
pub(crate) fn as_nat_sees(key: &Key, to: &Key) -> Key {
    Key { destination: to.destination, destination_port: to.destination_port, ..*key }
}

/// Why a session that was not entered is not there.
fn refused(error: InsertError) -> DropReason {
    match error {
        InsertError::Taken(_) => DropReason::NatExhausted,
        InsertError::Full | InsertError::Crowded => DropReason::SessionFull,
    }
}

/// Says how packets of a direction get from one key to another: simply, if no more than these `moves`.
fn translate_half(half: &mut Half, from: &Key, to: &Key, moves: bool) {
    match Xlat4::between(from, to).filter(|_| moves) {
        Some(xlat) => half.set_xlat4(&xlat),
        None => half.flags |= half_flags::XLAT_SLOW,
    }
}

/// A session to be.
struct Fresh {
    reverse: Key,
    mapping: Option<MappingId>,
    track: Track,
    seen: Seen,
    acks: [u32; 2],
    flags: u8,
    mangle: Option<(Mangle, u32)>,
}

impl Sessions {
    /// A packet of no session.
    pub(crate) fn unknown<H: Host, P: PacketBuf>(&mut self, call: &mut Call<'_, H, P>, key: &Key) -> Next {
        let policy = call.host.policy();
        let (mut opens, mut binds) = (false, false);
        for hit in call.hits {
            let traits = policy.traits(hit.slot);
            opens |= traits.opens();
            binds |= traits.opens() && traits.binds;
        }
        let for_nat = call.host.nat().claims(key);
        if call.is_looped() && !for_nat {
            return call.drop(DropReason::NatUnmapped);
        }
        if for_nat && !binds {
            return self.arrive(call, key);
        }
        if for_nat && !call.is_looped() && !call.came_back() {
            // It may be a reply from one host inside to another one, whose session is with the worker that has the port.
            let owner = call.host.nat().owner_of(key, usize::from(self.config.workers)) as u16;
            if owner != self.config.worker && self.may_hand(key, call.meta.flags) {
                return self.opened(call, key, Err(Refusal::Elsewhere(owner)));
            }
        }
        if for_nat && !call.is_looped() && call.host.routed(call.in_port) && self.is_unmapped(call.host, key)
        {
            // Where routes are, the address may be the machine's own as well: the packet must stay as its sender made it.
            return self.arrive(call, key);
        }
        if let Some(worker) = self.forwards_elsewhere(call, key) {
            return self.opened(call, key, Err(Refusal::Elsewhere(worker)));
        }
        if !opens {
            return self.stateless(call);
        }
        if self.judge(call.host, 0, call.hits, call.bytes(), call.edits) {
            return call.drop(DropReason::Rule);
        }
        let opened = self.open(call, key, for_nat);
        self.opened(call, key, opened)
    }

    /// Whether a packet to an address of NAT's is for nobody inside, as far as this worker can tell.
    fn is_unmapped<H: Host>(&self, host: &H, key: &Key) -> bool {
        let owner = host.nat().owner_of(key, usize::from(self.config.workers)) as u16;
        owner == self.config.worker && !self.nat.is_mapped(key)
    }

    /// The worker that has the sessions of the host that a packet comes from, because of a forward to it: replies may
    /// come to any worker, and no rule need match them.
    fn forwards_elsewhere<H: Host, P>(&self, call: &Call<'_, H, P>, key: &Key) -> Option<u16> {
        let [a, b, c, d, ..] = key.source;
        if !self.may_hand(key, call.meta.flags) || !call.host.nat().is_forwarded(key) {
            return None;
        }
        let home = NatConfig::home([a, b, c, d], usize::from(self.config.workers)) as u16;
        (home != self.config.worker).then_some(home)
    }

    fn opened<H: Host, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        key: &Key,
        opened: Result<Found, Refusal>,
    ) -> Next {
        match opened {
            Ok(found) => {
                call.meta.session = found.0;
                self.translated(call, found)
            }
            Err(Refusal::Elsewhere(worker)) => {
                call.edits.truncate(call.first_edit);
                if call.is_handed() && !self.is_home(key) {
                    call.meta.flags |= flags::ASTRAY;
                    return self.hand_off(call.meta, self.home(key));
                }
                // Notes stand only where packets with the key come first, lest two of them name each other.
                if self.is_home(key) {
                    self.note_redirect(key, worker, call.now);
                }
                self.hand_off(call.meta, worker)
            }
            Err(Refusal::Back(worker)) => {
                call.edits.truncate(call.first_edit);
                call.meta.flags |= flags::REFUSED;
                self.hand_off(call.meta, worker)
            }
            Err(Refusal::Drop(reason)) => {
                self.count_refusal(reason);
                call.drop(reason)
            }
            Err(Refusal::Tell(reason, source)) => {
                self.count_refusal(reason);
                self.tell(call, reason, source)
            }
        }
    }

    fn count_refusal(&mut self, reason: DropReason) {
        match reason {
            DropReason::SessionFull => self.counters.refused_full += 1,
            DropReason::SessionMiddle => self.counters.refused_middle += 1,
            DropReason::NatExhausted => self.counters.refused_exhausted += 1,
            DropReason::NatLimit => self.counters.refused_limit += 1,
            _ => {}
        }
    }

    /// Answers with an ICMP error, if not too many have been sent of late.
    fn tell<H: Host, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        reason: DropReason,
        source: [u8; 16],
    ) -> Next {
        let next = call.drop(reason);
        let tells = !call.is_looped() && self.budget.take(call.now);
        if !tells || !answer(call.packet, call.meta, Complaint::PROHIBITED, source) {
            return next;
        }
        self.counters.answered += 1;
        call.meta.drop_reason = reason as u8;
        call.meta.out_port = call.in_port;
        Next::Answer
    }

    /// Packets with this key go to another worker.
    fn note_redirect(&mut self, key: &Key, worker: u16, now: u32) {
        // Without a note the next packet comes the same way.
        if let Ok(id) = self.table.insert_redirect(key, worker, now) {
            self.counters.redirects += 1;
            self.table.arm(id, now.wrapping_add(REDIRECT_LIFE));
        }
    }

    /// A packet to an address of NAT's, of no session.
    fn arrive<H: Host, P: PacketBuf>(&mut self, call: &mut Call<'_, H, P>, key: &Key) -> Next {
        let owner = call.host.nat().owner_of(key, usize::from(self.config.workers)) as u16;
        if owner != self.config.worker && self.may_hand(key, call.meta.flags) {
            return self.opened(call, key, Err(Refusal::Elsewhere(owner)));
        }
        if !call.is_looped() && self.judge(call.host, 0, call.hits, call.bytes(), call.edits) {
            return call.drop(DropReason::Rule);
        }
        let opened = self.open_inbound(call, key).map_err(Refusal::Drop);
        self.opened(call, key, opened)
    }

    /// Opens a session from outside, if a mapping or forward stands for where the packet goes.
    fn open_inbound<H: Host, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        key: &Key,
    ) -> Result<Found, DropReason> {
        let mut acks = [0; 2];
        let traffic = Traffic::of(call.packet.head(), call.meta);
        let opened = Track::open(&traffic, &mut acks, &self.settings);
        let arrived = self.nat.inbound(key).map_err(|refused| match refused {
            Refused::Unmapped => DropReason::NatUnmapped,
            Refused::Filtered => DropReason::NatFiltered,
        })?;
        let rule = self.mapping_rules.get(arrived.id.0 as usize).copied().flatten();
        // A forward stands for itself, though a rule may have mapped its host's own packets to it.
        let rule = rule.filter(|_| !self.nat.is_forward(arrived.id));
        let opened = match rule {
            // Other sessions hold the mapping still, and will end when their next packets come.
            Some(rule) if !rule.is_alive(call.host.policy()) => Err(DropReason::NatUnmapped),
            _ => opened,
        };
        let (track, seen) = opened.inspect_err(|_| self.nat.release(arrived.id, key, call.now))?;
        let mut to = *key;
        to.destination[..4].copy_from_slice(&arrived.address);
        to.destination_port = arrived.port;
        let mut list = std::mem::take(&mut self.attached);
        self.collect_rules(call, &mut list);
        if let Some(rule) = rule {
            list.retain(|other| other.slot != rule.slot);
            attached::insert(&mut list, rule);
        }
        let flags = session_flags::INBOUND | if rule.is_none() { session_flags::RULELESS } else { 0 };
        let (reverse, mapping) = (to.reversed(), Some(arrived.id));
        let fresh = Fresh { reverse, mapping, track, seen, acks, flags, mangle: None };
        let entered = self.enter(call, key, &fresh, &list).map_err(refused);
        self.attached = list;
        entered
    }

    /// The stateful rules that match, in ascending order of slots.
    fn collect_rules<H: Host, P: PacketBuf>(&self, call: &Call<'_, H, P>, list: &mut Vec<Attached>) {
        let policy = call.host.policy();
        list.clear();
        list.extend(call.stateful().filter_map(|slot| Attached::of(policy, slot, policy.traits(slot).binds)));
        list.sort_unstable_by_key(|rule| rule.slot);
    }

    /// Opens a session because rules say so. If the packet is for an address of NAT's and no rule moves its source, NAT
    /// has the last word.
    fn open<H: Host, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        key: &Key,
        for_nat: bool,
    ) -> Result<Found, Refusal> {
        let (host, policy) = (call.host, call.host.policy());
        let mut list = std::mem::take(&mut self.attached);
        self.collect_rules(call, &mut list);
        let mut plan = Plan::default();
        self.slots.clear();
        self.slots.extend(list.iter().filter(|rule| rule.translates).map(|rule| rule.slot));
        self.slots.sort_unstable_by_key(|&slot| policy.index(slot));
        self.slots.iter().for_each(|&slot| plan.hear(policy, slot, key, host.nat()));
        let opened = if for_nat && matches!(plan.source, NewAddress::Same) {
            self.open_inbound(call, key).map_err(Refusal::Drop)
        } else {
            self.open_planned(call, key, &plan, &list, for_nat)
        };
        self.attached = list;
        opened
    }

    fn open_planned<H: Host, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        key: &Key,
        plan: &Plan<'_>,
        list: &[Attached],
        for_nat: bool,
    ) -> Result<Found, Refusal> {
        let mut acks = [0; 2];
        let traffic = Traffic::of(call.packet.head(), call.meta);
        let (track, seen) = Track::open(&traffic, &mut acks, &self.settings)?;
        let (reverse, mapping) = match plan.source {
            NewAddress::Pool(pool) => {
                let (reverse, mapping) = self.map(call, key, plan, pool, list)?;
                (reverse, Some(mapping))
            }
            NewAddress::NoPool => return Err(DropReason::NatExhausted.into()),
            _ if plan.moves() => (self.choose(call, key, plan)?, None),
            // A change of rules may have left it with a worker that replies do not come to.
            _ if !self.is_home(key) && self.may_hand(key, call.meta.flags) => {
                return Err(Refusal::Elsewhere(self.home(key)));
            }
            _ => (key.reversed(), None),
        };
        let mangle = self.mangle_of(call, key, plan, &traffic);
        // To an address of NAT's once it is translated: from there it comes back.
        let same = (reverse.source, reverse.source_port) == (key.destination, key.destination_port);
        let loops = if same { for_nat } else { call.host.nat().claims(&reverse.reversed()) };
        let flags = if loops { session_flags::LOOP_FORWARD } else { 0 };
        let mut fresh = Fresh { reverse, mapping, track, seen, acks, flags, mangle };
        match self.enter(call, key, &fresh, list) {
            // What comes back is another session's: this one gets another source port.
            Err(InsertError::Taken(_)) if mapping.is_none() => {
                fresh.reverse = self.choose(call, key, plan)?;
                Ok(self.enter(call, key, &fresh, list).map_err(refused)?)
            }
            entered => Ok(entered.map_err(refused)?),
        }
    }

    /// The reverse key with an address and port out of a pool.
    fn map<H: Host, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        key: &Key,
        plan: &Plan<'_>,
        pool: PoolId,
        list: &[Attached],
    ) -> Result<(Key, MappingId), Refusal> {
        self.last_pool = Some(pool);
        let config = call.host.nat();
        let home = config.home_of(pool, key, usize::from(self.config.workers)) as u16;
        if home != self.config.worker && self.may_hand(key, call.meta.flags) {
            return Err(Refusal::Elsewhere(home));
        }
        let mac = call.packet.head().get(6..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        let inside = Inside { mac, in_port: call.in_port };
        let first = config
            .pools()
            .get(usize::from(pool.0))
            .map_or([0; 16], |pool| wide(pool.addresses().0.to_bits()));
        let mut to = plan.target(key, self.config.seed, 0);
        let seen_by_nat = as_nat_sees(key, &to);
        let mapped = self.nat.map(&seen_by_nat, pool, inside, call.now).map_err(|error| match error {
            NatError::Exhausted => Refusal::Tell(DropReason::NatExhausted, first),
            NatError::Limit => Refusal::Tell(DropReason::NatLimit, first),
            NatError::Unsupported => Refusal::Drop(DropReason::NatFailed),
        })?;
        let at = mapped.id.0 as usize;
        if at >= self.mapping_rules.len() {
            self.mapping_rules.resize(at + 1, None);
        }
        self.mapping_rules[at] = self.pool_rule(call.host.policy(), list);
        to.source = wide(u32::from_be_bytes(mapped.address));
        if crate::plan::has_free_port(key) {
            to.source_port = mapped.port;
        }
        Ok((to.reversed(), mapped.id))
    }

    /// The rule that the plan has heard of a pool from: of those that name one the last, by index.
    fn pool_rule(&self, policy: &Policy, list: &[Attached]) -> Option<Attached> {
        let names_one =
            |slot: &&u32| policy.stateful(**slot).is_some_and(|rule| rule.bindings.iter().any(is_pool));
        let slot = self.slots.iter().rfind(names_one)?;
        list.iter().find(|rule| rule.slot == *slot).copied()
    }

    /// Enters a session; the oldest half-open one goes if there is no room.
    fn enter<H: Host, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        key: &Key,
        fresh: &Fresh,
        list: &[Attached],
    ) -> Result<Found, InsertError> {
        let mut entered = self.table.insert(key, &fresh.reverse, call.now);
        if entered == Err(InsertError::Full)
            && let Some(victim) = self.table.victim()
        {
            self.end(victim, End::Evicted, call.host);
            entered = self.table.insert(key, &fresh.reverse, call.now);
        }
        let id = entered.inspect_err(|_| {
            if let Some(mapping) = fresh.mapping {
                let inbound = fresh.flags & session_flags::INBOUND != 0;
                let held = if inbound { *key } else { as_nat_sees(key, &fresh.reverse.reversed()) };
                self.nat.release(mapping, &held, call.now);
            }
        })?;
        self.counters.created += 1;
        self.furnish(call, id, key, fresh, list);
        Ok(Found::new(id, Direction::Forward))
    }

    /// Fills in what the table does not know of a new session.
    fn furnish<H: Host, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        id: SessionId,
        key: &Key,
        fresh: &Fresh,
        list: &[Attached],
    ) {
        let mut flags = fresh.flags;
        if call.is_looped() {
            // What comes back goes back to the inside, where the packet came from.
            flags |= session_flags::LOOP_REVERSE;
        }
        let rules = self.rules.take(list);
        let decision = self.decide(call, list, self.decisions.stamp(call.in_port));
        let common = self.table.common_mut(id);
        (common.rules, common.track, common.flags) = (rules, fresh.track, flags);
        common.mapping = fresh.mapping.map_or(u32::MAX, |mapping| mapping.0);
        common.in_port = [call.in_port, u16::MAX];
        if let Some((mangle, pending)) = &fresh.mangle {
            self.set_mangle(id, mangle, *pending);
        }
        let first = Found::new(id, Direction::Forward).0 as usize;
        if let Some([there, back]) =
            self.table.halves_mut().get_mut(first..).and_then(<[Half]>::first_chunk_mut)
        {
            for (way, half) in [&mut *there, &mut *back].into_iter().enumerate() {
                half.ack = fresh.acks[way];
                if fresh.seen.settled[way] && flags & session_flags::LOOPS[way] == 0 {
                    half.flags |= half_flags::SETTLED;
                }
            }
            there.set_decision(decision);
            there.count(1, call.bytes());
            there.flags |= half_flags::SEEN;
            if fresh.mangle.is_some() || fresh.reverse != key.reversed() {
                let moves = fresh.mangle.is_none();
                translate_half(there, key, &fresh.reverse.reversed(), moves);
                translate_half(back, &fresh.reverse, &key.reversed(), moves);
            }
        }
        self.table.arm(id, call.now.wrapping_add(fresh.seen.timeout));
        if !fresh.seen.embryonic {
            self.table.settle(id);
        }
    }
}
