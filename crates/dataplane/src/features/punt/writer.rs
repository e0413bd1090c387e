//! The thread that writes packets to the kernel's interfaces.
//!
//! Theory of operation. Each packet for the kernel costs a system call, in which the kernel processes the
//! packet to its end. That takes microseconds, so a worker with other packets does not do it: workers put
//! packets into a ring, and this thread writes them. A full ring drops packets. To wake the thread takes
//! about as long as to write one packet. So a worker that has nothing else to do writes a packet that comes
//! alone, if the thread sleeps ([`PuntQueue::is_idle`]).
//!
//! The thread loads the snapshot for each burst. A publisher waits until no burst uses the old one: an odd
//! number of [`PuntQueue::bursts`] means that the thread is in a burst. Both sides write before they read,
//! with a fence in between, so that one of them sees the other.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, fence};
use std::sync::{Arc, PoisonError};

use mmb_dpdk::{Burst, RingReceiver};
use mmb_packet::DropReason;

use super::queue::PuntQueue;
use crate::engine::config::PortId;
use crate::engine::shared::Shared;
use crate::engine::snapshot::Snapshot;
use crate::features::handoff::send::push;

/// Attempts without progress after which packets that an interface does not take are dropped.
const TRIES: u32 = 4;

/// Writes packets until the engine stops. Ends at once without a queue.
pub(crate) fn run(shared: &Arc<Shared>, mut receiver: RingReceiver) {
    let Some(queue) = &shared.punt.queue else { return };
    let mut burst = Burst::new();
    let mut run = Burst::new();
    while !shared.stop.load(Relaxed) {
        if burst.fill(|slots| receiver.receive(slots)) == 0 {
            sleep(queue, &receiver, &shared.stop);
            continue;
        }
        queue.bursts.fetch_add(1, SeqCst);
        fence(SeqCst);
        write(queue, &shared.current(), &mut burst, &mut run);
        queue.bursts.fetch_add(1, SeqCst);
    }
}

fn sleep(queue: &PuntQueue, receiver: &RingReceiver, stop: &AtomicBool) {
    queue.sleeping.store(true, SeqCst);
    fence(SeqCst);
    if receiver.is_empty() && !stop.load(Relaxed) {
        // A wake-up that comes while the thread does not sleep ends the next sleep at once. No packet is
        // missed: who puts one into the ring looks at the flag behind it, and the thread looks into the ring
        // behind the flag, with a fence on both sides.
        queue.waker.wait();
    }
    queue.sleeping.store(false, SeqCst);
}

/// Writes the packets of a burst, in runs for one port.
fn write(queue: &PuntQueue, snapshot: &Snapshot, burst: &mut Burst, run: &mut Burst) {
    let mut current = PortId::NONE.0;
    burst.drain(|packet| {
        let out = packet.meta().out_port;
        if out != current {
            flush(queue, snapshot, current, run);
            current = out;
        }
        push(run, packet);
    });
    flush(queue, snapshot, current, run);
}

fn flush(queue: &PuntQueue, snapshot: &Snapshot, out: u16, run: &mut Burst) {
    if run.is_empty() {
        return;
    }
    let mut reason = DropReason::PortGone;
    if let Some(transmit) = snapshot.port(out).and_then(|port| port.punt_queue()) {
        let mut transmit = transmit.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tries = 0;
        while !run.is_empty() && tries < TRIES {
            let count = transmit.send(run);
            if count.too_big > 0 {
                // The port has freed them already; their input ports are not known.
                queue.drops.add(PortId::NONE.0, DropReason::TooBig as u8, count.too_big as u64);
            }
            tries = if count.sent > 0 { 0 } else { tries + 1 };
        }
        reason = DropReason::TxFull;
    }
    for packet in run.iter() {
        queue.drops.add(packet.port(), reason as u8, 1);
    }
    run.clear();
}
