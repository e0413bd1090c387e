//! The programs and instances that a worker uses.
//!
//! Theory of operation. Programs have numbers of the worker's own, which sessions carry in the headers of
//! their scratchpads. A number is given out again when no session carries it any more. The state of an
//! instance is kept as long as a program uses the instance. Its large tables end earlier
//! ([`super::deleted`]).

use std::sync::Arc;

use mmb_flow::{SessionId, SessionSettings};

use super::class_matcher::ClassMatcher;
use super::header::Header;
use super::keyed::KeyedPads;
use super::nested::NestedSessions;
use super::placement::{Local, Place, Remote};
use super::prior::PriorSession;
use super::types::{StageCounters, Watch};
use crate::context::Emissions;
use crate::held::HeldPackets;
use crate::set::VECTOR;
use crate::stream::EditMemory;
use crate::{Instance, Program, SessionKey};

/// The worker's state of an instance.
pub(super) struct InstanceState {
    pub instance: Arc<Instance>,
    pub placement: Place,
    pub keyed: Option<Box<KeyedPads>>,
    /// The sessions of a function `flow`. None while its packets are being processed.
    pub nested: Option<Box<NestedSessions>>,
    /// The function may hold packets.
    pub holds: bool,
}

/// A program in use.
pub(super) struct LoadedProgram {
    pub program: Arc<Program>,
    /// Index of each instance's state, in the order of the program's instances.
    pub states: Arc<[usize]>,
    /// Sessions with the program's number in their headers.
    pub sessions: u32,
    pub counters: Vec<StageCounters>,
}

/// A program and the indices of its instances' states.
#[derive(Clone)]
pub(super) struct ActiveProgram {
    pub number: u16,
    pub program: Arc<Program>,
    pub states: Arc<[usize]>,
}

#[derive(Default)]
pub(super) struct RunnerState {
    pub worker: u16,
    pub seed: u64,
    /// Most sessions of a table.
    pub capacity: u32,
    pub settings: SessionSettings,
    pub states: Vec<Option<InstanceState>>,
    pub programs: Vec<Option<LoadedProgram>>,
    pub current: u16,
    pub class_matcher: ClassMatcher,
    pub emissions: Emissions,
    pub held: HeldPackets,
    /// See [`crate::Runner::next_unread`].
    pub unread: Vec<SessionId>,
    /// Sessions without one of their functions, as its table of keys was full.
    pub bypassed: u64,
    pub prior: PriorSession,
    /// Memory of edited streams, if a function of a program edits.
    pub edits: Option<Box<EditMemory>>,
    /// Packets that somebody watches; none most of the time.
    pub watch: Option<Box<Watch>>,
    /// An instance runs in a process.
    pub has_processes: bool,
}

impl RunnerState {
    pub fn loaded(&self, number: u16) -> Option<&LoadedProgram> {
        self.programs.get(usize::from(number))?.as_ref()
    }

    pub fn loaded_mut(&mut self, number: u16) -> Option<&mut LoadedProgram> {
        self.programs.get_mut(usize::from(number))?.as_mut()
    }

    pub fn active(&self, number: u16) -> Option<ActiveProgram> {
        let LoadedProgram { program, states, .. } = self.loaded(number)?;
        Some(ActiveProgram { number, program: program.clone(), states: states.clone() })
    }

    pub fn state(&mut self, active: &ActiveProgram, instance: u16) -> Option<&mut InstanceState> {
        let at = *active.states.get(usize::from(instance))?;
        self.states.get_mut(at)?.as_mut()
    }

    /// Returns the least time for which the functions of a session want it to be kept.
    pub fn timeout(&self, pad: &[u8]) -> Option<u32> {
        let header = Header::read(pad);
        self.loaded(header.program)?.program.body(header.body)?.timeout
    }

    /// Reserves memory for the packets that functions may hold.
    pub fn reserve_held(&mut self) {
        if self.states.iter().flatten().any(|state| state.holds) {
            self.held.set_limits(self.settings.held);
            self.unread.reserve(VECTOR);
        }
    }

    /// Reserves memory for edited streams.
    pub fn reserve_edits(&mut self) {
        let mut states = self.states.iter().flatten();
        if self.edits.is_none() && states.any(|state| state.instance.function.edits()) {
            self.edits = Some(Box::new(EditMemory::new()));
        }
    }

    /// Makes a program the current one.
    pub fn set_program(&mut self, program: &Arc<Program>) {
        let is_same = |loaded: &LoadedProgram| Arc::ptr_eq(&loaded.program, program);
        if self.loaded(self.current).is_some_and(is_same) {
            return;
        }
        if self.has_processes {
            // Buffers that are not used any more belong to instances that may go now.
            self.drain_processes(program);
        }
        self.retire();
        let free = self.programs.iter().position(Option::is_none).unwrap_or(self.programs.len());
        let Ok(number) = u16::try_from(free) else { return };
        let states = program.instances.iter().map(|instance| self.keep(instance)).collect();
        let mut counters = vec![StageCounters::default(); program.stages.len()];
        if let Some(before) = self.loaded(self.current) {
            carry_counters(before, program, &mut counters);
        }
        let loaded = LoadedProgram { program: program.clone(), states, sessions: 0, counters };
        match self.programs.get_mut(free) {
            Some(entry) => *entry = Some(loaded),
            None => self.programs.push(Some(loaded)),
        }
        self.current = number;
        self.retire();
    }

    /// Returns the index of an instance's state, which is made if there is none.
    fn keep(&mut self, instance: &Arc<Instance>) -> usize {
        let is_it = |state: &Option<InstanceState>| {
            state.as_ref().is_some_and(|state| state.instance.uid == instance.uid)
        };
        if let Some(at) = self.states.iter().position(is_it) {
            return at;
        }
        let key = instance.properties().key;
        let seed = self.seed ^ instance.uid.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Without memory for a table, sessions bypass the function.
        let keyed = (key != SessionKey::Session)
            .then(|| KeyedPads::new(key, self.capacity, instance.bytes(), seed).ok().map(Box::new))
            .flatten();
        let placement = match instance.process() {
            Some(process) => {
                Place::Remote(Box::new(Remote::new(instance, process, (self.worker, self.capacity))))
            }
            None => Place::Local(Local::new(instance.clone())),
        };
        let holds = instance.function.holds() || instance.process().is_some();
        let state = InstanceState { instance: instance.clone(), placement, keyed, nested: None, holds };
        let at = self.states.iter().position(Option::is_none).unwrap_or(self.states.len());
        match self.states.get_mut(at) {
            Some(entry) => *entry = Some(state),
            None => self.states.push(Some(state)),
        }
        at
    }
}

/// Copies the counters of stages that are kept: the same instance in the chain with the same name, one by
/// one.
fn carry_counters(before: &LoadedProgram, program: &Program, counters: &mut [StageCounters]) {
    let name = |program: &Program, chain: u16| {
        program.chains.get(usize::from(chain)).map(|chain| chain.name.clone())
    };
    let lineage = |program: &Program, instance: u16| {
        program.instances.get(usize::from(instance)).map(|instance| instance.lineage)
    };
    let mut used = vec![false; before.counters.len()];
    for (stage, counter) in program.stages.iter().zip(counters) {
        let (instance, chain) = (lineage(program, stage.instance), name(program, stage.chain));
        let same = before.program.stages.iter().enumerate().position(|(at, old)| {
            !used[at]
                && lineage(&before.program, old.instance) == instance
                && name(&before.program, old.chain) == chain
        });
        if let Some(at) = same {
            used[at] = true;
            *counter = before.counters[at];
        }
    }
}
