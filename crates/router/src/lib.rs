//! Linux as the control plane: mirrors the kernel's routes, neighbours, links and addresses.
//!
//! | module | content | may use |
//! |---|---|---|
//! | `plane` | the engine as the mirror sees it: a trait, ports, neighbour requests | |
//! | `query` | queries of the mirrored state, and their results | |
//! | `error` | errors | |
//! | `netlink` | netlink sockets, decoding of messages, dumps | `plane` |
//! | `model` | the kernel's state and the routes that it compiles to | `netlink` (events), `plane`, `query` |
//! | `mirror` | the thread that keeps the model up to date, and TAP twins of ports | all above |
//! | `links` | messages about interfaces, for those who own ports | `netlink` |
//! | `namespace` | a network namespace of the process, where brokers meet the kernel's TCP | `netlink` |
//! | `testing` | the model without a kernel, for tests of other crates | `netlink`, `model` |
//! | `router` | the handle: start, stop, routed ports, queries | all above |
//!
//! The mirror covers the kernel's main table and one table for each VRF. The main table merges `local`,
//! `main` and `default` in the kernel's lookup order. It does not follow policy rules (`ip rule`), routes for
//! a type of service, or routes by source address. Routes that push labels or tunnel headers are left to the
//! kernel.

#![forbid(unsafe_code)]

// Files that tests share with the fuzz targets use the crate by its name.
#[cfg(test)]
extern crate self as mmb_router;

mod error;
mod links;
mod mirror;
mod model;
mod namespace;
mod netlink;
mod plane;
mod query;
mod router;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use error::{PortFault, RouterError};
pub use links::{LinkWaker, LinkWatch};
pub use namespace::{Namespace, NamespaceError};
pub use plane::{Device, ForwardingPlane, LocalTraffic, NeighborRequest, PortNumber, PortState, RoutedPort};
pub use query::{FibEntry, FibHop, FibKey, FibPage, FibQuery, FibSelect, NeighborEntry, RouterCounters};
pub use router::{Router, restore_settings};
