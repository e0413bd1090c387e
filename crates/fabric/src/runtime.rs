//! The life of a function's process.
//!
//! # Theory of operation
//! The process gets its end of a socket as standard input, and nothing by name. The first message brings the
//! memory. The process gives up its rights ([`crate::sandbox`]) before it makes the function: as many as
//! possible before that message, so that a spare process that waits for it starts fast. Then it serves
//! the rings of all workers in turn. Without packets it spins, yields the processor, or sleeps on the
//! doorbell and on the socket, as its mode says ([`idle`]). It ends with the socket.

mod idle;
mod inputs;
mod lines;

use std::any::Any;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use mmb_nf::process::{HostedFunction, HostedSpec, ProcessVerdict};
use mmb_nf::{Packet, ProcessMode, Registry, SessionId, SessionInfo, TailSegments};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::RecvFlags;

use crate::descriptor::Descriptor;
use crate::doorbell::{Bell, EventBell, Sleeper};
use crate::layout::{
    Geometry, MOVED, OPEN, PACKET, PacketHeader, RELEASE, RingPair, SessionRecord, buffer_words, read_record,
    tag_of, write_result,
};
use crate::memory::{ReadMemory, Region, SharedMemory};
use crate::message::{self, First, Hello, Reply, Request};
use crate::pool::BUFFER_HEADER;
use crate::ring::{self, Consumer, Producer};
use crate::sandbox;
use crate::words::Words;
use idle::{Idle, IdleStep};
use inputs::Inputs;
use lines::LineSender;

/// Most packets of a vector.
const VECTOR: usize = HostedFunction::VECTOR;
/// Turns between two looks at the socket.
const TURNS: u32 = 4096;

/// A process that is to run a broker. It has given up its capabilities, and no system call yet.
#[derive(Debug)]
pub struct BrokerStart {
    /// What the broker was told to the process in the first message.
    pub hello: serde_json::Value,
    /// The descriptors of that message.
    pub files: Vec<OwnedFd>,
    /// The socket to the engine.
    pub socket: OwnedFd,
}

/// Runs a broker in a process until it ends, or returns why it does not run.
pub type RunBroker = fn(&Registry, BrokerStart) -> Result<(), String>;

/// Runs the process of a function or of a broker, whose socket is the standard input, until the engine ends
/// it.
///
/// # Errors
/// Why it does not run. The engine is told as well.
pub fn run_function(registry: &Registry, run_broker: RunBroker) -> Result<(), String> {
    sandbox::end_with_parent();
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    // A spare process waits here until it is needed.
    let isolated = sandbox::isolate();
    let first = message::receive::<First>(&socket, RecvFlags::empty()).map_err(|error| error.to_string())?;
    let Some((first, files)) = first else { return Ok(()) };
    let run = || {
        isolated?;
        match first {
            First::Function(hello) => {
                let mut process = Process::new(registry, &hello, files)?;
                message::send(&socket, &Reply::Ready, &[]).map_err(|error| error.to_string())?;
                process.serve(socket.as_fd());
                Ok(())
            }
            First::Broker(hello) => {
                let socket = socket.try_clone().map_err(|error| error.to_string())?;
                run_broker(registry, BrokerStart { hello, files, socket })
            }
        }
    };
    let done = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(words_of(&*panic)));
    if let Err(reason) = &done {
        // If the engine is gone, nobody waits for the reason.
        let _ = message::send(&socket, &Reply::Failed(reason.clone()), &[]);
    }
    done
}

/// Returns what a panic of the function says.
fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    format!("the function panicked: {}", words.unwrap_or("without a reason"))
}

/// The rings and scratchpads of a worker.
struct Worker {
    there: Consumer<Region>,
    back: Producer<Region>,
    /// Shows whether there are packets, while the process falls asleep.
    pair: RingPair,
    pads: Region,
}

struct Process {
    function: HostedFunction,
    geometry: Geometry,
    pool: Arc<SharedMemory>,
    /// The engine's packet memory, if the function reads packets where they are.
    packets: Option<ReadMemory>,
    stride: usize,
    workers: Vec<Worker>,
    sleeper: Sleeper<Region>,
    bell: EventBell,
    idle: Idle,
    /// Descriptors of a worker that were read.
    received: Box<[Descriptor; VECTOR]>,
    verdicts: Box<[ProcessVerdict; VECTOR]>,
    lines: LineSender,
    inputs: Inputs,
}

