//! The key of the flow hash, which is one for the whole process; so this file has one test.

use mmb_packet::build::{Frame, Ip4, Udp};
use mmb_packet::{FlowHashKey, Meta, flow_hash4, parse_ip4, parse_plain_ip4, set_flow_hash_key};

fn frame() -> Vec<u8> {
    Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Udp::new(53, 1024)).payload([0; 64]).build()
}

fn hashes() -> [u32; 3] {
    let frame = frame();
    let mut meta = Meta { l3_off: 14, ..Meta::default() };
    let plain = parse_plain_ip4(&frame, 14, frame.len(), &mut meta).map(|headers| headers.flow_hash());
    parse_ip4(&frame, frame.len(), &mut meta).expect("a packet");
    [
        plain.expect("a plain packet"),
        meta.flow_hash,
        flow_hash4([10, 0, 0, 2, 10, 0, 0, 1], [4, 0, 0, 53], 17),
    ]
}

#[test]
fn all_parsers_use_the_key_of_the_process() {
    let fixed = hashes();
    assert_eq!(fixed, [FlowHashKey::FIXED.hash4([10, 0, 0, 1, 10, 0, 0, 2], [0, 53, 4, 0], 17); 3]);
    let key = FlowHashKey::new([0x1234_5678_9abc_def0, 2, 3, 0x0fed_cba9_8765_4321]);
    set_flow_hash_key(key);
    assert_eq!(hashes(), [key.hash4([10, 0, 0, 1, 10, 0, 0, 2], [0, 53, 4, 0], 17); 3]);
    assert_ne!(hashes(), fixed);
}
