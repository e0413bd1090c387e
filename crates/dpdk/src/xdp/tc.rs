//! The tc programs of AF_PACKET ports: the fast path for socket buffers.
//!
//! # Theory of operation
//! The programs (bpf/tc.c) forward packets of settled flows as the kernel has received them: buffers of up to
//! 64 KiB stay whole. XDP takes away the segmentation offload of a veth's peer; tc does not.
//!
//! The kernel gives a packet to the port's socket before tc. So a filter on the socket refuses it, the
//! program at ingress decides, and what is for the engine is received a second time, with a mark that the
//! filter accepts. While the programs are not engaged, the port is as without them. Nothing is pinned:
//! attachments and filter end with the process.
//!
//! A routed port without these programs has another one ([`DiscardProgram`]). Both are never attached at the
//! same time: what the other one drops would not come a second time.

use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use mmb_dpdk_sys as sys;

use super::discard::DiscardProgram;
use super::error::XdpError;
use super::fast_path::Member;
use super::maps::{Mapped, errno_of};
use super::object::{ACCESS, Hook, Object, link};
use super::program::Steering;
use super::variables::TcVariables;
use crate::port::set_option;

const ATTACH: &str = "attach its tc programs (Linux 6.6 or later is needed)";
const FILTER: &str = "filter its packet socket";

/// The attached programs. Link and socket keep them when the object is closed.
#[derive(Debug)]
pub(super) struct TcProgram {
    state: Mapped<TcVariables>,
    socket: RawFd,
    _link: OwnedFd,
    #[cfg(test)]
    pub(super) object: Object,
}

impl TcProgram {
    /// Attaches the programs to the interface with that index and to the socket, which must stay open. They
    /// are not engaged.
    pub(super) fn attach(
        if_index: u32,
        socket: RawFd,
        member: &Member,
        steering: Option<&Steering>,
    ) -> Result<TcProgram, XdpError> {
        let object = Object::load(c"mmb_tc", sys::TC, Some(member))?;
        // SAFETY: the section holds these variables alone, and they consist of atomics.
        let state = unsafe { Mapped::<TcVariables>::map(object.map(c".bss")?, 1) }
            .map_err(|error| XdpError { step: ACCESS, errno: errno_of(&error) })?;
        if let Some(variables) = state.get(0) {
            variables.steer.join(member);
            variables.steer.set_gate(steering);
            variables.if_index.store(if_index, Ordering::Release);
        }
        let link =
            link(object.program(c"ingress")?, if_index, Hook::Ingress).map_err(XdpError::at(ATTACH))?;
        set_filter(socket, libc::SO_ATTACH_BPF, object.program(c"accept")?).map_err(XdpError::at(FILTER))?;
        Ok(TcProgram {
            state,
            socket,
            _link: link,
            #[cfg(test)]
            object,
        })
    }

    /// Whether the programs act from the next packet on.
    pub(super) fn engage(&self, engaged: bool) {
        if let Some(variables) = self.state.get(0) {
            variables.engaged.store(engaged.into(), Ordering::Release);
        }
    }

    pub(super) fn steer(&self, steering: Option<&Steering>) {
        if let Some(variables) = self.state.get(0) {
            variables.steer.set_gate(steering);
        }
    }
}

impl Drop for TcProgram {
    fn drop(&mut self) {
        self.engage(false);
        // Fails if the socket was closed; then the filter is gone with it.
        let _ = set_filter(self.socket, libc::SO_DETACH_FILTER, 0);
    }
}

/// Attaches a program to a socket, or detaches its program.
fn set_filter(socket: RawFd, option: i32, program: RawFd) -> Result<(), i32> {
    set_option(socket, libc::SOL_SOCKET, option, &program).map_err(|error| errno_of(&error))
}

/// The fast path of an AF_PACKET port, which is made when it is wanted first.
#[derive(Debug)]
pub(crate) struct TcPort {
    if_index: u32,
    socket: RawFd,
    member: OnceLock<Member>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    program: Option<TcProgram>,
    steering: Option<Steering>,
    /// Attached while the port is routed and `program` is not there.
    discard: Option<DiscardProgram>,
    error: Option<XdpError>,
}

impl TcPort {
    /// For the interface with that index and the packet socket on it.
    pub(crate) fn new(if_index: u32, socket: RawFd) -> TcPort {
        TcPort { if_index, socket, member: OnceLock::new(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Engages the programs, or removes them. Returns whether they are engaged; [`TcPort::error`] has the
    /// reason if they should be and are not.
    pub(crate) fn engage(&self, engaged: bool) -> bool {
        let mut state = self.state();
        state.error = None;
        if !engaged {
            state.program = None;
        } else if state.program.is_none() {
            state.discard = None;
            match self.attach(state.steering.as_ref()) {
                Ok(program) => state.program = Some(program),
                Err(error) => state.error = Some(error),
            }
        }
        self.update_discard(&mut state);
        state.program.is_some()
    }

    /// Attaches the program that spares the kernel's stack the packets of a routed port, or removes it.
    fn update_discard(&self, state: &mut State) {
        let is_wanted = state.steering.is_some() && state.program.is_none();
        if !is_wanted {
            state.discard = None;
        } else if state.discard.is_none() {
            // A kernel that refuses it drops the packets later.
            state.discard = DiscardProgram::attach(self.if_index).ok();
        }
    }

    fn attach(&self, steering: Option<&Steering>) -> Result<TcProgram, XdpError> {
        let member = match self.member.get() {
            Some(member) => member,
            None => {
                let member = Member::join(self.if_index)?;
                self.member.get_or_init(|| member)
            }
        };
        let program = TcProgram::attach(self.if_index, self.socket, member, steering)?;
        program.engage(true);
        Ok(program)
    }

    /// Whether the programs are engaged.
    pub(crate) fn is_engaged(&self) -> bool {
        self.state().program.is_some()
    }

    /// The port's membership in the fast path, once it had one.
    pub(crate) fn member(&self) -> Option<&Member> {
        self.member.get()
    }

    /// Why the programs could not be engaged.
    pub(crate) fn error(&self) -> Option<XdpError> {
        self.state().error
    }

    /// Sets which frames may take the fast path; None: all.
    pub(crate) fn steer(&self, steering: Option<&Steering>) {
        let mut state = self.state();
        state.steering = steering.map(|steering| Steering { mac: steering.mac, local: Vec::new() });
        if let Some(program) = &state.program {
            program.steer(steering);
        }
        self.update_discard(&mut state);
    }
}
