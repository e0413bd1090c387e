//! What the daemon shows of itself, as the API's documents.

mod brokers;
mod capture;
mod chains;
mod connections;
mod domains;
mod explain;
mod fast_path;
mod fib;
mod filter;
mod frame;
mod masks;
pub(crate) mod ports;
mod sets;
mod status;
mod trace;

pub use capture::CaptureListing;
pub use connections::ConnectionListing;
pub use fib::FibListing;
pub use status::fields;
pub use trace::{TraceListing, TraceView, trace_entry};
