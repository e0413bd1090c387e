//! Names of protocols, services and ethertypes (IANA: protocol numbers, service names; IEEE 802 numbers).

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

/// Services: port and names (IANA: service name and transport protocol port number registry). A name stands
/// for the port with every transport protocol.
const SERVICES: &[(u16, &[&str])] = &[
    (7, &["echo"]),
    (9, &["discard"]),
    (11, &["systat"]),
    (13, &["daytime"]),
    (17, &["qotd"]),
    (19, &["chargen"]),
    (20, &["ftp-data"]),
    (21, &["ftp"]),
    (22, &["ssh"]),
    (23, &["telnet"]),
    (25, &["smtp"]),
    (37, &["time"]),
    (42, &["nameserver"]),
    (43, &["nicname"]),
    (49, &["tacacs"]),
    (53, &["domain"]),
    (67, &["bootps"]),
    (68, &["bootpc"]),
    (69, &["tftp"]),
    (70, &["gopher"]),
    (79, &["finger"]),
    (80, &["http", "www", "www-http"]),
    (88, &["kerberos"]),
    (102, &["iso-tsap"]),
    (109, &["pop2"]),
    (110, &["pop3"]),
    (111, &["sunrpc"]),
    (113, &["auth", "ident"]),
    (119, &["nntp"]),
    (123, &["ntp"]),
    (135, &["epmap"]),
    (137, &["netbios-ns"]),
    (138, &["netbios-dgm"]),
    (139, &["netbios-ssn"]),
    (143, &["imap"]),
    (161, &["snmp"]),
    (162, &["snmptrap"]),
    (177, &["xdmcp"]),
    (179, &["bgp"]),
    (194, &["irc"]),
    (319, &["ptp-event"]),
    (320, &["ptp-general"]),
    (389, &["ldap"]),
    (427, &["svrloc"]),
    (443, &["https"]),
    (445, &["microsoft-ds"]),
    (464, &["kpasswd"]),
    (465, &["submissions"]),
    (500, &["isakmp"]),
    (512, &["exec"]),
    (513, &["login"]),
    (514, &["shell", "syslog"]),
    (515, &["printer"]),
    (520, &["router"]),
    (521, &["ripng"]),
    (540, &["uucp"]),
    (546, &["dhcpv6-client"]),
    (547, &["dhcpv6-server"]),
    (548, &["afpovertcp"]),
    (554, &["rtsp"]),
    (563, &["nntps"]),
    (587, &["submission"]),
    (631, &["ipp"]),
    (636, &["ldaps"]),
    (646, &["ldp"]),
    (647, &["dhcp-failover"]),
    (749, &["kerberos-adm"]),
    (853, &["domain-s"]),
    (873, &["rsync"]),
    (989, &["ftps-data"]),
    (990, &["ftps"]),
    (992, &["telnets"]),
    (993, &["imaps"]),
    (995, &["pop3s"]),
    (1080, &["socks"]),
    (1194, &["openvpn"]),
    (1433, &["ms-sql-s"]),
    (1434, &["ms-sql-m"]),
    (1701, &["l2tp"]),
    (1719, &["h323gatestat"]),
    (1720, &["h323hostcall"]),
    (1723, &["pptp"]),
    (1812, &["radius"]),
    (1813, &["radius-acct"]),
    (1883, &["mqtt"]),
    (1900, &["ssdp"]),
    (1985, &["hsrp"]),
    (2049, &["nfs"]),
    (2123, &["gtp-control"]),
    (2152, &["gtp-user"]),
    (3205, &["isns"]),
    (3260, &["iscsi-target"]),
    (3268, &["msft-gc"]),
    (3269, &["msft-gc-ssl"]),
    (3306, &["mysql"]),
    (3389, &["ms-wbt-server"]),
    (3478, &["stun"]),
    (3544, &["teredo"]),
    (3690, &["svn"]),
    (3784, &["bfd-control"]),
    (3785, &["bfd-echo"]),
    (4500, &["ipsec-nat-t"]),
    (4739, &["ipfix"]),
    (4784, &["bfd-multi-ctl"]),
    (4789, &["vxlan"]),
    (5060, &["sip"]),
    (5061, &["sips"]),
    (5222, &["xmpp-client"]),
    (5269, &["xmpp-server"]),
    (5349, &["stuns"]),
    (5351, &["nat-pmp"]),
    (5353, &["mdns"]),
    (5355, &["llmnr"]),
    (5432, &["postgresql"]),
    (5671, &["amqps"]),
    (5672, &["amqp"]),
    (5683, &["coap"]),
    (5684, &["coaps"]),
    (5900, &["rfb"]),
    (6081, &["geneve"]),
    (6343, &["sflow"]),
    (6379, &["redis"]),
    (6514, &["syslog-tls"]),
    (6653, &["openflow"]),
    (8080, &["http-alt"]),
    (8443, &["pcsync-https"]),
    (8883, &["secure-mqtt"]),
    (9100, &["pdl-datastream"]),
    (9418, &["git"]),
    (11211, &["memcache"]),
    (27017, &["mongodb"]),
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

/// The port of a service.
pub(crate) fn service(name: &str) -> Option<u16> {
    number(SERVICES, name)
}

/// All names of services.
pub(crate) fn services() -> impl Iterator<Item = &'static str> {
    SERVICES.iter().flat_map(|(_, names)| names.iter().copied())
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
        assert!(SERVICES.is_sorted_by(|a, b| a.0 < b.0));
        for name in services() {
            assert_eq!(services().filter(|other| *other == name).count(), 1, "{name}");
            assert!(!crate::keyword::is_reserved(name), "{name}");
            assert!(name.starts_with(|c: char| c.is_ascii_lowercase()), "{name}");
        }
        assert_eq!(service("domain"), Some(53));
        for name in protocols() {
            assert_eq!(protocols().filter(|other| *other == name).count(), 1, "{name}");
            assert!(crate::field(name).is_none(), "{name}");
        }
        assert_eq!(protocol_name(protocol("icmpv6").unwrap()), Some("icmp6"));
        assert_eq!(ethertype_name(ethertype("ipv4").unwrap().into()), Some("ip"));
    }
}
