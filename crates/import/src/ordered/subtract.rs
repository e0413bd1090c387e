//! Differences and intersections of unions of filters, within a budget.

use super::budget::Budget;
use crate::filter::Filter;

/// Maximum number of filters of a step.
const MAX_FILTERS: usize = 64;

/// The packets of `filters` that are in none of `drops`. None if this takes too many filters or too much
/// work.
pub(super) fn all_minus(
    mut filters: Vec<Filter>,
    drops: &[Filter],
    budget: &mut Budget,
) -> Option<Vec<Filter>> {
    for drop in drops {
        budget.spend(filters.len())?;
        if filters.iter().all(|filter| filter.is_disjoint(drop)) {
            continue;
        }
        budget.spend(filters.iter().map(|filter| filter.cost() + drop.cost()).sum())?;
        filters = distinct(filters.iter().flat_map(|filter| filter.minus(drop)), budget)?;
        if filters.len() > MAX_FILTERS {
            return None;
        }
    }
    Some(filters)
}

/// The filters without those that are subsets of another. None if this takes too much work.
pub(super) fn distinct(filters: impl Iterator<Item = Filter>, budget: &mut Budget) -> Option<Vec<Filter>> {
    let mut kept: Vec<Filter> = Vec::new();
    for filter in filters {
        budget.spend(kept.len() * filter.cost())?;
        if !kept.iter().any(|other| filter.is_within(other)) {
            kept.retain(|other| !other.is_within(&filter));
            kept.push(filter);
        }
    }
    Some(kept)
}

/// The intersection of two unions of filters. None if it has too many filters or takes too much work.
pub(super) fn intersection(a: &[Filter], b: &[Filter], budget: &mut Budget) -> Option<Vec<Filter>> {
    budget.spend(a.len() * b.len())?;
    let pairs = || a.iter().flat_map(|a| b.iter().map(move |b| (a, b))).filter(|(a, b)| !a.is_disjoint(b));
    budget.spend(pairs().map(|(a, b)| a.cost() + b.cost()).sum())?;
    let all = distinct(pairs().filter_map(|(a, b)| a.intersection(b)), budget)?;
    (all.len() <= MAX_FILTERS).then_some(all)
}
