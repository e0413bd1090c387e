//! The packet path's calls, in the order in which a packet meets them.

use std::net::IpAddr;

use mmb_flow::HashedKey;
use mmb_nf::{Emissions, HeldEvent};
use mmb_packet::{Meta, PacketBuf, PacketFlags, PlainHeaders};
use mmb_policy::{Hit, VECTOR};

use crate::chains::process::{process_chain, process_released};
use crate::established::per_packet::process_per_packet;
use crate::established::positions::Positions;
use crate::established::process::{Totals, VectorContext};
use crate::lookup::foresee_openings;
use crate::sessions::Sessions;
use crate::shared::SourceCount;
use crate::slow_path::packet::SlowPacket;
use crate::store::SessionStore;
use crate::translation::routed::{effective_destination, untranslate};
use crate::{ChainBatch, Environment, Next, NextSet, Packets, PrefetchToken, ReleasedFragment};

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
        self.lookup.push_parsed(&self.store.table, at, headers, nic_hash, (in_port, bytes));
    }

    /// Prefetches the session of a packet of any kind, by its metadata.
    #[inline(always)]
    pub fn prefetch_any(&mut self, at: usize, head: &[u8], meta: &Meta, in_port: u16, bytes: u32) {
        self.lookup.push(&self.store.table, at, (head, meta), (in_port, bytes));
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
        let Sessions { lookup, store, .. } = self;
        let SessionStore { table, cache, lifetime, chains, .. } = store;
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
        cache.stale.clear();
        let (removals, scratchpad_bytes) = (lifetime.removals, chains.scratchpad_bytes);
        let context = &VectorContext { now, env, removals, scratchpad_bytes };
        let outcomes = &mut next[..n];
        macro_rules! process_established {
            ($ip6:literal, $forward:literal) => {
                cache.process_established::<$ip6, $forward, _, _>(
                    table,
                    lookup,
                    context,
                    packets,
                    outcomes,
                    &mut uncommon,
                )
            };
        }
        let totals = match (lookup.keys.has_ip6_keys(), packets.can_forward()) {
            (false, false) => process_established!(false, false),
            (false, true) => process_established!(false, true),
            (true, false) => process_established!(true, false),
            (true, true) => process_established!(true, true),
        };
        lookup.keys.update_cache();
        let Totals { passed, forwarded, chained } = totals;
        for (count, next) in [(passed, Next::Pass), (forwarded, Next::Forwarded), (chained, Next::Chain)] {
            if count == n {
                return NextSet::one(next);
            }
        }
        self.process_all_uncommon((now, env), packets, edits, next, &uncommon);
        if !self.store.cache.stale.get().is_empty() {
            self.process_all_stale((now, env), packets, edits, next);
        }
        let mut set = NextSet::default();
        next[..n].iter().for_each(|&next| set.insert(next));
        if set.contains(Next::SlowPath) {
            foresee_openings(&mut self.lookup, &self.store, self.slow_path.opener.last_pool, &next[..n]);
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
            *next = self.store.established_path().process_uncommon(
                (now, env),
                (flow_ref, &summary),
                packet,
                edits,
            );
            if *next == Next::Chain {
                self.store.prefetch_scratchpad(flow_ref);
            }
        }
    }

    /// Finishes the packets whose decisions are of an earlier generation, if these hold.
    #[cold]
    fn process_all_stale(
        &mut self,
        (now, env): (u32, &impl Environment),
        packets: &mut impl Packets,
        edits: &mut Vec<u32>,
        next: &mut [Next; VECTOR],
    ) {
        let stale = std::mem::take(&mut self.store.cache.stale);
        for &at in stale.get() {
            let at = usize::from(at);
            let (Some(&flow), Some(&summary), Some(next)) =
                (self.lookup.keys.results().get(at), self.lookup.summaries.get(at), next.get_mut(at))
            else {
                continue;
            };
            let (packet, mut path) = (packets.head_and_meta(at), self.store.established_path());
            *next = path.process_stale((now, env), (flow, &summary), packet, edits);
        }
    }

    /// Returns the positions of packets of the last vector whose flows could cache a next hop and have none.
    /// Empty if packets cannot be routed ([`Packets::can_forward`]).
    pub fn next_hop_misses(&self) -> &[u8] {
        self.store.cache.next_hop_misses.get()
    }

    /// Caches the next hop of the flow of the packet at a position of the last vector, until routes change.
    /// `None`: each packet of the flow needs a lookup.
    pub fn set_next_hop(&mut self, at: usize, hop: Option<u32>) {
        if let Some(&flow) = self.lookup.keys.results().get(at) {
            self.store.cache.set_next_hop(&mut self.store.table, flow, hop);
        }
    }

    /// Finishes packets that [`Sessions::lookup`] returned as [`Next::PerPacketRules`]. `hits` are the rules
    /// of [`mmb_policy::Policy::per_packet`] that match them, in ascending order of positions in this vector.
    /// Some packets may come out as [`Next::SlowPath`].
    pub fn process_per_packet(
        &mut self,
        now: u32,
        env: &impl Environment,
        packets: &mut impl Packets,
        hits: &[Hit],
        edits: &mut Vec<u32>,
        next: &mut [Next; VECTOR],
    ) -> NextSet {
        process_per_packet(&mut self.store, now, env, packets, hits, edits, next)
    }

    /// Finishes a packet that [`Sessions::lookup`] or [`Sessions::process_per_packet`] returned as
    /// [`Next::SlowPath`]. `hits` are all rules that match it. `meta` is a copy of its metadata, which the
    /// caller writes back. Never returns [`Next::PerPacketRules`] or [`Next::SlowPath`].
    #[expect(clippy::too_many_arguments, reason = "a packet and its surroundings")]
    pub fn process_slow_path<E: Environment, P: PacketBuf>(
        &mut self,
        now: u32,
        env: &E,
        packet: &mut P,
        meta: &mut Meta,
        in_port: u16,
        hits: &[Hit],
        edits: &mut Vec<u32>,
    ) -> Next {
        self.store.lifetime.now = now;
        // Rules were applied to a looped packet when its sender sent it.
        let hits = if meta.flags.contains(PacketFlags::LOOPED) { &[] } else { hits };
        let first_edit = edits.len();
        let hashed_key = HashedKey::default();
        let (forecast, source) = (self.lookup.forecasts.next(), SourceCount::default());
        let mut pkt = SlowPacket {
            now,
            env,
            packet,
            meta,
            in_port,
            hits,
            edits,
            first_edit,
            hashed_key,
            forecast,
            was_foreseen: false,
            source,
        };
        let next = self.slow_path.process(&mut self.store, &mut pkt);
        if pkt.was_foreseen {
            self.lookup.forecasts.advance();
            if let Some(next) = self.lookup.forecasts.next() {
                self.store.prefetch_opening(next);
            }
        }
        next
    }

    /// Removes and returns the next fragment that is no longer held. Must be called after
    /// [`Sessions::process_slow_path`] and [`Sessions::tick`] until it returns `None`.
    pub fn next_released_fragment(&mut self) -> Option<ReleasedFragment> {
        let released = self.slow_path.fragments.pop_released()?;
        Some(match released.target {
            Some(_) => ReleasedFragment::Retry(released.ticket.0),
            None => ReleasedFragment::TimedOut(released.ticket.0),
        })
    }

    /// Takes packets with outcome [`Next::Chain`] through the chains of their sessions.
    /// Edits of rules have been made (`meta.edits_len` still tells whether there were any). The outcomes are
    /// [`Next::Send`], [`Next::Drop`], [`Next::Relookup`], [`Next::HandOff`] or [`Next::Hold`]. The frames
    /// that functions send are in [`Sessions::emissions`].
    ///
    /// A packet with [`Next::Hold`] is kept under the ticket in `meta.stage` until
    /// [`Sessions::next_held_event`] returns that ticket. These tickets and those of fragments are apart.
    pub fn process_chain(
        &mut self,
        now: u32,
        env: &impl Environment,
        packets: &mut ChainBatch<'_>,
        next: &mut [Next; VECTOR],
    ) -> NextSet {
        process_chain(&mut self.store, now, env, packets, next)
    }

    /// Takes released packets on through the rest of their chains, in the order of
    /// [`Sessions::next_held_event`]. `meta` is as [`Sessions::process_chain`] left it. Outcomes are those of
    /// that method.
    pub fn process_released(
        &mut self,
        now: u32,
        env: &impl Environment,
        packets: &mut ChainBatch<'_>,
        next: &mut [Next; VECTOR],
    ) -> NextSet {
        process_released(&mut self.store, now, env, packets, next)
    }

    /// Returns the next packet that functions hold no longer. Released packets are given to
    /// [`Sessions::process_released`] before any other packet is processed.
    pub fn next_held_event(&mut self) -> Option<HeldEvent> {
        self.store.chains.runner.next_held_event()
    }

    /// Whether functions run in processes of their own.
    #[inline(always)]
    pub fn has_processes(&self) -> bool {
        self.store.chains.runner.has_processes()
    }

    /// Takes packets back from the processes of functions: they become events
    /// ([`Sessions::next_held_event`]). To be called between two vectors.
    pub fn poll_processes(&mut self) {
        self.store.chains.runner.poll_processes();
    }

    /// Whether packets, or events of sessions, are in processes, so that [`Sessions::poll_processes`] may
    /// find something soon.
    pub fn has_packets_in_processes(&self) -> bool {
        self.has_processes() && self.store.chains.runner.has_packets_in_processes()
    }

    /// Whether [`Sessions::next_held_event`] returns an event.
    #[inline(always)]
    pub fn has_held_events(&self) -> bool {
        self.store.chains.runner.has_held_events()
    }

    /// Returns the number above all tickets of packets that functions hold. It grows only in
    /// [`Sessions::adopt`].
    pub fn held_capacity(&self) -> usize {
        self.store.chains.runner.held().1
    }

    /// Returns the frames that functions have made, to be sent and cleared by the caller. To be called after
    /// anything that may open or end sessions. A frame for a port that does not exist is discarded.
    pub fn emissions(&mut self) -> &mut Emissions {
        self.store.chains.runner.emissions()
    }

    /// Returns the destination of a packet after translation, for a route lookup before rules are applied.
    /// `head` and `meta` are as for [`Sessions::lookup`]; nothing is changed. `None`: the destination address
    /// of the packet itself.
    ///
    /// The packet's own destination is returned, too, if a rule gives a new destination (`map`, `lb`) to the
    /// session that the packet opens: rules that read `out` are applied first and see the route to the
    /// original destination. The same holds for a packet from inside to another host inside by its external
    /// address, if another worker owns that host's sessions.
    pub fn effective_destination(&self, env: &impl Environment, head: &[u8], meta: &Meta) -> Option<IpAddr> {
        effective_destination(&self.store, &self.slow_path.fragments, env, head, meta)
    }

    /// Restores a packet that this worker has translated: addresses, ports or identifier, sequence numbers,
    /// checksums. Edits of rules remain, and so does a fixed `ip-id`. Returns `false`, with the packet
    /// unchanged, if the packet belongs to no translated session of this worker. Later fragments and ICMP
    /// errors are not restored: no error is sent about them (RFC 1122, 3.2.2).
    ///
    /// A packet from inside to another host inside, whose session another worker owns, becomes what this
    /// worker was given.
    pub fn untranslate(&self, head: &mut [u8], meta: &Meta) -> bool {
        untranslate(&self.store, head, meta)
    }
}
