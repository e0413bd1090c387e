//! The placement in a process of its own.
//!
//! Theory of operation. Packets are copied to the process and held under a ticket. Between two vectors, the
//! runner takes verdicts back ([`RunnerState::poll_processes`]). Each one releases its packet, which goes on
//! behind the function as any released packet does; the verdict is applied there, after the changed bytes are
//! copied back. If the next function runs in a process of the same domain, it gets the buffer as it is
//! ([`Remote::detach_buffer`]), and the bytes are copied back behind the last one. The worker never waits,
//! but for a moment when the program changes. A session that leaves the function drops its packets, and
//! their buffers are freed once the process has returned them.
//!
//! To a stream function, packets go in the order of their bytes, with their views. Those without anything new
//! do not go there, unless others of their session and direction are away. What comes back is applied where
//! the packet goes on ([`apply_returned`]).
//!
//! Functions of a group of which one edits are between a stream context and an exit, as in the worker. The
//! memory of edits stays here: see [`apply_edited`]. If those in front of a function have changed the bytes
//! of a packet, its process gets what they have left ([`Remote::send_edited`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Zeroable;
use mmb_flow::Direction;
use mmb_packet::{DropReason, Kind};
use mmb_stream::View;

use super::{Local, Place, Placement};
use crate::context::{Emissions, Holding, keep};
use crate::held::{HeldPackets, PlaceRoom};
use crate::instance::RawContext;
use crate::process::{EditRights, FilledBuffer, FunctionProcess, LinkState, ProcessLink, ProcessVerdict};
use crate::program::ir::GroupPlace;
use crate::runner::state::{InstanceState, RunnerState};
use crate::set::{Set, VECTOR};
use crate::stream::{
    AnswerState, EditMemory, EditingOwner, Otherwise, Returned, TAIL, apply_edited, apply_returned,
    lose_edited, reason_of, unsent,
};
use crate::vector::{RawVector, scratchpad};
use crate::{
    Admission, Context, Instance, OnFailure, OpeningPacket, Packet, Program, SessionId, SessionInfo,
    StreamVerdict, Verdict,
};

/// How long a worker waits for processes when the program changes.
const DRAIN: Duration = Duration::from_millis(2);
/// The part of the buffers that is kept for segments that a stream context releases: other workers and
/// functions may use the same ones.
const KEPT_BUFFERS: u32 = 8;

/// The worker's end of a function in a process.
pub(in crate::runner) struct Remote {
    /// Answers what cannot wait.
    shadow: Local,
    /// None: the process has no scratchpads for the sessions of the worker.
    link: Option<Box<dyn ProcessLink>>,
    state: LinkState,
    /// Ticket of the packet in each buffer.
    tickets: Vec<u32>,
    /// Buffers with the packets of the next vector, by the positions of their packets.
    filled: Box<[Option<FilledBuffer>; VECTOR]>,
    is_stream: bool,
    /// The function edits itself.
    edits: bool,
    /// The function sees packets, and those of a new session without anything new.
    sees_packets: bool,
    watches_new: bool,
    on_failure: OnFailure,
    /// What has come back of the packets of the next vector that goes on.
    returned: Box<[Returned; VECTOR]>,
}

impl Remote {
    pub fn new(
        instance: &Arc<Instance>,
        process: &Arc<dyn FunctionProcess>,
        (worker, sessions): (u16, u32),
    ) -> Remote {
        let mut link = process.link(worker, sessions);
        let buffers = link.as_ref().map_or(0, |link| link.buffers());
        // The next vector may come before the runner looks at processes.
        let state = link.as_mut().map_or(LinkState::Down(OnFailure::Drop), |link| link.poll());
        Remote {
            shadow: Local::new(instance.clone()),
            link,
            state,
            tickets: vec![0; buffers as usize],
            filled: Box::new([None; VECTOR]),
            is_stream: instance.function.is_stream(),
            edits: instance.function.edits(),
            sees_packets: instance.function.sees_packets(),
            watches_new: instance.function.watches(&vec![0; instance.bytes()]),
            on_failure: instance.domain().map_or(OnFailure::Drop, |domain| domain.on_failure),
            returned: Box::new([Returned::LOST; VECTOR]),
        }
    }

