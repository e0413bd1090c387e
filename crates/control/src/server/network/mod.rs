//! The API on the network: TLS, and users with tokens or certificates.
//!
//! Theory of operation. A connection holds one of [`STRANGERS`] places until its first request with valid
//! credentials. One source address ([`places`]) holds a part of them at most, so that it does not lock others
//! out. Then it holds one of its user's role instead, as connections of the control socket do. The
//! places are the network's own, so no client there takes one from a local user. A handshake has a time
//! limit, and so has each head of a request. Each request has to name its user again, by the certificate of
//! the connection or a bearer token (RFC 6750); its body is read after that. A refusal closes the
//! connection.
//!
//! No role of the network is more than an operator: the daemon confines the files that clients name, of
//! any role. The role `admin` has connections and memory of its own.
//!
//! Pages of other sites can send requests from a browser. They have no token, and a browser asks before it
//! sends another site's `Authorization`. Besides, a request with an `Origin` (RFC 6454) other than its `Host`
//! is refused. Without TLS, so is a `Host` that is not a loopback address: a name of an attacker may lead
//! there.

mod access;
mod page;
mod places;
mod users;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Request, StatusCode, header};
use mmb_system::log;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::TlsAcceptor;
use x509_cert::Certificate;
use x509_cert::der::Decode;

pub use access::{NetworkAccess, NetworkFiles};
pub(crate) use access::{authorities, certificates, private_key};
pub use users::new_token;

use super::accept::{Accept, Server};
use super::audit::{Peer, shortened};
use super::role::Role;
use crate::audit::AuditFile;
use crate::error::Refusal;
use access::Access;
use places::{Places, StrangerPlace};
use users::User;

/// Connections without valid credentials so far, of all clients and of one source.
const STRANGERS: usize = 64;
const STRANGERS_OF_SOURCE: usize = 16;
/// Time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A listener of the API.
#[derive(Debug)]
pub struct NetworkListener {
    /// The socket, in non-blocking mode.
    pub socket: std::net::TcpListener,
    /// Who may use it.
    pub access: Arc<NetworkAccess>,
    /// It serves the web page, too.
    pub has_page: bool,
}

/// A listener with the address of each client.
struct Listener(TcpListener);

impl Accept for Listener {
    type Stream = (TcpStream, SocketAddr);

    async fn next(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.accept().await
    }
}

/// Answers requests that come by a network.
pub(super) struct NetworkServer {
    pub server: Arc<Server>,
    access: Arc<NetworkAccess>,
    strangers: Arc<Places>,
    audit: Option<Arc<AuditFile>>,
}

impl NetworkServer {
    pub fn new(
        server: Arc<Server>,
        access: Arc<NetworkAccess>,
        audit: Option<Arc<AuditFile>>,
    ) -> NetworkServer {
        let strangers = Arc::new(Places::new(STRANGERS, STRANGERS_OF_SOURCE));
        NetworkServer { server, access, strangers, audit }
    }

    /// Records a refused login.
    fn record(&self, address: SocketAddr, request: &str, status: Option<StatusCode>, reason: &str) {
        if let Some(audit) = &self.audit {
            audit.login(address.ip(), request, status.map(|status| status.as_u16()), reason);
        }
    }

    /// Accepts connections until the server stops.
    pub async fn accept(self: Arc<NetworkServer>, listener: TcpListener, has_page: bool) {
        let server = self.server.clone();
        let admit = |(stream, address): (TcpStream, SocketAddr)| match self.strangers.take(address.ip()) {
            Some(place) => drop(tokio::spawn(self.clone().serve(stream, (address, has_page), place))),
            // Without a handshake there is nobody to tell the reason.
            None => drop(self.server.counters.connections.fetch_add(1, Relaxed)),
        };
        server.accept_each(Listener(listener), admit).await;
    }

    /// Serves one connection.
    async fn serve(
        self: Arc<NetworkServer>,
        stream: TcpStream,
        origin: (SocketAddr, bool),
        place: StrangerPlace,
    ) {
        // A reply is sent at once; without the option it may wait for the acknowledgement of the one before.
        let _ = stream.set_nodelay(true);
        match self.access.current().tls.clone() {
            None => self.exchange(stream, origin, None, place).await,
            Some(tls) => match tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(tls).accept(stream)).await {
                Ok(Ok(stream)) => {
                    let subject = stream.get_ref().1.peer_certificates().and_then(subject);
                    self.exchange(stream, origin, subject, place).await;
                }
                failed => {
                    self.server.counters.handshakes.fetch_add(1, Relaxed);
                    let reason = match failed {
                        Ok(Err(error)) => format!("the TLS handshake failed: {error}"),
                        _ => "the TLS handshake did not end in time".to_owned(),
                    };
                    self.record(origin.0, "", None, &reason);
                }
            },
        }
        self.server.reserve.refill();
    }

    /// Answers the requests of one connection. `origin`: the client's address, and whether the listener
    /// serves the web page. `subject`: that of the client's certificate.
    async fn exchange<S>(
        &self,
        stream: S,
        (address, has_page): (SocketAddr, bool),
        subject: Option<String>,
        place: StrangerPlace,
    ) where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let connection = Connection {
            network: self,
            address,
            has_page,
            subject,
            place: Mutex::new(Place::Stranger(place)),
        };
        self.server.exchange(stream, |request| connection.identify(request)).await;
    }

    /// Answers the requests of a client without an address.
    pub async fn serve_stranger<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let address = SocketAddr::from(([0; 4], 0));
        if let Some(place) = self.strangers.take(address.ip()) {
            self.exchange(stream, (address, true), None, place).await;
        }
    }
}

