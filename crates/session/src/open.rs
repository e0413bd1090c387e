//! Packets of no session: some open one.
//!
//! Theory of operation. Rules judge first: what is dropped opens nothing. Then NAT is asked about packets to its
//! addresses, unless a rule translates their source first (an inside host that turns to another one by its external
//! address). Then the stateful rules that match are asked what they give to the session ([`Plan`]), and a translation is
//! found whose replies no other session gets, and which come to this worker ([`crate::ports`]). If there is none here
//! but may be with another worker, the packet is handed to that one, and a note of it is left for those behind it.
//! If a rule names a service chain, its functions are asked as well, and what they wish is heard after all rules. At last
//! the session is entered ([`crate::enter`]).

use mmb_flow::{
    FlowRef, HostLocation, IcmpErrorKind, InboundError, InboundMapping, InsertError, Key, MappingId,
    NatConfig, NatError, PoolId, TcpSegment, TrackInput, rewrite_as_icmp_error,
};
use mmb_packet::{DropReason, PacketBuf, flags};

use crate::attached::{self, Attached};
use crate::engine::{Sessions, session_flags};
use crate::enter::{By, Fresh};
use crate::matched::Matched;
use crate::plan::{NewAddress, Plan, wide};
use crate::slow::Call;
use crate::{Environment, Next};

/// For how long it is remembered that packets go to another worker, after the last one. Milliseconds.
pub(crate) const REDIRECT_LIFE: u32 = 120_000;

/// The largest window scale that there is (RFC 7323, 2.3).
const WIDEST_SCALE: u8 = 14;

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
    /// A function has turned the packet into its answer.
    Answered,
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

/// The SYN that a segment which opens a session has come after, unless it is one: a function has answered that one itself.
/// What window scale it said is not known here.
fn syn_before(traffic: TrackInput) -> TrackInput {
    match traffic {
        TrackInput::Tcp(segment) if segment.flags & TcpSegment::SYN == 0 => TrackInput::Tcp(TcpSegment {
            seq: segment.seq.wrapping_sub(1),
            flags: TcpSegment::SYN,
            len: 0,
            scale: Some(WIDEST_SCALE),
            ..segment
        }),
        other => other,
    }
}

/// Why a session that was not entered is not there.
fn refused(error: InsertError) -> DropReason {
    match error {
        InsertError::Taken(_) => DropReason::NatExhausted,
        InsertError::Full | InsertError::Crowded => DropReason::SessionFull,
    }
}

