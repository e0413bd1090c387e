//! The flow manager's core: the table of sessions with its timers, the states of connections, the translation of
//! packets, and NAT pools. It knows no rules, no buffers and no clock: rules are numbers that the engine above gives
//! out, packets are [`mmb_packet::PacketBuf`], time is an argument.

#![forbid(unsafe_code)]

mod arena;
mod fcb;
mod fragments;
mod icmp;
mod key;
pub mod layout;
mod nat;
mod settings;
mod table;
mod track;
mod translate;
mod wheel;

pub use fcb::{Direction, Flow, FlowRef, SessionId, SessionState, Xlat4, flow_flags};
pub use fragments::{Datagram, FragmentLimits, Fragments, Later, Released, Ticket};
pub use icmp::{Complaint, ErrorBudget, answer};
pub use key::{Key, Special, key_of};
pub use nat::{
    Ahead, Arrived, Endpoint, Filtering, ForwardConfig, Inside, MAX_FORWARDS, MAX_POOL_ADDRESSES, MAX_POOLS,
    Mapped, MappingId, Nat, NatConfig, NatError, NatEvent, NatEventKind, PoolConfig, PoolId, PoolUsage,
    PortBlock, Proto, Refused,
};
pub use settings::{Settings, Timeouts};
pub use table::{InsertError, Lookups, MAX_CAPACITY, Occupancy, Sought, Table, VECTOR};
pub use track::{Seen, Segment, Track, Tracked, Traffic, later_ack};
pub use translate::{Mangle, Quote, apply4, apply4_common, quote, translate, translate_error, untranslate};
