//! The fast path: flows between af-xdp ports whose packets the kernel forwards by itself, as the engine did
//! before.
//!
//! # Theory of operation
//! On an af-xdp port, each packet is copied to the engine and back, and may have to wake it. Where all
//! packets of a flow are treated alike ([`mmb_policy::Policy::offload_obstacle`]), the port's XDP program can
//! treat them instead: it looks up the flow, then rewrites, counts and redirects the packet. All other
//! packets go to the engine.
//!
//! *Learning.* The action of a flow is derived from a packet that the engine has forwarded. Of flows that the
//! kernel does not have, some received packets are copied as they are ([`FlowLearner::sample`]), as many as
//! the learning budget allows. If the same buffer reaches `port-tx` in the same walk, the packet is compared
//! with its copy ([`FlowLearner::learn_from_tx`]). A flow is eligible only if its action, applied to the
//! copy, yields the sent packet bit for bit. So the kernel never does what the engine has not done, whatever
//! rules and routes there are. A packet that was dropped, held or handed off does not reach `port-tx` in this
//! walk and teaches nothing.
//!
//! *Granularity.* Without rules, and when each route has one next hop, one entry serves all packets to a
//! destination ([`mmb_dpdk::FastGranularity`]). With rules that need no sessions, one entry serves all
//! packets of a protocol between two addresses, unless a rule may look at their ports
//! ([`mmb_policy::PortDependence`]); otherwise an entry serves one flow. So of many short connections only
//! the first one passes through the engine.
//!
//! *Sessions.* The packet that opens a session goes through the engine, and so does the first answer. Then
//! both directions are installed together: what was learned of the first one waits for the second. TCP
//! connections are installed before the answer leaves, so that its acknowledgement finds the entry. The
//! session stays half open until the kernel has seen that acknowledgement; before it, the kernel forwards
//! nothing in that direction ([`mmb_session::OffloadState::AwaitingAck`]). A session without answers is
//! installed only if it has many packets. The kernel forwards and records the first FIN of a flow, unless the
//! session has a chain; sessions collect the record ([`mmb_session::OffloadCounters`]).
//!
//! *Generations.* An entry carries the generation of rules, ports and routes under which its sample was
//! treated. The kernel ignores entries of other generations than the one in force ([`FastPathState`]). Each
//! publication changes it before it returns. Then all flows go to the engine and are learned again.
//!
//! *Counting.* The kernel counts packets for each entry. Several times a second, the worker that learned the
//! flow credits them to the ports and to the matching rules, so that counters lag by at most a tenth of a
//! second.
//!
//! *Losses.* A frame that is redirected to an interface which cannot take it is lost. Whether an interface
//! can may change at any time: a veth can while its peer receives by NAPI. So a thread asks the kernel when
//! it reports a change ([`PortMonitor`]), and all flows return to the engine if an interface no longer can.

#![forbid(unsafe_code)]

// Files that tests share with the fuzz targets use the crate by its name.
#[cfg(test)]
extern crate self as mmb_fastpath;

mod config;
mod entries;
mod generation;
mod heartbeat;
mod host;
mod info;
mod install;
mod kernel;
mod learn;
mod learner;
mod monitor;
mod obstacle;
mod refusal;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use config::{FastPathConfig, FastPathPort};
pub use generation::FastPathState;
pub use host::{FastPathHost, PortSide, TxContext};
pub use info::{FastPathInfo, FastPortInfo, FastPortRole};
pub use kernel::KernelTable;
pub use learner::FlowLearner;
pub use monitor::PortMonitor;
pub use obstacle::{Obstacle, address_pairs, fast_path_obstacle};
pub use refusal::{FastCounters, RefusalReason};
