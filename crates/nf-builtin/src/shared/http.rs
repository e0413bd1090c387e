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
