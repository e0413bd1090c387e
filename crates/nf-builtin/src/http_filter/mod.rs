//! `http-filter`: allows, blocks, redirects or resets HTTP requests by rules.
//!
//! Theory of operation. A head waits until it is complete. Then the first rule that matches decides
//! ([`decide`]). The parts of a head that rules compare are kept in a slot of the worker's slab, so that each
//! byte is read once. A head that is not allowed never goes on: the client gets an answer that mmb makes, and
//! the server a reset ([`mmb_nf::TakenOver`]).
//!
//! The answer to a pipelined request has to follow the responses to those in front of it. Until the client
//! has them, what comes behind the request is dropped.

mod broker;
mod decide;
mod rules;
mod slab;

use bytemuck::{Pod, Zeroable};
use mmb_http::{Cause, Connection, Event};

use self::broker::BrokerCounters;
use self::decide::Decision;
use self::rules::Rules;
use self::slab::Slab;
use crate::shared::http::{CauseCounters, has_joined};
use crate::shared::http_rules::Answer;
use mmb_nf::tcp_segment::FIN;
use mmb_nf::{
    ArgError, Context, Direction, DropReason, DynL7, Packet, SessionInfo, Setup, StreamEdit, StreamFunction,
    StreamVerdict, TakenOver, WorkerCounters,
};

const USAGE: &str = "[errors reject|pass] [page FILE] allow|block|redirect URL|reset \
                     [method M] [host PATTERN] [path PATTERN] [header NAME PATTERN] [cookie NAME PATTERN] [type PATTERN] …";

const REQUESTS: usize = 0;
const BLOCKED: usize = 1;
const REDIRECTED: usize = 2;
const RESET: usize = 3;
const NO_ROOM: usize = 4;
const NOT_HELD: usize = 5;
const COUNTERS: [&str; 6] =
    ["requests", "blocked", "redirected", "reset", "connections without room", "heads that did not wait"];

/// The numbers of answers. The answers of rules follow.
const BAD_REQUEST: u16 = 0;
const TOO_LARGE: u16 = 1;
const OF_RULES: u16 = 2;

/// See the module's documentation.
pub(crate) struct HttpFilter {
    rules: Rules,
    /// By their numbers.
    error_answers: [Answer; OF_RULES as usize],
    totals: WorkerCounters<{ COUNTERS.len() }>,
    in_brokers: BrokerCounters,
    causes: CauseCounters,
    blocked: DropReason,
    invalid: DropReason,
}

/// A session.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct State {
    /// In [`Phase::Answered`], a [`TakenOver`] is in its place.
    connection: Connection,
    /// Bytes that wait, by direction.
    held: [u32; 2],
    /// The slots of the heads that are being read, by direction. 0: none.
    slots: [u16; 2],
    /// The number of the answer that the client gets.
    answer: u16,
    /// The request that is answered is HEAD.
    is_head: u8,
    /// A [`Phase`].
    phase: u8,
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// It is read.
    Read,
    /// A request will be answered when it is the only one without a response.
    Request,
    /// A malformed request will be answered when there is none without a response.
    Malformed,
    /// A response will be replaced when the client has what was sent before.
    Response,
    /// The client is answered.
    Answered,
}

impl State {
    #[inline]
    fn phase(&self) -> Phase {
        let all = [Phase::Read, Phase::Request, Phase::Malformed, Phase::Response, Phase::Answered];
        all.get(usize::from(self.phase)).copied().unwrap_or(Phase::Answered)
    }

    /// Whether the response that comes next is the one that mmb makes.
    fn is_next(&self, phase: Phase) -> bool {
        match phase {
            Phase::Request => self.connection.unanswered() == 1,
            Phase::Malformed => self.connection.unanswered() == 0,
            Phase::Response => true,
            Phase::Read | Phase::Answered => false,
        }
    }