/// The end of a frame behind its first segment.
#[derive(Debug)]
struct Rest<'a>(&'a [u8]);

impl TailSegments for Rest<'_> {
    fn segment(&self, number: usize) -> Option<&[u8]> {
        (number == 0).then_some(self.0)
    }
}

impl Process {
    fn new(registry: &Registry, hello: &Hello, files: Vec<OwnedFd>) -> Result<Process, String> {
        let text = |error: io::Error| error.to_string();
        let mut files = files.into_iter();
        let mut file = || files.next().ok_or("the first message has too few descriptors");
        let (pool, pads, rings, bell) = (file()?, file()?, file()?, file()?);
        let packets = match hello.packets {
            Some((offset, bytes)) => Some(ReadMemory::map(file()?, offset, bytes).map_err(text)?),
            None => None,
        };
        let pool = Arc::new(SharedMemory::open(pool).map_err(text)?);
        let pads = Arc::new(SharedMemory::open(pads).map_err(text)?);
        let rings = Arc::new(SharedMemory::open(rings).map_err(text)?);
        hello.cpu.map_or(Ok(()), sandbox::pin)?;
        sandbox::restore_priority(hello.priority);
        let mapped: usize = [&pool, &pads, &rings].map(|memory| memory.words().len() * 8).iter().sum();
        let mapped = mapped + hello.packets.map_or(0, |(_, bytes)| bytes);
        let (mapped, inputs) = (mapped as u64, hello.files.len() as u64);
        sandbox::limit(sandbox::Rights::Memory { mapped, inputs })?;
        let spec = HostedSpec {
            name: hello.name.clone(),
            kind: hello.kind.clone(),
            args: hello.args.clone(),
            ports: hello.ports.clone(),
            workers: hello.geometry.workers,
            seed: hello.seed,
        };
        let inputs = Inputs::default();
        inputs.set(hello.files.clone(), files);
        let function = HostedFunction::new(registry, &spec, &inputs.access())?;
        let geometry = hello.geometry;
        if function.bytes().next_multiple_of(8) != geometry.stride as usize {
            return Err("the scratchpads have another size than the function".into());
        }
        let worker = |number| {
            let RingPair { there, back } = geometry.rings(&rings, number)?;
            Some(Worker {
                pair: RingPair { there: there.clone(), back: back.clone() },
                there: Consumer::new(there)?,
                back: Producer::new(back)?,
                pads: geometry.pads(&pads, number)?,
            })
        };
        let workers: Option<Vec<Worker>> = (0..geometry.workers).map(worker).collect();
        Ok(Process {
            function,
            geometry,
            stride: hello.stride,
            workers: workers.ok_or("the memory is too small")?,
            sleeper: Sleeper::new(geometry.doorbell(&rings).ok_or("the memory is too small")?),
            pool,
            packets,
            bell: bell.into(),
            idle: Idle::new(ProcessMode::from_word(&hello.mode).unwrap_or_default()),
            received: Box::new([Descriptor::default(); VECTOR]),
            verdicts: Box::new([ProcessVerdict::Lost; VECTOR]),
            lines: LineSender::default(),
            inputs,
        })
    }

    /// Serves the rings until the engine is gone.
    fn serve(&mut self, socket: BorrowedFd<'_>) {
        let mut turns = 0_u32;
        loop {
            let mut n = 0;
            for worker in 0..self.workers.len() {
                n += self.serve_worker(worker);
            }
            turns = turns.wrapping_add(1);
            let mut is_asked = turns.is_multiple_of(TURNS) && message::is_readable(socket);
            if turns.is_multiple_of(TURNS) {
                self.lines.send(&self.function, socket, Instant::now());
            }
            if n > 0 {
                self.idle.reset();
            } else {
                match self.idle.step(Instant::now) {
                    IdleStep::Spin => std::hint::spin_loop(),
                    IdleStep::Yield => std::thread::yield_now(),
                    IdleStep::Sleep => is_asked |= self.sleep(socket),
                }
            }
            if is_asked && !self.answer(socket) {
                return;
            }
        }
    }

    /// Sleeps until there are packets, or a message of the engine. Returns whether there is a message.
    fn sleep(&mut self, socket: BorrowedFd<'_>) -> bool {
        let Process { sleeper, bell, workers, idle, lines, function, .. } = self;
        let limit = lines.send(function, socket, Instant::now());
        let has_work = || {
            workers.iter().any(|worker| {
                let (written, read) = ring::counters(&worker.pair.there);
                written != read
            })
        };
        let (either, begin) =
            (EitherBell { bell, socket, limit, is_asked: Cell::new(false) }, Instant::now());
        sleeper.sleep(&either, has_work);
        idle.note_sleep(begin.elapsed());
        either.is_asked.get()
    }

