//! What a network function is: the trait that developers implement, and what it speaks with.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use bytemuck::Pod;
use mmb_packet::DropReason;

use crate::{Context, OpeningPacket, Packet, SessionInfo, Vector};

/// A network function. An implementing value is one instance (`nf add INSTANCE TYPE ARG…`), shared by all workers.
///
/// What it keeps of a session stands in its [`Function::Pad`]; what a worker keeps for the instance in its
/// [`Function::Local`]. Neither is ever used by two threads at a time.
pub trait Function: Send + Sync + Sized + 'static {
    /// The name of the type in `nf add INSTANCE TYPE`: lower case, digits and `-`.
    const TYPE: &'static str;
    /// The words behind the type, as help shows them: `RATE [burst BYTES]`. Empty: there are none.
    const USAGE: &'static str;
    /// What it does, in one line without a full stop.
    const HELP: &'static str;

    /// What is kept of a session (or of another key, see [`Properties::key`]): plain data, zeros to begin with, aligned to at
    /// most 8 bytes. `()` if nothing is.
    type Pad: Pod;
    /// What each worker keeps for the instance.
    type Local: Default + Send + 'static;

    /// Makes an instance of the words behind its type.
    ///
    /// # Errors
    /// A sentence that says what is wrong and what would be right.
    fn new(setup: &Setup<'_>) -> Result<Self, String>;

    /// What the engine has to know about the instance. Asked once, when it is made.
    fn properties(&self) -> Properties {
        Properties::default()
    }

    /// A packet is about to open a session whose way leads through the instance. Nothing is entered yet, and the same
    /// packet may be asked about again. It may be changed only into its answer ([`Admission::Answer`]), or into the packet that
    /// opens the session in its place, with the same key; its parse is then the function's to bring up to date.
    fn admit(&self, first: &mut OpeningPacket<'_>, local: &mut Self::Local) -> Admission {
        let _ = (first, local);
        Admission::Open
    }

    /// By which of its outputs the sessions that this packet opens will go, of functions with [`Properties::routes`].
    fn route(&self, first: &OpeningPacket<'_>, local: &mut Self::Local) -> Option<u8> {
        let _ = (first, local);
        None
    }

    /// A session begins (or the instance has joined a chain that it is in): its scratchpad is zeros. Of a key that several
    /// sessions share, only the first of them.
    fn open(&self, pad: &mut Self::Pad, session: &SessionInfo, cx: &mut Context<'_, Self::Local>) {
        let _ = (pad, session, cx);
    }

    /// A packet of a session.
    fn packet(
        &self,
        packet: &mut Packet<'_>,
        pad: &mut Self::Pad,
        cx: &mut Context<'_, Self::Local>,
    ) -> Verdict;

    /// A vector of packets. The default asks [`Function::packet`] about each; to be overridden where something can be done
    /// once for all of them.
    fn vector(&self, vector: &mut Vector<'_, '_, Self>) {
        vector.for_each(|packet, pad, cx| self.packet(packet, pad, cx));
    }

    /// A session has ended (or the instance has left its chain). Of a key that several sessions share, the last of them.
    fn release(&self, pad: &mut Self::Pad, session: &SessionInfo, cx: &mut Context<'_, Self::Local>) {
        let _ = (pad, session, cx);
    }

    /// `nf set INSTANCE WORD…`: changes what the instance does, not what it is configured as.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    fn set(&self, words: &[&str]) -> Result<(), String> {
        let _ = words;
        Err(format!("nothing can be set of a function `{}`", Self::TYPE))
    }

    /// What `show functions` says of the instance: names and values.
    fn report(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Work that needs sockets, files or a clock: the daemon gives it a thread of its own, for as long as the instance is
    /// there. Asked for once. Not started by `replay` and `bench`.
    fn background(&self) -> Option<Background> {
        None
    }
}

/// What an instance is made of.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// The words behind its type.
    pub args: &'a [&'a str],
    /// The number of a port, by its name.
    pub resolve_port: &'a dyn Fn(&str) -> Option<u16>,
    /// Whether there is a NAT pool of that name.
    pub has_pool: &'a dyn Fn(&str) -> bool,
    /// How many workers there are: [`Context::worker`] is below.
    pub workers: u16,
    /// A secret from senders, for hashes and cookies; the same for all instances.
    pub seed: u64,
}

/// What the engine has to know about an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// The traffic it takes: matches of the rule language (`ip-proto tcp tcp-dport {80,8080}`); empty: all. Asked about the
    /// first packet of a session.
    pub accepts: String,
    /// What its scratchpad belongs to.
    pub key: SessionKey,
    /// Its outputs, by [`Verdict::Branch`]; none: it only lets pass.
    pub outputs: Vec<String>,
    /// Packets of one session may leave it by several outputs.
    pub diverges: bool,
    /// [`Function::route`] says beforehand by which output a session's packets will go.
    pub routes: bool,
    /// What it has translated ([`OpeningPacket::translation`]).
    pub translates: Translates,
    /// For how long sessions without packets have to be kept at least, in milliseconds.
    pub timeout: Option<u32>,
    /// Interfaces that it names.
    pub interfaces: Vec<String>,
    /// NAT pools that it names.
    pub pools: Vec<String>,
}

/// What a scratchpad belongs to. Addresses are those of the session's first packet as the function sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SessionKey {
    /// Each session has its own.
    #[default]
    Session,
    /// All sessions that one source address opens share one.
    Source,
    /// All sessions to one destination address.
    Destination,
    /// All sessions from one source address to one destination address.
    Pair,
}

/// What a function has the engine translate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Translates {
    /// Source address or port.
    pub source: bool,
    /// Destination address or port.
    pub destination: bool,
    /// Sequence numbers.
    pub sequence_numbers: bool,
}

impl Translates {
    /// Whether anything.
    pub fn any(self) -> bool {
        self.source || self.destination || self.sequence_numbers
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    #[default]
    Pass,
    /// It goes on by the output of this number; one that there is not drops it ([`DropReason::ChainError`]).
    Branch(u8),
    /// It is dropped.
    Drop(DropReason),
    /// It is dropped, and all packets of its session behind it are by the flow manager, until rules or chains change.
    Refuse(DropReason),
    /// It is dropped, and its session ends.
    End(DropReason),
}

/// Whether a packet may open a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Open,
    /// It is dropped and opens none.
    Drop(DropReason),
    /// The function has turned it into its answer, Ethernet addresses included: it goes back by the port it came in at.
    Answer,
}

/// Work of an instance's own: see [`Function::background`]. It is to return soon after [`StopSignal::wait`] says so.
pub type Background = Box<dyn FnOnce(&StopSignal) + Send>;

/// Tells background work when to end.
#[derive(Debug, Default)]
pub struct StopSignal {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl StopSignal {
    /// Waits for that long, or until it is time to end. True: it is.
    pub fn wait(&self, time: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(stopped, time, |stopped| !*stopped);
        let (stopped, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *stopped
    }

    /// Has the work end.
    pub fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}