    fn free(&mut self, slab: &mut Slab) {
        self.slots.iter_mut().for_each(|slot| slab.remove(std::mem::take(slot)));
    }

    /// Returns the number of the answer, and whether the request is HEAD, as one number.
    fn answer_number(&self) -> u32 {
        u32::from(self.answer) << 1 | u32::from(self.is_head != 0)
    }

    fn taken(&self) -> TakenOver {
        let bytes = bytemuck::bytes_of(&self.connection);
        bytemuck::pod_read_unaligned(bytes.get(..size_of::<TakenOver>()).unwrap_or(&[]))
    }

    fn set_taken(&mut self, taken: TakenOver) {
        let bytes = bytemuck::bytes_of_mut(&mut self.connection);
        if let Some(place) = bytes.first_chunk_mut() {
            *place = bytemuck::cast::<_, [u8; size_of::<TakenOver>()]>(taken);
        }
        self.phase = Phase::Answered as u8;
    }
}

const _: () = assert!(size_of::<Connection>() >= size_of::<TakenOver>());

impl StreamFunction for HttpFilter {
    const TYPE: &'static str = "http-filter";
    const USAGE: &'static str = USAGE;
    const HELP: &'static str =
        "allows, blocks, redirects or resets HTTP requests by the first rule that matches";
    const DROP_REASONS: &'static [(&'static str, &'static str)] = &[
        ("http-blocked", "a rule of a function `http-filter` does not allow the request or response"),
        ("http-invalid", "a function `http-filter` has rejected a malformed HTTP message"),
    ];
    const EDITS: bool = true;
    const HOLDS_UNTIL_DECIDED: bool = true;
    const SEES_PACKETS: bool = true;

    type State = State;
    type Local = Slab;

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(HttpFilter {
            rules: Rules::parse(setup)?,
            error_answers: [Answer::bad_request(), Answer::too_large()],
            totals: WorkerCounters::new(setup.workers),
            in_brokers: BrokerCounters::default(),
            causes: CauseCounters::new(setup.workers),
            blocked: setup.drop_reason("http-blocked"),
            invalid: setup.drop_reason("http-invalid"),
        })
    }

    fn accepts(&self) -> String {
        "tcp-sport".to_owned()
    }

    fn open(&self, state: &mut State, session: &SessionInfo, cx: &mut Context<'_, Slab>) {
        if has_joined(session, cx.now) {
            self.causes.count(cx.worker, Cause::Joined);
            state.connection.give_up(Cause::Joined);
        }
    }

    #[inline]
    fn packet(&self, packet: &Packet<'_>, state: &mut State, cx: &mut Context<'_, Slab>) -> StreamVerdict {
        match state.phase() {
            Phase::Read => StreamVerdict::Pass,
            Phase::Answered => self.answered(packet, state, cx),
            phase => self.wait(phase, packet, state, cx),
        }
    }

    fn edit(
        &self,
        data: &mut StreamEdit<'_, '_>,
        state: &mut State,
        cx: &mut Context<'_, Slab>,
    ) -> StreamVerdict {
        let direction = data.direction() as usize & 1;
        let phase = state.phase();
        if phase != Phase::Read && (direction == 0 || phase == Phase::Response) {
            return self.stop_from(0, data, state);
        }
        // Where the head that is being read begins. None: it has gone on, or no head is being read.
        let mut start = (data.held() != 0 && data.held() == state.held[direction] as usize).then_some(0);
        let (mut skip, mut at) = (data.held(), data.held());
        'bytes: for chunk in data.chunks() {
            let mut bytes = chunk.get(skip..).unwrap_or(&[]);
            skip = skip.saturating_sub(chunk.len());
            while !bytes.is_empty() || !state.connection.is_idle(direction) {
                if start.is_none() && state.connection.is_idle(direction) {
                    start = Some(at);
                }
                let (len, event) = state.connection.next(direction, bytes);
                (at, bytes) = (at + len, bytes.get(len..).unwrap_or(&[]));
                let decision = match event {
                    Event::Opaque(_) => break 'bytes,
                    Event::More => break,
                    Event::Invalid(cause) => self.reject(cause, direction, start.is_some(), state, cx),
                    event if direction == 0 => self.request(&event, state, cx),
                    event => self.response(&event, state, cx),
                };
                if decision != Decision::Pass {
                    return self.stop(decision, start, data, state, cx);
                }
                if let Event::Head(_) = event {
                    start = None;
                }
            }
        }
        if state.connection.given_up().is_some() || direction == 1 && !self.rules.read_responses {
            start = None;
        }
        match (self.hold(start, data, state, cx), state.connection.given_up()) {
            (StreamVerdict::Pass, Some(_)) => StreamVerdict::Detach,
            (verdict, _) => verdict,
        }
    }

    fn end(&self, direction: Direction, state: &mut State, cx: &mut Context<'_, Slab>) -> StreamVerdict {
        if state.phase() == Phase::Read
            && let Some(Event::Invalid(cause)) = state.connection.end(direction as usize)
        {
            self.give_up(cause, state, cx);
        }
        StreamVerdict::Pass
    }

    fn restart(&self, state: &mut State, cx: &mut Context<'_, Slab>) {
        state.free(cx.local);
        *state = State::zeroed();
    }

    fn release(&self, state: &mut State, _: &SessionInfo, cx: &mut Context<'_, Slab>) {
        state.free(cx.local);
    }

    fn describe(&self, state: &State) -> Option<String> {
        let by = match state.answer.checked_sub(OF_RULES) {
            Some(rule) => format!("by rule {}", rule + 1),
            None => "since the request is malformed".to_owned(),
        };
        Some(match state.phase() {
            Phase::Read => match state.connection.given_up() {
                Some(cause) => format!("not read: {}", cause.name()),
                None => format!("{} requests without response", state.connection.unanswered()),
            },
            Phase::Answered => format!("answered {by}"),
            _ => format!("to be answered {by} behind the responses in front"),
        })
    }

    fn l7(&self) -> Option<&dyn DynL7> {
        Some(self)
    }

    fn refuses(&self, state: &State) -> bool {
        state.phase() != Phase::Read
    }

    /// What a client acknowledges decides when it can be answered.
    fn watches(&self, state: &State) -> bool {
        state.phase() != Phase::Read
    }

    fn answer(&self, number: u32) -> &[u8] {
        let (number, is_head) = (number as usize >> 1, number & 1 != 0);
        let rule = number.checked_sub(OF_RULES.into()).and_then(|rule| self.rules.get(rule));
        let answer = rule.map(|rule| &rule.answer).or(self.error_answers.get(number));
        answer.map_or(&[], |answer| answer.bytes(is_head))
    }

    fn report(&self) -> Vec<(String, String)> {
        let counted = COUNTERS
            .iter()
            .enumerate()
            .map(|(which, name)| (which, name, self.totals.sum(which) + self.in_brokers.get(which)));
        let shown = counted.filter(|(which, _, count)| *count != 0 || *which < NO_ROOM);
        let shown = shown.map(|(_, name, count)| ((*name).to_owned(), count.to_string()));
        shown
            .chain(self.causes.report(if self.rules.passes_errors { "not read" } else { "rejected" }))
            .collect()
    }
}

