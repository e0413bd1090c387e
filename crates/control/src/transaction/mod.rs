//! The running configuration and all changes to it.

mod addresses;
mod background;
mod brokers;
mod chains;
mod control;
mod devices;
mod engine_plane;
mod interfaces;
mod links;
mod maintenance;
mod memory;
mod mirror;
mod nat;
mod rules;
mod sessions;
mod sets;
mod settings;
mod start;
mod state;

pub use control::Control;
pub use sessions::{ChangedSessions, RestoredSessions, SuspendError, Suspension, check_session_file};
pub use start::Starting;
pub use state::DownInterface;
pub(crate) use state::State;
