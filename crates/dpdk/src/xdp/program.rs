//! The XDP program of AF_XDP ports: which frames of the interface go to the port, and which to the kernel.
//!
//! # Theory of operation
//! Every AF_XDP port loads a copy of bpf/steer.c with maps of its own, puts its socket into the socket map
//! and attaches the program to the interface: in the driver, or before the kernel's stack where the driver
//! has no XDP ("generic"). The attachment is a BPF link, which ends with the process and which no other
//! process replaces by accident. A second program on the same interface is refused as busy.
//!
//! While `gate` is 0, the program hands every frame to the socket. Otherwise the gate holds the interface's
//! Ethernet address, and the kernel keeps the frames that [`Steering`] describes. The gate is one word in
//! shared memory, so that a frame sees the old or the new state. Local addresses are added before the gate is
//! written and removed after it, so that no frame to an address that stays local is misdirected.
//!
//! A larger variant of the program also runs the fast path ([`super::fast_path`]). It needs XDP in the
//! driver, and the kernel may refuse it; then the port works without the fast path.
//!
//! The kernel verifies this variant for some 100 ms. A process that takes ports over from another one loads
//! it before the ports are closed there ([`prepare`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::net::IpAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use mmb_dpdk_sys as sys;

use super::error::{ENOTSUPP, XdpError};
use super::fast_path::Member;
use super::maps::{Mapped, delete, errno_of, put};
use super::object::{ACCESS, Hook, Object, link};
use super::variables::Variables;

/// Which frames of an AF_XDP port stay with the kernel: those not addressed to `mac`, those that are neither
/// IPv4 nor IPv6 (including tagged ones), and packets to an address in `local` or to an IPv6 link-local
/// address. The port gets the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steering {
    /// The interface's Ethernet address.
    pub mac: [u8; 6],
    /// The machine's addresses; up to 16,384 of a family.
    pub local: Vec<IpAddr>,
}

const ATTACH: &str = "attach its XDP program";
const STEER: &str = "steer its frames";

/// An attached program.
#[derive(Debug)]
pub(crate) struct XdpProgram {
    /// Dropped first: afterwards no frame meets the program.
    _link: OwnedFd,
    state: Mapped<Variables>,
    /// The addresses in the maps of local addresses.
    local: Mutex<BTreeSet<IpAddr>>,
    is_generic: bool,
    fast: Result<Member, XdpError>,
    object: Object,
}

