//! Opening sessions.
//!
//! Theory of operation. Rules are applied first: a packet that is dropped opens nothing. Then NAT is asked
//! about packets to its addresses ([`inbound`]), unless a rule translates their source first (a host inside
//! that reaches another one by its external address). Then the matching stateful rules give the session its
//! translation ([`plan`]), and a translation is chosen whose replies belong to no other session and come to
//! this worker ([`ports`]). If a rule names a service chain, the chain's functions are asked, and their
//! requests override the rules. Then the session is inserted ([`insert`]). If only another worker can open
//! the session, the packet is handed to that worker, and a redirect is stored for the packets that follow.
//! The owner of a host of a pool is known before, and its checks decide.

mod exhausted;
mod inbound;
mod insert;
pub(crate) mod nat;
pub(crate) mod opener;
mod outbound;
pub(crate) mod plan;
mod ports;
pub(crate) mod refusal;
mod values;
