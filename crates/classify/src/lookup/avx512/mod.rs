//! Kernels for processors with AVX-512: compare sixteen entries, write sixteen hits, and for eight packets at
//! once read their chunks, compare an entry, and query a filter and a guard.
//!
//! Every function here requires the instructions of [`Level::Avx512`](crate::vector::Level). It returns
//! exactly what the portable code returns.

mod append;
mod compare;
mod few;
mod gather;
mod load;
mod query;

pub(super) use append::append;
pub(super) use compare::{
    Sixteen, collect_heads, collect_nonzero, compare_further8, compare4_with_all, compare8_chunk,
    compare8_first, compare16, compare16_with_all, push_matches8, push_matches16,
};
pub(super) use few::query_pre_filter;
pub(super) use load::load;
pub(super) use query::{find_lanes, hash_keys, query_filter, query_guard};

/// Operation of three operands: `(a & b) ^ c`.
const MASKED_XOR: i32 = 0x6a;
/// Operation of three operands: `a | b | c`.
const ANY: i32 = 0xfe;
