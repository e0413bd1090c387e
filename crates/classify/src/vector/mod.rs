//! A vector of packets in the classifier: packets, hits, and common bits.

mod hit;
mod packet;
mod simd;
mod sink;
mod summary;

pub(crate) use hit::ALL;
pub use hit::{Hit, VECTOR};
pub(crate) use packet::LookupPacket;
pub(crate) use simd::{Level, Simd};
pub(crate) use sink::HitSink;
pub(crate) use summary::{KindSet, VectorSummary, kind_bit};
