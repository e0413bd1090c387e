//! The facts about the paths that lead to a point of a chain, and which functions may follow there.

use std::sync::Arc;

use mmb_lang::Match;

use super::class;
use super::errors::{ChainError, Located, fail};
use crate::held::MAX_FLOWS;
use crate::{Instance, SessionKey};

/// Whether forward packets are translated when they reach a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Translated {
    #[default]
    No,
    Yes,
    /// On some paths to it.
    Partly,
}

/// The paths to a point of a chain.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathState {
    /// Index of the sessions that scratchpads belong to here.
    pub space: usize,
    /// Instances on the paths.
    pub before: Vec<u16>,
    /// Instances on the paths with scratchpads in these sessions.
    pub here: Vec<u16>,
    /// Instances that packets may come from directly.
    pub last: Vec<u16>,
    /// Matches that all sessions here fulfil.
    pub implied: Vec<Match>,
    /// What functions on the paths accept.
    pub accepted: Vec<(Match, u16)>,
    /// The instances that translate source, destination and sequence numbers.
    pub translators: [Option<u16>; 3],
    pub translated: Translated,
    /// A function with outputs that cannot route sessions in advance.
    pub unrouted: Option<u16>,
    /// The function `flow` in front.
    pub flow: Option<u16>,
    /// Number of functions `flow` in front.
    pub flows: usize,
    /// Number of stream contexts on the paths.
    pub contexts: u16,
    /// A function on the paths edits streams.
    pub edits: bool,
    /// Bits of the branch word that are in use.
    pub bits: u8,
    /// Sequence numbers are translated on some paths to it.
    pub is_partly_spliced: bool,
    /// No packet reaches this point.
    pub is_closed: bool,
}

impl PathState {
    /// Checks whether an instance may follow here.
    pub fn check(&self, number: u16, instance: &Instance, all: &[Arc<Instance>]) -> Result<(), Located> {
        let name = instance.name();
        if self.before.contains(&number) {
            return fail(name, ChainError::UsedTwice(name.into()));
        }
        if instance.function.holds() && self.flows > MAX_FLOWS {
            return fail(name, ChainError::HoldsTooDeep { name: name.into(), max: MAX_FLOWS });
        }
        self.check_streams(instance, all)?;
        if let Some(flow) = self.flow.filter(|_| instance.domain().is_some()) {
            let flow = all[usize::from(flow)].name().to_owned();
            return fail(name, ChainError::ProcessBehindFlow { name: name.into(), flow });
        }
        self.check_class(number, instance, all)?;
        self.check_key(instance, all)?;
        if instance.properties().translates.any() { self.check_translation(instance, all) } else { Ok(()) }
    }

    /// Checks whether stream functions see all bytes.
    fn check_streams(&self, instance: &Instance, all: &[Arc<Instance>]) -> Result<(), Located> {
        let mut before = self.before.iter().map(|&number| &all[usize::from(number)]);
        let splices = |one: &Instance| one.properties().translates.sequence_numbers;
        if instance.function.is_stream() {
            let is_split = self.is_partly_spliced || self.flow.is_some();
            let Some(splicer) = before.find(|other| is_split && splices(other)) else { return Ok(()) };
            let [name, splicer] = [instance.name(), splicer.name()].map(str::to_owned);
            return fail(instance.name(), ChainError::StreamsApart { name, splicer });
        }
        let Some(stream) = before.find(|other| splices(instance) && other.function.is_stream()) else {
            return Ok(());
        };
        let [name, splicer] = [stream.name(), instance.name()].map(str::to_owned);
        fail(instance.name(), ChainError::StreamsApart { name, splicer })
    }

    /// Checks whether any session here can be one that the instance accepts.
    pub fn check_class(
        &self,
        number: u16,
        instance: &Instance,
        all: &[Arc<Instance>],
    ) -> Result<(), Located> {
        let (name, class) = (instance.name(), instance.class());
        for acceptor in self.accepted.iter().map(|(_, acceptor)| *acceptor).filter(|&other| other != number) {
            let other = &all[usize::from(acceptor)];
            if class::contradiction(other.class(), class).is_some() {
                let error = ChainError::DisjointFunctions {
                    name: name.into(),
                    class: class::text(class),
                    before: other.name().into(),
                    other: class::text(other.class()),
                };
                return fail(name, error);
            }
        }
        if class::contradiction(&self.implied, &[]).is_some() {
            // Reported at the function that causes it.
            return Ok(());
        }
        let Some(why) = class::contradiction(&self.implied, class) else { return Ok(()) };
        let (class, path) = (class::text(class), class::text(&self.implied));
        fail(name, ChainError::DisjointPath { name: name.into(), class, path, why })
    }

