//! BPF: the kernel programs of AF_XDP and AF_PACKET ports, the flows that they forward by themselves, and the
//! socket lookup of brokers.

mod discard;
mod error;
mod fast_flow;
mod fast_index;
mod fast_path;
mod format;
mod local;
mod maps;
mod object;
mod program;
mod selector;
mod slot;
mod tc;
mod variables;

pub(crate) use error::{XdpError, port_error};
pub use fast_flow::{
    FAST_FIN, FAST_RST, FAST_SLOTS, FastAction, FastFlowStats, FastGranularity, FastHook, FastKey, FastMacs,
    FastNumbers, FastPort, FastTranslation,
};
pub use fast_path::FastPath;
pub(crate) use fast_path::Member;
pub use program::Steering;
pub(crate) use program::{XdpProgram, prepare};
pub use selector::{SelectorError, SocketSelector};
pub(crate) use tc::TcPort;
