//! Opening ports: checks that give clear errors, then the steps that DPDK requires.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64};

use mmb_dpdk_sys as sys;

use super::backlog::Backlog;
use super::device::{Device, LINK_BYTES, PacketRing, max_frame};
use super::handle::{DeviceHandle, EthDevice, HOTPLUG, call, device_mtu, unplug};
use super::netdev::{NetDev, Promiscuous};
use super::rss::{KEY_MAX, draw_key};
use super::spec::{PortInfo, PortSpec};
use super::vnet::{PacketSocket, Tap, TapError, VnetPort};
use crate::eal::Eal;
use crate::error::{NO_LOCKED_MEMORY, PortError};
use crate::log;
use crate::xdp::{self, TcPort, XdpError, XdpProgram, port_error};

/// Descriptors of a hardware queue; drivers adjust it.
const DESCRIPTORS: u16 = 1024;
/// Descriptors of an AF_XDP queue: libxdp's default ring size.
const XDP_DESCRIPTORS: u16 = 2048;

/// Loads the program by which a port on this device has the fast path, if it is one by AF_XDP.
pub(super) fn prepare(device: &Device) {
    if let Device::AfXdp { interface } = device
        && let Ok(Some(interface)) = NetDev::lookup(interface)
    {
        xdp::prepare(interface.index);
    }
}

/// Opens and starts a device.
pub(super) fn open(eal: Eal, spec: &PortSpec<'_>) -> Result<DeviceHandle, PortError> {
    let interface = check(eal, spec)?;
    if let Device::Tap { interface } = &spec.device {
        return open_tap(eal, spec, interface.as_deref());
    }
    let promiscuous = interface.as_ref().map(|interface| become_promiscuous(spec, interface)).transpose()?;
    let _registration = matches!(spec.device, Device::AfXdp { .. }).then(|| spec.pool.register());
    check_xdp_pool(spec)?;
    let mtu = interface.as_ref().map_or(sys::RTE_ETHER_MTU, |interface| interface.mtu);
    let devargs = spec.device.devargs(spec.pool, mtu);

    let _guard = HOTPLUG.lock().unwrap_or_else(PoisonError::into_inner);
    let opening = Opening::plug(spec.name, &devargs).map_err(|error| explain(spec, error))?;
    let (rx_queues, tx_queues) = opening.configure(spec).map_err(|error| explain(spec, error))?;
    if interface.as_ref().is_some_and(|interface| interface.promiscuous) {
        // Starting writes DPDK's promiscuous mode to the interface: make it what the interface has.
        // SAFETY: the port is open.
        let _ =
            call(spec.name, "stay promiscuous", || unsafe { sys::rte_eth_promiscuous_enable(opening.id) });
    }
    // SAFETY: the port is configured.
    call(spec.name, "start", || unsafe { sys::rte_eth_dev_start(opening.id) })
        .map_err(|error| explain(spec, error))?;
    let vnet = open_socket(spec, interface.as_ref())?;
    if interface.is_none() {
        opening.become_promiscuous(spec)?;
    }
    let info = opening.describe(rx_queues, tx_queues)?;
    // SAFETY: reads and resets a thread-local variable of the shim.
    let xdp_socket = unsafe { sys::mmb_xsk_take_socket() };
    let xdp = attach_xdp(spec, interface.as_ref(), xdp_socket)?;
    let fds = match &vnet {
        Some(vnet) => vnet.fds(),
        None => xdp.iter().map(|_| xdp_socket).collect(),
    };
    let tc = tc_port(spec, interface.as_ref(), &fds);
    let own_mtu = interface.map_or_else(|| device_mtu(opening.id), |interface| interface.mtu);
    let sends_segments = opening.info.tx_offload_capa & sys::MMB_TX_MULTI_SEGS != 0
        || matches!(spec.device, Device::Null { .. } | Device::Pcap { .. });
    Ok(DeviceHandle {
        eth: Some(opening.into_device()),
        info,
        max_frame: max_frame(&spec.device, spec.pool, own_mtu).into(),
        device: spec.device.clone(),
        pool: spec.pool.clone(),
        fds,
        sends_segments,
        xdp,
        backlog: Backlog::new(),
        tc,
        vnet,
        ring_drops: AtomicU64::new(0),
        segment_drops: AtomicU64::new(0),
        merges: AtomicBool::new(true),
        merged: AtomicU64::new(0),
        _promiscuous: promiscuous,
        _registration,
    })
}

