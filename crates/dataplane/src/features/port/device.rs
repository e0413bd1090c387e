//! Ports: DPDK devices, with what nodes and operators need to know of them.
//!
//! Theory of operation. [`super::open`] turns a port of the language (`af-xdp eth0`, `tap`, …) into a DPDK
//! device. The snapshots that use an [`OpenPort`] share it. When the last one is dropped, the device is
//! closed and the kernel interface gets its settings back. Each queue is used by one worker, which follows
//! from the port's id and the number of workers. A mutex around each queue proves that to the compiler; a
//! worker takes it once per vector, and finds it locked only while the port is restarted ([`super::stalls`]).

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use mmb_dpdk::{NetDev, Port, RxQueue, Steering, TwinTraffic, TxQueue};
use mmb_fastpath::PortSide;
use serde::Serialize;

use super::error::PortError;
use super::offloads::GuardedInterface;
use crate::engine::config::MAX_PORTS;

/// What `show interfaces` reports of a port.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PortInfo {
    /// DPDK's name of the driver.
    pub driver: String,
    /// The device that was opened (`af-xdp eth0`).
    pub device: String,
    /// Hardware address.
    pub mac: String,
    /// Largest network packet, in bytes.
    pub mtu: u16,
    /// Whether there is a carrier.
    pub link_up: bool,
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets that the device dropped because buffers were missing or its queue was full.
    pub rx_missed: u64,
    /// Packets received with errors.
    pub rx_errors: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// Packets that left as a part of a packet before them, which is counted alone.
    pub tx_merged: u64,
    /// What tc has passed between the port's interface and its twin, which is received and sent, too.
    #[serde(skip)]
    pub twin: TwinTraffic,
    /// Settings that were changed on the device, and settings to change by hand.
    pub notes: Vec<String>,
}

/// The engine's table of open ports.
pub(crate) type OpenPorts = Mutex<[Option<Arc<OpenPort>>; MAX_PORTS]>;

/// An open device.
pub(crate) struct OpenPort {
    // Queues go before the port, and the interface's settings come back last.
    pub(super) rx: Vec<Mutex<RxQueue>>,
    pub(super) tx: Vec<Mutex<TxQueue>>,
    pub(super) port: Port,
    pub(super) guard: Option<GuardedInterface>,
    /// The descriptors behind the paths that the driver knows.
    pub(super) _files: Vec<OwnedFd>,
    pub(super) notes: Vec<String>,
    pub(super) kind: String,
    pub(super) checks_frames: bool,
    pub(super) receives: bool,
    /// The index of the kernel interface on which the port was opened.
    pub(super) kernel_index: Option<u32>,
    /// Whether the interface accepts frames that the kernel redirects to it, as far as is known.
    pub(super) can_redirect: Arc<AtomicBool>,
    /// Lost frames as of the last check, and how often receiving was restarted.
    pub(super) lost: AtomicU64,
    pub(super) restarts: AtomicU64,
    /// What the fast path in the kernel has received and sent for the port.
    pub(super) fast: [Traffic; 2],
}

/// Packets and bytes.
#[derive(Default)]
pub(super) struct Traffic {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl OpenPort {
    /// Whether the interface accepts frames that the kernel redirects to it, as of the last check.
    pub fn can_redirect(&self) -> &Arc<AtomicBool> {
        &self.can_redirect
    }

    /// Counts packets that the fast path has received or sent on the port.
    pub fn count_forwarded(&self, side: PortSide, packets: u64, bytes: u64) {
        let traffic = &self.fast[side as usize];
        traffic.packets.fetch_add(packets, Relaxed);
        traffic.bytes.fetch_add(bytes, Relaxed);
    }

    /// Whether a kernel peer may leave VLAN tags and checksums of frames to the port.
    pub fn checks_frames(&self) -> bool {
        self.checks_frames
    }

    /// Makes the port a member of the fast path, or makes it leave it, if it can.
    pub fn engage_fast_path(&self, engaged: bool) {
        if engaged != self.port.is_fast() {
            self.port.engage_fast_path(engaged);
        }
    }

    /// Whether the kernel interface of the port has disappeared.
    pub fn has_vanished(&self) -> bool {
        self.kernel_index.is_some_and(|index| NetDev::name_of(index).is_none())
    }

    /// Bytes of the longest frame that the port takes.
    pub fn max_frame(&self) -> usize {
        self.port.max_frame() as usize
    }

    /// Bytes of the longest frame that the port transmits with a link header of `link` bytes.
    pub fn max_frame_behind(&self, link: u16) -> usize {
        self.port.max_frame_behind(link.into()) as usize
    }

    /// Whether the port can receive packets at all.
    pub fn receives(&self) -> bool {
        self.receives
    }

