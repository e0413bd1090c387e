//! The session table with its timers, connection tracking, translation of packets, fragments and NAT pools.
//!
//! The crate knows no rules, no packet buffers and no clock. Rules are numbers that the caller assigns,
//! packets are [`mmb_packet::PacketBuf`], and time is an argument.

#![forbid(unsafe_code)]

mod arena;
mod fcb;
mod fragments;
mod icmp;
mod key;
pub mod layout;
mod nat;
mod numbers;
mod settings;
mod shape;
mod table;
mod timers;
mod track;
mod translate;

pub use arena::{Arena, memory_requests};
pub use fcb::{Direction, Flow, FlowFlags, FlowRef, SessionFlags, SessionId, SessionState, Xlat4};
pub use fragments::{Fragment, FragmentAction, FragmentLimits, FragmentTable, ReleasedFragment, Ticket};
pub use icmp::{ErrorBudget, IcmpErrorKind, may_answer, rewrite_as_icmp_error};
pub use key::{Key, KeyError, PackedKey, parse_key};
pub use nat::{
    Endpoint, Filtering, ForwardConfig, HostLocation, InboundError, InboundMapping, MAX_FORWARDS,
    MAX_POOL_ADDRESSES, MAX_POOLS, MappingForecast, MappingId, Nat, NatConfig, NatConfigError, NatError,
    NatEvent, NatEventKind, NatPrefetcher, OutboundMapping, PoolConfig, PoolId, PoolUsage, PortBlock,
    PortOwners, PortProto, SavedMapping,
};
pub use settings::{HeldLimits, SessionSettings, SourceLimit, Timeouts};
pub use table::{
    BatchLookup, FlowForecast, HashedKey, InsertError, MAX_CAPACITY, ScratchpadFile, ScratchpadPrefetch,
    ScratchpadStarts, Table, TableOccupancy, VECTOR,
};
pub use track::{RedirectState, TcpSegment, TrackInput, TrackOutcome, TrackState, TrackVerdict, latest_ack};
pub use translate::{
    EditOffsets, Mangle, QuotedPacket, parse_quote, translate, translate_error_fragment,
    translate_icmp_error, translate_ip4, translate_ip4_common, translate_numbers, untranslate,
};
