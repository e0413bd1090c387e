//! What is known at a point of a chain about the ways that lead there, and what must not stand behind them.

use std::sync::Arc;

use mmb_lang::Match;

use super::build::{Wrong, wrong};
use super::class;
use crate::{Instance, SessionKey};

/// Whether packets are translated when they come to a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Translated {
    #[default]
    No,
    Yes,
    /// On some ways to it.
    Some,
}

/// The ways to a point of a chain.
#[derive(Clone, Debug, Default)]
pub(crate) struct Way {
    /// The sessions that scratchpads belong to here.
    pub space: usize,
    /// Instances on the ways.
    pub before: Vec<u16>,
    /// Those of them with scratchpads in these sessions.
    pub here: Vec<u16>,
    /// Those that packets may come from directly.
    pub last: Vec<u16>,
    /// What all sessions are that come here.
    pub implied: Vec<Match>,
    /// What functions on the ways take.
    pub taken: Vec<(Match, u16)>,
    /// Who moves sources, destinations and numbers of sequence.
    pub movers: [Option<u16>; 3],
    pub translated: Translated,
    /// A function with outputs that does not say beforehand where sessions go.
    pub unrouted: Option<u16>,
    /// The function `flow` before.
    pub flow: Option<u16>,
    /// Bits of the word of ways that are taken.
    pub bits: u8,
    /// Nothing comes here.
    pub is_closed: bool,
}

impl Way {
    /// Whether an instance can stand here.
    pub fn check(&self, number: u16, instance: &Instance, all: &[Arc<Instance>]) -> Result<(), Wrong> {
        let name = instance.name();
        if self.before.contains(&number) {
            return wrong(
                name,
                format!(
                    "`{name}` stands twice on one way; for the same function twice, make two of them with `nf add`"
                ),
            );
        }
        self.check_class(number, instance, all)?;
        self.check_key(instance, all)?;
        if instance.properties().translates.any() { self.check_moves(instance, all) } else { Ok(()) }
    }

    /// Whether any session that comes here can be one for the instance.
    pub fn check_class(&self, number: u16, instance: &Instance, all: &[Arc<Instance>]) -> Result<(), Wrong> {
        let (name, mine) = (instance.name(), instance.class());
        let takers: Vec<u16> = self.taken.iter().map(|(_, taker)| *taker).collect();
        for taker in takers.into_iter().filter(|&taker| taker != number) {
            let other = &all[usize::from(taker)];
            if class::contradiction(other.class(), mine).is_some() {
                return wrong(
                    name,
                    format!(
                        "nothing gets to `{name}`: it takes `{}`, and `{}` before it takes only `{}`",
                        class::text(mine),
                        other.name(),
                        class::text(other.class())
                    ),
                );
            }
        }
        if class::contradiction(&self.implied, &[]).is_some() {
            // Told where the function stands that makes it one.
            return Ok(());
        }
        match class::contradiction(&self.implied, mine) {
            Some(why) => wrong(
                name,
                format!(
                    "nothing gets to `{name}`: it takes `{}`, and sessions on this way are `{}` ({why})",
                    class::text(mine),
                    class::text(&self.implied)
                ),
            ),
            None => Ok(()),
        }
    }

    /// Whether the addresses that the instance goes by still tell anything.
    fn check_key(&self, instance: &Instance, all: &[Arc<Instance>]) -> Result<(), Wrong> {
        let [source, destination, _] = self.movers;
        let (mover, what) = match instance.properties().key {
            SessionKey::Session => (None, ""),
            SessionKey::Source => (source, "source address"),
            SessionKey::Destination => (destination, "destination address"),
            SessionKey::Pair => (source.or(destination), "address pair"),
        };
        let Some(mover) = mover else { return Ok(()) };
        let (name, mover) = (instance.name(), all[usize::from(mover)].name());
        wrong(
            name,
            format!(
                "`{name}` goes by the {what}, which `{mover}` before it has replaced: put `{name}` before `{mover}`"
            ),
        )
    }

    /// Whether the instance can translate here.
    fn check_moves(&self, instance: &Instance, all: &[Arc<Instance>]) -> Result<(), Wrong> {
        let name = instance.name();
        if let Some(flow) = self.flow {
            let flow = all[usize::from(flow)].name();
            return wrong(
                name,
                format!(
                    "`{name}` translates, which is done for the sessions before `{flow}`: put it before `{flow}`"
                ),
            );
        }
        if let Some(unrouted) = self.unrouted {
            let unrouted = all[usize::from(unrouted)].name();
            return wrong(
                name,
                format!(
                    "`{name}` translates, but where it stands `{unrouted}` cannot say beforehand which sessions get there: put `{name}` before it"
                ),
            );
        }
        if self.translated == Translated::Some {
            return wrong(
                name,
                format!(
                    "`{name}` translates, and so does some of the ways to it, but not all: have all of them translate, or none"
                ),
            );
        }
        let translates = instance.properties().translates;
        let all_of = [
            (translates.source, "the source"),
            (translates.destination, "the destination"),
            (translates.sequence_numbers, "sequence numbers"),
        ];
        for ((translates, what), mover) in all_of.into_iter().zip(self.movers) {
            if let Some(mover) = mover.filter(|_| translates) {
                let mover = all[usize::from(mover)].name();
                return wrong(
                    name,
                    format!("`{name}` and `{mover}` on one way both translate {what}: one of them has to go"),
                );
            }
        }
        Ok(())
    }

    /// Goes through an instance.
    pub fn enter(&mut self, number: u16, instance: &Instance) {
        self.before.push(number);
        self.here.push(number);
        self.last = vec![number];
        self.taken.extend(instance.class().iter().map(|one| (one.clone(), number)));
        let translates = instance.properties().translates;
        for (mover, moves) in self.movers.iter_mut().zip([
            translates.source,
            translates.destination,
            translates.sequence_numbers,
        ]) {
            *mover = if moves { Some(number) } else { *mover };
        }
    }

    /// What is behind a bracket, from what is at the ends of its arms. Nothing of what they know beyond the way to the
    /// bracket holds there but what all of them know.
    pub fn join(&mut self, arms: Vec<Way>) {
        let mut arms = arms.into_iter();
        let Some(mut joined) = arms.next() else { return };
        for arm in arms {
            union(&mut joined.before, &arm.before);
            union(&mut joined.here, &arm.here);
            union(&mut joined.last, &arm.last);
            joined.taken.retain(|one| arm.taken.contains(one));
            joined.implied.retain(|one| arm.implied.contains(one));
            for (mine, its) in joined.movers.iter_mut().zip(arm.movers) {
                *mine = mine.or(its);
            }
            if joined.translated != arm.translated {
                joined.translated = Translated::Some;
            }
            joined.is_closed &= arm.is_closed;
        }
        (joined.unrouted, joined.flow, joined.space) = (self.unrouted, self.flow, self.space);
        *self = joined;
    }

    /// What is behind a function `flow`: other sessions.
    pub fn behind_flow(&self, number: u16, space: usize) -> Way {
        Way {
            space,
            before: self.before.clone(),
            movers: self.movers,
            translated: self.translated,
            unrouted: self.unrouted,
            flow: Some(number),
            ..Way::default()
        }
    }
}

fn union(mine: &mut Vec<u16>, more: &[u16]) {
    for one in more {
        if !mine.contains(one) {
            mine.push(*one);
        }
    }
}
