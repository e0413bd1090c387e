//! Sets of TCP and UDP packets that flow rules can match.

use mmb_dpdk::{FlowAddresses, FlowPattern, FlowProto};
use mmb_lang::{Cond, FieldId, Layer, Match, MatchExpr, Range, ValueItem};

/// Sets of one rule, at most; a rule with more values yields a set that contains them all.
const SETS_MAX: usize = 32;
/// Flow rules of one set, at most.
const PATTERNS_MAX: usize = 16;

/// The packets of an IP version and a transport protocol whose addresses and ports lie in these ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketSet {
    pub ip4: bool,
    pub proto: FlowProto,
    /// Source and destination.
    pub addresses: [Range; 2],
    pub ports: [Range; 2],
}

const ALL_PORTS: Range = (0, 0xffff);

impl PacketSet {
    /// All packets of an IP version and protocol.
    pub const fn all(ip4: bool, proto: FlowProto) -> PacketSet {
        let most = if ip4 { u32::MAX as u128 } else { u128::MAX };
        PacketSet { ip4, proto, addresses: [(0, most); 2], ports: [ALL_PORTS; 2] }
    }

    /// All TCP and UDP packets: one set for each IP version and protocol.
    pub fn all_classes() -> [PacketSet; 4] {
        let all = |proto| [PacketSet::all(true, proto), PacketSet::all(false, proto)];
        let [[a, b], [c, d]] = [FlowProto::Tcp, FlowProto::Udp].map(all);
        [a, b, c, d]
    }

    /// The packets with source and destination exchanged.
    pub fn reversed(&self) -> PacketSet {
        let ([a, b], [p, q]) = (self.addresses, self.ports);
        PacketSet { addresses: [b, a], ports: [q, p], ..*self }
    }

    /// All packets from the same source addresses.
    pub fn same_sources(&self) -> PacketSet {
        let all = PacketSet::all(self.ip4, self.proto);
        PacketSet { addresses: [self.addresses[0], all.addresses[1]], ..all }
    }

    /// All packets to these IPv4 addresses.
    pub fn to_addresses(first: u32, last: u32) -> impl Iterator<Item = PacketSet> {
        let all = [FlowProto::Tcp, FlowProto::Udp].map(|proto| PacketSet::all(true, proto));
        let to = (first.into(), last.into());
        all.into_iter().map(move |all| PacketSet { addresses: [all.addresses[0], to], ..all })
    }

    /// Whether the set contains all packets of another one.
    pub fn contains(&self, other: &PacketSet) -> bool {
        let within = |a: &Range, b: &Range| a.0 <= b.0 && b.1 <= a.1;
        (self.ip4, self.proto) == (other.ip4, other.proto)
            && self.addresses.iter().zip(&other.addresses).all(|(a, b)| within(a, b))
            && self.ports.iter().zip(&other.ports).all(|(a, b)| within(a, b))
    }

    /// Whether some packet is in both sets.
    pub fn intersects(&self, other: &PacketSet) -> bool {
        let overlap = |a: &Range, b: &Range| a.0 <= b.1 && b.0 <= a.1;
        (self.ip4, self.proto) == (other.ip4, other.proto)
            && self.addresses.iter().zip(&other.addresses).all(|(a, b)| overlap(a, b))
            && self.ports.iter().zip(&other.ports).all(|(a, b)| overlap(a, b))
    }

    /// Sets that contain every TCP and UDP packet for which all matches hold. They may contain more: matches
    /// of other fields and negated ones are ignored.
    pub fn of_matches(matches: &[Match]) -> Vec<PacketSet> {
        let mut sets = PacketSet::all_classes().to_vec();
        for (field, values) in matches.iter().filter_map(constraint) {
            sets.retain(|set| set.has_field(field));
            let Some(ranges) = values else { continue };
            let several = sets.len() * ranges.len() <= SETS_MAX;
            let ranges = if several { ranges } else { hull(&ranges) };
            sets =
                sets.iter().flat_map(|set| ranges.iter().filter_map(|r| set.restrict(field, *r))).collect();
        }
        sets
    }

    /// Whether packets of this set have the header of a field.
    fn has_field(&self, field: FieldId) -> bool {
        match field.def().proto {
            Layer::Interface | Layer::Network => true,
            Layer::Ip4 => self.ip4,
            Layer::Ip6 => !self.ip4,
            Layer::Icmp | Layer::Icmp6 => false,
            Layer::Udp => self.proto == FlowProto::Udp,
            Layer::Tcp => self.proto == FlowProto::Tcp,
        }
    }

