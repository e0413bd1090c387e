//! Routing: longest-prefix match, next hops, and the packet edits of a forwarding router.
//!
//! | module | contents |
//! |---|---|
//! | [`fib`] | longest-prefix match of both address families, for vectors of packets |
//! | [`hop`] | next hops: how the packets of a route are handled |
//! | [`forward`], [`fragment`] | edits of outgoing packets |
//! | [`routes`] | tables, next hops and L3 interfaces as one value |

#![forbid(unsafe_code)]

pub mod fib;
pub mod forward;
pub mod fragment;
pub mod hop;
pub mod routes;
mod trie;

pub use fib::{Address, Fib, Fib4, Fib6};
pub use forward::{forward_ip4, forward_ip6, set_ethernet_addresses};
pub use fragment::{Fragment, FragmentError, Fragments, fragment_ip4};
pub use hop::{NextHop, NextHopId, NextHopKind, NextHops};
pub use routes::{L3Interface, RouteTable, Routes};
