//! Opens the device of a port.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use mmb_dpdk::{Device, NetDev, Port, PortSpec, is_veth};
use mmb_lang::PortKind;
use mmb_system::{FileAccess, SocketPlace};

use super::device::OpenPort;
use super::error::PortError;
use super::offloads::GuardedInterface;
use crate::engine::pools::{ORDINARY, Pools};

/// Most bytes that the ring of a packet socket and two VLAN tags add to a network packet.
const RING_AND_LINK: u32 = 128;

/// The note of an AF_XDP port for which the pool, which cannot grow, is small.
const FEW_BUFFERS: &str = "there are packet buffers for fewer af-xdp ports, so that a busy port may leave none to \
                           others; restart with this configuration, or with --memory";

/// Opens the port that the operator calls `name`, for `workers` workers, beside `xdp_ports` AF_XDP ports.
/// `prepared`: its device, if it is open already ([`prepare`]).
pub(crate) fn open(
    pools: &Pools,
    files: &FileAccess,
    name: &str,
    kind: &PortKind,
    (workers, xdp_ports): (usize, usize),
    prepared: Option<Port>,
) -> Result<OpenPort, PortError> {
    let guard = match kind {
        // The device reports a missing interface, or one that is down, itself.
        PortKind::AfPacket { ifname } => GuardedInterface::guard(files.state(), ifname),
        _ => None,
    };
    let (device, opened) = device(kind, files)?;
    let mut port = match prepared {
        Some(port) => with_queues(port, &device, workers),
        None => open_device(pools, name, device, workers)?,
    };
    port._files = opened;
    port.checks_frames =
        matches!(kind, PortKind::AfXdp { .. } | PortKind::AfPacket { .. } | PortKind::Tap { .. });
    port.kind = kind.to_string();
    port.notes = notes(kind, &port.port, pools.is_short_of(xdp_ports + 1));
    port.guard = guard;
    if let PortKind::AfXdp { ifname } | PortKind::AfPacket { ifname } = kind {
        // An index that no interface has, if the interface has disappeared meanwhile.
        port.kernel_index = Some(NetDev::lookup(ifname).ok().flatten().map_or(0, |dev| dev.index));
    }
    Ok(port)
}

/// Does what a port needs and what may be done while another process has the device. Returns the device if
/// two processes can have it, as with packet sockets: it receives what the other one receives, too. None: all
/// else, and errors, are left to [`open`].
pub(crate) fn prepare(
    pools: &Pools,
    name: &str,
    kind: &PortKind,
    workers: usize,
    is_fast: bool,
) -> Option<Port> {
    match kind {
        PortKind::AfXdp { ifname } if is_fast => {
            Port::prepare_fast_path(&Device::AfXdp { interface: ifname.to_string() });
            None
        }
        PortKind::AfPacket { ifname } => {
            plug(pools, name, Device::AfPacket { interface: ifname.to_string() }, workers).ok()
        }
        _ => None,
    }
}

/// Whether the kernel has an interface of this name that is up.
pub fn is_interface_up(name: &str) -> bool {
    NetDev::lookup(name).is_ok_and(|dev| dev.is_some_and(|dev| dev.up))
}

/// Notes about the device for the operator. `has_few_buffers`: for a further AF_XDP port.
fn notes(kind: &PortKind, port: &Port, has_few_buffers: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if port.is_generic_xdp() {
        notes.push(
            "its interface's driver has no XDP, so the kernel does it in the driver's place: slower, and frames longer \
             than the MTU (merged by an interface below it, or left uncut by a sender on this machine) do not arrive; if \
             there are any, run `ethtool -K INTERFACE gro off tso off gso off` on those"
                .into(),
        );
    }
    if matches!(kind, PortKind::AfXdp { .. }) && has_few_buffers {
        notes.push(FEW_BUFFERS.into());
    }
    if let PortKind::AfXdp { ifname } = kind
        && is_veth(ifname)
    {
        notes.push(
            "VLAN tags that the peer's kernel adds do not reach XDP; if there are any, run `ethtool -K PEER txvlan off \
             tx-vlan-stag-hw-insert off` at the peer"
                .into(),
        );
    }
    notes
}

/// Opens a port that receives an endless sequence of frames of `size` zero bytes.
pub(crate) fn open_generating_null(
    pools: &Pools,
    size: usize,
    workers: usize,
) -> Result<OpenPort, PortError> {
    let size = u16::try_from(size).ok().filter(|&s| usize::from(s) <= ORDINARY);
    let size = size.ok_or(PortError::FrameSize)?;
    open_device(pools, "null", Device::Null { receive: Some(size) }, workers)
}

