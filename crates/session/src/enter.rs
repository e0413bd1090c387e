//! A session is entered into the table, and gets its rules, its decision, its translation and its chain.

use mmb_flow::{
    Direction, Found, Half, InsertError, Key, MappingId, Seen, SessionId, Track, Xlat4, half_flags,
};
use mmb_nf::ChainId;
use mmb_packet::PacketBuf;

use crate::Host;
use crate::attached::Attached;
use crate::engine::{End, Sessions, session_flags};
use crate::numbers::Numbers;
use crate::open::as_nat_sees;
use crate::slow::Call;

/// Says how packets of a direction get from one key to another: simply, if no more than these `moves`.
fn translate_half(half: &mut Half, from: &Key, to: &Key, moves: bool) {
    match Xlat4::between(from, to).filter(|_| moves) {
        Some(xlat) => half.set_xlat4(&xlat),
        None => half.flags |= half_flags::XLAT_SLOW,
    }
}

/// A session to be.
pub(crate) struct Fresh {
    /// The key of its replies, if addresses or ports change.
    pub moved: Option<Key>,
    pub mapping: Option<MappingId>,
    pub track: Track,
    pub seen: Seen,
    pub acks: [u32; 2],
    pub flags: u8,
    pub mangle: Option<Numbers>,
    /// The chain that it goes through.
    pub chain: Option<ChainId>,
    /// It is translated in the chain.
    pub deferred: bool,
}

impl Sessions {
    /// Enters a session; the oldest half-open one goes if there is no room. The packet has been looked up, and `deciding`
    /// are the slots that decide about its direction, if they are known.
    pub(crate) fn enter<H: Host, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        key: &Key,
        fresh: &Fresh,
        list: &[Attached],
        deciding: Option<&[u32]>,
    ) -> Result<Found, InsertError> {
        let mut entered = self.table.insert_sought(&call.sought, fresh.moved.as_ref(), call.now);
        if entered == Err(InsertError::Full)
            && let Some(victim) = self.table.victim()
        {
            self.end(victim, End::Evicted, call.host);
            entered = self.table.insert_sought(&call.sought, fresh.moved.as_ref(), call.now);
        }
        let id = entered.inspect_err(|_| {
            if let Some(mapping) = fresh.mapping {
                let inbound = fresh.flags & session_flags::INBOUND != 0;
                let reverse = fresh.moved.filter(|_| !inbound);
                let held = reverse.map_or(*key, |reverse| as_nat_sees(key, &reverse.reversed()));
                self.nat.release(mapping, &held, call.now);
            }
        })?;
        self.counters.created += 1;
        self.furnish(call, id, key, fresh, list, deciding);
        Ok(Found::new(id, Direction::Forward))
    }

    /// Fills in what the table does not know of a new session.
    fn furnish<H: Host, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        id: SessionId,
        key: &Key,
        fresh: &Fresh,
        list: &[Attached],
        deciding: Option<&[u32]>,
    ) {
        let mut flags = fresh.flags;
        if call.is_looped() {
            // What comes back goes back to the inside, where the packet came from.
            flags |= session_flags::LOOP_REVERSE;
        }
        let rules = self.rules.take(list);
        let stamp = self.decisions.stamp(call.in_port);
        let decision = match deciding {
            Some(slots) => self.decide_by(call, slots, stamp),
            None => self.decide(call, list, stamp),
        };
        let common = self.table.common_mut(id);
        (common.rules, common.track, common.flags) = (rules, fresh.track, flags);
        common.mapping = fresh.mapping.map_or(u32::MAX, |mapping| mapping.0);
        common.in_port = [call.in_port, u16::MAX];
        if let Some(numbers) = fresh.mangle {
            self.set_mangle(id, numbers);
        }
        let first = Found::new(id, Direction::Forward).0 as usize;
        if let Some([there, back]) =
            self.table.halves_mut().get_mut(first..).and_then(<[Half]>::first_chunk_mut)
        {
            for (way, half) in [&mut *there, &mut *back].into_iter().enumerate() {
                half.ack = fresh.acks[way];
                half.flags |= if fresh.deferred { half_flags::DEFERRED } else { 0 };
                if fresh.seen.settled[way] && flags & session_flags::LOOPS[way] == 0 {
                    half.flags |= half_flags::SETTLED;
                }
            }
            there.set_decision(decision);
            there.flags |= half_flags::SEEN;
            if fresh.mangle.is_some() || fresh.moved.is_some() {
                let same = key.reversed();
                let reverse = fresh.moved.unwrap_or(same);
                let moves = fresh.mangle.is_none();
                if !moves || reverse != same {
                    translate_half(there, key, &reverse.reversed(), moves);
                    translate_half(back, &reverse, &same, moves);
                }
            }
        }
        let there = Found::new(id, Direction::Forward);
        if let Some(chain) = fresh.chain {
            self.join_chain(call, there, chain);
        }
        self.table.half_mut(there).count(1, call.bytes());
        self.table.arm(id, call.now.wrapping_add(fresh.seen.timeout));
        if !fresh.seen.embryonic {
            self.table.settle(id);
        }
    }
}
