//! The sessions of one worker: what they are kept in, how they end, and time.

use std::io;
use std::sync::Arc;

use bytemuck::Zeroable;
use mmb_flow::{
    BatchLookup, Direction, ErrorBudget, FlowRef, FragmentLimits, FragmentTable, Key, MappingId, Nat, PoolId,
    SessionId, SessionSettings, SessionState, Table, flow_flags,
};
use mmb_nf::{ChainVerdict, Program, Runner};
use mmb_packet::{Kind, flags, flow_hash4, flow_hash6};
use mmb_policy::{Decision, VECTOR};

use crate::attached::{Attached, RuleLists};
use crate::decisions::Decisions;
use crate::exhausted::Exhausted;
use crate::fragment::Target;
use crate::gist::Gist;
use crate::hops::Notes;
use crate::matched::Matched;
use crate::numbers::Scratch;
use crate::offload::OffloadedFlows;
use crate::open::{REDIRECT_LIFE, as_nat_sees};
use crate::owed::Owed;
use crate::random::Random;
use crate::verdicts::Positions;
use crate::{Environment, ReleasedFragment, SessionConfig, SessionCounters};

/// Bounds of what is kept of fragments.
const FRAGMENTS: FragmentLimits = FragmentLimits { datagrams: 4096, waiting: 512, per_datagram: 64 };
/// Decisions whose counts, and halves whose debts, are given to the rules at a time, and ticks from one time to the next. The
/// counters of many rules are far from any cache, and what is given later is given in one with what is counted meanwhile.
const FLUSH: usize = 8;
const COLLECT: u32 = 4;
/// Sessions that end, or whose timers have gone off, are seen to so many together.
const TOGETHER: usize = 32;
/// How often timers are looked at while there is no traffic, in milliseconds: as fine as the wheel is.
const TICK: u32 = 64;

/// Bits of [`mmb_flow::SessionState::flags`].
pub(crate) mod session_flags {
    /// Numbers besides addresses and ports are replaced: there is a record in the scratchpad.
    pub const MANGLE: u8 = 1 << 0;
    /// Once translated, forward packets are for an address of NAT's, and come back from there.
    pub const LOOP_FORWARD: u8 = 1 << 1;
    /// … reverse packets are.
    pub const LOOP_REVERSE: u8 = 1 << 2;
    /// The same by direction.
    pub const LOOPS: [u8; 2] = [LOOP_FORWARD, LOOP_REVERSE];
    /// It was opened from outside, by a NAT mapping.
    pub const INBOUND: u8 = 1 << 3;
    /// It came in through a forward, and needs no rule to live.
    pub const RULELESS: u8 = 1 << 4;
    /// A function of its chain has refused it, under some rules or other.
    pub const REFUSED: u8 = 1 << 5;
}

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Expired,
    Replaced,
    Evicted,
    RuleGone,
    Cleared,
    /// A function of its chain says so.
    Function,
}

/// Some sessions, whose memory is asked for together.
pub(crate) struct Group {
    ids: [SessionId; TOGETHER],
    n: usize,
}

impl Group {
    /// The next ones, as far as there are any.
    pub fn of(mut next: impl FnMut() -> Option<SessionId>) -> Group {
        let mut group = Group { ids: [SessionId(0); TOGETHER], n: 0 };
        for place in &mut group.ids {
            let Some(id) = next() else { break };
            *place = id;
            group.n += 1;
        }
        group
    }

    pub fn ids(&self) -> &[SessionId] {
        &self.ids[..self.n]
    }
}

