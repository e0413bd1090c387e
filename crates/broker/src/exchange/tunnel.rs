//! Tunnels behind status 101, and the ends of connections.

use mmb_nf::Follows;

use super::{Client, Common, Flow, Pair, Phase, Step};
use crate::counters::Count;
use crate::io::{Channel, Filled, Pool};

/// Bytes of one direction of a tunnel.
#[derive(Default)]
struct Copied {
    /// By the socket of the sender.
    received: usize,
    /// From the sender's side to that of the receiver.
    moved: usize,
    /// By the socket of the receiver.
    sent: usize,
}

/// Moves bytes from one channel to another. None: a connection was reset.
fn copy(from: &mut Channel, to: &mut Channel, pool: &mut Pool) -> Option<Copied> {
    let mut copied = Copied::default();
    while !to.output.is_full() {
        if from.input.is_empty() {
            match from.fill(pool) {
                Ok(Filled::Bytes(len)) => copied.received += len,
                Ok(_) => break,
                Err(_) => return None,
            }
        }
        let bytes = from.input.bytes();
        to.output.text(pool).extend_from_slice(bytes);
        let len = bytes.len();
        copied.moved += len;
        from.input.consume(len);
        from.input.rest(pool);
    }
    let is_over = from.is_ended && from.input.is_empty();
    if is_over {
        to.set_follows(Follows::End);
    }
    copied.sent = to.flush(pool).ok()?;
    if is_over && to.output.is_empty() {
        to.shut();
    }
    Some(copied)
}

impl Client {
    /// What still comes is discarded.
    pub fn linger(&mut self, common: &Common) {
        self.enter(Phase::Linger, common.now);
    }
}
impl Pair<'_> {
    /// Moves the bytes of a tunnel. Each direction ends on its own.
    pub(super) fn tunnel(&mut self) -> Flow {
        let (client, common) = (&mut *self.client, &mut *self.common);
        let Some(server) = &mut self.server else { return Flow::Needs(Step::Close) };
        let (ours, theirs) = (&mut client.channel, &mut server.channel);
        // Neither may be read or written while the other one takes nothing.
        if ours.is_reset || theirs.is_reset {
            return Flow::Needs(Step::Close);
        }
        let up = copy(ours, theirs, &mut common.pool);
        let down = copy(theirs, ours, &mut common.pool);
        let (Some(up), Some(down)) = (up, down) else { return Flow::Needs(Step::Close) };
        client.exchange.request_bytes += up.moved as u64;
        client.exchange.response_bytes += down.moved as u64;
        common.note_received(up.received);
        common.spend(down.received);
        common.counters.add_many(Count::ResponseBytes, down.sent as u64);
        if ours.is_shut && theirs.is_shut {
            return Flow::Needs(Step::Close);
        }
        if [up, down].iter().all(|copied| copied.received + copied.moved + copied.sent == 0) {
            return Flow::Blocked;
        }
        client.since = common.now;
        Flow::Moved
    }

    /// Sends the last bytes.
    pub(super) fn closing(&mut self) -> Flow {
        self.client.channel.set_follows(Follows::End);
        match self.send_response() {
            needs @ Flow::Needs(_) => return needs,
            Flow::Moved => self.client.since = self.common.now,
            Flow::Blocked => {}
        }
        if !self.client.channel.output.is_empty() {
            return Flow::Blocked;
        }
        if self.client.channel.is_ended || self.client.is_cut() {
            return Flow::Needs(Step::Close);
        }
        let (channel, now) = (&mut self.client.channel, self.common.now);
        // A socket that is closed with unread bytes resets the connection. The client may lose the answer.
        channel.shut();
        channel.set_filter(None);
        self.client.enter(Phase::Linger, now);
        Flow::Moved
    }

    /// Discards what still comes.
    pub(super) fn linger(&mut self) -> Flow {
        let channel = &mut self.client.channel;
        let len = channel.input.bytes().len();
        channel.input.consume(len);
        match channel.fill(&mut self.common.pool) {
            Ok(Filled::Bytes(len)) => {
                self.common.note_received(len);
                Flow::Moved
            }
            Ok(Filled::Nothing) => {
                channel.rest(&mut self.common.pool);
                Flow::Blocked
            }
            Ok(Filled::End) | Err(_) => Flow::Needs(Step::Close),
        }
    }
}
