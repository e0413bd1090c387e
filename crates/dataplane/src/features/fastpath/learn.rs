//! The hook of `port-tx`: the fast path learns from sampled packets that are about to be sent.

use mmb_dpdk::{Mempool, Packet};
use mmb_fastpath::{RefusalReason, TxContext};
use mmb_packet::parse;
use mmb_policy::Batch;
use mmb_route::Routes;

use crate::engine::snapshot::Snapshot;
use crate::engine::worker::Worker;
use crate::features::classify::matching::find_matches;

/// Passes sent packets to the fast path.
#[cold]
pub(crate) fn learn_from_tx(worker: &mut Worker, packets: &[&mut Packet]) {
    // The generation must be read before the ports' state.
    let generation = worker.fast_generation();
    let Worker { id, shared, snapshot, routing, fast, ports, rules, flows, .. } = worker;
    let (routes, (batch, frame, _)) = (&*routing.routes, rules.lookup_parts());
    let (host, counters) = (snapshot.for_worker(*id), &shared.workers[*id].counters.fast);
    let context = TxContext { generation, routes, host: &host, counters };
    for packet in packets {
        fast.learn_from_tx(packet, &context, &mut flows.sessions, |received, port| {
            match_rules((snapshot, routes), ports.pool.as_ref(), (batch, frame), received, port)
        });
        if !fast.has_samples() {
            return;
        }
    }
}

/// The slots of the rules that match a packet as it was received, each as often as it was counted.
fn match_rules(
    (snapshot, routes): (&Snapshot, &Routes),
    pool: Option<&Mempool>,
    (batch, frame): (&mut Batch, &mut Vec<u8>),
    received: &[u8],
    port: u16,
) -> Result<Vec<u32>, RefusalReason> {
    let mut copy = pool.and_then(|pool| pool.alloc_from(received)).ok_or(RefusalReason::Full)?;
    copy.set_port(port);
    let (data, meta) = copy.data_and_meta();
    parse(data, received.len(), meta).map_err(|_| RefusalReason::Otherwise)?;
    find_matches(snapshot.policy.classifier(), (snapshot, routes), batch, &mut [&mut copy], frame, |_| None);
    Ok(batch.hits.iter().map(|hit| hit.slot).collect())
}
