//! Functions of layer 7: they see the requests and responses of a broker, which ends TCP connections itself.
//!
//! A chain of such functions is used by brokers only (`broker add NAME listen ADDRESS:PORT chain CHAIN`). A
//! request passes the functions in the order of the chain, its response in the reverse order. Functions run
//! in the thread of the broker, and must not wait.

mod message;
mod typed;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub use message::{L7Answer, L7Finished, L7Request, L7Response, L7Verdict, Peer};
pub use typed::DynL7;
pub(crate) use typed::TypedL7;

use crate::{ArgError, Background, Setup};

/// What a function does with requests and responses.
pub trait L7Handler: Send + Sync + 'static {
    /// The state that each broker keeps for the function.
    type Local: Send + 'static;

    /// Makes the state of a broker.
    fn local(&self) -> Self::Local;

    /// Processes the head of a request. The body follows it without being seen.
    fn request(&self, request: &mut L7Request<'_>, local: &mut Self::Local) -> L7Verdict;

    /// Processes the head of a final response. The body follows it without being seen.
    fn response(&self, response: &mut L7Response<'_>, local: &mut Self::Local) -> L7Verdict {
        let _ = (response, local);
        L7Verdict::Pass
    }

    /// An exchange has ended that the function has passed or answered.
    fn finished(&self, exchange: &L7Finished, local: &mut Self::Local) {
        let _ = (exchange, local);
    }

    /// Returns the servers to which requests go, if the function knows some.
    fn upstream(&self) -> Option<Arc<dyn Upstream>> {
        None
    }
}

/// A type of function that only brokers can use.
pub trait L7Function: L7Handler + Sized {
    /// See [`crate::Function::TYPE`].
    const TYPE: &'static str;
    /// See [`crate::Function::USAGE`].
    const USAGE: &'static str;
    /// See [`crate::Function::HELP`].
    const HELP: &'static str;

    /// Makes an instance from the arguments behind its type.
    ///
    /// # Errors
    /// The argument that is wrong, and what is accepted.
    fn new(setup: &Setup<'_>) -> Result<Self, ArgError>;

    /// See [`crate::Function::set`].
    ///
    /// # Errors
    /// The argument that is wrong.
    fn set(&self, args: &[&str]) -> Result<(), ArgError> {
        let _ = args;
        Err(format!("a function of type `{}` has no settings", Self::TYPE).into())
    }

    /// See [`crate::Function::report`].
    fn report(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// See [`crate::Function::background`].
    fn background(&self) -> Option<Background> {
        None
    }
}

/// A server that was chosen for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenServer {
    /// Its number among the servers of its group.
    pub number: u16,
    /// Where it listens.
    pub address: SocketAddr,
}

/// A group of servers.
pub trait Upstream: Send + Sync {
    /// Chooses a server for a request of a client, other than those that were tried. None: there is none.
    fn choose(&self, client: IpAddr, tried: &[u16]) -> Option<ChosenServer>;

    /// Returns how many other servers are tried for a request.
    fn retries(&self) -> usize;

    /// A request is under way to a server.
    fn begin(&self, server: u16);

    /// A request to a server is over. `failed`: the server has not answered it.
    fn end(&self, server: u16, failed: bool);
}
