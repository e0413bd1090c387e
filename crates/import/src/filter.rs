//! What a rule of another system asks of a packet: one question per field, all of which must be answered with yes.
//!
//! Theory of operation. A [`Filter`] keeps, for each field it asks about, the set of values that fit, and besides that
//! a list of questions of which none may be answered with yes (`! <field> <values>`). Sets are exact, so that the
//! intersection of two filters and "this filter without that one" are exact as well; [`crate::ordered`] lives on
//! that. `net-proto` stands for the IP version, and `ip-proto` for the transport protocol of either version: which
//! words say that depends on the version, and is decided in [`crate::words`].

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

/// The values that fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Numbers; addresses are numbers too.
    Numbers(Intervals),
    /// Names of interfaces: one of these, or (not `listed`) any other.
    Names {
        /// The names.
        names: BTreeSet<String>,
        /// Whether they fit, or all others.
        listed: bool,
    },
}

impl Values {
    /// One number.
    pub fn one(number: u128) -> Self {
        Values::Numbers(Intervals::one(number))
    }

    /// The numbers from `low` to `high`.
    pub fn range(low: u128, high: u128) -> Self {
        Values::Numbers(Intervals::of([(low, high)]))
    }

    /// One name.
    pub fn name(name: &str) -> Self {
        Values::Names { names: BTreeSet::from([name.to_owned()]), listed: true }
    }

    /// All other values of the field.
    pub fn complement(&self, field: FieldId) -> Self {
        match self {
            Values::Numbers(numbers) => Values::Numbers(numbers.complement(max(field))),
            Values::Names { names, listed } => Values::Names { names: names.clone(), listed: !listed },
        }
    }

    /// What fits both. Numbers and names have nothing in common.
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

    /// Whether no value fits.
    pub fn is_empty(&self) -> bool {
        match self {
            Values::Numbers(numbers) => numbers.is_empty(),
            Values::Names { names, listed } => *listed && names.is_empty(),
        }
    }
}

/// The largest value of a field of numbers.
pub fn max(field: FieldId) -> u128 {
    match field.def().kind {
        ValueKind::Ip6 => u128::MAX,
        _ => field.def().max_int().into(),
    }
}

/// A question: does the packet have the field, and does its value fit?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The field.
    pub field: FieldId,
    /// What fits.
    pub values: Values,
}

/// All that a rule asks. See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// At most one per field, sorted by field; none is empty.
    terms: Vec<Term>,
    without: Vec<Term>,
}

impl Filter {
    /// The filter that asks one question, with what the field itself asks.
    pub fn of(field: FieldId, values: Values) -> Option<Self> {
        Filter::default().and(field, &values)
    }

