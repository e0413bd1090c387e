//! Masks over the header window as fields of the language: `ip-saddr/24 tcp-dport` instead of bits.

use mmb_lang::{FIELDS, FieldDef, FieldId, Layer, ValueKind};
use mmb_packet::window::{CHUNK, CHUNKS, KIND};
use mmb_packet::{Ip6Ext, Loc};

/// Bits in a byte.
const BYTE: usize = 8;

/// The bytes of a mask in window order.
struct Bytes([u8; CHUNKS * CHUNK]);

impl Bytes {
    /// The bytes of chunks, which are native-endian over the window as in [`mmb_packet::Window`].
    fn from_chunks(chunks: &[u128; CHUNKS]) -> Bytes {
        let mut bytes = [0; CHUNKS * CHUNK];
        for (to, chunk) in bytes.chunks_exact_mut(CHUNK).zip(chunks) {
            to.copy_from_slice(&chunk.to_ne_bytes());
        }
        Bytes(bytes)
    }

    /// The `width` bits (at most 128) that begin at bit `at`, as a number.
    fn bits(&self, at: usize, width: usize) -> u128 {
        let bit = |i: usize| self.0.get(i / BYTE).map_or(0, |byte| byte >> (BYTE - 1 - i % BYTE) & 1);
        (at..at + width).fold(0, |bits, i| bits << 1 | u128::from(bit(i)))
    }

    fn clear(&mut self, at: usize, width: usize) {
        for i in at..at + width {
            if let Some(byte) = self.0.get_mut(i / BYTE) {
                *byte &= !(0x80 >> (i % BYTE));
            }
        }
    }
}

/// Combinations of headers, the preferred ones first.
const PACKETS: [[Layer; 2]; 6] = [
    [Layer::Ip4, Layer::Tcp],
    [Layer::Ip4, Layer::Udp],
    [Layer::Ip6, Layer::Tcp],
    [Layer::Ip6, Layer::Udp],
    [Layer::Ip4, Layer::Icmp],
    [Layer::Ip6, Layer::Icmp6],
];

/// The fields that a mask covers. Fields of different protocols share bits of the window, and one table may
/// serve rules of several protocols. The result uses the protocols for which the fewest fields are covered in
/// part; TCP over IPv4 is preferred.
pub(crate) fn words(mask: &[u128; CHUNKS]) -> String {
    let cost = |(left, words): &(u32, Vec<String>)| {
        let with = |mark| words.iter().filter(|word| word.contains(mark)).count();
        (*left, with('&'), with('/'), words.len())
    };
    let (_, words) =
        PACKETS.map(|headers| words_for(mask, headers)).into_iter().min_by_key(cost).unwrap_or_default();
    if words.is_empty() { "-".to_owned() } else { words.join(" ") }
}

/// The fields of packets with these headers, and how many bits of the mask they do not cover.
fn words_for(mask: &[u128; CHUNKS], headers: [Layer; 2]) -> (u32, Vec<String>) {
    let mut left = Bytes::from_chunks(mask);
    // The bits for the kinds of headers are implied.
    left.clear(KIND * BYTE, BYTE);
    let mut words = Vec::new();
    for def in FIELDS.iter().filter(|def| is_value_of(def, headers)) {
        let Some(loc) = def.loc else { continue };
        let (at, width) = (loc.window_bit(), usize::from(def.width_bits));
        let bits = left.bits(at, width);
        // Single flags are shown by their own fields.
        let flags = matches!(def.id, FieldId::TcpFlags | FieldId::IpFlags);
        if bits == 0 || flags && bits != u128::MAX >> (128 - width) {
            continue;
        }
        words.push((at, word(def.name, bits, width)));
        left.clear(at, width);
        for (byte, has, _) in [loc.valued(), loc.present()] {
            left.0[byte] &= !has;
        }
    }
    presence(&mut left, &mut words);
    words.sort();
    let uncovered = left.0.iter().map(|byte| byte.count_ones()).sum();
    (uncovered, words.into_iter().map(|(_, word)| word).collect())
}

/// Whether the window has a value for the field in packets with these headers.
fn is_value_of(def: &FieldDef, headers: [Layer; 2]) -> bool {
    let named = !matches!(def.kind, ValueKind::Shorthand(_) | ValueKind::Presence | ValueKind::Bytes { .. });
    let is_present = matches!(def.proto, Layer::Interface | Layer::Network) || headers.contains(&def.proto);
    named && is_present && def.width_bits > 0 && def.loc != Some(Loc::TcpOptionAny)
}

/// A field, and the part of it that is covered.
fn word(name: &str, bits: u128, width: usize) -> String {
    let ones = bits.count_ones() as usize;
    let prefix = bits >> (width - ones) == u128::MAX >> (128 - ones);
    match prefix {
        _ if ones == width => name.to_owned(),
        true => format!("{name}/{ones}"),
        false => format!("{name}&{bits:#x}"),
    }
}

/// Adds the bits for the presence of options and extension headers. A named one implies that there is any.
fn presence(left: &mut Bytes, words: &mut Vec<(usize, String)>) {
    let is_any = |loc| matches!(loc, Loc::TcpOptionAny | Loc::Ip6Ext(Ip6Ext::Any));
    let located = || FIELDS.iter().filter_map(|def| Some((def, def.loc?)));
    let (named, any) =
        (located().filter(|(_, loc)| !is_any(*loc)), located().filter(|(_, loc)| is_any(*loc)));
    for (def, loc) in named.chain(any) {
        if is_any(loc) && words.iter().any(|(_, word)| word.contains(&format!("{}-", def.name))) {
            continue;
        }
        for (byte, bit, _) in [loc.valued(), loc.present()] {
            if byte != KIND && left.0[byte] & bit != 0 {
                words.push((byte * BYTE + bit.leading_zeros() as usize, format!("has:{}", def.name)));
                left.0[byte] &= !bit;
            }
        }
    }
}

#[cfg(test)]
mod tests;
