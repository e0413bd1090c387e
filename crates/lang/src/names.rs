//! Names of protocols and ethertypes (IANA: protocol numbers; IEEE 802 numbers).

/// IP protocols: number and names. The first name is the canonical one.
const PROTOCOLS: &[(u8, &[&str])] = &[
    (0, &["hopopt"]),
    (1, &["icmp"]),
    (2, &["igmp"]),
    (3, &["ggp"]),
    (4, &["ipip", "ipencap", "ipv4"]),
    (5, &["st"]),
    (6, &["tcp"]),
    (8, &["egp"]),
    (9, &["igp"]),
    (17, &["udp"]),
    (27, &["rdp"]),
    (33, &["dccp"]),
    (36, &["xtp"]),
    (41, &["ipv6"]),
    (43, &["ipv6-route"]),
    (44, &["ipv6-frag"]),
    (45, &["idrp"]),
    (46, &["rsvp"]),
    (47, &["gre"]),
    (50, &["esp"]),
    (51, &["ah"]),
    (58, &["icmp6", "icmpv6", "ipv6-icmp"]),
    (59, &["ipv6-nonxt"]),
    (60, &["ipv6-opts"]),
    (88, &["eigrp"]),
    (89, &["ospf"]),
    (94, &["nos"]),
    (97, &["etherip"]),
    (98, &["encap"]),
    (103, &["pim"]),
    (108, &["ipcomp"]),
    (112, &["vrrp", "carp"]),
    (115, &["l2tp"]),
    (124, &["isis"]),
    (132, &["sctp"]),
    (133, &["fc"]),
    (135, &["mobility"]),
    (136, &["udplite"]),
    (137, &["mpls-in-ip"]),
    (138, &["manet"]),
    (139, &["hip"]),
    (140, &["shim6"]),
    (141, &["wesp"]),
    (142, &["rohc"]),
    (143, &["ethernet"]),
];

/// Ethertypes: number and names. The first name is the canonical one.
const ETHERTYPES: &[(u16, &[&str])] = &[
    (0x0800, &["ip", "ip4", "ipv4"]),
    (0x0806, &["arp"]),
    (0x8100, &["vlan"]),
    (0x86dd, &["ip6", "ipv6"]),
    (0x8847, &["mpls"]),
    (0x8863, &["pppoe-disc"]),
    (0x8864, &["pppoe"]),
    (0x88a8, &["qinq"]),
    (0x88cc, &["lldp"]),
    (0x88f7, &["ptp"]),
];

/// Ethertype of IPv4.
pub(crate) const ETHERTYPE_IP4: u64 = 0x0800;
/// Ethertype of IPv6.
pub(crate) const ETHERTYPE_IP6: u64 = 0x86dd;

fn number<N: Copy>(table: &[(N, &[&str])], name: &str) -> Option<N> {
    table.iter().find(|(_, names)| names.contains(&name)).map(|&(number, _)| number)
}

fn name<N: Copy + PartialEq>(table: &[(N, &[&'static str])], number: N) -> Option<&'static str> {
    table.iter().find(|(n, _)| *n == number).and_then(|(_, names)| names.first().copied())
}

/// The number of an IP protocol.
pub(crate) fn protocol(name: &str) -> Option<u8> {
    match name {
        "tcp" => Some(6),
        "udp" => Some(17),
        _ => number(PROTOCOLS, name),
    }
}

/// The canonical name of an IP protocol.
pub fn protocol_name(number: u8) -> Option<&'static str> {
    name(PROTOCOLS, number)
}

/// The canonical name of an IP protocol, for a value of the language.
pub(crate) fn protocol_of(number: u64) -> Option<&'static str> {
    u8::try_from(number).ok().and_then(protocol_name)
}

/// The number of a network protocol.
pub(crate) fn ethertype(name: &str) -> Option<u16> {
    number(ETHERTYPES, name)
}

/// The name of an ethertype.
pub(crate) fn ethertype_name(number: u64) -> Option<&'static str> {
    u16::try_from(number).ok().and_then(|number| name(ETHERTYPES, number))
}

/// All names of IP protocols.
pub(crate) fn protocols() -> impl Iterator<Item = &'static str> {
    PROTOCOLS.iter().flat_map(|(_, names)| names.iter().copied())
}

/// All names of ethertypes.
pub(crate) fn ethertypes() -> impl Iterator<Item = &'static str> {
    ETHERTYPES.iter().flat_map(|(_, names)| names.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_names_unique() {
        assert!(PROTOCOLS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(ETHERTYPES.is_sorted_by(|a, b| a.0 < b.0));
        for name in protocols() {
            assert_eq!(protocols().filter(|other| *other == name).count(), 1, "{name}");
            assert!(crate::field(name).is_none(), "{name}");
        }
        assert_eq!(protocol_name(protocol("icmpv6").unwrap()), Some("icmp6"));
        assert_eq!(ethertype_name(ethertype("ipv4").unwrap().into()), Some("ip"));
    }
}
