//! SIGHUP: the configuration file is read again, and the files of the API on the network.

use std::sync::Arc;

use mmb_control::{Control, NetworkAccess, reload_access};
use tokio::signal::unix::{Signal, SignalKind};

use super::end::listen;
use crate::failure::Failure;

/// The signal that reloads the configuration file. From now on it does not end the process. Call it in the
/// runtime.
pub fn hangups() -> Result<Signal, Failure> {
    listen(SignalKind::hangup())
}

/// Reloads the files at each signal.
pub async fn run(control: Arc<Control>, access: Option<Arc<NetworkAccess>>, mut hangups: Signal) {
    while hangups.recv().await.is_some() {
        let (control, access) = (control.clone(), access.clone());
        let reload = move || {
            if let Some(access) = access {
                reload_access(&access);
            }
            control.reload();
        };
        // A panic has printed its reason, and the configuration is the one before it.
        let _ = tokio::task::spawn_blocking(reload).await;
    }
}
