//! SIGHUP: the configuration file is read again, and the files of the API on the network; the audit file is
//! opened again.

use std::sync::Arc;

use mmb_control::{AuditFile, Control, NetworkAccess, reload_access};
use mmb_system::log;
use tokio::signal::unix::{Signal, SignalKind};

use super::end::listen;
use crate::failure::Failure;

/// The signal that reloads the configuration file. From now on it does not end the process. Call it in the
/// runtime.
pub fn hangups() -> Result<Signal, Failure> {
    listen(SignalKind::hangup())
}

/// Reloads the files at each signal.
pub async fn run(
    control: Arc<Control>,
    access: Option<Arc<NetworkAccess>>,
    audit: Option<Arc<AuditFile>>,
    mut hangups: Signal,
) {
    while hangups.recv().await.is_some() {
        let (control, access, audit) = (control.clone(), access.clone(), audit.clone());
        let reload = move || {
            if let Some(Err(e)) = audit.map(|audit| audit.reopen()) {
                log::error(format!("error: {e}\n"));
            }
            if let Some(access) = access {
                reload_access(&access);
            }
            control.reload();
        };
        // A panic has printed its reason, and the configuration is the one before it.
        let _ = tokio::task::spawn_blocking(reload).await;
    }
}