impl Sessions {
    /// A packet of no session.
    pub(crate) fn unknown<H: Environment, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        key: &Key,
    ) -> Next {
        let mut matched = self.matched(call);
        let next = self.unknown_but(call, key, &mut matched);
        self.keep(matched);
        next
    }

    /// The same; this is what follows from its rules.
    fn unknown_but<H: Environment, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        key: &Key,
        matched: &mut Matched,
    ) -> Next {
        let for_nat = call.host.nat().is_nat_destination(key);
        if call.is_looped() && !for_nat {
            return call.drop(DropReason::NatUnmapped);
        }
        if for_nat && !matched.binds {
            return self.arrive(call, key);
        }
        if for_nat && !call.is_looped() && !call.came_back() {
            // It may be a reply from one host inside to another one, whose session is with the worker that has the port.
            let owner = call.host.nat().owner_worker(key, usize::from(self.config.workers)) as u16;
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
        if !matched.opens {
            return self.stateless(call);
        }
        if matched.harmless {
            let bytes = u64::from(call.bytes());
            call.hits.iter().for_each(|hit| call.host.count(hit.slot, 1, bytes));
        } else if self.judge(call.host, 0, call.hits, call.bytes(), call.edits) {
            return call.drop(DropReason::Rule);
        }
        let opened = self.open(call, key, matched, for_nat);
        self.opened(call, key, opened)
    }

    /// Whether a packet to an address of NAT's is for nobody inside, as far as this worker can tell.
    fn is_unmapped<H: Environment>(&self, host: &H, key: &Key) -> bool {
        let owner = host.nat().owner_worker(key, usize::from(self.config.workers)) as u16;
        owner == self.config.worker && !self.nat.is_mapped(key)
    }

    /// The worker that has the sessions of the host that a packet comes from, because of a forward to it: replies may
    /// come to any worker, and no rule need match them.
    fn forwards_elsewhere<H: Environment, P>(&self, call: &Call<'_, H, P>, key: &Key) -> Option<u16> {
        let [a, b, c, d, ..] = key.source;
        if !self.may_hand(key, call.meta.flags) || !call.host.nat().is_forwarded(key) {
            return None;
        }
        let home = NatConfig::host_worker([a, b, c, d], usize::from(self.config.workers)) as u16;
        (home != self.config.worker).then_some(home)
    }

    fn opened<H: Environment, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        key: &Key,
        opened: Result<FlowRef, Refusal>,
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
            Err(Refusal::Answered) => {
                call.drop(DropReason::SynCookie);
                call.meta.out_port = call.in_port;
                Next::Reply
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
    fn tell<H: Environment, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        reason: DropReason,
        source: [u8; 16],
    ) -> Next {
        let next = call.drop(reason);
        let tells = !call.is_looped() && self.budget.take(call.now);
        if !tells || !rewrite_as_icmp_error(call.packet, call.meta, IcmpErrorKind::PROHIBITED, source) {
            return next;
        }
        self.counters.answered += 1;
        call.meta.drop_reason = reason as u8;
        call.meta.out_port = call.in_port;
        Next::Reply
    }

    /// Packets with this key go to another worker.
    fn note_redirect(&mut self, key: &Key, worker: u16, now: u32) {
        // Without a note the next packet comes the same way.
        if let Ok(id) = self.table.insert_redirect(key, worker, now) {
            self.counters.redirects += 1;
            self.table.arm_timer(id, now.wrapping_add(REDIRECT_LIFE));
        }
    }

    /// A packet to an address of NAT's, of no session.
    fn arrive<H: Environment, P: PacketBuf>(&mut self, call: &mut Call<'_, H, P>, key: &Key) -> Next {
        let owner = call.host.nat().owner_worker(key, usize::from(self.config.workers)) as u16;
        if owner != self.config.worker && self.may_hand(key, call.meta.flags) {
            return self.opened(call, key, Err(Refusal::Elsewhere(owner)));
        }
        if !call.is_looped() && self.judge(call.host, 0, call.hits, call.bytes(), call.edits) {
            return call.drop(DropReason::Rule);
        }
        let opened = self.open_inbound(call, key);
        self.opened(call, key, opened)
    }

    /// Opens a session from outside, if a mapping or forward stands for where the packet goes.
    fn open_inbound<H: Environment, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        key: &Key,
    ) -> Result<FlowRef, Refusal> {
        let arrived = self.nat.map_inbound(key).map_err(|refused| match refused {
            InboundError::Unmapped => DropReason::NatUnmapped,
            InboundError::Filtered => DropReason::NatFiltered,
        })?;
        let rule = self.mapping_rules.get(arrived.id.0 as usize).copied().flatten();
        // A forward stands for itself, though a rule may have mapped its host's own packets to it.
        let rule = rule.filter(|_| !self.nat.is_forward(arrived.id));
        let mut list = std::mem::take(&mut self.attached);
        self.collect_rules(call, &mut list);
        if let Some(rule) = rule {
            list.retain(|other| other.slot != rule.slot);
            attached::insert(&mut list, rule);
        }
        let entered = match self.inbound_session(call, key, &arrived, rule, &list) {
            Ok(fresh) => {
                self.enter(call, key, &fresh, By::List(&list)).map_err(|error| refused(error).into())
            }
            Err(refusal) => {
                self.nat.release(arrived.id, key, call.now);
                Err(refusal)
            }
        };
        self.attached = list;
        entered
    }

    /// A session that NAT lets in, if nothing else speaks against it. `rule`: what its mapping hangs on.
    fn inbound_session<H: Environment, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        key: &Key,
        arrived: &InboundMapping,
        rule: Option<Attached>,
        list: &[Attached],
    ) -> Result<Fresh, Refusal> {
        // Other sessions hold the mapping still, and will end when their next packets come.
        if rule.is_some_and(|rule| !rule.is_alive(call.host.policy())) {
            return Err(DropReason::NatUnmapped.into());
        }
        let traffic = TrackInput::of(call.packet.head(), call.meta);
        let mut fresh = Fresh::default();
        fresh.seen = fresh.track.init(&traffic, &mut fresh.acks, &self.settings)?;
        fresh.chain = self.later_chain(call.host.policy(), list).map(|(_, chain)| chain);
        if let Some(chain) = fresh.chain {
            self.ask_chain(call, key, chain)?;
        }
        let mut to = *key;
        to.destination[..4].copy_from_slice(&arrived.address);
        to.destination_port = arrived.port;
        fresh.flags = session_flags::INBOUND | if rule.is_none() { session_flags::RULELESS } else { 0 };
        (fresh.moved, fresh.mapping) = (Some(to.reversed()), Some(arrived.id));
        Ok(fresh)
    }

    /// The stateful rules that match, in ascending order of slots.
    pub(crate) fn collect_rules<H: Environment, P: PacketBuf>(
        &self,
        call: &Call<'_, H, P>,
        list: &mut Vec<Attached>,
    ) {
        let policy = call.host.policy();
        list.clear();
        list.extend(
            call.stateful().filter_map(|slot| Attached::of(policy, slot, policy.rule_info(slot).binds)),
        );
        list.sort_unstable_by_key(|rule| rule.slot);
    }

    /// Opens a session because rules say so. If the packet is for an address of NAT's and no rule moves its source, NAT
    /// has the last word.
    fn open<H: Environment, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        key: &Key,
        matched: &mut Matched,
        for_nat: bool,
    ) -> Result<FlowRef, Refusal> {
        let (host, policy) = (call.host, call.host.policy());
        let mut plan = Plan::default();
        match matched.pool {
            Some(pool) if key.is_ip4() => plan.source = NewAddress::Pool(pool),
            Some(_) => {}
            None if matched.plain => {}
            None => {
                matched.translating.iter().for_each(|&slot| plan.hear(policy, slot, key, host.nat()));
                if let Some((slot, chain)) = matched.chain {
                    let wish = self.ask_chain(call, key, chain)?;
                    plan.grant(&wish, slot, key, host.nat());
                }
            }
        }
        if for_nat && matches!(plan.source, NewAddress::Same) {
            self.open_inbound(call, key)
        } else {
            self.open_planned(call, key, &plan, matched, for_nat)
        }
    }

    fn open_planned<H: Environment, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        key: &Key,
        plan: &Plan<'_>,
        matched: &mut Matched,
        for_nat: bool,
    ) -> Result<FlowRef, Refusal> {
        let mut fresh = Fresh { chain: matched.chain.map(|(_, chain)| chain), ..Fresh::default() };
        fresh.deferred = fresh.chain.is_some_and(|chain| self.defers(chain));
        let mut traffic = TrackInput::of(call.packet.head(), call.meta);
        if plan.answers.is_some() {
            traffic = syn_before(traffic);
        }
        fresh.seen = fresh.track.init(&traffic, &mut fresh.acks, &self.settings)?;
        match plan.source {
            NewAddress::Pool(pool) => {
                let (reverse, mapping) = self.map(call, key, plan, pool, matched)?;
                (fresh.moved, fresh.mapping) = (Some(reverse), Some(mapping));
            }
            NewAddress::NoPool => return Err(DropReason::NatExhausted.into()),
            _ if plan.moves() => fresh.moved = Some(self.choose(call, key, plan)?),
            // A change of rules may have left it with a worker that replies do not come to.
            _ if self.may_hand(key, call.meta.flags) && !self.is_home(key) => {
                return Err(Refusal::Elsewhere(self.home(key)));
            }
            _ => {}
        }
        if plan.replaces_numbers() {
            fresh.mangle = self.mangle_of(call, key, plan, &traffic);
        }
        // To an address of NAT's once it is translated: from there it comes back.
        let goes_elsewhere =
            |reverse: &&Key| (reverse.source, reverse.source_port) != (key.destination, key.destination_port);
        let loops = match fresh.moved.as_ref().filter(goes_elsewhere) {
            Some(reverse) => call.host.nat().is_nat_destination(&reverse.reversed()),
            None => for_nat,
        };
        fresh.flags = if loops { session_flags::LOOP_FORWARD } else { 0 };
        match self.enter(call, key, &fresh, By::Matched(matched)) {
            // What comes back is another session's: this one gets another source port.
            Err(InsertError::Taken(_)) if fresh.mapping.is_none() => {
                fresh.moved = Some(self.choose(call, key, plan)?);
                Ok(self.enter(call, key, &fresh, By::Matched(matched)).map_err(refused)?)
            }
            entered => Ok(entered.map_err(refused)?),
        }
    }

    /// The reverse key with an address and port out of a pool.
    fn map<H: Environment, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        key: &Key,
        plan: &Plan<'_>,
        pool: PoolId,
        matched: &Matched,
    ) -> Result<(Key, MappingId), Refusal> {
        self.last_pool = Some(pool);
        let config = call.host.nat();
        if self.config.workers > 1 {
            let home = config.opening_worker(pool, key, usize::from(self.config.workers)) as u16;
            if home != self.config.worker && self.may_hand(key, call.meta.flags) {
                return Err(Refusal::Elsewhere(home));
            }
        }
        let mac = call.packet.head().get(6..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        let inside = HostLocation { mac, in_port: call.in_port };
        let mut to = *key;
        let mapped = if plan.draws() {
            to = plan.target(key, self.config.seed, 0);
            self.nat.map(&as_nat_sees(key, &to), pool, inside, call.now)
        } else {
            self.nat.map(key, pool, inside, call.now)
        };
        let mapped = mapped.map_err(|error| {
            let pool = config.pools().get(usize::from(pool.0));
            let first = pool.map_or([0; 16], |pool| wide(pool.addresses().0.to_bits()));
            match error {
                NatError::Exhausted => Refusal::Tell(DropReason::NatExhausted, first),
                NatError::Limit => Refusal::Tell(DropReason::NatLimit, first),
                NatError::Unsupported => Refusal::Drop(DropReason::NatFailed),
            }
        })?;
        let at = mapped.id.0 as usize;
        if at >= self.mapping_rules.len() {
            self.mapping_rules.resize(at + 1, None);
        }
        self.mapping_rules[at] = match plan.pool_by {
            Some(slot) => matched.rules.iter().find(|rule| rule.slot == slot).copied(),
            None => matched.pool_rule,
        };
        to.source = wide(u32::from_be_bytes(mapped.address));
        if crate::plan::has_free_port(key) {
            to.source_port = mapped.port;
        }
        Ok((to.reversed(), mapped.id))
    }
}
