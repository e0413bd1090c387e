//! SIGHUP: the configuration file is read again.

use std::sync::Arc;

use mmb_control::Control;
use tokio::signal::unix::{Signal, SignalKind};

use super::end::listen;
use crate::failure::Failure;

/// The signal that reloads the configuration file. From now on it does not end the process. Call it in the
/// runtime.
pub fn hangups() -> Result<Signal, Failure> {
    listen(SignalKind::hangup())
}

/// Reloads the configuration file at each signal.
pub async fn run(control: Arc<Control>, mut hangups: Signal) {
    while hangups.recv().await.is_some() {
        let control = control.clone();
        // A panic has printed its reason, and the configuration is the one before it.
        let _ = tokio::task::spawn_blocking(move || control.reload()).await;
    }
}
