//! Tests of the parent module.

use super::*;
use mmb_packet::{Kind, Meta};

fn frames(config: &Generated, n: usize) -> Vec<Vec<u8>> {
    let mut generator = Generator::new(config, 0);
    let mut buffer = vec![0; generator.frame_len()];
    (0..n)
        .map(|_| {
            let len = generator.write_next(&mut buffer);
            buffer[..len].to_vec()
        })
        .collect()
}

#[test]
fn frames_are_well_formed_with_valid_checksums() {
    for ip6 in [false, true] {
        for order in [Order::Uniform, Order::Zipf, Order::Burst, Order::Fresh] {
            for size in [60, 64, 101, 1500] {
                let config = Generated { size, order, ip6, seed: 7, ..Generated::default() };
                for frame in frames(&config, 200) {
                    check(&frame, ip6);
                }
            }
        }
    }
}

fn check(frame: &[u8], ip6: bool) {
    let mut meta = Meta::default();
    mmb_packet::parse(frame, frame.len(), &mut meta).expect("well-formed");
    let kind = meta.kind;
    assert_eq!(kind.l3(), if ip6 { Kind::IP6 } else { Kind::IP4 });
    assert!(kind.l4() == Kind::TCP || kind.l4() == Kind::UDP);
    assert_eq!(usize::from(meta.end), frame.len());
    let l4 = &frame[usize::from(meta.l4_off)..];
    let addresses = if ip6 { &frame[22..54] } else { &frame[26..34] };
    if !ip6 {
        assert_eq!(checksum::fold(checksum::sum(&frame[14..34], 0)), 0xffff);
        assert_eq!(frame[26], 10);
        assert!(frame[30] == 198 && (frame[31] == 18 || frame[31] == 19));
    } else {
        assert_eq!(&frame[22..28], &[0x20, 0x01, 0, 2, 0, 0]);
    }
    let pseudo = checksum::sum(addresses, u32::from(meta.proto) + l4.len() as u32);
    assert_eq!(checksum::fold(checksum::sum(l4, pseudo)), 0xffff);
}

#[test]
fn a_seed_determines_the_traffic() {
    let config = Generated { flows: 50, order: Order::Burst, seed: 3, ..Generated::default() };
    assert_eq!(frames(&config, 500), frames(&config, 500));
    assert_ne!(frames(&config, 500), frames(&Generated { seed: 4, ..config.clone() }, 500));
    let generator = Generator::new(&config, 0);
    let flows: Vec<_> = (0..50).map(|flow| generator.flow(flow)).collect();
    assert!(frames(&config, 500).iter().all(|frame| flows.contains(frame)));
}

#[test]
fn fresh_flows_are_all_different() {
    let config = Generated { flows: 1, proto: Proto::Tcp, order: Order::Fresh, ..Generated::default() };
    let frames = frames(&config, 5000);
    let tuples: std::collections::HashSet<_> = frames.iter().map(|f| f[26..38].to_vec()).collect();
    assert_eq!(tuples.len(), 5000);
    assert!(frames.iter().all(|frame| frame[47] == SYN));
}

#[test]
fn destinations_are_in_the_routes_with_valid_checksums() {
    for ip6 in [false, true] {
        let prefixes = Prefixes::new(20, ip6, 1);
        let nets: Vec<_> = prefixes.each().collect();
        let config = Generated { ip6, destinations: Some(prefixes), ..Generated::default() };
        for frame in frames(&config, 200) {
            let mut meta = Meta::default();
            mmb_packet::parse(&frame, frame.len(), &mut meta).expect("well-formed");
            let bytes = if ip6 { &frame[38..54] } else { &frame[30..34] };
            let address = bytes.iter().fold(0u128, |sum, byte| (sum << 8) | u128::from(*byte));
            let bits = if ip6 { 128 } else { 32 };
            let within = |&(net, length): &(u128, u8)| (address ^ net).checked_shr(bits - u32::from(length));
            assert!(nets.iter().any(|net| within(net).is_none_or(|rest| rest == 0)));
            let (l4, addresses) = (&frame[usize::from(meta.l4_off)..], if ip6 { 22..54 } else { 26..34 });
            let pseudo = checksum::sum(&frame[addresses], u32::from(meta.proto) + l4.len() as u32);
            assert_eq!(checksum::fold(checksum::sum(l4, pseudo)), 0xffff);
        }
    }
}

#[test]
fn the_number_of_flows_is_as_configured() {
    let config = Generated { flows: 64, proto: Proto::Udp, ..Generated::default() };
    let tuples: std::collections::HashSet<_> =
        frames(&config, 5000).iter().map(|f| f[26..38].to_vec()).collect();
    assert_eq!(tuples.len(), 64);
}

#[test]
fn segments_in_order_follow_each_other() {
    for proto in [Proto::Tcp, Proto::Mix] {
        let config = Generated { flows: 9, size: 300, proto, answered: true, ..Generated::default() };
        let generator = Generator::new(&config, 0);
        let payload = 300 - 14 - 20 - 32;
        let number = |frame: &[u8]| u32::from_be_bytes([frame[38], frame[39], frame[40], frame[41]]);
        let without = |frame: &[u8]| [&frame[..38], &frame[42..50], &frame[52..]].concat();
        let mut next: Vec<u32> = (0..9).map(|flow| number(&generator.flow(flow)) + payload).collect();
        for frame in frames(&config, 300) {
            check(&frame, false);
            let is_of = |flow: &u32| without(&generator.flow(*flow)) == without(&frame);
            let flow = (0..9).find(is_of).expect("a flow") as usize;
            if frame[23] == 6 {
                assert_eq!(number(&frame), next[flow]);
                next[flow] = next[flow].wrapping_add(payload);
            }
        }
    }
}
