//! Rings by which workers give packets to each other.

use mmb_dpdk::{RingReceiver, RingSender, ring};

/// Packets that fit a ring.
pub(crate) const RING: usize = 4096;

/// The two rings into a worker; `R` is their sending or receiving end.
pub(crate) struct Inbox<R> {
    /// Parsed packets of flows that the worker owns.
    pub flows: R,
    /// Packets for ports on which the worker transmits.
    pub transmits: R,
}

/// Creates the rings of one worker.
pub(crate) fn create_inbox(
    worker: usize,
) -> Result<(Inbox<RingSender>, Inbox<RingReceiver>), mmb_dpdk::Error> {
    let (flows_in, flows_out) = ring(&format!("flows of worker {worker}"), RING)?;
    let (transmits_in, transmits_out) = ring(&format!("sends of worker {worker}"), RING)?;
    Ok((
        Inbox { flows: flows_in, transmits: transmits_in },
        Inbox { flows: flows_out, transmits: transmits_out },
    ))
}

/// What one worker knows of the other workers.
pub(crate) struct Handoff {
    /// Packets from other workers; none when there is one worker.
    pub inbox: Option<Inbox<RingReceiver>>,
    /// Workers among which software spreads flows: 1 when each worker receives its own flows only.
    pub spread: u32,
}

impl Handoff {
    /// A worker that receives its own flows only.
    pub fn none() -> Handoff {
        Handoff { inbox: None, spread: 1 }
    }

    /// The worker that owns a flow: the hash scaled to the number of workers, without a division.
    #[inline]
    pub fn owner(spread: u32, hash: u32) -> usize {
        ((u64::from(hash) * u64::from(spread)) >> 32) as usize
    }
}
