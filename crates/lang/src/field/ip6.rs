//! IPv6 and its extension headers (RFC 8200).

use mmb_packet::{Ip6Ext, Loc};

use super::FieldId;
use super::def::{FieldDef, LENGTH, Layer, ValueKind};

const fn ip6(id: FieldId, name: &'static str, bit: u16, width: u16) -> FieldDef {
    FieldDef::fixed(id, name, Loc::Ip6(bit), width)
}

/// An extension header.
const fn eh(id: FieldId, name: &'static str, header: Ip6Ext) -> FieldDef {
    FieldDef::extension(id, name, header)
}

pub(super) const FIELDS: [FieldDef; 19] = [
    ip6(FieldId::Ip6Ver, "ip6-ver", 0, 4)
        .help("version; always 6")
        .example("ip6-ver 6")
        .read_only("another version would need another header"),
    ip6(FieldId::Ip6TrafficClass, "ip6-traffic-class", 4, 8)
        .help("traffic class: 6 bits DSCP, 2 bits ECN")
        .example("ip6-traffic-class 0xb8"),
    ip6(FieldId::Ip6FlowLabel, "ip6-flow-label", 12, 20)
        .translated()
        .help("flow label")
        .example("ip6-flow-label 0"),
    ip6(FieldId::Ip6Len, "ip6-len", 32, 16)
        .help("length of what follows the IPv6 header, in bytes")
        .example("ip6-len 1460")
        .read_only(LENGTH),
    ip6(FieldId::Ip6Next, "ip6-next", 48, 8)
        .kind(ValueKind::Proto)
        .help("next header: the transport protocol, or the first extension header where there is one")
        .example("ip6-next udp")
        .read_only("the header after it would not change"),
    ip6(FieldId::Ip6HopLimit, "ip6-hop-limit", 56, 8).help("hop limit").example("ip6-hop-limit 255"),
    ip6(FieldId::Ip6Saddr, "ip6-saddr", 64, 128)
        .translated()
        .kind(ValueKind::Ip6)
        .help("source address")
        .example("ip6-saddr 2001:db8::/32"),
    ip6(FieldId::Ip6Daddr, "ip6-daddr", 192, 128)
        .translated()
        .kind(ValueKind::Ip6)
        .help("destination address")
        .example("ip6-daddr 2001:db8::1"),
    FieldDef::payload(FieldId::Ip6Payload, "ip6-payload", Layer::Ip6)
        .help("what follows the 40 bytes of the IPv6 header, extension headers included")
        .example("ip6-payload 0x3a00"),
    eh(FieldId::Ip6Eh, "ip6-eh", Ip6Ext::Any).help("any extension header of those below"),
    eh(FieldId::Ip6EhHopbyhop, "ip6-eh-hopbyhop", Ip6Ext::HopByHop).help("hop-by-hop options header (0)"),
    eh(FieldId::Ip6EhRouting, "ip6-eh-routing", Ip6Ext::Routing).help("routing header (43)"),
    eh(FieldId::Ip6EhFragment, "ip6-eh-fragment", Ip6Ext::Fragment).help("fragment header (44)"),
    eh(FieldId::Ip6EhEsp, "ip6-eh-esp", Ip6Ext::Esp).help("encapsulating security payload (50)"),
    eh(FieldId::Ip6EhAh, "ip6-eh-ah", Ip6Ext::Ah).help("authentication header (51)"),
    eh(FieldId::Ip6EhDestopt, "ip6-eh-destopt", Ip6Ext::DestOpt).help("destination options header (60)"),
    eh(FieldId::Ip6EhMobility, "ip6-eh-mobility", Ip6Ext::Mobility).help("mobility header (135)"),
    eh(FieldId::Ip6EhHip, "ip6-eh-hip", Ip6Ext::Hip).help("host identity protocol (139)"),
    eh(FieldId::Ip6EhShim6, "ip6-eh-shim6", Ip6Ext::Shim6).help("shim6 header (140)"),
];
