//! Network address translation (NAT) with pools of external addresses, and static forwards.
//!
//! # Theory of operation
//!
//! A *mapping* binds an internal endpoint (protocol, address, port) to an external endpoint. It serves all
//! remote endpoints: endpoint-independent mapping (RFC 4787 REQ-1). Sessions hold mappings. [`Nat::map`] and
//! [`Nat::map_inbound`] assign a mapping to a session that is being opened. [`Nat::release`] takes it back
//! when the session ends. A mapping without sessions is removed, and its port is free again. So mappings live
//! as long as their sessions, and NAT needs no timers. Only static forwards are held by the configuration.
//!
//! Each worker has its own [`Nat`], with the mappings of its hosts. [`NatConfig::opening_worker`] computes
//! which worker that is, and [`Nat::owner_worker`] which worker has an external port. Workers share the
//! immutable [`NatConfig`], and their claims on ports ([`PortOwners`]).
//!
//! When the configuration changes ([`Nat::adopt`]), pools that are unchanged keep their mappings. All other
//! mappings *end*: they serve no new sessions, and their ports stay allocated until their sessions are gone.
//! A session learns that its mapping has ended from [`Nat::is_live`] when its next packet comes. No table is
//! walked.
//!
//! | module | contents |
//! |---|---|
//! | `config` | pools and forwards as the operator configures them |
//! | `ownership` | which worker owns a host or a packet from outside |
//! | `owners` | which worker has an external port |
//! | `state` | the NAT of one worker |
//! | `outbound`, `inbound` | mappings for sessions from inside and from outside |
//! | `reconfigure` | the change to another configuration |
//! | `restore` | mappings of sessions that an earlier process has saved |
//! | `pool` | which external port a host gets; port bitmaps and port blocks |
//! | `mappings`, `hosts` | tables |
//! | `store`, `index` | what the tables consist of |
//! | `prefetch` | hashes and memory accesses of a vector of new sessions, ahead of time |
//! | `events` | log events and usage figures |

mod config;
mod events;
mod hosts;
mod inbound;
mod index;
mod mappings;
mod outbound;
mod owners;
mod ownership;
mod pool;
mod prefetch;
mod reconfigure;
mod restore;
mod state;
mod store;
mod types;

#[cfg(test)]
mod tests;

pub use config::{
    Endpoint, Filtering, ForwardConfig, MAX_FORWARDS, MAX_POOL_ADDRESSES, MAX_POOLS, NatConfig,
    NatConfigError, PoolConfig, PoolId, PortProto,
};
pub use events::{NatEvent, NatEventKind, PoolUsage, PortBlock};
pub use owners::PortOwners;
pub use prefetch::{MappingForecast, NatPrefetcher};
pub use restore::SavedMapping;
pub use state::Nat;
pub use types::{HostLocation, InboundError, InboundMapping, MappingId, NatError, OutboundMapping};
