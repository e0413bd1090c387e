//! Loaded programs and their attachment to interfaces.

use std::ffi::{CStr, c_int};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use mmb_dpdk_sys as sys;

use super::error::XdpError;
use super::fast_path::Member;
use super::maps::{call, errno_of};
use crate::log;

const LOAD: &str = "load its BPF program";
pub(super) const ACCESS: &str = "access its BPF program";

// enum bpf_attach_type, since Linux 6.6.
const BPF_TCX_INGRESS: sys::bpf_attach_type = 46;
const BPF_TCX_EGRESS: sys::bpf_attach_type = 47;

/// Where a program is attached to an interface.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hook {
    /// At XDP, with these flags.
    Xdp(u32),
    /// At tc, for packets that are received.
    Ingress,
    /// At tc, for packets that are sent.
    Egress,
}

/// Attaches a program to an interface for as long as the result is open.
pub(super) fn link(program: c_int, if_index: u32, hook: Hook) -> Result<OwnedFd, i32> {
    let (kind, flags) = match hook {
        Hook::Xdp(flags) => (sys::BPF_XDP, flags),
        Hook::Ingress => (BPF_TCX_INGRESS, 0),
        Hook::Egress => (BPF_TCX_EGRESS, 0),
    };
    // libbpf reads only the fields that are used: padding behind them would have to be zero.
    let used = offset_of!(sys::bpf_link_create_opts, flags) + size_of_val(&flags);
    let options = sys::bpf_link_create_opts { sz: used, flags, ..Default::default() };
    // SAFETY: the options are live and carry their size.
    let fd =
        call(|| unsafe { sys::bpf_link_create(program, if_index.cast_signed(), kind, &raw const options) })?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Puts another program into a link, in place of the one that is there.
pub(super) fn replace(link: &OwnedFd, program: c_int) -> Result<(), i32> {
    // SAFETY: without options; a system call that takes two descriptors.
    call(|| unsafe { sys::bpf_link_update(link.as_raw_fd(), program, std::ptr::null()) }).map(|_| ())
}

/// Calls a function while the thread gets no signals: the kernel does not verify a program while one is
/// pending.
fn without_signals<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: all zeros is a valid set; the calls fill live sets, and the last one restores the thread's own.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &mut before);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        result
    }
}

/// A file of loaded programs and their maps.
#[derive(Debug)]
pub(super) struct Object(NonNull<sys::bpf_object>);

// SAFETY: libbpf's objects belong to no thread. Once loaded, this one is only asked for descriptors, and
// closed once.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the object is open, and nothing uses its descriptors afterwards.
        unsafe { sys::bpf_object__close(self.0.as_ptr()) }
    }
}

impl Object {
    /// Loads the programs, with those maps of the fast path that they have.
    pub(super) fn load(
        name: &'static CStr,
        bytes: &'static [u8],
        member: Option<&Member>,
    ) -> Result<Object, XdpError> {
        let failed = XdpError::at(LOAD);
        let used = offset_of!(sys::bpf_object_open_opts, relaxed_maps);
        let options =
            sys::bpf_object_open_opts { sz: used, object_name: name.as_ptr(), ..Default::default() };
        // SAFETY: the bytes are static; the options are live and carry their size.
        let (object, _) = log::capture(|| unsafe {
            sys::bpf_object__open_mem(bytes.as_ptr().cast(), bytes.len(), &raw const options)
        });
        let object =
            NonNull::new(object).map(Object).ok_or_else(|| failed(errno_of(&io::Error::last_os_error())))?;
        for (name, fd) in member.iter().flat_map(|member| member.path.maps()) {
            // SAFETY: the object is open; the map is one of its maps, or NULL.
            call(|| unsafe {
                let map = sys::bpf_object__find_map_by_name(object.0.as_ptr(), name.as_ptr());
                if map.is_null() { 0 } else { sys::bpf_map__reuse_fd(map, fd) }
            })
            .map_err(&failed)?;
        }
        // SAFETY: the object is open.
        without_signals(|| call(|| unsafe { sys::bpf_object__load(object.0.as_ptr()) })).map_err(failed)?;
        Ok(object)
    }

    /// The descriptor of a map; the object keeps it.
    pub(super) fn map(&self, name: &CStr) -> Result<c_int, XdpError> {
        // SAFETY: the object is open; an unknown map is NULL, which the outer function rejects.
        call(|| unsafe {
            sys::bpf_map__fd(sys::bpf_object__find_map_by_name(self.0.as_ptr(), name.as_ptr()))
        })
        .map_err(XdpError::at(ACCESS))
    }

    /// The descriptor of a program; the object keeps it.
    pub(super) fn program(&self, name: &CStr) -> Result<c_int, XdpError> {
        // SAFETY: as in `map`.
        call(|| unsafe {
            sys::bpf_program__fd(sys::bpf_object__find_program_by_name(self.0.as_ptr(), name.as_ptr()))
        })
        .map_err(XdpError::at(ACCESS))
    }
}
