//! The trait that network functions implement, and the types of its methods.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use bytemuck::Pod;
use mmb_packet::{DropReason, Meta};
use mmb_system::FileAccess;

use crate::{ArgError, ConstantRewrite, Context, OpeningPacket, Packet, SessionInfo, Vector, Verdict};

/// A network function. A value of the implementing type is one instance (`nf add INSTANCE TYPE ARG…`), which
/// all workers share.
///
/// State of a session is in [`Function::Pad`]. State that a worker keeps for the instance is in
/// [`Function::Local`]. Only one thread at a time uses either of them.
pub trait Function: Send + Sync + Sized + 'static {
    /// The name of the type in `nf add INSTANCE TYPE`: lower case letters, digits and `-`.
    const TYPE: &'static str;
    /// The arguments behind the type, as help shows them: `RATE [burst BYTES]`. Empty if there are none.
    const USAGE: &'static str;
    /// What the function does, in one line without a full stop.
    const HELP: &'static str;
    /// Drop reasons of the function's own, as pairs of name and help. [`Setup::drop_reason`] finds them by
    /// name.
    ///
    /// A name is lower case letters, digits and `-`. Reasons appear in `show drops` and in the metrics.
    const DROP_REASONS: &'static [(&'static str, &'static str)] = &[];

    /// The function may return [`Verdict::Hold`].
    const HOLDS: bool = false;

    /// The state of a session (or of another key, see [`Properties::key`]): plain data, zeros at first, with
    /// an alignment of at most 8 bytes. `()` if the function keeps no state.
    type Pad: Pod;
    /// The state that each worker keeps for the instance.
    type Local: Default + Send + 'static;

    /// Makes an instance from the arguments behind its type.
    ///
    /// # Errors
    /// The argument that is wrong, and what is accepted.
    fn new(setup: &Setup<'_>) -> Result<Self, ArgError>;

    /// Properties of the instance. The engine asks for them once, when the instance is made.
    fn properties(&self) -> Properties {
        Properties::default()
    }

    /// Decides whether a packet may open a session that passes the instance.
    ///
    /// No session exists yet, and the same packet can be offered again. The function may change the packet
    /// only into its answer ([`Admission::Answer`]), or into another packet with the same key that opens the
    /// session in its place. In the second case the function has to parse the packet again.
    fn admit(&self, packet: &mut OpeningPacket<'_>, local: &mut Self::Local) -> Admission {
        let _ = (packet, local);
        Admission::Open
    }

    /// Returns the output of the session that this packet opens. Called if [`Properties::routes`] is set.
    fn route(&self, packet: &OpeningPacket<'_>, local: &mut Self::Local) -> Option<u8> {
        let _ = (packet, local);
        None
    }

    /// A session begins, or the instance has joined the chain of an existing session. The scratchpad is
    /// zeros. If several sessions share a key, only the first one is reported.
    fn open(&self, pad: &mut Self::Pad, session: &SessionInfo, cx: &mut Context<'_, Self::Local>) {
        let _ = (pad, session, cx);
    }

    /// Processes a packet of a session.
    fn packet(
        &self,
        packet: &mut Packet<'_>,
        pad: &mut Self::Pad,
        cx: &mut Context<'_, Self::Local>,
    ) -> Verdict;

    /// Processes a vector of packets. The default calls [`Function::packet`] for each. Override it if some
    /// work can be done once for all packets.
    fn vector(&self, vector: &mut Vector<'_, '_, Self>) {
        vector.for_each(|packet, pad, cx| self.packet(packet, pad, cx));
    }

    /// A packet that the function held goes on, after [`crate::HeldQueue::release`]. The function may change
    /// it, and return any verdict but [`Verdict::Hold`].
    fn resume(
        &self,
        packet: &mut Packet<'_>,
        pad: &mut Self::Pad,
        cx: &mut Context<'_, Self::Local>,
    ) -> Verdict {
        let _ = (packet, pad, cx);
        Verdict::Pass
    }

    /// Changes a frame that a stream function behind this one sends to the client of a session. Called if the
    /// instance translates sequence numbers ([`Translates`]). The engine translates addresses and numbers.
    fn translate_sent(&self, head: &mut [u8], meta: &Meta, pad: &Self::Pad) {
        let _ = (head, meta, pad);
    }

    /// A session has ended, or the instance has left its chain. If several sessions share a key, only the
    /// last one is reported.
    fn release(&self, pad: &mut Self::Pad, session: &SessionInfo, cx: &mut Context<'_, Self::Local>) {
        let _ = (pad, session, cx);
    }

    /// Returns what the function does to the packets of a session from now on, if it is the same for each of
    /// them ([`ConstantRewrite`]). Then the kernel's fast path may forward them past the function. TCP
    /// segments with SYN, FIN or RST, and packets that the fast path cannot forward, still come here. `None`:
    /// the function has to see every packet.
    ///
    /// The answer holds as long as the session, or until [`Function::revision`] changes.
    fn constant_rewrite(&self, pad: &Self::Pad) -> Option<ConstantRewrite> {
        let _ = pad;
        None
    }

    /// Returns a number that increases whenever [`Function::constant_rewrite`] may have changed without a
    /// packet of the session. Packets of all sessions come here again then, until it is asked anew.
    fn revision(&self) -> u64 {
        0
    }

    /// Changes a run-time setting: `nf set INSTANCE ARG…`. The configured arguments stay the same.
    ///
    /// # Errors
    /// The argument that is wrong.
    fn set(&self, args: &[&str]) -> Result<(), ArgError> {
        let _ = args;
        Err(format!("a function of type `{}` has no settings", Self::TYPE).into())
    }

    /// Names and values that `show functions` prints for the instance.
    fn report(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Work that needs sockets, files or the time of day. The daemon runs it in a thread of its own while the
    /// instance exists, and asks for it once. `replay` and `bench` do not run it.
    fn background(&self) -> Option<Background> {
        None
    }
}

/// The input of [`Function::new`].
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// The arguments behind the type.
    pub args: &'a [&'a str],
    /// Returns the number of the port with a name.
    pub resolve_port: &'a dyn Fn(&str) -> Option<u16>,
    /// Whether a NAT pool with a name exists.
    pub has_pool: &'a dyn Fn(&str) -> bool,
    /// Number of workers. [`Context::worker`] is below it.
    pub workers: u16,
    /// A secret that senders do not know, for hashes and cookies. All instances get the same one.
    pub seed: u64,
    /// The files that the function may open. [`FileAccess::check`] tests a path of the arguments.
    pub files: &'a Arc<FileAccess>,
}

