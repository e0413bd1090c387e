//! Flows and what is done with them, as the XDP program reads them (bpf/steer.h).

use std::net::IpAddr;

use mmb_dpdk_sys as sys;

use crate::fast::{FastAction, FastKey};

/// The bytes of a `struct fast_key`.
pub(crate) type Key = [u8; size_of::<sys::fast_key>()];
/// The words of a `struct fast_action`.
pub(crate) type Action = [u32; size_of::<sys::fast_action>() / 4];
/// Of them, those that are not copied: generation, mark and version.
pub(crate) const WORDS_BEFORE: usize = 5;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;

/// An address, the rest zeros.
fn wide(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => {
            let mut wide = [0; 16];
            wide[..4].copy_from_slice(&address.octets());
            wide
        }
    }
}

/// The words of an address as they are in memory.
fn words(address: IpAddr) -> [u32; 4] {
    bytemuck::cast(wide(address))
}

/// None: it cannot be a flow's.
pub(crate) fn key(key: &FastKey) -> Option<Key> {
    let family = match (key.source, key.destination, key.proto) {
        (IpAddr::V4(_), IpAddr::V4(_), TCP | UDP | ICMP) => 4,
        (IpAddr::V6(_), IpAddr::V6(_), TCP | UDP | ICMP6) => 6,
        _ => return None,
    };
    let mut raw = [0; size_of::<Key>()];
    let (ports, port) =
        ([key.source_port.to_be_bytes(), key.destination_port.to_be_bytes()], key.port.0.to_ne_bytes());
    let parts: [&[u8]; 6] = [
        &wide(key.source),
        &wide(key.destination),
        ports.as_flattened(),
        &port,
        &[family, key.proto],
        // Counts in comparisons as the rest does.
        &[0, 0],
    ];
    for (to, from) in raw.iter_mut().zip(parts.into_iter().flatten()) {
        *to = *from;
    }
    Some(raw)
}

/// By which a slot knows its flow: fast_mark() in bpf/fast.h.
pub(crate) fn mark(key: &Key) -> u64 {
    const MIX: [u64; 6] = [
        sys::STEER_FAST_MIX0,
        sys::STEER_FAST_MIX1,
        sys::STEER_FAST_MIX2,
        sys::STEER_FAST_MIX3,
        sys::STEER_FAST_MIX4,
        sys::STEER_FAST_MIX5,
    ];
    key.chunks(8).zip(MIX).fold(0, |mark, (bytes, mix)| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        // The last one is a word of half the size.
        let word = if bytes.len() == 8 {
            u64::from_ne_bytes(word)
        } else {
            u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
        };
        mark.wrapping_add(word.wrapping_mul(mix))
    })
}

/// What changes in a checksum's sum when words become others, in the order of memory; 0: nothing.
fn difference(changes: &[(&[u8], &[u8])]) -> u16 {
    let mut sum = 0u64;
    for (old, new) in changes {
        for (old, new) in old.chunks_exact(2).zip(new.chunks_exact(2)) {
            let [old, new] = [old, new].map(|word| u16::from_ne_bytes([word[0], word[1]]));
            sum += u64::from(!old) + u64::from(new);
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // Both are 0 in this arithmetic, but adding the other one would turn a sum of 0 into it.
    if sum == 0xffff { 0 } else { sum as u16 }
}

/// None: it cannot be done with that flow.
pub(crate) fn action(key: &FastKey, action: &FastAction) -> Option<Action> {
    let to = match action.translation {
        Some(to) => FastKey {
            source: to.source,
            destination: to.destination,
            source_port: to.source_port,
            destination_port: if matches!(key.proto, TCP | UDP) {
                to.destination_port
            } else {
                key.destination_port
            },
            ..*key
        },
        None => *key,
    };
    let [from_raw, to_raw] = [self::key(key)?, self::key(&to)?];
    if key.source.is_ipv4() != to.source.is_ipv4() {
        return None;
    }
    let (addresses, ports) = ((&from_raw[..32], &to_raw[..32]), (&from_raw[32..36], &to_raw[32..36]));
    // A byte less in the upper half of a word of the header.
    let hop: (&[u8], &[u8]) = if action.decrement_ttl { (&[1, 0], &[0, 0]) } else { (&[], &[]) };
    let flag = |on: bool, flag: u32| if on { flag as u16 } else { 0 };
    let raw = sys::fast_action {
        out: action.out.0,
        flags: flag(action.macs.is_some(), sys::STEER_FAST_MAC)
            | flag(action.decrement_ttl, sys::STEER_FAST_TTL)
            | flag(to != *key, sys::STEER_FAST_NAT)
            | flag(action.track, sys::STEER_FAST_TRACK),
        max_len: action.max_len,
        l3_diff: if key.source.is_ipv4() { difference(&[addresses, hop]) } else { 0 },
        // ICMP's checksum has no pseudo header.
        l4_diff: if key.proto == ICMP { difference(&[ports]) } else { difference(&[addresses, ports]) },
        sport: to.source_port.to_be(),
        dport: to.destination_port.to_be(),
        mac: action.macs.map_or([0; 6], |macs| bytemuck::cast([macs.destination, macs.source])),
        src: words(to.source),
        dst: words(to.destination),
        ..Default::default()
    };
    // SAFETY: of the same size, and without gaps.
    Some(unsafe { std::mem::transmute::<sys::fast_action, Action>(raw) })
}
