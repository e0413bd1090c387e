//! Hashes of keys by which all workers make the same choices.

use std::hash::Hasher;

use mmb_flow::Key;
use rand::SeedableRng;
use rand::rngs::StdRng;
use siphasher::sip::SipHasher24;

/// Mixes two numbers into one that depends on all of their bits.
#[inline]
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let wide = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xe703_7ed1_a0b4_28db);
    let folded = wide as u64 ^ (wide >> 64) as u64;
    (folded ^ folded >> 29).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

/// What a keyed hash is for. Hashes for different purposes tell nothing of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The choice of an address, a port or another value by the key.
    Choice = 1,
    /// Initial sequence numbers.
    SequenceNumber = 2,
    /// The generator of random choices.
    Generator = 3,
}

/// Hashes a key by SipHash-2-4, a pseudorandom function. Any number of hashes, of chosen keys too, does not
/// tell another one without the seed.
pub(crate) fn hash_key(key: &Key, seed: u64, purpose: Purpose) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(seed, purpose as u64);
    hasher.write(bytemuck::bytes_of(key));
    hasher.finish()
}

/// A cryptographic generator (ChaCha12) for a worker. What it has drawn does not tell what it will draw.
pub(crate) fn generator(seed: u64, worker: u16) -> StdRng {
    let mut hasher = SipHasher24::new_with_keys(seed, Purpose::Generator as u64);
    let words = [0u64; 4].map(|_| {
        hasher.write_u16(worker);
        hasher.finish()
    });
    StdRng::from_seed(bytemuck::cast(words))
}

/// Returns an initial sequence number for the connection with this key (RFC 6528, section 3): a keyed hash of
/// the connection, plus a clock with a tick of 4 microseconds. `now` is in milliseconds and wraps.
pub(crate) fn sequence_number(key: &Key, seed: u64, now: u32) -> u32 {
    let hash = hash_key(key, seed, Purpose::SequenceNumber) as u32;
    hash.wrapping_add(now.wrapping_mul(TICKS))
}

/// Ticks of 4 microseconds in a millisecond.
const TICKS: u32 = 250;

/// Scales a random number of 64 bits to the range `0..len`.
pub(crate) fn scale(draw: u64, len: u128) -> u128 {
    match u64::try_from(len) {
        Ok(len) => (u128::from(draw) * u128::from(len)) >> 64,
        // The bias of the remainder is negligible for so large a range.
        Err(_) => (u128::from(draw) << 64 | u128::from(mix(draw, 3))) % len,
    }
}

#[cfg(test)]
mod tests;
