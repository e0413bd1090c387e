//! Vectors of which few packets match anything, or none: found out at a glance.

use mmb_packet::Window;

use super::{CHEAP, Classifier};
use crate::batch::{Hit, VECTOR};
use crate::pattern::Facts;
use crate::sink::Sink;
use crate::summary::Summary;
use crate::walk;

impl Classifier {
    /// Whether the packets may match through a few tables and blocks of the root and nothing else.
    pub(super) fn is_glanceable(&self, summary: &Summary) -> bool {
        let (always, rest, bits) = self.root.rest();
        let tables = self.root.tables().iter().filter(|table| !summary.excludes(table));
        always.is_empty()
            && bits.is_out_of_question(summary)
            && tables.count() + if self.sieve.is_some() { 0 } else { rest.concerned(summary).quads() }
                <= CHEAP
    }

    /// Finds what the root has in tables and in blocks, for packets one by one.
    #[inline(never)]
    pub(super) fn visit_few(&self, windows: &[Window], few: &[u16], hits: &mut Vec<Hit>) {
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

    /// Those of the packets, by number, that may match something, if they are few.
    #[inline]
    pub(super) fn glance<'o>(
        &self,
        windows: &[Window],
        summary: &Summary,
        room: &'o mut [u16; VECTOR],
    ) -> Option<&'o [u16]> {
        let (_, rest, _) = self.root.rest();
        walk::glance(
            windows,
            self.root.tables(),
            (&rest.concerned(summary), self.sieve.as_ref()),
            summary,
            room,
        )
    }
}
