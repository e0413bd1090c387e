//! The thread that keeps the model equal to the kernel's state.

mod settings;
mod shared;
mod thread;
mod twins;

pub(crate) use settings::SettingsStore;
pub(crate) use shared::{Shared, State};
pub(crate) use thread::Mirror;
