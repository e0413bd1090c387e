//! The lookup state of a vector.

use mmb_flow::{BatchLookup, Table};
use mmb_packet::{Meta, PlainHeaders};
use mmb_policy::VECTOR;

use super::forecasts::OpeningForecasts;
use super::summary::PacketSummary;
use crate::Packets;

/// How many packets ahead of the current one packets are prefetched.
pub(crate) const PREFETCH_PACKETS: usize = 4;

/// Stands for a prefetched vector. Whoever holds the token presents the vector's packets to
/// [`crate::Sessions::lookup`], all of them, unchanged and in order. A token is valid until the next prefetch
/// begins.
#[derive(Debug)]
pub struct PrefetchToken {
    n: usize,
    sequence: u32,
}

/// Keys and summaries of the packets of a vector.
#[derive(Debug)]
pub(crate) struct VectorLookup {
    /// Keys, and the flows that they belong to.
    pub keys: Box<BatchLookup>,
    /// What the established path needs of the packets.
    pub summaries: Box<[PacketSummary; VECTOR]>,
    /// What the packets without session will look up.
    pub forecasts: OpeningForecasts,
    /// Number of the current vector; a token with another number is out of date.
    sequence: u32,
}

/// Packets with the same key and input port that follow each other and open, close and reset nothing; or one
/// packet of any kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Train {
    /// The position behind the last packet.
    pub end: usize,
    pub packets: u32,
    /// The summary of the first packet, with the bytes of all.
    pub summary: PacketSummary,
}

impl VectorLookup {
    pub fn new() -> VectorLookup {
        VectorLookup {
            keys: Box::default(),
            summaries: Box::new([PacketSummary::default(); VECTOR]),
            forecasts: OpeningForecasts::default(),
            sequence: 0,
        }
    }

    /// Begins a vector.
    #[inline(always)]
    pub fn begin(&mut self) {
        self.sequence = self.sequence.wrapping_add(1);
        self.keys.begin();
    }

    /// Adds a packet by its parsed headers.
    #[inline(always)]
    pub fn push_parsed<H: PlainHeaders>(
        &mut self,
        table: &Table,
        at: usize,
        headers: &H,
        nic_hash: Option<u32>,
        (in_port, bytes): (u16, u32),
    ) {
        self.summaries[at % VECTOR] = PacketSummary::of_parsed(headers, in_port, bytes);
        self.keys.push_parsed(table, at, headers, nic_hash);
    }

    /// Adds a packet of any kind.
    #[inline(always)]
    pub fn push(
        &mut self,
        table: &Table,
        at: usize,
        (head, meta): (&[u8], &Meta),
        (in_port, bytes): (u16, u32),
    ) {
        if let Some(summary) = self.summaries.get_mut(at) {
            *summary = PacketSummary::of(head, meta, in_port, bytes);
        }
        self.keys.push(table, at, head, meta);
    }

    /// Ends a vector of `n` packets.
    #[inline(always)]
    pub fn end(&mut self, n: usize) -> PrefetchToken {
        self.keys.end(n);
        PrefetchToken { n, sequence: self.sequence }
    }

    /// Whether the token stands for the current vector, which has `n` packets.
    #[inline(always)]
    pub fn is_current(&self, token: &PrefetchToken, n: usize) -> bool {
        token.sequence == self.sequence && token.n == n
    }

    /// Returns the train that begins at a position, of the `n` packets of the vector. `IP6`: keys may be of
    /// IPv6.
    #[inline(always)]
    pub fn train<const IP6: bool>(&self, at: usize, n: usize) -> Train {
        let mut train = Train { end: at + 1, packets: 1, summary: self.summaries[at % VECTOR] };
        let PacketSummary { in_port, flags, .. } = train.summary;
        while train.end < n && self.keys.is_repeated::<IP6>(at, train.end) {
            let next = &self.summaries[train.end % VECTOR];
            if next.in_port != in_port || (next.flags | flags) & PacketSummary::NOT_PLAIN != 0 {
                break;
            }
            (train.end, train.packets) = (train.end + 1, train.packets + 1);
            train.summary.bytes += next.bytes;
        }
        train
    }

    /// Adds a whole vector.
    #[inline(always)]
    pub fn fill(&mut self, table: &Table, n: usize, packets: &impl Packets) {
        self.begin();
        for at in 0..n {
            packets.prefetch(at + PREFETCH_PACKETS);
            let packet = (packets.head(at), packets.meta(at));
            self.push(table, at, packet, (packets.in_port(at), packets.bytes(at)));
        }
        self.keys.end(n);
    }
}

#[cfg(test)]
mod tests {
    use mmb_packet::build::{Frame, Ip4, Udp};
    use mmb_packet::parse;

    use super::*;

    #[test]
    fn a_train_has_one_flow_and_port_and_is_steady() {
        let table = Table::new(10, 0, 1).expect("memory");
        let mut lookup = VectorLookup::new();
        lookup.begin();
        let ports = [(1, 0), (1, 0), (1, 0), (1, 4), (2, 4), (2, 4)];
        for (at, (source, in_port)) in ports.into_iter().enumerate() {
            let (frame, mut meta) = (
                Frame::new(Ip4::new([10, 0, 0, 1], [192, 0, 2, 1]), Udp::new(source, 53)).build(),
                Meta::default(),
            );
            parse(&frame, frame.len(), &mut meta).expect("a frame");
            lookup.push(&table, at, (&frame, &meta), (in_port, 10 + at as u32));
        }
        lookup.end(ports.len());
        lookup.keys.find_candidates(&table);
        let trains = |n: usize| {
            let (mut all, mut at) = (Vec::new(), 0);
            while at < n {
                let Train { end, packets, summary } = lookup.train::<false>(at, n);
                all.push((end, packets, summary.bytes, summary.in_port));
                at = end;
            }
            all
        };
        assert_eq!(trains(6), [(3, 3, 33, 0), (4, 1, 13, 4), (6, 2, 29, 4)]);
        assert_eq!(trains(2), [(2, 2, 21, 0)], "packets behind the vector do not count");
        lookup.summaries[1].flags |= PacketSummary::LOOPED;
        let ends: Vec<_> = [0, 1, 2].map(|at| lookup.train::<false>(at, 6).end).into();
        assert_eq!(ends, [1, 2, 3]);
    }

    #[test]
    fn a_token_stands_for_one_vector() {
        let table = Table::new(10, 0, 1).expect("memory");
        let mut lookup = VectorLookup::new();
        let prefetch = |lookup: &mut VectorLookup, n: usize| {
            lookup.begin();
            (0..n).for_each(|at| lookup.push(&table, at, (&[], &Meta::default()), (0, 60)));
            lookup.end(n)
        };
        let token = prefetch(&mut lookup, 3);
        assert!(lookup.is_current(&token, 3));
        assert!(!lookup.is_current(&token, 2) && !lookup.is_current(&token, 4), "other packets");
        let newer = prefetch(&mut lookup, 3);
        assert!(!lookup.is_current(&token, 3) && lookup.is_current(&newer, 3), "a newer vector");
    }
}
