//! The packets that a rule of another system matches, as a set.
//!
//! Theory of operation. A [`Filter`] has, for each field that it tests, the set of values that match. It also
//! has a list of excluded terms (`! <field> <values>`), none of which may match. A field has at most one
//! excluded term, with the union of the excluded values, so that a thousand subtractions of addresses are one
//! set. Sets are exact. So the intersection and the difference of two filters are exact too, as
//! [`crate::ordered`] needs them. `net-proto` stands for the IP version, and `ip-proto` for the transport
//! protocol of both versions. [`crate::matches`] writes both as fields of the language.

use std::collections::BTreeSet;

use mmb_lang::{FieldId, Layer, ValueKind};

use crate::intervals::Intervals;

/// Ethertype of IPv4.
pub const IP4: u128 = 0x0800;
/// Ethertype of IPv6.
pub const IP6: u128 = 0x86dd;
/// Protocol number of ICMP.
pub const ICMP: u128 = 1;
/// Protocol number of TCP.
pub const TCP: u128 = 6;
/// Protocol number of UDP.
pub const UDP: u128 = 17;
/// Protocol number of ICMPv6.
pub const ICMP6: u128 = 58;

/// A set of values of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Numbers, including addresses.
    Numbers(Intervals),
    /// Names of interfaces.
    Names {
        /// The names.
        names: BTreeSet<String>,
        /// Whether the set has these names, or all others.
        listed: bool,
    },
}

impl Values {
    /// The set of one number.
    pub fn one(number: u128) -> Self {
        Values::Numbers(Intervals::one(number))
    }

    /// The numbers from `low` to `high`, both included.
    pub fn range(low: u128, high: u128) -> Self {
        Values::Numbers(Intervals::of([(low, high)]))
    }

    /// The set of one name.
    pub fn name(name: &str) -> Self {
        Values::Names { names: BTreeSet::from([name.to_owned()]), listed: true }
    }

    /// The values of the field that are not in the set.
    pub fn complement(&self, field: FieldId) -> Self {
        match self {
            Values::Numbers(numbers) => Values::Numbers(numbers.complement(max(field))),
            Values::Names { names, listed } => Values::Names { names: names.clone(), listed: !listed },
        }
    }

    /// The intersection. Numbers and names have no common value.
    pub fn intersection(&self, other: &Self) -> Self {
        use Values::{Names, Numbers};
        match (self, other) {
            (Numbers(a), Numbers(b)) => Numbers(a.intersection(b)),
            (Names { names: a, listed: true }, Names { names: b, listed }) => Names {
                names: a.iter().filter(|name| b.contains(*name) == *listed).cloned().collect(),
                listed: true,
            },
            (Names { listed: false, .. }, Names { listed: true, .. }) => other.intersection(self),
            (Names { names: a, .. }, Names { names: b, .. }) => Names { names: a | b, listed: false },
            _ => Numbers(Intervals::of([])),
        }
    }

    /// The union. The sets are of one field.
    pub fn union(&self, other: &Self) -> Self {
        use Values::{Names, Numbers};
        match (self, other) {
            (Numbers(a), Numbers(b)) => Numbers(a.union(b)),
            (Names { names: a, listed: true }, Names { names: b, listed: true }) => {
                Names { names: a | b, listed: true }
            }
            (Names { names: a, listed: false }, Names { names: b, listed: false }) => {
                Names { names: a & b, listed: false }
            }
            (Names { names: a, listed: false }, Names { names: b, listed: true }) => {
                Names { names: a - b, listed: false }
            }
            _ => other.union(self),
        }
    }

    /// Whether the sets have no common value.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        match (self, other) {
            (Values::Numbers(a), Values::Numbers(b)) => a.is_disjoint(b),
            _ => self.intersection(other).is_empty(),
        }
    }

    /// Number of intervals or names: the cost of an operation.
    pub fn count(&self) -> usize {
        match self {
            Values::Numbers(numbers) => numbers.count(),
            Values::Names { names, .. } => names.len(),
        }
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        match self {
            Values::Numbers(numbers) => numbers.is_empty(),
            Values::Names { names, listed } => *listed && names.is_empty(),
        }
    }
}

/// The maximum of a numeric field.
pub fn max(field: FieldId) -> u128 {
    match field.def().kind {
        ValueKind::Ip6 => u128::MAX,
        _ => field.def().max_int().into(),
    }
}

/// A test of one field: the packet has the field, and its value is in the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The field.
    pub field: FieldId,
    /// The values that match.
    pub values: Values,
}

/// A set of packets. See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Terms that must all match: at most one per field, sorted by field, none with an empty set.
    terms: Vec<Term>,
    /// Terms that must not match: at most one per field, sorted by field.
    excluded: Vec<Term>,
}

impl Filter {
    /// The filter with one term, and the terms for its header.
    pub fn of(field: FieldId, values: Values) -> Option<Self> {
        Filter::default().and(field, &values)
    }

