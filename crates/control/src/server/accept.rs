//! Connections: who may have one, and how long it may be silent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::UCred;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower_service::Service;

use super::audit::Peer;
use super::descriptors::DescriptorReserve;
use super::limits::{Limits, Usage};
use super::role::Role;
use crate::refusals::ApiCounters;

/// Time for which a client beyond the limit may send its request before it gets the refusal.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// Clients that get a refusal at a time. Others are only disconnected.
const REFUSALS: usize = 32;
/// Pause after an error of `accept`, such as no free descriptor.
const RETRY: Duration = Duration::from_millis(100);
/// Descriptors that are held back for clients: ports, captures and other clients may take all others.
const HELD_BACK: usize = 4;

/// What all connections share.
pub(super) struct Server {
    pub router: Router,
    pub usage: Arc<Usage>,
    pub limits: Limits,
    pub counters: Arc<ApiCounters>,
    pub refusals: Arc<Semaphore>,
    pub reserve: DescriptorReserve,
    /// Changes when the server stops. The receivers also tell how many connections there are.
    pub stop: watch::Sender<bool>,
}

/// A socket that gives connections.
pub(super) trait Accept: Send + 'static {
    /// A connection.
    type Stream: Send + 'static;

    /// Waits for the next connection.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Accept for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Server {
    pub fn new(router: Router, usage: Arc<Usage>, limits: Limits, counters: Arc<ApiCounters>) -> Server {
        let refusals = Arc::new(Semaphore::new(REFUSALS));
        let reserve = DescriptorReserve::new(HELD_BACK);
        Server { router, usage, limits, counters, refusals, reserve, stop: watch::Sender::new(false) }
    }

    /// Accepts connections of the control socket, of clients with at least this role, until the server stops.
    pub async fn accept_local(self: Arc<Server>, listener: UnixListener, role: Role) {
        let admit = |stream: UnixStream| {
            let peer = stream.peer_cred().ok();
            let role = if peer.as_ref().is_some_and(is_owner) { Role::Owner } else { role };
            let peer = peer.map(|peer| Peer::Local { user: peer.uid(), process: peer.pid() });
            self.clone().admit(stream, role, peer);
        };
        self.accept_each(listener, admit).await;
    }

    /// Accepts connections of anyone who reaches an address, as readers, until the server stops.
    pub async fn accept_anyone(self: Arc<Server>, listener: TcpListener) {
        self.accept_each(listener, |stream| self.clone().admit(stream, Role::Reader, None)).await;
    }

    /// Passes each connection to `admit` until the server stops.
    pub async fn accept_each<L: Accept>(&self, listener: L, admit: impl Fn(L::Stream) + Sync) {
        let mut stop = self.stop.subscribe();
        loop {
            let accepted = tokio::select! {
                accepted = listener.next() => accepted,
                () = stopped(&mut stop) => return,
            };
            match accepted {
                Ok(stream) => admit(stream),
                // The client waits in the queue, so that the next turn accepts it.
                Err(_) if self.reserve.release() => {}
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    }

    /// Serves a connection, if there is a place for one of its role.
    fn admit<S>(self: Arc<Server>, stream: S, role: Role, peer: Option<Peer>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match self.usage.connection(role) {
            Some(place) => drop(tokio::spawn(self.serve(stream, (role, peer), place))),
            None => {
                self.counters.connections.fetch_add(1, Relaxed);
                if let Ok(place) = self.refusals.clone().try_acquire_owned() {
                    tokio::spawn(refuse(stream, self.limits.connections[role as usize], place));
                }
            }
        }
    }

    /// Serves one connection, and takes its descriptor back if it came from the reserve.
    async fn serve<S>(
        self: Arc<Server>,
        stream: S,
        (role, peer): (Role, Option<Peer>),
        _place: OwnedSemaphorePermit,
    ) where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.exchange(stream, |_| Ok((role, peer.clone()))).await;
        self.reserve.refill();
    }

    /// Answers the requests of one connection. `identify` returns the client of a request, or the answer
    /// to one without, before the body is read.
    pub async fn exchange<S>(
        &self,
        stream: S,
        identify: impl Fn(&Request<Incoming>) -> Result<(Role, Option<Peer>), Box<Response>>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut stop = self.stop.subscribe();
        let service = service_fn(|mut request: Request<Incoming>| {
            let client = identify(&request);
            let mut router = self.router.clone();
            async move {
                match client {
                    Ok((role, peer)) => {
                        request.extensions_mut().insert(role);
                        request.extensions_mut().insert(peer);
                        router.call(request.map(Body::new)).await
                    }
                    Err(refusal) => Ok(*refusal),
                }
            }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(self.limits.head);
        let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = stopped(&mut stop) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        // Other errors are the client's: it has disconnected, or does not speak HTTP.
        if served.is_err_and(|error| error.is_timeout()) {
            self.counters.head_timeouts.fetch_add(1, Relaxed);
        }
    }

    /// Accepts no more connections, and lets open requests end.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until all connections have ended.
    pub async fn ended(&self) {
        self.stop.closed().await;
    }
}

/// Waits until the server stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the server is gone.
    let _ = stop.wait_for(|stop| *stop).await.map(drop);
}

/// Whether the client is root, or the user of this process.
fn is_owner(peer: &UCred) -> bool {
    peer.uid() == 0 || peer.uid() == nix::unistd::geteuid().as_raw()
}

/// Answers a request with the sentence that there are too many connections.
async fn refuse<S>(mut stream: S, limit: usize, _place: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let sentence = format!(
        "there are {limit} connections already, which is the maximum for this socket; try again later"
    );
    let body = format!("{{\"error\":\"{sentence}\",\"diagnostics\":[]}}");
    let answer = format!(
        "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        StatusCode::SERVICE_UNAVAILABLE,
        body.len()
    );
    let exchange = async {
        let mut request = Vec::with_capacity(4096);
        while !request.windows(4).any(|w| w == b"\r\n\r\n") && request.len() < 4096 {
            if stream.read_buf(&mut request).await? == 0 {
                break;
            }
        }
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // Until the client has read it: closing a socket with unread data resets the connection.
        while stream.read(&mut [0; 4096]).await? > 0 {}
        io::Result::Ok(())
    };
    // A client that does not wait for the answer gets none.
    let _ = tokio::time::timeout(REFUSAL_TIME, exchange).await;
}
