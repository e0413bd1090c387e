//! What the packets of a vector have in common.
//!
//! Theory of operation. Where no packet has a segment size option, or all go to one subnet, whole tables are out of the
//! question, and so are entries and bit vectors outside of tables; that is found out for all packets at once.

use mmb_packet::Window;
use mmb_packet::window::CHUNKS;

use crate::block::Block;
use crate::masked::Masked;
use crate::table::Table;

/// The bits of each chunk that all packets have, and those that any has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary([(u128, u128); CHUNKS]);

impl Summary {
    /// What is asked about these chunks (bits). The first is left out: packets differ in it.
    pub fn new(windows: &[Window], chunks: u8) -> Summary {
        let mut summary = Summary([(0, u128::MAX); CHUNKS]);
        for (chunk, bits) in summary.0.iter_mut().enumerate().skip(1) {
            if chunks & 1 << chunk != 0 {
                let values = windows.iter().map(|window| window.chunk[chunk]);
                *bits = values.fold((u128::MAX, 0), |(all, any), value| (all & value, any | value));
            }
        }
        summary
    }

    /// Whether no packet can match through the table.
    #[inline]
    pub fn excludes(&self, table: &Table) -> bool {
        let (all, any) = self.0[table.chunk % CHUNKS];
        table.is_out_of_question(all, any)
    }

    /// Whether no packet can match an entry of the block.
    #[inline]
    pub fn excludes_block<const N: usize>(&self, block: &Block<N>) -> bool {
        let (all, any) = self.0[block.chunk()];
        block.is_out_of_question(all, any)
    }

    /// Whether no packet satisfies a cover.
    pub fn excludes_cover(&self, cover: &Masked) -> bool {
        let each = self.0.iter().zip(cover.mask().iter().zip(cover.key()));
        each.fold(0, |never, ((all, any), (mask, key))| never | key & !any | mask & !key & all) != 0
    }
}
