//! The XDP program of AF_XDP ports: which frames of the interface are the port's, and which the kernel's.
//!
//! # Theory of operation
//! Every AF_XDP port loads a copy of bpf/steer.c with maps of its own, puts its socket into it and attaches it to the
//! interface: in the driver, or before the kernel's stack where the driver cannot ("generic"). It hangs on a BPF link,
//! which ends with the process however that ends, and which nobody replaces by accident; whoever else wants to attach a
//! program is told that the interface is busy, and so are we where there is one.
//!
//! The program hands every frame to the socket while its `gate` is 0. Otherwise the gate holds the interface's address,
//! and the kernel keeps what is its own ([`Steering`]). The gate is one word in shared memory, so that a frame meets the
//! old or the new state and nothing in between. Local addresses are added before it is written and removed after, so
//! that while addresses change no frame for one that is local before and after goes astray.
//!
//! What the kernel does with settled flows before it hands a frame to the socket is in [`crate::fast`]. That takes a larger
//! program, which the kernel may refuse, and a driver that has XDP; a port without does the rest just the same.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::io;
use std::mem::offset_of;
use std::net::IpAddr;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use mmb_dpdk_sys as sys;

use crate::error::{PortError, strerror};
use crate::fast::Member;
use crate::log;
use crate::xdp_map::{Mapped, ask, delete, number, put};

/// Leaves to the kernel what is its own on an AF_XDP port: frames that are not to `mac`, that are neither IPv4 nor IPv6
/// (so also those with VLAN tags), or whose destination is in `local` or is link-local of IPv6. The port gets the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steering {
    /// The interface's Ethernet address.
    pub mac: [u8; 6],
    /// The machine's addresses; up to 16,384 of a family.
    pub local: Vec<IpAddr>,
}

/// What the kernel refused: the step, and its error number (positive).
pub(crate) type Refusal = (&'static str, i32);

/// An attached program.
#[derive(Debug)]
pub(crate) struct XdpProgram {
    // First to go: without it no frame meets the program.
    _link: OwnedFd,
    state: Mapped<Variables>,
    /// What is in the maps of addresses.
    known: Mutex<BTreeSet<IpAddr>>,
    generic: bool,
    fast: Result<Member, Refusal>,
    object: Object,
}

impl XdpProgram {
    /// Attaches a program to the interface with that index, for that AF_XDP socket on its first queue.
    pub(crate) fn attach(if_index: u32, socket: RawFd) -> Result<XdpProgram, Refusal> {
        let fast = Member::join(if_index).and_then(|member| {
            let (object, state) = load(sys::STEER_FAST, Some(&member), socket)?;
            Ok((member, object, state))
        });
        let (fast, object, state) = match fast {
            Ok((member, object, state)) => (Ok(member), object, state),
            Err(refusal) => {
                let (object, state) = load(sys::STEER, None, socket)?;
                (Err(refusal), object, state)
            }
        };
        let step = "attach its XDP program";
        match link(object.program()?, if_index, sys::XDP_FLAGS_DRV_MODE) {
            Ok(link) => {
                Ok(XdpProgram { _link: link, state, known: Mutex::default(), generic: false, fast, object })
            }
            Err(errno @ (libc::EOPNOTSUPP | ENOTSUPP | libc::EINVAL)) => {
                let (object, state) = load(sys::STEER, None, socket)?;
                let link = link(object.program()?, if_index, sys::XDP_FLAGS_SKB_MODE)
                    .map_err(|errno| (step, errno))?;
                // Before the kernel's stack, frames may be longer than any interface takes.
                let fast = Err(("use XDP in its driver", errno));
                Ok(XdpProgram { _link: link, state, known: Mutex::default(), generic: true, fast, object })
            }
            Err(errno) => Err((step, errno)),
        }
    }

    /// The port's place on the fast path, or why it has none.
    pub(crate) fn fast(&self) -> Result<&Member, Refusal> {
        self.fast.as_ref().map_err(|refusal| *refusal)
    }

    /// Whether the driver has no XDP, so that the kernel does it in the driver's place, and slower.
    pub(crate) fn is_generic(&self) -> bool {
        self.generic
    }

    /// Steers from now on as `steering` says; None: every frame is the port's. When it fails, nothing has changed.
    pub(crate) fn steer(&self, steering: Option<&Steering>) -> Result<(), Refusal> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted: BTreeSet<IpAddr> =
            steering.map_or_else(BTreeSet::new, |it| it.local.iter().copied().collect());
        let before = known.clone();
        for address in wanted.difference(&before) {
            if let Err(refusal) = self.add(*address) {
                known.retain(|address| before.contains(address) || self.remove(*address).is_err());
                return Err(refusal);
            }
            known.insert(*address);
        }
        if let Some(variables) = self.state.get(0) {
            let word = steering.map_or(0, |steering| sys::STEER_ON | word(steering.mac));
            variables.gate.store(word, Ordering::Release);
        }
        // An address that stays in the map, which the kernel gives no reason for, is removed the next time.
        known.retain(|address| wanted.contains(address) || self.remove(*address).is_err());
        Ok(())
    }

    fn add(&self, address: IpAddr) -> Result<(), Refusal> {
        let (map, key) = self.entry(address)?;
        // SAFETY: the key and the value of this map.
        unsafe { put(map, &key, &[1]) }.map_err(|errno| ("steer its frames", errno))
    }

    fn remove(&self, address: IpAddr) -> Result<(), Refusal> {
        let (map, key) = self.entry(address)?;
        // SAFETY: the key has the length of this map's keys.
        unsafe { delete(map, &key) }.map_err(|errno| ("steer its frames", errno))
    }

    /// The map in which an address stands, and its key there.
    fn entry(&self, address: IpAddr) -> Result<(c_int, Vec<u8>), Refusal> {
        Ok(match address {
            IpAddr::V4(address) => (self.object.map(c"local4")?, address.octets().to_vec()),
            IpAddr::V6(address) => (self.object.map(c"local6")?, address.octets().to_vec()),
        })
    }
}

