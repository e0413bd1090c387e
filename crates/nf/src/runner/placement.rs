//! Where a function runs.
//!
//! Theory of operation. The runner reaches functions only through [`Placement`]. [`Local`] calls the function
//! in the worker's thread, [`Remote`] sends packets to a process. [`Place`] is one of them: one branch for a
//! vector at a function, and none for a packet.

mod remote;

use std::any::Any;
use std::sync::Arc;

use crate::instance::RawContext;
use crate::set::Set;
use crate::vector::RawVector;
use crate::{Admission, Instance, OpeningPacket, SessionId, SessionInfo};

pub(super) use remote::Remote;

/// Calls the methods of [`crate::Function`] wherever an instance runs.
pub(super) trait Placement {
    fn admit(&mut self, packet: &mut OpeningPacket<'_>) -> Admission;
    fn route(&mut self, packet: &OpeningPacket<'_>) -> Option<u8>;
    /// Returns the output that a stream function has chosen for a session.
    fn output(&self, pad: &[u8]) -> Option<u8>;
    fn open(&mut self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>);
    /// The session begins here, with the scratchpad that it had where the function ran before.
    fn open_moved(&mut self, pad: &mut [u8], session: &SessionInfo, moved: &[u8], cx: RawContext<'_>);
    /// Reads a scratchpad that is not among those of the session. Returns false if there is none.
    fn read_scratchpad(&self, session: SessionId, bytes: &mut [u8]) -> bool;
    fn release(&mut self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>);
    /// Processes packets. Returns the positions of those that do not pass.
    fn process(&mut self, vector: RawVector<'_, '_>) -> Set;
    /// Takes packets out of a group of stream functions. Returns the positions of those that do not pass.
    fn exit(&mut self, vector: RawVector<'_, '_>) -> Set;
    /// Processes packets that the function held. Returns the positions of those that do not pass.
    fn resume(&mut self, vector: RawVector<'_, '_>) -> Set;
}

/// The placement in the worker's thread.
pub(super) struct Local {
    instance: Arc<Instance>,
    /// The worker's state of the instance.
    state: Box<dyn Any + Send>,
}

impl Local {
    pub fn new(instance: Arc<Instance>) -> Local {
        let state = instance.function.local();
        Local { instance, state }
    }

    /// Gives the settings of streams to a stream context.
    pub fn set_streams(&mut self, streams: mmb_stream::Policy) {
        if let Some(state) = self.state.downcast_mut::<crate::stream::ContextState>() {
            state.policy = streams;
        }
    }
}

impl Placement for Local {
    fn admit(&mut self, packet: &mut OpeningPacket<'_>) -> Admission {
        self.instance.function.admit(packet, &mut *self.state)
    }

    fn route(&mut self, packet: &OpeningPacket<'_>) -> Option<u8> {
        self.instance.function.route(packet, &mut *self.state)
    }

    fn output(&self, pad: &[u8]) -> Option<u8> {
        self.instance.function.output(pad)
    }

    fn open(&mut self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>) {
        self.instance.function.open(pad, session, cx, &mut *self.state);
    }

    fn open_moved(&mut self, pad: &mut [u8], session: &SessionInfo, moved: &[u8], cx: RawContext<'_>) {
        self.open(pad, session, cx);
        if pad.len() == moved.len() {
            pad.copy_from_slice(moved);
        }
    }

    fn read_scratchpad(&self, _: SessionId, _: &mut [u8]) -> bool {
        false
    }

    fn release(&mut self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>) {
        self.instance.function.release(pad, session, cx, &mut *self.state);
    }

    #[inline(always)]
    fn process(&mut self, vector: RawVector<'_, '_>) -> Set {
        self.instance.function.vector(vector, &mut *self.state)
    }

    fn exit(&mut self, vector: RawVector<'_, '_>) -> Set {
        self.instance.function.exit(vector)
    }

    fn resume(&mut self, vector: RawVector<'_, '_>) -> Set {
        self.instance.function.resume(vector, &mut *self.state)
    }
}

/// The placement of an instance.
pub(super) enum Place {
    Local(Local),
    Remote(Box<Remote>),
}

impl Place {
    /// Returns the end of a function in a process.
    pub fn remote(&mut self) -> Option<&mut Remote> {
        match self {
            Place::Remote(remote) => Some(remote),
            Place::Local(_) => None,
        }
    }

    /// Returns the instance, if it runs in the worker.
    pub fn local_instance(&self) -> Option<&Instance> {
        match self {
            Place::Local(local) => Some(&local.instance),
            Place::Remote(_) => None,
        }
    }

    /// Gives the settings of streams to a stream context.
    pub fn set_streams(&mut self, streams: mmb_stream::Policy) {
        if let Place::Local(local) = self {
            local.set_streams(streams);
        }
    }
}

impl Placement for Place {
    fn admit(&mut self, packet: &mut OpeningPacket<'_>) -> Admission {
        match self {
            Place::Local(local) => local.admit(packet),
            Place::Remote(remote) => remote.admit(packet),
        }
    }

    fn route(&mut self, packet: &OpeningPacket<'_>) -> Option<u8> {
        match self {
            Place::Local(local) => local.route(packet),
            Place::Remote(remote) => remote.route(packet),
        }
    }

    fn output(&self, pad: &[u8]) -> Option<u8> {
        match self {
            Place::Local(local) => local.output(pad),
            Place::Remote(remote) => remote.output(pad),
        }
    }

    fn open(&mut self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>) {
        match self {
            Place::Local(local) => local.open(pad, session, cx),
            Place::Remote(remote) => remote.open(pad, session, cx),
        }
    }

    fn open_moved(&mut self, pad: &mut [u8], session: &SessionInfo, moved: &[u8], cx: RawContext<'_>) {
        match self {
            Place::Local(local) => local.open_moved(pad, session, moved, cx),
            Place::Remote(remote) => remote.open_moved(pad, session, moved, cx),
        }
    }

    fn read_scratchpad(&self, session: SessionId, bytes: &mut [u8]) -> bool {
        match self {
            Place::Local(local) => local.read_scratchpad(session, bytes),
            Place::Remote(remote) => remote.read_scratchpad(session, bytes),
        }
    }

    fn release(&mut self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>) {
        match self {
            Place::Local(local) => local.release(pad, session, cx),
            Place::Remote(remote) => remote.release(pad, session, cx),
        }
    }

    #[inline(always)]
    fn process(&mut self, vector: RawVector<'_, '_>) -> Set {
        match self {
            Place::Local(local) => local.process(vector),
            Place::Remote(remote) => remote.process(vector),
        }
    }

    fn exit(&mut self, vector: RawVector<'_, '_>) -> Set {
        match self {
            Place::Local(local) => local.exit(vector),
            Place::Remote(remote) => remote.exit(vector),
        }
    }

    fn resume(&mut self, vector: RawVector<'_, '_>) -> Set {
        match self {
            Place::Local(local) => local.resume(vector),
            Place::Remote(remote) => remote.resume(vector),
        }
    }
}
