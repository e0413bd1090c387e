use mmb_nf::Harness;
use mmb_packet::build::{Frame, Ip4, Ip6, Net, Tcp, Udp};

/// The report of an instance, as one line.
fn report(harness: &Harness, name: &str) -> String {
    let report = harness.program().instance(name).unwrap().report();
    report.into_iter().map(|(name, value)| format!("{name} {value}; ")).collect()
}

fn harness() -> Harness {
    Harness::new(crate::registry(), "nf add p payload-count\nchain add c p").unwrap()
}

#[test]
fn bytes_count_once() {
    for net in [Net::from(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2])), Ip6::new([1u16; 8], [2u16; 8]).into()] {
        let mut harness = harness();
        let segment = |seq: u32, flags: u8, len: usize| {
            Frame::new(net.clone(), Tcp { seq, flags, ..Tcp::new(1000, 80) }).payload(vec![7; len]).build()
        };
        let frames = [
            segment(99, 2, 0),
            segment(100, 16, 10),
            segment(100, 16, 30),
            segment(120, 16, 10),
            segment(130, 17, 5),
        ];
        assert_eq!(harness.send("c", &frames).len(), 5);
        assert_eq!(report(&harness, "p"), "bytes forward 35; bytes reverse 0; ended streams 1; ");
        let stream = report(&harness, "(stream)");
        let expected = "bytes 35; packets with bytes 3; early segments 0; retransmitted segments 1; \
                        overlapping segments 1; ";
        assert_eq!(stream, expected);
    }
}

/// RFC 768: the length of the header counts, not that of the IP packet.
#[test]
fn datagrams_count() {
    let mut harness = harness();
    let net = Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]);
    let mut frame = Frame::new(net.clone(), Udp::new(1000, 53)).payload(vec![7; 30]).build();
    harness.send("c", std::slice::from_ref(&frame));
    let l4 = frame.len() - 38;
    frame[l4 + 5] = 18;
    harness.send("c", std::slice::from_ref(&frame));
    frame[l4 + 4] = 200;
    harness.send("c", &[frame]);
    assert_eq!(report(&harness, "p"), "bytes forward 70; bytes reverse 0; ended streams 0; ");
}

#[test]
fn there_are_no_arguments() {
    let error = Harness::new(crate::registry(), "nf add p payload-count all").err().unwrap().to_string();
    assert!(error.contains("`payload-count` has no arguments"), "{error}");
}
