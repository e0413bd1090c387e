//! Rules that assign their sessions to service chains.
//!
//! A chain accepts one class of traffic. A rule that names it matches only traffic of that class: the
//! matches of both are compiled as those of one rule. The class is not part of the rule's text or identity.
//! When the chain's class changes, only what the rule matches changes.

mod class;

use mmb_lang::{Diagnostic, Match};

use crate::compile::{Compiled, compile};
use crate::effect::EffectFlags;
use crate::{Policy, RuleScope, RuleView};

pub use class::ChainClasses;
pub(crate) use class::all_traffic;

impl Policy {
    /// The service chain that the rule in this slot names.
    pub fn chain_name(&self, slot: u32) -> Option<&str> {
        self.stateful(slot)?.chain.as_deref()
    }

    /// The slot of the effective chain rule among these rules: the one with the highest index.
    #[inline]
    pub fn chain_rule(&self, slots: impl IntoIterator<Item = u32>) -> Option<u32> {
        let chained = slots.into_iter().filter_map(|slot| {
            let effect = self.effect(slot).filter(|effect| effect.flags.contains(EffectFlags::CHAIN))?;
            Some((effect.index, slot))
        });
        chained.max().map(|(_, slot)| slot)
    }

    /// The service chains that rules name: the rule's index and the chain, by ascending index.
    pub fn chains(&self) -> impl Iterator<Item = (u32, &str)> {
        self.chained.iter().filter_map(|&(index, slot)| Some((index, self.chain_name(slot)?)))
    }

    /// Changes the traffic class of a chain. Rules that name it keep index, slot and identity. Returns
    /// their number.
    ///
    /// # Errors
    /// Index of the first rule that contradicts the class, and a diagnostic on the rule's text. The policy
    /// is unchanged.
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

    /// Replaces what a rule matches; its targets stay.
    fn set_pattern(&mut self, slot: u32, compiled: Compiled) {
        let Compiled { pattern, effect: new, .. } = compiled;
        let Some(effect) = self.effects.get_mut(slot as usize) else { return };
        self.reads_out -= usize::from(effect.flags.contains(EffectFlags::READS_OUT));
        self.reads_out += usize::from(new.flags.contains(EffectFlags::READS_OUT));
        self.not_offloadable -= usize::from(effect.flags.contains(EffectFlags::NOT_OFFLOADABLE));
        self.not_offloadable += usize::from(new.flags.contains(EffectFlags::NOT_OFFLOADABLE));
        (effect.flags, effect.scope) = (new.flags, new.scope);
        self.classifier.remove(slot);
        self.classifier.insert(slot, &pattern);
        self.per_packet.remove(slot);
        if new.scope == RuleScope::Packet {
            self.per_packet.insert(slot, &pattern);
        }
    }
}
