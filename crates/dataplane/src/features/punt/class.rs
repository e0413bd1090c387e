//! The class of a packet for the kernel, by its bytes: packets that are not for the machine itself may not
//! have been parsed.

use mmb_lang::PuntClass;
use mmb_packet::parse_l2;

const ARP: u16 = 0x0806;
const IP4: u16 = 0x0800;
const IP6: u16 = 0x86dd;
/// Slow protocols (IEEE 802.3, annex 57A), and LLDP (IEEE 802.1AB).
const LINK_PROTOCOLS: [u16; 2] = [0x8809, 0x88cc];
/// Smaller values of the ethertype field are lengths of LLC frames (IEEE 802.3), such as those of IS-IS.
const ETHERTYPE_MIN: u16 = 0x0600;

const TCP: u8 = 6;
const UDP: u8 = 17;
const HOP_BY_HOP: u8 = 0;
const ICMP6: u8 = 58;
/// IGMP, RSVP, EIGRP, OSPF, PIM, VRRP.
const ROUTING_PROTOCOLS: [u8; 6] = [2, 46, 88, 89, 103, 112];
/// BGP, LDP (RFC 4271, RFC 5036).
const ROUTING_TCP: [u16; 2] = [179, 646];
/// RIP, RIPng, LDP, HSRP, BFD (RFC 5881, RFC 5883), Babel (RFC 8966).
const ROUTING_UDP: [u16; 8] = [520, 521, 646, 1985, 3784, 3785, 4784, 6696];
/// Router and neighbour discovery (RFC 4861).
const DISCOVERY: std::ops::RangeInclusive<u8> = 133..=137;

/// The class of a frame.
pub(super) fn class_of(frame: &[u8]) -> PuntClass {
    let l2 = parse_l2(frame);
    let l3 = frame.get(usize::from(l2.l3_off)..).unwrap_or_default();
    let is_unicast = frame.first().is_some_and(|byte| byte & 1 == 0);
    let rest = if is_unicast { PuntClass::Local } else { PuntClass::Other };
    match l2.ethertype {
        ARP => PuntClass::Neighbor,
        IP4 => of_ip4(l3).unwrap_or(rest),
        IP6 => of_ip6(l3).unwrap_or(rest),
        other @ 1.. if other < ETHERTYPE_MIN || LINK_PROTOCOLS.contains(&other) => PuntClass::Routing,
        _ => PuntClass::Other,
    }
}

/// The class of an IPv4 packet; none if its protocol has no class of its own.
fn of_ip4(l3: &[u8]) -> Option<PuntClass> {
    let head: &[u8; 20] = l3.first_chunk()?;
    let l4 = l3.get(usize::from(head[0] & 0xf) * 4..)?;
    let is_first = u16::from_be_bytes([head[6], head[7]]) & 0x1fff == 0;
    of_transport(head[9], if is_first { l4 } else { &[] })
}

/// The class of an IPv6 packet; none if its protocol has no class of its own.
fn of_ip6(l3: &[u8]) -> Option<PuntClass> {
    let (head, l4) = l3.split_first_chunk::<40>()?;
    match head[6] {
        // Multicast listener discovery has a router-alert option (RFC 3810, 5).
        HOP_BY_HOP => {
            let next = *l4.first()?;
            let length = (usize::from(*l4.get(1)?) + 1) * 8;
            match next {
                ICMP6 if matches!(l4.get(length), Some(130..=132 | 143)) => Some(PuntClass::Routing),
                _ => of_transport(next, l4.get(length..)?),
            }
        }
        ICMP6 => DISCOVERY.contains(l4.first()?).then_some(PuntClass::Neighbor),
        next => of_transport(next, l4),
    }
}

fn of_transport(proto: u8, l4: &[u8]) -> Option<PuntClass> {
    let is_routing = match (proto, l4.first_chunk::<4>()) {
        (TCP, Some(&[a, b, c, d])) => {
            // Either side may have opened the connection.
            let ports = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
            ports.iter().any(|port| ROUTING_TCP.contains(port))
        }
        (UDP, Some(&[_, _, c, d])) => ROUTING_UDP.contains(&u16::from_be_bytes([c, d])),
        _ => ROUTING_PROTOCOLS.contains(&proto),
    };
    is_routing.then_some(PuntClass::Routing)
}

#[cfg(test)]
mod tests;