/// The sessions of one worker, and everything that is known about them. See the crate's theory of operation.
#[derive(Debug)]
pub struct Sessions {
    pub(crate) config: SessionConfig,
    pub(crate) table: Table,
    /// The chains in force, and what takes packets through them.
    pub(crate) chains: Arc<Program>,
    /// There is one at least.
    pub(crate) has_chains: bool,
    pub(crate) runner: Runner,
    pub(crate) fates: Box<[ChainVerdict; VECTOR]>,
    pub(crate) scratch: Scratch,
    pub(crate) lookups: Box<BatchLookup>,
    pub(crate) gists: Box<[Gist; VECTOR]>,
    /// A packet of the last vector has asked for a decision that may be far.
    pub(crate) asked: bool,
    /// The version of IP of the vector that is taken in ahead.
    pub(crate) version: Option<u8>,
    pub(crate) decisions: Decisions,
    pub(crate) owed: Owed,
    pub(crate) notes: Notes,
    /// As [`Sessions::next_hop_misses`].
    pub(crate) next_hop_misses: Positions,
    ticks: u32,
    pub(crate) loans: OffloadedFlows,
    pub(crate) rules: RuleLists,
    pub(crate) nat: Nat,
    pub(crate) fragments: FragmentTable<Target>,
    pub(crate) settings: SessionSettings,
    pub(crate) random: Random,
    pub(crate) budget: ErrorBudget,
    pub(crate) exhausted: Exhausted,
    pub(crate) counters: SessionCounters,
    /// The time as of the last call that said it.
    pub(crate) clock: u32,
    /// Sessions that have ended: while this stays the same, what was found is still there.
    pub(crate) removals: u32,
    /// … and how many had when no packet was on its way.
    pub(crate) calm: u32,
    /// Sessions below this number have been ended by [`Sessions::clear_batch`].
    pub(crate) swept: u32,
    /// Some rule looks at each packet.
    pub(crate) per_packet: bool,
    /// What no rule decides.
    pub(crate) nothing: Decision,
    /// Lists that are being made.
    pub(crate) slots: Vec<u32>,
    pub(crate) attached: Vec<Attached>,
    /// What follows from the rules that matched the last packet of no session; none: rules have changed since.
    pub(crate) matched: Option<Box<Matched>>,
    /// The pool that translated last: likely the next one to be asked.
    pub(crate) last_pool: Option<PoolId>,
    /// By NAT mapping: the rule that brought it about.
    pub(crate) mapping_rules: Vec<Option<Attached>>,
}

impl Sessions {
    /// A worker's sessions: none yet.
    ///
    /// # Errors
    /// The system's, if there is not as much address space.
    pub fn new(config: SessionConfig) -> io::Result<Sessions> {
        let capacity = u32::try_from(config.sessions).unwrap_or(u32::MAX);
        let secret = crate::random::mix(config.seed, u64::from(config.worker) + 1);
        let scratch = Scratch::new(config.scratchpad);
        Ok(Sessions {
            table: Table::new(capacity, scratch.bytes, secret)?,
            chains: Arc::default(),
            has_chains: false,
            runner: Runner::new(config.worker, config.seed, config.sessions),
            fates: Box::new([ChainVerdict::Pass; VECTOR]),
            scratch,
            lookups: Box::default(),
            gists: Box::new([Gist::default(); VECTOR]),
            asked: true,
            version: None,
            decisions: Decisions::new(),
            owed: Owed::new(),
            notes: Notes::new(),
            next_hop_misses: Positions::default(),
            ticks: 0,
            loans: OffloadedFlows::default(),
            rules: RuleLists::new(),
            nat: Nat::new(
                Arc::default(),
                config.sessions,
                usize::from(config.worker),
                usize::from(config.workers),
                config.seed,
            )?,
            fragments: FragmentTable::new(FRAGMENTS),
            settings: SessionSettings::default(),
            random: Random::new(secret),
            budget: ErrorBudget::new(0),
            exhausted: Exhausted::default(),
            counters: SessionCounters::default(),
            clock: 0,
            removals: 0,
            calm: 0,
            swept: 0,
            per_packet: false,
            nothing: Decision::default(),
            slots: Vec::with_capacity(64),
            attached: Vec::with_capacity(64),
            matched: None,
            last_pool: None,
            mapping_rules: Vec::new(),
            config,
        })
    }

    /// Tickets that [`crate::Next::Hold`] gives out are below this.
    pub const TICKETS: usize = FRAGMENTS.waiting as usize;

