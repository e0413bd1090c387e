//! Tests of the parent module.

use mmb_packet::VecPacket;
use mmb_packet::build::{Frame, Ip4, Ip6, Tcp, Udp};
use proptest::prelude::*;

use super::*;

#[test]
fn the_budget_fills_up_to_fifty() {
    let mut budget = ErrorBudget::new(u32::MAX - 1);
    let burst = |budget: &mut ErrorBudget, now| (0..100).filter(|_| budget.take(now)).count();
    assert_eq!(burst(&mut budget, u32::MAX - 1), 50);
    assert_eq!(burst(&mut budget, 1), 3, "the clock wraps");
    assert_eq!(burst(&mut budget, 1), 0);
    assert_eq!(burst(&mut budget, 1_000_000), 50);
}

proptest! {
    /// For any input, the packet stays unchanged or becomes a valid error.
    #[test]
    fn malformed_packets_do_not_panic(
        ip4 in any::<bool>(),
        udp in any::<bool>(),
        payload in 0..1500usize,
        hits in prop::collection::vec((12..80usize, any::<u8>()), 0..6),
        offsets in prop::option::of(any::<[u16; 2]>()),
    ) {
        let frame = match (ip4, udp) {
            (true, true) => Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Udp::new(1, 2)),
            (true, false) => Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Tcp::new(1, 2)),
            (false, true) => Frame::new(Ip6::new([1; 16], [2; 16]), Udp::new(1, 2)),
            (false, false) => Frame::new(Ip6::new([1; 16], [2; 16]), Tcp::new(1, 2)),
        };
        let mut frame = frame.payload(vec![7; payload]).build();
        for (at, byte) in hits {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        let mut meta = Meta::default();
        if parse(&frame, frame.len(), &mut meta).is_err() {
            return Ok(());
        }
        let parsed_so = offsets.is_none();
        if let Some([l3, end]) = offsets {
            (meta.l3_off, meta.end) = (l3 % 128, end % 2048);
        }
        let mut packet = VecPacket::new(&frame);
        let answered = rewrite_as_icmp_error(&mut packet, &mut meta, IcmpErrorKind::PROHIBITED, [9; 16]);
        if parsed_so && !answered {
            prop_assert_eq!(packet.head(), &frame);
        } else if parsed_so {
            let message = packet.head().get(usize::from(meta.l4_off)..).unwrap_or_default();
            let pseudo = match meta.kind.l3() {
                Kind::IP4 => 0,
                _ => {
                    let ip = &packet.head()[usize::from(meta.l3_off) + 8..][..32];
                    checksum::sum(ip, 58 + message.len() as u32)
                }
            };
            prop_assert_eq!(checksum::fold(checksum::sum(message, pseudo)), 0xffff);
            prop_assert_eq!(packet.len(), usize::from(meta.end));
        }
    }
}
