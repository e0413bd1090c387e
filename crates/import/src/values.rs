//! Addresses and TCP flags, as packet filters write them.

use std::net::{Ipv4Addr, Ipv6Addr};

use mmb_lang::FieldId;

use crate::filter::{Filter, TCP, Values};

/// TCP segments whose flags in `mask` equal `set`; negated: those with another value. The result is a union.
pub fn flags_equal(mask: u128, set: u128, negated: bool) -> Vec<Filter> {
    use FieldId::{TcpAck, TcpCwr, TcpEce, TcpFin, TcpPush, TcpRst, TcpSyn, TcpUrg};
    const BITS: [FieldId; 8] = [TcpFin, TcpSyn, TcpRst, TcpPush, TcpAck, TcpUrg, TcpEce, TcpCwr];
    let tcp = Filter::of(FieldId::IpProto, Values::one(TCP));
    let bits = (0..).zip(BITS).filter(|(bit, _)| mask >> bit & 1 == 1);
    let flag =
        |filter: Filter, bit: u32, field, flip: u128| filter.and(field, &Values::one(set >> bit & 1 ^ flip));
    match (set & !mask, negated) {
        (0, true) => bits.filter_map(|(bit, field)| flag(Filter::default(), bit, field, 1)).collect(),
        (0, false) => {
            let all = bits.fold(tcp, |filter, (bit, field)| flag(filter?, bit, field, 0));
            all.into_iter().collect()
        }
        // Flags outside the mask never compare as set.
        (_, negated) => tcp.into_iter().filter(|_| negated).collect(),
    }
}

/// An address or a prefix with a port or a range of ports, as elements of sets are written.
pub fn with_ports(address: &str, ports: &str) -> String {
    match address.contains(':') {
        true => format!("[{address}]:{ports}"),
        false => format!("{address}:{ports}"),
    }
}

/// The first and the last address of a subnet (with prefix length or mask), of a range, or of one address.
/// `bits`: the width of the addresses; those of the other IP version are none.
pub fn addresses(text: &str, bits: u32) -> Option<(u128, u128)> {
    if let Some((low, high)) = text.split_once('-') {
        return Some((address(low, bits)?, address(high, bits)?));
    }
    let (base, length) = text.split_once('/').map_or((text, None), |(base, length)| (base, Some(length)));
    let base = address(base, bits)?;
    let length = match length {
        None => bits,
        Some(length) => match address(length, bits) {
            Some(mask) => prefix_length(mask, bits)?,
            None => length.parse().ok().filter(|length| *length <= bits)?,
        },
    };
    let free = 1u128.checked_shl(bits - length).map_or(u128::MAX, |size| size - 1);
    Some((base & !free, base | free))
}

/// The prefix length of a mask; none if its ones are not its first bits.
fn prefix_length(mask: u128, bits: u32) -> Option<u32> {
    let length = mask.count_ones();
    let zeros = if mask == 0 { bits } else { mask.trailing_zeros() };
    (zeros + length == bits).then_some(length)
}

/// Parses an address of a width in bits.
fn address(text: &str, bits: u32) -> Option<u128> {
    match bits {
        32 => text.parse::<Ipv4Addr>().ok().map(|address| u32::from(address).into()),
        _ => text.parse::<Ipv6Addr>().ok().map(u128::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_one_ip_version() {
        assert_eq!(addresses("10.0.0.0/255.0.0.0", 32), Some((0x0a00_0000, 0x0aff_ffff)));
        assert_eq!(addresses("::a00:1-::a00:2", 128), Some((0x0a00_0001, 0x0a00_0002)));
        for (text, bits) in [
            ("10.0.0.1", 128),
            ("2001:db8::a00:1/128", 32),
            ("10.0.0.0/ffff::", 32),
            ("10.0.0.1-::a00:2", 32),
            ("::1-10.0.0.2", 128),
        ] {
            assert_eq!(addresses(text, bits), None, "{text}");
        }
    }
}
