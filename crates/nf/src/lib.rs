//! The SDK of network functions, and the chains that run them.
//!
//! Theory of operation. A [`Function`] declares the traffic that it accepts and the state that it keeps of a
//! session (its scratchpad, plain data), and processes packets. A *chain* is an order of instances of
//! functions. A [`Program`] is all instances and chains, compiled. It is immutable, and is published together
//! with the rules that name its chains. The flow manager (`mmb-session`) looks a packet's session up once.
//! Each function of the session's chain then has its scratchpad at a fixed offset of the session's
//! (MiddleClick, sections II-C and III; see [`mmb_flow::layout`]). The [`Runner`] of a worker takes vectors
//! of such packets through the chains, function by function.
//!
//! A developer writes a type, implements [`Function`], and adds the type to a [`Registry`]. This crate uses
//! no packet buffers, no clock, no sockets and no threads. Only [`Background`] work may do so, and the daemon
//! starts it.

#![forbid(unsafe_code)]

mod bytes;
mod context;
mod counters;
mod error;
mod flow_type;
mod function;
pub mod harness;
mod held;
mod instance;
mod l7;
mod packet;
pub mod process;
mod program;
mod registry;
mod runner;
mod set;
mod stream;
pub mod tcp_segment;
pub mod testing;
mod vector;
mod verdict;

pub use bytes::{ByteStreams, Follows, Refusal};
pub use context::{Context, Emission, Emissions, EmitTarget, Reinjection};
pub use counters::WorkerCounters;
pub use error::ArgError;
pub use function::{Admission, Background, Function, Properties, SessionKey, Setup, StopSignal, Translates};
pub use harness::Harness;
pub use held::{HeldEvent, HeldQueue};
pub use instance::Instance;
pub use l7::{
    ChosenServer, DynL7, L7Answer, L7Finished, L7Function, L7Handler, L7Request, L7Response, L7Verdict, Peer,
    ProxyHeader, ServerState, ServersWatcher, Upstream,
};
pub use mmb_flow::{Direction, FlowRef, Key, SessionId, layout::Order};
pub use mmb_lang::{Chain, Domain, DomainKind, Match, NfInstance, OnFailure, ProcessMode};
pub use mmb_packet::{DropReason, Meta, PacketBuf, TailSegments};
pub use mmb_system::{FileAccess, FileError};
pub use packet::{ConstantRewrite, OpeningPacket, Packet, PacketView, SessionInfo, TranslationRequest};
pub use program::{
    ChainError, ChainId, HEADER_BYTES, PathView, Program, ProgramError, ProgramItem, ProgramSpec,
    ScratchpadView, StageView,
};
pub use registry::{Registry, TypeInfo};
pub use runner::{ChainVerdict, FunctionVisit, Runner, SessionAccess, StageCounters};
pub use stream::{
    CounterKind, EditError, LineGate, LinePace, LineSource, SettledEdits, StreamCounter, StreamData,
    StreamEdit, StreamFunction, TakenOver,
};
pub use vector::Vector;
pub use verdict::{StreamVerdict, Verdict};