impl XdpProgram {
    /// Attaches a program to the interface with that index, for an AF_XDP socket on its first queue.
    pub(crate) fn attach(if_index: u32, socket: RawFd) -> Result<XdpProgram, XdpError> {
        let prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner).remove(&if_index);
        let (member, object, state) = prepared.map_or_else(|| load_fast(if_index), Ok).or_else(|error| {
            let (object, state) = load(sys::STEER, None)?;
            Ok((Err(error), object, state))
        })?;
        give_socket(&object, socket)?;
        let (fast, local) = (member, Mutex::default());
        match link(object.program(c"steer")?, if_index, Hook::Xdp(sys::XDP_FLAGS_DRV_MODE)) {
            Ok(_link) => Ok(XdpProgram { _link, state, local, is_generic: false, fast, object }),
            Err(errno @ (libc::EOPNOTSUPP | ENOTSUPP | libc::EINVAL)) => {
                let (object, state) = load(sys::STEER, None)?;
                give_socket(&object, socket)?;
                let _link = link(object.program(c"steer")?, if_index, Hook::Xdp(sys::XDP_FLAGS_SKB_MODE))
                    .map_err(XdpError::at(ATTACH))?;
                // Before the kernel's stack, frames may be longer than any interface takes.
                let fast = Err(XdpError { step: "use XDP in its driver", errno });
                Ok(XdpProgram { _link, state, local, is_generic: true, fast, object })
            }
            Err(errno) => Err(XdpError { step: ATTACH, errno }),
        }
    }

    /// The port's membership in the fast path, or why it has none.
    pub(crate) fn fast(&self) -> Result<&Member, XdpError> {
        self.fast.as_ref().map_err(|error| *error)
    }

    /// Whether the driver has no XDP, so that the kernel runs the program in its stack, which is slower.
    pub(crate) fn is_generic(&self) -> bool {
        self.is_generic
    }

    /// Sets the steering; None: every frame goes to the port. On an error, nothing has changed.
    pub(crate) fn steer(&self, steering: Option<&Steering>) -> Result<(), XdpError> {
        let mut local = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted: BTreeSet<IpAddr> =
            steering.map_or_else(BTreeSet::new, |steering| steering.local.iter().copied().collect());
        let before = local.clone();
        for address in wanted.difference(&before) {
            if let Err(error) = self.add_local(*address) {
                local.retain(|address| before.contains(address) || self.remove_local(*address).is_err());
                return Err(error);
            }
            local.insert(*address);
        }
        if let Some(variables) = self.state.get(0) {
            variables.set_gate(steering);
        }
        // An address that cannot be removed stays in the set and is removed the next time.
        local.retain(|address| wanted.contains(address) || self.remove_local(*address).is_err());
        Ok(())
    }

    fn add_local(&self, address: IpAddr) -> Result<(), XdpError> {
        let (map, key) = self.local_entry(address)?;
        // SAFETY: key and value have the sizes of this map.
        unsafe { put(map, &key, &[1]) }.map_err(XdpError::at(STEER))
    }

    fn remove_local(&self, address: IpAddr) -> Result<(), XdpError> {
        let (map, key) = self.local_entry(address)?;
        // SAFETY: the key has the size of this map's keys.
        unsafe { delete(map, &key) }.map_err(XdpError::at(STEER))
    }

    /// The map of an address's family, and the address's key in it.
    fn local_entry(&self, address: IpAddr) -> Result<(c_int, Vec<u8>), XdpError> {
        Ok(match address {
            IpAddr::V4(address) => (self.object.map(c"local4")?, address.octets().to_vec()),
            IpAddr::V6(address) => (self.object.map(c"local6")?, address.octets().to_vec()),
        })
    }
}

/// A program with its variables that is not attached, and the port's membership in the fast path.
type Loaded = (Result<Member, XdpError>, Object, Mapped<Variables>);

/// Programs that wait for their port, by the index of the interface.
static PREPARED: Mutex<BTreeMap<u32, Loaded>> = Mutex::new(BTreeMap::new());

/// Loads the program for the interface with that index, so that opening a port on it takes less time. Does
/// nothing if the kernel refuses it: opening the port tries again and has the reason.
pub(crate) fn prepare(if_index: u32) {
    if let Ok(loaded) = load_fast(if_index) {
        PREPARED.lock().unwrap_or_else(PoisonError::into_inner).insert(if_index, loaded);
    }
}

/// Loads the program with the fast path.
fn load_fast(if_index: u32) -> Result<Loaded, XdpError> {
    let member = Member::join(if_index)?;
    let (object, state) = load(sys::STEER_FAST, Some(&member))?;
    Ok((Ok(member), object, state))
}

/// Loads one of the two programs, with the maps of the fast path if it has a member.
fn load(bytes: &'static [u8], member: Option<&Member>) -> Result<(Object, Mapped<Variables>), XdpError> {
    let object = Object::load(c"mmb_steer", bytes, member)?;
    // SAFETY: the section holds these variables alone, and they consist of atomics.
    let state = unsafe { Mapped::<Variables>::map(object.map(c".bss")?, 1) }
        .map_err(|error| XdpError { step: ACCESS, errno: errno_of(&error) })?;
    if let (Some(variables), Some(member)) = (state.get(0), member) {
        variables.join(member);
    }
    Ok((object, state))
}

/// Gives a program the socket of its port.
fn give_socket(object: &Object, socket: RawFd) -> Result<(), XdpError> {
    // SAFETY: key (a queue's number) and value have the sizes of this map.
    unsafe { put(object.map(c"xsks")?, &0u32.to_ne_bytes(), &socket.to_ne_bytes()) }
        .map_err(XdpError::at("use its AF_XDP socket"))
}

#[cfg(test)]
pub(super) mod tests;
