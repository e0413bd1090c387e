//! The entrance of the slow path.

use mmb_flow::{FlowRef, HashedKey, Key, KeyError, parse_key};
use mmb_packet::{DropReason, Meta, PacketBuf, flags};
use mmb_policy::Hit;

use super::packet::SlowPacket;
use crate::established::hand_off;
use crate::lifetime::EndReason;
use crate::sessions::Sessions;
use crate::{Environment, Next};

impl Sessions {
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
        self.lifetime.now = now;
        // Rules were applied to a looped packet when its sender sent it.
        let hits = if meta.flags & flags::LOOPED != 0 { &[] } else { hits };
        let first_edit = edits.len();
        let hashed_key = HashedKey::default();
        let mut pkt = SlowPacket { now, env, packet, meta, in_port, hits, edits, first_edit, hashed_key };
        self.process(&mut pkt)
    }

    /// Processes a packet by the kind of its key.
    pub(crate) fn process<E: Environment, P: PacketBuf>(&mut self, pkt: &mut SlowPacket<'_, E, P>) -> Next {
        match parse_key(pkt.packet.head(), pkt.meta) {
            Ok(key) => self.process_keyed(pkt, &key),
            Err(KeyError::FirstFragment(key)) => self.process_first_fragment(pkt, &key),
            Err(KeyError::LaterFragment) => self.process_later_fragment(pkt),
            Err(KeyError::IcmpError) if pkt.meta.flags & flags::FRAGMENT != 0 => {
                self.process_error_fragment(pkt)
            }
            Err(KeyError::IcmpError) => self.process_icmp_error(pkt),
            Err(KeyError::NotIp) => self.process_stateless(pkt),
        }
    }

    /// Processes a packet with a key.
    pub(crate) fn process_keyed<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
    ) -> Next {
        let (flow, hashed_key) = self.table.find_with_hash(key);
        pkt.hashed_key = hashed_key;
        pkt.meta.session = flow.0;
        if flow.is_some() {
            let id = flow.session();
            self.collect_session(pkt.now, id, pkt.env);
            if let Some(worker) = self.table.redirect_worker(flow) {
                if !pkt.was_returned() {
                    self.table.flow_mut(flow).last_seen = pkt.now;
                    return self.hand_off(pkt.meta, worker);
                }
                self.end(id, EndReason::Replaced, pkt.env);
            } else if self.deadline(id, pkt.now).is_none() {
                self.end(id, EndReason::Expired, pkt.env);
            } else if let Some(next) = self.process_existing(pkt, flow) {
                return next;
            }
            pkt.meta.session = FlowRef::NONE.0;
        }
        self.process_unknown(pkt, key)
    }

    /// Processes a packet that belongs to no session and opens none.
    pub(crate) fn process_stateless<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &mut SlowPacket<'_, E, P>,
    ) -> Next {
        if self.drops_stateless(pkt) {
            return pkt.drop(DropReason::Rule);
        }
        pkt.pass()
    }

    /// Applies the matching rules to a packet without session. Returns `true` if it is dropped.
    pub(crate) fn drops_stateless<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &mut SlowPacket<'_, E, P>,
    ) -> bool {
        let bytes = pkt.bytes();
        self.rules.drops_packet(&self.cache.decisions, 0, pkt.hits, (pkt.env, bytes), pkt.edits)
    }

    /// Gives a packet to another worker.
    pub(crate) fn hand_off(&mut self, meta: &mut Meta, worker: u16) -> Next {
        hand_off(&mut self.counters, meta, worker)
    }
}
