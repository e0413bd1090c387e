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
/// end. Threads run [`Control::run_maintenance`] and [`Control::run_link_watch`] meanwhile.
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
    let spawn = |name: &str, body: fn(&Control)| {
        let control = control.clone();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || body(&control))
    };
    let maintenance = spawn("mmb-maintenance", Control::run_maintenance)?;
    let links = spawn("mmb-links", Control::run_link_watch)?;
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
    control.stop_link_watch();
    // The threads hold the control and with it the engine, so they end first. A panic has printed its reason
    // already.
    let _ = maintenance.join();
    let _ = links.join();
    served
}