/// Says what an error number of AF_XDP or XDP means; `reason` is what else is known.
pub(crate) fn refused(
    port: String,
    interface: &str,
    step: &'static str,
    errno: i32,
    reason: Option<&str>,
) -> PortError {
    let error = strerror(errno);
    let reason = match errno {
        libc::EPERM | libc::EACCES => {
            let capability = "cap_net_raw, cap_net_admin and cap_bpf";
            return PortError::NotPermitted { port, what: "use AF_XDP", capability };
        }
        // A program in the driver, one before the kernel's stack, or a socket.
        libc::EBUSY | libc::EEXIST => {
            format!(
                "another program uses XDP on {interface} (see: ip link show {interface}; or use af-packet)"
            )
        }
        libc::EOPNOTSUPP | ENOTSUPP | libc::EINVAL => {
            format!("the driver of {interface} cannot do this with XDP (use af-packet): {error}")
        }
        libc::ERANGE => format!(
            "the MTU of {interface} or of its peer is too large for XDP (lower it, or use af-packet): {error}"
        ),
        libc::ENOBUFS => {
            format!(
                "the process may not lock enough memory (try: ulimit -l unlimited, or give it cap_ipc_lock): {error}"
            )
        }
        libc::E2BIG => format!("more than {} addresses of one family are local", sys::STEER_LOCAL_MAX),
        _ => reason.map_or_else(|| error.clone(), |reason| format!("{reason}: {error}")),
    };
    PortError::Driver { port, step, errno, reason }
}

/// What some drivers answer for EOPNOTSUPP, a number that is the kernel's own.
const ENOTSUPP: i32 = 524;

/// The bytes of an Ethernet address as the program reads them: two at a time, the first ones lowest.
fn word(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    [[e, f], [c, d], [a, b]].into_iter().fold(0, |word, two| word << 16 | u64::from(u16::from_ne_bytes(two)))
}

