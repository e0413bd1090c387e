//! Dumps of the kernel's whole state, class by class.

use std::time::Instant;

use rustc_hash::FxHashSet;

use super::class::StateClass;
use super::event::Event;
use super::socket::{Message, NetlinkSocket};

/// The order of classes: state that others refer to comes first.
const DUMP_ORDER: [StateClass; 9] = [
    StateClass::Links,
    StateClass::Addresses,
    StateClass::Settings4,
    StateClass::Settings6,
    StateClass::Objects,
    StateClass::Neighbors4,
    StateClass::Neighbors6,
    StateClass::Routes4,
    StateClass::Routes6,
];
/// Maximum number of attempts to dump a class without disturbance.
const MAX_TRIES: u32 = 5;

/// A dump in progress.
pub(crate) struct Dump {
    pub began: Instant,
    /// Index of the current class in [`DUMP_ORDER`].
    at: usize,
    /// Sequence number of the request; 0: not sent yet.
    sequence: u32,
    tries: u32,
    /// Whether parts of the class may be missing.
    disturbed: bool,
    /// Whether the dump of the class has ended.
    finished: bool,
    complete: FxHashSet<StateClass>,
    /// Classes that the kernel does not support.
    unsupported: FxHashSet<StateClass>,
}

impl Dump {
    /// Starts with the first class.
    pub fn begin(requests: &mut NetlinkSocket) -> Dump {
        let mut dump = Dump {
            began: Instant::now(),
            at: 0,
            sequence: 0,
            tries: 0,
            disturbed: false,
            finished: false,
            complete: FxHashSet::default(),
            unsupported: FxHashSet::default(),
        };
        dump.ask(requests);
        dump
    }

    fn ask(&mut self, requests: &mut NetlinkSocket) {
        (self.finished, self.disturbed) = (false, false);
        self.tries += 1;
        match DUMP_ORDER.get(self.at).map(|class| requests.dump(*class)) {
            Some(Ok(sequence)) => self.sequence = sequence,
            // The socket is still receiving a previous dump. The next turn tries again.
            Some(Err(_)) => self.sequence = 0,
            None => {}
        }
    }

    /// Takes a concurrent change into account. For some lists the kernel finds its position again by
    /// counting. It skips elements if one before them was removed.
    pub fn mark_disturbed(&mut self, event: &Event) {
        self.disturbed |= match (DUMP_ORDER.get(self.at), event) {
            (Some(StateClass::Routes6), Event::RouteGone(route)) => route.prefix.is_ipv6(),
            (Some(StateClass::Neighbors4), Event::NeighborGone(neighbor)) => neighbor.address.is_ipv4(),
            (Some(StateClass::Neighbors6), Event::NeighborGone(neighbor)) => neighbor.address.is_ipv6(),
            _ => false,
        };
    }

    /// Records a message of the socket. Returns whether it belongs to the dump.
    pub fn record(&mut self, message: &Message<'_>) -> bool {
        if message.sequence != self.sequence {
            return false;
        }
        self.disturbed |= message.is_interrupted();
        if let Some(error) = message.end() {
            self.finished = true;
            match error {
                0 => {}
                // The kernel lacked something for a moment.
                libc::ENOMEM | libc::ENOBUFS | libc::EBUSY | libc::EAGAIN | libc::EINTR => {
                    self.disturbed = true;
                }
                _ => self.unsupported.extend(DUMP_ORDER.get(self.at)),
            }
        }
        true
    }

    /// Requests the next class if the current one has ended. Returns false at the end of the dump.
    pub fn advance(&mut self, requests: &mut NetlinkSocket) -> bool {
        if self.sequence == 0 {
            self.ask(requests);
            return true;
        }
        if !self.finished {
            return true;
        }
        let Some(class) = DUMP_ORDER.get(self.at).copied() else { return false };
        if !self.disturbed || self.unsupported.contains(&class) || self.tries == MAX_TRIES {
            if !self.disturbed && !self.unsupported.contains(&class) {
                self.complete.insert(class);
            }
            self.at += 1;
            self.tries = 0;
        }
        self.ask(requests);
        self.at < DUMP_ORDER.len()
    }

    /// Whether the dump of this class is complete, so that unreported state does not exist.
    pub fn is_complete(&self, class: StateClass) -> bool {
        self.complete.contains(&class)
    }

    /// Whether all supported classes were dumped without disturbance.
    pub fn is_consistent(&self) -> bool {
        DUMP_ORDER.iter().all(|class| self.complete.contains(class) || self.unsupported.contains(class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::ReadResult;

    /// A dump in which the kernel ends every class with an error.
    fn failed_dump(error: i32) -> Dump {
        let mut requests = NetlinkSocket::requests().unwrap();
        let mut dump = Dump::begin(&mut requests);
        let body = (-error).to_ne_bytes();
        let kind = libc::NLMSG_ERROR as u16;
        loop {
            // The true answers are not recorded; the socket takes no request before it has sent them.
            while requests.read().is_ok_and(|read| read != ReadResult::Empty) {}
            let sequence = dump.sequence;
            dump.record(&Message { kind, flags: 0, sequence, body: &body });
            if !dump.advance(&mut requests) {
                return dump;
            }
        }
    }

    #[test]
    fn a_class_that_the_kernel_refuses_for_a_moment_is_dumped_again() {
        let dump = failed_dump(libc::ENOMEM);
        assert!(!dump.is_consistent() && DUMP_ORDER.iter().all(|class| !dump.is_complete(*class)));
    }

    #[test]
    fn a_class_that_the_kernel_does_not_know_is_left_out() {
        let dump = failed_dump(libc::EOPNOTSUPP);
        assert!(dump.is_consistent() && DUMP_ORDER.iter().all(|class| !dump.is_complete(*class)));
    }
}
