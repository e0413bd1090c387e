use proptest::prelude::*;

use super::*;
use crate::table::Seeds;

/// The bits of the first chunk that the table hashes: the first two bytes.
const TABLE: u128 = u128::from_ne_bytes([0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);

/// An entry with one of few keys, a prefix of 16 to 48 bits, and a byte of another chunk or not.
fn cover() -> impl Strategy<Value = MaskedKey> {
    (0..4u128, 0..=32usize, any::<u32>(), proptest::option::of(0..3u8)).prop_map(|(key, more, value, ttl)| {
        let prefix = (key << 32 | u128::from(value)) >> (32 - more);
        let cover = MaskedKey::bits(0, 16 + more, prefix).unwrap_or_default();
        let byte = ttl.and_then(|ttl| MaskedKey::byte(72, 0xff, ttl));
        byte.and_then(|byte| cover.and(&byte)).unwrap_or(cover)
    })
}

fn hash_of(chunk: u128) -> Hash {
    Seeds::from_seed(1).hash(chunk & TABLE)
}

/// A window that an entry matches, with these bits where the entry has no condition.
fn matching(cover: &MaskedKey, others: &[u128; CHUNKS]) -> Window {
    Window { chunk: std::array::from_fn(|i| cover.key()[i] | others[i] & !cover.mask()[i]) }
}

fn masks(covers: &[MaskedKey]) -> Vec<[u128; CHUNKS]> {
    covers.iter().map(|cover| *cover.with(0, TABLE, 0).mask()).collect()
}

proptest! {
    #[test]
    fn no_matching_packet_is_excluded(
        built in proptest::collection::vec(cover(), 1..20),
        added in proptest::collection::vec(cover(), 0..20),
        others: [u128; CHUNKS],
    ) {
        let Some(guard) = Guard::new(4, &masks(&built)) else { return Ok(()) };
        let shared = guard.clone();
        let all = || built.iter().chain(&added);
        all().for_each(|cover| shared.add(hash_of(cover.key()[0]), cover));
        for cover in all() {
            let window = matching(cover, &others);
            prop_assert!(guard.reader().may_match(hash_of(window.chunk[0]), &window));
        }
    }
}

#[test]
fn excludes_most_packets_that_only_have_the_key() {
    let prefix = |at: u128| MaskedKey::bits(0, 32, at * 0x0001_4321).unwrap_or_default();
    let covers: Vec<_> = (0..1000).map(prefix).collect();
    let further: Vec<_> = masks(&covers).into_iter().map(|mask| [mask[0] & !TABLE, 0, 0, 0, 0, 0]).collect();
    let guard = Guard::new(further.len(), &further).unwrap();
    covers.iter().for_each(|cover| guard.add(hash_of(cover.key()[0]), cover));
    let key = |at: u128| MaskedKey::bits(0, 32, (at * 0x0001_4321) ^ 0x5a5a).unwrap_or_default();
    let windows = (0..1000).map(|at| matching(&key(at), &[0; CHUNKS]));
    let pass = windows.filter(|window| guard.reader().may_match(hash_of(window.chunk[0]), window)).count();
    assert!(pass < 100, "{pass}");
}

#[test]
fn entries_without_further_bits_need_no_guard() {
    assert!(Guard::new(4, &[[0; CHUNKS]; 4]).is_none());
    assert!(Guard::new(0, &[]).is_none());
    let [one, two] = [1, 3].map(|bits| [bits, 0, 0, 0, 0, 0]);
    assert!(Guard::new(2, &[one, [0; CHUNKS]]).is_some());
    assert!(Guard::new(3, &[one, [0; CHUNKS], [0; CHUNKS]]).is_none());
    assert!(Guard::new(3, &[two, [0; CHUNKS], [0; CHUNKS]]).is_some());
    assert!(Guard::new(1, &[one, one]).is_none());
    assert!(Guard::new(1, &[two, two]).is_some());
}
