//! What a port is opened with, what it is, and what it counts.

use std::ops::AddAssign;

use super::device::Device;
use crate::memory::Mempool;

/// How to open a port.
#[derive(Clone, Debug)]
pub struct PortSpec<'a> {
    /// The port's name, for messages.
    pub name: &'a str,
    /// The device behind it.
    pub device: Device,
    /// The pool of its receive buffers.
    pub pool: &'a Mempool,
    /// Receive queues wanted; a device with fewer gets fewer. Several queues spread flows by a hash with
    /// a secret key. The two directions of a flow may arrive on different queues.
    pub rx_queues: u16,
    /// Send queues wanted; a device with fewer gets fewer.
    pub tx_queues: u16,
    /// MTU to set on a device that the port owns (PCI, tap); None: 1500. Kernel interfaces keep theirs.
    pub mtu: Option<u16>,
}

/// Properties of an open port.
#[derive(Clone, Debug)]
pub struct PortInfo {
    /// The port's name.
    pub name: String,
    /// DPDK's driver.
    pub driver: String,
    /// Index of the kernel interface behind it, if there is one.
    pub if_index: Option<u32>,
    /// Ethernet address.
    pub mac: [u8; 6],
    /// Number of receive queues.
    pub rx_queues: u16,
    /// Number of send queues.
    pub tx_queues: u16,
}

/// Counters of a port since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets lost because they were not fetched in time.
    pub rx_missed: u64,
    /// Packets received with errors.
    pub rx_errors: u64,
    /// Packets lost because there was no buffer.
    pub rx_no_buffer: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// Packets that left as a part of a packet before them, which is counted alone.
    pub tx_merged: u64,
    /// What tc has passed between the port's interface and its twin. The other counters do not have it.
    pub twin: TwinTraffic,
}

/// Packets that tc has passed between the interface of an AF_PACKET port and its twin, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TwinTraffic {
    /// Packets that the interface has received.
    pub packets_to_twin: u64,
    /// Their bytes.
    pub bytes_to_twin: u64,
    /// Packets that the interface has sent.
    pub packets_from_twin: u64,
    /// Their bytes.
    pub bytes_from_twin: u64,
}

impl AddAssign for TwinTraffic {
    fn add_assign(&mut self, other: TwinTraffic) {
        self.packets_to_twin += other.packets_to_twin;
        self.bytes_to_twin += other.bytes_to_twin;
        self.packets_from_twin += other.packets_from_twin;
        self.bytes_from_twin += other.bytes_from_twin;
    }
}

/// The result of sending packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxCount {
    /// Packets sent.
    pub sent: usize,
    /// Packets freed because the port had no room.
    pub no_room: usize,
    /// Packets freed because they are longer than the port takes.
    pub too_big: usize,
    /// Packets that became a part of a packet before them, which is counted alone.
    pub merged: usize,
}
