//! Tests of the parent module.

use mmb_nf::testing::{Bench, Forward, Reverse, refused};
use mmb_packet::build::{Frame, Ip4, Udp};

use super::*;

#[test]
fn packets_pass_unchanged_and_are_counted() {
    let mut bench = Bench::<PacketPrimes>::new("1000");
    let frame = Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Udp::new(1, 2)).build();
    let session = bench.open(&frame);
    for direction in [Forward, Reverse] {
        let done = bench.packet(session, direction, &frame);
        assert_eq!((done.verdict, done.frame), (Verdict::Pass, frame.clone()));
    }
    let report = bench.function.report().into_iter().map(|(name, value)| format!("{name} {value}"));
    assert_eq!(report.collect::<Vec<_>>(), ["computed 2", "primes 168"]);
}

#[test]
fn invalid_arguments_are_refused() {
    assert!(refused::<PacketPrimes>("").contains("one number"));
    assert!(refused::<PacketPrimes>("1 2").contains("one number"));
    assert!(is_for_requests(&["10", REQUESTS]) && !is_for_requests(&["10"]) && !is_for_requests(&[]));
    for wrong in ["0", "100001", "-1", "many"] {
        assert_eq!(refused::<PacketPrimes>(wrong), format!("invalid number `{wrong}`: must be 1 to 100000"));
    }
}
