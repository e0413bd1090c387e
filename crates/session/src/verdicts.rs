//! The short way's loop: what becomes of packets whose session has been guessed.
//!
//! Theory of operation. Whether a guess is right is seen here, where the half is looked at anyway. One that is wrong ends the
//! loop, is corrected with all of the table at hand, and the loop goes on with that packet: so rarely that a loop without that
//! branch is worth more. The loop is made twice, once for vectors of nothing but IPv4 keys.

use std::hint::select_unpredictable;

use mmb_flow::{Flow, flow_flags, later_ack, translate_ip4, translate_ip4_common};
use mmb_packet::{StageWord, prefetch};
use mmb_policy::VECTOR;

use crate::engine::Sessions;
use crate::gist::Gist;
use crate::hops::{is_hop, look};
use crate::hot::AHEAD;
use crate::{Environment, Next, Packets};

/// How many packets ahead of the one at work the nearest cache is told of its half. At a vector's end it is told of the first ones'.
const HALVES_AHEAD: usize = 8;

/// What says whether it is the session that translates, and how.
const TRANSLATED: u8 = flow_flags::XLAT4 | flow_flags::CHAINED | flow_flags::CHAIN_TRANSLATES;

/// Whether a packet of this half, of IPv4, can be counted with the half alone; see [`crate::owed`].
#[inline(always)]
fn is_noted(half: &Flow, gist: &Gist, note: u32) -> bool {
    (half.opaque4()[0] == note)
        & (half.flags & (flow_flags::SETTLED | flow_flags::XLAT_SLOW) == flow_flags::SETTLED)
        & (gist.says & (Gist::UNSTEADY | Gist::LOOPED) == 0)
}

impl Sessions {
    /// Finishes the packets that need no more than to be counted, and translated if that is simple, and says how many passed, and how
    /// many were sent on. The positions of those that the short way has more to say about are put into `rare`. `TAILED`: as [`mmb_flow::BatchLookup::has_ip6_keys`].
    #[inline(always)]
    pub(crate) fn verdicts<const TAILED: bool>(
        &mut self,
        now: u32,
        host: &impl Environment,
        packets: &mut impl Packets,
        next: &mut [Next],
        rare: &mut Positions,
    ) -> (usize, usize) {
        let (mut from, mut passed, mut forwarded) = (0, 0, 0);
        loop {
            let (stopped, more, sent) = self.verdicts_from::<TAILED>(from, now, host, packets, next, rare);
            (passed, forwarded) = (passed + more, forwarded + sent);
            if stopped >= next.len() {
                return (passed, forwarded);
            }
            // The guess was wrong. What has been found now is looked at next.
            let Sessions { lookups, table, .. } = self;
            lookups.resolve(table, stopped);
            from = stopped;
        }
    }

