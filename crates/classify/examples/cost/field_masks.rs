//! Rules in the rule language that each compare other bits of a packet: prefixes of any length, and up to
//! four further fields. This corresponds to `mmb bench --case field-masks`.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use mmb_classify::Pattern;

use crate::near;
use crate::questions::pattern;
use crate::rules::Random;

/// Fields that a rule may compare, with their widths in bits.
const TCP: [(&str, u32); 8] = [
    ("tcp-sport", 16),
    ("tcp-dport", 16),
    ("tcp-win", 16),
    ("tcp-seq-num", 32),
    ("ip-len", 16),
    ("ip-id", 16),
    ("ip-ttl", 8),
    ("ip-dscp", 6),
];
const UDP: [(&str, u32); 7] = [
    ("udp-sport", 16),
    ("udp-dport", 16),
    ("udp-len", 16),
    ("ip-len", 16),
    ("ip-id", 16),
    ("ip-ttl", 8),
    ("ip-dscp", 6),
];

/// Bits by which a rule must differ from most packets: otherwise, it would match some of them.
const LEAST_BITS: u32 = 24;

/// What a rule compares: whether the protocol is TCP, lengths of the prefixes, and fields in order of names.
type FieldMask = (bool, [u32; 2], Vec<(&'static str, u32)>);

/// What rules compared so far.
#[derive(Default)]
pub struct FieldMasks(HashSet<FieldMask>);

impl FieldMasks {
    /// A rule whose mask no rule before it has.
    pub fn rule(&mut self, random: &mut Random) -> Pattern {
        loop {
            let length = |random: &mut Random, least: u32| match random.below(34 - u64::from(least)) {
                0 => 0,
                more => least - 1 + more as u32,
            };
            let lengths = [length(random, 8), length(random, 15)];
            let tcp = random.below(2) == 0;
            let mut all = if tcp { TCP.to_vec() } else { UDP.to_vec() };
            let n = random.below(5);
            let mut fields: Vec<_> =
                (0..n).map(|_| all.swap_remove(random.below(all.len() as u64) as usize)).collect();
            fields.sort_unstable();
            let addresses = lengths[0].saturating_sub(8) + lengths[1].saturating_sub(15);
            let bits = addresses + fields.iter().map(|(_, width)| width).sum::<u32>();
            if bits >= LEAST_BITS && self.0.insert((tcp, lengths, fields.clone())) {
                return pattern(&line(tcp, lengths, &fields, random));
            }
        }
    }
}

fn line(tcp: bool, lengths: [u32; 2], fields: &[(&str, u32)], random: &mut Random) -> String {
    let mut line = format!("add ip-proto {}", if tcp { "tcp" } else { "udp" });
    let addresses =
        [("ip-saddr", near::source(random)), ("ip-daddr", near::destination(&near::ONE_NETWORK, random))];
    for ((field, address), length) in addresses.into_iter().zip(lengths).filter(|(_, length)| *length > 0) {
        line += &format!(" {field} {}/{length}", Ipv4Addr::from(address & u32::MAX << (32 - length)));
    }
    for (field, width) in fields {
        line += &format!(" {field} {}", random.below(1 << width));
    }
    line + " drop"
}
