//! Small pools of values for rules and frames, so that rules match often.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mmb_lang::FieldId;

use super::ByteChoices;

/// Interfaces that rules name; the port number is the index.
pub const IFACES: [&str; 4] = ["lan", "wan", "dmz", "lab"];

/// The NAT pool that stateful rules name.
pub const NAT_POOL: &str = "office";

/// The service chains that stateful rules name.
pub const CHAINS: [&str; 3] = ["web", "dns", "rest"];

/// The transparent brokers that stateful rules name.
pub const BROKERS: [&str; 2] = ["all", "mail"];

/// The port of the first broker.
const FIRST_BROKER: u16 = 20;

/// The port of an interface of [`IFACES`], or of `broker` and one of [`BROKERS`].
pub fn port(name: &str) -> Option<u16> {
    let position = |all: &[&str], name: &str| all.iter().position(|one| *one == name).map(|at| at as u16);
    match name.strip_prefix("broker ") {
        Some(broker) => Some(position(&BROKERS, broker)? + FIRST_BROKER),
        None => position(&IFACES, name),
    }
}

const IP4: [Ipv4Addr; 7] = [
    Ipv4Addr::new(10, 0, 0, 1),
    Ipv4Addr::new(10, 0, 0, 2),
    Ipv4Addr::new(10, 0, 1, 1),
    Ipv4Addr::new(192, 0, 2, 1),
    Ipv4Addr::new(198, 18, 255, 254),
    Ipv4Addr::UNSPECIFIED,
    Ipv4Addr::BROADCAST,
];

const IP6: [Ipv6Addr; 7] = [
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb),
    Ipv6Addr::UNSPECIFIED,
    Ipv6Addr::new(0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff),
];

const PREFIXES_4: [u8; 7] = [24, 32, 8, 31, 1, 0, 17];
const PREFIXES_6: [u8; 8] = [64, 128, 32, 127, 1, 0, 65, 113];

/// An IPv4 address, mostly from the pool.
pub(super) fn ip4(choices: &mut ByteChoices<'_>) -> Ipv4Addr {
    if choices.one_in(16) { Ipv4Addr::from(choices.number(4) as u32) } else { choices.pick(&IP4) }
}

/// An IPv6 address, mostly from the pool.
pub(super) fn ip6(choices: &mut ByteChoices<'_>) -> Ipv6Addr {
    if choices.one_in(16) { Ipv6Addr::from(choices.number(16)) } else { choices.pick(&IP6) }
}

/// A subnet around an address: network address and prefix length.
pub(super) fn subnet(choices: &mut ByteChoices<'_>, addr: IpAddr) -> (IpAddr, u8) {
    match addr {
        IpAddr::V4(addr) => {
            let len = choices.pick(&PREFIXES_4);
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            (Ipv4Addr::from(u32::from(addr) & mask).into(), len)
        }
        IpAddr::V6(addr) => {
            let len = choices.pick(&PREFIXES_6);
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            (Ipv6Addr::from(u128::from(addr) & mask).into(), len)
        }
    }
}

/// Byte strings for payloads and matches: some are prefixes of others, some overlap themselves.
const LITERALS: [&[u8]; 14] = [
    b"GET ",
    b"G",
    b"\0",
    b"HTTP/1.1",
    b"\r\n\r\n",
    b"GET /index.html HTTP/1.1\r\n",
    b"aaaa",
    b"aab",
    b"\xff\xff",
    b"\x16\x03\x01",
    b"\x01\x02\x03\x04\x05\x06\x07\x08",
    b"\x80",
    b"Host: example.org",
    b"\x01\x01\x08\x0a",
];

/// One of the byte strings for payloads.
pub(super) fn literal(choices: &mut ByteChoices<'_>) -> &'static [u8] {
    choices.pick(&LITERALS)
}

/// Kinds of TCP options: named, registered, experimental and unassigned ones.
const KINDS: [u8; 12] = [2, 8, 4, 3, 5, 30, 34, 254, 19, 6, 253, 255];

/// The kind of a TCP option, 2 or above.
pub(super) fn kind(choices: &mut ByteChoices<'_>) -> u8 {
    if choices.one_in(16) { choices.byte().max(2) } else { choices.pick(&KINDS) }
}

/// Data of an option of variable length: up to `most` bytes, possibly none.
pub(super) fn option_data(choices: &mut ByteChoices<'_>, most: usize) -> Vec<u8> {
    let length = choices.pick(&[8, 4, 0, 1, 2, 16, 18, 10, 38]).min(most);
    match choices.below(4) {
        0 => (0..length).map(|i| i as u8).collect(),
        1 => vec![0; length],
        2 => literal(choices).iter().copied().cycle().take(length).collect(),
        _ => (0..length).map(|_| choices.byte() & 3).collect(),
    }
}

/// A number for `field` of `bits` bits, mostly from the field's pool.
pub(super) fn number(choices: &mut ByteChoices<'_>, field: FieldId, bits: u16) -> u64 {
    let all = u64::MAX >> (64 - bits);
    if choices.one_in(16) {
        return choices.number(8) as u64 & all;
    }
    let pool: &[u64] = match field {
        FieldId::IpVer => &[4, 6],
        FieldId::IpIhl => &[5, 6, 15],
        FieldId::IpLen => &[40, 28, 20, 36, 60, 29],
        FieldId::IpFlags => &[2, 0, 1, 4, 7],
        FieldId::IpFragOffset => &[0, 1, 185, 0x1fff],
        FieldId::IpProto | FieldId::Ip6Next => &[6, 17, 1, 58, 0, 43, 44, 60, 50, 255],
        FieldId::Ip6Ver => &[6, 4],
        FieldId::Ip6Len => &[20, 8, 0, 16, 28, 36],
        FieldId::UdpLen => &[8, 16, 9, 0],
        FieldId::UdpSport | FieldId::UdpDport | FieldId::TcpSport | FieldId::TcpDport => {
            &[80, 443, 53, 0, 1024, 0xffff]
        }
        FieldId::IcmpType | FieldId::Icmp6Type => &[0, 8, 3, 128, 129, 255],
        FieldId::TcpOffset => &[5, 6, 8, 15],
        FieldId::TcpOpt => &[2, 8, 4, 3, 5, 30, 34, 254, 19, 6, 253, 255],
        FieldId::TcpOptMss => &[1460, 1400, 536, 0, 0xffff, 8960],
        FieldId::TcpOptWscale => &[7, 0, 14, 255],
        FieldId::TcpOptTimestamp => {
            &[1 << 32 | 2, 0, 2 << 32, 0x1234_5678_9abc_def0, 0xffff_ffff, 1 << 32, u64::MAX]
        }
        FieldId::TcpFlags => &[0x02, 0x12, 0x10, 0, 0xff, 0xc2],
        _ => &[0, 1, 2, 0x40, 0x1234_5678, u64::MAX],
    };
    choices.pick(pool) & all
}
