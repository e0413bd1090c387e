//! ClassBench filter sets and their traces.

use mmb_classify::Pattern;
use mmb_packet::window::KIND;
use mmb_packet::{Kind, Window};

use crate::rules::Shape;

/// Rules of a file: `@src/len dst/len lo : hi lo : hi proto/mask …`. Flags are ignored, as in `rte_acl`'s own
/// test.
pub fn rules(path: &str) -> Vec<Pattern> {
    read(path).lines().filter_map(rule).collect()
}

fn rule(line: &str) -> Option<Pattern> {
    let mut words = line.strip_prefix('@')?.split_whitespace();
    let mut shape = Shape::default();
    (shape.source, shape.source_len) = prefix(words.next()?)?;
    (shape.destination, shape.destination_len) = prefix(words.next()?)?;
    shape.sport = range(&mut words)?;
    shape.dport = range(&mut words)?;
    let (proto, mask) = words.next()?.split_once('/')?;
    let hex = |text: &str| u8::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    shape.proto = (hex(mask)? != 0).then_some(hex(proto)?);
    Some(shape.pattern())
}

fn prefix(text: &str) -> Option<(u32, usize)> {
    let (address, len) = text.split_once('/')?;
    Some((address.parse::<std::net::Ipv4Addr>().ok()?.into(), len.parse().ok()?))
}

fn range<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<(u16, u16)> {
    let low = words.next()?.parse().ok()?;
    words.next()?;
    Some((low, words.next()?.parse().ok()?))
}

/// Packets of a file: source, destination, ports and protocol in decimal.
pub fn trace(path: &str) -> Vec<Window> {
    read(path).lines().filter_map(packet).collect()
}

fn packet(line: &str) -> Option<Window> {
    let mut numbers = line.split_whitespace().map(|word| word.parse::<u32>());
    let mut next = || numbers.next()?.ok();
    let mut window = Window::default();
    let bytes = window.bytes_mut();
    bytes[0..4].copy_from_slice(&next()?.to_be_bytes());
    bytes[4..8].copy_from_slice(&next()?.to_be_bytes());
    bytes[8..10].copy_from_slice(&(next()? as u16).to_be_bytes());
    bytes[10..12].copy_from_slice(&(next()? as u16).to_be_bytes());
    let proto = next()? as u8;
    bytes[KIND] = Kind::IP4 | crate::rules::transport(proto);
    bytes[13] = proto;
    Some(window)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| {
        eprintln!("{path}: {error}");
        std::process::exit(1)
    })
}
