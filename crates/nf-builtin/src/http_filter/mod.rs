//! `http-filter`: allows, blocks, redirects or resets HTTP requests by rules.
//!
//! Theory of operation. The parts of a head that rules compare are kept in a slot of the worker's slab until
//! the head is complete. Then the first rule that matches decides. The packet with the end of a head that is
//! not allowed is dropped, so that the server never sees the whole head; the client gets an answer that mmb
//! makes, and the server a reset ([`mmb_nf::TakenOver`]). A request that is pipelined behind others without
//! responses cannot be answered in its turn: both ends are reset.

mod rules;
mod slab;

use bytemuck::{Pod, Zeroable};
use mmb_http::{Cause, Connection, Element, Event, Target, normalize_path};

use self::rules::{Action, Answer, Request, Rules};
use self::slab::Slab;
use crate::shared::http::{CauseCounters, has_joined};
use mmb_nf::tcp_segment::FIN;
use mmb_nf::{
    ArgError, Context, Direction, DropReason, Packet, SessionInfo, Setup, StreamData, StreamFunction,
    StreamVerdict, TakenOver, WorkerCounters, next_sequence_number,
};

const USAGE: &str = "[errors reject|pass] [page FILE] allow|block|redirect URL|reset \
                     [method M] [host PATTERN] [path PATTERN] [header NAME PATTERN] [type PATTERN] …";

const REQUESTS: usize = 0;
const BLOCKED: usize = 1;
const REDIRECTED: usize = 2;
const RESET: usize = 3;
const NO_ROOM: usize = 4;
const COUNTERS: [&str; 5] = ["requests", "blocked", "redirected", "reset", "connections without room"];

/// The headers of responses that rules compare.
const RESPONSE_NAMES: [&[u8]; 1] = [b"content-type"];

/// See the module's documentation.
pub(crate) struct HttpFilter {
    rules: Rules,
    bad_request: Answer,
    totals: WorkerCounters<{ COUNTERS.len() }>,
    causes: CauseCounters,
    blocked: DropReason,
    invalid: DropReason,
}

/// A session.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct State {
    connection: Connection,
    /// While the connection is read: a [`Reading`]. Once the client is answered: a [`TakenOver`].
    phase: [u32; 4],
    /// What the client is answered: 1: its request is malformed; from 2 on: the rule. 0: nothing.
    answer: u16,
    /// The request that is answered is HEAD.
    is_head: u8,
    unused: [u8; 5],
}

/// The state of a connection that is read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Reading {
    /// The slots of the heads that are being read, by direction. 0: none.
    slots: [u32; 2],
    /// The next sequence number of the server. Valid with `has_server`.
    server_next: u32,
    has_server: u32,
}

impl State {
    fn reading(&mut self) -> &mut Reading {
        bytemuck::cast_mut(&mut self.phase)
    }

    /// Frees the slots of a connection that is read.
    fn free(&mut self, slab: &mut Slab) {
        if self.answer == 0 {
            self.reading().slots.iter_mut().for_each(|slot| slab.remove(std::mem::take(slot)));
        }
    }
}

