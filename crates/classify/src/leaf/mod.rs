//! Leaves: a few entries that a packet is compared with one by one.

mod block;
mod blocks;
mod further_words;
mod port_ranges;
mod pre_filter;

pub(crate) use block::{Block4, Block16, FEW_VALUES, PORTS, first_chunk_words, first_words, is_guarded};
pub(crate) use blocks::{ActiveBlocks, Leaf, capacity};
#[cfg(target_arch = "x86_64")]
pub(crate) use further_words::FurtherWords;
pub(crate) use pre_filter::PreFilter;
