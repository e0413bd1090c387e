//! The client of the control API: HTTP/1.1 over the daemon's Unix socket, blocking, one connection kept open.

use std::io;
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::api::{ApplyReply, CheckReply, CommandReply, CommandRequest, DiffReply, ErrorReply, Format};

/// Why a request got no answer that counts as success.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens on the path.
    #[error("no mmb daemon answers at {0}; start one with `mmb run`")]
    NoDaemon(PathBuf),
    /// The socket is there, but not for this user.
    #[error("no permission to use {0}; run as root or join the group mmb")]
    Permission(PathBuf),
    /// The daemon refused; nothing was changed.
    #[error("{}", .0.error)]
    Refused(Box<ErrorReply>),
    /// The connection broke or the answer made no sense.
    #[error("the daemon at {path} gave no proper answer: {reason}")]
    Broken {
        /// The socket.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
}

/// A connection to one daemon. Connects at the first request, and again when the daemon was restarted in between.
pub struct Client {
    path: PathBuf,
    runtime: tokio::runtime::Runtime,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    /// A client for the daemon at `path`; connects later. Fails only when the system has no more file descriptors.
    pub fn new(path: &Path) -> io::Result<Client> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        Ok(Client { path: path.to_owned(), runtime, connection: None })
    }

    /// Runs one line of the language.
    pub fn command(&mut self, line: &str, format: Format) -> Result<CommandReply, ClientError> {
        let request = CommandRequest { line: line.to_owned(), format };
        let body = serde_json::to_vec(&request).map_err(|e| self.broken(e))?;
        self.call(Method::POST, "/v1/command", "application/json", body)
    }

    /// Makes the file's text the configuration.
    pub fn apply(&mut self, text: Vec<u8>) -> Result<ApplyReply, ClientError> {
        self.call(Method::POST, "/v1/apply", "text/plain", text)
    }

    /// What [`Client::apply`] would change.
    pub fn diff(&mut self, text: Vec<u8>) -> Result<DiffReply, ClientError> {
        self.call(Method::POST, "/v1/diff", "text/plain", text)
    }

    /// Whether the daemon would accept the text as a configuration of its own.
    pub fn check(&mut self, text: Vec<u8>) -> Result<CheckReply, ClientError> {
        self.call(Method::POST, "/v1/check", "text/plain", text)
    }

    /// The JSON document at `path` (one of the `GET` endpoints).
    pub fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, ClientError> {
        self.call(Method::GET, path, "application/json", Vec::new())
    }

    fn call<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<T, ClientError> {
        let (status, bytes) = self.exchange(method, path, content_type, body)?;
        if status.is_success() {
            return serde_json::from_slice(&bytes).map_err(|e| self.broken(e));
        }
        match serde_json::from_slice(&bytes) {
            Ok(reply) => Err(ClientError::Refused(Box::new(reply))),
            Err(_) => Err(self.broken(format!("{status}: {}", String::from_utf8_lossy(&bytes)))),
        }
    }

    fn exchange(
        &mut self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "mmb")
            .header(header::CONTENT_TYPE, content_type)
            .body(Full::from(body))
            .map_err(|e| self.broken(e))?;
        let mut connection = self.connection.take();
        let socket = self.path.clone();
        let result = self.runtime.block_on(async {
            // Only a connection known to be good gets the request: sending it twice could run a command twice.
            let mut sender = match connection.take().filter(|old| !old.is_closed()) {
                Some(mut old) => match old.ready().await {
                    Ok(()) => old,
                    Err(_) => connect(&socket).await?,
                },
                None => connect(&socket).await?,
            };
            sender.ready().await.map_err(|e| broken(&socket, e))?;
            let response = sender.send_request(request).await.map_err(|e| broken(&socket, e))?;
            let status = response.status();
            let bytes = response.into_body().collect().await.map_err(|e| broken(&socket, e))?.to_bytes();
            Ok((sender, status, bytes))
        });
        let (sender, status, bytes) = result?;
        self.connection = Some(sender);
        Ok((status, bytes))
    }

    fn broken(&self, reason: impl ToString) -> ClientError {
        broken(&self.path, reason)
    }
}

fn broken(path: &Path, reason: impl ToString) -> ClientError {
    ClientError::Broken { path: path.to_owned(), reason: reason.to_string() }
}

async fn connect(path: &Path) -> Result<SendRequest<Full<Bytes>>, ClientError> {
    let stream = UnixStream::connect(path).await.map_err(|e| match e.kind() {
        io::ErrorKind::PermissionDenied => ClientError::Permission(path.to_owned()),
        _ => ClientError::NoDaemon(path.to_owned()),
    })?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| broken(path, e))?;
    // Its end is seen by the next request; there is nobody else to tell.
    tokio::spawn(async { drop(connection.await) });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_daemon_the_sentence_says_how_to_start_one() {
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