impl HttpFilter {
    /// Holds back a head that is not complete. `start`: where it begins.
    fn hold(
        &self,
        start: Option<usize>,
        data: &mut StreamEdit<'_, '_>,
        state: &mut State,
        cx: &mut Context<'_, Slab>,
    ) -> StreamVerdict {
        let direction = data.direction() as usize & 1;
        state.held[direction] = 0;
        let Some(start) = start.filter(|&start| start < data.len()) else { return StreamVerdict::Pass };
        if data.hold_from(start) {
            state.held[direction] = (data.len() - start) as u32;
            return StreamVerdict::Pass;
        }
        if data.is_end() && direction == 0 && !self.rules.passes_errors {
            self.causes.count(cx.worker, Cause::Truncated);
            self.give_up(Cause::Truncated, state, cx);
            return StreamVerdict::Reset(self.invalid);
        }
        self.totals.add(cx.worker, NOT_HELD, 1);
        StreamVerdict::Pass
    }

    /// Does what was decided. `start`: where the head begins.
    fn stop(
        &self,
        decision: Decision,
        start: Option<usize>,
        data: &mut StreamEdit<'_, '_>,
        state: &mut State,
        cx: &mut Context<'_, Slab>,
    ) -> StreamVerdict {
        let (phase, answer) = match decision {
            Decision::Pass => return StreamVerdict::Pass,
            Decision::Reset(reason) => return StreamVerdict::Reset(reason),
            Decision::Answer(phase, answer) => (phase, answer),
        };
        state.answer = answer;
        let reason = self.reason(state);
        if !data.can_resize() || phase == Phase::Response && start.is_none() {
            return StreamVerdict::Reset(reason);
        }
        let start = start.unwrap_or(0);
        if start == 0 && state.is_next(phase) && TakenOver::can_begin(cx) {
            return self.take_over(data.packet(), state, cx);
        }
        state.phase = phase as u8;
        self.stop_from(start, data, state)
    }

