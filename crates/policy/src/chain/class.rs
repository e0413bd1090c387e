//! Traffic classes of service chains.

use mmb_lang::Match;

/// Returns the traffic class of a service chain: matches that must all hold, none for all traffic. `None`:
/// no such chain.
pub type ChainClasses<'a> = dyn Fn(&str) -> Option<Vec<Match>> + 'a;

/// Every chain exists and accepts all traffic.
pub(crate) fn all_traffic(_: &str) -> Option<Vec<Match>> {
    Some(Vec::new())
}
