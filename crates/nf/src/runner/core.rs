//! What a runner has besides packets: programs, what the worker keeps for instances, and sessions' comings and goings.
//!
//! Theory of operation. A session *enters* a body: each function in it gets zeros and is told, and so with each arm that
//! the session takes, which is for a dispatch known at once, and for a function's outputs when its first packet goes that
//! way. A session *leaves* a body in the same manner. To *move* from one program to another, what it has under the old one is
//! listed; entering the new body then takes from the list what is there of the same instance, and what is left of the list
//! at the end is released.
//!
//! Programs are numbered by the worker; a number is given out again when no session has it in its header any more.

use std::any::Any;
use std::sync::Arc;

use mmb_flow::SessionSettings;

use super::StageCounters;
use super::asker::Asker;
use super::header::Header;
use super::keyed::{Keyed, NO_ENTRY};
use super::second::Second;
use crate::context::Emissions;
use crate::instance::RawContext;
use crate::program::ir::{BodyNo, End, Node, Place};
use crate::{Instance, PacketView, Program, SessionInfo, SessionKey};

/// What the worker keeps for an instance.
pub(super) struct State {
    pub instance: Arc<Instance>,
    pub local: Box<dyn Any + Send>,
    pub keyed: Option<Box<Keyed>>,
    /// Not there while its packets are on their way.
    pub second: Option<Box<Second>>,
}

/// A program in use.
pub(super) struct Loaded {
    pub program: Arc<Program>,
    /// By the program's instances: number of the state.
    pub states: Arc<[usize]>,
    /// Sessions that have its number in their headers.
    pub sessions: u32,
    pub counts: Vec<StageCounters>,
}

/// A program, and where its instances' states are.
#[derive(Clone)]
pub(super) struct On {
    pub number: u16,
    pub program: Arc<Program>,
    pub states: Arc<[usize]>,
}

/// Something that a session has under an old program.
pub(super) struct Had {
    uid: u64,
    place: Place,
    state: usize,
    taken: bool,
}

/// What a session has under an old program.
#[derive(Default)]
pub(super) struct Old {
    had: Vec<Had>,
    /// By the sign of a dispatch, the way that was taken.
    signs: Vec<(u64, u32)>,
    /// By the instance of a function with outputs, one output for each way that was taken.
    outputs: Vec<(u64, u8)>,
    pad: Vec<u8>,
}

/// A session on its way into or out of a body.
pub(super) struct Call<'a> {
    pub pad: &'a mut [u8],
    pub ways: u32,
    pub info: &'a SessionInfo,
    pub opener: Option<&'a PacketView<'a>>,
    /// Position of the packet that is at hand.
    pub at: Option<u8>,
}

/// A session as the function at a place sees it.
fn seen_at(place: &Place, info: &SessionInfo) -> SessionInfo {
    SessionInfo { key: if place.behind { info.egress_key } else { info.ingress_key }, ..*info }
}

#[derive(Default)]
pub(super) struct Core {
    pub worker: u16,
    pub seed: u64,
    pub sessions: u32,
    pub settings: SessionSettings,
    pub states: Vec<Option<State>>,
    pub programs: Vec<Option<Loaded>>,
    pub current: u16,
    pub asker: Asker,
    pub emissions: Emissions,
    /// Sessions for which a function was passed by, since its table had no room.
    pub bypassed: u64,
    pub old: Old,
}

impl Core {
    pub fn loaded(&self, number: u16) -> Option<&Loaded> {
        self.programs.get(usize::from(number))?.as_ref()
    }

    pub fn loaded_mut(&mut self, number: u16) -> Option<&mut Loaded> {
        self.programs.get_mut(usize::from(number))?.as_mut()
    }

    pub fn on(&self, number: u16) -> Option<On> {
        let Loaded { program, states, .. } = self.loaded(number)?;
        Some(On { number, program: program.clone(), states: states.clone() })
    }

    pub fn state(&mut self, on: &On, instance: u16) -> Option<&mut State> {
        let at = *on.states.get(usize::from(instance))?;
        self.states.get_mut(at)?.as_mut()
    }

    /// For how long the functions that a session goes through want it to be kept.
    pub fn timeout(&self, pad: &[u8]) -> Option<u32> {
        let header = Header::of(pad);
        self.loaded(header.program)?.program.body(header.body)?.timeout
    }

