//! Packets of settled sessions that rules have still to be asked about: those rules that look at each packet.

use mmb_flow::{FlowRef, flow_flags, parse_key};
use mmb_packet::DropReason;
use mmb_policy::{Hit, VECTOR};

use crate::engine::Sessions;
use crate::gist::steady;
use crate::hot::edit_from;
use crate::{Environment, Next, NextSet, Packets};

impl Sessions {
    /// Decides about packets that [`Sessions::lookup`] called [`Next::PerPacketRules`], and finishes them as it would have
    /// done. `hits` are the rules of [`mmb_policy::Policy::per_packet`] that match them, in ascending order of positions
    /// in this vector. Some packets may come out as [`Next::SlowPath`].
    pub fn process_per_packet(
        &mut self,
        now: u32,
        host: &impl Environment,
        packets: &mut impl Packets,
        hits: &[Hit],
        edits: &mut Vec<u32>,
        next: &mut [Next; VECTOR],
    ) -> NextSet {
        let mut tally = NextSet::default();
        let mut rest = hits;
        for (at, next) in next.iter_mut().enumerate().take(packets.len()) {
            let end = rest.iter().position(|hit| usize::from(hit.pkt) != at).unwrap_or(rest.len());
            let (mine, others) = rest.split_at(end);
            rest = others;
            *next = self.one(now, host, packets, at, mine, edits);
            tally.add(*next);
        }
        tally
    }

    fn one(
        &mut self,
        now: u32,
        host: &impl Environment,
        packets: &mut impl Packets,
        at: usize,
        hits: &[Hit],
        edits: &mut Vec<u32>,
    ) -> Next {
        let (in_port, bytes) = (packets.in_port(at), packets.bytes(at));
        let (head, meta) = packets.head_and_meta(at);
        if !meta.stage.is_removals(self.removals) {
            meta.session = parse_key(head, meta).map_or(FlowRef::NONE, |key| self.table.find(&key)).0;
        }
        let found = FlowRef(meta.session);
        if !found.is_some() {
            return Next::SlowPath;
        }
        let half = self.table.flow(found);
        let (number, settled) = (half.decision(), half.flags & flow_flags::SETTLED != 0);
        let chained = half.flags & flow_flags::CHAINED != 0;
        let stamp = self.decisions.stamp(in_port);
        let Some(ack) = steady(head, meta).filter(|_| settled && self.decisions.is_current(number, stamp))
        else {
            return Next::SlowPath;
        };
        let rules = self.table.session(found.session()).rule_list;
        let joins =
            |hit: &Hit| host.policy().rule_info(hit.slot).stateful && !self.rules.has(rules, hit.slot);
        if hits.iter().any(joins) {
            return Next::SlowPath;
        }
        let first = edits.len();
        if self.judge(host, number, hits, bytes, edits) {
            meta.drop_reason = DropReason::Rule as u8;
            return Next::Drop;
        }
        if let Err(reason) = self.forward(now, found, head, meta, bytes, ack) {
            edits.truncate(first);
            meta.drop_reason = reason as u8;
            return Next::Drop;
        }
        meta.out_port = host.out_port(in_port);
        let next = edit_from(first, meta, edits);
        if chained { Next::Chain } else { next }
    }

    /// Whether a packet is dropped, by the decision with this number and the rules that match besides. If not, edits are
    /// appended. Counts all the rules.
    pub(crate) fn judge(
        &mut self,
        host: &impl Environment,
        number: u32,
        hits: &[Hit],
        bytes: u32,
        edits: &mut Vec<u32>,
    ) -> bool {
        let Sessions { decisions, random, nothing, .. } = self;
        let known = decisions.full(number).unwrap_or(nothing);
        let more = hits.iter().map(|hit| hit.slot);
        let count = &mut |slot| host.count(slot, 1, u64::from(bytes));
        host.policy().decide_combined(known, more, edits, &mut || random.next(), count)
    }
}
