//! Lookup: the sessions of a vector of packets.
//!
//! Theory of operation. A vector is looked up in passes, each of which waits for memory once for all packets:
//! keys and buckets, flows, decisions. The first pass can be made earlier, while headers are parsed and in
//! the cache: [`crate::Sessions::begin_prefetch`], then [`crate::Sessions::prefetch`] for each packet, then
//! [`crate::Sessions::end_prefetch`], which returns a [`PrefetchToken`]. The token stands for the vector.
//! [`crate::Sessions::lookup`] takes it and omits the first pass.

pub(crate) mod forecasts;
pub(crate) mod summary;
pub(crate) mod vector;

use mmb_flow::{FlowRef, MappingForecast, PoolId};

use crate::Next;
use crate::store::SessionStore;
use forecasts::OpeningForecast;
pub use vector::PrefetchToken;
use vector::VectorLookup;

/// Computes and prefetches what new sessions will need: the buckets of their replies, and the counts and
/// mappings of their sources.
pub(crate) fn foresee_openings(
    lookup: &mut VectorLookup,
    store: &SessionStore,
    last_pool: Option<PoolId>,
    next: &[Next],
) {
    let VectorLookup { keys, forecasts, .. } = lookup;
    forecasts.clear();
    let ahead = last_pool.and_then(|pool| store.pools.prefetcher(pool));
    for (at, (next, flow)) in next.iter().zip(keys.results()).enumerate() {
        if *next != Next::SlowPath || *flow != FlowRef::NONE {
            continue;
        }
        let key = keys.packed(at);
        let source = store.admission.prefetch(key.source());
        let mapping = ahead.as_ref().and_then(|nat| nat.foresee(&key));
        let flow = store.table.foresee(&key, mapping.as_ref().and_then(MappingForecast::source));
        if key.is_ip4() {
            forecasts.push(OpeningForecast { flow, source, mapping });
        }
    }
}
