//! What functions of layer 7 are called with, what they decide, and what is known of servers.

use std::net::SocketAddr;
use std::sync::Arc;

use mmb_http::{Head, MessageHead, RequestClass};

/// The ends of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The client.
    pub client: SocketAddr,
    /// The address of the broker.
    pub broker: SocketAddr,
}

/// The head of a request. The target has a path, and is `*` for OPTIONS of a whole server.
#[derive(Debug)]
pub struct L7Request<'a> {
    /// Distinguishes the exchange from all others of the broker.
    pub exchange: u64,
    /// The ends of the connection.
    pub peer: Peer,
    /// The first line and the headers.
    pub message: &'a mut MessageHead,
    /// How the request ends.
    pub head: Head,
    /// The host that the request is for, without its port.
    pub host: &'a [u8],
}

/// The head of a final response.
#[derive(Debug)]
pub struct L7Response<'a> {
    /// As of the request.
    pub exchange: u64,
    /// The ends of the client's connection.
    pub peer: Peer,
    /// The first line and the headers.
    pub message: &'a mut MessageHead,
    /// Its status, and how it ends.
    pub head: Head,
    /// The request that it answers.
    pub request: RequestClass,
    /// The server that answers, by its number among those of its group.
    pub server: Option<u16>,
    /// The server that [`crate::Upstream::preferred`] has named for the request.
    pub preferred: Option<u16>,
}

/// An exchange that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L7Finished {
    /// As of the request.
    pub exchange: u64,
    /// The status that the client has got. 0: none.
    pub status: u16,
    /// Bytes of the request's body, and of the client in a tunnel behind it.
    pub request_bytes: u64,
    /// Bytes of the response's body, and of the server in a tunnel behind it.
    pub response_bytes: u64,
    /// The client has got the whole response.
    pub is_complete: bool,
}

/// What a function decides about a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum L7Verdict {
    /// It goes on.
    Pass,
    /// The client gets an answer in its place.
    Answer(L7Answer),
    /// The connection to the client ends without an answer.
    Close,
}

/// An answer that a function makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct L7Answer {
    /// The status code, 200 to 599.
    pub status: u16,
    /// Lines of headers, each with CR LF, other than those of the body's type and length.
    pub headers: Arc<[u8]>,
    /// The media type of the body.
    pub media: &'static str,
    /// The body. None: a page with the name of the status.
    pub body: Option<Arc<[u8]>>,
}

impl L7Answer {
    /// An answer with the page of its status.
    pub fn of_status(status: u16) -> L7Answer {
        L7Answer { status, headers: Arc::default(), media: "text/html", body: None }
    }
}

/// What checks and settings say about a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerState {
    /// It has failed its checks.
    pub is_down: bool,
    /// It gets no new clients.
    pub is_draining: bool,
    /// Checks that it has passed.
    pub passed: u64,
    /// Checks that it has failed.
    pub failed: u64,
}

/// Somebody who must know when the states of servers change.
pub trait ServersWatcher: Send + Sync {
    /// A server has gone up or down, or begins or ends to drain.
    fn servers_changed(&self);
}
