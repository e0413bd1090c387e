//! Which packets may enter the ring to another worker while it fills up.
//!
//! Theory of operation. A worker that gets more new sessions than it can open finds its ring full, and
//! packets of open sessions would be lost with the others. So SYNs may fill half of the ring only. Packets
//! that may or may not belong to a session, such as datagrams, may fill three quarters. The rest is for TCP
//! segments behind the SYN.

use mmb_dpdk::Packet;
use mmb_packet::Kind;

use crate::engine::handoff::RING;
use crate::engine::worker::Worker;

/// TCP flags, in the second byte behind the data offset.
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// The packets that a ring admits, by the packets that wait in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Admission {
    /// All packets.
    #[default]
    All,
    /// No SYNs.
    NoSyns,
    /// TCP segments other than SYNs.
    Segments,
}

impl Admission {
    /// What the ring of worker `target` admits now.
    pub fn to(worker: &Worker, target: usize) -> Admission {
        let inbox = worker.shared.workers.get(target).and_then(|shared| shared.inbox.as_ref());
        Admission::at(inbox.map_or(0, |inbox| inbox.flows.len()))
    }

    fn at(waiting: usize) -> Admission {
        match waiting {
            _ if waiting >= RING / 4 * 3 => Admission::Segments,
            _ if waiting >= RING / 2 => Admission::NoSyns,
            _ => Admission::All,
        }
    }

    /// Whether a parsed packet may enter.
    #[inline]
    pub fn admits(self, packet: &Packet) -> bool {
        self == Admission::All || self.admits_crowded(packet)
    }

    #[cold]
    fn admits_crowded(self, packet: &Packet) -> bool {
        let meta = packet.meta();
        if meta.kind.l4() != Kind::TCP {
            return self != Admission::Segments;
        }
        let flags = packet.data().get(usize::from(meta.l4_off) + 13).copied().unwrap_or(0);
        flags & (SYN | ACK) != SYN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_fills_up_admits_less() {
        let admissions = [0, RING / 2 - 1, RING / 2, RING / 4 * 3 - 1, RING / 4 * 3, RING].map(Admission::at);
        use Admission::{All, NoSyns, Segments};
        assert_eq!(admissions, [All, All, NoSyns, NoSyns, Segments, Segments]);
    }
}
