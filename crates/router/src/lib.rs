//! Linux as the control plane: the kernel's routes, neighbours, links and addresses, mirrored for the engine.
//!
//! | module | what lives there |
//! |---|---|
//! | [`router`] | the handle: start, stop, routed ports, questions |
//! | [`plane`] | what the mirror needs of an engine |
//! | [`query`] | what can be asked, and the answers |
//! | `event`, `decode` | netlink messages, and what they say |
//! | `prefix`, `family`, `hops`, `model` | the kernel's state and what it compiles to; no socket in there |
//! | `netlink`, `mirror` | the sockets, and the thread that keeps the model true |
//! | `twins` | TAP twins of ports, and the settings of the interfaces behind them |
//!
//! What is mirrored: the kernel's main table, in which `local`, `main` and `default` are merged as the kernel itself looks
//! into them, and one table for each VRF. Rules of policy routing (`ip rule`), routes for one type of service only and
//! routes by source address are not followed; routes that push labels or tunnel headers lead to the kernel.

#![forbid(unsafe_code)]

mod ask;
mod decode;
mod dump;
mod event;
mod faces;
mod hops;
mod lines;
mod members;
mod mirror;
mod model;
mod netlink;
mod prefix;
#[cfg(test)]
mod tests;
mod tree;
mod twins;

pub mod plane;
pub mod query;
pub mod router;

pub use plane::{ForwardingPlane, PortState};
pub use query::{FibEntry, FibHop, FibKey, FibPage, FibQuery, FibSelect, NeighborEntry, RouterCounters};
pub use router::{Device, RoutedPort, Router, RouterError};
