//! Messages of one direction, for who knows which request a response answers.

use crate::parser::{Kind, Parser};
use crate::{Event, RequestClass};

/// Reads the requests of a client. Unlike [`crate::Connection`], it pairs them with no responses.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestReader(Parser);

impl RequestReader {
    /// Takes bytes up to the next event. Returns how many, and the event.
    pub fn next<'b>(&mut self, bytes: &'b [u8]) -> (usize, Event<'b>) {
        self.0.next(Kind::Request, bytes)
    }

    /// Whether no request has begun, behind the last one that is complete.
    pub fn is_idle(&self) -> bool {
        self.0.is_idle()
    }
}

/// Reads the responses of a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResponseReader(Parser);

impl ResponseReader {
    /// Takes bytes of the response to a request up to the next event. Returns how many, and the event.
    pub fn next<'b>(&mut self, request: RequestClass, bytes: &'b [u8]) -> (usize, Event<'b>) {
        self.0.next(Kind::Response(Some(request)), bytes)
    }

    /// The connection has ended. Returns the last event, if there is one.
    pub fn end(&mut self) -> Option<Event<'static>> {
        self.0.finish()
    }

    /// Whether no response has begun, behind the last one that is complete.
    pub fn is_idle(&self) -> bool {
        self.0.is_idle()
    }
}
