//! Ports: opening, configuring, using and closing devices, and the kernel interfaces behind them.

mod backlog;
mod device;
mod ethdev;
mod flow_rules;
mod frame_size;
mod handle;
mod merge;
mod netdev;
mod open;
mod queue;
mod redirect;
mod rss;
mod spec;
mod vnet;

pub use device::Device;
pub use ethdev::Port;
pub use flow_rules::{FlowAddresses, FlowError, FlowFate, FlowHandle, FlowPattern, FlowProto, FlowRule};
pub use frame_size::{LroGuard, ReceiveOffload, is_veth};
pub(crate) use netdev::set_option;
pub use netdev::{NetDev, Offloads};
pub use queue::{RxQueue, TxQueue};
#[cfg(test)]
pub(crate) use redirect::XdpFeatures;
pub use redirect::redirect_reports;
pub use spec::{PortInfo, PortSpec, PortStats, TwinTraffic, TxCount};
pub use vnet::ReceiveLarge;