    /// Takes over other rules, pools or settings; to be called before the first packet under them, and once before the
    /// first packet at all. `old` is what was there before: it gets what was counted under it.
    pub fn adopt(&mut self, old: &impl Environment, new: &impl Environment) {
        self.settle_all_loans(old);
        self.flush(old);
        self.decisions.renew();
        self.routes_changed();
        self.matched = None;
        self.settings = new.settings();
        self.per_packet = new.policy().per_packet().is_some();
        self.nat.adopt(new.nat().clone());
        self.adopt_chains(new.chains());
        self.exhausted = Exhausted::default();
        self.last_pool = None;
    }

    /// Ends sessions whose time is over, at most `budget` of them, lets go of fragments that waited in vain, and gives
    /// counts to the rules. True: there is more to be done at once.
    pub fn tick(&mut self, now: u32, host: &impl Environment, budget: usize) -> bool {
        self.clock = now;
        let flows = self.runner.tick(now, budget);
        let mut left = u32::try_from(budget).unwrap_or(u32::MAX);
        loop {
            let due = Group::of(|| self.table.next_expired(now, &mut left));
            self.prefetch_ends(due.ids());
            due.ids().iter().for_each(|&id| self.ring(id, now, host));
            if due.ids().is_empty() {
                break;
            }
        }
        if !self.fragments.is_empty() {
            self.fragments.expire(now, self.settings.timeouts.fragment);
        }
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks.is_multiple_of(COLLECT) {
            self.decisions.flush(host, FLUSH);
            self.collect(host, FLUSH);
        }
        self.calm = self.removals;
        left == 0 || flows
    }

    /// Sees to a session whose timer has gone off.
    fn ring(&mut self, id: SessionId, now: u32, host: &impl Environment) {
        self.settle_loans(now, id, host);
        match self.lives_until(id, now) {
            Some(deadline) => self.table.arm_timer(id, deadline),
            None => self.end(id, End::Expired, host),
        }
    }

    /// Asks for the memory that the ends of these sessions will look at.
    pub(crate) fn prefetch_ends(&self, ids: &[SessionId]) {
        let mapping = |id| MappingId(self.table.session(id).mapping);
        let maps = !self.nat.is_empty();
        for &id in ids {
            self.table.prefetch_keys(id);
            if maps {
                self.nat.prefetch_mapping(mapping(id));
            }
        }
        if maps {
            ids.iter().for_each(|&id| self.nat.prefetch_release(mapping(id)));
        }
    }

    /// Milliseconds until [`Sessions::tick`] has something to do. None: not before a packet comes.
    pub fn next_tick(&self) -> Option<u32> {
        if self.decisions.owes() || !self.owed.is_empty() {
            return Some(0);
        }
        let idle = self.table.is_empty() && self.fragments.is_empty() && self.runner.is_idle();
        (!idle).then_some(TICK)
    }

    /// Gives everything that was counted to the rules.
    pub fn flush(&mut self, host: &impl Environment) {
        self.decisions.flush(host, usize::MAX);
        self.collect(host, usize::MAX);
    }

    /// Gives what halves have counted alone to the rules, of at most `most`.
    fn collect(&mut self, host: &impl Environment, most: usize) {
        let Sessions { owed, table, decisions, .. } = self;
        owed.flush(table.flows_mut(), decisions, host, most);
    }

    /// What becomes of the next fragment that waits no longer: to be asked for after [`Sessions::process_slow_path`] and
    /// [`Sessions::tick`] until there is none.
    pub fn next_released_fragment(&mut self) -> Option<ReleasedFragment> {
        let released = self.fragments.pop_released()?;
        Some(match released.target {
            Some(_) => ReleasedFragment::Retry(released.ticket.0),
            None => ReleasedFragment::TimedOut(released.ticket.0),
        })
    }

    /// What was counted, and how much there is.
    pub fn counters(&self) -> SessionCounters {
        let occupancy = self.table.occupancy();
        SessionCounters {
            sessions: u64::from(occupancy.sessions)
                - self.counters.redirects.min(u64::from(occupancy.sessions)),
            half_open: u64::from(occupancy.embryonic)
                - self.counters.redirects.min(u64::from(occupancy.embryonic)),
            capacity: u64::from(occupancy.capacity),
            decisions: self.decisions.len() as u64,
            ..self.counters
        }
    }

    /// NAT's mappings, usage and events.
    pub fn nat(&self) -> &Nat {
        &self.nat
    }

