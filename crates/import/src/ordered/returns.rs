//! Returns that follow each other, as one step.
//!
//! Theory of operation. An anti-spoofing chain lists its permitted sources, each with a `RETURN`. To subtract
//! them one after the other from the packets that go on takes work that grows with the square of their
//! number. Returns that follow each other can change places, so those that differ in the values of one
//! address only are one return with the union of these values.

use std::iter;

use mmb_lang::FieldId;

use super::step::{Chains, Step, Verdict};
use crate::filter::{Filter, Values};
use crate::intervals::Intervals;

/// The fields whose values are joined.
const ADDRESSES: [FieldId; 4] = [FieldId::IpSaddr, FieldId::IpDaddr, FieldId::Ip6Saddr, FieldId::Ip6Daddr];

/// The chains with joined returns. A joined one has the place and the text of the first.
pub(super) fn join(chains: &Chains) -> Chains {
    chains.iter().map(|(name, steps)| (name.clone(), join_steps(steps))).collect()
}

fn join_steps(steps: &[Step]) -> Vec<Step> {
    let mut joined = Vec::with_capacity(steps.len());
    let mut rest = steps;
    while let Some((first, behind)) = rest.split_first() {
        let Some((field, own)) = address(first) else {
            joined.push(first.clone());
            rest = behind;
            continue;
        };
        let alike: Vec<&Intervals> =
            behind.iter().map_while(|step| values_if_alike(step, &first.filters[0], field)).collect();
        let all = iter::once(own).chain(alike.iter().copied()).flat_map(Intervals::iter);
        let filter = first.filters[0].with_values(field, Values::Numbers(Intervals::of(all)));
        joined.push(Step { filters: vec![filter], ..first.clone() });
        rest = &behind[alike.len()..];
    }
    joined
}

/// The address that a return tests, and its values.
fn address(step: &Step) -> Option<(FieldId, &Intervals)> {
    let filter = single_filter(step)?;
    ADDRESSES.into_iter().find_map(|field| match filter.values(field)? {
        Values::Numbers(numbers) => Some((field, numbers)),
        Values::Names { .. } => None,
    })
}

/// The only filter of a return, if it excludes nothing.
fn single_filter(step: &Step) -> Option<&Filter> {
    match step.filters.as_slice() {
        [filter]
            if step.verdict == Verdict::Return
                && filter.excluded().is_empty()
                && filter.members().is_empty() =>
        {
            Some(filter)
        }
        _ => None,
    }
}

/// The values of a field in a return that is like a filter in all others.
fn values_if_alike<'a>(step: &'a Step, filter: &Filter, field: FieldId) -> Option<&'a Intervals> {
    let own = single_filter(step)?;
    let others = |filter: &'_ Filter| {
        filter.terms().iter().filter(|term| term.field != field).cloned().collect::<Vec<_>>()
    };
    match own.values(field)? {
        Values::Numbers(numbers) if others(own) == others(filter) && own.states() == filter.states() => {
            Some(numbers)
        }
        _ => None,
    }
}
