//! Bit vectors for entries that masks do not distinguish: ranges, inequalities, negations.
//!
//! Theory of operation. The method is that of Lakshman and Stiliadis ("High-speed policy-based packet
//! forwarding", 1998). In each dimension (a field), the value of the packet selects a row with one bit for
//! each entry. A bit is set if the entry accepts the value. Entries whose bit is set in all rows are
//! candidates. The dimensions that exclude most entries come first, and an empty result ends the search for a
//! packet. Candidates are checked in full unless the dimensions decide them. So a dimension may accept more
//! than an entry does, and not every field needs a dimension.
//!
//! Before that, the dimensions are applied to all packets of a vector at once: most fields are equal in them,
//! or nearly so ([`start`]). The entries that remain are compared with all packets ([`columns`]), unless they
//! are so many that finding the rows costs less.
//!
//! Otherwise a group of packets goes through the dimensions together. The memory accesses of the packets
//! overlap, a dimension's bounds and rows stay in the cache, and no branch depends on a single packet until
//! candidates remain.
//!
//! A partition has at most [`lanes::LANES`] entries. More entries are distributed over several partitions.
//! Entries about one transport protocol are in partitions of their own, which other packets skip. A change
//! affects one partition, and copies those of its dimensions that the entry restricts, if a clone shares
//! them.

mod accepted;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bit_vector;
mod choose;
mod columns;
mod conditions;
mod dimension;
mod intervals;
mod lanes;
mod partition;
mod start;
#[cfg(test)]
mod tests;

pub(crate) use bit_vector::BitVector;
