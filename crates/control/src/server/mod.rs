//! The control API on the control socket and on the network, and metrics over TCP.

mod accept;
mod audit;
mod body;
mod descriptors;
mod document;
mod limits;
mod network;
mod role;
mod routes;
mod scrape;
mod socket;
mod stream;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::middleware::from_fn_with_state;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

pub use document::BODY_LIMIT;
pub use limits::Limits;
pub use network::{NetworkAccess, NetworkFiles, NetworkListener, new_token, reload_access};
pub(crate) use network::{authorities, certificates, private_key};
pub use role::Role;
pub use routes::router;
pub use socket::{
    ControlSocket, Listeners, SocketDescriptors, SocketError, SocketGroups, client_path, default_path,
};

use crate::transaction::Control;
use accept::Server;
use body::Gate;
use limits::Usage;
use network::NetworkServer;

/// Time that open requests get to end when the daemon stops.
const GRACE: Duration = Duration::from_secs(2);

/// Serves until `stop` resolves. Then it accepts no more connections, and open requests have two seconds to
/// end. Threads run [`Control::run_maintenance`] and [`Control::run_link_watch`] meanwhile.
///
/// # Errors
/// A listener cannot be registered, or a thread cannot be started. Errors of a connection end that connection
/// only.
pub async fn serve(
    control: Arc<Control>,
    listeners: Listeners,
    limits: Limits,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let operators = UnixListener::from_std(listeners.operators)?;
    let readers = listeners.readers.map(UnixListener::from_std).transpose()?;
    let metrics = listeners.metrics.map(TcpListener::from_std).transpose()?;
    let spawn = |name: &str, body: fn(&Control)| {
        let control = control.clone();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || body(&control))
    };
    let maintenance = spawn("mmb-maintenance", Control::run_maintenance)?;
    let links = spawn("mmb-links", Control::run_link_watch)?;
    let server = Arc::new(server(&control, limits));
    tokio::spawn(server.clone().accept_local(operators, Role::Operator));
    if let Some(readers) = readers {
        tokio::spawn(server.clone().accept_local(readers, Role::Reader));
    }
    let mut servers = vec![server];
    if let Some(listener) = metrics {
        let server = Arc::new(scrape::server(&control, limits));
        tokio::spawn(server.clone().accept_anyone(listener));
        servers.push(server);
    }
    if let Some(access) = listeners.network.first().map(|listener| listener.access.clone()) {
        let server = Arc::new(self::server(&control, limits));
        let network = Arc::new(NetworkServer::new(server.clone(), access, control.audit().cloned()));
        for NetworkListener { socket, has_page, .. } in listeners.network {
            tokio::spawn(network.clone().accept(TcpListener::from_std(socket)?, has_page));
        }
        servers.push(server);
    }
    stop.await;
    servers.iter().for_each(|server| server.stop());
    // Connections that have not ended by then are dropped with the runtime.
    let ended = async {
        for server in &servers {
            server.ended().await;
        }
    };
    let _ = tokio::time::timeout(GRACE, ended).await;
    control.stop_maintenance();
    control.stop_link_watch();
    // The threads hold the control and with it the engine, so they end first. A panic has printed its reason
    // already.
    let _ = maintenance.join();
    let _ = links.join();
    Ok(())
}

/// The server of a control.
fn server(control: &Arc<Control>, limits: Limits) -> Server {
    let counters = control.api_counters().clone();
    let usage = Arc::new(Usage::new(limits));
    let audit = control.audit().cloned();
    let gate = Gate { usage: usage.clone(), limits, counters: counters.clone(), audit };
    let (router, _) = router(control.clone());
    let router = router.layer(from_fn_with_state(gate, body::admit));
    Server::new(router, usage, limits, counters)
}

/// Answers the requests of connections that the caller accepts. [`serve`] does it for sockets.
pub struct ConnectionServer(Arc<Server>);

impl ConnectionServer {
    /// A server without connections.
    pub fn new(control: &Arc<Control>, limits: Limits) -> ConnectionServer {
        ConnectionServer(Arc::new(server(control, limits)))
    }

    /// Answers the requests of a client with this role until one side closes the connection.
    pub async fn serve<S>(&self, stream: S, role: Role)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.0.exchange(stream, |_| Ok((role, None))).await;
    }

    /// Answers the requests of a client that proves its name in each request, as on the network without TLS.
    pub async fn serve_stranger<S>(&self, stream: S, access: &Arc<NetworkAccess>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        NetworkServer::new(self.0.clone(), access.clone(), None).serve_stranger(stream).await;
    }
}
