//! Sessions that outlive the process.

mod saved;
mod suspension;

pub use saved::{RestoredSessions, check_session_file};
pub use suspension::{ChangedSessions, SuspendError, Suspension};