    /// Bytes from a position on never go on.
    fn stop_from(&self, start: usize, data: &mut StreamEdit<'_, '_>, state: &State) -> StreamVerdict {
        if data.hold_from(start) || data.remove(start..data.len()).is_ok() {
            return StreamVerdict::Pass;
        }
        StreamVerdict::Reset(self.reason(state))
    }

    /// A packet of a connection whose client is to be answered.
    #[cold]
    fn wait(
        &self,
        phase: Phase,
        packet: &Packet<'_>,
        state: &mut State,
        cx: &mut Context<'_, Slab>,
    ) -> StreamVerdict {
        let is_request = packet.direction == Direction::Forward;
        if is_request && state.is_next(phase) && TakenOver::can_begin(cx) {
            return self.take_over(packet, state, cx);
        }
        let is_dropped = is_request || phase == Phase::Response;
        let has_bytes = packet.l4_payload_len() != 0 || packet.tcp_flags() & FIN != 0;
        if is_dropped && has_bytes { StreamVerdict::Drop(self.reason(state)) } else { StreamVerdict::Pass }
    }

    /// Answers the client, and resets the server.
    fn take_over(&self, packet: &Packet<'_>, state: &mut State, cx: &mut Context<'_, Slab>) -> StreamVerdict {
        state.free(cx.local);
        let reason = self.reason(state);
        match TakenOver::begin(packet, (state.answer_number(), self.answer_of(state)), cx) {
            Some(taken) => {
                state.set_taken(taken);
                StreamVerdict::Drop(reason)
            }
            None => StreamVerdict::Reset(reason),
        }
    }

    /// A packet of a session whose client is answered.
    #[cold]
    fn answered(&self, packet: &Packet<'_>, state: &mut State, cx: &mut Context<'_, Slab>) -> StreamVerdict {
        let (mut taken, reason) = (state.taken(), self.reason(state));
        let has_ended = taken.packet(packet, self.answer_of(state), cx);
        state.set_taken(taken);
        if has_ended { StreamVerdict::End(reason) } else { StreamVerdict::Drop(reason) }
    }

    fn answer_of(&self, state: &State) -> &[u8] {
        StreamFunction::answer(self, state.answer_number())
    }

    fn reason(&self, state: &State) -> DropReason {
        if state.answer < OF_RULES { self.invalid } else { self.blocked }
    }

    fn give_up(&self, cause: Cause, state: &mut State, cx: &mut Context<'_, Slab>) {
        state.free(cx.local);
        state.connection.give_up(cause);
    }
}

#[cfg(test)]
mod tests;