    /// The same, for taking events out.
    pub fn nat_mut(&mut self) -> &mut Nat {
        &mut self.nat
    }

    /// When a session ends if no packet comes; none if that is over.
    pub(crate) fn lives_until(&self, id: SessionId, now: u32) -> Option<u32> {
        let [there, back] =
            [Direction::Forward, Direction::Reverse].map(|way| self.table.flow(FlowRef::new(id, way)));
        let timeout = match there.flags & (flow_flags::REDIRECT | flow_flags::CHAINED) {
            0 => self.table.session(id).track.timeout(&self.settings),
            flow_flags::CHAINED => {
                self.table.session(id).track.timeout(&self.settings).max(self.chain_timeout(id))
            }
            _ => REDIRECT_LIFE,
        };
        let idle = now.wrapping_sub(there.last_seen).min(now.wrapping_sub(back.last_seen));
        (idle < timeout).then(|| now.wrapping_add(timeout - idle))
    }

    /// Ends a session or redirect and gives back all that it holds.
    pub(crate) fn end(&mut self, id: SessionId, why: End, host: &impl Environment) {
        let found = FlowRef::new(id, Direction::Forward);
        if self.table.redirect_worker(found).is_some() {
            self.counters.redirects -= 1;
        } else {
            self.release(id, host);
            *match why {
                End::Expired => &mut self.counters.expired,
                End::Replaced => &mut self.counters.replaced,
                End::Evicted => &mut self.counters.evicted,
                End::RuleGone => &mut self.counters.ended,
                End::Cleared => &mut self.counters.cleared,
                End::Function => &mut self.counters.closed,
            } += 1;
        }
        self.table.remove(id);
        self.removals = self.removals.wrapping_add(1);
    }

    fn release(&mut self, id: SessionId, host: &impl Environment) {
        self.revoke(self.clock, id, host);
        self.leave_chain(id);
        for way in [Direction::Forward, Direction::Reverse] {
            let found = FlowRef::new(id, way);
            self.settle(found, host);
            self.decisions.give_back(self.table.flow(found).decision(), host);
        }
        let &SessionState { rule_list: rules, mapping, flags, .. } = self.table.session(id);
        self.rules.give_back(rules);
        if mapping != u32::MAX {
            let mut held = self.table.key(FlowRef::new(id, Direction::Forward));
            if flags & session_flags::INBOUND == 0 {
                held = as_nat_sees(&held, &self.table.key(FlowRef::new(id, Direction::Reverse)).reversed());
            }
            self.nat.release(MappingId(mapping), &held, self.clock);
        }
    }

    /// Whether a packet with this key may be another worker's, as opposed to having to be dealt with here.
    pub(crate) fn may_hand(&self, key: &Key, bits: u8) -> bool {
        let settled = bits & flags::HANDED != 0 && bits & flags::ASTRAY != 0 && !self.is_home(key);
        self.config.workers > 1 && bits & flags::REFUSED == 0 && !settled
    }

    /// Whether packets with this key come to this worker first.
    pub(crate) fn is_home(&self, key: &Key) -> bool {
        self.home(key) == self.config.worker
    }

    /// The worker that packets with this key come to first.
    pub(crate) fn home(&self, key: &Key) -> u16 {
        ((u64::from(flow_hash(key)) * u64::from(self.config.workers)) >> 32) as u16
    }
}

/// [`mmb_packet::Meta::flow_hash`] of packets with this key.
pub(crate) fn flow_hash(key: &Key) -> u32 {
    let ports = match Kind(key.kind).l4() {
        Kind::TCP | Kind::UDP => bytemuck::cast([key.source_port, key.destination_port]),
        _ => <[u8; 4]>::zeroed(),
    };
    if key.is_ip4() {
        let [source, ..]: [[u8; 4]; 4] = bytemuck::cast(key.source);
        let [destination, ..]: [[u8; 4]; 4] = bytemuck::cast(key.destination);
        flow_hash4(bytemuck::cast([source, destination]), ports, key.proto)
    } else {
        flow_hash6(&bytemuck::cast([key.source, key.destination]), ports, key.proto)
    }
}