/// Attaches a program to an interface for as long as the result is open.
fn link(program: c_int, if_index: u32, flags: u32) -> Result<OwnedFd, i32> {
    // libbpf is shown no more than what is used: padding behind it would have to be zero.
    let shown = offset_of!(sys::bpf_link_create_opts, flags) + size_of_val(&flags);
    let options = sys::bpf_link_create_opts { sz: shown, flags, ..Default::default() };
    // SAFETY: live options that say their size.
    let fd = ask(|| unsafe {
        sys::bpf_link_create(program, if_index.cast_signed(), sys::BPF_XDP, &raw const options)
    })?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Loads one of the programs, with the maps of the fast path if it has a member, and gives it the socket.
fn load(
    bytes: &'static [u8],
    member: Option<&Member>,
    socket: RawFd,
) -> Result<(Object, Mapped<Variables>), Refusal> {
    let object = Object::load(bytes, member)?;
    // SAFETY: the variables are alone in their section, and made of atomics.
    let state = unsafe { Mapped::<Variables>::map(object.map(c".bss")?, 1) }
        .map_err(|error| ("reach its XDP program", number(&error)))?;
    if let (Some(variables), Some(member)) = (state.get(0), member) {
        variables.port.store(member.port.0, Ordering::Release);
        for (to, secret) in variables.secrets.iter().zip(member.path.secrets()) {
            to.store(*secret, Ordering::Release);
        }
    }
    // SAFETY: the key, the number of a queue, and the value of this map.
    unsafe { put(object.map(c"xsks")?, &0u32.to_ne_bytes(), &socket.to_ne_bytes()) }
        .map_err(|errno| ("use its AF_XDP socket", errno))?;
    Ok((object, state))
}

/// The loaded program and its maps.
#[derive(Debug)]
struct Object(NonNull<sys::bpf_object>);

// SAFETY: libbpf's objects belong to no thread; after loading, this one is only asked for descriptors, and closed once.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the object is open, and nothing uses its descriptors any more.
        unsafe { sys::bpf_object__close(self.0.as_ptr()) }
    }
}

impl Object {
    fn load(bytes: &'static [u8], member: Option<&Member>) -> Result<Object, Refusal> {
        let step = "load its XDP program";
        let shown = offset_of!(sys::bpf_object_open_opts, relaxed_maps);
        let options =
            sys::bpf_object_open_opts { sz: shown, object_name: c"mmb_steer".as_ptr(), ..Default::default() };
        // SAFETY: the bytes live for ever; live options that say their size.
        let (object, _) = log::capture(|| unsafe {
            sys::bpf_object__open_mem(bytes.as_ptr().cast(), bytes.len(), &raw const options)
        });
        let object =
            NonNull::new(object).map(Object).ok_or_else(|| (step, number(&io::Error::last_os_error())))?;
        for (name, fd) in member.iter().flat_map(|member| member.path.maps()) {
            // SAFETY: the object is open; a map that is not found is NULL, which the second call answers with an error.
            ask(|| unsafe {
                let map = sys::bpf_object__find_map_by_name(object.0.as_ptr(), name.as_ptr());
                sys::bpf_map__reuse_fd(map, fd)
            })
            .map_err(|errno| (step, errno))?;
        }
        // SAFETY: the object is open.
        ask(|| unsafe { sys::bpf_object__load(object.0.as_ptr()) }).map_err(|errno| (step, errno))?;
        Ok(object)
    }

    /// The descriptor of a map, which stays the object's.
    fn map(&self, name: &std::ffi::CStr) -> Result<c_int, Refusal> {
        // SAFETY: the object is open; a map that is not found is NULL, which the second call answers with an error.
        ask(|| unsafe { sys::bpf_map__fd(sys::bpf_object__find_map_by_name(self.0.as_ptr(), name.as_ptr())) })
            .map_err(|errno| ("reach its XDP program", errno))
    }

    /// The descriptor of the program, which stays the object's.
    fn program(&self) -> Result<c_int, Refusal> {
        // SAFETY: as for `map`.
        ask(|| unsafe {
            sys::bpf_program__fd(sys::bpf_object__find_program_by_name(self.0.as_ptr(), c"steer".as_ptr()))
        })
        .map_err(|errno| ("reach its XDP program", errno))
    }
}

/// The program's variables, as `struct steer_state` has them.
#[derive(Debug)]
#[repr(C)]
struct Variables {
    gate: AtomicU64,
    port: AtomicU32,
    unused: AtomicU32,
    secrets: [AtomicU32; sys::STEER_FAST_SECRETS as usize],
}

const _: () = {
    assert!(size_of::<Variables>() == size_of::<sys::steer_state>());
    assert!(offset_of!(Variables, gate) == offset_of!(sys::steer_state, gate));
    assert!(offset_of!(Variables, port) == offset_of!(sys::steer_state, port));
    assert!(offset_of!(Variables, secrets) == offset_of!(sys::steer_state, secrets));
};

#[cfg(test)]
#[path = "xdp_test.rs"]
pub(crate) mod tests;
