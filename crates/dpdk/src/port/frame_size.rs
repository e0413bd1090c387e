//! Receive offloads of a kernel interface while a port reads raw frames from it.
//!
//! # Theory of operation
//! A packet socket receives what the kernel's receive path makes of the frames. What GRO merges can be
//! segmented again without a loss, so GRO stays on: the port takes large frames. What LRO merges cannot, so
//! LRO is switched off, and restored when the [`LroGuard`] is dropped.

use std::io;

use super::netdev::{InterfaceQuery, NetDev};

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

/// Keeps LRO off; dropping it restores the interface.
#[derive(Debug)]
pub struct LroGuard {
    interface: String,
    /// Whether it was on before, and is off now.
    is_off: bool,
    notes: Vec<String>,
}

impl LroGuard {
    /// Switches LRO off. `before_change` is called before, if it is on.
    ///
    /// # Errors
    /// When the kernel refuses the query, or has no such interface.
    pub fn apply(interface: &str, before_change: impl FnOnce()) -> io::Result<LroGuard> {
        let device = NetDev::lookup(interface)?.ok_or(io::ErrorKind::NotFound)?;
        let mut guard = LroGuard { interface: interface.to_owned(), is_off: false, notes: Vec::new() };
        if device.offloads.lro {
            before_change();
            guard.is_off = ReceiveOffload::Lro.switch(interface, false);
            guard.notes.push(match guard.is_off {
                true => "lro is off while mmb runs".into(),
                false => format!("lro could not be switched off; run `ethtool -K {interface} lro off`"),
            });
        }
        Ok(guard)
    }

    /// Sentences about what was changed on the interface, and what has to be changed by hand.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Drop for LroGuard {
    fn drop(&mut self) {
        if self.is_off {
            // If the interface is gone by now, there is nothing to restore.
            ReceiveOffload::Lro.switch(&self.interface, true);
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
