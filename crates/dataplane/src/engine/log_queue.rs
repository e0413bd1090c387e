//! Packets that rules log, on their way from a worker to the thread that writes the lines.
//!
//! Theory of operation. Each worker has a bounded queue of its own, which it never waits for. Packets that do
//! not fit are counted. The reader takes all packets a few times a second and wakes nobody.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_queue::ArrayQueue;
use mmb_session::LoggedPacket;

/// Packets in a worker's queue, at most.
const ROOM: usize = 1024;

/// See the module's documentation.
pub(crate) struct LogQueue {
    packets: ArrayQueue<LoggedPacket>,
    lost: AtomicU64,
}

impl Default for LogQueue {
    fn default() -> Self {
        LogQueue { packets: ArrayQueue::new(ROOM), lost: 0.into() }
    }
}

impl LogQueue {
    /// Appends a packet, or counts it if there is no room.
    pub fn put(&self, packet: LoggedPacket) {
        if self.packets.push(packet).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    /// Takes the packets in the queue, in order. Returns how many have been lost so far.
    pub fn drain_to(&self, packets: &mut Vec<LoggedPacket>) -> u64 {
        packets.extend(std::iter::from_fn(|| self.packets.pop()).take(ROOM));
        self.lost.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mmb_policy::Policy;
    use mmb_session::{LogVerdict, LoggedHeaders};

    use super::*;

    #[test]
    fn packets_beyond_the_room_are_counted() {
        let mut policy = Policy::new();
        let Ok(Some(mmb_lang::Command::Add(rule))) = mmb_lang::parse_line("add all log") else { panic!() };
        policy.add(&rule, &|_| None).unwrap();
        let log = Arc::clone(policy.rule_log(0).unwrap());
        let (queue, headers) = (LogQueue::default(), LoggedHeaders::default());
        for in_port in 0..ROOM as u16 + 3 {
            let verdict = LogVerdict::Dropped(0);
            queue.put(LoggedPacket { rule: 1, log: log.clone(), in_port, verdict, headers });
        }
        assert_eq!(queue.lost.load(Relaxed), 3);
        assert_eq!(queue.packets.pop().unwrap().in_port, 0);
    }
}