fn open_device(pools: &Pools, name: &str, device: Device, workers: usize) -> Result<OpenPort, PortError> {
    let port = plug(pools, name, device.clone(), workers)?;
    Ok(with_queues(port, &device, workers))
}

/// Opens a device, with a queue for each worker if it has so many.
fn plug(pools: &Pools, name: &str, device: Device, workers: usize) -> Result<Port, PortError> {
    let mtu = match &device {
        Device::AfPacket { interface } => NetDev::lookup(interface).ok().flatten().map_or(0, |dev| dev.mtu),
        _ => 0,
    };
    let pool = if mtu + RING_AND_LINK > ORDINARY as u32 { pools.jumbo()? } else { pools.ordinary() };
    let (queues, is_xdp) = (workers as u16, matches!(device, Device::AfXdp { .. }));
    let spec = PortSpec { name, device, pool: &pool, rx_queues: queues, tx_queues: queues, mtu: None };
    if is_xdp {
        // The memory stays allocated, so not for a port that cannot be opened.
        Port::check(&spec)?;
        pools.provide_for_xdp()?;
    }
    Ok(Port::open(&spec)?)
}

/// A port with its queues, which workers take.
fn with_queues(mut port: Port, device: &Device, workers: usize) -> OpenPort {
    let queues = workers as u16;
    let rx = (0..queues).map_while(|queue| port.take_rx(queue)).map(Mutex::new).collect();
    let tx = (0..queues).map_while(|queue| port.take_tx(queue)).map(Mutex::new).collect();
    OpenPort {
        rx,
        tx,
        port,
        kind: String::new(),
        checks_frames: false,
        receives: *device != Device::Null { receive: None },
        kernel_index: None,
        guard: None,
        _files: Vec::new(),
        notes: Vec::new(),
        can_redirect: Arc::default(),
        lost: AtomicU64::default(),
        restarts: AtomicU64::default(),
        fast: Default::default(),
    }
}

/// Whether a memif server listens on this socket; then the port is the client. Removes a socket that a killed
/// server left.
fn has_listener(socket: &Path) -> bool {
    // The sockets of memif have another type than this one; a live listener reports that.
    match UnixStream::connect(socket).map_err(|e| nix::errno::Errno::from_raw(e.raw_os_error().unwrap_or(0)))
    {
        Ok(_) | Err(nix::errno::Errno::EPROTOTYPE) => true,
        Err(nix::errno::Errno::ECONNREFUSED) => {
            // Other files answer the same. If the socket cannot be removed, opening the port reports why.
            if std::fs::symlink_metadata(socket).is_ok_and(|found| found.file_type().is_socket()) {
                let _ = std::fs::remove_file(socket);
            }
            false
        }
        Err(_) => false,
    }
}

/// The path of a descriptor of this process. Nothing can redirect it while the descriptor is open.
fn path_of(fd: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// The device of a port, and the descriptors behind the paths in it.
///
/// Drivers open captures and sockets by path. They get paths of descriptors that are open already, so that
/// neither a symbolic link nor a rename has an effect between a check and the driver.
fn device(kind: &PortKind, files: &FileAccess) -> Result<(Device, Vec<OwnedFd>), PortError> {
    let device = match kind {
        PortKind::AfXdp { ifname } => Device::AfXdp { interface: ifname.to_string() },
        PortKind::AfPacket { ifname } => Device::AfPacket { interface: ifname.to_string() },
        PortKind::Tap { ifname } => Device::Tap { interface: ifname.as_ref().map(|n| n.to_string()) },
        PortKind::Pci { address } => Device::Pci { address: address.to_string() },
        PortKind::Memif { socket } => {
            let SocketPlace { directory, name } = files.socket(Path::new(&**socket))?;
            let socket = format!("{}/{}", path_of(&directory), name.to_string_lossy());
            let client = has_listener(Path::new(&socket));
            return Ok((Device::Memif { socket, client }, vec![directory]));
        }
        PortKind::Pcap { rx, tx } => {
            let input = files.open_input(Path::new(&**rx))?;
            let output = files.create_output(Path::new(&**tx))?;
            let device = Device::Pcap { rx: Some(path_of(&input)), tx: Some(path_of(&output)) };
            return Ok((device, vec![input.into(), output.into()]));
        }
        PortKind::Null => Device::Null { receive: None },
    };
    Ok((device, Vec::new()))
}
