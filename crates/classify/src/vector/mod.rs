//! A vector of packets in the classifier: packets, hits, and common bits.

mod avx512;
mod hit;
mod packet;
mod sink;
mod summary;

pub(crate) use avx512::Avx512;
pub(crate) use hit::ALL;
pub use hit::{Hit, VECTOR};
pub(crate) use packet::LookupPacket;
pub(crate) use sink::HitSink;
pub(crate) use summary::{KindSet, VectorSummary, kind_bit};
