//! Rules of the case `field-masks`: each compares other bits of a packet than all rules before it.

use std::collections::HashSet;

use super::cases::{RuleRandom, TCP, UDP};

/// Most fields that a rule compares, besides addresses and the protocol.
const MAX_FIELDS: u64 = 4;
/// Bits by which a rule must differ from most packets: otherwise, it would match some of them.
const LEAST_BITS: u32 = 24;

/// What a rule compares.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FieldMask {
    /// Prefix lengths of source and destination; 0: not compared.
    lengths: [u8; 2],
    proto: &'static str,
    /// Name and largest value of each field, in order of names.
    fields: Vec<(&'static str, u64)>,
}

/// The masks of the rules, which are drawn as they are needed.
#[derive(Default)]
pub struct FieldMasks {
    masks: Vec<FieldMask>,
    known: HashSet<FieldMask>,
}

impl FieldMasks {
    /// A rule for a position.
    pub fn line(&mut self, random: &mut RuleRandom, position: usize) -> String {
        while self.masks.len() <= position {
            let mask = FieldMask::draw(random);
            if mask.bits() >= LEAST_BITS && self.known.insert(mask.clone()) {
                self.masks.push(mask);
            }
        }
        self.masks[position].line(random)
    }
}

impl FieldMask {
    fn draw(random: &mut RuleRandom) -> FieldMask {
        // One in 26 rules does not compare the source, one in 19 not the destination.
        let length = |random: &mut RuleRandom, least: u64| match random.between(least - 1, 32) {
            length if length < least => 0,
            length => length as u8,
        };
        let lengths = [length(random, 8), length(random, 15)];
        let proto = random.pick(&["tcp", "udp"]);
        let mut all = if proto == "tcp" { TCP.to_vec() } else { UDP.to_vec() };
        let n = random.between(0, MAX_FIELDS);
        let mut fields: Vec<_> =
            (0..n).map(|_| all.swap_remove(random.below(all.len() as u64) as usize)).collect();
        fields.sort_unstable();
        FieldMask { lengths, proto, fields }
    }

    /// The bits that vary from packet to packet. Sources are in 10.0.0.0/8, destinations in 198.18.0.0/15.
    fn bits(&self) -> u32 {
        let [source, destination] = self.lengths.map(u32::from);
        let fields = self.fields.iter().map(|(_, largest)| largest.count_ones()).sum::<u32>();
        source.saturating_sub(8) + destination.saturating_sub(15) + fields
    }

    fn line(&self, random: &mut RuleRandom) -> String {
        let mut line = format!("add {}", random.protocol(self.proto));
        let [source, destination] = self.lengths;
        let addresses = [random.source(source), random.destination(destination)];
        for (address, length) in addresses.into_iter().zip(self.lengths) {
            if length > 0 {
                line += &format!(" {address}");
            }
        }
        for (field, largest) in &self.fields {
            let field = random.header_field(field);
            line += &format!(" {field} {}", random.between(0, *largest));
        }
        line + " drop"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_distinct_and_stay() {
        let (mut masks, mut random) = (FieldMasks::default(), RuleRandom::new(1, false, None));
        let shape = |line: &str| {
            let words = line.split(' ').enumerate();
            let values = words.map(|(at, word)| match word.split_once('/') {
                Some((_, length)) => length.to_owned(),
                None if at % 2 == 0 && !["tcp", "udp"].contains(&word) => "=".to_owned(),
                None => word.to_owned(),
            });
            values.collect::<Vec<_>>()
        };
        let first: Vec<_> = (0..1_000).map(|at| shape(&masks.line(&mut random, at))).collect();
        assert_eq!(first.iter().collect::<HashSet<_>>().len(), 1_000);
        let again: Vec<_> = (0..1_000).map(|at| shape(&masks.line(&mut random, at))).collect();
        assert_eq!(first, again, "another rule for a position has the same mask");
    }
}