    /// Takes over another program.
    pub fn adopt(&mut self, program: &Arc<Program>) {
        if self.loaded(self.current).is_some_and(|loaded| Arc::ptr_eq(&loaded.program, program)) {
            return;
        }
        self.retire();
        let free = self.programs.iter().position(Option::is_none).unwrap_or(self.programs.len());
        let Ok(number) = u16::try_from(free) else { return };
        let states = program.instances.iter().map(|instance| self.keep(instance)).collect();
        let mut counts = vec![StageCounters::default(); program.stages.len()];
        if let Some(before) = self.loaded(self.current) {
            carry_counts(before, program, &mut counts);
        }
        let loaded = Loaded { program: program.clone(), states, sessions: 0, counts };
        match self.programs.get_mut(free) {
            Some(place) => *place = Some(loaded),
            None => self.programs.push(Some(loaded)),
        }
        self.current = number;
        self.retire();
    }

    /// The state of an instance, made if need be.
    fn keep(&mut self, instance: &Arc<Instance>) -> usize {
        let is_it =
            |state: &Option<State>| state.as_ref().is_some_and(|state| state.instance.uid == instance.uid);
        if let Some(at) = self.states.iter().position(is_it) {
            return at;
        }
        let key = instance.properties().key;
        let seed = self.seed ^ instance.uid.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Without memory for a table the function is passed by.
        let keyed = (key != SessionKey::Session)
            .then(|| Keyed::new(key, self.sessions, instance.bytes(), seed).ok().map(Box::new))
            .flatten();
        let state =
            State { instance: instance.clone(), local: instance.function.local(), keyed, second: None };
        let at = self.states.iter().position(Option::is_none).unwrap_or(self.states.len());
        match self.states.get_mut(at) {
            Some(place) => *place = Some(state),
            None => self.states.push(Some(state)),
        }
        at
    }

    /// Lets go of programs that nothing refers to, and of instances of no program.
    pub fn retire(&mut self) {
        let mut gone = false;
        for (number, place) in self.programs.iter_mut().enumerate() {
            if number != usize::from(self.current)
                && place.as_ref().is_some_and(|loaded| loaded.sessions == 0)
            {
                *place = None;
                gone = true;
            }
        }
        if gone {
            let Core { states, programs, .. } = self;
            for (at, state) in states.iter_mut().enumerate() {
                if !programs.iter().flatten().any(|loaded| loaded.states.contains(&at)) {
                    *state = None;
                }
            }
        }
    }

    /// A session begins to go through a body.
    pub fn open(
        &mut self,
        on: &On,
        body: BodyNo,
        pad: &mut [u8],
        info: &SessionInfo,
        opener: &PacketView<'_>,
        at: Option<u8>,
    ) {
        let mut call = Call { pad, ways: 0, info, opener: Some(opener), at };
        self.enter(on, body, &mut call);
        let header = Header { program: on.number, body, ways: call.ways };
        header.put(pad);
        if let Some(loaded) = self.loaded_mut(on.number) {
            loaded.sessions += 1;
        }
    }

    /// A session goes through no body any more.
    pub fn release(&mut self, pad: &mut [u8], info: &SessionInfo) {
        let header = Header::of(pad);
        let Some(on) = self.on(header.program) else { return };
        let mut call = Call { pad, ways: header.ways, info, opener: None, at: None };
        self.leave(&on, header.body, &mut call);
        if let Some(loaded) = self.loaded_mut(header.program) {
            loaded.sessions = loaded.sessions.saturating_sub(1);
        }
    }

    /// A session goes through a body of another program, or another body.
    pub fn migrate(
        &mut self,
        on: &On,
        body: BodyNo,
        pad: &mut [u8],
        info: &SessionInfo,
        opener: &PacketView<'_>,
    ) {
        let header = Header::of(pad);
        if (header.program, header.body) == (on.number, body) {
            return;
        }
        if let Some(before) = self.on(header.program) {
            self.old.pad.clear();
            self.old.pad.extend_from_slice(pad);
            self.list(&before, header.body, header.ways);
            if let Some(loaded) = self.loaded_mut(header.program) {
                loaded.sessions = loaded.sessions.saturating_sub(1);
            }
        }
        self.open(on, body, pad, info, opener, None);
        self.release_rest(info);
    }

    /// Lists what a session has in a body.
    fn list(&mut self, on: &On, body: BodyNo, ways: u32) {
        let Some(body) = on.program.body(body) else { return };
        for node in &body.there {
            match node {
                Node::Function(place) => self.list_place(on, *place),
                Node::Outputs { place, ways: bits, diverges, outputs, arms } => {
                    self.list_place(on, *place);
                    let instance = on.program.instances.get(usize::from(place.instance));
                    for arm in taken_arms(bits.get(ways), *diverges, arms.len()) {
                        let output = outputs.iter().position(|&of| usize::from(of) == arm);
                        let output = output.and_then(|output| u8::try_from(output).ok());
                        self.old.outputs.extend(instance.map(|instance| instance.uid).zip(output));
                        self.list_end(on, arms[arm], ways);
                    }
                }
                Node::Class { ways: bits, arms, sign } => {
                    self.old.signs.push((*sign, bits.get(ways)));
                    if let Some(arm) = arms.get((bits.get(ways) as usize).wrapping_sub(1)) {
                        self.list_end(on, arm.end, ways);
                    }
                }
                Node::Translate | Node::Flow { .. } => {}
            }
        }
    }