impl StreamFunction for HttpFilter {
    const TYPE: &'static str = "http-filter";
    const USAGE: &'static str = USAGE;
    const HELP: &'static str =
        "allows, blocks, redirects or resets HTTP requests by the first rule that matches";
    const DROP_REASONS: &'static [(&'static str, &'static str)] = &[
        ("http-blocked", "a rule of a function `http-filter` does not allow the request or response"),
        ("http-invalid", "a function `http-filter` has rejected a malformed HTTP message"),
    ];
    const SEES_PACKETS: bool = true;

    type State = State;
    type Local = Slab;

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(HttpFilter {
            rules: Rules::parse(setup)?,
            bad_request: Answer::bad_request(),
            totals: WorkerCounters::new(setup.workers),
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
        if state.answer != 0 {
            return self.answered(packet, state, cx);
        }
        let reading = state.reading();
        if packet.direction == Direction::Reverse
            && let Some(next) = next_sequence_number(packet)
            && (reading.has_server == 0 || next.wrapping_sub(reading.server_next).cast_signed() > 0)
        {
            (reading.server_next, reading.has_server) = (next, 1);
        }
        StreamVerdict::Pass
    }

    fn data(
        &self,
        data: &StreamData<'_, '_>,
        state: &mut State,
        cx: &mut Context<'_, Slab>,
    ) -> StreamVerdict {
        let direction = data.direction() as usize;
        // A message can be answered if none of its bytes has gone on.
        let has_whole_payload = data.len() == data.packet().l4_payload_len() as usize;
        let mut begins_here = has_whole_payload && state.connection.is_idle(direction);
        for mut bytes in data.chunks() {
            loop {
                let (len, event) = state.connection.next(direction, bytes);
                bytes = bytes.get(len..).unwrap_or(&[]);
                let verdict = match event {
                    Event::More | Event::Opaque(_) => break,
                    Event::Invalid(cause) => {
                        let is_next = state.connection.unanswered() == 0;
                        self.reject(cause, (data, is_next), state, cx)
                    }
                    event if direction == 0 => self.request(&event, data, state, cx),
                    event => self.response(&event, (data, begins_here), state, cx),
                };
                if verdict != StreamVerdict::Pass {
                    return verdict;
                }
                begins_here &= event != Event::Done;
            }
        }
        StreamVerdict::Pass
    }

    fn end(&self, direction: Direction, state: &mut State, cx: &mut Context<'_, Slab>) -> StreamVerdict {
        if let Some(Event::Invalid(cause)) = state.connection.end(direction as usize) {
            self.causes.count(cx.worker, cause);
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
        Some(match (state.answer, state.connection.given_up()) {
            (0, Some(cause)) => format!("not read: {}", cause.name()),
            (0, None) => format!("{} requests without response", state.connection.unanswered()),
            (1, _) => "answered, since the request is malformed".to_owned(),
            (rule, _) => format!("answered by rule {}", rule - 1),
        })
    }

    fn report(&self) -> Vec<(String, String)> {
        let counted = COUNTERS.iter().enumerate().map(|(which, name)| (name, self.totals.sum(which)));
        let shown = counted.filter(|(name, count)| *count != 0 || **name != COUNTERS[NO_ROOM]);
        let shown = shown.map(|(name, count)| ((*name).to_owned(), count.to_string()));
        shown
            .chain(self.causes.report(if self.rules.passes_errors { "not read" } else { "rejected" }))
            .collect()
    }
}

impl HttpFilter {
    /// Returns the slot of a head. 0: there is no room.
    fn slot(&self, direction: usize, state: &mut State, cx: &mut Context<'_, Slab>) -> u32 {
        let slot = &mut state.reading().slots[direction & 1];
        if *slot == 0 {
            *slot = cx.local.insert().unwrap_or(0);
        }
        *slot
    }

    /// An event of the requests.
    fn request(
        &self,
        event: &Event<'_>,
        data: &StreamData<'_, '_>,
        state: &mut State,
        cx: &mut Context<'_, Slab>,
    ) -> StreamVerdict {
        match event {
            Event::Bytes(Element::Method | Element::Target | Element::Name | Element::Value, _)
            | Event::End(_) => {
                let slot = self.slot(0, state, cx);
                let Some(head) = cx.local.get(slot) else { return self.no_room(data, state, cx) };
                self.rules.with_names(|names| head.push(names, event));
                StreamVerdict::Pass
            }
            Event::Head(head) => {
                self.totals.add(cx.worker, REQUESTS, 1);
                state.is_head = u8::from(head.request.unwrap_or_default().is_head);
                let slot = std::mem::take(&mut state.reading().slots[0]);
                let found = self.decide(slot, cx);
                cx.local.remove(slot);
                let is_next = state.connection.unanswered() == 1;
                match found {
                    Ok(rule) => self.apply(rule, (data, is_next), state, cx),
                    Err(cause) => self.reject(cause, (data, is_next), state, cx),
                }
            }
            _ => StreamVerdict::Pass,
        }
    }

    /// Returns the rule for the request whose head is in a slot.
    fn decide(&self, slot: u32, cx: &mut Context<'_, Slab>) -> Result<Option<usize>, Cause> {
        let Some((head, room)) = cx.local.get_with_room(slot) else { return Err(Cause::HeadTooLong) };
        if head.is_truncated() {
            return Err(Cause::HeadTooLong);
        }
        let target = Target::read(head.method(), head.target(), head.values(0).next())?;
        let path = normalize_path(target.path, room).ok_or(Cause::HeadTooLong)?;
        let request = Request { method: head.method(), host: target.host, path };
        Ok(self.rules.of_request(request, |field| head.values(field)))
    }

    /// An event of the responses.
    fn response(
        &self,
        event: &Event<'_>,
        (data, begins_here): (&StreamData<'_, '_>, bool),
        state: &mut State,
        cx: &mut Context<'_, Slab>,
    ) -> StreamVerdict {
        if !self.rules.read_responses {
            return StreamVerdict::Pass;
        }
        match event {
            Event::Bytes(Element::Name | Element::Value, _) | Event::End(Element::Name | Element::Value) => {
                let slot = self.slot(1, state, cx);
                let Some(head) = cx.local.get(slot) else { return self.no_room(data, state, cx) };
                head.push(&RESPONSE_NAMES, event);
                StreamVerdict::Pass
            }
            Event::Head(_) => {
                let slot = std::mem::take(&mut state.reading().slots[1]);
                let rule = cx.local.get(slot).and_then(|head| {
                    head.values(0).next().and_then(|content_type| self.rules.of_response(content_type))
                });
                cx.local.remove(slot);
                self.apply(rule, (data, begins_here), state, cx)
            }
            _ => StreamVerdict::Pass,
        }
    }

    /// Does what a rule says. `can_answer`: an answer would be the one that the client waits for.
    fn apply(
        &self,
        rule: Option<usize>,
        (data, can_answer): (&StreamData<'_, '_>, bool),
        state: &mut State,
        cx: &mut Context<'_, Slab>,
    ) -> StreamVerdict {
        let Some((number, rule)) = rule.and_then(|number| Some((number, self.rules.get(number)?))) else {
            return StreamVerdict::Pass;
        };
        let counter = match rule.action {
            Action::Allow => return StreamVerdict::Pass,
            Action::Block if can_answer => BLOCKED,
            Action::Redirect if can_answer => REDIRECTED,
            _ => RESET,
        };
        self.totals.add(cx.worker, counter, 1);
        if counter == RESET {
            return StreamVerdict::Reset(self.blocked);
        }
        self.take_over(number as u16 + 2, data, state, cx)
    }

    /// A message is malformed, or its head is too long. `is_next`: a request whose response comes next.
    fn reject(
        &self,
        cause: Cause,
        (data, is_next): (&StreamData<'_, '_>, bool),
        state: &mut State,
        cx: &mut Context<'_, Slab>,
    ) -> StreamVerdict {
        self.causes.count(cx.worker, cause);
        if cause.is_opaque() || self.rules.passes_errors {
            self.give_up(cause, state, cx);
            return StreamVerdict::Pass;
        }
        if data.direction() == Direction::Reverse || !is_next {
            return StreamVerdict::Reset(self.invalid);
        }
        state.is_head = 0;
        self.take_over(1, data, state, cx)
    }

    fn no_room(
        &self,
        data: &StreamData<'_, '_>,
        state: &mut State,
        cx: &mut Context<'_, Slab>,
    ) -> StreamVerdict {
        self.totals.add(cx.worker, NO_ROOM, 1);
        self.reject(Cause::HeadTooLong, (data, false), state, cx)
    }

    fn give_up(&self, cause: Cause, state: &mut State, cx: &mut Context<'_, Slab>) {
        state.free(cx.local);
        state.connection.give_up(cause);
    }

    /// Answers the client, and resets the server. `answer` is that of [`State`].
    fn take_over(
        &self,
        answer: u16,
        data: &StreamData<'_, '_>,
        state: &mut State,
        cx: &mut Context<'_, Slab>,
    ) -> StreamVerdict {
        let packet = data.packet();
        let start = match packet.direction {
            Direction::Forward => {
                let reading = state.reading();
                (reading.has_server != 0).then_some(reading.server_next)
            }
            // The server's bytes are dropped, and the answer is in their place.
            Direction::Reverse => {
                let len = packet.l4_payload_len() + u32::from(packet.tcp_flags() & FIN);
                next_sequence_number(packet).map(|end| end.wrapping_sub(len))
            }
        };
        self.give_up(Cause::None, state, cx);
        state.answer = answer;
        let reason = self.reason(state);
        let taken = start.and_then(|start| TakenOver::begin(packet, start, self.answer(state), cx));
        match taken {
            Some(taken) => {
                state.phase = bytemuck::cast(taken);
                StreamVerdict::Drop(reason)
            }
            None => StreamVerdict::Reset(reason),
        }
    }

    fn answer(&self, state: &State) -> &[u8] {
        let rule = usize::from(state.answer).checked_sub(2).and_then(|number| self.rules.get(number));
        rule.map_or(&self.bad_request, |rule| &rule.answer).bytes(state.is_head != 0)
    }

    fn reason(&self, state: &State) -> DropReason {
        if state.answer == 1 { self.invalid } else { self.blocked }
    }

    /// A packet of a session whose client is answered.
    #[cold]
    fn answered(&self, packet: &Packet<'_>, state: &mut State, cx: &mut Context<'_, Slab>) -> StreamVerdict {
        let (mut taken, reason) = (bytemuck::cast::<_, TakenOver>(state.phase), self.reason(state));
        let has_ended = taken.packet(packet, self.answer(state), cx);
        state.phase = bytemuck::cast(taken);
        if has_ended { StreamVerdict::End(reason) } else { StreamVerdict::Drop(reason) }
    }
}

#[cfg(test)]
mod tests;
