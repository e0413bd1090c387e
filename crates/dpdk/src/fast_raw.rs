//! Flows and what is done with them, as the XDP program reads them (bpf/steer.h).

use std::net::IpAddr;

use mmb_dpdk_sys as sys;

use crate::fast::{FastAction, FastGranularity, FastKey};

/// The words of a `struct fast_key`.
pub(crate) type Key = [u32; size_of::<sys::fast_key>() / 4];
/// The words of a `struct fast_action`.
pub(crate) type Action = [u32; size_of::<sys::fast_action>() / 4];
/// Of them, those of the stamp, which are 0.
pub(crate) const STAMP_WORDS: usize = 2;
/// What keys are mixed with.
pub(crate) type Secrets = [u32; sys::STEER_FAST_SECRETS as usize];

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

/// What a key of that granularity has nothing to say of is 0 in it.
fn is_whole(key: &FastKey) -> bool {
    match key.granularity {
        FastGranularity::Flow => true,
        FastGranularity::Pair => *key == key.without_ports(),
        FastGranularity::Destination => *key == FastKey::for_destination(key.port, key.destination),
    }
}

/// None: it cannot be a flow's, nor a pair's or a destination's.
pub(crate) fn key(key: &FastKey) -> Option<Key> {
    let family: u32 = match (key.source, key.destination, key.proto) {
        (IpAddr::V4(_), IpAddr::V4(_), TCP | UDP | ICMP) => 4,
        (IpAddr::V6(_), IpAddr::V6(_), TCP | UDP | ICMP6) => 6,
        (IpAddr::V4(_), ..) if key.granularity == FastGranularity::Destination => 4,
        (IpAddr::V6(_), ..) if key.granularity == FastGranularity::Destination => 6,
        _ => return None,
    };
    if !is_whole(key) {
        return None;
    }
    let ports = [key.source_port, key.destination_port].map(u16::to_be_bytes);
    let [[s0, s1, s2, s3], [d0, d1, d2, d3]] = [words(key.source), words(key.destination)];
    let pair = if key.granularity == FastGranularity::Pair { sys::STEER_FAST_PAIR } else { 0 };
    let kind = family | u32::from(key.proto) << 8 | pair;
    Some([s0, s1, s2, s3, d0, d1, d2, d3, bytemuck::cast(ports), key.port.0, kind])
}

/// Where a key stands in the index: fast_mix() in bpf/fast.h.
pub(crate) fn mix(key: &Key, secrets: &Secrets) -> u64 {
    let keyed = |at: usize| u64::from(key[at]) + u64::from(secrets[at]);
    let last = keyed(10).wrapping_mul(secrets[11].into());
    let pairs = (0..10).step_by(2).map(|at| keyed(at).wrapping_mul(keyed(at + 1)));
    let sum = pairs.fold(last, u64::wrapping_add);
    let mix = (sum ^ sum >> 32).wrapping_mul(sys::STEER_FAST_MIX);
    mix ^ mix >> 32
}

/// What changes in a checksum's sum when words become others, in the order of memory; 0: nothing.
fn difference(changes: &[(&[u32], &[u32])]) -> u16 {
    let pairs = changes.iter().flat_map(|(old, new)| old.iter().zip(*new));
    let mut sum: u64 = pairs.map(|(old, new)| u64::from(!old) + u64::from(*new)).sum();
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
    // What is tracked is one direction of one connection, of which a segment without ACK says nothing; and what is written is the
    // ports, too.
    let of_many = key.granularity != FastGranularity::Flow;
    if action.track && (action.control || of_many) || of_many && action.translation.is_some() {
        return None;
    }
    if action.awaits.is_some() && !action.track {
        return None;
    }
    let (addresses, ports) = ((&from_raw[..8], &to_raw[..8]), (&from_raw[8..9], &to_raw[8..9]));
    // A byte less in the first one of a word of the header.
    let hop: (&[u32], &[u32]) =
        if action.decrement_ttl { (&[u32::from_ne_bytes([1, 0, 0, 0])], &[0]) } else { (&[], &[]) };
    let flag = |on: bool, flag: u32| if on { flag as u16 } else { 0 };
    let raw = sys::fast_action {
        out: action.out.0,
        flags: flag(action.macs.is_some(), sys::STEER_FAST_MAC)
            | flag(action.decrement_ttl, sys::STEER_FAST_TTL)
            | flag(to != *key, sys::STEER_FAST_NAT)
            | flag(action.track, sys::STEER_FAST_TRACK)
            | flag(action.control, sys::STEER_FAST_CONTROL)
            | flag(action.fin, sys::STEER_FAST_FIN)
            | flag(action.awaits.is_some(), sys::STEER_FAST_AWAITS),
        max_len: action.max_len,
        l3_diff: if key.source.is_ipv4() { difference(&[addresses, hop]) } else { 0 },
        // ICMP's checksum has no pseudo header.
        l4_diff: if key.proto == ICMP { difference(&[ports]) } else { difference(&[addresses, ports]) },
        sport: to.source_port.to_be(),
        dport: to.destination_port.to_be(),
        mac: action.macs.map_or([0; 6], |macs| bytemuck::cast([macs.destination, macs.source])),
        src: words(to.source),
        dst: words(to.destination),
        awaits: action.awaits.unwrap_or(0).to_be(),
        ..Default::default()
    };
    // SAFETY: of the same size, and without gaps.
    Some(unsafe { std::mem::transmute::<sys::fast_action, Action>(raw) })
}