    /// Answers requests of the engine. Returns false if it is gone.
    fn answer(&mut self, socket: BorrowedFd<'_>) -> bool {
        loop {
            let (request, files) = match message::receive::<Request>(socket, RecvFlags::DONTWAIT) {
                Ok(Some(received)) => received,
                Ok(None) => return false,
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            };
            let reply = match request {
                Request::Set(words, paths) => {
                    self.inputs.set(paths, files.into_iter());
                    let words: Vec<&str> = words.iter().map(String::as_str).collect();
                    Reply::Set(self.function.set(&words))
                }
                Request::Report => Reply::Report(self.function.report()),
            };
            if message::send(socket, &reply, &[]).is_err() {
                return false;
            }
        }
    }

    /// Processes what a worker has sent, at most a vector. Returns how many descriptors.
    fn serve_worker(&mut self, number: usize) -> usize {
        let Some(worker) = self.workers.get_mut(number) else { return 0 };
        let room = worker.back.room().unwrap_or(0).min(VECTOR as u64) as usize;
        let mut batch: ArrayVec<Descriptor, VECTOR> = ArrayVec::new();
        let n = worker.there.pop_vector(&mut self.received[..room]).unwrap_or(0);
        for at in 0..n {
            let descriptor = self.received[at];
            if descriptor.tag == PACKET {
                batch.push(descriptor);
                continue;
            }
            // The order is that of the ring.
            self.process(number, &mut batch);
            self.change_session(number, descriptor);
            self.send_back(number, descriptor);
        }
        self.process(number, &mut batch);
        if let Some(worker) = self.workers.get_mut(number).filter(|_| n > 0) {
            worker.back.publish();
            worker.there.publish();
        }
        n
    }

    fn send_back(&mut self, number: usize, descriptor: Descriptor) {
        if let Some(worker) = self.workers.get_mut(number) {
            // There is room: not more was read.
            let _ = worker.back.push(descriptor);
        }
    }

    /// Tells the function that a session begins or ends.
    fn change_session(&mut self, number: usize, descriptor: Descriptor) {
        let Process { function, geometry, pool, stride, workers, .. } = self;
        let Some(worker) = workers.get_mut(number) else { return };
        let record: SessionRecord = read_record(buffer_words(&**pool, &descriptor, *stride));
        let (session, stride) = (SessionInfo::from(record), geometry.stride as usize);
        let bytes = function.bytes();
        let pads = pads_of(&mut worker.pads);
        let start = session.id.0 as usize * stride;
        let Some(pad) = pads.get_mut(start..start + bytes) else { return };
        match descriptor.tag {
            // The scratchpad stays as it was written.
            MOVED => {
                let mut unused = vec![0_u64; bytes.div_ceil(8)];
                let pad = bytemuck::cast_slice_mut(&mut unused).get_mut(..bytes).unwrap_or_default();
                function.open(number as u16, pad, &session);
            }
            OPEN => function.open(number as u16, pad, &session),
            RELEASE => function.release(number as u16, pad, &session),
            _ => {}
        }
    }

