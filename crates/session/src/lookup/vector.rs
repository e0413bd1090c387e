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

impl PrefetchToken {
    /// Returns the number of packets in the vector.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Whether the vector is empty.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }
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
    use super::*;

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
