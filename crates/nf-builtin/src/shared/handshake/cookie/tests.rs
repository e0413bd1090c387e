//! Tests of the parent module.

use proptest::prelude::*;

use super::*;

const PERIOD: u32 = 1 << PERIOD_SHIFT;

fn key() -> impl Strategy<Value = Key> {
    any::<[[u8; 10]; 4]>().prop_map(bytemuck::cast)
}

/// Returns the largest entry that does not exceed the offer.
fn rounded(mss: u16) -> u16 {
    MSS.into_iter().filter(|&entry| entry <= mss).max().unwrap_or(64)
}

proptest! {
    #[test]
    fn a_cookie_is_valid_for_one_to_two_periods(key in key(), seed: u64, isn: u32, mss: u16, now: u32, later in 0..4 * PERIOD) {
        let cookies = Cookies::new(seed);
        let cookie = cookies.make(&key, isn, mss, now);
        let good = cookies.check(&key, isn, cookie, now.wrapping_add(later));
        // Whole periods between the two, whatever the clock stood at.
        let periods = (now % PERIOD + later) / PERIOD;
        prop_assert_eq!(good, (periods <= 1).then(|| rounded(mss)));
    }

    #[test]
    fn a_cookie_is_valid_for_its_handshake_only(key in key(), other in key(), seed: u64, isn: u32, now: u32, bit in 0..32) {
        let cookies = Cookies::new(seed);
        let cookie = cookies.make(&key, isn, 1460, now);
        prop_assert_eq!(cookies.check(&key, isn.wrapping_add(1), cookie, now), None);
        prop_assert_eq!(cookies.check(&other, isn, cookie, now), None);
        prop_assert_eq!(cookies.check(&key, isn, cookie ^ 1u32 << bit, now), None, "bit {}", bit);
        prop_assert_eq!(Cookies::new(seed ^ 1).check(&key, isn, cookie, now), None);
    }

    #[test]
    fn a_timestamp_encodes_the_options(scale in prop::option::of(0..=14u8), sack: bool, now: u32) {
        let offer = Offer { scale, sack };
        let stamp = offer.stamp(now);
        prop_assert_eq!(Offer::of(stamp), offer);
        prop_assert!(stamp.abs_diff(now) < 64);
    }
}

/// A guessed number with the right time and entry is valid for none of a million connections (chance 1 in
/// 134).
#[test]
fn guessed_cookies_are_refused() {
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

/// The secret of a period is replaced before the period returns with the clock, 49 days later. The cookie of
/// the period before is valid after each change.
#[test]
fn each_period_has_a_secret_of_its_own() {
    let cookies = Cookies::new(7);
    let make = |now| cookies.make(&Key::default(), 1, 1460, now);
    let first = make(PERIOD / 2);
    let mut before = first;
    for period in 1..=u32::from(u16::MAX) + 1 {
        let now = (period << PERIOD_SHIFT).wrapping_add(PERIOD / 2);
        assert_eq!(cookies.check(&Key::default(), 1, before, now), Some(1460), "period {period}");
        let cookie = make(now);
        assert_eq!(cookies.check(&Key::default(), 1, cookie, now), Some(1460), "period {period}");
        before = cookie;
    }
    assert_ne!(before & HASH_MASK, first & HASH_MASK, "same connection, same time of the clock");
    assert_eq!(cookies.check(&Key::default(), 1, first, PERIOD / 2), None);
}

/// Workers' clocks differ by some milliseconds, and a worker may see no SYN for long. Each accepts what
/// another has made.
#[test]
fn workers_agree_while_secrets_change() {
    let cookies = Cookies::new(7);
    for (made, checked) in
        [(PERIOD - 1, PERIOD), (PERIOD, PERIOD - 1), (PERIOD, 9 * PERIOD), (9 * PERIOD, 8 * PERIOD)]
    {
        let cookie = cookies.make(&Key::default(), 1, 1460, made);
        assert_eq!(cookies.check(&Key::default(), 1, cookie, made), Some(1460), "{made}");
        let _ = cookies.check(&Key::default(), 1, cookie, checked);
        let other = cookies.make(&Key::default(), 1, 1460, checked);
        assert_eq!(cookies.check(&Key::default(), 1, other, checked), Some(1460), "{checked}");
    }
}
