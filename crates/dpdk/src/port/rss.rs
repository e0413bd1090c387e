//! The key of the receive hash (RSS), by which a device with several queues chooses the queue of a packet.
//!
//! Theory of operation. Devices compute the Toeplitz hash (Microsoft, "RSS hashing functions"). It is linear,
//! so a sender that knows the key constructs flows that all arrive on one queue. The key is therefore random.
//!
//! It is not one of the symmetric keys, which repeat 16 bits (Woo and Park, "Scalable TCP session monitoring
//! with symmetric receive-side scaling", 2012). Such a key hashes only the exclusive or of all 16-bit words
//! of addresses and ports. Flows with the same sum collide **whatever these 16 bits are**, so that no secret
//! would help. Symmetry is not needed either: `ip-input` chooses the worker of a session by a hash of its
//! own.

use std::hash::{BuildHasher, RandomState};

/// Longest key of any driver.
pub(super) const KEY_MAX: usize = 64;

/// Draws a key. The standard library seeds its hash tables from the system.
pub(super) fn draw_key() -> [u8; KEY_MAX] {
    let random = RandomState::new();
    let words: [[u8; 8]; KEY_MAX / 8] = std::array::from_fn(|at| random.hash_one(at).to_ne_bytes());
    bytemuck::cast(words)
}

#[cfg(test)]
mod tests;
