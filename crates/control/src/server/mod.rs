//! The control API on the control socket.

mod document;
mod routes;
mod socket;
mod stream;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::oneshot;

pub use document::BODY_LIMIT;
pub use routes::router;
pub use socket::{ControlSocket, SocketError, client_path, default_path};

use crate::transaction::Control;

/// Time that open requests get to end when the daemon stops.
const GRACE: Duration = Duration::from_secs(2);

/// Serves until `stop` resolves. Then it accepts no more connections, and open requests have two seconds to
/// end. A thread runs [`Control::run_maintenance`] meanwhile.
///
/// # Errors
/// The listener cannot be registered, or a thread cannot be started. Errors of a connection end that
/// connection only.
pub async fn serve(
    control: Arc<Control>,
    listener: std::os::unix::net::UnixListener,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let maintenance = {
        let control = control.clone();
        let name = "mmb-maintenance".to_owned();
        std::thread::Builder::new().name(name).spawn(move || control.run_maintenance())?
    };
    let (router, _) = router(control.clone());
    let (stop_sender, stop_receiver) = oneshot::channel::<()>();
    // An error of the channel means that the sender is gone, which is a reason to stop too.
    let server = axum::serve(listener, router).with_graceful_shutdown(async { drop(stop_receiver.await) });
    let deadline = async {
        stop.await;
        drop(stop_sender);
        tokio::time::sleep(GRACE).await;
    };
    let served = tokio::select! {
        served = server.into_future() => served,
        () = deadline => Ok(()),
    };
    control.stop_maintenance();
    // The thread holds the control and with it the engine, so it ends first. A panic has printed its reason
    // already.
    let _ = maintenance.join();
    served
}
