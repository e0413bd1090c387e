//! The passes where most packets have no key in most tables: their filters are asked first.
//!
//! Theory of operation. Table by table, all heads are looked up in its filter; that takes no branch, and nothing waits for
//! anything else. What is left are a few pairs of heads and tables, which go through the other passes, and heads that may
//! match what every packet is compared with.

use mmb_packet::prefetch;

use super::{PAIRS, Scratch, Walk};
use crate::batch::VECTOR;
use crate::sink::Hits;
use crate::walk::Left;

impl<'a> Walk<'a> {
    /// Gives `hits` the hits of all heads; returns how many pairs of a head and a table may have to do with each other.
    pub(super) fn sift(&self, scratch: &mut Scratch<'a>, left: &mut Left, hits: &mut Hits) -> usize {
        let mut tables = [0u64; VECTOR];
        self.ask_filters(&mut tables);
        let mut concerned = [0u16; VECTOR];
        let n = self.concerned(&tables, &mut concerned);
        let (mut all, mut pairs, mut first) = (0, 0, 0);
        let mut of = [(0u8, 0u8); PAIRS];
        for (at, &head) in concerned[..n].iter().enumerate() {
            let mut tables = tables[usize::from(head)];
            if pairs + tables.count_ones() as usize > PAIRS {
                all += self.look_at(&concerned[first..at], &of[..pairs], scratch, left, hits);
                (first, pairs) = (at, 0);
            }
            while tables != 0 {
                of[pairs % PAIRS] = (head as u8, tables.trailing_zeros() as u8);
                pairs += 1;
                tables &= tables - 1;
            }
        }
        all + self.look_at(&concerned[first..n], &of[..pairs], scratch, left, hits)
    }

    /// Sets for each head the bits of those tables that may have its key.
    #[inline(always)]
    fn ask_filters(&self, tables: &mut [u64; VECTOR]) {
        for (t, table) in self.tables.iter().enumerate() {
            let may_have = table.look();
            for (tables, &packet) in tables.iter_mut().zip(self.heads) {
                *tables |= u64::from(may_have(&self.windows[usize::from(packet)])) << t;
            }
        }
    }

    /// The heads that may match something; returns how many they are.
    #[inline(always)]
    fn concerned(&self, tables: &[u64; VECTOR], concerned: &mut [u16; VECTOR]) -> usize {
        let mut n = 0;
        let has_rest = !self.rest.is_empty();
        for (head, tables) in tables[..self.heads.len()].iter().enumerate() {
            concerned[n % VECTOR] = head as u16;
            n += usize::from((*tables != 0) | (has_rest && self.may_match_rest(self.window(head))));
        }
        n
    }

    /// The other passes for some heads and their pairs with tables; returns how many of these may have to do with each other.
    #[inline(always)]
    fn look_at(
        &self,
        heads: &[u16],
        pairs: &[(u8, u8)],
        scratch: &mut Scratch<'a>,
        left: &mut Left,
        hits: &mut Hits,
    ) -> usize {
        for (&(head, t), probe) in pairs.iter().zip(&mut scratch.probes) {
            let store = &self.tables[usize::from(t)].store;
            let hash = store.seeds.hash(self.tables[usize::from(t)].key(self.window(head)));
            let group = store.page(hash).group(hash).1;
            prefetch::read(group);
            *probe = (group, hash);
        }
        let (mut agreed, mut found) = ([(0u8, 0u8); PAIRS], 0);
        for (pair, (group, hash)) in scratch.probes[..pairs.len()].iter().enumerate() {
            let lanes = group.find(hash.tag()).bits();
            agreed[found % PAIRS] = (pair as u8, lanes);
            found += usize::from(lanes != 0);
        }
        for (&(pair, lanes), candidate) in agreed[..found].iter().zip(&mut scratch.candidates) {
            let ((head, table), hash) = (pairs[usize::from(pair)], scratch.probes[usize::from(pair)].1);
            *candidate = self.candidate(head.into(), table, lanes, hash);
        }
        self.look(heads, found, scratch, left, hits);
        found
    }
}