/// Makes a tap, whose interface has the name `interface`, if there is one.
fn open_tap(eal: Eal, spec: &PortSpec<'_>, interface: Option<&str>) -> Result<DeviceHandle, PortError> {
    let (rx_queues, tx_queues) = (spec.rx_queues.max(1), spec.tx_queues.max(1));
    let queues = rx_queues.max(tx_queues);
    let failed = |failed| tap_error(spec, interface, failed);
    let tap = Tap::open(interface, queues, spec.mtu, eal.tsc_hz()).map_err(failed)?;
    let gone = || TapError { step: "query its interface", error: io::ErrorKind::NotFound.into() };
    let netdev = tap.interface().ok_or_else(gone).map_err(failed)?;
    let vnet = VnetPort::from(tap);
    let info = PortInfo {
        name: spec.name.to_owned(),
        driver: "tap".to_owned(),
        if_index: Some(netdev.index),
        mac: netdev.mac,
        rx_queues,
        tx_queues,
    };
    Ok(DeviceHandle {
        eth: None,
        info,
        max_frame: max_frame(&spec.device, spec.pool, netdev.mtu).into(),
        device: spec.device.clone(),
        pool: spec.pool.clone(),
        fds: vnet.fds(),
        sends_segments: true,
        xdp: None,
        backlog: Backlog::new(),
        tc: None,
        vnet: Some(vnet),
        ring_drops: AtomicU64::new(0),
        segment_drops: AtomicU64::new(0),
        merges: AtomicBool::new(true),
        merged: AtomicU64::new(0),
        _promiscuous: None,
        _registration: None,
    })
}

/// The reason why a tap cannot be made.
fn tap_error(spec: &PortSpec<'_>, interface: Option<&str>, failed: TapError) -> PortError {
    let (port, TapError { step, error }) = (spec.name.to_owned(), failed);
    let reason = match (error.raw_os_error(), interface) {
        (Some(libc::EPERM | libc::EACCES), _) => {
            return PortError::NotPermitted {
                port,
                what: "make network interfaces",
                capability: "cap_net_admin",
            };
        }
        (Some(libc::EBUSY), Some(name)) => format!("there is a network interface '{name}' already"),
        (None, Some(name)) if name.len() >= libc::IF_NAMESIZE => {
            format!("'{name}' is longer than {} bytes", libc::IF_NAMESIZE - 1)
        }
        _ => error.to_string(),
    };
    PortError::Driver { port, step, errno: error.raw_os_error().unwrap_or(0), reason }
}

/// Checks what does not need the driver. Returns the kernel interface behind the port.
pub(super) fn check(eal: Eal, spec: &PortSpec<'_>) -> Result<Option<NetDev>, PortError> {
    let port = || spec.name.to_owned();
    if let Some(value) = spec.device.bad_argument() {
        return Err(PortError::BadArgument { port: port(), value: value.to_owned() });
    }
    if matches!(spec.device, Device::Pci { .. }) {
        if !eal.huge_pages() {
            return Err(PortError::NeedsHugePages { port: port() });
        }
        if !eal.pci() {
            let reason = "the engine was started without devices".to_owned();
            return Err(PortError::Driver { port: port(), step: "open a PCI device", errno: 0, reason });
        }
    }
    if let (Some(mtu), Some((limit, reason))) = (spec.device.own_mtu(), spec.device.mtu_limit(spec.pool))
        && mtu > limit
    {
        return Err(PortError::MtuTooLarge { port: port(), mtu, limit, reason: reason.into() });
    }
    if let Device::Pcap { rx: Some(path), .. } = &spec.device
        && let Err(error) = std::fs::File::open(path)
    {
        let errno = error.raw_os_error().unwrap_or(0);
        return Err(PortError::Driver {
            port: port(),
            step: "open its capture",
            errno,
            reason: format!("{path}: {error}"),
        });
    }
    check_interface(spec)
}

