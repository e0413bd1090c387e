//! From a rule's matches to a [`Pattern`].
//!
//! Theory of operation. Each match is a question ([`question`]): the value of a field is in a set, or a predicate about
//! bytes is true. A match that is not negated fixes bits of the cover (the field is there) and narrows the set of the
//! field's values; several on one field meet in one set. A negated match says "the field is not there, or its value is in
//! the rest of the values"; where the cover says that the field is there it is as good as one that is not negated, else it
//! becomes a test that absent fields pass. What a set's values have in common, their longest common prefix, goes into
//! the cover, and the set becomes a test only if that does not say all. Sets whose parts are much narrower than the
//! whole ([`split`]) become several entries.

mod bits;
mod question;
mod split;

use mmb_lang::{Diagnostic, Match, Rule};

use crate::masked::Masked;
use crate::pattern::{Entry, Field, Pattern, Test};
use crate::predicate::Ask;
use crate::ranges::Ranges;
use question::Question;

/// Most entries that one rule becomes.
const MOST_ENTRIES: usize = 8;

impl Pattern {
    /// Compiles the matches of a rule. `ifaces` gives the port of an interface, as an index of the dataplane's port
    /// table.
    ///
    /// # Errors
    /// One that marks the offending words: an interface that does not exist, a match that contradicts the others, or one
    /// that no rule of this language has ([`mmb_lang::check`] refuses those first, with its own reasons).
    pub fn compile(rule: &Rule, ifaces: &dyn Fn(&str) -> Option<u16>) -> Result<Pattern, Diagnostic> {
        let mut demands = Demands { cover: Masked::IP, ..Demands::default() };
        let mut negated = Vec::new();
        for one in &rule.matches {
            let question = question::of(one, ifaces)?;
            if one.negated {
                negated.push((one, question));
            } else {
                demands.demand(question).ok_or_else(|| contradiction(one))?;
            }
        }
        demands.refuse_all(negated)?;
        demands.into_pattern().ok_or_else(|| {
            Diagnostic::new(rule.span.span(), "no packet can match all of this")
                .with_help("make two rules of it, or leave one of the matches out")
        })
    }
}

fn contradiction(one: &Match) -> Diagnostic {
    Diagnostic::new(one.span.span(), "no packet can match this and what stands before it")
        .with_help("make two rules of it, or leave one of the matches out")
}

/// What the matches so far demand of a packet. The functions that add to it give None when no packet is left.
#[derive(Default)]
struct Demands {
    cover: Masked,
    /// Fields that the cover says are there, with the values that they may have; a field comes once.
    values: Vec<(Field, Ranges)>,
    /// The same for fields that need not be there.
    if_there: Vec<(Field, Ranges)>,
    clauses: Vec<Test>,
    asks: Vec<Ask>,
}

impl Demands {
    /// Adds that the answer is yes.
    fn demand(&mut self, question: Question) -> Option<()> {
        match question {
            Question::Always => {}
            Question::Value { field, implied, set } => {
                self.cover = self.cover.and(&implied)?;
                self.narrow(field, &set)?;
            }
            Question::Bytes { implied, exists, ask, equal } => {
                self.cover = self.cover.and(&implied)?;
                if equal {
                    self.clause(Some(ask), None);
                } else {
                    self.clause(None, Some(ask));
                    if let Some(exists) = exists {
                        self.clause(Some(exists), None);
                    }
                }
            }
        }
        self.settle()
    }

    /// Adds that the answers are no. Done in rounds: what one answer fixes may say that another's field is there.
    fn refuse_all(&mut self, mut open: Vec<(&Match, Question)>) -> Result<(), Diagnostic> {
        loop {
            let mut undecided = Vec::new();
            let before = self.cover;
            for (one, question) in open {
                if let Some(question) = self.refuse(question).ok_or_else(|| contradiction(one))? {
                    undecided.push((one, question));
                }
            }
            if self.cover == before {
                for (_, question) in undecided {
                    self.refuse_if_there(question);
                }
                return Ok(());
            }
            open = undecided;
        }
    }