    /// The filter with one more term, and the terms for its header. None if no packet matches.
    pub fn and(mut self, field: FieldId, values: &Values) -> Option<Self> {
        self.narrow(field, values)?;
        let (network, transport) = match field.def().proto {
            // The transport protocol of both IP versions.
            _ if field == FieldId::IpProto => (None, None),
            Layer::Interface | Layer::Network => (None, None),
            Layer::Ip4 => (Some(IP4), None),
            Layer::Ip6 => (Some(IP6), None),
            Layer::Icmp => (Some(IP4), Some(ICMP)),
            Layer::Icmp6 => (Some(IP6), Some(ICMP6)),
            Layer::Udp => (None, Some(UDP)),
            Layer::Tcp => (None, Some(TCP)),
        };
        if let Some(network) = network {
            self.narrow(FieldId::NetProto, &Values::one(network))?;
        }
        if let Some(transport) = transport {
            self.narrow(FieldId::IpProto, &Values::one(transport))?;
        }
        (!self.is_contradictory()).then_some(self)
    }

    /// The filter with other values of a field that it tests.
    pub fn with_values(&self, field: FieldId, values: Values) -> Self {
        let mut changed = self.clone();
        for term in changed.terms.iter_mut().filter(|term| term.field == field) {
            term.values = values.clone();
        }
        changed
    }

    /// Intersects the values of a field. None if a set becomes empty.
    fn narrow(&mut self, field: FieldId, values: &Values) -> Option<()> {
        match self.terms.binary_search_by_key(&field, |term| term.field) {
            Ok(at) => self.terms[at].values = self.terms[at].values.intersection(values),
            Err(at) => self.terms.insert(at, Term { field, values: values.clone() }),
        }
        self.terms.iter().all(|term| !term.values.is_empty()).then_some(())
    }

