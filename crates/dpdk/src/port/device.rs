//! The kinds of device behind a port, and their DPDK device arguments.

use std::sync::atomic::{AtomicU32, Ordering};

use mmb_dpdk_sys as sys;

use crate::memory::Mempool;

/// The device behind a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// A kernel interface, by AF_XDP. VLAN tags that the sender left to the device
    /// ([`crate::Offloads::tx_vlan`] of a veth peer, or [`crate::Offloads::rx_vlan`] of the interface) are
    /// lost: these offloads must be off.
    AfXdp {
        /// The interface.
        interface: String,
    },
    /// A kernel interface, by AF_PACKET, with large frames. The kernel receives the frames as well.
    AfPacket {
        /// The interface.
        interface: String,
    },
    /// A new tap interface of the kernel, with large frames.
    Tap {
        /// Its name; None: the kernel chooses one (dtap0, …).
        interface: Option<String>,
    },
    /// A device on the PCI bus that is bound to a user-space driver.
    Pci {
        /// Domain, bus, device and function: 0000:03:00.0.
        address: String,
    },
    /// Shared memory with another process.
    Memif {
        /// Path of the Unix socket.
        socket: String,
        /// Whether to connect to it instead of listening on it.
        client: bool,
    },
    /// Capture files.
    Pcap {
        /// File to receive from; None: nothing is received.
        rx: Option<String>,
        /// File to write sent packets to; None: they are dropped.
        tx: Option<String>,
    },
    /// Discards packets that are sent.
    Null {
        /// Receives an endless sequence of frames of that many zero bytes; None: receives nothing.
        receive: Option<u16>,
    },
    /// Receives the packets that are sent, up to 1,023 at a time.
    Loop,
}

/// Largest MTU of an AF_PACKET port: DPDK keeps a frame's length in 16 bits.
const AF_PACKET_MTU_MAX: u32 = 65_000;
/// Bytes of an AF_PACKET ring slot besides the frame: the kernel's header, the address and alignment.
const AF_PACKET_FRAME_EXTRA: u32 = 96;
/// Ethernet header and two VLAN tags.
pub(crate) const LINK_BYTES: u32 = 14 + 2 * 4;

impl Device {
    /// The kernel interface that must exist already.
    pub(crate) fn interface(&self) -> Option<&str> {
        match self {
            Device::AfXdp { interface } | Device::AfPacket { interface } => Some(interface),
            _ => None,
        }
    }

    /// The first string that cannot stand in a device argument, if there is one.
    pub(crate) fn bad_argument(&self) -> Option<&str> {
        let texts: [Option<&String>; 2] = match self {
            Device::AfXdp { interface } | Device::AfPacket { interface } => [Some(interface), None],
            Device::Tap { interface } => [interface.as_ref(), None],
            Device::Pci { address } => [Some(address), None],
            Device::Memif { socket, .. } => [Some(socket), None],
            Device::Pcap { rx, tx } => [rx.as_ref(), tx.as_ref()],
            Device::Null { .. } | Device::Loop => [None, None],
        };
        let bad =
            |text: &str| text.is_empty() || text.chars().any(|c| c.is_control() || ",[]=\"' ".contains(c));
        texts.into_iter().flatten().map(String::as_str).find(|text| bad(text))
    }

    /// The device's name and arguments in DPDK's syntax; a tap is none of DPDK's devices. `mtu` is the kernel
    /// interface's.
    pub(crate) fn devargs(&self, pool: &Mempool, mtu: u32) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        match self {
            // Whether the driver polls busily is decided in the shim (xsk.c).
            Device::AfXdp { interface } => {
                format!("net_af_xdp{number},iface={interface},start_queue=0,queue_count=1")
            }
            Device::AfPacket { interface } => {
                let PacketRing { block, frame, frames } = PacketRing::layout(mtu, pool.data_room() as u32);
                format!(
                    "net_af_packet{number},iface={interface},qpairs=1,blocksz={block},framesz={frame},framecnt={frames}"
                )
            }
            Device::Tap { .. } => String::new(),
            Device::Pci { address } => address.clone(),
            Device::Memif { socket, client } => {
                let role = if *client { "client" } else { "server" };
                format!("net_memif{number},role={role},socket={socket},socket-abstract=no")
            }
            Device::Pcap { rx, tx } => {
                let rx = rx.as_ref().map(|path| format!(",rx_pcap={path}")).unwrap_or_default();
                let tx = tx.as_ref().map(|path| format!(",tx_pcap={path}")).unwrap_or_default();
                format!("net_pcap{number}{rx}{tx}")
            }
            Device::Null { receive: Some(size) } => format!("net_null{number},size={size},copy=1"),
            Device::Null { receive: None } => format!("net_null{number},no-rx=1"),
            Device::Loop => format!("net_ring{number}"),
        }
    }

    /// The longest frame that this kind of port receives, as an MTU, if the configuration sets it.
    pub(crate) fn own_mtu(&self) -> Option<u32> {
        match self {
            Device::Null { receive } => receive.map(u32::from),
            _ => None,
        }
    }

    /// The largest MTU whose frames (with two VLAN tags) fit the pool's buffers, and the reason of the limit;
    /// None: the driver decides.
    pub(crate) fn mtu_limit(&self, pool: &Mempool) -> Option<(u32, &'static str)> {
        let room = pool.data_room() as u32;
        match self {
            Device::AfXdp { .. } => {
                let reason = "with AF_XDP here (lower the interface's MTU, or use af-packet)";
                Some((xdp_capacity(pool).saturating_sub(LINK_BYTES), reason))
            }
            Device::AfPacket { .. } => {
                let reason =
                    "with these packet buffers (lower the interface's MTU, or start with larger buffers)";
                let limit = room.saturating_sub(AF_PACKET_FRAME_EXTRA + LINK_BYTES);
                Some((limit.min(AF_PACKET_MTU_MAX), reason))
            }
            // The driver fills one buffer without checking its size.
            Device::Null { receive: Some(_) } => Some((room, "with these packet buffers")),
            _ => None,
        }
    }
}

