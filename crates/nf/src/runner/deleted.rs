//! The end of programs and of deleted instances.
//!
//! Theory of operation. A program ends when no session carries its number. A session moves to the program in
//! force with its next packet, which may never come: until the session times out, the old program stays, with
//! the state of all its instances. That state is small, but for two tables: the sessions of a function
//! `flow`, and the scratchpads of a function with a key of its own. An instance that the program in force
//! does not have is deleted. No packet reaches it any more, so what is in these tables is released at once,
//! some entries at a time, and then the tables are freed.

use mmb_flow::SessionId;

use super::placement::Placement;
use super::state::{InstanceState, RunnerState};
use crate::context::Holding;
use crate::instance::RawContext;

impl RunnerState {
    /// Frees programs without sessions, and instances of no program.
    pub fn retire(&mut self) {
        let mut is_freed = false;
        for (number, entry) in self.programs.iter_mut().enumerate() {
            let is_unused = entry.as_ref().is_some_and(|loaded| loaded.sessions == 0);
            if number != usize::from(self.current) && is_unused {
                *entry = None;
                is_freed = true;
            }
        }
        if is_freed {
            let RunnerState { states, programs, .. } = self;
            for (at, state) in states.iter_mut().enumerate() {
                if !programs.iter().flatten().any(|loaded| loaded.states.contains(&at)) {
                    *state = None;
                }
            }
        }
    }

    /// Releases the sessions and scratchpads in the tables of deleted instances, at most `left` of them, and
    /// frees empty tables.
    pub fn end_deleted(&mut self, now: u32, left: &mut u32) {
        let Some(current) = self.loaded(self.current).map(|loaded| loaded.states.clone()) else { return };
        for at in 0..self.states.len() {
            if !current.contains(&at) {
                self.end_nested(at, now, left);
                self.end_keyed(at, now, left);
            }
        }
    }

    /// Ends the sessions of a deleted function `flow`.
    fn end_nested(&mut self, at: usize, now: u32, left: &mut u32) {
        let state = self.states.get_mut(at).and_then(Option::as_mut);
        let Some(mut nested) = state.and_then(|state| state.nested.take()) else { return };
        while let Some(id) = nested.table.next_session(nested.ended_below) {
            if *left == 0 {
                break;
            }
            *left -= 1;
            nested.ended_below = id.0;
            nested.end(self, id, now);
        }
        if let Some(state) = self.states.get_mut(at).and_then(Option::as_mut)
            && !nested.table.is_empty()
        {
            state.nested = Some(nested);
        }
    }

    /// Releases the scratchpads of a deleted function with a key of its own.
    fn end_keyed(&mut self, at: usize, now: u32, left: &mut u32) {
        let RunnerState { states, emissions, held, worker, edits, .. } = self;
        let Some(InstanceState { instance, placement, keyed, .. }) =
            states.get_mut(at).and_then(Option::as_mut)
        else {
            return;
        };
        let Some(table) = keyed else { return };
        while let Some(SessionId(number)) = table.first() {
            if *left == 0 {
                return;
            }
            *left -= 1;
            let info = table.info(number, now);
            let holding = Holding::new(held);
            let (worker, ingress, edits) = (*worker, info.in_port, edits.as_deref_mut());
            let cx = RawContext { now, worker, emissions, at: None, ingress, holding, edits };
            if let Some(pad) = table.pad(number).and_then(|pad| pad.get_mut(..instance.bytes())) {
                placement.release(pad, &info, cx);
            }
            table.remove(number);
        }
        *keyed = None;
    }
}