    /// The intersection of two filters. None if no packet matches both.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let mut both = self.clone();
        for term in &other.terms {
            both.narrow(term.field, &term.values)?;
        }
        other.excluded.iter().for_each(|term| both.exclude(term));
        (!both.is_contradictory()).then_some(both)
    }

    /// Whether no packet matches both, as far as the terms show. Cheaper than the intersection, and weaker:
    /// filters whose excluded terms leave nothing are not found.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.terms
            .iter()
            .any(|term| other.values(term.field).is_some_and(|values| values.is_disjoint(&term.values)))
            || self.excluded.iter().any(|term| other.implies(term))
            || other.excluded.iter().any(|term| self.implies(term))
    }

    /// Number of terms, intervals and names: the cost of an operation.
    pub fn cost(&self) -> usize {
        self.terms.iter().chain(&self.excluded).map(|term| 1 + term.values.count()).sum()
    }

    /// Excludes the packets that match a term.
    fn exclude(&mut self, term: &Term) {
        match self.excluded.binary_search_by_key(&term.field, |excluded| excluded.field) {
            Ok(at) => self.excluded[at].values = self.excluded[at].values.union(&term.values),
            Err(at) => self.excluded.insert(at, term.clone()),
        }
    }

    /// The excluded values of a field.
    fn excluded_values(&self, field: FieldId) -> Option<&Values> {
        let at = self.excluded.binary_search_by_key(&field, |term| term.field).ok()?;
        Some(&self.excluded[at].values)
    }

    /// Whether the excluded terms leave no packet: they exclude all values of a field that every packet has.
    fn is_contradictory(&self) -> bool {
        self.excluded.iter().any(|term| self.implies(term) || self.is_exhausted(term.field))
    }

    /// Whether the excluded terms of a field cover all its values.
    fn is_exhausted(&self, field: FieldId) -> bool {
        let values = match self.values(field) {
            Some(values) => values.clone(),
            None if !self.has_field(field) => return false,
            None if field.def().kind == ValueKind::Interface => {
                Values::Names { names: BTreeSet::new(), listed: false }
            }
            None if field == FieldId::NetProto => Values::Numbers(Intervals::of([(IP4, IP4), (IP6, IP6)])),
            None => Values::range(0, max(field)),
        };
        self.excluded_values(field)
            .is_some_and(|excluded| values.intersection(&excluded.complement(field)).is_empty())
    }

    /// Whether every packet of the filter has the field.
    fn has_field(&self, field: FieldId) -> bool {
        let version = |number| self.values(FieldId::NetProto) == Some(&Values::one(number));
        let in_header = field.def().in_header();
        match field.def().proto {
            // Rules see IP packets only, and all of them have a protocol.
            _ if field == FieldId::IpProto => true,
            Layer::Interface | Layer::Network => true,
            Layer::Ip4 => in_header && version(IP4),
            Layer::Ip6 => in_header && version(IP6),
            // Another term requires the header.
            layer => in_header && self.terms.iter().any(|term| term.field.def().proto == layer),
        }
    }

    /// Whether all packets of the filter match a term.
    fn implies(&self, term: &Term) -> bool {
        self.values(term.field).is_some_and(|values| values.intersection(&term.values) == *values)
    }

    /// The values of a field that match, if the filter has a term for it.
    pub fn values(&self, field: FieldId) -> Option<&Values> {
        let at = self.terms.binary_search_by_key(&field, |term| term.field).ok()?;
        Some(&self.terms[at].values)
    }

    /// The terms that must match.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The terms that must not match.
    pub fn excluded(&self) -> &[Term] {
        &self.excluded
    }

    /// Whether this filter is a subset of the other, as far as their terms show.
    pub fn is_within(&self, other: &Self) -> bool {
        other.terms.iter().all(|term| self.implies(term))
            && other.excluded.iter().all(|term| match self.excluded_values(term.field) {
                Some(excluded) => {
                    let rest = term.values.intersection(&excluded.complement(term.field));
                    rest.is_empty() || self.excludes(&Term { field: term.field, values: rest })
                }
                None => self.excludes(term),
            })
    }

    /// Whether no packet of the filter can match a term.
    pub fn excludes(&self, term: &Term) -> bool {
        Filter { excluded: Vec::new(), terms: self.terms.clone() }.and(term.field, &term.values).is_none()
    }

    /// Whether a term on a protocol follows from another term: a packet with a TCP port is TCP.
    fn is_implied(&self, term: &Term) -> bool {
        use Layer::{Interface, Ip4, Ip6, Network, Tcp, Udp};
        self.terms.iter().filter(|other| other.field != FieldId::IpProto).any(|other| {
            match (term.field, other.field.def().proto) {
                (FieldId::IpProto, layer) => !matches!(layer, Interface | Network | Ip4 | Ip6),
                (FieldId::NetProto, layer) => !matches!(layer, Interface | Network | Tcp | Udp),
                _ => false,
            }
        })
    }

    /// The packets of this filter that are not in the other, as a union of filters.
    pub fn minus(&self, other: &Self) -> Vec<Self> {
        if self.intersection(other).is_none() {
            return vec![self.clone()];
        }
        let mut rest = Vec::new();
        for term in other.terms.iter().filter(|term| !self.implies(term) && !other.is_implied(term)) {
            let mut part = self.clone();
            part.exclude(term);
            rest.extend(Some(part).filter(|part| !part.is_contradictory()));
        }
        for term in &other.excluded {
            rest.extend(self.clone().and(term.field, &term.values));
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(low: u128, high: u128) -> Filter {
        Filter::of(FieldId::TcpDport, Values::range(low, high)).unwrap()
    }

    fn from(name: &str) -> Filter {
        Filter::of(FieldId::In, Values::name(name)).unwrap()
    }

    #[test]
    fn a_field_requires_its_header() {
        let udp = Filter::of(FieldId::UdpDport, Values::one(53)).unwrap();
        assert_eq!(udp.values(FieldId::IpProto), Some(&Values::one(UDP)));
        assert_eq!(udp.intersection(&ports(53, 53)), None);
        let v4 = Filter::of(FieldId::IpTtl, Values::one(1)).unwrap();
        assert_eq!(v4.and(FieldId::Icmp6Type, &Values::one(1)), None);
    }

    #[test]
    fn the_difference_is_exact() {
        assert_eq!(ports(80, 90).minus(&ports(1, 79)), [ports(80, 90)]);
        assert_eq!(ports(80, 90).minus(&ports(1, 100)), []);
        let both = ports(85, 100).intersection(&from("a")).unwrap();
        let parts = ports(80, 90).minus(&both);
        assert_eq!(parts.len(), 2);
        assert!(parts.iter().all(|part| part.excluded().len() == 1));
        // No part intersects the other filter.
        assert!(parts.iter().all(|part| part.intersection(&both).is_none_or(|i| !i.excluded().is_empty())));
        // Two excluded terms that cover all values leave no packet.
        let high = Filter::of(FieldId::IpTtl, Values::range(9, 255)).unwrap();
        let low = Filter::of(FieldId::IpTtl, Values::range(0, 8)).unwrap();
        let v4 = Filter::of(FieldId::NetProto, Values::one(IP4)).unwrap();
        assert_eq!(v4.minus(&high).iter().flat_map(|rest| rest.minus(&low)).count(), 0);
        let v6 = Filter::of(FieldId::NetProto, Values::one(IP6)).unwrap();
        assert_eq!(Filter::default().minus(&v4).iter().flat_map(|rest| rest.minus(&v6)).count(), 0);
        // Excluded terms of the other remain: 80-90 minus (80-90 minus 85) is 85.
        let hole = ports(80, 90).minus(&ports(85, 85)).remove(0);
        assert_eq!(ports(80, 90).minus(&hole), [ports(85, 85)]);
    }

    #[test]
    fn names_form_sets() {
        let others = Values::name("a").complement(FieldId::In);
        assert_eq!(others.intersection(&Values::name("a")), Values::Names { names: [].into(), listed: true });
        assert!(from("a").and(FieldId::In, &others).is_none());
        assert_eq!(from("b").and(FieldId::In, &others), Some(from("b")));
    }
}
