//! Vectors of which few packets match anything, or none: found out at a glance.

use mmb_packet::Window;

use super::{CHEAP, Classifier};
use crate::batch::{Batch, Hit, VECTOR};
use crate::pattern::Facts;
use crate::sink::Sink;
use crate::summary::Summary;
use crate::walk;

/// Where no more than one packet in so many may match, these are looked up one by one.
const FEW: usize = 8;

impl Classifier {
    /// Whether the packets may match through a few tables and blocks of the root and nothing else.
    fn is_glanceable(&self, summary: &Summary) -> bool {
        let (always, rest, bits) = self.root.rest();
        let tables = self.root.tables().iter().filter(|table| !summary.excludes(table));
        always.is_empty()
            && bits.is_out_of_question(summary)
            && tables.count() + if self.sieve.is_some() { 0 } else { rest.concerned(summary).quads() }
                <= CHEAP
    }

    /// Finds what there is to be found if few of the packets may match anything; false, and nothing done: they are not few, or it
    /// takes as long to find out.
    #[inline]
    pub(super) fn classify_few(&self, batch: &mut Batch, summary: &Summary) -> bool {
        let Batch { windows, len, hits, heads, habits, truths, .. } = batch;
        let windows = &windows[..(*len).min(VECTOR)];
        if !truths.is_empty() || !self.is_glanceable(summary) || !habits.glance.is_due() {
            return false;
        }
        let (_, rest, _) = self.root.rest();
        let rest = (&rest.concerned(summary), self.sieve.as_ref());
        let few = walk::glance(windows, self.root.tables(), rest, summary, heads.room());
        habits.glance.learn(few.is_none());
        let Some(few) = few else { return false };
        if few <= windows.len() / FEW {
            self.visit_one_by_one(windows, &heads.room()[..few], hits);
        } else {
            self.visit_few(batch, few, summary);
        }
        true
    }

    /// Finds what the root has in tables and in blocks for the packets in [`Heads::room`](crate::sink::Heads::room).
    #[inline(never)]
    fn visit_few(&self, batch: &mut Batch, few: usize, summary: &Summary) {
        let Batch { windows, hits, gathered, heads, left, truths, recent, habits, wide, .. } = batch;
        gathered.clear();
        heads.take(few);
        self.visit_root(&windows[..], heads.packets(), truths, summary, (left, habits, *wide), gathered);
        gathered.spread(heads, (recent, few), *wide, hits);
    }

    /// The same for packets one by one.
    #[inline(never)]
    fn visit_one_by_one(&self, windows: &[Window], few: &[u16], hits: &mut Vec<Hit>) {
        let (_, rest, _) = self.root.rest();
        for &packet in few {
            let window = &windows[usize::from(packet)];
            let sink = &mut Sink::new(hits, packet);
            rest.visit(window, Facts::NONE, sink);
            for table in self.root.tables() {
                table.visit(window, Facts::NONE, sink);
            }
        }
    }
}
