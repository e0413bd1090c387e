//! Kernels for processors with AVX-512: compare sixteen entries, write sixteen hits, and query a filter and a
//! guard for eight packets at once.
//!
//! Every function here requires the instructions that an [`Avx512`](crate::vector::Avx512) stands for. It
//! returns exactly what the portable code returns.

mod append;
mod compare;
mod gather;
mod query;

pub(super) use append::append;
pub(super) use compare::{
    Chunk, Eight, collect_nonzero, compare_all, compare_further8, compare4_with_all, compare8, compare16,
    compare16_with_all, push_matches8, push_matches16,
};
pub(super) use query::{ChunkColumns, hash_keys, query_filter, query_guard};
