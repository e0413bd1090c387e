//! The traffic class of a session.

use mmb_classify::Batch;
use mmb_flow::{Direction, Key};
use mmb_packet::{Kind, Meta, parse};

use crate::program::ir::DispatchArm;
use crate::{PacketView, Program, SessionInfo};

/// Tests packets against the classes of a program.
#[derive(Debug, Default)]
pub(super) struct ClassMatcher {
    batch: Batch,
}

impl ClassMatcher {
    /// Returns the first arm that accepts a session. Tests its first packet, or, if that is long gone, a
    /// packet made from the session's key.
    pub fn arm(
        &mut self,
        program: &Program,
        arms: &[DispatchArm],
        info: &SessionInfo,
        view: &PacketView<'_>,
    ) -> Option<usize> {
        if view.direction == Direction::Forward {
            return self.arm_of(program, arms, info.in_port, view.head, view.meta);
        }
        let (frame, len) = packet_of(&info.key);
        let mut meta = Meta::default();
        let head = frame.get(..len).unwrap_or(&[]);
        // A packet that cannot be parsed matches only the class of all traffic.
        let _ = parse(head, len, &mut meta);
        self.arm_of(program, arms, info.in_port, head, &meta)
    }

    /// Returns the first arm that accepts a packet.
    pub fn arm_of(
        &mut self,
        program: &Program,
        arms: &[DispatchArm],
        in_port: u16,
        head: &[u8],
        meta: &Meta,
    ) -> Option<usize> {
        if arms.first().is_some_and(|arm| arm.class.is_none()) {
            return Some(0);
        }
        let (classes, batch) = (&program.classes, &mut self.batch);
        classes.classify_one(batch, head, meta, [in_port, meta.out_port]);
        arms.iter()
            .position(|arm| arm.class.is_none_or(|class| batch.hits.iter().any(|hit| hit.slot == class)))
    }
}

/// Bytes of the longest headers: Ethernet, IPv6, TCP.
const MAX_HEADERS: usize = 14 + 40 + 20;

/// Makes a packet with a key. Fields that are not in the key are zeros. Returns the packet and its length.
fn packet_of(key: &Key) -> ([u8; MAX_HEADERS], usize) {
    let mut frame = [0; MAX_HEADERS];
    let l4 = if Kind(key.kind).l4() == Kind::L4_NONE { 0 } else { 20 };
    let network = if key.is_ip4() {
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&(20 + l4 as u16).to_be_bytes());
        (frame[22], frame[23]) = (64, key.proto);
        frame[26..30].copy_from_slice(&key.source[..4]);
        frame[30..34].copy_from_slice(&key.destination[..4]);
        20
    } else {
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[14] = 0x60;
        frame[18..20].copy_from_slice(&(l4 as u16).to_be_bytes());
        (frame[20], frame[21]) = (key.proto, 64);
        frame[22..38].copy_from_slice(&key.source);
        frame[38..54].copy_from_slice(&key.destination);
        40
    };
    let at = 14 + network;
    match Kind(key.kind).l4() {
        Kind::TCP | Kind::UDP => {
            frame[at..at + 2].copy_from_slice(&key.source_port);
            frame[at + 2..at + 4].copy_from_slice(&key.destination_port);
            if Kind(key.kind).l4() == Kind::TCP {
                (frame[at + 12], frame[at + 13]) = (5 << 4, 0x10);
            } else {
                frame[at + 4..at + 6].copy_from_slice(&20u16.to_be_bytes());
            }
        }
        // In the key of a query, the identifier is the source port, and the type the destination port.
        Kind::ICMP | Kind::ICMP6 => {
            frame[at] = key.destination_port[1];
            frame[at + 4..at + 6].copy_from_slice(&key.source_port);
        }
        _ => {}
    }
    (frame, at + l4)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use mmb_flow::parse_key;
    use mmb_packet::build::{Frame, Icmp, Ip4, Ip6, Tcp, Transport, Udp};

    use super::*;

    fn check_round_trip(frame: &Frame) {
        let bytes = frame.build();
        let mut meta = Meta::default();
        parse(&bytes, bytes.len(), &mut meta).unwrap();
        let key = parse_key(&bytes, &meta).unwrap();
        let (again, len) = packet_of(&key);
        let mut meta = Meta::default();
        parse(&again[..len], len, &mut meta).unwrap();
        assert_eq!(parse_key(&again[..len], &meta), Ok(key));
    }

    #[test]
    fn a_constructed_packet_has_the_key() {
        let four = || Ip4::new([192, 0, 2, 1], [198, 51, 100, 2]);
        let host = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
        let six = || Ip6::new(host(1), host(2));
        for transport in [
            Transport::from(Tcp::new(1234, 80)),
            Udp::new(53, 999).into(),
            Icmp::new(8).into(),
            Transport::Raw(47),
        ] {
            check_round_trip(&Frame::new(four(), transport.clone()).payload([0; 20]));
        }
        for transport in [
            Transport::from(Tcp::new(1234, 80)),
            Udp::new(53, 999).into(),
            Icmp::new(128).into(),
            Transport::Raw(47),
        ] {
            check_round_trip(&Frame::new(six(), transport.clone()).payload([0; 20]));
        }
    }
}
