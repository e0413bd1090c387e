//! SYN cookies: a sequence number that encodes a SYN (RFC 4987, 3.6).
//!
//! Theory of operation. The sequence number that answers a SYN has three parts: the time in periods of 65,536
//! ms (2 bits), the entry of [`MSS`] that the SYN's maximum segment size is rounded to (3 bits), and 27 bits
//! of a keyed hash over both, the addresses and ports of the connection, and the SYN's own number. A client
//! that acknowledges it has received it. A forged number is right by chance only (1 in 134 million), as
//! SipHash-2-4 is a pseudorandom function. A cookie is valid in its period and the next one: between one and
//! a little more than two minutes.
//!
//! Other options of the SYN are lost, unless it has timestamps. Then the lower six bits of the answer's
//! timestamp hold the window scale and whether SACK is permitted, and come back as its echo. The rest is the
//! time, with a resolution of 64 ms.

use std::hash::Hasher;

use mmb_flow::Key;
use siphasher::sip::SipHasher24;

/// Maximum segment sizes that a cookie can encode: for Ethernet with IPv4 and IPv6, PPPoE, tunnels and jumbo
/// frames, the least of IPv6 and IPv4, and the least of Linux.
const MSS: [u16; 8] = [64, 536, 1220, 1360, 1440, 1452, 1460, 8960];

/// Logarithm of a period in milliseconds. The clock wraps after a whole number of periods.
const PERIOD_SHIFT: u32 = 16;
/// Greatest age of a cookie in periods.
const OLDEST: u16 = 1;
const TIME_SHIFT: u32 = 30;
const MSS_SHIFT: u32 = 27;
const HASH_MASK: u32 = (1 << MSS_SHIFT) - 1;

/// Makes and checks cookies.
#[derive(Clone, Copy)]
pub(super) struct Cookies {
    secret: [u8; 16],
}

impl Cookies {
    /// Derives the secret from `seed`. All workers have the same one.
    pub fn new(seed: u64) -> Cookies {
        let word = |number: u64| {
            let mut hasher = SipHasher24::new_with_keys(seed, number);
            hasher.write(b"mmb synproxy");
            hasher.finish()
        };
        Cookies { secret: bytemuck::cast([word(1), word(2)]) }
    }

    fn hash(&self, key: &Key, isn: u32, period: u16, entry: u32) -> u32 {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        // Kind and protocol first: no two keys of different families give the same bytes.
        hasher.write(bytemuck::bytes_of(key));
        hasher.write(&isn.to_be_bytes());
        hasher.write(&period.to_be_bytes());
        hasher.write(&[entry as u8]);
        hasher.finish() as u32 & HASH_MASK
    }

    /// Makes the cookie for a SYN with a key, an initial sequence number and a maximum segment size, at `now`
    /// (milliseconds).
    pub fn make(&self, key: &Key, isn: u32, mss: u16, now: u32) -> u32 {
        let entry = MSS.iter().rposition(|&least| least <= mss).unwrap_or(0) as u32;
        let period = (now >> PERIOD_SHIFT) as u16;
        u32::from(period) << TIME_SHIFT | entry << MSS_SHIFT | self.hash(key, isn, period, entry)
    }

    /// Returns the maximum segment size of a valid cookie, at most the one of the SYN. None: the cookie is
    /// not valid.
    pub fn check(&self, key: &Key, isn: u32, cookie: u32, now: u32) -> Option<u16> {
        let (time, entry) = ((cookie >> TIME_SHIFT) as u16, cookie >> MSS_SHIFT & 7);
        let period = (now >> PERIOD_SHIFT) as u16;
        let age = period.wrapping_sub(time) & 3;
        let made = period.wrapping_sub(age);
        let good = age <= OLDEST && self.hash(key, isn, made, entry) == cookie & HASH_MASK;
        good.then(|| MSS[entry as usize])
    }
}

/// Options of a SYN that a timestamp can carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    /// Window scale, at most 14.
    pub scale: Option<u8>,
    /// SACK is permitted.
    pub sack: bool,
}

/// No window scale.
const NO_SCALE: u32 = 15;
const SACK: u32 = 1 << 4;
/// Bits of a timestamp that hold the offer.
const OFFER_MASK: u32 = 0x3f;

impl Offer {
    /// Returns the timestamp that carries the offer.
    pub fn stamp(self, now: u32) -> u32 {
        let scale = self.scale.map_or(NO_SCALE, u32::from);
        now & !OFFER_MASK | scale | if self.sack { SACK } else { 0 }
    }

    /// Returns the offer in a timestamp.
    pub fn of(stamp: u32) -> Offer {
        let scale = stamp & NO_SCALE;
        Offer { scale: (scale != NO_SCALE).then_some(scale as u8), sack: stamp & SACK != 0 }
    }
}

#[cfg(test)]
mod tests;