    fn list_end(&mut self, on: &On, end: End, ways: u32) {
        if let End::Body(body) = end {
            self.list(on, body, ways);
        }
    }

    fn list_place(&mut self, on: &On, place: Place) {
        let number = usize::from(place.instance);
        if let (Some(instance), Some(&state)) = (on.program.instances.get(number), on.states.get(number)) {
            self.old.had.push(Had { uid: instance.uid, place, state, taken: false });
        }
    }

    /// Releases what is left on the list, and forgets the list.
    fn release_rest(&mut self, info: &SessionInfo) {
        let mut old = std::mem::take(&mut self.old);
        for Had { place, state, .. } in old.had.drain(..).filter(|had| !had.taken) {
            let mut call = Call { pad: &mut old.pad, ways: 0, info, opener: None, at: None };
            self.release_place(state, &place, &mut call);
        }
        old.signs.clear();
        old.outputs.clear();
        self.old = old;
    }

    /// Enters a body, and the arms that are known to be taken.
    pub fn enter(&mut self, on: &On, body: BodyNo, call: &mut Call<'_>) {
        let Some(body) = on.program.body(body) else { return };
        for node in &body.there {
            match node {
                Node::Function(place) => self.enter_place(on, place, call),
                Node::Outputs { place, ways, diverges, outputs, arms } => {
                    self.enter_place(on, place, call);
                    let uid =
                        on.program.instances.get(usize::from(place.instance)).map(|instance| instance.uid);
                    let mut now = 0;
                    for n in 0..self.old.outputs.len() {
                        let (had, output) = self.old.outputs[n];
                        let arm = outputs
                            .get(usize::from(output))
                            .filter(|_| Some(had) == uid)
                            .copied()
                            .map(usize::from);
                        let Some((arm, End::Body(body))) = arm.and_then(|arm| Some((arm, *arms.get(arm)?)))
                        else {
                            continue;
                        };
                        // Two of the ways that it had may be one now.
                        if now & arm_bits(arm, *diverges) != arm_bits(arm, *diverges) {
                            now |= arm_bits(arm, *diverges);
                            self.enter(on, body, call);
                        }
                    }
                    ways.set(&mut call.ways, now);
                }
                Node::Class { ways, arms, sign } => {
                    let before = self.old.signs.iter().find(|(had, _)| had == sign).map(|(_, taken)| *taken);
                    let arm = match (before, call.opener) {
                        (Some(taken), _) if taken as usize <= arms.len() => (taken as usize).checked_sub(1),
                        (_, Some(opener)) => self.asker.arm(&on.program, arms, call.info, opener),
                        _ => None,
                    };
                    ways.set(&mut call.ways, arm.map_or(0, |arm| arm as u32 + 1));
                    if let Some(End::Body(body)) = arm.and_then(|arm| arms.get(arm)).map(|arm| arm.end) {
                        self.enter(on, body, call);
                    }
                }
                Node::Translate | Node::Flow { .. } => {}
            }
        }
    }

    /// Gives a function its bytes, from before or new ones.
    fn enter_place(&mut self, on: &On, place: &Place, call: &mut Call<'_>) {
        let number = usize::from(place.instance);
        let (Some(instance), Some(&state)) = (on.program.instances.get(number), on.states.get(number)) else {
            return;
        };
        let Some(bytes) = bytes_of(call.pad, place) else { return };
        let same = |had: &&mut Had| had.uid == instance.uid && had.place.bytes == place.bytes && !had.taken;
        let Old { had, pad, .. } = &mut self.old;
        if let Some(had) = had.iter_mut().find(same)
            && let Some(before) = bytes_of(pad, &had.place)
        {
            bytes.copy_from_slice(before);
            had.taken = true;
            return;
        }
        bytes.fill(0);
        let info = seen_at(place, call.info);
        let Core { states, emissions, worker, bypassed, .. } = self;
        let Some(State { instance, local, keyed, .. }) = states.get_mut(state).and_then(Option::as_mut)
        else {
            return;
        };
        let cx = RawContext { now: info.now, worker: *worker, emissions, at: call.at, back: info.in_port };
        if !place.keyed {
            instance.function.open(bytes, &info, cx, &mut **local);
            return;
        }
        let joined = keyed.as_mut().and_then(|keyed| keyed.join(&info.key, info.now));
        bytes.copy_from_slice(&joined.map_or(NO_ENTRY, |(number, _)| number).to_ne_bytes());
        match (joined, keyed) {
            (Some((number, true)), Some(keyed)) => {
                if let Some(pad) = keyed.pad(number).and_then(|pad| pad.get_mut(..instance.bytes())) {
                    instance.function.open(pad, &info, cx, &mut **local);
                }
            }
            (None, _) => *bypassed += 1,
            _ => {}
        }
    }

