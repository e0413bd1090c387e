//! Counters of a broker, written by its event loop and read by others.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mmb_fabric::{Region, Words};

/// A counter of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Connections of clients now.
    Clients,
    /// Connections of clients ever.
    Accepted,
    /// Connections that a limit did not allow.
    Limited,
    /// Connections that functions have closed or reset.
    Refused,
    /// Requests whose heads were complete.
    Requests,
    /// Requests that were not accepted as HTTP/1.x.
    Invalid,
    /// Final responses with status 2xx.
    Status2xx,
    /// Final responses with status 3xx.
    Status3xx,
    /// Final responses with status 4xx.
    Status4xx,
    /// Final responses with status 5xx.
    Status5xx,
    /// Responses that functions or the broker made.
    Answered,
    /// Clients that left before their response was complete.
    Aborted,
    /// Deadlines of clients that were missed.
    ClientTimeouts,
    /// Deadlines of servers that were missed.
    ServerTimeouts,
    /// Connections to servers now.
    Servers,
    /// Connections to servers that were opened.
    Connects,
    /// Requests that used a kept connection.
    Reused,
    /// Requests that were sent to another server.
    Retries,
    /// Requests that no server has answered.
    Failed,
    /// Tunnels that were begun by status 101.
    Tunnels,
    /// Bytes from clients.
    ClientBytes,
    /// Bytes to clients.
    ResponseBytes,
}

impl Count {
    /// All, with their names.
    pub const ALL: [(Count, &'static str); 22] = [
        (Count::Clients, "clients"),
        (Count::Accepted, "accepted"),
        (Count::Limited, "limited"),
        (Count::Refused, "refused"),
        (Count::Requests, "requests"),
        (Count::Invalid, "invalid"),
        (Count::Status2xx, "status_2xx"),
        (Count::Status3xx, "status_3xx"),
        (Count::Status4xx, "status_4xx"),
        (Count::Status5xx, "status_5xx"),
        (Count::Answered, "answered"),
        (Count::Aborted, "aborted"),
        (Count::ClientTimeouts, "client_timeouts"),
        (Count::ServerTimeouts, "server_timeouts"),
        (Count::Servers, "servers"),
        (Count::Connects, "connects"),
        (Count::Reused, "reused"),
        (Count::Retries, "retries"),
        (Count::Failed, "failed"),
        (Count::Tunnels, "tunnels"),
        (Count::ClientBytes, "bytes_in"),
        (Count::ResponseBytes, "bytes_out"),
    ];
}

/// The counters of a broker.
#[derive(Debug)]
pub struct Counters(Memory);

#[derive(Debug)]
enum Memory {
    Own(Box<[AtomicU64]>),
    /// The event loop is in another process.
    Shared(Region),
}

impl Default for Counters {
    fn default() -> Counters {
        Counters(Memory::Own(Count::ALL.map(|_| AtomicU64::new(0)).into()))
    }
}

impl Counters {
    /// Makes counters in memory that two processes have.
    pub(crate) fn shared(region: Region) -> Counters {
        Counters(Memory::Shared(region))
    }

    fn words(&self) -> &[AtomicU64] {
        match &self.0 {
            Memory::Own(words) => words,
            Memory::Shared(region) => region.words(),
        }
    }

    /// Returns a count.
    pub fn get(&self, which: Count) -> u64 {
        self.words().get(which as usize).map_or(0, |count| count.load(Relaxed))
    }

    /// Returns a number that is another one after each request and each byte.
    pub(crate) fn progress(&self) -> u64 {
        let of = [Count::Accepted, Count::Requests, Count::ClientBytes, Count::ResponseBytes];
        of.into_iter().map(|which| self.get(which)).fold(0, u64::wrapping_add)
    }

    /// The event loop has ended without a word, and so have its connections.
    pub(crate) fn end_connections(&self) {
        for which in [Count::Clients, Count::Servers] {
            if let Some(count) = self.words().get(which as usize) {
                count.store(0, Relaxed);
            }
        }
    }

    /// Adds one.
    pub(crate) fn add(&self, which: Count) {
        self.add_many(which, 1);
    }

    /// Adds some. Only the event loop of the broker writes.
    pub(crate) fn add_many(&self, which: Count, number: u64) {
        if let Some(count) = self.words().get(which as usize) {
            count.store(count.load(Relaxed).wrapping_add(number), Relaxed);
        }
    }

    /// Subtracts one.
    pub(crate) fn subtract(&self, which: Count) {
        self.add_many(which, u64::MAX);
    }

    /// Counts a final response.
    pub(crate) fn status(&self, status: u16) {
        match status {
            200..300 => self.add(Count::Status2xx),
            300..400 => self.add(Count::Status3xx),
            400..500 => self.add(Count::Status4xx),
            500..600 => self.add(Count::Status5xx),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_positions() {
        assert!(Count::ALL.into_iter().enumerate().all(|(number, (count, _))| count as usize == number));
        let counters = Counters::default();
        counters.add(Count::Clients);
        counters.subtract(Count::Clients);
        counters.status(404);
        assert_eq!((counters.get(Count::Clients), counters.get(Count::Status4xx)), (0, 1));
    }
}
