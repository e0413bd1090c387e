//! The trait that stream functions implement.

use std::sync::Arc;

use bytemuck::Pod;
use mmb_flow::Direction;

use super::{StreamData, StreamEdit};
use crate::{ArgError, Background, Context, LineSource, Packet, SessionInfo, Setup, StreamVerdict};

/// A network function that reads the payload of sessions as streams of bytes. A value of the implementing
/// type is one instance, which all workers share.
///
/// Each direction of a session is a stream. Over TCP a function gets each byte once and in order, whatever
/// the segments were. Over UDP it gets the payload of each datagram, in the order of arrival. Packets of
/// other protocols pass.
///
/// A packet goes on when the functions have read it. What has gone on may come again, if it was lost behind
/// the middlebox; functions do not get it again.
pub trait StreamFunction: Send + Sync + Sized + 'static {
    /// See [`crate::Function::TYPE`].
    const TYPE: &'static str;
    /// See [`crate::Function::USAGE`].
    const USAGE: &'static str;
    /// See [`crate::Function::HELP`].
    const HELP: &'static str;
    /// See [`crate::Function::DROP_REASONS`].
    const DROP_REASONS: &'static [(&'static str, &'static str)] = &[];

    /// The function depends on the bytes, and not only on their number.
    ///
    /// Then a retransmission with other bytes is made to agree with those that the function has read. mmb
    /// keeps a copy of what the receiver has not acknowledged.
    const READS_CONTENT: bool = true;

    /// The function may change the bytes of TCP streams: [`StreamFunction::edit`] is called in the place of
    /// [`StreamFunction::data`].
    ///
    /// In a chain, it stands next to all other stream functions. Each of them reads what those in front have
    /// left of the stream. mmb keeps a copy of what the receiver has not acknowledged.
    const EDITS: bool = false;

    /// The function holds bytes back for as long as it needs, also behind the setting `stream-hold-time`: no
    /// receiver needs them before they are decided. The function bounds their number.
    const HOLDS_UNTIL_DECIDED: bool = false;

    /// Whether [`StreamFunction::packet`] is called. In a process, see [`StreamFunction::watches`].
    const SEES_PACKETS: bool = false;

    /// The state of a session: plain data, zeros at first, with an alignment of at most 8 bytes.
    type State: Pod;
    /// The state that each worker keeps for the instance.
    type Local: Default + Send + 'static;

    /// Makes an instance from the arguments behind its type.
    ///
    /// # Errors
    /// The argument that is wrong, and what is accepted.
    fn new(setup: &Setup<'_>) -> Result<Self, ArgError>;

    /// Makes the state of a worker, before the worker's first packet with the instance.
    fn local(&self) -> Self::Local {
        Self::Local::default()
    }

    /// Returns the traffic that the function accepts, as matches of the rule language: `tcp-sport`, or
    /// `udp-dport 53`. Empty: all.
    fn accepts(&self) -> String {
        String::new()
    }

    /// Returns the names of the outputs. With some, the function needs brackets in chains, and stands last
    /// among the stream functions: see [`StreamFunction::output`].
    fn outputs(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the output by which the packets of a session leave, in both directions. None: there is no
    /// decision yet, and packets pass by the brackets. In a process, it needs
    /// [`StreamFunction::SEES_PACKETS`] and [`StreamFunction::EDITS`].
    fn output(&self, state: &Self::State) -> Option<u8> {
        let _ = state;
        None
    }

    /// A session begins, or the instance has joined the chain of an existing session. The state is zeros.
    fn open(&self, state: &mut Self::State, session: &SessionInfo, cx: &mut Context<'_, Self::Local>) {
        let _ = (state, session, cx);
    }

    /// A packet of a session, also one without new bytes, before [`StreamFunction::data`] or
    /// [`StreamFunction::edit`] gets them. If the verdict is not to pass, neither of them is called, nor is
    /// `end`. Needs [`StreamFunction::SEES_PACKETS`].
    fn packet(
        &self,
        packet: &Packet<'_>,
        state: &mut Self::State,
        cx: &mut Context<'_, Self::Local>,
    ) -> StreamVerdict {
        let _ = (packet, state, cx);
        StreamVerdict::Pass
    }

    /// Reads new bytes of a stream. There is at least one.
    fn data(
        &self,
        data: &StreamData<'_, '_>,
        state: &mut Self::State,
        cx: &mut Context<'_, Self::Local>,
    ) -> StreamVerdict {
        let _ = (data, state, cx);
        StreamVerdict::Pass
    }

    /// Reads and changes bytes of a stream, if [`StreamFunction::EDITS`] is set. There is at least one byte.
    /// It may be one that the function has held back before, with no new one behind it, if the stream ends or
    /// [`StreamEdit::can_hold`] is false.
    fn edit(
        &self,
        data: &mut StreamEdit<'_, '_>,
        state: &mut Self::State,
        cx: &mut Context<'_, Self::Local>,
    ) -> StreamVerdict {
        let _ = (data, state, cx);
        StreamVerdict::Pass
    }

    /// A stream has ended with a FIN (TCP). Called after the last bytes, in front of the packet with the FIN.
    ///
    /// A session that ends in another manner is only [released](StreamFunction::release).
    fn end(
        &self,
        direction: Direction,
        state: &mut Self::State,
        cx: &mut Context<'_, Self::Local>,
    ) -> StreamVerdict {
        let _ = (direction, state, cx);
        StreamVerdict::Pass
    }

    /// A new connection begins with the addresses and ports of the one before, in the same session. The
    /// default clears the state.
    fn restart(&self, state: &mut Self::State, cx: &mut Context<'_, Self::Local>) {
        let _ = cx;
        *state = bytemuck::Zeroable::zeroed();
    }

    /// A session has ended, or the instance has left its chain.
    fn release(&self, state: &mut Self::State, session: &SessionInfo, cx: &mut Context<'_, Self::Local>) {
        let _ = (state, session, cx);
    }

    /// Whether bytes must not go on without the function: it has decided so about bytes that it holds back or
    /// that are repeated, or those that follow would mean something else than without its edits. If it leaves
    /// the chain of such a session, the connection is reset. For functions that edit.
    fn refuses(&self, state: &Self::State) -> bool {
        let _ = state;
        false
    }

    /// Whether packets of a session without anything new have to be seen. Asked about a new session, and
    /// behind each packet that the function has seen in a process: if not, such packets do not go there. For
    /// functions with [`StreamFunction::EDITS`] and [`StreamFunction::SEES_PACKETS`].
    fn watches(&self, state: &Self::State) -> bool {
        let _ = state;
        true
    }

    /// Returns the bytes of an answer to clients ([`crate::TakenOver::begin`]), by a number of the function's
    /// own. If the function runs in a process, the worker asks an instance with the same arguments. Empty:
    /// there is no such answer.
    fn answer(&self, number: u32) -> &[u8] {
        let _ = number;
        &[]
    }

    /// Returns the function as brokers use it, if they can: `Some(self)` of a [`crate::L7Handler`].
    fn l7(&self) -> Option<&dyn crate::DynL7> {
        None
    }

    /// Returns the names of the headers that the function adds to HTTP requests. A broker passes them on also
    /// if the client lists them in Connection, as headers of its connection only (RFC 9110, 7.6.1).
    fn request_headers(&self) -> Vec<Box<[u8]>> {
        Vec::new()
    }

    /// Returns what `show connections verbose` prints of a session.
    fn describe(&self, state: &Self::State) -> Option<String> {
        let _ = state;
        None
    }

    /// See [`crate::Function::set`].
    ///
    /// # Errors
    /// The argument that is wrong.
    fn set(&self, args: &[&str]) -> Result<(), ArgError> {
        let _ = args;
        Err(format!("a function of type `{}` has no settings", Self::TYPE).into())
    }

    /// See [`crate::Function::report`].
    fn report(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// See [`crate::Function::background`].
    fn background(&self) -> Option<Background> {
        None
    }

    /// Returns the lines that the function logs. If it has nothing else to do in the background, it can run
    /// in a process, whose lines the daemon writes.
    fn lines(&self) -> Option<Arc<dyn LineSource>> {
        None
    }
}
