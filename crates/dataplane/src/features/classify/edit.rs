//! Applies the edits of matching rules to a packet.

use mmb_dpdk::Packet;
use mmb_lang::ErrorPolicy;
use mmb_packet::DropReason;
use mmb_policy::EditLimits;

use crate::engine::counters::WorkerCounters;
use crate::engine::snapshot::Snapshot;

/// Applies those of a worker's `edits` that a packet's metadata names. When they fail, the configuration says
/// whether the packet is forwarded as it came, and counted, or dropped. Returns false if it is dropped, for
/// the reason in its metadata.
#[inline]
pub(crate) fn apply_edits(
    snapshot: &Snapshot,
    edits: &[u32],
    counters: &WorkerCounters,
    packet: &mut Packet,
) -> bool {
    // A copy, since the packet is borrowed as a whole while its length may change.
    let mut meta = *packet.meta();
    let slots = edits.get(meta.edits()).unwrap_or(&[]);
    let link = meta.l3_off;
    let limits = EditLimits { frame_max: |port| snapshot.frame_max(port, link) };
    match snapshot.policy.edit(slots, packet, &mut meta, limits) {
        Ok(()) => {
            *packet.meta_mut() = meta;
            true
        }
        Err(reason) => edits_failed(packet, reason, snapshot, counters),
    }
}

#[cold]
fn edits_failed(
    packet: &mut Packet,
    reason: DropReason,
    snapshot: &Snapshot,
    counters: &WorkerCounters,
) -> bool {
    match snapshot.on_error {
        ErrorPolicy::Forward => {
            counters.unedited.add(reason as u8, 1);
            true
        }
        ErrorPolicy::Drop => {
            packet.meta_mut().drop_reason = reason as u8;
            false
        }
    }
}
