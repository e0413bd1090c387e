//! Lookup: the sessions of a vector of packets.
//!
//! Theory of operation. A vector is looked up in passes, each of which waits for memory once for all packets:
//! keys and buckets, flows, decisions. The first pass can be made earlier, while headers are parsed and in
//! the cache: [`crate::Sessions::begin_prefetch`], then [`crate::Sessions::prefetch`] for each packet, then
//! [`crate::Sessions::end_prefetch`], which returns a [`PrefetchToken`]. The token stands for the vector.
//! [`crate::Sessions::lookup`] takes it and omits the first pass.

pub(crate) mod summary;
pub(crate) mod vector;

use mmb_flow::{BatchLookup, FlowRef, PoolId, Table};

use crate::Next;
use crate::store::SessionStore;
pub use vector::PrefetchToken;
use vector::VectorLookup;

/// Prefetches what new sessions will need: the buckets of their replies, and the counts and mappings of
/// their sources.
pub(crate) fn prefetch_replies(
    lookup: &VectorLookup,
    store: &SessionStore,
    last_pool: Option<PoolId>,
    next: &[Next],
) {
    let ahead = last_pool.and_then(|pool| store.pools.prefetcher(pool));
    let keys: &BatchLookup = &lookup.keys;
    let all = next.iter().zip(keys.results()).enumerate();
    let new = all.filter(|(_, (next, flow))| **next == Next::SlowPath && **flow == FlowRef::NONE);
    store.table.prefetch_replies(keys, new.map(|(at, _)| at), |key| {
        store.admission.prefetch(key.source());
        ahead.as_ref().and_then(|nat| nat.predict_source(key))
    });
}

/// Prefetches the scratchpads of sessions that go through chains.
pub(crate) fn prefetch_scratchpads(lookup: &VectorLookup, table: &Table, next: &[Next]) {
    for (&flow, next) in lookup.keys.results().iter().zip(next) {
        if *next == Next::Chain {
            table.prefetch_scratch(flow.session());
        }
    }
}
