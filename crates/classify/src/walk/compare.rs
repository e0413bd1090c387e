//! The last of the passes: what packets are compared with.

use mmb_packet::Window;

use super::{Walk, Work};
use crate::block::{Narrow, Wide, first_words};
use crate::sink::Hits;
#[cfg(target_arch = "x86_64")]
use crate::wide;

impl Walk<'_> {
    /// Compares some heads with what every packet is compared with, and with what they have to be, as fast as the machine can.
    #[allow(unsafe_code)]
    pub(super) fn compare(&self, heads: &[u16], works: &[Work<'_>], hits: &mut Hits) {
        #[cfg(target_arch = "x86_64")]
        if self.wide.is_some() {
            // SAFETY: where there is a `Wide512`, the processor has the instructions.
            return unsafe { self.compare_by_sixteen(heads, works, hits) };
        }
        self.compare_with(
            (heads, works, hits),
            |window| first_words(window.chunk[0]),
            |block, first, window| block.agree(first, window),
            |block, first, window| block.agree(first, window),
            |hits, lanes, slots| hits.sixteen(lanes, slots),
        );
    }

    /// With instructions that a [`wide::Wide512`] stands for.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
    fn compare_by_sixteen(&self, heads: &[u16], works: &[Work<'_>], hits: &mut Hits) {
        self.compare_with(
            (heads, works, hits),
            |window| wide::Chunk::first(window),
            |block, first, window| wide::four(block, first, window),
            |block, first, window| wide::sixteen(block, first, window),
            |hits, lanes, slots| wide::give(hits, lanes, slots),
        );
    }

    /// With these ways to prepare a packet's first chunk, to compare four entries and sixteen, and to give hits.
    #[inline(always)]
    fn compare_with<C>(
        &self,
        (heads, works, hits): (&[u16], &[Work<'_>], &mut Hits),
        first: impl Fn(&Window) -> C,
        four: impl Fn(&Narrow, &C, &Window) -> u32,
        sixteen: impl Fn(&Wide, &C, &Window) -> u32,
        give: impl Fn(&mut Hits, u32, &[u32; 16]),
    ) {
        let mut works = works.iter().peekable();
        for head in heads.iter().copied().map(usize::from) {
            let packet = usize::from(self.heads[head]);
            let (window, facts) = (&self.windows[packet], || self.truths.facts(packet));
            let (first, from) = (first(window), hits.begin());
            if self.may_match_rest(window) {
                if let Some(block) = self.rest.narrow {
                    hits.four(block.certain(four(block, &first, window), window, facts), &block.slots);
                }
                for block in self.rest.wide() {
                    let lanes = sixteen(block, &first, window);
                    if lanes != 0 {
                        give(hits, block.certain(lanes, window, facts), &block.slots);
                    }
                }
            }
            while let Some(work) = works.next_if(|work| usize::from(work.packet) == head) {
                hits.several(work.slots);
                if let Some(block) = work.narrow {
                    hits.four(block.certain(four(block, &first, window), window, facts), &block.slots);
                }
                for block in work.wide {
                    give(hits, block.certain(sixteen(block, &first, window), window, facts), &block.slots);
                }
            }
            hits.end(head, from);
        }
    }
}
