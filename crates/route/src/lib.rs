//! Where packets go: longest-prefix match, next hops, and what a router does to a packet that it forwards.
//!
//! | module | what lives there |
//! |---|---|
//! | [`fib4`], [`fib6`] | longest-prefix match, for many packets at once |
//! | [`hop`] | next hops: what becomes of the packets of a route |
//! | [`forward`], [`fragment`] | what happens to the bytes of a packet on its way out |
//! | [`routes`] | the tables, next hops and faces as one value |

#![forbid(unsafe_code)]

pub mod fib4;
pub mod fib6;
pub mod forward;
pub mod fragment;
pub mod hop;
pub mod routes;
mod trie;

pub use fib4::Fib4;
pub use fib6::Fib6;
pub use forward::{address, forward_ip4, forward_ip6};
pub use fragment::{Fragment, FragmentError, Fragments, fragment_ip4};
pub use hop::{NextHop, NextHopId, NextHopKind, NextHops};
pub use routes::{L3Interface, RouteTable, Routes};
