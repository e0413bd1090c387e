//! A worker's part: packets through chains.

mod asker;
mod core;
mod header;
mod keyed;
mod passes;
mod run;
mod second;
mod space;

use std::sync::Arc;

use mmb_flow::{FlowRef, SessionId, SessionSettings};
use mmb_packet::{DropReason, Meta};

use self::core::{Core, Loaded, On};
use crate::context::Emissions;
use crate::program::ir::{BodyNo, End, Node};
use crate::{Admission, ChainId, OpeningPacket, Packet, PacketView, Program, SessionInfo};
use header::Header;
use run::Work;
use second::Second;

/// What becomes of a packet that has been through its chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChainVerdict {
    /// It goes on to where `meta.out_port` says.
    #[default]
    Pass,
    /// It is dropped.
    Drop(DropReason),
    /// It is dropped, and so are all packets of its session until rules or chains change.
    Refuse(DropReason),
    /// It is dropped, and its session is to be ended.
    End(DropReason),
}

/// The sessions that packets in chains belong to.
pub trait SessionAccess {
    /// All scratchpads, by the numbers of sessions, and the bytes from one to the next: a multiple of 8, at least
    /// [`Program::bytes`].
    fn pads(&mut self) -> (&mut [u8], usize);
    /// Translates a packet, if its session is translated at all.
    ///
    /// # Errors
    /// Why it is dropped.
    fn translate(&mut self, found: FlowRef, head: &mut [u8], meta: &Meta) -> Result<(), DropReason>;
    /// What is known of a session; `key` is not asked for.
    fn info(&self, id: SessionId) -> SessionInfo;
}

/// What a stage of a chain has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCounters {
    /// Packets that stood before it.
    pub packets: u64,
    /// … that it dropped.
    pub drops: u64,
    /// … that it dropped together with their session: refused or ended.
    pub refused: u64,
    /// Ticks of the clock that was given to the runner.
    pub ticks: u64,
    /// Vectors.
    pub vectors: u64,
}

/// What takes a worker's packets through chains.
pub struct Runner {
    core: Core,
    work: Box<Work>,
    clock: fn() -> u64,
    /// The program in force.
    now: Option<On>,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("worker", &self.core.worker).finish_non_exhaustive()
    }
}

impl Runner {
    /// For a worker. `sessions`: the most that there can be, also of those that functions `flow` find. `seed`
    /// is a secret from senders.
    pub fn new(worker: u16, seed: u64, sessions: usize) -> Runner {
        let sessions = u32::try_from(sessions).unwrap_or(u32::MAX).clamp(1, mmb_flow::MAX_CAPACITY);
        let seed = seed ^ (u64::from(worker) + 1).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let core = Core { worker, seed, sessions, ..Core::default() };
        Runner { core, work: Box::default(), clock: || 0, now: None }
    }

    /// What stages are measured with.
    pub fn set_clock(&mut self, clock: fn() -> u64) {
        self.clock = clock;
    }

    /// Takes over another program, and settings of the tracker; sessions move to it one by one ([`Runner::migrate`]). If it
    /// is the same, nothing translates.
    pub fn adopt(&mut self, program: &Arc<Program>, settings: &SessionSettings) {
        self.core.settings = *settings;
        self.core.adopt(program);
        self.now = self.core.on(self.core.current);
        for flow in program.instances.iter().filter(|instance| instance.flow().is_some()) {
            let sessions = flow.flow().flatten().unwrap_or(self.core.sessions);
            let seed = self.core.seed ^ flow.uid.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let state = self.core.states.iter_mut().flatten().find(|state| state.instance.uid == flow.uid);
            if let Some(state) = state.filter(|state| state.second.is_none()) {
                // Without memory for the table, packets pass by what is behind.
                state.second = Second::new(sessions, program.limit, seed).ok().map(Box::new);
            }
        }
    }

    /// Asks the functions on the way whether a packet may open a session, and what they wish for it ([`OpeningPacket::translation`]).
    pub fn admit(&mut self, chain: ChainId, first: &mut OpeningPacket<'_>) -> Admission {
        match self.now.clone() {
            Some(on) => self.admit_to(&on, chain.0, first),
            None => Admission::Open,
        }
    }

