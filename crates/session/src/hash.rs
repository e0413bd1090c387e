//! Hashes of keys by which all workers make the same choices.

use mmb_flow::Key;

/// Mixes two numbers into one that depends on all of their bits.
#[inline]
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let wide = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xe703_7ed1_a0b4_28db);
    let folded = wide as u64 ^ (wide >> 64) as u64;
    (folded ^ folded >> 29).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

/// Hashes a key. The result is not predictable without the seed.
pub(crate) fn hash_key(key: &Key, seed: u64) -> u64 {
    let words: [u64; 5] = bytemuck::cast(*key);
    words.iter().fold(seed, |hash, &word| mix(hash, word))
}

/// Scales a random number of 64 bits to the range `0..len`.
pub(crate) fn scale(draw: u64, len: u128) -> u128 {
    match u64::try_from(len) {
        Ok(len) => (u128::from(draw) * u128::from(len)) >> 64,
        // The bias of the remainder is negligible for so large a range.
        Err(_) => (u128::from(draw) << 64 | u128::from(mix(draw, 3))) % len,
    }
}

#[cfg(test)]
mod tests {
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
}
