//! Tests of the parent module.

use mmb_packet::VecPacket;
use mmb_packet::build::{Frame, Ip4, Tcp, Udp};

use super::*;
use mmb_nf::TranslationRequest;
use mmb_nf::testing::{Bench, Forward, NEAR, Reverse, key_of_frame, parsed, refused};

const WORDS: &str = "web: tcp-dport 80 dns: udp-dport 53 web: tcp-dport 443 ip-saddr 10.0.0.0/8";

fn tcp(dport: u16) -> Vec<u8> {
    Frame::new(Ip4::new([10, 0, 0, 1], [192, 0, 2, 1]), Tcp::new(4000, dport)).build()
}

fn udp(dport: u16) -> Vec<u8> {
    Frame::new(Ip4::new([10, 0, 0, 1], [192, 0, 2, 1]), Udp::new(4000, dport)).build()
}

/// Returns the output that the function tells in advance.
fn route(bench: &mut Bench<Split>, frame: &[u8]) -> Option<u8> {
    let (mut packet, mut meta, key) = (VecPacket::new(frame), parsed(frame), key_of_frame(frame));
    let (packet, meta, translation) = (&mut packet, &mut meta, TranslationRequest::default());
    let first = OpeningPacket { packet, meta, key: &key, in_port: NEAR, now: 0, translation };
    bench.function.route(&first, &mut bench.local)
}

#[test]
fn sessions_take_the_first_matching_label() {
    let mut bench = Bench::<Split>::new(WORDS);
    let traits = bench.function.properties();
    assert_eq!((traits.outputs, traits.routes), (["web", "dns", "rest"].map(String::from).into(), true));
    for (frame, output) in [(tcp(80), 0), (tcp(443), 0), (udp(53), 1), (tcp(22), 2), (udp(80), 2)] {
        assert_eq!(route(&mut bench, &frame), Some(output));
        let session = bench.open(&frame);
        for way in [Forward, Reverse] {
            assert_eq!(bench.packet(session, way, &tcp(1)).verdict, Verdict::Branch(output));
        }
    }
}

#[test]
fn invalid_arguments_are_named() {
    for (words, named) in [
        ("", "1 to 254 labels"),
        ("tcp-dport 80", "`tcp-dport`"),
        ("web: dns: udp-dport 53", "`web: all`"),
        ("web: tcp-dport 80 rest: all", "`rest:` needs no clause"),
        ("web: tcp-dport 80 else: all", "`else:` needs no clause"),
        ("web: tcp-syn", "single packets"),
    ] {
        assert!(refused::<Split>(words).contains(named), "{words}: {}", refused::<Split>(words));
    }
    let many: Vec<_> = (0..255).map(|n| format!("l{n}: tcp-dport {n}")).collect();
    assert!(refused::<Split>(&many.join(" ")).contains("1 to 254 labels"));
    assert_eq!(Bench::<Split>::new(&many[1..].join(" ")).function.properties().outputs.len(), 255);
}
