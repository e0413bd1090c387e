use rand::Rng;
use rand::rngs::SmallRng;

use super::*;

#[test]
fn mixing_is_not_symmetric_and_spreads() {
    assert_ne!(mix(1, 2), mix(2, 1));
    let high = (0..1000u64).map(|n| mix(n, 9) >> 61).fold([0; 8], |mut seen, n| {
        seen[n as usize] += 1;
        seen
    });
    assert!(high.iter().all(|n| (80..180).contains(n)), "{high:?}");
}

/// The key as the words that the hash mixed before, one after the other. A word of the sender's choice made
/// the result independent of the seed.
#[test]
fn no_key_is_independent_of_the_seed() {
    for at in 0..5 {
        let mut words = [7u64; 5];
        words[at] = 0xe703_7ed1_a0b4_28db;
        let key: Key = bytemuck::cast(words);
        let old = |seed| words.iter().fold(seed, |hash, &word| mix(hash, word));
        assert_eq!(old(1), old(2), "as it was");
        for purpose in [Purpose::Choice, Purpose::SequenceNumber] {
            assert_ne!(hash_key(&key, 1, purpose), hash_key(&key, 2, purpose));
        }
        assert_ne!(hash_key(&key, 1, Purpose::Choice), hash_key(&key, 1, Purpose::SequenceNumber));
    }
}

/// The step of xoshiro256++.
fn step([a, b, c, d]: [u64; 4]) -> [u64; 4] {
    let (c, d) = (c ^ a, d ^ b);
    [a ^ d, b ^ c, c ^ b << 17, d.rotate_left(45)]
}

/// Undoes the step of xoshiro256++ (Blackman, Vigna, 2018) that led to a state.
fn step_back(next: [u64; 4]) -> [u64; 4] {
    let [a, b, c, d] = next;
    // The step: t = s1 << 17; s2 ^= s0; s3 ^= s1; s1 ^= s2; s0 ^= s3; s2 ^= t; s3 = rotl(s3, 45).
    let d = d.rotate_right(45);
    let s0 = a ^ d;
    let mixed = b ^ c;
    // mixed = s1 ^ (s1 << 17).
    let s1 = mixed ^ mixed << 17 ^ mixed << 34 ^ mixed << 51;
    let s2 = c ^ s1 << 17 ^ s0;
    [s0, s1, s2, d ^ s1]
}

/// The generator that was used has a linear state, which its own steps undo. The one that is used has not: it
/// does not draw what the old one draws from any seed that an observer could rebuild from it.
#[test]
fn the_generator_has_no_state_to_rebuild() {
    let state = [1u64, 2, 3, 4];
    let mut bytes = [0u8; 32];
    for (to, word) in bytes.chunks_mut(8).zip(state) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    let mut old = SmallRng::from_seed(bytes);
    let first: u64 = old.random();
    assert_eq!(first, state[0].wrapping_add(state[3]).rotate_left(23).wrapping_add(state[0]), "xoshiro256++");
    assert_eq!(step_back(step(state)), state);
    let draws = |mut from: StdRng| std::array::from_fn::<u64, 8, _>(|_| from.random());
    assert_eq!(draws(generator(5, 0)), draws(generator(5, 0)));
    assert_ne!(draws(generator(5, 0)), draws(generator(5, 1)));
    assert_ne!(draws(generator(5, 0)), draws(generator(6, 0)));
}

/// RFC 6528, section 3: numbers of other connections tell nothing, and the number of a connection only goes
/// forward.
#[test]
fn sequence_numbers_depend_on_connection_secret_and_time() {
    let key = |n: u16| Key { source_port: n.to_be_bytes(), ..Key::default() };
    let number = |n, seed, now| sequence_number(&key(n), seed, now);
    assert_eq!(number(1, 5, 1000), number(1, 5, 1000), "no other connection changes it");
    assert_eq!(number(1, 5, 3000).wrapping_sub(number(1, 5, 1000)), 500_000, "250,000 a second");
    assert_ne!(number(1, 5, 0), number(1, 6, 0));
    let differences: std::collections::HashSet<u32> =
        (0..1000).map(|n| number(n + 1, 5, 0).wrapping_sub(number(n, 5, 0))).collect();
    assert_eq!(differences.len(), 1000);
}
