//! Both directions of a connection: requests and the responses to them.

use bytemuck::{Pod, Zeroable};

use crate::parser::{Kind, Parser};
use crate::{Body, Cause, Event, Head, RequestClass};

/// Most requests that wait for responses.
const MOST_REQUESTS: u8 = 32;
/// Bits of a request in the queue.
const BITS: u32 = 2;

/// The state of a connection. Plain data, zeros at the beginning. Direction 0 has requests, 1 responses.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Connection {
    parsers: [Parser; 2],
    /// The requests that wait for responses, [`BITS`] each, the first one lowest.
    requests: u64,
    count: u8,
    /// The response that is being read is the one to the first request.
    is_answer: u8,
    /// Why the connection is not read: a [`Cause`].
    given_up: u8,
    /// A request was read before.
    has_begun: u8,
    /// A request of HTTP/1.0 was read.
    is_http10: u8,
    unused: [u8; 3],
}

impl RequestClass {
    /// HEAD and CONNECT are not switched by status 101, whatever headers they have.
    fn bits(self) -> u64 {
        match self {
            RequestClass { is_connect: true, .. } => 2,
            RequestClass { is_head: true, .. } => 1,
            RequestClass { has_upgrade: true, .. } => 3,
            _ => 0,
        }
    }

    fn of(bits: u64) -> RequestClass {
        let bits = bits & 3;
        RequestClass { is_head: bits == 1, is_connect: bits == 2, has_upgrade: bits == 3 }
    }
}

impl Connection {
    /// Takes bytes of a direction up to the next event. Returns how many, and the event.
    ///
    /// To be called until it returns [`Event::More`]. [`Event::Invalid`] uses no bytes; the caller then ends
    /// the connection, or calls [`Connection::give_up`] and goes on.
    pub fn next<'b>(&mut self, direction: usize, bytes: &'b [u8]) -> (usize, Event<'b>) {
        let kind = if direction & 1 == 0 { Kind::Request } else { Kind::Response(self.first()) };
        let (len, event) = self.parsers[direction & 1].next(kind, bytes);
        let event = match (direction & 1, event) {
            // HTTP/2 begins a connection (RFC 9113, 3.4), and does not follow requests.
            (_, Event::Invalid(Cause::Http2)) if self.has_begun == 0 => {
                self.give_up(Cause::Http2);
                event
            }
            (_, Event::Invalid(Cause::Http2)) => Event::Invalid(Cause::Version),
            (0, Event::Head(head)) => self.request(head),
            (0, Event::Done) => {
                if self.parsers[0].is_connect() {
                    self.parsers[0].wait();
                }
                event
            }
            (1, Event::Head(head)) => self.response(head),
            (1, Event::Done) => {
                self.answered();
                event
            }
            _ => event,
        };
        if let Event::Invalid(cause) = event
            && self.given_up == 0
            && !cause.is_opaque()
        {
            self.parsers[direction & 1].fail(cause);
        }
        (len, event)
    }

    /// A direction has ended with the connection. Returns the last event, if there is one.
    pub fn end(&mut self, direction: usize) -> Option<Event<'static>> {
        let event = self.parsers[direction & 1].finish();
        if direction & 1 == 1 && event == Some(Event::Done) {
            self.answered();
        }
        event
    }

    /// Stops reading both directions. All further bytes are [`Event::Opaque`].
    pub fn give_up(&mut self, cause: Cause) {
        self.parsers.iter_mut().for_each(Parser::give_up);
        self.given_up = cause as u8;
    }

    /// Returns why the connection is not read. None: it is read.
    pub fn given_up(&self) -> Option<Cause> {
        (self.given_up != 0).then(|| Cause::of(self.given_up))
    }

    /// Returns the number of requests whose heads are complete and whose responses are not.
    pub fn unanswered(&self) -> usize {
        self.count.into()
    }

    /// Whether the client has sent a request of HTTP/1.0.
    pub fn is_http10(&self) -> bool {
        self.is_http10 != 0
    }

    /// Whether no message of a direction has begun, behind the last one that is complete.
    pub fn is_idle(&self, direction: usize) -> bool {
        self.parsers[direction & 1].is_idle()
    }

    /// Whether the next bytes of the client tell whether it begins HTTP/2: what is in front of the version
    /// belongs to the preface (RFC 9113, 3.4).
    pub fn is_in_preface(&self) -> bool {
        self.parsers[0].is_in_preface()
    }

    fn first(&self) -> Option<RequestClass> {
        (self.count != 0).then(|| RequestClass::of(self.requests))
    }

    fn request<'b>(&mut self, head: Head) -> Event<'b> {
        if self.count == MOST_REQUESTS {
            return Event::Invalid(Cause::TooManyRequests);
        }
        self.has_begun = 1;
        self.is_http10 |= u8::from(head.minor == 0);
        let bits = head.request.unwrap_or_default().bits();
        self.requests |= bits << (BITS * u32::from(self.count));
        self.count += 1;
        Event::Head(head)
    }

    fn response<'b>(&mut self, head: Head) -> Event<'b> {
        self.is_answer = u8::from(self.count != 0 && !head.is_interim());
        let request = head.request.unwrap_or_default();
        if head.body == Body::Switched {
            // Requests behind the one that switches would be read as another protocol.
            let is_last = self.count == 1 && (request.is_connect || self.parsers[0].is_idle());
            if !is_last || head.status == 101 && !request.has_upgrade {
                return Event::Invalid(Cause::UnexpectedSwitch);
            }
            self.give_up(Cause::Switched);
        } else if request.is_connect && !head.is_interim() {
            self.parsers[0].proceed();
        }
        Event::Head(head)
    }

    /// A response is complete.
    fn answered(&mut self) {
        if self.is_answer != 0 && self.count != 0 {
            self.requests >>= BITS;
            self.count -= 1;
        }
        self.is_answer = 0;
    }
}

#[cfg(test)]
mod tests;
