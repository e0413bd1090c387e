//! The client of the control API: blocking, HTTP/1.1 over the daemon's Unix socket or by TLS, one connection
//! that stays open.

mod remote;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use remote::Stream;
pub use remote::{Remote, RemoteFiles};

use crate::api::{ApplyReply, CheckReply, CommandReply, CommandRequest, DiffReply, ErrorReply, Format};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens on the socket.
    #[error("no mmb daemon answers at {0}; start one with `mmb run`")]
    NoDaemon(PathBuf),
    /// The user may not use the socket.
    #[error("no permission to use {0}; run as root or join the group mmb")]
    Permission(PathBuf),
    /// No connection to a daemon on another machine.
    #[error("{0}")]
    Unreachable(String),
    /// The daemon refused the request and changed nothing.
    #[error("{}", .0.error)]
    Refused(Box<ErrorReply>),
    /// The connection was lost, or the reply is invalid.
    #[error("no valid reply from the daemon at {daemon}: {reason}")]
    Broken {
        /// The address of the daemon.
        daemon: String,
        /// The reason.
        reason: String,
    },
}

/// Where a daemon answers.
enum Address {
    Socket(PathBuf),
    Remote(Box<Remote>),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Socket(path) => path.display().fmt(f),
            Address::Remote(remote) => remote.fmt(f),
        }
    }
}

/// A connection to a daemon. It connects with the first request, and again after a restart of the daemon.
pub struct Client {
    address: Address,
    runtime: tokio::runtime::Runtime,
    connection: Option<Connection>,
}

type Connection = SendRequest<Full<Bytes>>;

impl Client {
    /// A client for the daemon at `path`, not yet connected.
    ///
    /// # Errors
    /// The system has no more file descriptors.
    pub fn new(path: &Path) -> io::Result<Client> {
        Client::at(Address::Socket(path.to_owned()))
    }

    /// A client for a daemon on another machine, not yet connected.
    ///
    /// # Errors
    /// The system has no more file descriptors.
    pub fn remote(remote: Remote) -> io::Result<Client> {
        Client::at(Address::Remote(Box::new(remote)))
    }

