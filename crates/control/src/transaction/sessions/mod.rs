//! Sessions that outlive the process.

mod saved;

pub use saved::{RestoredSessions, check_session_file};