    /// Adds that the answer is no, or gives the question back while it is open whether the packet has its field.
    fn refuse(&mut self, question: Question) -> Option<Option<Question>> {
        match question {
            Question::Always => return None,
            Question::Value { field, ref set, .. } => {
                let rest = set.complement(field.width);
                if rest.is_empty()
                    && let Some(other) = question::other_network(&field.present)
                {
                    self.cover = self.cover.and(&other)?;
                    self.settle()?;
                    return Some(None);
                }
                match self.cover.and(&field.present.masked()) {
                    // Packets without the field are what the answer no is about.
                    None => {}
                    Some(both) if both == self.cover => {
                        self.narrow(field, &rest)?;
                        self.settle()?;
                    }
                    Some(_) => return Some(Some(question)),
                }
            }
            Question::Bytes { implied, exists, ask, equal } => {
                if self.cover.and(&implied).is_none() {
                    return Some(None);
                }
                match (equal, exists) {
                    (true, _) => self.clause(None, Some(ask)),
                    (false, exists) => self.clause(Some(ask), exists),
                }
            }
        }
        Some(None)
    }

    fn refuse_if_there(&mut self, question: Question) {
        let Question::Value { field, set, .. } = question else { return };
        let rest = set.complement(field.width);
        match self.if_there.iter_mut().find(|(other, _)| *other == field) {
            Some((_, values)) => *values = values.and(&rest),
            None => self.if_there.push((field, rest)),
        }
    }

    /// Leaves of a field's values those in `set`.
    fn narrow(&mut self, field: Field, set: &Ranges) -> Option<()> {
        let place = |field: &Field| (field.chunk, field.shift, field.width);
        if field.width == 0 {
            return (!set.is_empty()).then_some(());
        }
        match self.values.iter_mut().find(|(other, _)| place(other) == place(&field)) {
            Some((_, values)) => *values = values.and(set),
            None => self.values.push((field, set.and(&Ranges::all(field.width)))),
        }
        Some(())
    }

    /// Takes over what values have in common into the cover, and out of the values what the cover rules out, until
    /// nothing changes: fields may overlap.
    fn settle(&mut self) -> Option<()> {
        loop {
            let before = self.cover;
            for (field, values) in &mut self.values {
                *values = bits::trimmed(values, field, &self.cover);
                self.cover = self.cover.and(&bits::prefix(field, values.ends()?)?)?;
            }
            if self.cover == before {
                return Some(());
            }
        }
    }

    fn clause(&mut self, yes: Option<Ask>, no: Option<Ask>) {
        let yes = yes.map(|ask| self.number(ask));
        let no = no.map(|ask| self.number(ask));
        let clause = Test::Clause { yes, no };
        if !self.clauses.contains(&clause) {
            self.clauses.push(clause);
        }
    }

    fn number(&mut self, ask: Ask) -> u32 {
        let at = self.asks.iter().position(|other| *other == ask).unwrap_or(self.asks.len());
        if at == self.asks.len() {
            self.asks.push(ask);
        }
        at as u32
    }

    fn into_pattern(mut self) -> Option<Pattern> {
        let pivot = self.take_pivot();
        let if_there = self.if_there.drain(..);
        let mut common: Vec<Test> =
            if_there.map(|(field, ranges)| Test::Within { field, ranges, absent: true }).collect();
        common.append(&mut self.clauses);
        let parts = split::entries(&self.cover, &self.values);
        let entries = parts.into_iter().filter_map(|(cover, values)| {
            let within =
                values.into_iter().map(|(field, ranges)| Test::Within { field, ranges, absent: false });
            let entry = Entry::new(&cover, within.chain(common.iter().cloned()))?;
            Some(Entry { pivot, ..entry })
        });
        Pattern::new(entries.collect(), self.asks)
    }

    /// Takes out the clause that says most: the entries are found through its predicate.
    fn take_pivot(&mut self) -> Option<u32> {
        let weight = |clause: &Test| match clause {
            Test::Clause { yes: Some(id), no: None } => self.asks.get(*id as usize).map_or(0, Ask::weight),
            _ => 0,
        };
        let (at, weight) = self
            .clauses
            .iter()
            .map(weight)
            .enumerate()
            .max_by_key(|(at, weight)| (*weight, usize::MAX - at))?;
        if weight == 0 {
            return None;
        }
        match self.clauses.remove(at) {
            Test::Clause { yes, .. } => yes,
            Test::Within { .. } => None,
        }
    }
}