    /// The filter with one more question; None if nothing is left. A field of a header asks for the header.
    pub fn and(mut self, field: FieldId, values: &Values) -> Option<Self> {
        self.narrow(field, values)?;
        let (network, transport) = match field.def().proto {
            // The transport protocol of either version.
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

    fn narrow(&mut self, field: FieldId, values: &Values) -> Option<()> {
        match self.terms.binary_search_by_key(&field, |term| term.field) {
            Ok(at) => self.terms[at].values = self.terms[at].values.intersection(values),
            Err(at) => self.terms.insert(at, Term { field, values: values.clone() }),
        }
        self.terms.iter().all(|term| !term.values.is_empty()).then_some(())
    }

    /// What fits both filters; None if nothing can.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let mut both = self.clone();
        for term in &other.terms {
            both.narrow(term.field, &term.values)?;
        }
        for term in &other.without {
            if !both.without.contains(term) {
                both.without.push(term.clone());
            }
        }
        (!both.is_contradictory()).then_some(both)
    }

    /// Whether the exclusions leave nothing: of a field that every fitting packet has, no value.
    fn is_contradictory(&self) -> bool {
        self.without.iter().any(|term| self.implies(term) || self.is_used_up(term.field))
    }

    fn is_used_up(&self, field: FieldId) -> bool {
        let values = match self.values(field) {
            Some(values) => values.clone(),
            None if !self.has(field) => return false,
            None if field.def().kind == ValueKind::Interface => {
                Values::Names { names: BTreeSet::new(), listed: false }
            }
            None if field == FieldId::NetProto => Values::Numbers(Intervals::of([(IP4, IP4), (IP6, IP6)])),
            None => Values::range(0, max(field)),
        };
        let excluded = self.without.iter().filter(|term| term.field == field);
        excluded.fold(values, |left, term| left.intersection(&term.values.complement(field))).is_empty()
    }

    /// Whether every packet that fits has the field, whatever its value.
    fn has(&self, field: FieldId) -> bool {
        let version = |number| self.values(FieldId::NetProto) == Some(&Values::one(number));
        let in_header = field.def().in_header();
        match field.def().proto {
            // Every packet has a protocol, and rules see IP only.
            _ if field == FieldId::IpProto => true,
            Layer::Interface | Layer::Network => true,
            Layer::Ip4 => in_header && version(IP4),
            Layer::Ip6 => in_header && version(IP6),
            // Another question asks for the header.
            layer => in_header && self.terms.iter().any(|term| term.field.def().proto == layer),
        }
    }

    /// Whether everything that fits answers the question with yes.
    fn implies(&self, term: &Term) -> bool {
        self.values(term.field).is_some_and(|values| values.intersection(&term.values) == *values)
    }

    /// The values of a field that fit, if the filter asks about it.
    pub fn values(&self, field: FieldId) -> Option<&Values> {
        let at = self.terms.binary_search_by_key(&field, |term| term.field).ok()?;
        Some(&self.terms[at].values)
    }

    /// The questions to be answered with yes.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The questions of which none may be answered with yes.
    pub fn without(&self) -> &[Term] {
        &self.without
    }

    /// Whether everything that fits this filter fits the other, as far as their questions tell.
    pub fn is_within(&self, other: &Self) -> bool {
        other.terms.iter().all(|term| self.implies(term))
            && other.without.iter().all(|term| self.without.contains(term) || self.excludes(term))
    }

    /// Whether nothing that fits can answer the question with yes.
    pub fn excludes(&self, term: &Term) -> bool {
        Filter { without: Vec::new(), terms: self.terms.clone() }.and(term.field, &term.values).is_none()
    }

    /// Whether a protocol follows from another question: what has a TCP port has TCP.
    fn follows(&self, term: &Term) -> bool {
        use Layer::{Interface, Ip4, Ip6, Network, Tcp, Udp};
        self.terms.iter().filter(|other| other.field != FieldId::IpProto).any(|other| {
            match (term.field, other.field.def().proto) {
                (FieldId::IpProto, layer) => !matches!(layer, Interface | Network | Ip4 | Ip6),
                (FieldId::NetProto, layer) => !matches!(layer, Interface | Network | Tcp | Udp),
                _ => false,
            }
        })
    }

    /// What fits this filter and not the other, as filters that together say so exactly. None: nothing.
    pub fn minus(&self, other: &Self) -> Vec<Self> {
        if self.intersection(other).is_none() {
            return vec![self.clone()];
        }
        let mut rest = Vec::new();
        for term in other.terms.iter().filter(|term| !self.implies(term) && !other.follows(term)) {
            let mut part = self.clone();
            if !part.without.contains(term) {
                part.without.push(term.clone());
            }
            rest.extend(Some(part).filter(|part| !part.is_contradictory()));
        }
        for term in &other.without {
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
    fn a_field_asks_for_its_header() {
        let udp = Filter::of(FieldId::UdpDport, Values::one(53)).unwrap();
        assert_eq!(udp.values(FieldId::IpProto), Some(&Values::one(UDP)));
        assert_eq!(udp.intersection(&ports(53, 53)), None);
        let v4 = Filter::of(FieldId::IpTtl, Values::one(1)).unwrap();
        assert_eq!(v4.and(FieldId::Icmp6Type, &Values::one(1)), None);
    }

    #[test]
    fn minus_takes_out_exactly_what_the_other_has() {
        assert_eq!(ports(80, 90).minus(&ports(1, 79)), [ports(80, 90)]);
        assert_eq!(ports(80, 90).minus(&ports(1, 100)), []);
        let both = ports(85, 100).intersection(&from("a")).unwrap();
        let parts = ports(80, 90).minus(&both);
        assert_eq!(parts.len(), 2);
        assert!(parts.iter().all(|part| part.without().len() == 1));
        // In what is left nothing of the other is left.
        assert!(parts.iter().all(|part| part.intersection(&both).is_none_or(|i| !i.without().is_empty())));
        // Two exclusions that leave no value leave nothing.
        let high = Filter::of(FieldId::IpTtl, Values::range(9, 255)).unwrap();
        let low = Filter::of(FieldId::IpTtl, Values::range(0, 8)).unwrap();
        let v4 = Filter::of(FieldId::NetProto, Values::one(IP4)).unwrap();
        assert_eq!(v4.minus(&high).iter().flat_map(|rest| rest.minus(&low)).count(), 0);
        let v6 = Filter::of(FieldId::NetProto, Values::one(IP6)).unwrap();
        assert_eq!(Filter::default().minus(&v4).iter().flat_map(|rest| rest.minus(&v6)).count(), 0);
        // What the other excludes stays: 80-90 without (80-90 without 85) is 85.
        let hole = ports(80, 90).minus(&ports(85, 85)).remove(0);
        assert_eq!(ports(80, 90).minus(&hole), [ports(85, 85)]);
    }

    #[test]
    fn names_are_sets_too() {
        let others = Values::name("a").complement(FieldId::In);
        assert_eq!(others.intersection(&Values::name("a")), Values::Names { names: [].into(), listed: true });
        assert!(from("a").and(FieldId::In, &others).is_none());
        assert_eq!(from("b").and(FieldId::In, &others), Some(from("b")));
    }
}
