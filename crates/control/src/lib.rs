//! The control side of mmb: the configuration, transactions on it, the control API and its client.
//!
//! ```text
//! line ─► command ─► transaction: copy of config, changed ─► engine: open, publish ─► commit
//! file ─► server  ─┘        ├─► mirror: the kernel's routes, while a port is routed
//!                           └─► background: threads of network functions
//! HTTP/JSON ◄─ server ◄─ query ─► render, metrics
//! ```
//!
//! | module | content |
//! |---|---|
//! | `api` | the API's documents |
//! | `config` | the configuration as a value, configuration files |
//! | `transaction` | changes of the running configuration |
//! | `history` | the configurations that were in force, and who changed them |
//! | `audit` | the file of changes and refused logins |
//! | `query` | what the daemon shows of itself |
//! | `command` | commands of the language, and their output |
//! | `render`, `metrics` | documents as text, and for Prometheus |
//! | `server`, `client` | both ends of the control socket |

pub mod api;
mod audit;
mod client;
mod command;
mod config;
mod error;
mod history;
mod metrics;
mod query;
mod refusals;
pub mod render;
mod server;
mod text;
mod transaction;

pub use audit::AuditFile;
pub use client::{Client, ClientError, Remote, RemoteFiles};
pub use command::Output;
pub use config::{Brokers, Chains, Config, Interface, Nat, Platform, Routing, file};
pub use error::{CommandError, Refusal, RefusalKind};
pub use mmb_dataplane::{SessionFile, SessionFileError};
pub use mmb_policy::RuleView;
pub use mmb_router::{Namespace, NamespaceError};
pub use query::{
    CaptureListing, ConnectionListing, FibListing, TraceListing, TraceView, fields, trace_entry,
};
pub use server::{
    BODY_LIMIT, ConnectionServer, ControlSocket, Limits, Listeners, NetworkAccess, NetworkFiles,
    NetworkListener, Role, SocketDescriptors, SocketError, SocketGroups, client_path, default_path,
    new_token, reload_access, router, serve,
};
pub use text::count;
pub use transaction::{
    ChangedSessions, Control, DownInterface, RestoredSessions, Starting, SuspendError, Suspension,
    check_session_file,
};
