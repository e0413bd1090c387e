//! Programs for the kernel: XDP programs of ports, the flows that they forward by themselves, and the socket
//! lookup of brokers.

mod error;
mod fast_flow;
mod fast_index;
mod fast_path;
mod format;
mod maps;
mod program;
mod selector;
mod slot;

pub(crate) use error::{XdpError, port_error};
pub use fast_flow::{
    FAST_FIN, FAST_RST, FAST_SLOTS, FastAction, FastFlowStats, FastGranularity, FastKey, FastMacs,
    FastNumbers, FastPort, FastTranslation,
};
pub use fast_path::FastPath;
pub use program::Steering;
pub(crate) use program::{XdpProgram, attach_pass_program};
pub use selector::{SelectorError, SocketSelector};
