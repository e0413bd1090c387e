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

/// Serves until `stop` resolves; then no new connections are taken, and open requests have two seconds to end. Meanwhile
/// a thread does what no request waits for ([`Control::keep_up`]).
///
/// # Errors
/// Only if the listener cannot be registered or a thread not be started; single connections fail on their own.
pub async fn serve(
    control: Arc<Control>,
    listener: std::os::unix::net::UnixListener,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let upkeep = {
        let control = control.clone();
        std::thread::Builder::new().name("mmb-upkeep".to_owned()).spawn(move || control.keep_up())?
    };
    let (router, _) = routes::router(control.clone());
    let (tell, told) = oneshot::channel::<()>();
    // An error of the channel means that the other end is gone, which is a reason to stop as well.
    let server = axum::serve(listener, router).with_graceful_shutdown(async { drop(told.await) });
    let bound = async {
        stop.await;
        drop(tell);
        tokio::time::sleep(GRACE).await;
    };
    let served = tokio::select! {
        served = server.into_future() => served,
        () = bound => Ok(()),
    };
    control.end_upkeep();
    // It holds the control and with it the engine, so it ends first; a panic there has said what it had to say.
    let _ = upkeep.join();
    served
}