    /// The packets of the set whose field lies in the range; None: there are none.
    fn restrict(mut self, field: FieldId, (first, last): Range) -> Option<PacketSet> {
        use FieldId::*;
        let range = match field {
            IpSaddr | Ip6Saddr => &mut self.addresses[0],
            IpDaddr | Ip6Daddr => &mut self.addresses[1],
            TcpSport | UdpSport => &mut self.ports[0],
            TcpDport | UdpDport => &mut self.ports[1],
            IpProto => {
                let number = match self.proto {
                    FlowProto::Tcp => 6,
                    FlowProto::Udp => 17,
                };
                return (first <= number && number <= last).then_some(self);
            }
            _ => return Some(self),
        };
        *range = (first.max(range.0), last.min(range.1));
        (range.0 <= range.1).then_some(self)
    }

    /// The patterns that match the set; None: there would be too many.
    pub fn patterns(&self) -> Option<Vec<FlowPattern>> {
        let bits = if self.ip4 { 32 } else { 128 };
        let [sources, destinations] = self.addresses.map(|range| prefixes(range, bits));
        let [sports, dports] = self.ports.map(|range| prefixes(range, 16));
        let count = sources.len() * destinations.len() * sports.len() * dports.len();
        if count > PATTERNS_MAX {
            return None;
        }
        let mut patterns = Vec::with_capacity(count);
        for &source in &sources {
            for &destination in &destinations {
                for sport in &sports {
                    for dport in &dports {
                        let addresses = self.flow_addresses([source, destination]);
                        let ports =
                            [sport, dport].map(|&(port, bits)| (port as u16, !(0xffff_u32 >> bits) as u16));
                        patterns.push(FlowPattern { addresses, proto: self.proto, ports });
                    }
                }
            }
        }
        Some(patterns)
    }

    /// The addresses of a pattern, as prefixes.
    fn flow_addresses(&self, ends: [(u128, u8); 2]) -> FlowAddresses {
        if self.ip4 {
            FlowAddresses::V4(ends.map(|(address, bits)| ((address as u32).into(), bits)))
        } else {
            FlowAddresses::V6(ends.map(|(address, bits)| (address.into(), bits)))
        }
    }
}

/// The field of a match, and the ranges in which it must lie (None: any value). None: the match is ignored.
fn constraint(one: &Match) -> Option<(FieldId, Option<Vec<Range>>)> {
    let MatchExpr::Field { field, arg } = &one.what else { return None };
    if one.negated {
        return None;
    }
    let Some(arg) = arg else { return Some((*field, None)) };
    let ranges: Option<Vec<Range>> = arg.values.iter().map(ValueItem::bounds).collect();
    let one = ranges.as_ref().and_then(|ranges| ranges.first().copied());
    let ranges = match (arg.cond, one) {
        (Cond::Eq, _) => ranges,
        (Cond::Lt, Some((n, _))) => n.checked_sub(1).map(|last| vec![(0, last)]),
        (Cond::Le, Some((_, n))) => Some(vec![(0, n)]),
        (Cond::Gt, Some((_, n))) => n.checked_add(1).map(|first| vec![(first, u128::MAX)]),
        (Cond::Ge, Some((n, _))) => Some(vec![(n, u128::MAX)]),
        _ => None,
    };
    Some((*field, ranges))
}

/// The smallest range that contains all ranges.
fn hull(ranges: &[Range]) -> Vec<Range> {
    let first = ranges.iter().map(|range| range.0).min();
    first.zip(ranges.iter().map(|range| range.1).max()).into_iter().collect()
}

/// The prefixes whose union is a range of numbers with so many bits.
fn prefixes((mut first, last): Range, bits: u8) -> Vec<(u128, u8)> {
    let mut prefixes = Vec::new();
    loop {
        // The largest aligned block that begins with the first number and lies within the range.
        let mut free = first.trailing_zeros().min(bits.into());
        let end = |free: u32| first | 1_u128.checked_shl(free).map_or(u128::MAX, |size| size - 1);
        while end(free) > last {
            free -= 1;
        }
        prefixes.push((first, bits - free as u8));
        match end(free).checked_add(1).filter(|next| *next <= last) {
            Some(next) => first = next,
            None => return prefixes,
        }
    }
}

#[cfg(test)]
mod tests;
