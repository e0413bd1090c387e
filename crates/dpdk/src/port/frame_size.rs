//! Keeps frames of a kernel interface no longer than its MTU while a port reads raw frames from it.
//!
//! # Theory of operation
//! A packet socket receives what the kernel's receive path makes of the frames: merged frames after GRO or
//! LRO, and from a veth peer segments of up to 64 KiB that TSO did not cut. Both are longer than the MTU of
//! the egress port. So GRO and LRO are switched off, and restored when the [`FrameSizeGuard`] is dropped. A
//! veth interface gets an XDP program that passes every frame (bpf/pass.c), since the kernel cuts segments
//! for an interface with XDP. The program is attached by a BPF link, which ends with the process.
//!
//! The kernel strips the outer VLAN tag of a frame before a packet socket sees it, and DPDK's driver does not
//! keep whether it was a customer or a service tag. So the program replaces a service tag's ethertype by
//! [`SERVICE_TAG_PLACEHOLDER`], which the kernel does not strip. The reader of the frames restores it.

use std::io;
use std::os::fd::OwnedFd;

use mmb_dpdk_sys as sys;

use super::netdev::{InterfaceQuery, NetDev};
use crate::xdp::attach_pass_program;

// linux/ethtool.h
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETHTOOL_SGRO: u32 = 0x2c;
const ETH_FLAG_LRO: u32 = 1 << 15;

/// An offload that merges frames as they are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveOffload {
    /// Generic receive offload, in the kernel.
    Gro,
    /// Large receive offload, in the device.
    Lro,
}

impl ReceiveOffload {
    /// All of them.
    pub const ALL: [ReceiveOffload; 2] = [ReceiveOffload::Gro, ReceiveOffload::Lro];

    /// The word of `ethtool -K`.
    pub fn word(self) -> &'static str {
        match self {
            ReceiveOffload::Gro => "gro",
            ReceiveOffload::Lro => "lro",
        }
    }

    /// Switches it on or off; false: it failed, or there is no such interface.
    pub fn switch(self, interface: &str, on: bool) -> bool {
        let switched = match self {
            ReceiveOffload::Gro => set(interface, ETHTOOL_SGRO, on.into()),
            ReceiveOffload::Lro => lro(interface, on),
        };
        switched.is_some()
    }
}

/// Keeps frames no longer than the MTU; dropping it restores the interface.
#[derive(Debug)]
pub struct FrameSizeGuard {
    interface: String,
    /// Offloads that were on before, and are off now.
    off: Vec<ReceiveOffload>,
    xdp: Option<OwnedFd>,
    is_veth: bool,
    notes: Vec<String>,
}

impl FrameSizeGuard {
    /// Configures the interface so that no merged or uncut frame arrives. Settings that fail become notes.
    /// `before_change` gets the offloads that are on, before they are switched off.
    ///
    /// # Errors
    /// When the kernel refuses the query, or has no such interface.
    pub fn apply(
        interface: &str,
        before_change: impl FnOnce(&[ReceiveOffload]),
    ) -> io::Result<FrameSizeGuard> {
        let device = NetDev::lookup(interface)?.ok_or(io::ErrorKind::NotFound)?;
        let mut guard = FrameSizeGuard {
            interface: interface.to_owned(),
            off: Vec::new(),
            xdp: None,
            is_veth: is_veth(interface),
            notes: Vec::new(),
        };
        guard.attach_pass(device.index);
        let is_on = |offload: &ReceiveOffload| match offload {
            ReceiveOffload::Gro => device.offloads.gro,
            ReceiveOffload::Lro => device.offloads.lro,
        };
        let on: Vec<_> = ReceiveOffload::ALL.into_iter().filter(is_on).collect();
        before_change(&on);
        on.into_iter().for_each(|offload| guard.switch_off(offload));
        Ok(guard)
    }

    /// Whether service tags of received frames are replaced by [`SERVICE_TAG_PLACEHOLDER`], by bpf/pass.c or
    /// by what cuts packets instead.
    pub fn replaces_service_tags(&self) -> bool {
        self.is_veth
    }

