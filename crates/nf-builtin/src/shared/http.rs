//! What functions that read HTTP share.

use mmb_flow::{Key, parse_key};
use mmb_http::Cause;
use mmb_nf::{Direction, Packet, SessionInfo, WorkerCounters};

/// Counts connections that are not read, or not accepted, by cause.
pub(crate) struct CauseCounters(WorkerCounters<{ Cause::ALL.len() }>);

impl CauseCounters {
    pub fn new(workers: u16) -> CauseCounters {
        CauseCounters(WorkerCounters::new(workers))
    }

    pub fn count(&self, worker: u16, cause: Cause) {
        self.0.add(worker, cause as usize, 1);
    }

    /// For `show functions`: the causes that have occurred. `word` tells what becomes of connections with
    /// errors.
    pub fn report(&self, word: &str) -> impl Iterator<Item = (String, String)> {
        let word = move |cause: Cause| if cause.is_opaque() { "not read" } else { word };
        let counted = Cause::ALL.into_iter().map(|cause| (cause, self.0.sum(cause as usize)));
        counted
            .filter(|(_, count)| *count != 0)
            .map(move |(cause, count)| (format!("{}: {}", word(cause), cause.name()), count.to_string()))
    }
}

/// Returns the media type in a Content-Type header, without its parameters.
pub(crate) fn media_type(content_type: &[u8]) -> &[u8] {
    let end = content_type.iter().position(|&byte| byte == b';').unwrap_or(content_type.len());
    content_type.get(..end).unwrap_or(&[]).trim_ascii()
}

/// Returns the key of forward packets of a packet's session.
pub(crate) fn forward_key(packet: &Packet<'_>) -> Option<Key> {
    let key = parse_key(packet.head, packet.meta).ok()?;
    Some(if packet.direction == Direction::Forward { key } else { key.reversed() })
}

/// Whether the instance has joined the chain of an existing session, whose first bytes it has not seen.
pub(crate) fn has_joined(session: &SessionInfo, now: u32) -> bool {
    session.created != now
}

#[cfg(test)]
pub(crate) mod testing {
    //! For tests of functions of layer 7.

    use std::net::SocketAddr;

    use mmb_http::{Event, Head, MessageHead, RequestReader};
    use mmb_nf::{ArgError, L7Function, L7Handler, L7Request, L7Verdict, Peer, Setup};

    /// The ends of the connection.
    pub fn peer() -> Peer {
        let address = |last| SocketAddr::new([192, 0, 2, last].into(), 80);
        Peer { client: address(1), broker: address(2) }
    }

    /// Makes an instance.
    pub fn made<F: L7Function>(args: &[&str]) -> Result<F, ArgError> {
        F::new(&Setup {
            args,
            resolve_port: &|_| None,
            has_pool: &|_| false,
            workers: 1,
            seed: 0,
            files: &std::sync::Arc::default(),
        })
    }

    /// Reads the head of a request.
    pub fn read_head(text: &str) -> MessageHead {
        let (mut reader, mut message, mut rest) =
            (RequestReader::default(), MessageHead::default(), text.as_bytes());
        loop {
            let (len, event) = reader.next(rest);
            message.push(&event);
            rest = &rest[len..];
            if matches!(event, Event::Head(_)) {
                return message;
            }
            assert!(!matches!(event, Event::Invalid(_) | Event::More), "{text}");
        }
    }

    /// Returns the verdict of a function about a request.
    pub fn answer_of<F: L7Handler>(function: &F, message: &mut MessageHead) -> L7Verdict {
        let head =
            Head { status: 0, minor: 1, body: mmb_http::Body::None, request: Some(Default::default()) };
        let mut request = L7Request { exchange: 1, peer: peer(), message, head, host: b"a" };
        function.request(&mut request, &mut function.local())
    }
}
