//! Functions in processes of their own, as the engine sees them.
//!
//! Theory of operation. `process DOMAIN` behind `nf add` asks a [`ProcessHost`] to start the function in a
//! process of its own. The program keeps an instance of the function as well, its *shadow*: it gives
//! properties, and answers [`crate::Function::admit`], since no packet can wait for a process before its
//! session exists. The shadow sees no other packet. Each worker has a [`ProcessLink`]: it copies packets
//! into the memory of the process and takes verdicts back. If the next function is in a process of the same
//! domain, the packet stays in its buffer, and is copied out behind the last one. A function of a `zero-copy`
//! domain that changes no packet reads it where it is ([`PacketMemory`]). Packets wait among those that
//! functions hold ([`crate::Verdict::Hold`]), so the order within a session and direction is kept.
//!
//! A stream function that only reads gets packets in the order of their bytes: its stream context stays in
//! the worker, and the [`View`] of a packet goes with it. Only the bytes are read in the process. A verdict
//! on the stream comes back, and the worker does what it says. The context notes no packet for which the
//! process has no room ([`crate::held::ProcessRoom`]), so that its bytes can come again.
//!
//! A stream function that edits gets bytes in the same manner, and its process keeps a copy of those that it
//! holds back. What it has asked for comes back in the buffer, and the worker does it: see
//! [`crate::stream::apply_edited`].
//!
//! Functions of brokers have no link: their broker runs in the process with them ([`FunctionCopies`]).
//!
//! In the process, [`HostedFunction`] runs the same function over packets and scratchpads in shared memory.

mod copies;
mod hosted;
mod place;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use mmb_lang::{Domain, NfInstance, OnFailure, ProcessMode};
use mmb_packet::DropReason;
use mmb_system::FileAccess;

use crate::{LineSource, Packet, SessionId, SessionInfo, Verdict};

pub use crate::verdict::{ChangedBytes, EditRights, MOST_RESULT, ProcessVerdict};
pub use copies::{CopyProcess, FunctionCopies};
pub use hosted::{HostedFunction, make_copy};
pub use mmb_stream::View;
pub(crate) use place::{ProcessUse, process_use};

/// The domains, and who starts processes in them.
#[derive(Clone, Copy, Default)]
pub struct ProcessSetup<'a> {
    /// The domains.
    pub domains: &'a [Domain],
    /// Starts processes. None: functions with `process` run in the worker, as in `mmb replay`.
    pub host: Option<&'a dyn ProcessHost>,
}

/// What a function in a process is started with.
#[derive(Clone)]
pub struct ProcessSpec<'a> {
    /// The function.
    pub function: &'a NfInstance,
    /// Its domain.
    pub domain: &'a Domain,
    /// What the process does while there are no packets.
    pub mode: ProcessMode,
    /// The processor on which the process runs. None: any.
    pub cpu: Option<u16>,
    /// Ports that the function has asked for by name, with their numbers.
    pub ports: &'a [(String, u16)],
    /// Number of workers.
    pub workers: u16,
    /// A secret that senders do not know.
    pub seed: u64,
    /// Bytes of a scratchpad.
    pub bytes: usize,
    /// The function changes no packet.
    pub is_read_only: bool,
    /// Keeps the files that the function has read, which its process reads as well.
    pub files: &'a Arc<FileAccess>,
    /// Writes the lines of the function, which writes to no file.
    pub log: Option<Arc<dyn LineSource>>,
}

/// What a function in a process is made of.
#[derive(Clone, Debug, Default)]
pub struct HostedSpec {
    /// Name of the instance.
    pub name: String,
    /// Type of the function.
    pub kind: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Ports that it may ask for by name, with their numbers.
    pub ports: Vec<(String, u16)>,
    /// Number of workers.
    pub workers: u16,
    /// A secret that senders do not know.
    pub seed: u64,
}

