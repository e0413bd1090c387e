use std::sync::Arc;

use mmb_packet::Window;
use proptest::prelude::*;

use super::*;
use crate::leaf::Leaf;
use crate::lookup::columns::Columns;
use crate::pattern::{Entry, MaskedKey, RuleEntry};
use crate::predicate::PredicateResults;
use crate::table::{MaskChoice, Path, Seeds, Table};
use crate::vector::{Simd, VectorSummary};

/// The place of a byte of the fifth chunk.
const BYTE: usize = 72;

/// A prefix of the first chunk, from 8 bits on, and a byte of the fifth chunk or not.
fn cover() -> impl Strategy<Value = MaskedKey> {
    (8usize..40, any::<u64>(), proptest::option::of(0..3u8)).prop_map(|(length, value, byte)| {
        let prefix = MaskedKey::bits(0, length, u128::from((value % 4) << 32 | value >> 32) >> (40 - length));
        let byte = byte.and_then(|value| MaskedKey::byte(BYTE, 0xff, value));
        let cover = prefix.and_then(|prefix| prefix.and(&byte.unwrap_or_default()));
        cover.and_then(|cover| cover.and(&MaskedKey::IP)).unwrap_or_default()
    })
}

/// A table that hashes the first `bits` of the first chunk, or with 0 the byte of the fifth.
fn table(bits: usize, covers: &[MaskedKey]) -> Table {
    let place = if bits == 0 { MaskedKey::byte(BYTE, 0xff, 0) } else { MaskedKey::bits(0, bits, 0) };
    let chunk = if bits == 0 { BYTE / 16 } else { 0 };
    let mask = place.map_or(0, |place| place.mask()[chunk]);
    let mut table = Table::new(Seeds::from_seed(1), MaskChoice { chunk, mask });
    let entries = covers.iter().filter_map(|cover| Entry::new(cover, None));
    let items: Vec<RuleEntry> = (0..).zip(entries.map(Arc::new)).collect();
    let accepted = items.into_iter().filter(|item| table.accepts(&item.1)).collect();
    table.fill(accepted, &Path { known: MaskedKey::ANY, pivot: None }, &[]);
    table
}

proptest! {
    #[test]
    fn both_find_the_same_tables(
        covers in proptest::collection::vec(cover(), 1..60),
        bits in proptest::collection::vec(prop_oneof![8usize..32, Just(0)], 1..4),
        packets in proptest::collection::vec((any::<prop::sample::Index>(), 0..3u8), 1..=VECTOR),
        (reverse, one_byte) in any::<(bool, bool)>(),
    ) {
        let near = |(of, byte): &(prop::sample::Index, u8)| {
            let cover = covers[of.index(covers.len())];
            let own = |at: usize| u128::from_ne_bytes([*byte; 16]) & !cover.mask()[at] | cover.key()[at];
            let mut window = Window { chunk: std::array::from_fn(own) };
            if one_byte {
                window.bytes_mut()[BYTE] = 1;
            }
            window
        };
        let windows: Vec<Window> = packets.iter().map(near).collect();
        let mut heads: Vec<u16> = (0..windows.len() as u16).collect();
        if reverse {
            heads.reverse();
        }
        let mut columns = Columns::default();
        let summary = VectorSummary::new(&windows, u8::MAX);
        columns.select(&heads, &windows, u8::MAX, Simd::detect());
        let tables = bits.iter().map(|bits| table(*bits, &covers));
        let tables: Vec<Table> = tables.filter(|table| !table.is_excluded(&summary)).collect();
        let (results, leaf) = (PredicateResults::default(), Leaf::default());
        let tables_of = |simd| {
            let walk = Walk {
                windows: &windows,
                columns: &columns,
                heads: &heads,
                results: &results,
                summary: &summary,
                leaf: &leaf.active_blocks(&summary),
                pre_filter: None,
                tables: &tables.iter().collect::<Vec<_>>(),
                simd,
            };
            let mut tables = [0; VECTOR];
            walk.query_filters(&mut PassedHeads::default(), &mut tables);
            tables
        };
        let found = tables_of(Simd::PORTABLE);
        prop_assert!(tables_of(Simd::detect()) == found);
        for (head, packet) in heads.iter().enumerate() {
            for (t, table) in tables.iter().enumerate() {
                let window = &windows[usize::from(*packet)];
                let may_match = table.filter_reader()(window);
                prop_assert_eq!(found[head] >> t & 1, u64::from(may_match));
                let holds = |cover: &MaskedKey| {
                    cover.holds(window) && Entry::new(cover, None).is_some_and(|entry| table.accepts(&entry))
                };
                prop_assert!(may_match || !covers.iter().any(holds));
            }
        }
        prop_assert!(found[heads.len()..].iter().all(|tables| *tables == 0));
    }
}
