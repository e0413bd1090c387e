//! A process that is only memory: the test says when it works, and when it ends.

#![allow(dead_code, reason = "each test uses some of it")]

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mmb_nf::process::{
    EditRights, FilledBuffer, FunctionProcess, HostedFunction, HostedSpec, LinkState, ProcessHost,
    ProcessLink, ProcessSpec, ProcessStatus, ProcessVerdict, View,
};
use mmb_nf::{Direction, DropReason, Meta, OnFailure, Packet, Registry, SessionId, SessionInfo, Verdict};

const BUFFERS: u32 = 64;
/// Bytes of a frame.
const FRAME: usize = 65_535;

struct Sent {
    buffer: u32,
    frame: Vec<u8>,
    meta: Meta,
    input: (View, EditRights),
    session: SessionId,
    direction: Direction,
}

enum Item {
    Packet(Sent),
    Open(SessionInfo),
    Release(SessionInfo),
}

/// What the engine and the process share.
pub struct Memory {
    registry: fn() -> Registry,
    spec: HostedSpec,
    function: Option<HostedFunction>,
    on_failure: OnFailure,
    pads: Vec<u64>,
    stride: usize,
    there: VecDeque<Item>,
    back: VecDeque<(u32, ProcessVerdict)>,
    results: HashMap<u32, Vec<u8>>,
    free: Vec<u32>,
    in_process: u32,
    /// Results in the place of those of the function.
    pub forged: VecDeque<Vec<u8>>,
}

impl Memory {
    /// The process works on so many items.
    pub fn run(&mut self, items: usize) {
        for _ in 0..items {
            let Some(item) = self.there.pop_front() else { return };
            let Some(function) = &mut self.function else { return self.there.push_front(item) };
            let bytes = function.bytes();
            let pads: &mut [u8] = bytemuck::cast_slice_mut(&mut self.pads);
            let pad = |session: &SessionInfo| {
                let start = session.id.0 as usize * self.stride;
                start..start + bytes
            };
            match item {
                Item::Open(session) => function.open(0, &mut pads[pad(&session)], &session),
                Item::Release(session) => function.release(0, &mut pads[pad(&session)], &session),
                Item::Packet(mut sent) => {
                    let len = sent.frame.len() as u32;
                    let packet = Packet {
                        head: &mut sent.frame,
                        tail: None,
                        in_port: 0,
                        direction: sent.direction,
                        meta: &mut sent.meta,
                        len,
                        segment_size: 0,
                        session: sent.session,
                    };
                    let mut out = [ProcessVerdict::Lost; HostedFunction::VECTOR];
                    function.process((0, 1), &mut [packet], &[sent.input], (pads, self.stride, 0), &mut out);
                    let result = function.result(0).unwrap_or_default().to_vec();
                    self.results.insert(sent.buffer, self.forged.pop_front().unwrap_or(result));
                    self.back.push_back((sent.buffer, out[0]));
                }
            }
        }
    }

    /// The process ends, and another one has begun. What it had is lost.
    pub fn kill(&mut self) {
        self.function = Some(HostedFunction::new(&(self.registry)(), &self.spec, &Arc::default()).unwrap());
        let mut lost: Vec<u32> = self.back.drain(..).map(|(buffer, _)| buffer).collect();
        self.there.retain(|item| match item {
            Item::Packet(sent) => {
                lost.push(sent.buffer);
                false
            }
            _ => true,
        });
        self.back.extend(lost.into_iter().map(|buffer| (buffer, ProcessVerdict::Lost)));
    }

    /// The process ends, and there is none until [`Memory::kill`].
    pub fn stop(&mut self) {
        self.kill();
        self.function = None;
    }

    /// Packets that have not come back.
    pub fn in_process(&self) -> u32 {
        self.in_process
    }
}

/// Starts functions.
pub struct MemoryHost {
    pub registry: fn() -> Registry,
    pub memories: Mutex<Vec<Arc<Mutex<Memory>>>>,
}

fn locked<T>(memory: &Mutex<T>) -> MutexGuard<'_, T> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryHost {
    pub fn new(registry: fn() -> Registry) -> MemoryHost {
        MemoryHost { registry, memories: Mutex::default() }
    }

    /// Calls a closure with the process that was started last.
    pub fn with<T>(&self, f: impl FnOnce(&mut Memory) -> T) -> T {
        f(&mut locked(locked(&self.memories).last().unwrap()))
    }

    /// Calls a closure with each process, in the order in which they were started.
    pub fn each(&self, mut f: impl FnMut(&mut Memory)) {
        locked(&self.memories).iter().for_each(|memory| f(&mut locked(memory)));
    }
}