    /// Gives packets to the function, and sends them back.
    fn process(&mut self, number: usize, batch: &mut ArrayVec<Descriptor, VECTOR>) {
        if batch.is_empty() {
            return;
        }
        let Process { function, geometry, pool, packets: memory, stride, workers, verdicts, .. } = self;
        let Some(worker) = workers.get_mut(number) else { return };
        let mut headers: ArrayVec<PacketHeader, VECTOR> = ArrayVec::new();
        headers.extend(batch.iter().map(|one| read_record(buffer_words(&**pool, one, *stride))));
        let now = headers.last().map_or(0, |header| header.now);
        let inputs: ArrayVec<_, VECTOR> = headers.iter().map(PacketHeader::input).collect();
        let mut rests: ArrayVec<Rest<'_>, VECTOR> = ArrayVec::new();
        let mut heads: ArrayVec<&mut [u8], VECTOR> = ArrayVec::new();
        for (descriptor, header) in batch.iter().zip(&headers) {
            let frame = match (header.place(), &*memory) {
                (Some(at), Some(memory)) => frame_at(memory, at, descriptor.len.into()),
                _ => frame_of(pool, descriptor, *stride),
            };
            let (head, rest) = frame.split_at_mut((header.head as usize).min(frame.len()));
            heads.push(head);
            rests.push(Rest(rest));
        }
        let mut packets: ArrayVec<Packet<'_>, VECTOR> = ArrayVec::new();
        for (((descriptor, header), head), rest) in batch.iter().zip(&mut headers).zip(heads).zip(&rests) {
            packets.push(Packet {
                head,
                tail: (!rest.0.is_empty()).then_some(rest as &dyn TailSegments),
                in_port: header.in_port,
                direction: header.direction(),
                meta: &mut header.meta,
                len: descriptor.len.into(),
                segment_size: header.segment_size,
                session: SessionId(descriptor.session),
            });
        }
        let pads = (pads_of(&mut worker.pads), geometry.stride as usize, 0);
        function.process((number as u16, now), &mut packets, &inputs, pads, verdicts);
        drop(packets);
        for (at, descriptor) in batch.drain(..).enumerate() {
            if let Some(result) = function.result(at) {
                write_result(buffer_words(&**pool, &descriptor, *stride), result);
            }
            let _ = worker.back.push(Descriptor { tag: tag_of(verdicts[at]), ..descriptor });
        }
    }
}

/// Returns the frame in a buffer. Empty if the descriptor is not one of the pool.
#[allow(clippy::mut_from_ref, reason = "a buffer has one user at a time, as the safety comment says")]
fn frame_of<'a>(pool: &'a Arc<SharedMemory>, descriptor: &Descriptor, stride: usize) -> &'a mut [u8] {
    let words = buffer_words(&**pool, descriptor, stride);
    let room = (words.len() * 8).saturating_sub(BUFFER_HEADER);
    if usize::from(descriptor.len) > room {
        return &mut [];
    }
    let start = pool.as_mut_ptr().wrapping_add(descriptor.buffer as usize * stride + BUFFER_HEADER);
    // SAFETY: the bytes are in the mapping: `buffer_words` has found the whole buffer. The engine, which this
    // process trusts, gives a buffer to one process at a time and does not touch it until its descriptor is
    // back; it issues no buffer twice, so no other slice of the batch overlaps. The slice is dropped before
    // the descriptor is sent back.
    unsafe { std::slice::from_raw_parts_mut(start, descriptor.len.into()) }
}

/// Returns a frame in the engine's packet memory, which the function only reads. Empty if it is not there.
#[allow(clippy::mut_from_ref, reason = "functions get all frames alike, as the safety comment says")]
fn frame_at(memory: &ReadMemory, at: u64, len: usize) -> &mut [u8] {
    let Some(start) = memory.at(at, len) else { return &mut [] };
    // SAFETY: the bytes are in the mapping. The engine does not use the buffer for anything else before the
    // descriptor is back, and does not touch the packet. Each packet is in the ring once, so no other slice
    // of the batch overlaps. The mapping is to read: the function has said that it writes to no packet, and
    // if it does so all the same, the kernel ends the process.
    unsafe { std::slice::from_raw_parts_mut(start.cast_mut(), len) }
}

/// Returns the scratchpads of a worker.
fn pads_of(region: &mut Region) -> &mut [u8] {
    let len = crate::words::Words::words(region).len() * 8;
    // SAFETY: the region is in the mapping and lives longer than the slice. Only this thread uses the
    // scratchpads of sessions that it knows: the engine reads and writes others, and an earlier process has
    // ended.
    unsafe { std::slice::from_raw_parts_mut(region.as_mut_ptr(), len) }
}

/// The doorbell, or a message of the engine.
struct EitherBell<'a> {
    bell: &'a EventBell,
    socket: BorrowedFd<'a>,
    /// The longest wait: lines wait as well.
    limit: Option<Duration>,
    /// The last wait was ended by a message.
    is_asked: Cell<bool>,
}

impl Bell for EitherBell<'_> {
    fn ring(&self) {
        self.bell.ring();
    }

    fn wait(&self) {
        let mut files =
            [PollFd::new(self.bell, PollFlags::IN), PollFd::from_borrowed_fd(self.socket, PollFlags::IN)];
        // A signal ends the wait early, which is allowed.
        let limit = self.limit.and_then(|limit| Timespec::try_from(limit).ok());
        let _ = poll(&mut files, limit.as_ref());
        self.is_asked.set(!files[1].revents().is_empty());
        if !files[0].revents().is_empty() {
            self.bell.clear();
        }
    }
}