    fn admit_to(&mut self, on: &On, body: BodyNo, first: &mut OpeningPacket<'_>) -> Admission {
        let Some(body) = on.program.body(body) else { return Admission::Open };
        for node in &body.there {
            let end = match node {
                Node::Function(place) => {
                    let Some(state) = self.core.state(on, place.instance) else { continue };
                    match state.instance.function.admit(first, &mut *state.local) {
                        Admission::Open => continue,
                        other => return other,
                    }
                }
                Node::Outputs { place, arms, .. } => {
                    let Some(state) = self.core.state(on, place.instance) else { continue };
                    match state.instance.function.admit(first, &mut *state.local) {
                        Admission::Open => {}
                        other => return other,
                    }
                    if !state.instance.properties().routes {
                        continue;
                    }
                    let arm = state.instance.function.route(first, &mut *state.local);
                    arm.and_then(|arm| arms.get(usize::from(arm))).copied()
                }
                Node::Class { arms, .. } => {
                    let head = first.packet.head();
                    match self.core.asker.arm_of(&on.program, arms, first.in_port, head, first.meta) {
                        Some(arm) => arms.get(arm).map(|arm| arm.end),
                        None => return Admission::Drop(DropReason::ChainClass),
                    }
                }
                Node::Translate | Node::Flow { .. } => None,
            };
            if let Some(End::Body(body)) = end {
                match self.admit_to(on, body, first) {
                    Admission::Open => {}
                    other => return other,
                }
            }
        }
        Admission::Open
    }

    /// A session has been opened, and goes through a chain. Its scratchpad may have anything in it.
    pub fn open(&mut self, chain: ChainId, pad: &mut [u8], info: &SessionInfo, opener: &PacketView<'_>) {
        if let Some(on) = &self.now {
            self.core.open(on, chain.0, pad, info, opener, None);
        }
    }

    /// A session that goes through a chain ends, or goes through none any more.
    pub fn release(&mut self, pad: &mut [u8], info: &SessionInfo) {
        self.core.release(pad, info);
    }

    /// Translates a session that goes through a chain to this chain of the program in force: functions that stay keep their
    /// bytes, those that leave release them, new ones open. Nothing if it is there already.
    #[inline]
    pub fn migrate(&mut self, pad: &mut [u8], chain: ChainId, info: &SessionInfo, opener: &PacketView<'_>) {
        if let Some(on) = &self.now {
            self.core.migrate(on, chain.0, pad, info, opener);
        }
    }

    /// Whether a session is in this chain of the program in force, so that there is nothing to migrate.
    #[inline]
    pub fn is_current(&self, pad: &[u8], chain: ChainId) -> bool {
        let header = Header::of(pad);
        header.program == self.core.current && header.body == chain.0
    }

    fn of(&self, pad: &[u8]) -> Option<(&Loaded, Header)> {
        let header = Header::of(pad);
        Some((self.core.loaded(header.program)?, header))
    }

    /// For how long a session has to be kept without packets at least, in milliseconds, under whatever program it is.
    pub fn timeout(&self, pad: &[u8]) -> Option<u32> {
        self.core.timeout(pad)
    }

    /// The name of the chain that a session goes through, under whatever program it is.
    pub fn chain_name(&self, pad: &[u8]) -> Option<&Arc<str>> {
        let (loaded, header) = self.of(pad)?;
        loaded.program.name(ChainId(header.body))
    }

    /// Whether a session that is moved to this chain of the program in force keeps its translation: what translates on its
    /// ways is there, too, and nothing else that does.
    pub fn keeps_translation(&self, pad: &[u8], chain: ChainId) -> bool {
        let (Some((loaded, header)), Some(now)) = (self.of(pad), &self.now) else { return false };
        let mut before = Vec::new();
        movers(&loaded.program, header.body, Some(header.ways), &mut before);
        let mut after = Vec::new();
        movers(&now.program, chain.0, None, &mut after);
        let all = |some: &[u64], of: &[u64]| some.iter().all(|uid| of.contains(uid));
        // In brackets there may be more that does, which other sessions go through.
        let mut everywhere = Vec::new();
        movers(&loaded.program, header.body, None, &mut everywhere);
        all(&before, &after) && all(&after, &everywhere)
    }

