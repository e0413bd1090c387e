//! Network functions and the chains that they stand in.
//!
//! Theory of operation. A [`Function`] says which traffic it takes, what it keeps of a session (its scratchpad, plain data),
//! and what it does with a packet. A *chain* is a way through instances of functions; a [`Program`] is all of them,
//! compiled: immutable, published with the rules that name the chains. Of a packet that belongs to a session, the session
//! is found once, by the flow manager (`mmb-session`); each function of the chain then has its scratchpad at a fixed
//! offset of the session's (MiddleClick, sections II-C and III; see [`mmb_flow::layout`]). The [`Runner`], one for each
//! worker, takes vectors of such packets through the chains, function by function.
//!
//! A developer writes a type, implements [`Function`], and adds it to a [`Registry`]. Nothing here knows a buffer, a
//! clock, a socket or another thread; only [`Background`] work may, and that is the daemon's to start.

#![forbid(unsafe_code)]

mod context;
mod flow_type;
mod function;
pub mod harness;
mod instance;
mod packet;
mod program;
mod registry;
mod runner;
mod set;
pub mod testing;
mod vector;

pub use context::{Context, Emission, Emissions, EmitTarget};
pub use function::{
    Admission, Background, Function, Properties, SessionKey, Setup, StopSignal, Translates, Verdict,
};
pub use harness::Harness;
pub use instance::Instance;
pub use mmb_flow::{Direction, FlowRef, Key, SessionId, layout::Order};
pub use mmb_lang::{Chain, Match, NfAdd};
pub use mmb_packet::{DropReason, Meta, PacketBuf};
pub use packet::{OpeningPacket, Packet, PacketView, SessionInfo, TranslationRequest};
pub use program::{
    ChainId, HEADER_BYTES, PathView, Program, ProgramError, ProgramItem, ProgramSpec, ScratchpadView,
    StageView,
};
pub use registry::{Registry, TypeInfo};
pub use runner::{ChainVerdict, Runner, SessionAccess, StageCounters};
pub use vector::Vector;