impl Setup<'_> {
    /// Returns a drop reason of [`Function::DROP_REASONS`]. [`DropReason::ChainError`] if the name is not
    /// among them, or if the process has no room for another reason.
    pub fn drop_reason(&self, name: &str) -> DropReason {
        DropReason::find(name).unwrap_or(DropReason::ChainError)
    }
}

/// Properties of an instance that the engine has to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// The traffic that the function accepts, as matches of the rule language (`ip-proto tcp tcp-dport
    /// {80,8080}`). Empty: all. The first packet of a session is tested.
    pub accepts: String,
    /// What a scratchpad belongs to.
    pub key: SessionKey,
    /// Names of the outputs of [`Verdict::Branch`]. Empty if the function has no outputs.
    pub outputs: Vec<String>,
    /// Packets of one session can leave by different outputs.
    pub diverges: bool,
    /// [`Function::route`] tells the output of a session before it is opened.
    pub routes: bool,
    /// What the engine translates for the function ([`OpeningPacket::translation`]).
    pub translates: Translates,
    /// Least time in milliseconds for which sessions without packets are kept.
    pub timeout: Option<u32>,
    /// Interfaces that the arguments name.
    pub interfaces: Vec<String>,
    /// NAT pools that the arguments name.
    pub pools: Vec<String>,
    /// What the instance does that only a worker can do, so that it cannot run in a process of its own: for
    /// instance, it sends frames.
    pub needs_worker: Option<&'static str>,
    /// The instance changes no byte of any packet. In a `zero-copy` domain, its process then reads packets
    /// where they are; it ends if it writes to one all the same.
    pub is_read_only: bool,
    /// The function treats a large frame of TCP ([`Packet::segment_size`]) as one packet. While all functions
    /// of all chains do so, ports receive such frames whole. Otherwise they segment them.
    ///
    /// The headers of a large frame are those of each of its segments. Its transport checksum has no meaning.
    /// Its length is up to 65,535 bytes, and its payload may be in several buffers ([`Packet::payload`]). A
    /// function that limits or counts packets, or copies frames, leaves it unset. Stream functions have it.
    pub takes_large_frames: bool,
}

/// What a scratchpad belongs to. Addresses are those of the session's first packet at the function's place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SessionKey {
    /// Each session has a scratchpad of its own.
    #[default]
    Session,
    /// All sessions from one source address share a scratchpad.
    Source,
    /// All sessions to one destination address share a scratchpad.
    Destination,
    /// All sessions from one source address to one destination address share a scratchpad.
    Pair,
}

/// What the engine translates for a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Translates {
    /// Source address or port.
    pub source: bool,
    /// Destination address or port.
    pub destination: bool,
    /// TCP sequence numbers.
    pub sequence_numbers: bool,
}

impl Translates {
    /// Whether anything is translated.
    pub fn any(self) -> bool {
        self.source || self.destination || self.sequence_numbers
    }
}

/// Whether a packet may open a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The session is opened.
    Open,
    /// The packet is dropped, and no session is opened.
    Drop(DropReason),
    /// The function has turned the packet into its answer, including the Ethernet addresses. The engine sends
    /// it out by the port at which it came in.
    Answer,
}

/// Background work of an instance: see [`Function::background`]. It returns soon after [`StopSignal::wait`]
/// is true.
pub type Background = Box<dyn FnOnce(&StopSignal) + Send>;

/// Tells background work when to end.
#[derive(Debug, Default)]
pub struct StopSignal {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl StopSignal {
    /// Waits for a time or until the signal is given. Returns true if the work has to end.
    pub fn wait(&self, time: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(stopped, time, |stopped| !*stopped);
        let (stopped, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *stopped
    }

    /// Gives the signal.
    pub fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}
