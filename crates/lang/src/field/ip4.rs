//! IPv4 (RFC 791, RFC 2474, RFC 3168).

use mmb_packet::Loc;

use super::FieldId;
use super::def::{CHECKSUM, FieldDef, LENGTH, Layer, ValueKind};

const fn ip4(id: FieldId, name: &'static str, bit: u16, width: u16) -> FieldDef {
    FieldDef::fixed(id, name, Loc::Ip4(bit), width)
}

/// A name for one value of the two ECN bits.
const fn ecn(id: FieldId, name: &'static str, value: u8) -> FieldDef {
    ip4(id, name, 14, 2).kind(ValueKind::Shorthand(value)).example(name)
}

pub(super) const FIELDS: [FieldDef; 21] = [
    ip4(FieldId::IpVer, "ip-ver", 0, 4)
        .help("version; always 4")
        .example("ip-ver 4")
        .read_only("another version would need another header"),
    ip4(FieldId::IpIhl, "ip-ihl", 4, 4)
        .help("header length in 32-bit words; 5 without options")
        .example("ip-ihl != 5")
        .read_only("it follows from the header's length"),
    ip4(FieldId::IpDscp, "ip-dscp", 8, 6).help("differentiated services code point").example("ip-dscp 46"),
    ip4(FieldId::IpEcn, "ip-ecn", 14, 2)
        .help("explicit congestion notification: 0 non-ECT, 1 ECT(1), 2 ECT(0), 3 CE")
        .example("ip-ecn 3"),
    ecn(FieldId::IpNonEct, "ip-non-ect", 0).help("short for ip-ecn 0: not ECN-capable"),
    ecn(FieldId::IpEct0, "ip-ect0", 2).help("short for ip-ecn 2: ECN-capable, ECT(0)"),
    ecn(FieldId::IpEct1, "ip-ect1", 1).help("short for ip-ecn 1: ECN-capable, ECT(1)"),
    ecn(FieldId::IpCe, "ip-ce", 3).help("short for ip-ecn 3: congestion experienced"),
    ip4(FieldId::IpLen, "ip-len", 16, 16)
        .help("length of the IPv4 packet in bytes, header included")
        .example("ip-len 1500")
        .read_only(LENGTH),
    ip4(FieldId::IpId, "ip-id", 32, 16).translated().help("identification").example("ip-id 0"),
    ip4(FieldId::IpFlags, "ip-flags", 48, 3)
        .help("the three flags: 4 reserved, 2 don't fragment, 1 more fragments")
        .example("ip-flags 2")
        .read_only("it contains ip-mf, which would break reassembly; ip-df and ip-res can be written"),
    ip4(FieldId::IpRes, "ip-res", 48, 1).help("reserved flag").example("ip-res"),
    ip4(FieldId::IpDf, "ip-df", 49, 1).help("don't fragment").example("ip-df"),
    ip4(FieldId::IpMf, "ip-mf", 50, 1)
        .help("more fragments follow")
        .example("ip-mf")
        .read_only("it would break reassembly"),
    ip4(FieldId::IpFragOffset, "ip-frag-offset", 51, 13)
        .help("fragment offset in units of 8 bytes")
        .example("ip-frag-offset != 0")
        .read_only("it would break reassembly"),
    ip4(FieldId::IpTtl, "ip-ttl", 64, 8).help("time to live").example("ip-ttl 1"),
    ip4(FieldId::IpProto, "ip-proto", 72, 8)
        .kind(ValueKind::Proto)
        .help("protocol of the payload")
        .example("ip-proto udp")
        .read_only("the header after it would not change"),
    ip4(FieldId::IpChecksum, "ip-checksum", 80, 16)
        .help("header checksum")
        .example("ip-checksum 0")
        .read_only(CHECKSUM),
    ip4(FieldId::IpSaddr, "ip-saddr", 96, 32)
        .translated()
        .kind(ValueKind::Ip4)
        .help("source address")
        .example("ip-saddr 10.0.0.0/8"),
    ip4(FieldId::IpDaddr, "ip-daddr", 128, 32)
        .translated()
        .kind(ValueKind::Ip4)
        .help("destination address")
        .example("ip-daddr 192.0.2.1"),
    FieldDef::payload(FieldId::IpPayload, "ip-payload", Layer::Ip4)
        .help("what follows the IPv4 header")
        .example("ip-payload 0x4500"),
];
