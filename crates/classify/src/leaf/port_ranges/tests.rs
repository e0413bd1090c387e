//! Tests of the parent module.

use mmb_packet::Window;
use proptest::prelude::*;

use super::*;
use crate::pattern::{MaskedKey, Presence, Ranges, TruePredicates};

fn test() -> impl Strategy<Value = Test> {
    let present = (any::<bool>(), 0u8..2).prop_map(|(always, value)| match always {
        true => Presence { byte: 0, mask: 0, value: 0 },
        false => Presence { byte: 12, mask: 0x10, value: value << 4 },
    });
    let ranges = proptest::collection::vec((0u128..600, 0u128..600), 0..3);
    let place = prop_oneof![
        4 => Just((0u8, 48u8, 16u8)),
        4 => Just((0, 32, 16)),
        1 => Just((0, 32, 32)),
        1 => Just((1, 32, 16)),
    ];
    (place, present, ranges, any::<bool>()).prop_map(|((chunk, shift, width), present, ranges, absent)| {
        Test::InRanges { field: Field { chunk, shift, width, present }, ranges: Ranges::new(ranges), absent }
    })
}

proptest! {
    /// Every port that an entry accepts is within the bounds. If the bounds are complete, nothing else
    /// is.
    #[test]
    fn port_ranges_cover_accepted_packets(
        tests in proptest::collection::vec(test(), 0..3), lens in [0usize..17, 0usize..17],
        keys: [u16; 2], gap: bool, kind: bool,
        packets in proptest::collection::vec((0u16..600, 0u16..600, any::<bool>(), any::<u32>(), any::<bool>()), 1..40),
    ) {
        let port = |which: usize| match lens[which] {
            0 => MaskedKey::ANY,
            len => MaskedKey::bits(64 + which * 16, len, u128::from(keys[which] % 600) >> (16 - len)).unwrap(),
        };
        let gap = if gap { MaskedKey::bits(79, 1, 0).unwrap() } else { MaskedKey::ANY };
        let kind = if kind { MaskedKey::byte(12, 0x10, 0x10).unwrap() } else { MaskedKey::ANY };
        let cover = [port(1), gap, kind].iter().try_fold(port(0), |all, one| all.and(one));
        let Some(entry) = cover.and_then(|cover| Entry::new(&cover, tests)) else { return Ok(()) };
        let own = PortRanges::of(&entry);
        let is_complete = !own.has_gaps && entry.tests.iter().all(|test| is_port_range(test, &entry));
        for (sport, dport, tcp, wild, is_wild) in packets {
            let mut window = Window::default();
            let ports = if is_wild { wild } else { u32::from(sport) << 16 | u32::from(dport) };
            window.bytes_mut()[8..12].copy_from_slice(&ports.to_be_bytes());
            window.bytes_mut()[12] = if tcp { 0x14 } else { 0x24 };
            let word = host_order(bytemuck::cast::<u128, [u32; 4]>(window.chunk[0])[2]);
            let [ports, low, high]: [[u16; 2]; 3] = [word, own.low, own.high].map(bytemuck::cast);
            let inside = (0..2).all(|which| low[which] <= ports[which] && ports[which] <= high[which]);
            let holds = entry.holds(&window, TruePredicates::NONE);
            let differs = (window.chunk[0] ^ entry.key(0)) & entry.mask(0);
            let rest = differs & !(0xffff_ffffu128 << 32).to_be() == 0;
            prop_assert!(!holds || inside);
            prop_assert!(!is_complete || holds == (inside && rest));
        }
    }
}