/// The place that a connection holds.
enum Place {
    /// Without valid credentials so far.
    Stranger(#[expect(dead_code, reason = "it is given back when it is dropped")] StrangerPlace),
    /// Of a user.
    User(#[expect(dead_code, reason = "it is given back when it is dropped")] OwnedSemaphorePermit),
}

/// A connection.
struct Connection<'a> {
    network: &'a NetworkServer,
    address: SocketAddr,
    has_page: bool,
    /// Of the certificate of the client.
    subject: Option<String>,
    place: Mutex<Place>,
}

impl Connection<'_> {
    /// The user of a request, or the answer to one without: a file of the page, or a refusal, which ends the
    /// connection.
    fn identify(&self, request: &Request<Incoming>) -> Result<(Role, Option<Peer>), Box<Response>> {
        let access = self.network.access.current();
        let counters = &self.network.server.counters;
        check_site(request.headers(), access.tls.is_some()).map_err(|sentence| {
            counters.forbidden.fetch_add(1, Relaxed);
            self.refuse(request, StatusCode::FORBIDDEN, sentence)
        })?;
        if self.has_page
            && let Some(mut file) = page::file(request.method(), request.uri())
        {
            // A stranger gives the place back.
            if self.is_stranger() {
                file.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            return Err(Box::new(file));
        }
        let user = self.user(&access, request.headers()).map_err(|sentence| {
            counters.credentials.fetch_add(1, Relaxed);
            let mut response = self.refuse(request, StatusCode::UNAUTHORIZED, sentence);
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        })?;
        if !self.take_place(user.role) {
            counters.connections.fetch_add(1, Relaxed);
            let limit = self.network.server.limits.connections[user.role as usize];
            let sentence = format!(
                "there are {limit} connections of this role already, which is the maximum; try again later"
            );
            return Err(self.refuse(request, StatusCode::SERVICE_UNAVAILABLE, &sentence));
        }
        Ok((user.role, Some(Peer::Network { name: user.name, address: self.address.ip() })))
    }

    /// A refused login, which is recorded.
    fn refuse(&self, request: &Request<Incoming>, status: StatusCode, sentence: &str) -> Box<Response> {
        let text = shortened(&format!("{} {}", request.method(), request.uri().path()));
        self.network.record(self.address, &text, Some(status), sentence);
        refusal(status, sentence)
    }

    fn user(&self, access: &Access, headers: &HeaderMap) -> Result<User, &'static str> {
        if let Some(token) = bearer_token(headers) {
            let token = token?;
            return access.users.by_token(token).cloned().ok_or("the token is not valid");
        }
        match &self.subject {
            Some(subject) => access.users.by_subject(subject).cloned().ok_or("the certificate names no user"),
            None => Err("this needs a token: `Authorization: Bearer TOKEN`, or `mmb --token-file FILE`"),
        }
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        // The value is complete at every moment.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stranger(&self) -> bool {
        matches!(*self.place(), Place::Stranger(_))
    }

    /// Takes a place of a role, unless the connection has one. False: there is none.
    fn take_place(&self, role: Role) -> bool {
        let mut place = self.place();
        if matches!(*place, Place::Stranger(_)) {
            let Some(permit) = self.network.server.usage.connection(role) else { return false };
            *place = Place::User(permit);
        }
        true
    }
}

/// A refusal that ends the connection.
fn refusal(status: StatusCode, sentence: &str) -> Box<Response> {
    let reply = Json(Refusal::forbidden(sentence.to_owned()).into_reply());
    Box::new((status, [(header::CONNECTION, "close")], reply).into_response())
}

/// The token of a request (RFC 6750, 2.1). None: there is no `Authorization`.
fn bearer_token(headers: &HeaderMap) -> Option<Result<&[u8], &'static str>> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.as_bytes();
    if values.next().is_some() {
        return Some(Err("a request has one `Authorization`"));
    }
    match value.split_at_checked("bearer ".len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => Some(Ok(token.trim_ascii())),
        _ => Some(Err("the scheme of `Authorization` is `Bearer`")),
    }
}

/// Checks that a request does not come from the page of another site.
fn check_site(headers: &HeaderMap, has_tls: bool) -> Result<(), &'static str> {
    let host = single(headers, header::HOST).ok_or("a request has one `Host`")?;
    if !has_tls && !is_loopback(host) {
        return Err("without TLS, the host is `localhost` or a loopback address");
    }
    if !headers.contains_key(header::ORIGIN) {
        return Ok(());
    }
    let scheme = if has_tls { "https://" } else { "http://" };
    let origin = single(headers, header::ORIGIN).and_then(|origin| origin.strip_prefix(scheme));
    match origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host)) {
        true => Ok(()),
        false => Err("pages of other sites may not use the API"),
    }
}

/// The value of a header that occurs once.
fn single(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok();
    values.next().is_none().then_some(value).flatten()
}

/// Whether the host of an authority is `localhost` or a loopback address.
fn is_loopback(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// The subject of a verified certificate (RFC 4514).
fn subject(chain: &[CertificateDer<'_>]) -> Option<String> {
    let certificate = Certificate::from_der(chain.first()?).ok()?;
    Some(certificate.tbs_certificate().subject().to_string())
}

/// Reads the files of `access` again. The log has the result.
pub fn reload_access(access: &NetworkAccess) {
    match access.reload() {
        Ok(()) => log::info("certificates and users of the API reloaded\n"),
        Err(reason) => {
            log::error(format!("error: certificates and users of the API are not reloaded: {reason}\n"))
        }
    }
}

#[cfg(test)]
mod tests;