    fn at(address: Address) -> io::Result<Client> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        Ok(Client { address, runtime, connection: None })
    }

    /// Whether the daemon is on another machine.
    pub fn is_remote(&self) -> bool {
        matches!(self.address, Address::Remote(_))
    }

    /// Runs one line of the language.
    pub fn command(&mut self, line: &str, format: Format) -> Result<CommandReply, ClientError> {
        let request = CommandRequest { line: line.to_owned(), format };
        let body = serde_json::to_vec(&request).map_err(|e| self.broken(e))?;
        self.call(Method::POST, "/v1/command", "application/json", body)
    }

    /// Makes a text the configuration. `allow_empty`: also a text without commands. `confirm`: seconds after
    /// which the change is taken back, unless it is confirmed.
    pub fn apply(
        &mut self,
        text: Vec<u8>,
        allow_empty: bool,
        confirm: Option<u32>,
    ) -> Result<ApplyReply, ClientError> {
        let mut path = format!("/v1/apply?allow_empty={allow_empty}");
        if let Some(seconds) = confirm {
            path.push_str(&format!("&confirm={seconds}"));
        }
        self.call(Method::POST, &path, "text/plain", text)
    }

    /// The changes that [`Client::apply`] would make.
    pub fn diff(&mut self, text: Vec<u8>) -> Result<DiffReply, ClientError> {
        self.call(Method::POST, "/v1/diff", "text/plain", text)
    }

    /// Checks a text as a complete configuration of its own.
    pub fn check(&mut self, text: Vec<u8>) -> Result<CheckReply, ClientError> {
        self.call(Method::POST, "/v1/check", "text/plain", text)
    }

    /// The JSON document of a `GET` endpoint.
    pub fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, ClientError> {
        self.call(Method::GET, path, "application/json", Vec::new())
    }

    /// Runs one line of the language and passes its output to `sink` piece by piece: text, or a JSON
    /// document. If `sink` returns false, the rest is dropped.
    pub fn print(
        &mut self,
        line: &str,
        json: bool,
        sink: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), ClientError> {
        let format = if json { Format::Json } else { Format::Text };
        self.stream("/v1/print", line, format, sink)
    }

    /// Runs a line `capture …` and passes its pcapng file to `sink` piece by piece. If `sink` returns false,
    /// the capture ends.
    pub fn capture(&mut self, line: &str, sink: impl FnMut(&[u8]) -> bool) -> Result<(), ClientError> {
        self.stream("/v1/capture", line, Format::Text, sink)
    }

    fn stream(
        &mut self,
        path: &str,
        line: &str,
        format: Format,
        mut sink: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), ClientError> {
        let request = CommandRequest { line: line.to_owned(), format };
        let body = serde_json::to_vec(&request).map_err(|e| self.broken(e))?;
        let (sender, response) = self.exchange(Method::POST, path, "application/json", body)?;
        let (status, mut body) = (response.status(), response.into_body());
        if !status.is_success() {
            let bytes = self.read_body(sender, body)?;
            return Err(self.refused(status, &bytes));
        }
        let address = &self.address;
        let complete = self.runtime.block_on(async {
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|e| address.broken(e))?;
                if frame.data_ref().is_some_and(|data| !sink(data)) {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        if complete {
            self.connection = Some(sender);
        }
        Ok(())
    }

    fn call<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<T, ClientError> {
        let (sender, response) = self.exchange(method, path, content_type, body)?;
        let status = response.status();
        let bytes = self.read_body(sender, response.into_body())?;
        if status.is_success() {
            return serde_json::from_slice(&bytes).map_err(|e| self.broken(e));
        }
        Err(self.refused(status, &bytes))
    }

    fn refused(&self, status: StatusCode, bytes: &[u8]) -> ClientError {
        match serde_json::from_slice(bytes) {
            Ok(reply) => ClientError::Refused(Box::new(reply)),
            Err(_) => self.broken(format!("{status}: {}", String::from_utf8_lossy(bytes))),
        }
    }

    /// Sends a request and waits for the head of the response. The connection can be used again after the
    /// body.
    fn exchange(
        &mut self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<(Connection, Response<Incoming>), ClientError> {
        let mut request =
            Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, content_type);
        request = match &self.address {
            Address::Socket(_) => request.header(header::HOST, "mmb"),
            Address::Remote(remote) => request.header(header::HOST, remote.authority()),
        };
        if let Address::Remote(remote) = &self.address
            && let Some(authorization) = remote.authorization()
        {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Full::from(body)).map_err(|e| self.broken(e))?;
        let mut connection = self.connection.take();
        let address = &self.address;
        self.runtime.block_on(async {
            // A request is sent once, on a connection that is ready. Sending it twice could run a command
            // twice.
            let mut sender = match connection.take().filter(|old| !old.is_closed()) {
                Some(mut old) => match old.ready().await {
                    Ok(()) => old,
                    Err(_) => address.connect().await?,
                },
                None => address.connect().await?,
            };
            sender.ready().await.map_err(|e| address.broken(e))?;
            let response = sender.send_request(request).await.map_err(|e| address.broken(e))?;
            Ok((sender, response))
        })
    }

    /// Reads a whole body, and keeps the connection for the next request.
    fn read_body(&mut self, sender: Connection, body: Incoming) -> Result<Bytes, ClientError> {
        let bytes = self.runtime.block_on(body.collect()).map_err(|e| self.broken(e))?.to_bytes();
        self.connection = Some(sender);
        Ok(bytes)
    }

    fn broken(&self, reason: impl ToString) -> ClientError {
        self.address.broken(reason)
    }
}

impl Address {
    fn broken(&self, reason: impl ToString) -> ClientError {
        ClientError::Broken { daemon: self.to_string(), reason: reason.to_string() }
    }

    async fn connect(&self) -> Result<Connection, ClientError> {
        let stream: Box<dyn Stream> = match self {
            Address::Socket(path) => {
                Box::new(UnixStream::connect(path).await.map_err(|e| match e.kind() {
                    io::ErrorKind::PermissionDenied => ClientError::Permission(path.to_owned()),
                    _ => ClientError::NoDaemon(path.to_owned()),
                })?)
            }
            Address::Remote(remote) => remote.connect().await.map_err(ClientError::Unreachable)?,
        };
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| self.broken(e))?;
        // The next request notices the end of the connection.
        tokio::spawn(async { drop(connection.await) });
        Ok(sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_daemon_the_error_names_the_command_that_starts_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        for stale in [false, true] {
            if stale {
                drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            }
            let error = Client::new(&path).unwrap().command("list", Format::Text).unwrap_err();
            let expected = format!("no mmb daemon answers at {}; start one with `mmb run`", path.display());
            assert_eq!(error.to_string(), expected);
        }
    }
}