    /// Checks whether the addresses that the instance is keyed by are not translated yet.
    fn check_key(&self, instance: &Instance, all: &[Arc<Instance>]) -> Result<(), Located> {
        let [source, destination, _] = self.translators;
        let (translator, key) = match instance.properties().key {
            SessionKey::Session => (None, ""),
            SessionKey::Source => (source, "source address"),
            SessionKey::Destination => (destination, "destination address"),
            SessionKey::Pair => (source.or(destination), "address pair"),
        };
        let Some(translator) = translator else { return Ok(()) };
        let (name, translator) = (instance.name(), all[usize::from(translator)].name().to_owned());
        fail(name, ChainError::KeyTranslated { name: name.into(), key, translator })
    }

    /// Checks whether the instance can translate here.
    fn check_translation(&self, instance: &Instance, all: &[Arc<Instance>]) -> Result<(), Located> {
        let name_of = |number: u16| all[usize::from(number)].name().to_owned();
        let name = instance.name().to_owned();
        if let Some(flow) = self.flow.map(name_of) {
            return fail(instance.name(), ChainError::TranslatesBehindFlow { name, flow });
        }
        if let Some(router) = self.unrouted.map(name_of) {
            return fail(instance.name(), ChainError::TranslatesUnrouted { name, router });
        }
        if self.translated == Translated::Partly {
            return fail(instance.name(), ChainError::TranslatesPartly(name));
        }
        let translates = instance.properties().translates;
        let parts = [
            (translates.source, "the source"),
            (translates.destination, "the destination"),
            (translates.sequence_numbers, "sequence numbers"),
        ];
        for ((is_translated, what), translator) in parts.into_iter().zip(self.translators) {
            if let Some(other) = translator.filter(|_| is_translated).map(name_of) {
                return fail(instance.name(), ChainError::TranslatesTwice { name, other, what });
            }
        }
        Ok(())
    }

    /// Extends the paths by an instance.
    pub fn append(&mut self, number: u16, instance: &Instance) {
        self.before.push(number);
        self.here.push(number);
        self.last = vec![number];
        self.accepted.extend(instance.class().iter().map(|one| (one.clone(), number)));
        let translates = instance.properties().translates;
        let parts = [translates.source, translates.destination, translates.sequence_numbers];
        for (translator, is_translated) in self.translators.iter_mut().zip(parts) {
            *translator = if is_translated { Some(number) } else { *translator };
        }
    }

    /// Replaces the state in front of brackets by the one behind them, from the states at the ends of the
    /// arms. Only what all arms know holds behind the brackets.
    pub fn join(&mut self, arms: Vec<PathState>) {
        let mut arms = arms.into_iter();
        let Some(mut joined) = arms.next() else { return };
        for arm in arms {
            union(&mut joined.before, &arm.before);
            union(&mut joined.here, &arm.here);
            union(&mut joined.last, &arm.last);
            joined.is_partly_spliced |= arm.is_partly_spliced || joined.translators[2] != arm.translators[2];
            joined.accepted.retain(|one| arm.accepted.contains(one));
            joined.implied.retain(|one| arm.implied.contains(one));
            for (translator, other) in joined.translators.iter_mut().zip(arm.translators) {
                *translator = translator.or(other);
            }
            if joined.translated != arm.translated {
                joined.translated = Translated::Partly;
            }
            joined.is_closed &= arm.is_closed;
            joined.contexts = joined.contexts.max(arm.contexts);
            joined.edits |= arm.edits;
        }
        (joined.unrouted, joined.flow, joined.space) = (self.unrouted, self.flow, self.space);
        joined.flows = self.flows;
        *self = joined;
    }

    /// Returns the state behind a function `flow`, whose sessions are others.
    pub fn behind_flow(&self, number: u16, space: usize) -> PathState {
        PathState {
            space,
            before: self.before.clone(),
            translators: self.translators,
            translated: self.translated,
            unrouted: self.unrouted,
            flow: Some(number),
            flows: self.flows + 1,
            is_partly_spliced: self.is_partly_spliced,
            contexts: self.contexts,
            edits: self.edits,
            ..PathState::default()
        }
    }
}

fn union(numbers: &mut Vec<u16>, more: &[u16]) {
    for one in more {
        if !numbers.contains(one) {
            numbers.push(*one);
        }
    }
}