/// Checks that AF_XDP can share the pool's memory with the kernel.
fn check_xdp_pool(spec: &PortSpec<'_>) -> Result<(), PortError> {
    if !matches!(spec.device, Device::AfXdp { .. }) {
        return Ok(());
    }
    let (bytes, free) = (spec.pool.buffer_bytes(), spec.pool.available());
    let reason = if !spec.pool.is_packed() {
        "has gaps, which AF_XDP does not allow (start while no PCI device is bound to a user-space driver)"
            .to_owned()
    } else if bytes > 4096 {
        format!(
            "has buffers of {bytes} bytes with their headers, and AF_XDP takes 4096 at most (use af-packet)"
        )
    } else if free < 2 * usize::from(XDP_DESCRIPTORS) {
        format!("has {free} free buffers, and AF_XDP wants {} (start with more memory)", 2 * XDP_DESCRIPTORS)
    } else {
        return Ok(());
    };
    Err(PortError::Pool { port: spec.name.to_owned(), reason })
}

/// The error of a step with the kernel interface behind the port.
fn interface_error(spec: &PortSpec<'_>, step: &'static str, error: &io::Error) -> PortError {
    let port = spec.name.to_owned();
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => PortError::NotPermitted {
            port,
            what: "open raw sockets",
            capability: "cap_net_raw and cap_net_admin",
        },
        errno => PortError::Driver { port, step, errno: errno.unwrap_or(0), reason: error.to_string() },
    }
}

/// Makes the kernel interface behind the port promiscuous.
fn become_promiscuous(spec: &PortSpec<'_>, interface: &NetDev) -> Result<Promiscuous, PortError> {
    Promiscuous::new(interface.index).map_err(|error| interface_error(spec, "become promiscuous", &error))
}

/// Checks the kernel interface behind the port.
fn check_interface(spec: &PortSpec<'_>) -> Result<Option<NetDev>, PortError> {
    let Some(interface) = spec.device.interface() else { return Ok(None) };
    let (port, name) = (|| spec.name.to_owned(), || interface.to_owned());
    let found = NetDev::lookup(interface);
    let Some(device) = found.map_err(|error| interface_error(spec, "query its interface", &error))? else {
        return Err(PortError::NoInterface { port: port(), interface: name() });
    };
    if !device.up {
        return Err(PortError::InterfaceDown { port: port(), interface: name() });
    }
    if let Some((limit, reason)) = spec.device.mtu_limit(spec.pool)
        && device.mtu > limit
    {
        return Err(PortError::MtuTooLarge { port: port(), mtu: device.mtu, limit, reason: reason.into() });
    }
    if let (Device::AfXdp { .. }, Some(queues @ 2..)) = (&spec.device, device.queues) {
        return Err(PortError::TooManyQueues { port: port(), interface: name(), queues });
    }
    Ok(Some(device))
}

/// What DPDK's driver of AF_PACKET says if the ring of its socket cannot be mapped, which it locks.
const NO_RING: &str = "call to mmap failed";

/// Replaces a driver's error by the reason, if the driver hid it.
fn explain(spec: &PortSpec<'_>, error: PortError) -> PortError {
    let PortError::Driver { port, step, errno, reason } = error else { return error };
    // SAFETY: reads and resets a thread-local variable of the shim.
    let xsk = unsafe { sys::mmb_xsk_take_error() };
    match &spec.device {
        Device::AfXdp { interface } if xsk > 0 => {
            port_error(&port, interface, XdpError { step, errno: xsk }, Some(&reason))
        }
        Device::AfPacket { .. } if reason.contains(NO_RING) => {
            PortError::Driver { port, step, errno, reason: NO_LOCKED_MEMORY.to_owned() }
        }
        _ => PortError::Driver { port, step, errno, reason },
    }
}

/// Opens the socket by which an AF_PACKET port receives.
fn open_socket(spec: &PortSpec<'_>, netdev: Option<&NetDev>) -> Result<Option<VnetPort>, PortError> {
    let (Device::AfPacket { .. }, Some(netdev)) = (&spec.device, netdev) else { return Ok(None) };
    let layout = PacketRing::layout(netdev.mtu, spec.pool.data_room() as u32);
    PacketSocket::open(netdev.index, layout).map(|socket| Some(socket.into())).map_err(|error| {
        PortError::Driver {
            port: spec.name.to_owned(),
            step: "open its packet socket",
            errno: error.raw_os_error().unwrap_or(0),
            reason: error.to_string(),
        }
    })
}

