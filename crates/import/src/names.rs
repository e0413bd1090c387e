//! Names of numbers in iptables and nftables (IANA).

/// Protocols.
const PROTOCOLS: &[(&str, u128)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("ipencap", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ipv6-icmp", 58),
    ("ospf", 89),
    ("pim", 103),
    ("comp", 108),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("sctp", 132),
    ("udplite", 136),
];

/// ICMP types, as in nftables.
const ICMP_TYPES: &[(&str, u128)] = &[
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("source-quench", 4),
    ("redirect", 5),
    ("echo-request", 8),
    ("router-advertisement", 9),
    ("router-solicitation", 10),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("timestamp-request", 13),
    ("timestamp-reply", 14),
    ("info-request", 15),
    ("info-reply", 16),
    ("address-mask-request", 17),
    ("address-mask-reply", 18),
];

/// ICMPv6 types, as in nftables.
const ICMP6_TYPES: &[(&str, u128)] = &[
    ("destination-unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo-request", 128),
    ("echo-reply", 129),
    ("mld-listener-query", 130),
    ("mld-listener-report", 131),
    ("mld-listener-done", 132),
    ("mld-listener-reduction", 132),
    ("nd-router-solicit", 133),
    ("nd-router-advert", 134),
    ("nd-neighbor-solicit", 135),
    ("nd-neighbor-advert", 136),
    ("nd-redirect", 137),
    ("router-renumbering", 138),
    ("ind-neighbor-solicit", 141),
    ("ind-neighbor-advert", 142),
    ("mld2-listener-report", 143),
];

/// Code points of differentiated services (DSCP).
const DSCP: &[(&str, u128)] = &[
    ("cs0", 0),
    ("lephb", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

/// TCP flags, from the lowest bit up.
const FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"];

/// Code points of explicit congestion notification (ECN).
const ECN: &[(&str, u128)] = &[("not-ect", 0), ("ect1", 1), ("ect0", 2), ("ce", 3)];

/// IP versions, by ethertype.
const NETWORKS: &[(&str, u128)] = &[
    ("ipv4", crate::filter::IP4),
    ("ip", crate::filter::IP4),
    ("ipv6", crate::filter::IP6),
    ("ip6", crate::filter::IP6),
];

fn find(table: &[(&str, u128)], name: &str) -> Option<u128> {
    table.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// Parses a decimal or hexadecimal number.
pub fn number(text: &str) -> Option<u128> {
    match text.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Parses a transport protocol, by name or number.
pub fn protocol(text: &str) -> Option<u128> {
    find(PROTOCOLS, text).or_else(|| number(text)).filter(|number| *number <= 255)
}

/// The bit of a TCP flag, by its lower-case name.
pub fn flag(name: &str) -> Option<u128> {
    FLAGS.iter().position(|flag| *flag == name).map(|bit| 1 << bit)
}

/// The value of a field, by its name in nftables.
pub fn value(field: mmb_lang::FieldId, name: &str) -> Option<u128> {
    use mmb_lang::FieldId::{Icmp6Type, IcmpType, Ip6Next, IpDscp, IpEcn, IpProto, NetProto, TcpFlags};
    match field {
        NetProto => find(NETWORKS, name),
        IpProto | Ip6Next => find(PROTOCOLS, name),
        IcmpType => find(ICMP_TYPES, name),
        Icmp6Type => find(ICMP6_TYPES, name),
        IpDscp => find(DSCP, name),
        IpEcn => find(ECN, name),
        TcpFlags => flag(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        assert_eq!(
            (protocol("gre"), protocol("47"), protocol("0x2f"), protocol("256")),
            (Some(47), Some(47), Some(47), None)
        );
        assert_eq!((flag("ack"), flag("none")), (Some(16), None));
        assert_eq!(value(mmb_lang::FieldId::Icmp6Type, "nd-neighbor-solicit"), Some(135));
        // `ip6 nexthdr icmpv6` is written so by `nft -j`.
        assert_eq!(value(mmb_lang::FieldId::Ip6Next, "ipv6-icmp"), Some(58));
        assert_eq!(value(mmb_lang::FieldId::TcpDport, "http"), None);
    }
}
