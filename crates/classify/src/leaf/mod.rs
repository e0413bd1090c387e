//! Leaves: a few entries that a packet is compared with one by one.

mod block;
mod blocks;
mod comparable;
mod further;
mod port_ranges;
mod pre_filter;
mod row;

#[cfg(target_arch = "x86_64")]
pub(crate) use block::Block;
pub(crate) use block::{Block4, Block8, Block16, FEW_VALUES, PORTS, first_chunk_words, first_words};
pub(crate) use blocks::{ActiveBlocks, Leaf, capacity};
pub(crate) use comparable::Effort;
#[cfg(target_arch = "x86_64")]
pub(crate) use further::Further;
pub(crate) use pre_filter::PreFilter;
pub(crate) use row::Row;