/// Attaches the XDP program of an AF_XDP port with that socket.
fn attach_xdp(
    spec: &PortSpec<'_>,
    netdev: Option<&NetDev>,
    socket: RawFd,
) -> Result<Option<XdpProgram>, PortError> {
    let (Device::AfXdp { interface }, Some(netdev)) = (&spec.device, netdev) else { return Ok(None) };
    XdpProgram::attach(netdev.index, socket)
        .map(Some)
        .map_err(|error| port_error(spec.name, interface, error, None))
}

/// The fast path of an AF_PACKET port, whose only descriptor is its socket.
fn tc_port(spec: &PortSpec<'_>, netdev: Option<&NetDev>, fds: &[RawFd]) -> Option<TcPort> {
    match (&spec.device, netdev, fds) {
        (Device::AfPacket { .. }, Some(netdev), [socket]) => Some(TcPort::new(netdev.index, *socket)),
        _ => None,
    }
}

/// A plugged-in device, which is unplugged on drop. Lives while [`HOTPLUG`] is held.
struct Opening<'a> {
    name: &'a str,
    id: u16,
    device: NonNull<sys::rte_device>,
    info: sys::rte_eth_dev_info,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        // SAFETY: the port is open, its queues were never used elsewhere, and the lock is held.
        unsafe { unplug(self.id, self.device) };
    }
}