    /// Takes packets through the chains of their sessions. `fates[i]` says what becomes of the `i`th; those behind the last
    /// packet are left alone. At most 256 packets are looked at.
    pub fn run(
        &mut self,
        now: u32,
        packets: &mut [Packet<'_>],
        ground: &mut impl SessionAccess,
        fates: &mut [ChainVerdict; crate::set::VECTOR],
    ) {
        run::run(&mut self.core, &mut self.work, self.clock, now, packets, ground, fates);
    }

    /// What functions have sent since this was last cleared.
    pub fn emissions(&mut self) -> &mut Emissions {
        &mut self.core.emissions
    }

    /// Ends sessions of functions `flow` whose time is over, at most `budget`. True: there is more to be done at once.
    pub fn tick(&mut self, now: u32, budget: usize) -> bool {
        let mut left = u32::try_from(budget).unwrap_or(u32::MAX);
        for at in 0..self.core.states.len() {
            let taken =
                self.core.states.get_mut(at).and_then(Option::as_mut).and_then(|state| state.second.take());
            let Some(mut second) = taken else { continue };
            while second.tick(&mut self.core, now, &mut left) {}
            if let Some(state) = self.core.states.get_mut(at).and_then(Option::as_mut) {
                state.second = Some(second);
            }
        }
        if self.core.programs.len() > 1 {
            self.core.retire();
        }
        left == 0
    }

    /// Whether [`Runner::tick`] has nothing to do until packets come.
    pub fn is_idle(&self) -> bool {
        let seconds = self.core.states.iter().flatten().filter_map(|state| state.second.as_ref());
        seconds.into_iter().all(|second| second.table.is_empty())
    }

    /// What the stages of the program in force have counted, by their numbers ([`Program::stages`]).
    pub fn counters(&self) -> &[StageCounters] {
        self.core.loaded(self.core.current).map_or(&[], |loaded| &loaded.counts)
    }

    /// Sessions that were opened without one of their functions, as that has a table of its own for keys, without room.
    pub fn bypassed(&self) -> u64 {
        self.core.bypassed
    }

    /// Programs that sessions still go through, the one in force included.
    pub fn programs(&self) -> usize {
        self.core.programs.iter().flatten().count()
    }
}

/// The instances that translate, on the ways that are taken, or on all.
fn movers(program: &Program, body: BodyNo, ways: Option<u32>, uids: &mut Vec<u64>) {
    let Some(body) = program.body(body) else { return };
    let into = |end: &End, uids: &mut Vec<u64>| {
        if let End::Body(body) = end {
            movers(program, *body, ways, uids);
        }
    };
    for node in &body.there {
        match node {
            Node::Function(place) => {
                let instance = program.instances.get(usize::from(place.instance));
                uids.extend(
                    instance
                        .filter(|instance| instance.properties().translates.any())
                        .map(|instance| instance.uid),
                );
            }
            Node::Outputs { ways: bits, diverges, arms, .. } => {
                let taken = |arm: usize| match ways {
                    Some(word) => {
                        self::core::taken_arms(bits.get(word), *diverges, arms.len()).any(|one| one == arm)
                    }
                    None => true,
                };
                arms.iter().enumerate().filter(|(arm, _)| taken(*arm)).for_each(|(_, end)| into(end, uids));
            }
            Node::Class { ways: bits, arms, .. } => {
                let taken = |arm: usize| ways.is_none_or(|word| bits.get(word) as usize == arm + 1);
                arms.iter()
                    .enumerate()
                    .filter(|(arm, _)| taken(*arm))
                    .for_each(|(_, arm)| into(&arm.end, uids));
            }
            Node::Translate | Node::Flow { .. } => {}
        }
    }
}