    /// The number of the receive queue of `worker`, if any: its own if there is one per worker; else one
    /// worker has the port's first queue. `id` is the port's id.
    pub fn rx_queue_number(&self, worker: usize, workers: usize, id: usize) -> Option<u16> {
        if self.rx.len() >= workers {
            Some(worker as u16)
        } else {
            (owner(id, workers) == worker).then_some(0)
        }
    }

    /// The receive queue of `worker`, if any ([`OpenPort::rx_queue_number`]).
    pub fn rx_queue(&self, worker: usize, workers: usize, id: usize) -> Option<&Mutex<RxQueue>> {
        self.rx.get(usize::from(self.rx_queue_number(worker, workers, id)?))
    }

    /// Tells receive queue `queue` what a wait on its descriptor has shown ([`RxQueue::note_wait`]).
    pub fn note_wait(&self, queue: u16, is_readable: bool, waits_again: bool) {
        // Where looking for frames costs no system call, there is nothing to tell.
        if !self.port.is_tap() {
            return;
        }
        if let Some(Ok(mut queue)) = self.rx.get(usize::from(queue)).map(Mutex::try_lock) {
            queue.note_wait(is_readable, waits_again);
        }
    }

    /// The worker that transmits for `worker` on this port, and its queue.
    pub fn tx_queue(&self, worker: usize, workers: usize, id: usize) -> (usize, Option<&Mutex<TxQueue>>) {
        if self.tx.len() >= workers {
            (worker, self.tx.get(worker))
        } else {
            (owner(id, workers), self.tx.first())
        }
    }

    /// The queue by which packets for the kernel are written, on a port that leads there.
    pub fn punt_queue(&self) -> Option<&Mutex<TxQueue>> {
        self.tx.first()
    }

    /// Restarts receiving if the kernel has stopped filling the ring of a packet socket.
    pub fn restart_if_stalled(&self) {
        let lost = self.port.ring_drops();
        if self.lost.swap(lost, Relaxed) == lost {
            return;
        }
        for queue in &self.rx {
            let is_new = queue.lock().unwrap_or_else(PoisonError::into_inner).restart_if_stalled();
            self.restarts.fetch_add(is_new.into(), Relaxed);
        }
        // What was lost until the restart is no sign of another stall.
        self.lost.store(self.port.ring_drops(), Relaxed);
    }

    /// Clears pending errors of the port's descriptors. A packet socket whose interface went down has one,
    /// which would end every sleep at once.
    pub fn clear_errors(&self) {
        for queue in &self.rx {
            if let Ok(mut queue) = queue.try_lock() {
                // The state of the link shows what happened.
                let _ = queue.clear_errors();
            }
        }
    }

    /// The hardware address when the port was opened; of a tap, the address of the kernel's side.
    pub fn mac(&self) -> [u8; 6] {
        self.port.info().mac
    }

    /// The underlying device.
    pub fn device(&self) -> &Port {
        &self.port
    }

    /// See [`Port::steer`].
    pub fn steer(&self, steering: Option<&Steering>) -> Result<(), PortError> {
        self.port.steer(steering).map_err(|e| PortError::Device(e.into()))
    }

    /// State and counters of the port.
    pub fn info(&self) -> PortInfo {
        let stats = self.port.stats().unwrap_or_default();
        let info = self.port.info();
        let [received, sent] = &self.fast;
        let mut notes = self.notes.clone();
        notes.extend(self.guard.iter().flat_map(|guard| guard.notes().to_vec()));
        let restarts = self.restarts.load(Relaxed);
        if restarts > 0 {
            notes.push(format!(
                "the kernel cannot hand over large frames of SCTP, or of UDP that is to be fragmented, and drops \
                 others behind them ({restarts} times): switch the offload off at the sender, as with `ethtool -K \
                 PEER tx-sctp-segmentation off` or `host_ufo=off` of a virtual machine"
            ));
        }
        let mac: Vec<String> = info.mac.iter().map(|byte| format!("{byte:02x}")).collect();
        PortInfo {
            driver: info.driver.clone(),
            device: self.kind.clone(),
            mac: mac.join(":"),
            mtu: u16::try_from(self.port.mtu()).unwrap_or(u16::MAX),
            link_up: self.port.is_link_up(),
            rx_packets: stats.rx_packets + received.packets.load(Relaxed) + stats.twin.packets_to_twin,
            rx_bytes: stats.rx_bytes + received.bytes.load(Relaxed) + stats.twin.bytes_to_twin,
            tx_packets: stats.tx_packets + sent.packets.load(Relaxed) + stats.twin.packets_from_twin,
            tx_bytes: stats.tx_bytes + sent.bytes.load(Relaxed) + stats.twin.bytes_from_twin,
            rx_missed: stats.rx_missed + stats.rx_no_buffer,
            rx_errors: stats.rx_errors,
            tx_errors: stats.tx_errors,
            tx_merged: stats.tx_merged,
            twin: stats.twin,
            notes,
        }
    }
}

/// The worker that uses a port with one queue.
fn owner(id: usize, workers: usize) -> usize {
    id % workers
}
