//! Lookup: the sessions of a vector of packets.
//!
//! Theory of operation. A vector is looked up in passes, each of which waits for memory once for all packets:
//! keys and buckets, flows, decisions. The first pass can be made earlier, while headers are parsed and in
//! the cache: [`Sessions::begin_prefetch`], then [`Sessions::prefetch`] for each packet, then
//! [`Sessions::end_prefetch`], which returns a [`PrefetchToken`]. The token stands for the vector.
//! [`Sessions::lookup`] takes it and omits the first pass.

pub(crate) mod summary;
pub(crate) mod vector;

use mmb_flow::{BatchLookup, FlowRef};
use mmb_packet::{Meta, PlainHeaders};
use mmb_policy::VECTOR;

use crate::established::positions::Positions;
use crate::established::process::VectorContext;
use crate::sessions::Sessions;
use crate::{Environment, Next, NextSet, Packets};
pub use vector::PrefetchToken;

impl Sessions {
    /// Begins the prefetch of a vector. Earlier tokens become invalid.
    #[inline(always)]
    pub fn begin_prefetch(&mut self) {
        self.lookup.begin();
    }

    /// Prefetches the session of the packet at a position, by its parsed headers. `nic_hash`: the RSS hash of
    /// the network card; `bytes`: the length of the frame.
    #[inline(always)]
    pub fn prefetch<H: PlainHeaders>(
        &mut self,
        at: usize,
        headers: &H,
        nic_hash: Option<u32>,
        in_port: u16,
        bytes: u32,
    ) {
        self.lookup.push_parsed(&self.table, at, headers, nic_hash, (in_port, bytes));
    }

    /// Prefetches the session of a packet of any kind, by its metadata.
    #[inline(always)]
    pub fn prefetch_any(&mut self, at: usize, head: &[u8], meta: &Meta, in_port: u16, bytes: u32) {
        self.lookup.push(&self.table, at, (head, meta), (in_port, bytes));
    }

    /// Ends the prefetch of a vector of `n` packets.
    #[inline(always)]
    pub fn end_prefetch(&mut self, n: usize) -> PrefetchToken {
        self.lookup.end(n)
    }

    /// Finds the session of each packet, and finishes the packets that need nothing else: `next[at]` is the
    /// outcome of the packet at `at`. Packets with [`Next::PerPacketRules`] and [`Next::SlowPath`] are left
    /// to be finished, and are unchanged. The edits of rules are appended to `edits`. `now` is in
    /// milliseconds and wraps. `token`: these packets were prefetched, in this order.
    pub fn lookup(
        &mut self,
        token: Option<PrefetchToken>,
        now: u32,
        env: &impl Environment,
        packets: &mut impl Packets,
        edits: &mut Vec<u32>,
        next: &mut [Next; VECTOR],
    ) -> NextSet {
        let n = packets.len().min(VECTOR);
        let Sessions { lookup, table, cache, .. } = self;
        if n == 0 || !token.is_some_and(|token| lookup.is_current(&token, n)) {
            lookup.fill(table, n, packets);
        }
        lookup.keys.find_candidates(table);
        lookup.keys.wait_for_flows(table);
        if std::mem::take(&mut cache.prefetch_decisions) {
            cache.prefetch_decisions(table, lookup.keys.results());
        }
        let mut uncommon = Positions::default();
        cache.next_hop_misses.clear();
        let context = &VectorContext { now, env, removals: self.lifetime.removals };
        let outcomes = &mut next[..n];
        let totals = match lookup.keys.has_ip6_keys() {
            false => cache.process_established::<false, _, _>(
                table,
                lookup,
                context,
                packets,
                outcomes,
                &mut uncommon,
            ),
            true => cache.process_established::<true, _, _>(
                table,
                lookup,
                context,
                packets,
                outcomes,
                &mut uncommon,
            ),
        };
        lookup.keys.update_cache();
        let mut set = NextSet::default();
        for (count, next) in [(totals.passed, Next::Pass), (totals.forwarded, Next::Forwarded)] {
            if count == n {
                set.insert(next);
                return set;
            }
        }
        self.process_all_uncommon((now, env), packets, edits, next, &uncommon);
        next[..n].iter().for_each(|&next| set.insert(next));
        if set.contains(Next::SlowPath) {
            self.prefetch_replies(&next[..n]);
        }
        if set.contains(Next::Chain) {
            self.prefetch_scratchpads(&next[..n]);
        }
        set
    }

    /// Finishes the packets at these positions.
    #[inline]
    fn process_all_uncommon(
        &mut self,
        (now, env): (u32, &impl Environment),
        packets: &mut impl Packets,
        edits: &mut Vec<u32>,
        next: &mut [Next; VECTOR],
        uncommon: &Positions,
    ) {
        for &at in uncommon.get() {
            let at = usize::from(at);
            let (Some(&flow_ref), Some(&summary), Some(next)) =
                (self.lookup.keys.results().get(at), self.lookup.summaries.get(at), next.get_mut(at))
            else {
                continue;
            };
            let packet = packets.head_and_meta(at);
            *next = self.established_path().process_uncommon((now, env), (flow_ref, &summary), packet, edits);
        }
    }

    /// Prefetches what new sessions will need: the buckets of their replies, and the mappings of their
    /// sources.
    fn prefetch_replies(&self, next: &[Next]) {
        let ahead = self.nat.last_pool.and_then(|pool| self.nat.pools.prefetcher(pool));
        let keys: &BatchLookup = &self.lookup.keys;
        let all = next.iter().zip(keys.results()).enumerate();
        let new = all.filter(|(_, (next, flow))| **next == Next::SlowPath && **flow == FlowRef::NONE);
        self.table.prefetch_replies(keys, new.map(|(at, _)| at), |key| {
            ahead.as_ref().and_then(|nat| nat.predict_source(key))
        });
    }

    /// Prefetches the scratchpads of sessions that go through chains.
    fn prefetch_scratchpads(&self, next: &[Next]) {
        for (&flow, next) in self.lookup.keys.results().iter().zip(next) {
            if *next == Next::Chain {
                self.table.prefetch_scratch(flow.session());
            }
        }
    }

    /// Returns the positions of packets of the last vector whose flows could cache a next hop and have none.
    /// Empty if packets cannot be routed ([`Packets::can_forward`]).
    pub fn next_hop_misses(&self) -> &[u8] {
        self.cache.next_hop_misses.get()
    }

    /// Caches the next hop of the flow of the packet at a position of the last vector, until routes change.
    /// `None`: each packet of the flow needs a lookup.
    pub fn set_next_hop(&mut self, at: usize, hop: Option<u32>) {
        if let Some(&flow) = self.lookup.keys.results().get(at) {
            self.cache.set_next_hop(&mut self.table, flow, hop);
        }
    }
}
