//! Sets of TCP and UDP packets, by what a flow rule can ask for.

use mmb_dpdk::{FlowAddresses, FlowPattern, FlowProto};
use mmb_lang::{Cond, FieldId, Layer, Match, MatchExpr, Value, ValueItem};

/// First and last of a range.
type Range = (u128, u128);

/// Sets that come from one rule, at most; a rule with more values gives a set that holds them all.
const MOST: usize = 32;
/// Flow rules for one set, at most.
const MOST_PATTERNS: usize = 16;

/// The packets of one version of IP and one transport protocol whose ends lie in these ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Space {
    pub ip4: bool,
    pub proto: FlowProto,
    /// Source and destination.
    pub addresses: [Range; 2],
    pub ports: [Range; 2],
}

const ALL_PORTS: Range = (0, 0xffff);

impl Space {
    pub const fn all(ip4: bool, proto: FlowProto) -> Space {
        let most = if ip4 { u32::MAX as u128 } else { u128::MAX };
        Space { ip4, proto, addresses: [(0, most); 2], ports: [ALL_PORTS; 2] }
    }

    /// All packets that can be in some session, one set for each version and protocol.
    pub fn every() -> [Space; 4] {
        let all = |proto| [Space::all(true, proto), Space::all(false, proto)];
        let [[a, b], [c, d]] = [FlowProto::Tcp, FlowProto::Udp].map(all);
        [a, b, c, d]
    }

    /// Answers to these packets, not translated.
    pub fn turned(&self) -> Space {
        let ([a, b], [p, q]) = (self.addresses, self.ports);
        Space { addresses: [b, a], ports: [q, p], ..*self }
    }

    /// All packets from where these come from.
    pub fn of_same_sources(&self) -> Space {
        let all = Space::all(self.ip4, self.proto);
        Space { addresses: [self.addresses[0], all.addresses[1]], ..all }
    }

    /// All packets to these IPv4 addresses.
    pub fn to(first: u32, last: u32) -> impl Iterator<Item = Space> {
        let all = [FlowProto::Tcp, FlowProto::Udp].map(|proto| Space::all(true, proto));
        let to = (first.into(), last.into());
        all.into_iter().map(move |all| Space { addresses: [all.addresses[0], to], ..all })
    }

    /// Whether all packets of the other set are in this one.
    pub fn holds(&self, other: &Space) -> bool {
        let within = |a: &Range, b: &Range| a.0 <= b.0 && b.1 <= a.1;
        (self.ip4, self.proto) == (other.ip4, other.proto)
            && self.addresses.iter().zip(&other.addresses).all(|(a, b)| within(a, b))
            && self.ports.iter().zip(&other.ports).all(|(a, b)| within(a, b))
    }

    /// Whether some packet is in both sets.
    pub fn meets(&self, other: &Space) -> bool {
        let overlap = |a: &Range, b: &Range| a.0 <= b.1 && b.0 <= a.1;
        (self.ip4, self.proto) == (other.ip4, other.proto)
            && self.addresses.iter().zip(&other.addresses).all(|(a, b)| overlap(a, b))
            && self.ports.iter().zip(&other.ports).all(|(a, b)| overlap(a, b))
    }

    /// Sets that hold every TCP and UDP packet for which all of `matches` hold. They may hold more: what is asked
    /// of other fields, and what is denied, is left out.
    pub fn of(matches: &[Match]) -> Vec<Space> {
        let mut spaces = Space::every().to_vec();
        for (field, values) in matches.iter().filter_map(asked) {
            spaces.retain(|space| space.has(field));
            let Some(ranges) = values else { continue };
            let several = spaces.len() * ranges.len() <= MOST;
            let ranges = if several { ranges } else { hull(&ranges) };
            spaces =
                spaces.iter().flat_map(|space| ranges.iter().filter_map(|r| space.with(field, *r))).collect();
        }
        spaces
    }

    /// Whether packets of this set have the header that a field belongs to.
    fn has(&self, field: FieldId) -> bool {
        match field.def().proto {
            Layer::Interface | Layer::Network => true,
            Layer::Ip4 => self.ip4,
            Layer::Ip6 => !self.ip4,
            Layer::Icmp | Layer::Icmp6 => false,
            Layer::Udp => self.proto == FlowProto::Udp,
            Layer::Tcp => self.proto == FlowProto::Tcp,
        }
    }