    /// The same from a position on, up to one whose session was not guessed right, which is said first.
    #[inline(always)]
    fn verdicts_from<const TAILED: bool>(
        &mut self,
        from: usize,
        now: u32,
        host: &impl Environment,
        packets: &mut impl Packets,
        next: &mut [Next],
        rare: &mut Positions,
    ) -> (usize, usize, usize) {
        let Sessions {
            table,
            lookups,
            gists,
            decisions,
            owed,
            notes,
            next_hop_misses,
            per_packet,
            removals,
            asked,
            ..
        } = self;
        let keeps = decisions.are_far(table.len() as usize);
        let halves = table.flows_mut();
        let (mut passed, mut forwarded, forwards) = (0, 0, packets.can_forward());
        for (at, next) in next.iter_mut().enumerate().take(VECTOR).skip(from) {
            let (found, gist) = (lookups.candidate(at), &gists[at % VECTOR]);
            if let Some(coming) = halves.get(lookups.candidate(at + HALVES_AHEAD).0 as usize) {
                prefetch::read(coming);
            }
            *next = Next::SlowPath;
            let half = match halves.get_mut(found.0 as usize) {
                Some(half) if lookups.is_match::<TAILED>(at, half) => half,
                _ if found.is_some() => return (at, passed, forwarded),
                _ => continue,
            };
            let note = notes.stamp(gist.in_port);
            if (!TAILED || half.is_ip4()) && is_noted(half, gist, note) {
                if half.opaque4()[1] == 0 {
                    owed.owe(found, half);
                }
            } else {
                if half.flags & flow_flags::SETTLED == 0 || gist.says & Gist::LOOPED != 0 {
                    rare.push(at);
                    continue;
                }
                if gist.says & Gist::UNSTEADY != 0 {
                    continue;
                }
                let stamp = decisions.stamp(gist.in_port);
                if *per_packet {
                    if decisions.is_current(half.decision(), stamp) {
                        let (_, meta) = packets.head_and_meta(at);
                        // The second one tells whether the session may have ended meanwhile.
                        (meta.session, meta.stage) = (found.0, StageWord::from_removals(*removals));
                        *next = Next::PerPacketRules;
                    }
                    continue;
                }
                *asked |= keeps;
                let Some(says) = look(half, decisions, gist, (stamp, note, keeps)) else { continue };
                if says != 0 || half.flags & flow_flags::XLAT_SLOW != 0 {
                    rare.push(at);
                    continue;
                }
            }
            half.count(1, gist.bytes);
            half.last_seen = now;
            half.ack =
                select_unpredictable(gist.says & Gist::ACK != 0, later_ack(half.ack, gist.ack), half.ack);
            *next = Next::Pass;
            passed += 1;
            if forwards {
                packets.prefetch_forward(at + AHEAD);
            }
            if half.flags & TRANSLATED == flow_flags::XLAT4 && gist.l4 != 0 {
                if !forwards {
                    packets.prefetch_bytes(at + AHEAD);
                }
                let is_udp = gist.says & Gist::UDP != 0;
                translate_ip4_common(&half.xlat4(), packets.head_mut(at), gist.l4.into(), is_udp);
            } else if half.flags & (flow_flags::XLAT4 | flow_flags::CHAINED) != 0 {
                packets.prefetch(at + AHEAD);
                let (head, meta) = packets.head_and_meta(at);
                if half.flags & (flow_flags::XLAT4 | flow_flags::CHAIN_TRANSLATES) == flow_flags::XLAT4 {
                    translate_ip4(&half.xlat4(), head, meta);
                }
                if half.flags & flow_flags::CHAINED != 0 {
                    (meta.session, meta.edits_len) = (found.0, 0);
                    meta.out_port = host.out_port(gist.in_port);
                    *next = Next::Chain;
                    passed -= 1;
                    continue;
                }
            }
            if !forwards {
                continue;
            }
            if is_hop(half.next_hop()) {
                if packets.forward(at, half.next_hop()) {
                    *next = Next::Forwarded;
                    (passed, forwarded) = (passed - 1, forwarded + 1);
                }
            } else if half.next_hop() == 0 && half.is_ip4() {
                next_hop_misses.push(at);
            }
        }
        (next.len(), passed, forwarded)
    }
}

/// Positions in a vector.
#[derive(Debug)]
pub(crate) struct Positions {
    n: usize,
    at: [u8; VECTOR],
}

const _: () = assert!(VECTOR <= 256, "positions are bytes");

impl Default for Positions {
    fn default() -> Self {
        Positions { n: 0, at: [0; VECTOR] }
    }
}

impl Positions {
    #[inline(always)]
    fn push(&mut self, at: usize) {
        if let Some(place) = self.at.get_mut(self.n) {
            *place = at as u8;
            self.n += 1;
        }
    }

    pub fn clear(&mut self) {
        self.n = 0;
    }

    pub fn get(&self) -> &[u8] {
        self.at.get(..self.n).unwrap_or(&[])
    }
}
