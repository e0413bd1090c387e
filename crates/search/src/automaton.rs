//! Literals by Aho-Corasick automata.
//!
//! Theory of operation. One automaton has the literals with case, another one those without. The state of a
//! stream is the state of each automaton. It changes with each byte, and tells which literals end there.

use std::ops::ControlFlow;
use std::sync::Arc;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchKind};

use crate::{Expression, Match, OnMatch, Pattern, Scan, SearchError, Slots, StreamNumber};

/// The automata of a set of literals.
#[derive(Debug)]
pub(crate) struct Automata {
    with_case: Option<Part>,
    without_case: Option<Part>,
}

#[derive(Debug)]
struct Part {
    nfa: NFA,
    start: StateID,
    /// Positions in the set of the automaton's literals.
    patterns: Vec<u32>,
}

impl Part {
    fn new(patterns: &[Pattern], ignores_case: bool) -> Result<Option<Part>, SearchError> {
        let of_part = (0..).zip(patterns).filter(|(_, pattern)| pattern.ignores_case == ignores_case);
        let (positions, literals): (Vec<u32>, Vec<&[u8]>) = of_part
            .filter_map(|(position, pattern)| match &pattern.expression {
                Expression::Literal(bytes) => Some((position, &**bytes)),
                Expression::Regex(_) => None,
            })
            .unzip();
        if literals.is_empty() {
            return Ok(None);
        }
        let failed = |error: &dyn std::error::Error| SearchError::Compile(error.to_string());
        let mut builder = NFA::builder();
        builder.match_kind(MatchKind::Standard).ascii_case_insensitive(ignores_case).prefilter(false);
        let nfa = builder.build(literals).map_err(|error| failed(&error))?;
        let start = nfa.start_state(Anchored::No).map_err(|error| failed(&error))?;
        Ok(Some(Part { nfa, start, patterns: positions }))
    }

    /// Reads a byte, and reports what ends with it.
    #[inline(always)]
    fn step(&self, state: &mut StateID, byte: u8, end: u64, on_match: &mut OnMatch<'_>) -> ControlFlow<()> {
        *state = self.nfa.next_state(Anchored::No, *state, byte);
        if self.nfa.is_special(*state) && self.nfa.is_match(*state) {
            for number in 0..self.nfa.match_len(*state) {
                let literal = self.nfa.match_pattern(*state, number).as_usize();
                if let Some(&pattern) = self.patterns.get(literal) {
                    on_match(Match { end, pattern })?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl Automata {
    /// Makes the automata of literals. Regular expressions are left out.
    pub fn new(patterns: &[Pattern]) -> Result<Automata, SearchError> {
        Ok(Automata { with_case: Part::new(patterns, false)?, without_case: Part::new(patterns, true)? })
    }

    fn start(&self) -> State {
        let start = |part: &Option<Part>| part.as_ref().map_or(StateID::ZERO, |part| part.start);
        State { end: 0, states: [start(&self.with_case), start(&self.without_case)] }
    }
}

/// The state of a stream.
#[derive(Clone, Copy, Debug)]
struct State {
    /// Bytes read.
    end: u64,
    states: [StateID; 2],
}

/// Bytes of the state of a stream.
pub(crate) const STATE_BYTES: usize = size_of::<State>();

/// See [`Scan`].
pub(crate) struct AutomatonScanner {
    automata: Arc<Automata>,
    states: Vec<State>,
    slots: Slots,
}

impl AutomatonScanner {
    pub fn new(automata: Arc<Automata>, most_streams: usize) -> AutomatonScanner {
        AutomatonScanner {
            automata,
            states: Vec::with_capacity(most_streams),
            slots: Slots::new(most_streams),
        }
    }
}

impl Scan for AutomatonScanner {
    fn open(&mut self) -> Option<StreamNumber> {
        let (slot, is_new) = self.slots.take()?;
        let state = self.automata.start();
        if is_new {
            self.states.push(state);
        } else {
            *self.states.get_mut(slot)? = state;
        }
        StreamNumber::of_slot(slot)
    }

    fn close(&mut self, stream: StreamNumber) {
        self.slots.release(stream.slot());
    }

    fn scan(&mut self, stream: StreamNumber, bytes: &[u8], on_match: &mut OnMatch<'_>) -> ControlFlow<()> {
        let Some(state) = self.states.get_mut(stream.slot()) else { return ControlFlow::Continue(()) };
        let Automata { with_case, without_case } = &*self.automata;
        let State { mut end, states: [mut one, mut other] } = *state;
        for &byte in bytes {
            end += 1;
            let mut flow = ControlFlow::Continue(());
            if let Some(part) = with_case {
                flow = part.step(&mut one, byte, end, on_match);
            }
            if let (Some(part), false) = (without_case, flow.is_break()) {
                flow = part.step(&mut other, byte, end, on_match);
            }
            if flow.is_break() {
                *state = self.automata.start();
                return flow;
            }
        }
        *state = State { end, states: [one, other] };
        ControlFlow::Continue(())
    }

    fn finish(&mut self, stream: StreamNumber, _: &mut OnMatch<'_>) -> ControlFlow<()> {
        if let Some(state) = self.states.get_mut(stream.slot()) {
            *state = self.automata.start();
        }
        ControlFlow::Continue(())
    }

    fn open_streams(&self) -> usize {
        self.slots.open()
    }

    fn most_streams(&self) -> usize {
        self.slots.most
    }
}
