//! ICMP (RFC 792), ICMPv6 (RFC 4443), UDP (RFC 768).

use mmb_packet::Loc;

use super::FieldId;
use super::def::{CHECKSUM, FieldDef, LENGTH, Layer};

const fn icmp(id: FieldId, name: &'static str, bit: u16, width: u16) -> FieldDef {
    FieldDef::fixed(id, name, Loc::Icmp(bit), width)
}

const fn icmp6(id: FieldId, name: &'static str, bit: u16, width: u16) -> FieldDef {
    FieldDef::fixed(id, name, Loc::Icmp6(bit), width)
}

const fn udp(id: FieldId, name: &'static str, bit: u16, width: u16) -> FieldDef {
    FieldDef::fixed(id, name, Loc::Udp(bit), width)
}

pub(super) const FIELDS: [FieldDef; 13] = [
    icmp(FieldId::IcmpType, "icmp-type", 0, 8)
        .help("type: 8 echo request, 0 echo reply, …")
        .example("icmp-type 8"),
    icmp(FieldId::IcmpCode, "icmp-code", 8, 8).help("code").example("icmp-code 4"),
    icmp(FieldId::IcmpChecksum, "icmp-checksum", 16, 16)
        .help("checksum")
        .example("icmp-checksum 0")
        .read_only(CHECKSUM),
    FieldDef::payload(FieldId::IcmpPayload, "icmp-payload", Layer::Icmp)
        .help("what follows the 8 bytes of the ICMP header")
        .example("icmp-payload 0x4500"),
    icmp6(FieldId::Icmp6Type, "icmp6-type", 0, 8)
        .help("type: 128 echo request, 129 echo reply, …")
        .example("icmp6-type 128"),
    icmp6(FieldId::Icmp6Code, "icmp6-code", 8, 8).help("code").example("icmp6-code 0"),
    icmp6(FieldId::Icmp6Checksum, "icmp6-checksum", 16, 16)
        .help("checksum")
        .example("icmp6-checksum 0")
        .read_only(CHECKSUM),
    FieldDef::payload(FieldId::Icmp6Payload, "icmp6-payload", Layer::Icmp6)
        .help("what follows the 8 bytes of the ICMPv6 header")
        .example("icmp6-payload 0x6000"),
    udp(FieldId::UdpSport, "udp-sport", 0, 16).translated().help("source port").example("udp-sport 53"),
    udp(FieldId::UdpDport, "udp-dport", 16, 16).translated().help("destination port").example("udp-dport 53"),
    udp(FieldId::UdpLen, "udp-len", 32, 16)
        .help("length of UDP header and payload in bytes")
        .example("udp-len 8")
        .read_only(LENGTH),
    udp(FieldId::UdpChecksum, "udp-checksum", 48, 16)
        .help("checksum; 0 over IPv4: none")
        .example("udp-checksum 0")
        .read_only(CHECKSUM),
    FieldDef::payload(FieldId::UdpPayload, "udp-payload", Layer::Udp)
        .help("what follows the UDP header, up to udp-len")
        .example("udp-payload 0x0001"),
];