    /// Sentences about what was changed on the interface, and what has to be changed by hand.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Lets large packets arrive until [`FrameSizeGuard::enforce`]: another program cuts them, as that of
    /// [`crate::Port::engage_tc`] does. LRO stays off: the kernel cannot cut what it merges.
    pub fn relax(&mut self) {
        self.xdp = None;
        self.notes.clear();
        if self.off.contains(&ReceiveOffload::Gro) {
            self.off.retain(|offload| *offload != ReceiveOffload::Gro);
            ReceiveOffload::Gro.switch(&self.interface, true);
        }
    }

    /// Keeps frames short again.
    pub fn enforce(&mut self) {
        let Ok(Some(device)) = NetDev::lookup(&self.interface) else { return };
        self.attach_pass(device.index);
        if device.offloads.gro {
            self.switch_off(ReceiveOffload::Gro);
        }
    }

    /// Attaches bpf/pass.c to a veth interface.
    fn attach_pass(&mut self, index: u32) {
        if !self.is_veth || self.xdp.is_some() {
            return;
        }
        match attach_pass_program(index) {
            Ok(link) => self.xdp = Some(link),
            Err(e) => self.notes.push(format!(
                "segmentation offload of its peer could not be switched off ({e}); run `ethtool -K PEER tso off gso \
                 off` there, or frames longer than the MTU are dropped as gso-frame"
            )),
        }
    }

    fn switch_off(&mut self, offload: ReceiveOffload) {
        let word = offload.word();
        if offload.switch(&self.interface, false) {
            self.notes.push(format!("{word} is off while mmb runs"));
            self.off.push(offload);
        } else if offload == ReceiveOffload::Gro {
            self.notes.push(format!(
                "{word} could not be switched off; run `ethtool -K {} {word} off`, or merged frames are dropped as gso-frame",
                self.interface
            ));
        }
    }
}

impl Drop for FrameSizeGuard {
    fn drop(&mut self) {
        // If the interface is gone by now, there is nothing to restore.
        for offload in &self.off {
            offload.switch(&self.interface, true);
        }
    }
}

/// Makes an ethtool call with one value; None: it failed.
fn set(interface: &str, command: u32, value: u32) -> Option<()> {
    InterfaceQuery::new(interface).ok()??.ethtool(&mut [command, value])
}

/// Switches LRO; None: it failed.
fn lro(interface: &str, on: bool) -> Option<()> {
    let mut query = InterfaceQuery::new(interface).ok()??;
    let mut flags = [ETHTOOL_GFLAGS, 0];
    query.ethtool(&mut flags)?;
    let value = if on { flags[1] | ETH_FLAG_LRO } else { flags[1] & !ETH_FLAG_LRO };
    query.ethtool(&mut [ETHTOOL_SFLAGS, value])
}

/// Whether the interface is one end of a veth pair.
pub fn is_veth(interface: &str) -> bool {
    driver(interface).as_deref() == Some("veth")
}

/// The name of the interface's kernel driver (`veth`, `ixgbe`, `tun`, …).
fn driver(interface: &str) -> Option<String> {
    // struct ethtool_drvinfo: command, driver name (32 bytes), and more, 196 bytes in all.
    let mut info = [0u32; 49];
    info[0] = ETHTOOL_GDRVINFO;
    InterfaceQuery::new(interface).ok()??.ethtool(&mut info)?;
    let name: Vec<u8> =
        info[1..9].iter().flat_map(|word| word.to_ne_bytes()).take_while(|&b| b != 0).collect();
    String::from_utf8(name).ok()
}

/// The ethertype of a service tag (IEEE 802.1ad).
pub const SERVICE_TAG: [u8; 2] = (sys::PASS_SERVICE_TAG as u16).to_be_bytes();
/// The ethertype that replaces [`SERVICE_TAG`] in frames from an interface with a [`FrameSizeGuard`]: the one
/// that is reserved and never on a wire (IANA's registry, after RFC 1701).
pub const SERVICE_TAG_PLACEHOLDER: [u8; 2] = (sys::PASS_SERVICE_TAG_PLACEHOLDER as u16).to_be_bytes();
