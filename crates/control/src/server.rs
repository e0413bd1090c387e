//! Serving the control API on the control socket.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::oneshot;

use crate::control::Control;
use crate::routes;

/// How long requests may take to end once the daemon is told to stop.
const GRACE: Duration = Duration::from_secs(2);

/// Serves until `stop` resolves; then no new connections are taken, and open requests have two seconds to end.
///
/// # Errors
/// Only if the listener cannot be registered; single connections fail on their own.
pub async fn serve(
    control: Arc<Control>,
    listener: std::os::unix::net::UnixListener,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let (router, _) = routes::router(control);
    let (tell, told) = oneshot::channel::<()>();
    // An error of the channel means that the other end is gone, which is a reason to stop as well.
    let server = axum::serve(listener, router).with_graceful_shutdown(async { drop(told.await) });
    let bound = async {
        stop.await;
        drop(tell);
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = server.into_future() => served,
        () = bound => Ok(()),
    }
}
