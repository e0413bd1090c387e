//! What the daemon shows of itself, as the API's documents.

mod brokers;
mod chains;
mod connections;
mod fast_path;
mod fib;
mod filter;
mod masks;
mod ports;
mod status;
mod trace;

pub use connections::ConnectionListing;
pub use fib::FibListing;
pub use status::fields;
pub use trace::trace_entry;
