//! The control side of mmb: the configuration as a value, transactions on it, the API on a Unix socket and its client.
//!
//! ```text
//! line or file ─► config (a copy, changed) ─► engine: open, publish ─► the copy is the configuration
//!                      │ error: nothing changed  ▲
//!                      ├─► mirror: the kernel's routes, while a port is routed
//!                      └─► background: threads of network functions
//! HTTP/JSON ◄─ routes ◄─ control ─► views, render, metrics
//! ```

pub mod api;
mod background;
mod chains;
mod client;
mod config;
mod connections;
mod control;
mod devices;
mod error;
mod fast;
mod fib;
pub mod file;
mod filter;
mod log;
mod masks;
mod metrics;
mod mirror;
mod nat;
mod output;
pub mod render;
mod routes;
mod server;
mod settings;
mod socket;
mod stream;
mod upkeep;
mod views;

pub use client::{Client, ClientError};
pub use config::{Chains, Config, Interface, Platform, Routing};
pub use connections::Listing;
pub use control::{Control, DownInterface};
pub use error::{Fault, Refusal, RefusalKind};
pub use fib::FibListing;
pub use mmb_policy::RuleView;
pub use nat::Nat;
pub use output::Output;
pub use routes::{BODY_LIMIT, router};
pub use server::serve;
pub use socket::{ControlSocket, SocketError, client_path, default_path};
pub use views::fields;
