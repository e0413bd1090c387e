//! Prefetch of a vector whose packets are recognized by count and ends.

use mmb_packet::{Meta, ParsedHeaders};
use mmb_policy::VECTOR;

use crate::sessions::Sessions;
use crate::{Environment, Next, NextSet, Packets};

impl Sessions {
    /// Begins a vector of one version of IP.
    #[inline(always)]
    pub fn begin_vector(&mut self, version: u8) {
        self.lookup.version = Some(version);
        self.begin_prefetch();
    }

    /// Prefetches the session of a packet of any kind.
    #[inline(always)]
    pub fn take_in(&mut self, at: usize, head: &[u8], meta: &Meta, in_port: u16, bytes: u32) {
        self.prefetch_any(at, head, meta, in_port, bytes);
    }

    /// Prefetches the session of an IPv4 packet.
    #[inline(always)]
    pub fn take_in4(
        &mut self,
        at: usize,
        headers: &ParsedHeaders<8>,
        nic_hash: Option<u32>,
        in_port: u16,
        bytes: u32,
    ) {
        self.prefetch(at, headers, nic_hash, in_port, bytes);
    }

    /// Prefetches the session of an IPv6 packet.
    #[inline(always)]
    pub fn take_in6(
        &mut self,
        at: usize,
        headers: &ParsedHeaders<32>,
        nic_hash: Option<u32>,
        in_port: u16,
        bytes: u32,
    ) {
        self.prefetch(at, headers, nic_hash, in_port, bytes);
    }

    /// Ends a vector.
    #[inline(always)]
    pub fn are_in(&mut self, n: usize, ends: [usize; 2]) {
        let token = self.end_prefetch(n);
        self.lookup.ahead = Some((token, ends));
    }

    /// Returns the version of IP of the last vector if it was prefetched.
    #[inline(always)]
    pub fn version(&self) -> Option<u8> {
        self.lookup.version
    }

    /// Looks up a vector, as [`Sessions::lookup_prefetched`].
    pub fn lookup(
        &mut self,
        now: u32,
        env: &impl Environment,
        packets: &mut impl Packets,
        edits: &mut Vec<u32>,
        next: &mut [Next; VECTOR],
    ) -> NextSet {
        let n = packets.len().min(VECTOR);
        let token = self.lookup.ahead.take().filter(|(token, ends)| {
            n > 0 && token.len() == n && *ends == [packets.packet_addr(0), packets.packet_addr(n - 1)]
        });
        if token.is_none() {
            self.lookup.version = None;
        }
        self.lookup_prefetched(token.map(|(token, _)| token), now, env, packets, edits, next)
    }
}
