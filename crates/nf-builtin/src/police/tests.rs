//! Tests of `police`.

use mmb_packet::build::{Frame, Ip4, Udp};
use proptest::prelude::*;

use super::*;
use mmb_nf::testing::{Bench, Forward, Reverse, make, refused};

/// What a token bucket is (RFC 2697, and the arrival curve of network calculus): of what passed, no stretch
/// of time holds more than the burst and what the rate makes of the stretch. A packet passes if that stays
/// true.
#[derive(Default)]
struct Curve {
    /// Milliseconds and bytes.
    passed: Vec<(u64, u64)>,
}

impl Curve {
    fn takes(&mut self, now: u64, bytes: u64, rate: u64, burst: u64) -> bool {
        let (mut sum, mut fits) = (u128::from(bytes), bytes <= burst);
        for (at, bytes) in self.passed.iter().rev() {
            sum += u128::from(*bytes);
            // Bits times 1000.
            fits &= sum * 8000 <= u128::from(burst) * 8000 + u128::from(rate) * u128::from(now - at);
        }
        if fits {
            self.passed.push((now, bytes));
        }
        fits
    }
}

fn frame(source: u8, len: usize) -> Vec<u8> {
    let ip = Ip4::new([10, 0, 0, source], [10, 0, 0, 2]);
    Frame::new(ip, Udp::new(1, 2)).payload(vec![0; len - 42]).build()
}

fn passes(bench: &mut Bench<Police>, session: usize, len: usize) -> bool {
    match bench.packet(session, Forward, &frame(1, len)).verdict {
        Verdict::Pass => true,
        Verdict::Drop(DropReason::Police) => false,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn buckets_are_exact(
        rate in 1..2_000_000u64,
        burst in 0..5_000u64,
        start: u32,
        packets in prop::collection::vec((0..400u32, 0..2_000u32), 1..80),
    ) {
        let (mut bucket, mut curve) = (Bucket { at: start, ..Bucket::zeroed() }, Curve::default());
        let mut since = 0;
        for (pause, bytes) in packets {
            since += u64::from(pause);
            let now = start.wrapping_add(since as u32);
            let expected = curve.takes(since, bytes.into(), rate, burst);
            prop_assert_eq!(bucket.take(now, bytes, rate, burst * BYTE), expected);
        }
    }

    /// Through the function, with rates as they are: all passes that burst and rate allow, but for less than
    /// a packet.
    #[test]
    fn a_flood_is_limited_to_the_rate(mbit in 1..50u64, len in 60..1500usize, step in 1..20u32) {
        let mut bench = Bench::<Police>::new(&format!("{mbit}mbit burst 200000"));
        let session = bench.open(&frame(1, len));
        let (start, mut passed) = (bench.now, 0);
        for _ in 0..50 {
            while passes(&mut bench, session, len) {
                passed += len as u64;
            }
            let allowed = 200_000 + mbit * 125 * u64::from(bench.now - start);
            prop_assert!(passed <= allowed && allowed < passed + len as u64, "{} of {}", passed, allowed);
            bench.now += step;
        }
    }
}

#[test]
fn a_bucket_begins_full_and_fills_with_the_rate() {
    // 8 kbit/s: a byte a millisecond.
    let mut bench = Bench::<Police>::new("8kbit burst 2000");
    let session = bench.open(&frame(1, 60));
    assert!(passes(&mut bench, session, 1500) && passes(&mut bench, session, 500));
    assert!(!passes(&mut bench, session, 60));
    bench.now += 59;
    assert!(!passes(&mut bench, session, 60));
    bench.now += 1;
    assert!(passes(&mut bench, session, 60) && !passes(&mut bench, session, 60));
    // No more than the burst, however long the pause.
    bench.now += 1_000_000_000;
    assert!(passes(&mut bench, session, 1500) && !passes(&mut bench, session, 501));
    assert!(passes(&mut bench, session, 500));
    let report = bench.function.report();
    assert_eq!(
        report[2..],
        [("dropped packets".into(), "4".into()), ("dropped bytes".into(), "681".to_string())]
    );
}

#[test]
fn a_clock_that_goes_back_fills_nothing_and_a_wrapped_clock_does() {
    let mut bench = Bench::<Police>::new("8kbit burst 1518");
    let session = bench.open(&frame(1, 60));
    bench.now = 5;
    assert!(passes(&mut bench, session, 1518));
    bench.now = u32::MAX;
    assert!(!passes(&mut bench, session, 60));
    bench.now = 59;
    assert!(passes(&mut bench, session, 60));
}

#[test]
fn sessions_have_separate_buckets_and_directions_can_be_exempt() {
    let mut bench = Bench::<Police>::new("1kbit burst 1518 forward");
    let (a, b) = (bench.open(&frame(1, 60)), bench.open(&frame(3, 60)));
    assert!(passes(&mut bench, a, 1518) && !passes(&mut bench, a, 1518) && passes(&mut bench, b, 1518));
    for _ in 0..10 {
        assert_eq!(bench.packet(a, Reverse, &frame(1, 1518)).verdict, Verdict::Pass);
    }
}

#[test]
fn arguments_are_parsed() {
    let police = |line| make::<Police>(line).map(|p| (p.rate, p.burst / BYTE, p.key, p.which));
    let usual = 15_180;
    assert_eq!(police("64000"), Ok((64_000, usual, SessionKey::Session, DirectionFilter::Both)));
    assert_eq!(police("64000bit").map(|p| p.0), Ok(64_000));
    assert_eq!(police("500kbit per pair").map(|p| (p.0, p.2)), Ok((500_000, SessionKey::Pair)));
    // 100 milliseconds of it.
    assert_eq!(police("1gbit").map(|p| (p.0, p.1)), Ok((1_000_000_000, 12_500_000)));
    let all = police("10mbit burst 5000 per source reverse");
    assert_eq!(all, Ok((10_000_000, 5_000, SessionKey::Source, DirectionFilter::Only(Reverse))));
    assert_eq!(
        make::<Police>("1kbit per destination").map(|p| p.properties().key),
        Ok(SessionKey::Destination)
    );
    for (line, part) in [
        ("", "needs a rate in bits per second"),
        ("fast", "invalid rate `fast`"),
        ("10Mbit", "invalid rate `10Mbit`"),
        ("mbit", "invalid rate `mbit`"),
        ("0", "out of bounds: 1 bit per second to 1000gbit"),
        ("1001gbit", "out of bounds"),
        ("99999999999gbit", "invalid rate"),
        ("1mbit burst", "`burst` needs a number of bytes"),
        ("1mbit burst 1000", "no longer frame would ever pass"),
        ("1mbit burst x", "invalid burst `x`"),
        ("1mbit per", "`per` needs `session`"),
        ("1mbit per flow", "`per flow`: must be"),
        ("1mbit sideways", "unknown argument `sideways`"),
    ] {
        let said = refused::<Police>(line);
        assert!(said.contains(part), "{line}: {said}");
    }
}
