//! Decisions about requests and responses.

use mmb_http::{Cause, Element, Event, Target, normalize_path};

use super::rules::Action;
use super::slab::Slab;
use super::{
    BAD_REQUEST, BLOCKED, HttpFilter, NO_ROOM, OF_RULES, Phase, REDIRECTED, REQUESTS, RESET, State, TOO_LARGE,
};
use crate::shared::http_rules::Request;
use mmb_nf::{Context, DropReason};

/// The headers of responses that rules compare.
const RESPONSE_NAMES: [&[u8]; 1] = [b"content-type"];

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It goes on, or more of it is needed.
    Pass,
    Reset(DropReason),
    /// The client gets the answer with this number in its place.
    Answer(Phase, u16),
}

impl HttpFilter {
    /// Returns the slot of a head. 0: there is no room.
    fn slot(&self, direction: usize, state: &mut State, cx: &mut Context<'_, Slab>) -> u16 {
        let slot = &mut state.slots[direction & 1];
        if *slot == 0 {
            *slot = cx.local.insert().unwrap_or(0);
        }
        *slot
    }

    /// An event of the requests.
    pub(super) fn request(
        &self,
        event: &Event<'_>,
        state: &mut State,
        cx: &mut Context<'_, Slab>,
    ) -> Decision {
        match event {
            Event::Bytes(Element::Method | Element::Target | Element::Name | Element::Value, _)
            | Event::End(_) => {
                let slot = self.slot(0, state, cx);
                let Some(head) = cx.local.get(slot) else { return self.no_room(state, cx) };
                self.rules.names.with(|names| head.push(names, event));
                Decision::Pass
            }
            Event::Head(head) => {
                self.totals.add(cx.worker, REQUESTS, 1);
                state.is_head = u8::from(head.request.unwrap_or_default().is_head);
                let slot = std::mem::take(&mut state.slots[0]);
                let found = self.find(slot, cx);
                cx.local.remove(slot);
                match found {
                    Ok(rule) => self.apply(rule, Phase::Request, cx.worker),
                    Err(cause) => self.refuse(cause, Some(Phase::Request), state, cx),
                }
            }
            _ => Decision::Pass,
        }
    }

    /// Returns the rule for the request whose head is in a slot.
    fn find(&self, slot: u16, cx: &mut Context<'_, Slab>) -> Result<Option<usize>, Cause> {
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
    pub(super) fn response(
        &self,
        event: &Event<'_>,
        state: &mut State,
        cx: &mut Context<'_, Slab>,
    ) -> Decision {
        if !self.rules.read_responses {
            return Decision::Pass;
        }
        match event {
            Event::Bytes(Element::Name | Element::Value, _) | Event::End(Element::Name | Element::Value) => {
                let slot = self.slot(1, state, cx);
                let Some(kept) = cx.local.get(slot) else { return self.no_room(state, cx) };
                kept.push(&RESPONSE_NAMES, event);
                Decision::Pass
            }
            Event::Head(head) => {
                let slot = std::mem::take(&mut state.slots[1]);
                let rule = cx.local.get(slot).and_then(|head| {
                    head.values(0).next().and_then(|content_type| self.rules.of_response(content_type))
                });
                cx.local.remove(slot);
                let decision = self.apply(rule, Phase::Response, cx.worker);
                if decision != Decision::Pass {
                    state.is_head = u8::from(head.request.unwrap_or_default().is_head);
                }
                decision
            }
            _ => Decision::Pass,
        }
    }

    fn apply(&self, rule: Option<usize>, phase: Phase, worker: u16) -> Decision {
        let Some((number, rule)) = rule.and_then(|number| Some((number, self.rules.get(number)?))) else {
            return Decision::Pass;
        };
        let counter = match rule.action {
            Action::Allow => return Decision::Pass,
            Action::Block => BLOCKED,
            Action::Redirect => REDIRECTED,
            Action::Reset => RESET,
        };
        self.totals.add(worker, counter, 1);
        if counter == RESET {
            return Decision::Reset(self.blocked);
        }
        Decision::Answer(phase, number as u16 + OF_RULES)
    }

    /// A message is malformed. `is_in_head`: none of it has gone on.
    pub(super) fn reject(
        &self,
        cause: Cause,
        direction: usize,
        is_in_head: bool,
        state: &mut State,
        cx: &mut Context<'_, Slab>,
    ) -> Decision {
        let phase = (direction == 0 && is_in_head).then_some(Phase::Malformed);
        self.refuse(cause, phase, state, cx)
    }

    /// A message is malformed, or its head is too long. `phase`: that in which it can be answered.
    fn refuse(
        &self,
        cause: Cause,
        phase: Option<Phase>,
        state: &mut State,
        cx: &mut Context<'_, Slab>,
    ) -> Decision {
        self.causes.count(cx.worker, cause);
        if cause.is_opaque() || self.rules.passes_errors {
            self.give_up(cause, state, cx);
            return Decision::Pass;
        }
        let Some(phase) = phase else { return Decision::Reset(self.invalid) };
        state.is_head = 0;
        let is_large = matches!(cause, Cause::HeadTooLong | Cause::LineTooLong | Cause::TooManyFields);
        Decision::Answer(phase, if is_large { TOO_LARGE } else { BAD_REQUEST })
    }

    fn no_room(&self, state: &mut State, cx: &mut Context<'_, Slab>) -> Decision {
        self.totals.add(cx.worker, NO_ROOM, 1);
        self.refuse(Cause::HeadTooLong, None, state, cx)
    }
}
