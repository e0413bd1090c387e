//! SYN cookies: a sequence number that encodes a SYN (RFC 4987, 3.6).
//!
//! Theory of operation. The sequence number that answers a SYN has three parts: the time in periods of 65,536
//! ms (2 bits), the entry of [`MSS`] that the SYN's maximum segment size is rounded to (3 bits), and 27 bits
//! of a keyed hash over both, the addresses and ports of the connection, and the SYN's own number. A client
//! that acknowledges it has received it. A forged number is right by chance only (1 in 134 million), as
//! SipHash-2-4 is a pseudorandom function. A cookie is valid in its period and the next one: between one and
//! a little more than two minutes.
//!
//! Each period has a secret of its own ([`Secrets`]). So a cookie says nothing of another period's, and a
//! cookie of the same connection at the same time of the clock, which wraps after 49 days, is another one.
//!
//! Other options of the SYN are lost, unless it has timestamps. Then the lower six bits of the answer's
//! timestamp hold the window scale and whether SACK is permitted, and come back as its echo. The rest is the
//! time, with a resolution of 64 ms.

use std::hash::Hasher;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

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
pub(super) struct Cookies {
    secrets: Secrets,
}

/// The secrets of four periods, which all workers share: the current one, the one before, the next one, and
/// one that is over.
///
/// Theory of operation. The lower two bits of a period select its secret. The first worker that reaches a
/// period replaces the secret of the next period, whose cookies are three periods old and no longer valid.
/// So no worker waits for a secret, nor reads one while it changes, unless its clock is a period apart.
/// Secrets come from a generator that no packet tells of: SipHash-2-4 of a number that never repeats, with a
/// key that is used for nothing else.
struct Secrets {
    /// The key of the generator.
    root: [u64; 2],
    /// Number of secrets that the generator has made.
    made: AtomicU64,
    /// The period that was reached, or [`Secrets::NO_PERIOD`].
    reached: AtomicU32,
    slots: [[AtomicU64; 2]; 4],
}

impl Secrets {
    const NO_PERIOD: u32 = u32::MAX;

    /// The secrets of a `seed`. All workers use the same ones.
    fn new(seed: u64) -> Secrets {
        let word = |number: u64| {
            let mut hasher = SipHasher24::new_with_keys(seed, number);
            hasher.write(b"mmb synproxy");
            hasher.finish()
        };
        let secrets = Secrets {
            root: [word(1), word(2)],
            made: AtomicU64::new(0),
            reached: AtomicU32::new(Secrets::NO_PERIOD),
            slots: Default::default(),
        };
        (0..4).for_each(|period| secrets.replace(period));
        secrets
    }

    /// Returns the secret of a period.
    #[inline]
    fn of(&self, period: u16) -> [u64; 2] {
        let [low, high] = &self.slots[usize::from(period & 3)];
        [low.load(Relaxed), high.load(Relaxed)]
    }

    /// Notes that the clock has reached a period.
    #[inline]
    fn reach(&self, period: u16) {
        let reached = self.reached.load(Relaxed);
        if reached != u32::from(period) {
            self.advance(reached, period);
        }
    }

    #[cold]
    fn advance(&self, reached: u32, period: u16) {
        // A worker whose clock is behind changes nothing.
        let is_behind =
            reached != Secrets::NO_PERIOD && (1..=2).contains(&(reached as u16).wrapping_sub(period));
        let reach = || self.reached.compare_exchange(reached, u32::from(period), Relaxed, Relaxed).is_ok();
        if !is_behind && reach() {
            self.replace(period.wrapping_add(1));
        }
    }

    fn replace(&self, period: u16) {
        let number = self.made.fetch_add(1, Relaxed);
        let [root, other] = self.root;
        for (word, half) in self.slots[usize::from(period & 3)].iter().zip(0u64..) {
            let mut hasher = SipHasher24::new_with_keys(root, other);
            hasher.write_u64(number);
            hasher.write_u64(half);
            word.store(hasher.finish(), Relaxed);
        }
    }
}

impl Cookies {
    /// Derives the secrets from `seed`.
    pub fn new(seed: u64) -> Cookies {
        Cookies { secrets: Secrets::new(seed) }
    }

    fn hash(&self, key: &Key, isn: u32, period: u16, entry: u32) -> u32 {
        let [low, high] = self.secrets.of(period);
        let mut hasher = SipHasher24::new_with_keys(low, high);
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
        self.secrets.reach(period);
        u32::from(period) << TIME_SHIFT | entry << MSS_SHIFT | self.hash(key, isn, period, entry)
    }

    /// Returns the maximum segment size of a valid cookie, at most the one of the SYN. None: the cookie is
    /// not valid.
    pub fn check(&self, key: &Key, isn: u32, cookie: u32, now: u32) -> Option<u16> {
        let (time, entry) = ((cookie >> TIME_SHIFT) as u16, cookie >> MSS_SHIFT & 7);
        let period = (now >> PERIOD_SHIFT) as u16;
        self.secrets.reach(period);
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
