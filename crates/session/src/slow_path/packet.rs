//! A packet on the slow path.

use mmb_flow::{FlowRef, HashedKey, Table, TrackInput};
use mmb_packet::{DropReason, Meta, PacketBuf, PacketFlags};
use mmb_policy::Hit;

use crate::chains::ChainState;
use crate::established::decisions::Decisions;
use crate::established::set_edits;
use crate::lookup::forecasts::OpeningForecast;
use crate::rules::attached::SessionRule;
use crate::shared::SourceCount;
use crate::{Environment, Next, tracking};

/// Where the first fragment of a datagram went. Later fragments follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FragmentTarget {
    /// To the session with this uid.
    Session(FlowRef, u32),
    /// It is an ICMP error about a packet of the session with this uid, and travels along this flow.
    Error(FlowRef, u32),
    /// To another worker.
    Worker(u16),
    /// Onward, without session.
    Stateless,
    /// It was dropped, by this rule if the reason is a rule.
    Dropped(DropReason, Option<SessionRule>),
}

/// A packet on the slow path, with its surroundings.
pub(crate) struct SlowPacket<'a, E, P> {
    pub now: u32,
    pub env: &'a E,
    pub packet: &'a mut P,
    pub meta: &'a mut Meta,
    pub in_port: u16,
    /// All rules that match.
    pub hits: &'a [Hit],
    pub edits: &'a mut Vec<u32>,
    /// Where the packet's edits begin in `edits`.
    pub first_edit: usize,
    /// The key, with its hash, of the last lookup.
    pub hashed_key: HashedKey,
    /// The forecast for the packet's key. Until the key is known: for the packet that is probably this one.
    pub forecast: Option<&'a OpeningForecast>,
    /// The forecast was for this packet.
    pub was_foreseen: bool,
    /// The sessions of the source, as they were counted last.
    pub source: SourceCount,
}

impl<E: Environment, P: PacketBuf> SlowPacket<'_, E, P> {
    /// Returns the length of the frame.
    pub fn bytes(&self) -> u32 {
        u32::try_from(self.packet.len()).unwrap_or(u32::MAX)
    }

    /// Drops the packet.
    pub fn drop(&mut self, reason: DropReason) -> Next {
        self.edits.truncate(self.first_edit);
        self.meta.drop_reason = reason as u8;
        Next::Drop
    }

    /// Sends the packet on to the other end of the wire or to routing, with its edits.
    pub fn pass(&mut self) -> Next {
        self.meta.out_port = self.env.out_port(self.in_port);
        set_edits(self.first_edit, self.meta, self.edits)
    }

    /// Whether a host inside has sent the packet, and NAT treats it as if it came from outside.
    pub fn is_looped(&self) -> bool {
        self.meta.flags.contains(PacketFlags::LOOPED)
    }

    /// Whether another worker has handed the packet off.
    pub fn is_handed(&self) -> bool {
        self.meta.flags.contains(PacketFlags::HANDED)
    }

    /// Whether the worker to which the packet was handed off has returned it.
    pub fn was_returned(&self) -> bool {
        self.meta.flags.intersects(PacketFlags::REFUSED | PacketFlags::ASTRAY)
    }

    /// Returns what the tracker sees of a packet of this flow.
    pub fn track_input(&self, table: &Table, chains: &ChainState, flow: FlowRef) -> TrackInput {
        tracking::input(table, chains, flow, self.packet.head(), self.meta)
    }

    /// Acquires the decision of the rules in these slots.
    pub fn acquire_decision(&self, decisions: &mut Decisions, slots: &[u32], stamp: u32) -> u32 {
        // No rules were matched against a looped packet: its decision must not remain valid. Only the slow
        // path answers packets that rules reject, and logs packets.
        let policy = self.env.policy();
        let rejects = policy.has_reject() && slots.iter().any(|&slot| policy.rule_info(slot).rejects);
        let logs = policy.has_log() && slots.iter().any(|&slot| policy.logs_each_packet(slot));
        let stamp = if self.is_looped() || rejects || logs { 0 } else { stamp };
        decisions.acquire(policy, stamp, slots)
    }

    /// Returns the slots of the stateful rules that match.
    pub fn stateful_slots(&self) -> impl Iterator<Item = u32> + '_ {
        let policy = self.env.policy();
        self.hits.iter().map(|hit| hit.slot).filter(move |&slot| policy.rule_info(slot).stateful)
    }
}
