//! Keys and actions of the fast path in the program's format (bpf/steer.h).

use std::net::IpAddr;

use mmb_dpdk_sys as sys;

use super::fast_flow::{FastAction, FastGranularity, FastKey};

/// The words of a `struct fast_key`.
pub(super) type Key = [u32; size_of::<sys::fast_key>() / 4];
/// The words of a `struct fast_action`, whose stamp is 0.
pub(super) type Action = [u32; size_of::<sys::fast_action>() / 4];
/// Words of the stamp, with which an action begins.
pub(super) const STAMP_WORDS: usize = 2;
/// The secrets of [`hash`].
pub(super) type Secrets = [u32; sys::STEER_FAST_SECRETS as usize];

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;

/// The words of an address in network byte order; those behind an IPv4 address are 0.
fn words(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V6(address) => bytemuck::cast(address.octets()),
        IpAddr::V4(address) => [bytemuck::cast(address.octets()), 0, 0, 0],
    }
}

/// Whether the fields that a key's granularity leaves out are 0.
fn is_canonical(key: &FastKey) -> bool {
    match key.granularity {
        FastGranularity::Flow => true,
        FastGranularity::Pair => *key == key.without_ports(),
        FastGranularity::Destination => *key == FastKey::for_destination(key.port, key.destination),
    }
}

/// The words of a key; None: no packet has such a key.
pub(super) fn key(key: &FastKey) -> Option<Key> {
    let family: u32 = match (key.source, key.destination, key.proto) {
        (IpAddr::V4(_), IpAddr::V4(_), TCP | UDP | ICMP) => 4,
        (IpAddr::V6(_), IpAddr::V6(_), TCP | UDP | ICMP6) => 6,
        (IpAddr::V4(_), ..) if key.granularity == FastGranularity::Destination => 4,
        (IpAddr::V6(_), ..) if key.granularity == FastGranularity::Destination => 6,
        _ => return None,
    };
    if !is_canonical(key) {
        return None;
    }
    let ports = [key.source_port, key.destination_port].map(u16::to_be_bytes);
    let [[s0, s1, s2, s3], [d0, d1, d2, d3]] = [words(key.source), words(key.destination)];
    let pair = if key.granularity == FastGranularity::Pair { sys::STEER_FAST_PAIR } else { 0 };
    let kind = family | u32::from(key.proto) << 8 | pair;
    Some([s0, s1, s2, s3, d0, d1, d2, d3, bytemuck::cast(ports), key.port.0, kind])
}

/// The hash of a key: fast_hash() in bpf/fast_table.h.
pub(super) fn hash(key: &Key, secrets: &Secrets) -> u64 {
    let keyed = |at: usize| u64::from(key[at]) + u64::from(secrets[at]);
    let last = keyed(10).wrapping_mul(secrets[11].into());
    let pairs = (0..10).step_by(2).map(|at| keyed(at).wrapping_mul(keyed(at + 1)));
    let sum = pairs.fold(last, u64::wrapping_add);
    let hash = (sum ^ sum >> 32).wrapping_mul(sys::STEER_FAST_MIX);
    hash ^ hash >> 32
}

/// The change of a ones' complement sum when words are replaced, in memory order; 0: no change.
fn checksum_difference(changes: &[(&[u32], &[u32])]) -> u16 {
    let pairs = changes.iter().flat_map(|(old, new)| old.iter().zip(*new));
    let mut sum: u64 = pairs.map(|(old, new)| u64::from(!old) + u64::from(*new)).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // 0xffff is 0 in ones' complement, but adding it would turn a sum of 0 into 0xffff.
    if sum == 0xffff { 0 } else { sum as u16 }
}

/// Whether a key's packets can have this action.
fn is_consistent(key: &FastKey, action: &FastAction) -> bool {
    // TCP state belongs to one direction of one connection, and a segment without ACK has none to track. A
    // translation writes ports, which a key of several flows does not have.
    let covers_flows = key.granularity != FastGranularity::Flow;
    let untracked = !action.track_tcp || !(action.pass_control || covers_flows);
    untracked
        && !(covers_flows && action.translation.is_some())
        && (action.awaited_ack.is_none() && action.numbers.is_none() && !action.pass_fin || action.track_tcp)
        && !(action.pass_fin && action.numbers.is_some())
        && action.numbers.is_none_or(|numbers| (-14..=14).contains(&numbers.window_shift))
}

/// The words of an action; None: packets of that key cannot have it.
pub(super) fn action(key: &FastKey, action: &FastAction) -> Option<Action> {
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
    if key.source.is_ipv4() != to.source.is_ipv4() || !is_consistent(key, action) {
        return None;
    }
    let (addresses, ports) = ((&from_raw[..8], &to_raw[..8]), (&from_raw[8..9], &to_raw[8..9]));
    // The TTL is the first byte of its word: one less in it.
    let hop: (&[u32], &[u32]) =
        if action.decrement_ttl { (&[u32::from_ne_bytes([1, 0, 0, 0])], &[0]) } else { (&[], &[]) };
    let numbers = action.numbers.unwrap_or_default();
    let flag = |on: bool, flag: u32| if on { flag as u16 } else { 0 };
    let raw = sys::fast_action {
        out: action.out.0,
        flags: flag(action.macs.is_some(), sys::STEER_FAST_MAC)
            | flag(action.decrement_ttl, sys::STEER_FAST_TTL)
            | flag(to != *key, sys::STEER_FAST_NAT)
            | flag(action.track_tcp, sys::STEER_FAST_TRACK)
            | flag(action.pass_control, sys::STEER_FAST_CONTROL)
            | flag(action.pass_fin, sys::STEER_FAST_FIN)
            | flag(action.awaited_ack.is_some(), sys::STEER_FAST_AWAITS)
            | flag(action.numbers.is_some(), sys::STEER_FAST_NUMBERS)
            | flag(numbers.has_timestamps(), sys::STEER_FAST_STAMPS),
        max_len: action.max_len,
        l3_diff: if key.source.is_ipv4() { checksum_difference(&[addresses, hop]) } else { 0 },
        // ICMP's checksum covers no pseudo header.
        l4_diff: if key.proto == ICMP {
            checksum_difference(&[ports])
        } else {
            checksum_difference(&[addresses, ports])
        },
        sport: to.source_port.to_be(),
        dport: to.destination_port.to_be(),
        mac: action.macs.map_or([0; 6], |macs| bytemuck::cast([macs.destination, macs.source])),
        src: words(to.source),
        dst: words(to.destination),
        awaits: action.awaited_ack.unwrap_or(0).to_be(),
        add_seq: numbers.sequence,
        add_ack: numbers.acknowledgment,
        add_tsval: numbers.timestamp,
        add_tsecr: numbers.echo,
        shift_window: numbers.window_shift.into(),
        ..Default::default()
    };
    // SAFETY: both types have the same size, which the compiler checks, and fast_action has no padding bytes.
    Some(unsafe { std::mem::transmute::<sys::fast_action, Action>(raw) })
}
