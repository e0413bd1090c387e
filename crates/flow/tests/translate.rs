//! Translation of packets whose checksums scapy has computed (`vectors/make.py`).

use std::net::IpAddr;

use mmb_flow::{
    Direction, Key, KeyError, Mangle, Xlat4, parse_key, parse_quote, translate, translate_icmp_error,
    translate_ip4, untranslate,
};
use mmb_packet::{DropReason, Kind, Meta, parse};

struct Vector {
    name: String,
    /// Keys of the frame before and after. Later fragments have none.
    from: Key,
    to: Key,
    mangle: Mangle,
    direction: Direction,
    before: Vec<u8>,
    after: Vec<u8>,
}

fn vectors() -> Vec<Vector> {
    let lines = include_str!("vectors/translations.txt").lines();
    lines.filter(|line| !line.starts_with('#')).map(vector).collect()
}

fn vector(line: &str) -> Vector {
    let [name, original, translated, mangle, direction, before, after]: [&str; 7] =
        line.split('|').map(str::trim).collect::<Vec<_>>().try_into().expect("seven columns");
    let (before, after) = (bytes(before), bytes(after));
    let meta = parsed(&before);
    let quoted = parse_quote(&before, &meta).map(|quote| (quote.key.kind, quote.key.proto));
    let (kind, proto) = quoted.unwrap_or((meta.kind.0, meta.proto));
    let [original, translated] = [original, translated].map(|text| key(text, kind, proto));
    let (direction, from, to) = match direction {
        "forward" => (Direction::Forward, original, translated),
        "reverse" => (Direction::Reverse, translated.reversed(), original.reversed()),
        other => panic!("{other} is no direction"),
    };
    Vector {
        name: format!("{name} {direction:?}"),
        from,
        to,
        mangle: numbers(mangle),
        direction,
        before,
        after,
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hexadecimal")).collect()
}

fn key(text: &str, kind: u8, proto: u8) -> Key {
    let [source, sport, destination, dport]: [&str; 4] =
        text.split(' ').collect::<Vec<_>>().try_into().expect("addresses and ports");
    let port = |text: &str| text.parse::<u16>().expect("a port").to_be_bytes();
    Key {
        source: address(source),
        destination: address(destination),
        source_port: port(sport),
        destination_port: port(dport),
        kind,
        proto,
        asks: if matches!(Kind(kind).l4(), Kind::ICMP | Kind::ICMP6) { Key::BY_SOURCE } else { [0; 2] },
    }
}

fn address(text: &str) -> [u8; 16] {
    match text.parse().expect("an address") {
        IpAddr::V4(address) => {
            let mut wide = [0; 16];
            wide[..4].copy_from_slice(&address.octets());
            wide
        }
        IpAddr::V6(address) => address.octets(),
    }
}

fn numbers(text: &str) -> Mangle {
    let numbers: Vec<u32> = text.split(' ').map(|word| word.parse().expect("a number")).collect();
    let [sequence, acknowledgment, ip_id, fixed_id, old_label, new_label] = numbers[..] else {
        panic!("six numbers: {text}");
    };
    Mangle {
        sequence,
        acknowledgment,
        old_label,
        new_label,
        ip_id: ip_id as u16,
        fixed_id: fixed_id as u8,
        zero: 0,
    }
}

fn parsed(frame: &[u8]) -> Meta {
    let mut meta = Meta::default();
    parse(frame, frame.len(), &mut meta).expect("a sound packet");
    meta
}

impl Vector {
    /// The translated frame. Only the first `head` bytes are contiguous.
    fn translated(&self, head: usize) -> Vec<u8> {
        let mut frame = self.before.clone();
        let meta = parsed(&frame);
        let (head, _) = frame.split_at_mut(head);
        let mangle = Some(&self.mangle);
        let done = match parse_quote(head, &meta) {
            Some(quote) => {
                translate_icmp_error(head, &meta, &quote, &self.from, &self.to, mangle, self.direction)
            }
            None => translate(head, &meta, &self.from, &self.to, mangle, self.direction),
        };
        assert_eq!(done, Ok(()), "{}", self.name);
        frame
    }

    fn is_error(&self) -> bool {
        parse_quote(&self.before, &parsed(&self.before)).is_some()
    }

    fn is_later_fragment(&self) -> bool {
        parse_key(&self.before, &parsed(&self.before)) == Err(KeyError::LaterFragment)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn translation_agrees_with_scapy() {
    for vector in vectors() {
        let whole = vector.before.len();
        assert_eq!(hex(&vector.translated(whole)), hex(&vector.after), "{}", vector.name);
    }
}

#[test]
fn the_fast_translation_agrees_with_scapy() {
    let mut seen = 0;
    for vector in vectors() {
        if vector.mangle != Mangle::default() || vector.is_error() {
            continue;
        }
        let Some(xlat) = Xlat4::between(&vector.from, &vector.to) else {
            assert!(vector.is_later_fragment() || !vector.from.is_ip4(), "{}", vector.name);
            continue;
        };
        let mut frame = vector.before.clone();
        let meta = parsed(&frame);
        translate_ip4(&xlat, &mut frame, &meta);
        assert_eq!(hex(&frame), hex(&vector.after), "{}", vector.name);
        seen += 1;
    }
    assert!(seen > 100, "{seen} vectors");
}

/// The reverse translation, between packets of scapy.
#[test]
fn undoing_agrees_with_scapy() {
    let mut seen = 0;
    for vector in vectors() {
        if vector.is_error() || vector.mangle.fixed_id != 0 {
            continue;
        }
        let mut frame = vector.after.clone();
        let (meta, mangle) = (parsed(&frame), Some(&vector.mangle));
        let done = untranslate(&mut frame, &meta, &vector.to, &vector.from, mangle, vector.direction);
        assert_eq!(done, Ok(()), "{}", vector.name);
        assert_eq!(hex(&frame), hex(&vector.before), "{}", vector.name);
        seen += 1;
    }
    assert!(seen > 100, "{seen} vectors");
}

/// The keys of scapy's packets agree with the tables in `make.py`.
#[test]
fn keys_agree_with_scapy() {
    for vector in vectors() {
        let key = |frame: &[u8]| {
            let meta = parsed(frame);
            match parse_key(frame, &meta) {
                Ok(key) | Err(KeyError::FirstFragment(key)) => Some(key),
                Err(KeyError::IcmpError) => parse_quote(frame, &meta).map(|quote| quote.key.reversed()),
                Err(_) => None,
            }
        };
        if !vector.is_later_fragment() {
            assert_eq!(key(&vector.before), Some(vector.from), "{}", vector.name);
            assert_eq!(key(&vector.after), Some(vector.to), "{}", vector.name);
        }
    }
}

/// Only the headers need to be contiguous.
#[test]
fn payload_is_not_looked_at() {
    for vector in vectors().iter().filter(|vector| !vector.is_error()) {
        let meta = parsed(&vector.before);
        let l4 = usize::from(meta.l4_off);
        let transport = match (meta.kind.l4(), meta.proto) {
            (Kind::TCP, _) => usize::from(vector.before[l4 + 12] >> 4) * 4,
            (Kind::L4_NONE, 33 | 136) => 8,
            (Kind::L4_NONE, _) => 0,
            _ => 8,
        };
        assert_eq!(hex(&vector.translated(l4 + transport)), hex(&vector.after), "{}", vector.name);
    }
}

#[test]
fn a_packet_of_another_kind_is_refused_and_left_alone() {
    let all = vectors();
    let [tcp, udp] = ["tcp-", "udp-"]
        .map(|name| all.iter().find(|vector| vector.name.starts_with(name)).expect("there are such vectors"));
    let mut frame = tcp.before.clone();
    let meta = parsed(&frame);
    let refused = translate(&mut frame, &meta, &udp.from, &udp.to, None, Direction::Forward);
    assert_eq!((refused, &frame), (Err(DropReason::NatFailed), &tcp.before));
    let error = all.iter().find(|vector| vector.is_error()).expect("there are errors");
    let mut frame = error.before.clone();
    let meta = parsed(&frame);
    let quote = parse_quote(&frame, &meta).expect("just seen");
    let refused =
        translate_icmp_error(&mut frame, &meta, &quote, &error.to, &error.from, None, Direction::Forward);
    assert_eq!((refused, &frame), (Err(DropReason::NatFailed), &error.before));
}
