//! The lookup of a vector of packets: passes over the root's tables, and caches in front of them.

mod adaptive;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod columns;
mod early;
mod head_hits;
mod heads;
mod match_cache;
mod packet_classes;
mod passed_heads;
mod walk;

pub(crate) use adaptive::AdaptiveState;
pub(crate) use columns::Columns;
pub(crate) use early::find_possible_matches;
pub(crate) use head_hits::HeadHits;
pub(crate) use heads::Heads;
pub(crate) use match_cache::MatchCache;
pub(crate) use packet_classes::PacketClasses;
pub(crate) use walk::{DeferredWork, TABLES, Walk};