    /// Returns the number of the buffers that packets can be sent in now. None: there is no process.
    pub fn pool_id(&self) -> Option<usize> {
        self.link.as_ref().filter(|_| self.state == LinkState::Up).map(|link| link.pool_id())
    }

    /// Gives up the buffer of a packet that came back, for the next function.
    pub fn detach_buffer(&mut self, buffer: u32) -> Option<FilledBuffer> {
        self.link.as_mut()?.detach_buffer(buffer)
    }

    /// Takes over the buffer of the packet at a position, which the function gets next.
    pub fn set_filled(&mut self, i: usize, filled: FilledBuffer) {
        self.filled[i & (VECTOR - 1)] = Some(filled);
    }

    /// Returns the room that a stream context may give to packets.
    pub fn room(&mut self) -> PlaceRoom {
        let (left, kept, reason) = match (self.state, &mut self.link) {
            (LinkState::Up, Some(link)) => {
                let kept = link.buffers() / KEPT_BUFFERS;
                (link.room().saturating_sub(kept), kept, DropReason::ProcessFull)
            }
            (LinkState::Down(OnFailure::Pass), Some(_)) => (u32::MAX, 0, DropReason::ProcessFailed),
            _ => (0, 0, DropReason::ProcessFailed),
        };
        PlaceRoom { left, kept, reason }
    }

    /// Notes what has come back of the packet at a position, which goes on.
    pub fn set_returned(&mut self, i: usize, returned: Returned) {
        self.returned[i & (VECTOR - 1)] = returned;
    }