impl ProcessHost for MemoryHost {
    fn start(&self, spec: &ProcessSpec<'_>) -> Result<Arc<dyn FunctionProcess>, String> {
        let hosted = HostedSpec {
            name: spec.function.name.text.to_string(),
            kind: spec.function.kind.text.to_string(),
            args: spec.function.args.iter().map(|word| word.to_string()).collect(),
            workers: 1,
            ..HostedSpec::default()
        };
        let memory = Memory {
            registry: self.registry,
            function: Some(HostedFunction::new(&(self.registry)(), &hosted, &Arc::default())?),
            spec: hosted,
            on_failure: spec.domain.on_failure,
            pads: Vec::new(),
            stride: spec.bytes.next_multiple_of(8),
            there: VecDeque::new(),
            back: VecDeque::new(),
            results: HashMap::new(),
            free: (0..BUFFERS).collect(),
            in_process: 0,
            forged: VecDeque::new(),
        };
        let memory = Arc::new(Mutex::new(memory));
        locked(&self.memories).push(memory.clone());
        Ok(Arc::new(Process(memory)))
    }
}

struct Process(Arc<Mutex<Memory>>);

impl FunctionProcess for Process {
    fn link(&self, _: u16, sessions: u32) -> Option<Box<dyn ProcessLink>> {
        let mut memory = locked(&self.0);
        let words = memory.stride / 8 * sessions as usize;
        memory.pads.resize(words, 0);
        Some(Box::new(Link(self.0.clone())))
    }

    fn set(&self, _: &[&str]) -> Result<(), String> {
        Ok(())
    }

    fn report(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn status(&self) -> ProcessStatus {
        ProcessStatus::default()
    }
}

struct Link(Arc<Mutex<Memory>>);

impl ProcessLink for Link {
    fn poll(&mut self) -> LinkState {
        let memory = locked(&self.0);
        if memory.function.is_some() { LinkState::Up } else { LinkState::Down(memory.on_failure) }
    }

    fn buffers(&self) -> u32 {
        BUFFERS
    }

    fn in_flight(&self) -> u32 {
        locked(&self.0).in_process
    }

    fn room(&mut self) -> u32 {
        locked(&self.0).free.len() as u32
    }

    fn send(
        &mut self,
        packet: &Packet<'_>,
        input: (View, EditRights),
        _: u32,
        _: Option<FilledBuffer>,
    ) -> Result<u32, Verdict> {
        let mut memory = locked(&self.0);
        if packet.head.len() > FRAME {
            return Err(Verdict::Drop(DropReason::ProcessFull));
        }
        let buffer = memory.free.pop().ok_or(Verdict::Drop(DropReason::ProcessFull))?;
        memory.in_process += 1;
        memory.there.push_back(Item::Packet(Sent {
            buffer,
            frame: packet.head.to_vec(),
            meta: *packet.meta,
            input,
            session: packet.session,
            direction: packet.direction,
        }));
        Ok(buffer)
    }

    fn pool_id(&self) -> usize {
        0
    }

    fn detach_buffer(&mut self, _: u32) -> Option<FilledBuffer> {
        None
    }

    fn free_detached(&mut self, _: FilledBuffer) {}

    fn open(&mut self, session: &SessionInfo, _: Option<&[u8]>) {
        locked(&self.0).there.push_back(Item::Open(*session));
    }

    fn read_scratchpad(&self, session: SessionId, bytes: &mut [u8]) -> bool {
        let memory = locked(&self.0);
        let pads: &[u8] = bytemuck::cast_slice(&memory.pads);
        let start = session.0 as usize * memory.stride;
        bytes.copy_from_slice(&pads[start..start + bytes.len()]);
        true
    }

    fn release(&mut self, session: &SessionInfo) {
        locked(&self.0).there.push_back(Item::Release(*session));
    }

    fn flush(&mut self) {}

    fn receive(&mut self) -> Option<(u32, ProcessVerdict)> {
        let mut memory = locked(&self.0);
        let returned = memory.back.pop_front()?;
        memory.in_process -= 1;
        Some(returned)
    }

    fn copy_back(&mut self, _: u32, _: &mut Packet<'_>) -> Result<(), DropReason> {
        Ok(())
    }

    fn read_result(&mut self, buffer: u32, result: &mut Vec<u8>) {
        let memory = locked(&self.0);
        result.clear();
        result.extend(memory.results.get(&buffer).into_iter().flatten());
    }

    fn free(&mut self, buffer: u32) {
        let mut memory = locked(&self.0);
        let is_away =
            memory.there.iter().any(|item| matches!(item, Item::Packet(sent) if sent.buffer == buffer))
                || memory.back.iter().any(|(other, _)| *other == buffer);
        if !is_away && !memory.free.contains(&buffer) {
            memory.free.push(buffer);
        }
    }
}