/// Starts functions in processes.
pub trait ProcessHost: Send + Sync {
    /// Starts a function in a process. The process ends when the result is dropped.
    ///
    /// # Errors
    /// Why there is no such process, in one sentence.
    fn start(&self, spec: &ProcessSpec<'_>) -> Result<Arc<dyn FunctionProcess>, String>;
}

/// The memory of the engine in which packets lie, for processes of `zero-copy` domains.
///
/// A process maps it to read. While it reads a packet, the buffer is pinned: it is not used for another
/// packet, even if the engine drops this one.
pub trait PacketMemory: Send + Sync {
    /// Returns a descriptor that is open to read only, and where the memory begins in the file: a multiple of
    /// the page size.
    fn file(&self) -> (BorrowedFd<'_>, u64);
    /// Returns the size of the memory in bytes.
    fn bytes(&self) -> usize;
    /// Pins the buffer with a frame. Returns the offset of the frame in the memory and the number of the
    /// buffer. None: the frame lies elsewhere, or the buffer is pinned already.
    fn pin(&self, frame: &[u8]) -> Option<(u64, u32)>;
    /// Ends the pin of a buffer. To be called before its packet goes on.
    fn unpin(&self, buffer: u32);
}

/// State and counters of the process of a function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessStatus {
    /// The number of the process. None: there is none now.
    pub process: Option<u32>,
    /// How often another process was started.
    pub restarts: u32,
    /// Why the last process ended, or the next one did not start. None: nothing has failed.
    pub last_failure: Option<String>,
    /// Processor time of the process.
    pub cpu: Duration,
    /// Descriptors that were sent to the function.
    pub descriptors: u64,
    /// Packets that the function has read where they were, without a copy.
    pub in_place: u64,
    /// How often a sleeping process was woken up.
    pub wakeups: u64,
    /// Descriptors that wait for the process, and for the workers.
    pub ring_levels: (u64, u64),
    /// Slots of the rings in one direction.
    pub slots: u64,
    /// Descriptors that can be sent now: free slots, and not more than there are free buffers.
    pub credits: u64,
    /// Buffers with packets of the function.
    pub buffers: u64,
    /// Packets for which there was no room.
    pub full: u64,
    /// Packets that were in a process when it ended.
    pub lost: u64,
    /// Descriptors from the process that were refused.
    pub refused: u64,
}

/// A function that runs in a process.
pub trait FunctionProcess: Send + Sync {
    /// Makes the end of a worker. `sessions`: session numbers are below it. None: it was made before, or
    /// there are more sessions than the process has scratchpads for.
    fn link(&self, worker: u16, sessions: u32) -> Option<Box<dyn ProcessLink>>;
    /// See [`crate::Function::set`].
    ///
    /// # Errors
    /// The error of the function, or the process does not answer.
    fn set(&self, args: &[&str]) -> Result<(), String>;
    /// Returns names and values for `show functions`: of the process, and of the function in it.
    fn report(&self) -> Vec<(String, String)>;
    /// Returns state and counters of the process, without asking it.
    fn status(&self) -> ProcessStatus;
}

/// A buffer with the bytes of a packet, on its way from one process of a domain to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilledBuffer {
    /// Its number.
    pub buffer: u32,
    /// Bytes of the frame.
    pub len: usize,
    /// The frame is not in the buffer, but where the packet is.
    pub is_in_place: bool,
}

/// Whether packets can be sent to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// They can.
    Up,
    /// The process is not there.
    Down(OnFailure),
}

/// The end of a worker of the connection with a process.
///
/// Sent packets have a number, their buffer. It is used again after [`ProcessLink::free`].
pub trait ProcessLink: Send {
    /// Looks after the process. To be called between two vectors: the state changes only here.
    fn poll(&mut self) -> LinkState;
    /// Returns the number of buffers.
    fn buffers(&self) -> u32;
    /// Returns the number of buffers that the process has, or whose packets wait for
    /// [`ProcessLink::receive`].
    fn in_flight(&self) -> u32;
    /// Returns the number of packets that can be sent now. Others may use the same buffers meanwhile.
    fn room(&mut self) -> u32;
    /// Sends a packet to the process. `input`: what a stream function gets of it. Returns its buffer. The
    /// packet is copied, unless it is in the buffer that another link has detached, which is used or freed in
    /// any case.
    ///
    /// # Errors
    /// The packet is to be dropped, or its session is to be ended, since the function has not learned of it.
    fn send(
        &mut self,
        packet: &Packet<'_>,
        input: (View, EditRights),
        now: u32,
        filled: Option<FilledBuffer>,
    ) -> Result<u32, Verdict>;
    /// Returns a number that all links with the same buffers have.
    fn pool_id(&self) -> usize;
    /// Gives up a buffer that came back, for another link with the same buffers. None: the bytes in it are
    /// not to be used.
    fn detach_buffer(&mut self, buffer: u32) -> Option<FilledBuffer>;
    /// Frees a buffer that another link has given up.
    fn free_detached(&mut self, filled: FilledBuffer);
    /// Tells the function that a session begins. `moved`: the scratchpad that the session has had elsewhere.
    fn open(&mut self, session: &SessionInfo, moved: Option<&[u8]>);
    /// Reads the scratchpad of a session. Returns false if the function does not know the session. No packet
    /// of the session may be in the process.
    fn read_scratchpad(&self, session: SessionId, bytes: &mut [u8]) -> bool;
    /// Tells the function that a session ends.
    fn release(&mut self, session: &SessionInfo);
    /// Shows the process what was sent since the last call.
    fn flush(&mut self);
    /// Takes the next packet that came back: its buffer and the verdict. A packet comes back once.
    fn receive(&mut self) -> Option<(u32, ProcessVerdict)>;
    /// Copies what the function has changed back into a packet.
    ///
    /// # Errors
    /// The packet has other headers than it had.
    fn copy_back(&mut self, buffer: u32, packet: &mut Packet<'_>) -> Result<(), DropReason>;
    /// Copies the result of a function that edits out of a buffer: at most [`MOST_RESULT`] bytes, which are
    /// not to be trusted.
    fn read_result(&mut self, buffer: u32, result: &mut Vec<u8>);
    /// The bytes of a buffer are not needed any more. Does nothing while the process has it.
    fn free(&mut self, buffer: u32);
}