    /// Sends a packet of a group that edits, with the bytes that functions in front have left of it.
    fn send_edited(
        &mut self,
        i: usize,
        (packet, input): (&mut Packet<'_>, Input),
        now: u32,
        (memory, holding): (&mut EditMemory, &mut Holding<'_>),
    ) -> Verdict {
        let mut rights = memory.rights(i);
        if self.sees_packets {
            let place = holding.place(packet);
            let is_answerable = memory.answer_numbers(i).is_some_and(|numbers| numbers.is_settled);
            let lacks = holding.held.held_of(place, Direction::Reverse) != 0
                || holding.held.has_pending(place, Direction::Reverse);
            rights.may_answer = is_answerable && !lacks;
        }
        let input = Input { rights: Some(rights), ..input };
        if rights.changed.is_none() {
            return self.send(i, (packet, input), now, holding);
        }
        let Some(rope) = memory.park(i, packet, input.whole) else {
            return Verdict::Drop(DropReason::HeldFull);
        };
        let mut frame = std::mem::take(&mut memory.work.frame);
        let mut meta = memory.write_changed(i, packet, input.whole, &mut frame);
        let mut changed = Packet {
            len: frame.len() as u32,
            head: &mut frame,
            tail: None,
            meta: &mut meta,
            segment_size: 0,
            in_port: packet.in_port,
            direction: packet.direction,
            session: packet.session,
        };
        let verdict = self.send(i, (&mut changed, input), now, holding);
        memory.work.frame = frame;
        if verdict == Verdict::Hold {
            packet.meta.stage = meta.stage;
            holding.held.set_rope(meta.stage.ticket(), rope);
        } else {
            memory.parked.remove(rope);
        }
        verdict
    }

    /// Sends a packet to the process, or returns what becomes of it otherwise.
    fn send(
        &mut self,
        i: usize,
        (packet, input): (&mut Packet<'_>, Input),
        now: u32,
        holding: &mut Holding<'_>,
    ) -> Verdict {
        let (place, direction) = (holding.place(packet), packet.direction);
        let Input { view, whole, rights, .. } = input;
        let filled = self.filled[i & (VECTOR - 1)].take();
        let Some(link) = &mut self.link else { return Verdict::Drop(DropReason::ProcessFailed) };
        // What stream functions read was noted, and has its room: see [`ProcessRoom`].
        let has_share = self.is_stream || holding.held.has_share(place.state, 0);
        let has_room = has_share && holding.held.fits_in_process(holding.held.len_of(place), 0);
        if let Some(filled) = filled.filter(|_| self.state != LinkState::Up || !has_room) {
            link.free_detached(filled);
        }
        let is_away = |held: &HeldPackets| held.held_of(place, direction) != 0;
        match self.state {
            LinkState::Down(OnFailure::Drop) => return Verdict::Drop(DropReason::ProcessFailed),
            LinkState::Up if !self.is_stream || !view.is_none() || input.is_watched => {}
            LinkState::Up if is_away(holding.held) => {}
            state => {
                let ticket = match rights {
                    Some(rights) => {
                        let is_lost = state != LinkState::Up && !view.is_none();
                        let passed = ProcessVerdict::Stream(StreamVerdict::Pass);
                        let returned = if is_lost { ProcessVerdict::Lost } else { passed };
                        holding.held.follow_edited(place, direction, (whole, rights), returned)
                    }
                    None => holding.held.follow(place, direction, Some(Verdict::Pass)),
                };
                return ticket.map_or(Verdict::Pass, |ticket| keep(packet, ticket));
            }
        }
        if !has_room {
            return Verdict::Drop(DropReason::HeldFull);
        }
        let rights = rights.unwrap_or(EditRights::NONE);
        let buffer = match link.send(packet, (view, rights), now, filled) {
            Ok(buffer) => buffer,
            Err(verdict) => return verdict,
        };
        let ticket = holding.held.hold_in_process(place, direction, (buffer, whole, rights));
        if let (Ok(ticket), Some(of_buffer)) = (ticket, self.tickets.get_mut(buffer as usize)) {
            *of_buffer = ticket;
        }
        keep(packet, ticket)
    }

    /// Takes verdicts back, and releases their packets. `state`: the index of the instance's state.
    fn poll(&mut self, held: &mut HeldPackets, state: u32) {
        let Some(link) = &mut self.link else { return };
        self.state = link.poll();
        while let Some((buffer, verdict)) = link.receive() {
            let verdict = match (verdict, self.is_stream) {
                (ProcessVerdict::Packet(_), true) => ProcessVerdict::Lost,
                (ProcessVerdict::Stream(_), false) => {
                    ProcessVerdict::Packet(Verdict::Drop(DropReason::ProcessInvalid))
                }
                (ProcessVerdict::Lost, false) => ProcessVerdict::Packet(match self.on_failure {
                    OnFailure::Pass => Verdict::Pass,
                    OnFailure::Drop => Verdict::Drop(DropReason::ProcessFailed),
                }),
                (verdict, _) => verdict,
            };
            let ticket = self.tickets.get(buffer as usize).copied().unwrap_or(u32::MAX);
            if !held.return_from_process(ticket, state, buffer, verdict) {
                link.free(buffer);
            }
        }
        link.flush();
    }

    /// Looks at what is known of a packet's session in front of a function that sees packets. Returns the
    /// verdict if its client is answered, and whether the packet is seen in any case.
    fn look(
        &mut self,
        packet: &Packet<'_>,
        view: View,
        (pads, base, offset): (&mut [u8], u32, usize),
        mut cx: Context<'_, ()>,
    ) -> (Option<Verdict>, bool) {
        let Some(state) = scratchpad::<AnswerState>(pads, base, offset + TAIL).filter(|_| self.edits) else {
            return (None, true);
        };
        if view.is_restart {
            cx.holding.held.end_takeover(packet.session.0);
            *state = AnswerState::zeroed();
        }
        let verdict = state.packet(packet, &*self.shadow.instance.function, &mut cx);
        (verdict, state.is_watched(self.watches_new))
    }

    /// Copies what the function has changed back into a packet.
    pub fn copy_back(&mut self, buffer: u32, packet: &mut Packet<'_>) -> Result<(), DropReason> {
        self.link.as_mut().map_or(Err(DropReason::ProcessFailed), |link| link.copy_back(buffer, packet))
    }
}

/// What a stream function gets of a packet.
#[derive(Clone, Copy)]
struct Input {
    view: View,
    /// What it would get if it read the session.
    whole: View,
    /// The packet is seen, also if nothing of it is new.
    is_watched: bool,
    /// Some: the function belongs to a group that edits.
    rights: Option<EditRights>,
}

/// Does what becomes of a packet with new bytes of a group that edits, which cannot be sent to a process.
/// `verdict`: that on a packet of which nothing is noted.
#[cold]
fn unsent_edited(
    (packet, at): (&Packet<'_>, usize),
    view: View,
    (verdict, otherwise): (Verdict, Otherwise),
    (place, group): ((&mut [u8], u32, usize), GroupPlace),
    out: (&mut EditMemory, &mut Emissions),
) -> Verdict {
    match packet.meta.kind.l4() {
        Kind::TCP => lose_edited((packet, at), view, otherwise, (place, group), out),
        _ => verdict,
    }
}

impl Placement for Remote {
    fn admit(&mut self, packet: &mut OpeningPacket<'_>) -> Admission {
        self.shadow.admit(packet)
    }

    fn route(&mut self, packet: &OpeningPacket<'_>) -> Option<u8> {
        self.shadow.route(packet)
    }

    fn output(&self, pad: &[u8]) -> Option<u8> {
        let state = pad.get(TAIL..).filter(|_| self.edits && self.sees_packets)?;
        bytemuck::try_pod_read_unaligned::<AnswerState>(state).ok()?.output()
    }

    fn open(&mut self, _: &mut [u8], session: &SessionInfo, _: RawContext<'_>) {
        if let Some(link) = &mut self.link {
            link.open(session, None);
        }
    }

    fn open_moved(&mut self, _: &mut [u8], session: &SessionInfo, moved: &[u8], _: RawContext<'_>) {
        if let Some(link) = &mut self.link {
            link.open(session, Some(moved));
        }
    }

    fn read_scratchpad(&self, session: SessionId, bytes: &mut [u8]) -> bool {
        self.link.as_ref().is_some_and(|link| link.read_scratchpad(session, bytes))
    }

    fn release(&mut self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>) {
        if let (true, Some(&tail), Some(memory)) = (self.edits, pad.first_chunk(), cx.edits) {
            memory.remove_tail(u32::from_ne_bytes(tail));
        }
        if let Some(link) = &mut self.link {
            link.release(session);
        }
    }

    fn process(&mut self, vector: RawVector<'_, '_>) -> Set {
        let RawVector { packets, at, verdicts, views, now, mut holding, mut events, group, .. } = vector;
        let mut memory = vector.edits;
        for i in at.iter() {
            let Some(packet) = packets.get_mut(i) else { break };
            let n = i & (VECTOR - 1);
            let is_read = self.is_stream && views[n].detached & group.bit == 0;
            let view = if is_read { views[n] } else { View::NONE };
            let mut input = Input { view, whole: views[n], is_watched: false, rights: None };
            if self.sees_packets && is_read {
                let (worker, place) = (vector.worker, (&mut *vector.pads, vector.bases[n], vector.offset));
                let (emissions, holding) = (&mut *vector.emissions, Holding::new(&mut *holding.held));
                let (at, ingress) = (Some(i as u8), u16::MAX);
                let cx = Context { now, worker, local: &mut (), emissions, at, ingress, holding };
                let (answered, is_watched) = self.look(packet, views[n], place, cx);
                input.is_watched = is_watched;
                if let Some(verdict) = answered {
                    verdicts[n] = verdict;
                    events.insert(i);
                    continue;
                }
            }
            let mut verdict = match memory.as_deref_mut() {
                Some(memory) => self.send_edited(i, (&mut *packet, input), now, (memory, &mut holding)),
                None => self.send(i, (&mut *packet, input), now, &mut holding),
            };
            let is_unsent = verdict != Verdict::Hold || self.state != LinkState::Up;
            if is_read && !view.is_none() && is_unsent {
                verdict = match memory.as_deref_mut() {
                    // What follows others is lost behind them.
                    Some(_) if verdict == Verdict::Hold => verdict,
                    Some(memory) => {
                        let place = ((&mut *vector.pads, vector.bases[n], vector.offset), group);
                        let out = (memory, &mut *vector.emissions);
                        let (on_failure, edits) = (self.on_failure, self.edits);
                        let otherwise = Otherwise { on_failure, edits, reason: reason_of(verdict) };
                        unsent_edited((packet, i), view, (verdict, otherwise), place, out)
                    }
                    None => {
                        let place = (&mut *vector.pads, vector.bases[n], group);
                        let otherwise = (verdict, self.on_failure);
                        unsent((packet, i), view, otherwise, place, vector.emissions)
                    }
                };
            }
            if verdict != Verdict::Pass {
                verdicts[i & (VECTOR - 1)] = verdict;
                events.insert(i);
            }
        }
        if let Some(link) = &mut self.link {
            link.flush();
        }
        events
    }

    fn exit(&mut self, _: RawVector<'_, '_>) -> Set {
        Set::EMPTY
    }

    /// Stream functions: what has come back is applied.
    fn resume(&mut self, vector: RawVector<'_, '_>) -> Set {
        let Remote { link, returned, on_failure, shadow, .. } = self;
        if vector.edits.is_some() {
            let owner = EditingOwner { on_failure: *on_failure, shadow: &*shadow.instance.function };
            return apply_edited(vector, returned, owner, |buffer, result| {
                if let Some(link) = link {
                    link.read_result(buffer, result);
                }
            });
        }
        if self.is_stream { apply_returned(vector, returned, *on_failure) } else { Set::EMPTY }
    }
}

impl RunnerState {
    /// Whether processes have packets, or events of sessions.
    pub fn has_packets_in_processes(&self) -> bool {
        self.states.iter().flatten().any(|state| match &state.placement {
            Place::Remote(remote) => remote.link.as_ref().is_some_and(|link| link.in_flight() > 0),
            Place::Local(_) => false,
        })
    }

    /// Waits for a short time until processes whose functions are not in a program have returned their
    /// packets. So their scratchpads can be read when sessions move. To be called when the program changes.
    #[cold]
    pub fn drain_processes(&mut self, program: &Program) {
        let begin = Instant::now();
        let is_leaving = |state: &InstanceState| {
            program.instances.iter().all(|instance| instance.uid != state.instance.uid)
        };
        loop {
            self.poll_processes();
            let mut leaving = self.states.iter_mut().flatten().filter(|state| is_leaving(state));
            let has_packets = leaving.any(|state| {
                let remote = state.placement.remote();
                remote.is_some_and(|remote| {
                    remote.state == LinkState::Up
                        && remote.link.as_ref().is_some_and(|link| link.in_flight() > 0)
                })
            });
            if !has_packets || begin.elapsed() > DRAIN {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Takes packets back from processes. To be called between two vectors.
    #[cold]
    pub fn poll_processes(&mut self) {
        let RunnerState { states, held, edits, .. } = self;
        while let Some(rope) = held.pop_unused_rope() {
            if let Some(memory) = edits {
                memory.parked.remove(rope);
            }
        }
        while let Some((state, buffer)) = held.pop_unused_buffer() {
            let state = states.get_mut(state as usize).and_then(Option::as_mut);
            if let Some(link) = state.and_then(|state| state.placement.remote()?.link.as_mut()) {
                link.free(buffer);
            }
        }
        for (at, state) in states.iter_mut().enumerate() {
            if let Some(remote) =
                state.as_mut().and_then(|state: &mut InstanceState| state.placement.remote())
            {
                remote.poll(held, at as u32);
            }
        }
    }
}
