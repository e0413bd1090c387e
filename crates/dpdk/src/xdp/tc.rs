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
//! A routed port has a twin in the kernel with the machine's addresses ([`TcPort::connect_twin`]). Connected
//! to it, the programs give it the packets to these addresses, and send what it sends. Otherwise the engine
//! does both.
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
use super::local::LocalAddresses;
use super::maps::{Mapped, errno_of};
use super::object::{ACCESS, Hook, Object, link};
use super::program::Steering;
use super::variables::TcVariables;
use crate::port::{TwinTraffic, set_option};

const ATTACH: &str = "attach its tc programs (Linux 6.6 or later is needed)";
const FILTER: &str = "filter its packet socket";

/// The attached programs.
#[derive(Debug)]
pub(super) struct TcProgram {
    state: Mapped<TcVariables>,
    socket: RawFd,
    _link: OwnedFd,
    local: LocalAddresses,
    /// The twin, and the attachment to it.
    twin: Option<(u32, OwnedFd)>,
    pub(super) object: Object,
}

impl TcProgram {
    /// Attaches the programs to the interface with that index and to the socket, which must stay open. They
    /// are not engaged.
    pub(super) fn attach(if_index: u32, socket: RawFd, member: &Member) -> Result<TcProgram, XdpError> {
        let object = Object::load(c"mmb_tc", sys::TC, Some(member))?;
        // SAFETY: the section holds these variables alone, and they consist of atomics.
        let state = unsafe { Mapped::<TcVariables>::map(object.map(c".bss")?, 1) }
            .map_err(|error| XdpError { step: ACCESS, errno: errno_of(&error) })?;
        if let Some(variables) = state.get(0) {
            variables.steer.join(member);
            variables.if_index.store(if_index, Ordering::Release);
        }
        let link =
            link(object.program(c"ingress")?, if_index, Hook::Ingress).map_err(XdpError::at(ATTACH))?;
        set_filter(socket, libc::SO_ATTACH_BPF, object.program(c"accept")?).map_err(XdpError::at(FILTER))?;
        Ok(TcProgram { state, socket, _link: link, local: LocalAddresses::default(), twin: None, object })
    }

    /// Whether the programs act from the next packet on.
    pub(super) fn engage(&self, engaged: bool) {
        if let Some(variables) = self.state.get(0) {
            variables.engaged.store(engaged.into(), Ordering::Release);
        }
    }

    /// Sets which frames are addressed to the port, and the machine's addresses. Packets to addresses for
    /// which there is no room pass through the engine.
    pub(super) fn steer(&mut self, steering: Option<&Steering>) {
        let Some(variables) = self.state.get(0) else { return };
        let local = steering.map_or(&[][..], |steering| &steering.local);
        let _ = self.local.replace(&self.object, local, || ());
        variables.steer.set_gate(steering);
    }

    /// Connects the interface to the twin with that index, or to none.
    pub(super) fn connect_twin(&mut self, twin: Option<u32>) -> Result<(), XdpError> {
        if self.twin.as_ref().map(|(index, _)| *index) == twin {
            return Ok(());
        }
        let Some(variables) = self.state.get(0) else { return Ok(()) };
        variables.twin.store(0, Ordering::Release);
        self.twin = None;
        if let Some(index) = twin {
            let link = link(self.object.program(c"from_twin")?, index, Hook::Egress);
            self.twin = Some((index, link.map_err(XdpError::at(ATTACH))?));
            variables.twin.store(index, Ordering::Release);
        }
        Ok(())
    }

    pub(super) fn twin_traffic(&self) -> TwinTraffic {
        self.state.get(0).map_or_else(TwinTraffic::default, TcVariables::twin_traffic)
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
    twin: Option<u32>,
    /// What programs that are gone have passed between interface and twin.
    passed: TwinTraffic,
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
            let passed = state.program.take().map(|program| program.twin_traffic());
            state.passed += passed.unwrap_or_default();
        } else if state.program.is_none() {
            state.discard = None;
            match self.attach(&state) {
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

    fn attach(&self, state: &State) -> Result<TcProgram, XdpError> {
        let member = match self.member.get() {
            Some(member) => member,
            None => {
                let member = Member::join(self.if_index)?;
                self.member.get_or_init(|| member)
            }
        };
        let mut program = TcProgram::attach(self.if_index, self.socket, member)?;
        program.steer(state.steering.as_ref());
        // A kernel that refuses it leaves the packets to the engine.
        let _ = program.connect_twin(state.twin);
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

    /// Sets which frames may take the fast path, and the machine's addresses; None: all frames may.
    pub(crate) fn steer(&self, steering: Option<&Steering>) {
        let mut state = self.state();
        state.steering = steering.cloned();
        if let Some(program) = &mut state.program {
            program.steer(steering);
        }
        self.update_discard(&mut state);
    }

    /// Sets the interface that exchanges packets for the machine itself with the port's interface while the
    /// programs are engaged, by its index; None: the engine does.
    pub(crate) fn connect_twin(&self, twin: Option<u32>) {
        let mut state = self.state();
        state.twin = twin;
        if let Some(program) = &mut state.program {
            // As in `attach`.
            let _ = program.connect_twin(twin);
        }
    }

    /// What has passed between the interface and twins.
    pub(crate) fn twin_traffic(&self) -> TwinTraffic {
        let state = self.state();
        let mut passed = state.passed;
        passed += state.program.as_ref().map(TcProgram::twin_traffic).unwrap_or_default();
        passed
    }
}
