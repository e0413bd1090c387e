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
//! A larger variant of the program also runs the fast path ([`super::fast_path`]). A port begins with the
//! smaller one, as the fast path's maps take 26 MiB and the kernel verifies the larger program for some
//! 100 ms. [`XdpProgram::engage`] replaces the program in the link when the fast path is wanted first. The
//! kernel changes one pointer, so that each frame meets one of the two. It needs XDP in the driver, and the
//! kernel may refuse it; then the port works without the fast path.
//!
//! A process that takes ports over from another one loads the larger program before the ports are closed
//! there ([`prepare`]).

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::net::IpAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use mmb_dpdk_sys as sys;

use super::error::{ENOTSUPP, XdpError};
use super::fast_path::Member;
use super::local::LocalAddresses;
use super::maps::{Mapped, errno_of, put};
use super::object::{ACCESS, Hook, Object, link, replace};
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

/// An attached program.
#[derive(Debug)]
pub(crate) struct XdpProgram {
    /// Dropped first: afterwards no frame meets the program.
    link: OwnedFd,
    if_index: u32,
    socket: RawFd,
    is_generic: bool,
    /// The membership in the fast path, once it was wanted.
    fast: OnceLock<Result<Member, XdpError>>,
    loaded: Mutex<LoadedProgram>,
}

impl XdpProgram {
    /// Attaches a program to the interface with that index, for an AF_XDP socket on its first queue. The
    /// socket must stay open. The program has no fast path, unless it was prepared ([`prepare`]).
    pub(crate) fn attach(if_index: u32, socket: RawFd) -> Result<XdpProgram, XdpError> {
        let prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner).remove(&if_index);
        let (fast, loaded) = match prepared {
            Some((member, loaded)) => (OnceLock::from(Ok(member)), loaded),
            None => (OnceLock::new(), LoadedProgram::load(sys::STEER, None)?),
        };
        loaded.give_socket(socket)?;
        let with = |link, is_generic, fast, loaded| {
            let loaded = Mutex::new(loaded);
            XdpProgram { link, if_index, socket, is_generic, fast, loaded }
        };
        match link(loaded.program()?, if_index, Hook::Xdp(sys::XDP_FLAGS_DRV_MODE)) {
            Ok(link) => Ok(with(link, false, fast, loaded)),
            Err(errno @ (libc::EOPNOTSUPP | ENOTSUPP | libc::EINVAL)) => {
                let loaded = LoadedProgram::load(sys::STEER, None)?;
                loaded.give_socket(socket)?;
                let link = link(loaded.program()?, if_index, Hook::Xdp(sys::XDP_FLAGS_SKB_MODE))
                    .map_err(XdpError::at(ATTACH))?;
                // Before the kernel's stack, frames may be longer than any interface takes.
                let fast = Err(XdpError { step: "use XDP in its driver", errno });
                Ok(with(link, true, OnceLock::from(fast), loaded))
            }
            Err(errno) => Err(XdpError { step: ATTACH, errno }),
        }
    }

    /// Makes the port a member of the fast path, if it is none and the kernel has not refused it before. It
    /// stays one. No frame is lost.
    pub(crate) fn engage(&self) {
        self.fast.get_or_init(|| {
            let (member, mut fast) = load_fast(self.if_index)?;
            fast.give_socket(self.socket)?;
            let mut loaded = self.loaded();
            fast.steer(loaded.steering.as_ref())?;
            replace(&self.link, fast.program()?).map_err(XdpError::at(ATTACH))?;
            *loaded = fast;
            Ok(member)
        });
    }

    fn loaded(&self) -> MutexGuard<'_, LoadedProgram> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The port's membership in the fast path, or why it has none. None: it was not engaged.
    pub(crate) fn fast(&self) -> Option<Result<&Member, XdpError>> {
        self.fast.get().map(|fast| fast.as_ref().map_err(|error| *error))
    }

    /// Whether the driver has no XDP, so that the kernel runs the program in its stack, which is slower.
    pub(crate) fn is_generic(&self) -> bool {
        self.is_generic
    }

    /// Sets the steering; None: every frame goes to the port. On an error, nothing has changed.
    pub(crate) fn steer(&self, steering: Option<&Steering>) -> Result<(), XdpError> {
        self.loaded().steer(steering)
    }
}

/// A program in the kernel, with its maps.
#[derive(Debug)]
struct LoadedProgram {
    state: Mapped<Variables>,
    steering: Option<Steering>,
    local: LocalAddresses,
    object: Object,
}

impl LoadedProgram {
    /// Loads one of the two programs, with the maps of the fast path if it has a member.
    fn load(bytes: &'static [u8], member: Option<&Member>) -> Result<LoadedProgram, XdpError> {
        let object = Object::load(c"mmb_steer", bytes, member)?;
        // SAFETY: the section holds these variables alone, and they consist of atomics.
        let state = unsafe { Mapped::<Variables>::map(object.map(c".bss")?, 1) }
            .map_err(|error| XdpError { step: ACCESS, errno: errno_of(&error) })?;
        if let (Some(variables), Some(member)) = (state.get(0), member) {
            variables.join(member);
        }
        Ok(LoadedProgram { state, steering: None, local: LocalAddresses::default(), object })
    }

    /// The program's descriptor, which stays open as long as this value.
    fn program(&self) -> Result<c_int, XdpError> {
        self.object.program(c"steer")
    }

    /// Gives the program the socket of its port.
    fn give_socket(&self, socket: RawFd) -> Result<(), XdpError> {
        // SAFETY: key (a queue's number) and value have the sizes of this map.
        unsafe { put(self.object.map(c"xsks")?, &0u32.to_ne_bytes(), &socket.to_ne_bytes()) }
            .map_err(XdpError::at("use its AF_XDP socket"))
    }

    fn steer(&mut self, steering: Option<&Steering>) -> Result<(), XdpError> {
        let wanted = steering.map_or(&[][..], |steering| &steering.local);
        let state = &self.state;
        self.local.replace(&self.object, wanted, || {
            if let Some(variables) = state.get(0) {
                variables.set_gate(steering);
            }
        })?;
        self.steering = steering.cloned();
        Ok(())
    }
}

/// A program with the fast path that is not attached, and the port's membership.
type FastProgram = (Member, LoadedProgram);

/// Programs that wait for their port, by the index of the interface.
static PREPARED: Mutex<BTreeMap<u32, FastProgram>> = Mutex::new(BTreeMap::new());

/// Loads the program with the fast path for the interface with that index, so that [`XdpProgram::engage`]
/// has nothing to do. Does nothing if the kernel refuses it: engaging tries again and has the reason.
pub(crate) fn prepare(if_index: u32) {
    if let Ok(loaded) = load_fast(if_index) {
        PREPARED.lock().unwrap_or_else(PoisonError::into_inner).insert(if_index, loaded);
    }
}

/// Loads the program with the fast path.
fn load_fast(if_index: u32) -> Result<FastProgram, XdpError> {
    let member = Member::join(if_index)?;
    let loaded = LoadedProgram::load(sys::STEER_FAST, Some(&member))?;
    Ok((member, loaded))
}

#[cfg(test)]
pub(super) mod tests;