    /// Those of the set whose field lies in the range; none if there is none of those for certain.
    fn with(mut self, field: FieldId, (first, last): Range) -> Option<Space> {
        use FieldId::*;
        let end = match field {
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
        *end = (first.max(end.0), last.min(end.1));
        (end.0 <= end.1).then_some(self)
    }

    /// The set in flow rules' terms; none if that takes too many of them.
    pub fn patterns(&self) -> Option<Vec<FlowPattern>> {
        let bits = if self.ip4 { 32 } else { 128 };
        let [sources, destinations] = self.addresses.map(|range| prefixes(range, bits));
        let [sports, dports] = self.ports.map(|range| prefixes(range, 16));
        let count = sources.len() * destinations.len() * sports.len() * dports.len();
        if count > MOST_PATTERNS {
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

    fn flow_addresses(&self, ends: [(u128, u8); 2]) -> FlowAddresses {
        if self.ip4 {
            FlowAddresses::V4(ends.map(|(address, bits)| ((address as u32).into(), bits)))
        } else {
            FlowAddresses::V6(ends.map(|(address, bits)| (address.into(), bits)))
        }
    }
}

/// What a match says of a field: that it is there, and if that is so, in which ranges it lies.
fn asked(one: &Match) -> Option<(FieldId, Option<Vec<Range>>)> {
    let MatchExpr::Field { field, arg } = &one.what else { return None };
    if one.negated {
        return None;
    }
    let Some(arg) = arg else { return Some((*field, None)) };
    let bounds = |value: &Value| match *value {
        Value::Int(n) => Some((n.into(), n.into())),
        Value::Prefix { addr, len } => {
            let (first, bits) = match addr {
                std::net::IpAddr::V4(addr) => (u32::from(addr).into(), 32),
                std::net::IpAddr::V6(addr) => (u128::from(addr), 128),
            };
            let rest = u128::MAX.checked_shr(128 - u32::from(bits - len)).unwrap_or(0);
            Some((first, first | rest))
        }
        _ => None,
    };
    let item = |item: &ValueItem| match item {
        ValueItem::Single(value) => bounds(value),
        ValueItem::Range(ends) => Some((bounds(&ends[0])?.0, bounds(&ends[1])?.1)),
    };
    let ranges: Option<Vec<Range>> = arg.values.iter().map(item).collect();
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

fn hull(ranges: &[Range]) -> Vec<Range> {
    let first = ranges.iter().map(|range| range.0).min();
    first.zip(ranges.iter().map(|range| range.1).max()).into_iter().collect()
}

/// The prefixes that together are a range of numbers of so many bits.
fn prefixes((mut first, last): Range, bits: u8) -> Vec<(u128, u8)> {
    let mut prefixes = Vec::new();
    loop {
        // As many low bits as are zero in the first number and leave the block within the range.
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
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> Vec<Space> {
        Space::of(&mmb_lang::parse_matches(text).unwrap())
    }

    #[test]
    fn matches_become_sets() {
        assert_eq!(of("all"), Space::every());
        assert_eq!(of("ip-ttl 1"), [Space::all(true, FlowProto::Tcp), Space::all(true, FlowProto::Udp)]);
        assert_eq!(of("icmp-type 8"), []);
        assert_eq!(of("ip-proto icmp"), []);
        assert_eq!(of("ip-proto udp"), [Space::all(true, FlowProto::Udp)]);
        let dns = Space { ports: [ALL_PORTS, (53, 53)], ..Space::all(true, FlowProto::Udp) };
        assert_eq!(of("ip-proto udp udp-dport 53"), [dns]);
        assert_eq!(
            of("udp-dport 53 ! udp-sport 53"),
            [dns, Space { ports: dns.ports, ..Space::all(false, FlowProto::Udp) }]
        );
        let net = 0x0a01_0000..=0x0a01_ffff_u128;
        let from = Space {
            addresses: [(*net.start(), *net.end()), (0, 0xffff_ffff)],
            ..Space::all(true, FlowProto::Tcp)
        };
        assert_eq!(of("ip-saddr 10.1.0.0/16 tcp-syn"), [from]);
        assert_eq!(from.turned().addresses, [(0, 0xffff_ffff), from.addresses[0]]);
        assert_eq!(of("tcp-dport {80,443-444}").len(), 4);
        assert_eq!(of("ip-saddr 10.0.0.0/8 tcp-dport < 1024")[0].ports[1], (0, 1023));
        assert_eq!(of("tcp-dport > 65000")[0].ports[1], (65_001, 65_535));
        assert_eq!(of("tcp-dport != 80")[0].ports[1], ALL_PORTS, "more than there is, never less");
        let many: Vec<String> = (0..40).map(|n| (n * 2).to_string()).collect();
        assert_eq!(of(&format!("tcp-dport {{{}}}", many.join(",")))[0].ports[1], (0, 78));
    }

    #[test]
    fn sets_become_rules() {
        let [all, ..] = Space::every();
        let any = FlowAddresses::V4([(Ipv4Addr::UNSPECIFIED, 0); 2]);
        let pattern = FlowPattern { addresses: any, proto: FlowProto::Tcp, ports: [(0, 0); 2] };
        assert_eq!(all.patterns(), Some(vec![pattern]));
        let web = Space { ports: [ALL_PORTS, (80, 80)], ..all };
        assert_eq!(web.patterns(), Some(vec![FlowPattern { ports: [(0, 0), (80, 0xffff)], ..pattern }]));
        let low = Space { ports: [ALL_PORTS, (0, 1023)], ..all };
        assert_eq!(low.patterns(), Some(vec![FlowPattern { ports: [(0, 0), (0, 0xfc00)], ..pattern }]));
        assert_eq!(Space { ports: [(1, 65534), (1, 65534)], ..all }.patterns(), None);
    }

    proptest! {
        #[test]
        fn prefixes_are_the_range(a: u16, b: u16, n: u16) {
            let (first, last) = (a.min(b), a.max(b));
            let within = |&(value, bits): &(u128, u8)| {
                (value ^ u128::from(n)) >> (16 - bits) == 0
            };
            let holding = prefixes((first.into(), last.into()), 16).iter().filter(|p| within(p)).count();
            prop_assert_eq!(holding, usize::from((first..=last).contains(&n)));
        }

        #[test]
        fn wide_ranges_end(a: u128, b: u128) {
            let prefixes = prefixes((a.min(b), a.max(b)), 128);
            prop_assert!(prefixes.len() <= 254);
        }
    }
}