/// Longest frame that AF_XDP puts into a buffer of this pool; the kernel reserves 256 bytes.
pub(crate) fn xdp_capacity(pool: &Mempool) -> u32 {
    const XDP_HEADROOM: usize = 256;
    pool.data_room().saturating_sub(XDP_HEADROOM) as u32
}

/// Longest frame that may be handed to a driver, including two VLAN tags.
pub(crate) fn max_frame(device: &Device, pool: &Mempool, mtu: u32) -> u32 {
    match device {
        // The frame is sent from a buffer of the pool.
        Device::AfXdp { .. } => (mtu + LINK_BYTES).min(xdp_capacity(pool)),
        // These have no MTU of their own.
        Device::Null { .. } => u32::MAX,
        Device::Pcap { .. } => sys::RTE_ETHER_MAX_JUMBO_FRAME_LEN,
        _ => mtu + LINK_BYTES,
    }
}

/// Layout of the ring that AF_PACKET shares with the kernel. The driver computes a frame's offset as a
/// multiple of the frame size, so frames must fill blocks without a gap. Blocks are whole pages. A frame slot
/// less the kernel's header must fit a packet buffer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PacketRing {
    /// Bytes of a block.
    pub(super) block: u32,
    /// Bytes of a slot.
    pub(super) frame: u32,
    /// Number of slots.
    pub(super) frames: u32,
}

impl PacketRing {
    /// Memory for one direction, roughly.
    const BYTES: u32 = 4 << 20;

    /// The layout for frames of that MTU and buffers for `room` bytes of frame.
    pub(super) fn layout(mtu: u32, room: u32) -> PacketRing {
        const PAGE: u32 = 4096;
        // The driver subtracts this for the kernel's header: TPACKET2_HDRLEN - sizeof(sockaddr_ll).
        const DRIVER_HEADER: u32 = 32;
        let least = mtu + LINK_BYTES + AF_PACKET_FRAME_EXTRA - DRIVER_HEADER;
        // Multiples of half a page, but never longer than a buffer.
        let wanted = least.next_multiple_of(PAGE / 2);
        let most = (room + DRIVER_HEADER) & !15;
        let frame = if wanted <= most { wanted } else { most };
        let block = lcm(frame, PAGE);
        let blocks = (Self::BYTES / block).max(2);
        PacketRing { block, frame, frames: blocks * (block / frame) }
    }

    /// Number of blocks.
    pub(super) fn blocks(&self) -> u32 {
        self.frames / (self.block / self.frame)
    }
}

/// Least common multiple.
fn lcm(a: u32, b: u32) -> u32 {
    fn gcd(a: u32, b: u32) -> u32 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    a / gcd(a, b) * b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_rings_fit_kernel_driver_and_buffer() {
        for (mtu, room) in
            [(1500, 2048), (1500, 9216), (9000, 9216), (3000, 3776), (65_000, 65_400), (1500, 1700)]
        {
            let ring = PacketRing::layout(mtu, room);
            assert_eq!(ring.frame % 16, 0, "the kernel's alignment: {ring:?}");
            assert_eq!(ring.block % 4096, 0, "whole pages: {ring:?}");
            assert_eq!(ring.block % ring.frame, 0, "no gap: {ring:?}");
            assert_eq!(ring.frames % (ring.block / ring.frame), 0, "whole blocks: {ring:?}");
            assert!(ring.frame - 32 <= room, "the driver's check: {ring:?}");
            // The kernel puts the frame 66 bytes into its slot.
            assert!(ring.frame - 66 >= mtu + LINK_BYTES, "a full frame fits: {ring:?}");
        }
    }

    #[test]
    fn arguments_cannot_be_smuggled_in() {
        let xdp = |interface: &str| Device::AfXdp { interface: interface.into() };
        assert_eq!(xdp("eth0").bad_argument(), None);
        assert_eq!(xdp("eth0,xdp_prog=/x").bad_argument(), Some("eth0,xdp_prog=/x"));
        assert_eq!(xdp("").bad_argument(), Some(""));
        let pcap = Device::Pcap { rx: Some("/a/b.pcap".into()), tx: Some("c[0]".into()) };
        assert_eq!(pcap.bad_argument(), Some("c[0]"));
    }
}
