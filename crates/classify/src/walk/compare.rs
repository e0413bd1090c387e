//! The last of the passes: what packets are compared with.

use std::ops::Range;

use super::{Walk, Work};
use crate::block::first_words;
use crate::sink::Hits;
#[cfg(target_arch = "x86_64")]
use crate::wide;

impl Walk<'_> {
    /// Compares some heads with what every packet is compared with, and with what they have to be, as fast as the machine can.
    #[allow(unsafe_code)]
    pub(super) fn compare(&self, heads: Range<usize>, works: &[Work<'_>], hits: &mut Hits) {
        #[cfg(target_arch = "x86_64")]
        if self.wide.is_some() {
            // SAFETY: where there is a `Wide512`, the processor has the instructions.
            return unsafe { self.compare_by_sixteen(heads, works, hits) };
        }
        self.compare_by_four(heads, works, hits);
    }

    fn compare_by_four(&self, heads: Range<usize>, works: &[Work<'_>], hits: &mut Hits) {
        let mut works = works.iter().peekable();
        for head in heads {
            let packet = usize::from(self.heads[head]);
            let window = &self.windows[packet];
            let (words, facts) = (first_words(window.chunk[0]), || self.truths.facts(packet));
            let from = hits.begin();
            if self.may_match_rest(window) {
                if let Some(block) = self.rest.narrow {
                    let lanes = block.matches(&words, window, facts);
                    if lanes != 0 {
                        hits.four(lanes, &block.slots);
                    }
                }
                for block in self.rest.wide() {
                    let lanes = block.matches(&words, window, facts);
                    if lanes != 0 {
                        hits.sixteen(lanes, &block.slots);
                    }
                }
            }
            while let Some(work) = works.next_if(|work| usize::from(work.packet) == head) {
                hits.several(work.slots);
                if let Some(block) = work.narrow {
                    hits.four(block.matches(&words, window, facts), &block.slots);
                }
                for block in work.wide {
                    hits.sixteen(block.matches(&words, window, facts), &block.slots);
                }
            }
            hits.end(head, from);
        }
    }

    /// The same, with instructions that a [`wide::Wide512`] stands for.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
    fn compare_by_sixteen(&self, heads: Range<usize>, works: &[Work<'_>], hits: &mut Hits) {
        let mut works = works.iter().peekable();
        for head in heads {
            let packet = usize::from(self.heads[head]);
            let window = &self.windows[packet];
            let (chunk, facts) = (wide::Chunk::first(window), || self.truths.facts(packet));
            let from = hits.begin();
            if self.may_match_rest(window) {
                if let Some(block) = self.rest.narrow {
                    let lanes = wide::four(block, &chunk, window);
                    hits.four(block.certain(lanes, window, facts), &block.slots);
                }
                for block in self.rest.wide() {
                    let lanes = wide::sixteen(block, &chunk, window);
                    if lanes != 0 {
                        wide::give(hits, block.certain(lanes, window, facts), &block.slots);
                    }
                }
            }
            while let Some(work) = works.next_if(|work| usize::from(work.packet) == head) {
                hits.several(work.slots);
                if let Some(block) = work.narrow {
                    let lanes = wide::four(block, &chunk, window);
                    hits.four(block.certain(lanes, window, facts), &block.slots);
                }
                for block in work.wide {
                    let lanes = wide::sixteen(block, &chunk, window);
                    wide::give(hits, block.certain(lanes, window, facts), &block.slots);
                }
            }
            hits.end(head, from);
        }
    }
}
