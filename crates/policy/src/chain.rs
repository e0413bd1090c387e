//! Rules that give their sessions to service chains.
//!
//! A chain takes one class of traffic, and a rule that names it matches only what is of that class: the matches of both
//! stand in the classifier as one rule's. The class is no part of the rule, neither of its text nor of its identity: when
//! the chain changes, so does what the rule matches, and nothing else.

use mmb_lang::{Diagnostic, Match};

use crate::compile::{Compiled, compile};
use crate::decide::flags;
use crate::{Policy, RuleScope, RuleView};

/// What each service chain takes: matches that all have to hold, none for all traffic; None: there is no such chain.
pub type ChainClasses<'a> = dyn Fn(&str) -> Option<Vec<Match>> + 'a;

/// Every chain is there and takes all traffic.
pub(crate) fn all_traffic(_: &str) -> Option<Vec<Match>> {
    Some(Vec::new())
}

impl Policy {
    /// The service chain that the rule in this slot gives its sessions to.
    pub fn chain_name(&self, slot: u32) -> Option<&str> {
        self.stateful(slot)?.chain.as_deref()
    }

    /// Slot of that one of these rules whose chain counts: the one with the highest index that has a chain.
    #[inline]
    pub fn chain_rule(&self, slots: impl IntoIterator<Item = u32>) -> Option<u32> {
        let chained = slots.into_iter().filter_map(|slot| {
            let effect = self.effect(slot).filter(|effect| effect.flags & flags::CHAIN != 0)?;
            Some((effect.index, slot))
        });
        chained.max().map(|(_, slot)| slot)
    }

    /// The service chains that rules name: index of the rule and the chain, in ascending order of indexes.
    pub fn chains(&self) -> impl Iterator<Item = (u32, &str)> {
        self.chained.iter().filter_map(|&(index, slot)| Some((index, self.chain_name(slot)?)))
    }

    /// From now on the chain takes this class of traffic. Rules that name it keep index, slot and identity. Returns how
    /// many there are.
    ///
    /// # Errors
    /// Index of the first rule that cannot be with that class, and why, with a place in the rule's text; nothing was
    /// done then.
    pub fn set_chain_class(
        &mut self,
        chain: &str,
        class: &[Match],
        ifaces: &dyn Fn(&str) -> Option<u16>,
    ) -> Result<usize, (u32, Diagnostic)> {
        let anew = |view: RuleView<'_>| compile(&view.rule()?, ifaces, &|_| Some(class.to_vec()));
        let named =
            self.chains().filter(|(_, name)| *name == chain).filter_map(|(index, _)| self.rule(index));
        let compiled: Result<Vec<_>, _> = named
            .map(|view| anew(view).map(|compiled| (view.slot, compiled)).map_err(|error| (view.index, error)))
            .collect();
        let compiled = compiled?;
        let number = compiled.len();
        compiled.into_iter().for_each(|(slot, compiled)| self.set_pattern(slot, compiled));
        Ok(number)
    }

    /// A rule matches something else; what it does stays as it is.
    fn set_pattern(&mut self, slot: u32, compiled: Compiled) {
        let Compiled { pattern, effect: new, .. } = compiled;
        let Some(effect) = self.effects.get_mut(slot as usize) else { return };
        self.reads_out -= usize::from(effect.flags & flags::READS_OUT != 0);
        self.reads_out += usize::from(new.flags & flags::READS_OUT != 0);
        self.not_offloadable -= usize::from(effect.flags & flags::NOT_OFFLOADABLE != 0);
        self.not_offloadable += usize::from(new.flags & flags::NOT_OFFLOADABLE != 0);
        (effect.flags, effect.scope) = (new.flags, new.scope);
        self.classifier.remove(slot);
        self.classifier.insert(slot, &pattern);
        self.per_packet.remove(slot);
        if new.scope == RuleScope::Packet {
            self.per_packet.insert(slot, &pattern);
        }
    }
}
