use mmb_packet::build::{Frame, Ip4, Transport, Udp};
use proptest::prelude::*;

use super::*;

/// An IPv4 packet without its Ethernet header.
fn packet(ip: Ip4, payload: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..payload).map(|n| n as u8).collect();
    Frame::new(ip, Udp::new(1, 2)).payload(payload).build()[14..].to_vec()
}

fn ip(options: &[u8]) -> Ip4 {
    Ip4 { id: 7, options: options.to_vec(), ..Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]) }
}

fn cut(packet: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let whole = |fragment: Fragment| [fragment.header(), &packet[fragment.data.clone()]].concat();
    fragment_ip4(packet, mtu).unwrap().map(whole).collect()
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// RFC 791, example 3 and appendix A's example 2: 452 bytes of data over a net of 280.
#[test]
fn rfc_791_example() {
    let fragments = cut(&packet(Ip4 { id: 111, ..ip(&[]) }, 444), 280);
    let fields: Vec<_> = fragments.iter().map(|f| (word(f, 2), word(f, 4), word(f, 6))).collect();
    assert_eq!(fields, [(276, 111, 0x2000), (216, 111, 32)]);
}

/// RFC 791, 3.1: security and loose source route are copied; record route and timestamp are not.
#[test]
fn only_copied_options_are_in_later_fragments() {
    let options =
        [&[1, 7, 7, 4, 0, 0, 0, 0][..], &[131, 7, 4, 9, 9, 9, 9], &[1, 68, 4, 5, 0], &[148, 4, 0, 0]]
            .concat();
    let fragments = cut(&packet(ip(&options), 100), 88);
    assert_eq!(fragments[0][20..44], options[..]);
    assert_eq!(fragments[1][..1], [0x48]);
    assert_eq!(fragments[1][20..32], [131, 7, 4, 9, 9, 9, 9, 148, 4, 0, 0, 0]);
    assert!(fragments[2..].iter().all(|f| f[20..32] == fragments[1][20..32]));
    assert_eq!(fragments.iter().map(|f| f.len()).collect::<Vec<_>>(), [84, 88, 44]);
}

#[test]
fn a_fragment_is_fragmented_again() {
    let middle = Ip4 { flags: 1, fragment_offset: 100, ..ip(&[]) };
    let frame = Frame::new(middle, Transport::Raw(17)).payload(vec![5; 64]).build();
    let fields: Vec<_> = cut(&frame[14..], 52).iter().map(|f| (word(f, 2), word(f, 6))).collect();
    assert_eq!(fields, [(52, 0x2000 | 100), (52, 0x2000 | 104)]);
    let last = Ip4 { flags: 0, fragment_offset: 100, ..ip(&[]) };
    let frame = Frame::new(last, Transport::Raw(17)).payload(vec![5; 60]).build();
    let fields: Vec<_> = cut(&frame[14..], 52).iter().map(|f| (word(f, 2), word(f, 6))).collect();
    assert_eq!(fields, [(52, 0x2000 | 100), (48, 104)]);
}

#[test]
fn errors_name_the_cause() {
    let plain = packet(ip(&[]), 100);
    let kept = packet(Ip4 { flags: 2, ..ip(&[]) }, 100);
    let error = |packet: &[u8], mtu| fragment_ip4(packet, mtu).err();
    assert_eq!(error(&kept, 127), Some(FragmentError::DontFragment));
    assert_eq!(error(&plain, 27), Some(FragmentError::SmallMtu));
    assert_eq!(error(&plain[..19], 100), Some(FragmentError::Malformed));
    assert_eq!(error(&[0x46; 23], 100), Some(FragmentError::Malformed));
    let far = Ip4 { fragment_offset: 8190, ..ip(&[]) };
    let frame = Frame::new(far, Transport::Raw(17)).payload(vec![5; 64]).build();
    assert_eq!(error(&frame[14..], 52), Some(FragmentError::Malformed), "ends behind 65,535");
    assert_eq!((cut(&kept, 128), cut(&plain, 1500)), (vec![kept.clone()], vec![plain.clone()]));
    assert_eq!(cut(&plain, 28).len(), 14);
}

#[test]
fn malformed_options_end_the_copying() {
    for options in [&[131, 0, 1, 1][..], &[131, 1, 1, 1], &[131, 9, 4, 1], &[1, 1, 1, 131], &[0, 131, 4, 4]] {
        let fragments = cut(&packet(ip(options), 40), 48);
        assert_eq!((fragments[0][0], fragments[1][0]), (0x46, 0x45), "{options:?}");
    }
}

proptest! {
    /// RFC 791 (3.2): the data is complete and in order, in fragments that fit and have multiples of eight
    /// bytes but for the last; headers are valid and equal except for length, offset, flags and checksum.
    #[test]
    fn pieces_make_the_packet(
        payload in 0usize..3000,
        mtu in 68usize..1600,
        options in prop::collection::vec(any::<u8>(), 0..=10).prop_map(|o| o.repeat(4)),
        offset in 0u16..8191,
        flags in prop::sample::select(vec![0u8, 1]),
    ) {
        let frame = Frame::new(Ip4 { fragment_offset: offset, flags, ..ip(&options) }, Transport::Raw(17))
            .payload((0..payload).map(|n| n as u8).collect::<Vec<_>>())
            .build();
        let whole = &frame[14..];
        let header = 20 + options.len();
        prop_assume!(usize::from(offset) * 8 + payload <= 65_535);
        let fragments = cut(whole, mtu);
        let mut at = 0;
        for (n, fragment) in fragments.iter().enumerate() {
            let length = usize::from(fragment[0] & 15) * 4;
            let data = &fragment[length..];
            let last = n + 1 == fragments.len();
            prop_assert!(fragment.len() <= mtu.max(whole.len().min(mtu)) && length <= header);
            prop_assert_eq!(fold(sum(&fragment[..length], 0)), 0xffff);
            prop_assert_eq!(usize::from(word(fragment, 2)), fragment.len());
            prop_assert_eq!(usize::from(word(fragment, 6) & 0x1fff), usize::from(offset) + at / 8);
            prop_assert_eq!(word(fragment, 6) & 0x2000 != 0, !last || flags == 1);
            prop_assert!(last || data.len() % 8 == 0 && fragment.len() + 8 > mtu);
            prop_assert_eq!(data, &whole[header + at..header + at + data.len()]);
            prop_assert_eq!((&fragment[8..10], &fragment[12..20]), (&whole[8..10], &whole[12..20]));
            at += data.len();
        }
        prop_assert_eq!(at, payload);
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80), mtu in 0usize..200) {
        if let Ok(fragments) = fragment_ip4(&bytes, mtu) {
            prop_assert!(fragments.take(9000).count() < 9000);
        }
    }
}