    /// Leaves a body, and all arms that were taken.
    pub fn leave(&mut self, on: &On, body: BodyNo, call: &mut Call<'_>) {
        let Some(body) = on.program.body(body) else { return };
        for node in &body.there {
            match node {
                Node::Function(place) => self.leave_place(on, place, call),
                Node::Outputs { place, ways, diverges, arms, .. } => {
                    self.leave_place(on, place, call);
                    for arm in taken_arms(ways.get(call.ways), *diverges, arms.len()) {
                        if let End::Body(body) = arms[arm] {
                            self.leave(on, body, call);
                        }
                    }
                }
                Node::Class { ways, arms, .. } => {
                    let taken = (ways.get(call.ways) as usize).wrapping_sub(1);
                    if let Some(End::Body(body)) = arms.get(taken).map(|arm| arm.end) {
                        self.leave(on, body, call);
                    }
                }
                Node::Translate | Node::Flow { .. } => {}
            }
        }
    }

    fn leave_place(&mut self, on: &On, place: &Place, call: &mut Call<'_>) {
        if let Some(&state) = on.states.get(usize::from(place.instance)) {
            self.release_place(state, place, call);
        }
    }

    fn release_place(&mut self, state: usize, place: &Place, call: &mut Call<'_>) {
        let Some(bytes) = bytes_of(call.pad, place) else { return };
        let info = seen_at(place, call.info);
        let Core { states, emissions, worker, .. } = self;
        let Some(State { instance, local, keyed, .. }) = states.get_mut(state).and_then(Option::as_mut)
        else {
            return;
        };
        let cx = RawContext { now: info.now, worker: *worker, emissions, at: call.at, back: info.in_port };
        if !place.keyed {
            instance.function.release(bytes, &info, cx, &mut **local);
            return;
        }
        let (Some(keyed), Some(&number)) = (keyed, bytes.first_chunk()) else { return };
        let number = u32::from_ne_bytes(number);
        if keyed.leave(number) {
            if let Some(pad) = keyed.pad(number).and_then(|pad| pad.get_mut(..instance.bytes())) {
                instance.function.release(pad, &info, cx, &mut **local);
            }
            keyed.remove(number);
        }
    }
}

fn bytes_of<'a>(pad: &'a mut [u8], place: &Place) -> Option<&'a mut [u8]> {
    pad.get_mut(place.offset as usize..)?.get_mut(..place.bytes as usize)
}

/// The arms that a session has been in, by what it remembers.
pub(super) fn taken_arms(taken: u32, diverges: bool, arms: usize) -> impl Iterator<Item = usize> {
    (0..arms).filter(move |&arm| if diverges { taken >> arm & 1 != 0 } else { taken as usize == arm + 1 })
}

/// What is remembered of an arm.
pub(super) fn arm_bits(arm: usize, diverges: bool) -> u32 {
    if diverges { 1 << (arm & 31) } else { arm as u32 + 1 }
}

/// A stage that stays keeps its counts: the same instance in the chain of the same name, for the same time.
fn carry_counts(before: &Loaded, program: &Program, counts: &mut [StageCounters]) {
    let name = |program: &Program, chain: u16| {
        program.chains.get(usize::from(chain)).map(|chain| chain.name.clone())
    };
    let mut used = vec![false; before.counts.len()];
    for (stage, count) in program.stages.iter().zip(counts) {
        let uid = program.instances.get(usize::from(stage.instance)).map(|instance| instance.uid);
        let chain = name(program, stage.chain);
        let same = before.program.stages.iter().enumerate().position(|(at, old)| {
            let old_uid =
                before.program.instances.get(usize::from(old.instance)).map(|instance| instance.uid);
            !used[at] && old_uid == uid && name(&before.program, old.chain) == chain
        });
        if let Some(at) = same {
            used[at] = true;
            *count = before.counts[at];
        }
    }
}
