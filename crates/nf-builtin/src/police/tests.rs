//! Tests of `police`.

use mmb_packet::build::{Frame, Ip4, Udp};
use proptest::prelude::*;

use super::*;
use crate::shared::direction::DirectionFilter;
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
        let (mut bucket, mut curve) = (0, Curve::default());
        let filling = Filling::new(rate, burst * 8000);
        let mut since = 0;
        for (pause, bytes) in packets {
            since += u64::from(pause);
            let now = start.wrapping_add(since as u32);
            let expected = curve.takes(since, bytes.into(), rate, burst);
            let cost = filling.cost(u64::from(bytes) * 8000);
            let taken;
            (bucket, taken) = filling.take(bucket, now, cost, cost);
            prop_assert_eq!(taken >= cost, expected);
        }
    }

    /// Vectors of two workers, to one bucket and to buckets of several sources.
    #[test]
    fn shared_buckets_are_exact_over_workers(
        rate in 1..2_000u64,
        burst in 1518..9_000u64,
        per_instance: bool,
        vectors in prop::collection::vec(
            (0..9u32, 0..2u16, prop::collection::vec((0..3usize, 60..1500usize), 1..40)),
            1..12,
        ),
    ) {
        let per = if per_instance { "instance" } else { "source" };
        let mut bench = Bench::<Police>::new(&format!("{rate}kbit burst {burst} per {per}"));
        let sessions = [1, 2, 3].map(|source| bench.open(&frame(source, 60)));
        let mut curves: [Curve; 3] = Default::default();
        let (start, mut locals) = (bench.now, [Taken::default(), Taken::default()]);
        for (pause, worker, packets) in vectors {
            bench.now += pause;
            bench.worker = worker;
            std::mem::swap(&mut bench.local, &mut locals[usize::from(worker)]);
            let input: Vec<_> = packets
                .iter()
                .map(|(source, len)| (sessions[*source], Forward, frame(*source as u8 + 1, *len)))
                .collect();
            let done = bench.packets(&input);
            std::mem::swap(&mut bench.local, &mut locals[usize::from(worker)]);
            for ((source, len), done) in packets.iter().zip(done) {
                let curve = &mut curves[if per_instance { 0 } else { *source }];
                let fits = curve.takes((bench.now - start).into(), *len as u64, rate * 1000, burst);
                prop_assert_eq!(done.verdict == Verdict::Pass, fits);
            }
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
    bench.now = 64;
    assert!(!passes(&mut bench, session, 60));
    bench.now = 65;
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

/// A bucket belongs to the address, not to the sessions: two workers share it, and it outlives them.
#[test]
fn workers_share_the_bucket_of_a_source() {
    for (per, passing) in [("session", 4), ("source", 2), ("pair", 2), ("destination", 1), ("instance", 1)] {
        let mut bench = Bench::<Police>::new(&format!("1kbit burst 1518 per {per}"));
        let mut passed = 0;
        for (worker, source) in [(0, 1), (1, 1), (0, 2), (1, 2)] {
            bench.worker = worker;
            bench.local = Taken::default();
            let session = bench.open(&frame(source, 60));
            passed += usize::from(passes(&mut bench, session, 1518));
            bench.release(session);
        }
        assert_eq!(passed, passing, "per {per}");
    }
}

#[test]
fn threads_never_pass_more_than_the_burst() {
    let police = make::<Police>("1pps burst 10000 per instance").unwrap();
    let shared = police.shared.as_ref().unwrap();
    let cost = police.filling.cost(Unit::Packets.units(0));
    let passed: u64 = std::thread::scope(|scope| {
        let worker = || {
            let mut passed = 0;
            for n in 0..10_000 {
                let (slot, at) = shared.slot(1, 0, 5, &police.filling);
                let taken = police.filling.take_shared(&slot.bucket, 5, cost, 8 * cost);
                let used = if taken == 0 { 0 } else { 1 + n % (taken / cost) };
                shared.give_back(at, taken - used * cost, &police.filling);
                passed += used;
            }
            passed
        };
        let threads = [scope.spawn(worker), scope.spawn(worker), scope.spawn(worker)];
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(passed, 10_000);
}

/// A full bucket's slot goes to another key; buckets that are not full stay.
#[test]
fn more_addresses_than_slots_share_buckets() {
    let filling = Filling::new(1000, 10_000);
    let shared = SharedBuckets::new(Scope::Instance, 1);
    let mut slots = Vec::new();
    for tag in 1..=8 {
        let (slot, at) = shared.slot(tag, u32::MAX, 0, &filling);
        assert_eq!(filling.take_shared(&slot.bucket, 0, 10_000, 10_000), 10_000);
        slots.push(at);
    }
    assert_eq!(slots, [0, 1, 2, 3, 4, 5, 6, 7]);
    let (other, _) = shared.slot(9, u32::MAX, 5, &filling);
    assert!(!filling.has(other.bucket.load(Relaxed), 5, 10_000) && shared.collisions() == 1);
    // Ten milliseconds later all are full, and the first one is taken over.
    let (first, at) = shared.slot(9, u32::MAX, 10, &filling);
    assert_eq!((at, filling.take_shared(&first.bucket, 10, 10, 10)), (0, 10));
    assert_eq!(shared.slot(1, 0, 10, &filling).1, 1);
}

#[test]
fn packets_are_counted_whatever_their_length() {
    let mut bench = Bench::<Police>::new("2kpps burst 3");
    let session = bench.open(&frame(1, 60));
    for len in [60, 1500, 60] {
        assert!(passes(&mut bench, session, len));
    }
    assert!(!passes(&mut bench, session, 60));
    bench.now += 1;
    assert!(passes(&mut bench, session, 1500) && passes(&mut bench, session, 60));
    assert!(!passes(&mut bench, session, 60));
}

#[test]
fn new_sessions_are_limited_and_open_ones_go_on() {
    let mut bench = Bench::<Police>::new("10 sessions/s burst 2 per source");
    let open = |bench: &mut Bench<Police>, source| {
        let (admission, ..) = bench.admit(&frame(source, 60));
        if admission == Admission::Open {
            // Offered again: counted once.
            assert_eq!(bench.admit(&frame(source, 60)).0, Admission::Open);
            return Some(bench.open(&frame(source, 60)));
        }
        assert_eq!(admission, Admission::Drop(DropReason::Police));
        None
    };
    let first = open(&mut bench, 1).unwrap();
    assert!(open(&mut bench, 1).is_some());
    assert_eq!(open(&mut bench, 1), None);
    assert!(open(&mut bench, 3).is_some(), "another source");
    assert!((0..100).all(|_| passes(&mut bench, first, 1500)));
    bench.now += 99;
    assert_eq!(open(&mut bench, 1), None);
    bench.now += 1;
    assert!(open(&mut bench, 1).is_some());
    assert_eq!(bench.function.report()[2], ("refused packets".into(), "2".to_string()));
}

/// A bucket too large for its bits is rounded: by less than a byte in a packet, and never upwards.
#[test]
fn the_largest_buckets_are_rounded() {
    let mut bench = Bench::<Police>::new("1000gbit burst 4294967295");
    let session = bench.open(&frame(1, 60));
    let passed = (0..u32::MAX).find(|_| !passes(&mut bench, session, 60_000)).unwrap();
    assert_eq!(passed, 4_294_967_295 / 60_000);
    bench.now += 1;
    let passed = (0..u32::MAX).find(|_| !passes(&mut bench, session, 60_000)).unwrap();
    assert_eq!(passed, (125_000_000 + 4_294_967_295 % 60_000) / 60_000);
}

/// A bucket that large frames would empty, or that counts their segments, gets segments.
#[test]
fn large_frames_are_taken_if_the_burst_has_room_for_some() {
    let takes = |line| make::<Police>(line).map(|police| police.properties().takes_large_frames);
    assert_eq!(
        (takes("10gbit"), takes("1mbit burst 262144"), takes("9 sessions/s per source")),
        (Ok(true), Ok(true), Ok(true))
    );
    assert_eq!(
        (takes("1mbit"), takes("1gbit burst 262143"), takes("9mpps")),
        (Ok(false), Ok(false), Ok(false))
    );
}

#[test]
fn arguments_are_parsed() {
    let police = |line| PoliceConfig::parse(&Vec::from_iter(str::split_whitespace(line)));
    let rate = |line| police(line).map(|c| (c.unit, c.rate, c.burst));
    assert_eq!(rate("64000bit"), Ok((Unit::Bytes, 64_000, 15_180)));
    // 100 milliseconds of it.
    assert_eq!(rate("1gbit"), Ok((Unit::Bytes, 1_000_000_000, 12_500_000)));
    assert_eq!(rate("1000gbit"), Ok((Unit::Bytes, 1_000_000_000_000, 12_500_000_000)));
    assert_eq!(rate("10 kpps"), Ok((Unit::Packets, 10_000, 1_000)));
    assert_eq!(rate("5pps"), Ok((Unit::Packets, 5, 10)));
    assert_eq!(rate("100 sessions/s"), rate("100sessions/s"));
    assert_eq!(rate("100 sessions/s"), Ok((Unit::Sessions, 100, 100)));
    let scope = |line| police(line).map(|c| (c.scope, c.direction));
    assert_eq!(scope("1mbit"), Ok((Scope::Key(SessionKey::Session), DirectionFilter::Both)));
    assert_eq!(scope("9 sessions/s"), Ok((Scope::Instance, DirectionFilter::Both)));
    let reverse = DirectionFilter::Only(Reverse);
    assert_eq!(scope("10mbit burst 5000 per source reverse"), Ok((Scope::Key(SessionKey::Source), reverse)));
    let key = |line| make::<Police>(line).map(|p| p.properties().key);
    assert_eq!(key("1kbit per destination"), Ok(SessionKey::Destination));
    assert_eq!(key("1kbit per pair"), Ok(SessionKey::Pair));
    assert_eq!(key("1 sessions/s per pair"), Ok(SessionKey::Session));
    for (line, part) in [
        ("", "`police` needs a rate: a number with a unit"),
        ("fast", "invalid rate `fast`"),
        ("10", "invalid rate `10`: must be a number with a unit, such as `10mbit` (bit, kbit"),
        ("10 per source", "`10kpps` (pps, kpps, mpps: packets per second) or `100 sessions/s`"),
        ("10Mbit", "invalid rate `10Mbit`"),
        ("mbit", "invalid rate `mbit`"),
        ("0bit", "out of bounds: 1 to 1000000000000 bit/s"),
        ("1001gbit", "out of bounds"),
        ("1001mpps", "out of bounds: 1 to 1000000000 packets/s"),
        ("99999999999gbit", "invalid rate"),
        ("1mbit burst", "`burst` needs a number of bytes"),
        ("1pps burst", "`burst` needs a number of packets"),
        ("1mbit burst 1000", "no longer frame would ever pass"),
        ("1pps burst 0", "out of bounds: 1 packets to"),
        ("1mbit burst x", "invalid burst `x`"),
        ("1mbit per", "`per` needs `session`"),
        ("1mbit per flow", "`per flow`: must be"),
        ("1mbit sideways", "unknown argument `sideways`"),
        ("1 sessions/s per session", "cannot be `per session`"),
        ("1 sessions/s forward", "has no direction"),
    ] {
        let said = refused::<Police>(line);
        assert!(said.contains(part), "{line}: {said}");
    }
}
