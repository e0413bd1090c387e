//! SYN cookies: a sequence number that says what a SYN said (RFC 4987, 3.6).
//!
//! Theory of operation. The number with which a SYN is answered is made of the time, in periods of 65,536 ms (2 bits), of
//! which entry of [`MSS`] the SYN's maximum segment size comes down to (3 bits), and of 27 bits of a keyed hash over
//! both, the connection's addresses and ports, and the SYN's own number. Who acknowledges it has received it: nobody else
//! makes one but by chance (1 in 134 million), as SipHash-2-4 is a pseudorandom function, and the time is part of what
//! it is made over. A cookie is good in its period and the one after it: between one and two minutes and a bit.
//!
//! What else a SYN offers is lost, unless it offers timestamps: then the lower six bits of the one that it is answered
//! with hold the window scale and whether SACK is permitted, and come back as its echo; the rest is the time, so that
//! it goes up, as far as 64 ms tell.

use std::hash::Hasher;

use mmb_flow::Key;
use siphasher::sip::SipHasher24;

/// Maximum segment sizes that a cookie can say: what Ethernet leaves over IPv4 and IPv6, over PPPoE, over tunnels, with
/// jumbo frames; the least that IPv6 and IPv4 ask hosts for; and, for what says less still, Linux's least.
const MSS: [u16; 8] = [64, 536, 1220, 1360, 1440, 1452, 1460, 8960];

/// Milliseconds of a period, as a power of two: so many periods are a whole turn of the clock.
const PERIOD_SHIFT: u32 = 16;
/// How many periods old a cookie may be.
const OLDEST: u16 = 1;
const TIME_SHIFT: u32 = 30;
const MSS_SHIFT: u32 = 27;
const HASH_MASK: u32 = (1 << MSS_SHIFT) - 1;

/// Makes cookies, and tells good ones.
#[derive(Clone, Copy)]
pub(super) struct Cookies {
    secret: [u8; 16],
}

impl Cookies {
    /// The secret follows from `seed`: all workers have the same.
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

    /// The cookie for a SYN with number `isn` of the connection with this key, that offers `mss`, at `now` (milliseconds).
    pub fn make(&self, key: &Key, isn: u32, mss: u16, now: u32) -> u32 {
        let entry = MSS.iter().rposition(|&least| least <= mss).unwrap_or(0) as u32;
        let period = (now >> PERIOD_SHIFT) as u16;
        u32::from(period) << TIME_SHIFT | entry << MSS_SHIFT | self.hash(key, isn, period, entry)
    }

    /// The maximum segment size that a good cookie says: no more than what the SYN offered. None: it is not one.
    pub fn check(&self, key: &Key, isn: u32, cookie: u32, now: u32) -> Option<u16> {
        let (time, entry) = ((cookie >> TIME_SHIFT) as u16, cookie >> MSS_SHIFT & 7);
        let period = (now >> PERIOD_SHIFT) as u16;
        let age = period.wrapping_sub(time) & 3;
        let made = period.wrapping_sub(age);
        let good = age <= OLDEST && self.hash(key, isn, made, entry) == cookie & HASH_MASK;
        good.then(|| MSS[entry as usize])
    }
}

/// What a SYN offers besides its maximum segment size, as far as a timestamp can carry it.
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
/// Bits of a timestamp that are not the time.
const OFFER_MASK: u32 = 0x3f;

impl Offer {
    /// The timestamp that carries it.
    pub fn stamp(self, now: u32) -> u32 {
        let scale = self.scale.map_or(NO_SCALE, u32::from);
        now & !OFFER_MASK | scale | if self.sack { SACK } else { 0 }
    }

    /// What a timestamp carries.
    pub fn of(stamp: u32) -> Offer {
        let scale = stamp & NO_SCALE;
        Offer { scale: (scale != NO_SCALE).then_some(scale as u8), sack: stamp & SACK != 0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PERIOD: u32 = 1 << PERIOD_SHIFT;

    fn key() -> impl Strategy<Value = Key> {
        any::<[[u8; 10]; 4]>().prop_map(bytemuck::cast)
    }

    /// The entry that RFC 4987's idea asks for: the largest that does not exceed what is offered.
    fn rounded(mss: u16) -> u16 {
        MSS.into_iter().filter(|&entry| entry <= mss).max().unwrap_or(64)
    }

    proptest! {
        #[test]
        fn a_cookie_is_good_for_one_to_two_periods(key in key(), seed: u64, isn: u32, mss: u16, now: u32, later in 0..4 * PERIOD) {
            let cookies = Cookies::new(seed);
            let cookie = cookies.make(&key, isn, mss, now);
            let good = cookies.check(&key, isn, cookie, now.wrapping_add(later));
            // Whole periods between the two, whatever the clock stood at.
            let periods = (now % PERIOD + later) / PERIOD;
            prop_assert_eq!(good, (periods <= 1).then(|| rounded(mss)));
        }

        #[test]
        fn it_is_good_for_nothing_else(key in key(), other in key(), seed: u64, isn: u32, now: u32, bit in 0..32) {
            let cookies = Cookies::new(seed);
            let cookie = cookies.make(&key, isn, 1460, now);
            prop_assert_eq!(cookies.check(&key, isn.wrapping_add(1), cookie, now), None);
            prop_assert_eq!(cookies.check(&other, isn, cookie, now), None);
            prop_assert_eq!(cookies.check(&key, isn, cookie ^ 1u32 << bit, now), None, "bit {}", bit);
            prop_assert_eq!(Cookies::new(seed ^ 1).check(&key, isn, cookie, now), None);
        }

        #[test]
        fn a_timestamp_carries_the_offer(scale in prop::option::of(0..=14u8), sack: bool, now: u32) {
            let offer = Offer { scale, sack };
            let stamp = offer.stamp(now);
            prop_assert_eq!(Offer::of(stamp), offer);
            prop_assert!(stamp.abs_diff(now) < 64);
        }
    }

    /// Of a million connections, one number with the right time and entry is good for none, but by a chance of 1 in 134.
    #[test]
    fn guesses_are_in_vain() {
        let cookies = Cookies::new(7);
        let guess = cookies.make(&Key::default(), u32::MAX, 1460, 0);
        let good = |isn: &u32| cookies.check(&Key::default(), *isn, guess, 0).is_some();
        assert_eq!((0..1_000_000u32).filter(good).count(), 0);
    }

    /// The hash is as good as random: each bit is set for about half of a flood's SYNs.
    #[test]
    fn bits_are_even() {
        let cookies = Cookies::new(7);
        let mut ones = [0u32; 27];
        for isn in 0..8192u32 {
            let cookie = cookies.make(&Key::default(), isn, 1460, 0);
            ones.iter_mut().enumerate().for_each(|(bit, ones)| *ones += cookie >> bit & 1);
        }
        assert!(ones.iter().all(|ones| (3900..4300).contains(ones)), "{ones:?}");
    }
}
