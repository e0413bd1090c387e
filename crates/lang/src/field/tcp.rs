//! TCP and its options (RFC 9293, RFC 3168; options: RFC 7323, RFC 2018, RFC 7413, RFC 8684).

use mmb_packet::{Loc, NamedOption};

use super::FieldId;
use super::def::{CHECKSUM, FieldDef, Layer, ValueKind};

const fn tcp(id: FieldId, name: &'static str, bit: u16, width: u16) -> FieldDef {
    FieldDef::fixed(id, name, Loc::Tcp(bit), width)
}

const fn flag(id: FieldId, name: &'static str, bit: u16) -> FieldDef {
    tcp(id, name, bit, 1).example(name)
}

const fn option(id: FieldId, name: &'static str, option: NamedOption) -> FieldDef {
    FieldDef::option(id, name, option)
}

pub(super) const FIELDS: [FieldDef; 27] = [
    tcp(FieldId::TcpSport, "tcp-sport", 0, 16).translated().help("source port").example("tcp-sport 80"),
    tcp(FieldId::TcpDport, "tcp-dport", 16, 16).translated().help("destination port").example("tcp-dport 443"),
    tcp(FieldId::TcpSeqNum, "tcp-seq-num", 32, 32).translated().help("sequence number").example("tcp-seq-num 0"),
    tcp(FieldId::TcpAckNum, "tcp-ack-num", 64, 32).translated().help("acknowledgement number").example("tcp-ack-num 0"),
    tcp(FieldId::TcpOffset, "tcp-offset", 96, 4)
        .help("header length in 32-bit words; 5 without options")
        .example("tcp-offset != 5")
        .read_only("it follows from the header's length"),
    tcp(FieldId::TcpReserved, "tcp-reserved", 100, 4).help("reserved bits").example("tcp-reserved != 0"),
    tcp(FieldId::TcpUrgPtr, "tcp-urg-ptr", 144, 16).help("urgent pointer").example("tcp-urg-ptr != 0"),
    tcp(FieldId::TcpFlags, "tcp-flags", 104, 8)
        .help("the eight flags: 128 CWR, 64 ECE, 32 URG, 16 ACK, 8 PSH, 4 RST, 2 SYN, 1 FIN")
        .example("tcp-flags 0x12"),
    flag(FieldId::TcpCwr, "tcp-cwr", 104).help("congestion window reduced"),
    flag(FieldId::TcpEce, "tcp-ece", 105).help("ECN echo"),
    flag(FieldId::TcpUrg, "tcp-urg", 106).help("urgent pointer counts"),
    flag(FieldId::TcpAck, "tcp-ack", 107).help("acknowledgement number counts"),
    flag(FieldId::TcpPush, "tcp-push", 108).help("push"),
    flag(FieldId::TcpRst, "tcp-rst", 109).help("reset"),
    flag(FieldId::TcpSyn, "tcp-syn", 110).help("synchronise: opens a connection"),
    flag(FieldId::TcpFin, "tcp-fin", 111).help("the sender is done"),
    tcp(FieldId::TcpWin, "tcp-win", 112, 16).help("receive window, not scaled").example("tcp-win 0"),
    tcp(FieldId::TcpChecksum, "tcp-checksum", 128, 16)
        .help("checksum")
        .example("tcp-checksum 0")
        .read_only(CHECKSUM),
    FieldDef::payload(FieldId::TcpPayload, "tcp-payload", Layer::Tcp)
        .help("what follows the TCP header and its options")
        .example("tcp-payload \"GET \""),
    FieldDef::fixed(FieldId::TcpOpt, "tcp-opt", Loc::TcpOptionAny, 8)
        .help("any option, or those of some kinds (2 to 255); written and stripped by kind: tcp-opt 254 0xf989")
        .example("tcp-opt 19"),
    option(FieldId::TcpOptMss, "tcp-opt-mss", NamedOption::Mss)
        .kind(ValueKind::Int)
        .bits(16)
        .help("maximum segment size (2); ends read it in SYN segments only: match tcp-syn to add it")
        .example("tcp-opt-mss > 1460"),
    option(FieldId::TcpOptWscale, "tcp-opt-wscale", NamedOption::Wscale)
        .kind(ValueKind::Int)
        .bits(8)
        .help(
            "window scale (3), a shift count, 14 at most; ends read it in SYN segments only, and it counts only if both \
             ends sent one",
        )
        .example("tcp-opt-wscale 7"),
    option(FieldId::TcpOptSackp, "tcp-opt-sackp", NamedOption::Sackp)
        .kind(ValueKind::Presence)
        .help("selective acknowledgements permitted (4); may stand in SYN segments only")
        .example("tcp-opt-sackp")
        .read_only("the option has no value"),
    option(FieldId::TcpOptSack, "tcp-opt-sack", NamedOption::Sack)
        .kind(ValueKind::Bytes { max: 32 })
        .help("selective acknowledgement blocks (5)")
        .example("tcp-opt-sack"),
    option(FieldId::TcpOptTimestamp, "tcp-opt-timestamp", NamedOption::Timestamp)
        .kind(ValueKind::Int)
        .bits(64)
        .help("timestamps (8): value in the upper, echo reply in the lower 32 bits")
        .example("tcp-opt-timestamp"),
    option(FieldId::TcpOptFastOpen, "tcp-opt-fast-open", NamedOption::FastOpen)
        .kind(ValueKind::Bytes { max: 16 })
        .help("fast open cookie (34), in SYN segments only; without data it asks for a cookie")
        .example("tcp-opt-fast-open"),
    option(FieldId::TcpOptMptcp, "tcp-opt-mptcp", NamedOption::Mptcp)
        .kind(ValueKind::Bytes { max: 38 })
        .help("multipath TCP (30)")
        .example("tcp-opt-mptcp"),
];
