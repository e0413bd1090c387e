//! Whether a policy treats all packets of a flow alike, so that the fast path can take it over.
//!
//! A flow is the packets with the same input port, addresses and ports. Fragments, packets with IP options
//! or extension headers, and ICMP errors belong to no flow.

pub(crate) mod obstacle;

use crate::effect::EffectFlags;
use crate::{Policy, PortDependence};
use obstacle::rule_obstacle;

impl Policy {
    /// The first rule that prevents offloading: its index, and the words that are the obstacle.
    ///
    /// The rule's effect depends on more than the flow, or changes more than addresses and ports. `None`:
    /// no such rule.
    pub fn offload_obstacle(&self) -> Option<(u32, String)> {
        if self.not_offloadable == 0 {
            return None;
        }
        let is_one = |slot| {
            self.effect(slot).is_some_and(|effect| effect.flags.contains(EffectFlags::NOT_OFFLOADABLE))
        };
        let view = self.rules().find(|view| is_one(view.slot))?;
        // The obstacle may be in the class of the rule's chain, and not in its own words.
        let words =
            view.rule().ok().and_then(|rule| rule_obstacle(&rule)).unwrap_or_else(|| view.text.to_owned());
        Some((view.index, words))
    }

    /// How decisions depend on ports. `None` if rules are stateful, because sessions then do.
    pub fn port_dependence(&self) -> Option<&PortDependence> {
        (!self.is_stateful()).then_some(&self.port_dependence)
    }
}

#[cfg(test)]
mod tests;