impl<'a> Opening<'a> {
    /// Plugs the device in.
    fn plug(name: &'a str, devargs: &str) -> Result<Opening<'a>, PortError> {
        let bad = || PortError::BadArgument { port: name.to_owned(), value: devargs.to_owned() };
        let arguments = CString::new(devargs).map_err(|_| bad())?;
        let device = CString::new(devargs.split(',').next().unwrap_or_default()).map_err(|_| bad())?;
        let (mut id, mut info) = (0, sys::rte_eth_dev_info::default());
        // SAFETY: EAL runs; the strings outlive the calls; `id` and `info` are live.
        unsafe {
            call(name, "open the device", || sys::rte_dev_probe(arguments.as_ptr()))?;
            call(name, "find the device", || sys::rte_eth_dev_get_port_by_name(device.as_ptr(), &mut id))?;
            call(name, "ask the driver", || sys::rte_eth_dev_info_get(id, &mut info))?;
        }
        let device = NonNull::new(info.device).ok_or_else(bad)?;
        Ok(Opening { name, id, device, info })
    }

    /// Makes a port deliver marks with its packets. A driver that delivers none refuses the rules that mark.
    fn negotiate_marks(&self) {
        // SAFETY: the port is open and not configured.
        let _ = log::capture(|| unsafe { sys::mmb_flow_negotiate_marks(self.id) });
    }

    /// Configures the port and sets up its queues. Returns the numbers of receive and send queues.
    fn configure(&self, spec: &PortSpec<'_>) -> Result<(u16, u16), PortError> {
        let one = matches!(spec.device, Device::AfXdp { .. } | Device::AfPacket { .. });
        let most = |asked: u16, limit: u16| if one { 1 } else { asked.clamp(1, limit.max(1)) };
        let rx_queues = most(spec.rx_queues, self.info.max_rx_queues);
        let tx_queues = most(spec.tx_queues, self.info.max_tx_queues);
        let mut key = draw_key();
        let conf = self.configuration(spec, rx_queues, &mut key)?;
        self.negotiate_marks();
        let (mut rx, mut tx) = match spec.device {
            Device::AfXdp { .. } => (XDP_DESCRIPTORS, XDP_DESCRIPTORS),
            _ => (DESCRIPTORS, DESCRIPTORS),
        };
        let socket = u32::MAX;
        let id = self.id;
        // SAFETY: the port is open and stopped; all pointers are to live data; the pool is never freed. A
        // queue configuration of NULL is the driver's default.
        unsafe {
            call(self.name, "configure it", || sys::rte_eth_dev_configure(id, rx_queues, tx_queues, &conf))?;
            call(self.name, "size its queues", || {
                sys::rte_eth_dev_adjust_nb_rx_tx_desc(id, &mut rx, &mut tx)
            })?;
            for queue in 0..rx_queues {
                let pool = spec.pool.raw();
                call(self.name, "set up receiving", || {
                    sys::rte_eth_rx_queue_setup(id, queue, rx, socket, std::ptr::null(), pool)
                })?;
            }
            for queue in 0..tx_queues {
                call(self.name, "set up sending", || {
                    sys::rte_eth_tx_queue_setup(id, queue, tx, socket, std::ptr::null())
                })?;
            }
        }
        Ok((rx_queues, tx_queues))
    }

    /// The port's configuration, which points to `key`.
    fn configuration(
        &self,
        spec: &PortSpec<'_>,
        rx_queues: u16,
        key: &mut [u8; KEY_MAX],
    ) -> Result<sys::rte_eth_conf, PortError> {
        let mut conf = sys::rte_eth_conf::default();
        if let (Some(mtu), Device::Pci { .. }) = (spec.mtu, &spec.device) {
            let limit = self.info.max_mtu;
            if limit != 0 && mtu > limit {
                let (mtu, limit, reason) = (u32::from(mtu), u32::from(limit), "with this device".to_owned());
                return Err(PortError::MtuTooLarge { port: self.name.to_owned(), mtu, limit, reason });
            }
            conf.rxmode.mtu = u32::from(mtu);
        }
        // Frames longer than a buffer arrive in several segments.
        let longest = conf.rxmode.mtu.max(sys::RTE_ETHER_MTU) as usize + LINK_BYTES as usize;
        if longest > spec.pool.data_room() {
            conf.rxmode.offloads |= self.info.rx_offload_capa & sys::MMB_RX_SCATTER;
        }
        conf.txmode.offloads |= self.info.tx_offload_capa & sys::MMB_TX_MULTI_SEGS;
        // A hash from the device saves the session table its own, even with one queue.
        let hash = self.info.rx_offload_capa & sys::MMB_RX_RSS_HASH;
        conf.rxmode.offloads |= hash;
        if rx_queues > 1 || hash != 0 {
            conf.rxmode.mq_mode = sys::RTE_ETH_MQ_RX_RSS;
            conf.rx_adv_conf.rss_conf = sys::rte_eth_rss_conf {
                rss_key: key.as_mut_ptr(),
                rss_key_len: self.info.hash_key_size.min(KEY_MAX as u8),
                rss_hf: sys::MMB_RSS_FLOWS & self.info.flow_type_rss_offloads,
            };
        }
        Ok(conf)
    }

    /// Makes a device that the port owns promiscuous. Drivers without this mode receive all frames anyway.
    fn become_promiscuous(&self, spec: &PortSpec<'_>) -> Result<(), PortError> {
        // SAFETY: the port is open.
        match call(spec.name, "become promiscuous", || unsafe { sys::rte_eth_promiscuous_enable(self.id) }) {
            Err(PortError::Driver { errno: libc::ENOTSUP, .. }) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The properties of the opened port.
    fn describe(&self, rx_queues: u16, tx_queues: u16) -> Result<PortInfo, PortError> {
        let mut mac = sys::rte_ether_addr::default();
        // SAFETY: the port is open; `mac` is live.
        call(self.name, "read its address", || unsafe { sys::rte_eth_macaddr_get(self.id, &mut mac) })?;
        let driver = if self.info.driver_name.is_null() {
            String::new()
        } else {
            // SAFETY: a driver's name is a static zero-terminated string.
            unsafe { CStr::from_ptr(self.info.driver_name) }.to_string_lossy().into_owned()
        };
        let if_index = (self.info.if_index != 0).then_some(self.info.if_index);
        Ok(PortInfo {
            name: self.name.to_owned(),
            driver,
            if_index,
            mac: mac.addr_bytes,
            rx_queues,
            tx_queues,
        })
    }

    /// The open port; the caller becomes responsible for closing it.
    fn into_device(self) -> EthDevice {
        let this = std::mem::ManuallyDrop::new(self);
        EthDevice { id: this.id, plugged: this.device }
    }
}
