//! The packets that a rule of another system matches, as a set.
//!
//! Theory of operation. A [`Filter`] has, for each field that it tests, the set of values that match. It also
//! has a list of excluded terms (`! <field> <values>`), none of which may match. A field has at most one
//! excluded term, with the union of the excluded values, so that a thousand subtractions of addresses are one
//! set. Sets are exact. So the intersection and the difference of two filters are exact too, as
//! [`crate::ordered`] needs them. `net-proto` stands for the IP version, and `ip-proto` for the transport
//! protocol of both versions. [`crate::matches`] writes both as fields of the language. A filter also has
//! [`States`] of connections, which the language does not match: [`crate::ordered`] makes stateful rules of
//! them. Named sets of other systems stay names ([`Member`]): nothing is known about their elements.

use std::collections::BTreeSet;

use mmb_lang::{FieldId, Layer, ValueKind};

use crate::intervals::Intervals;
use crate::states::States;

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

/// The numbers that a field of an IP packet can have. Rules see no other packets.
fn all_numbers(field: FieldId) -> Intervals {
    match field {
        FieldId::NetProto => Intervals::of([(IP4, IP4), (IP6, IP6)]),
        _ => Intervals::of([(0, max(field))]),
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

/// Whether the value of a field, or an address and a port, are in a named set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The field.
    pub field: FieldId,
    /// The port beside an address.
    pub port: Option<FieldId>,
    /// The name of the set.
    pub set: String,
    /// Whether the packet has the field with a value of the set, or not.
    pub is_in: bool,
}

impl Member {
    /// The fields that are tested.
    pub fn fields(&self) -> impl Iterator<Item = FieldId> + use<> {
        [Some(self.field), self.port].into_iter().flatten()
    }
}

/// A set of packets. See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The states of connections.
    states: States,
    /// Named sets.
    members: Vec<Member>,
    /// Terms that must all match: at most one per field, sorted by field, none with an empty set.
    terms: Vec<Term>,
    /// Terms that must not match: at most one per field, sorted by field.
    excluded: Vec<Term>,
}

impl Default for Filter {
    fn default() -> Self {
        Filter { states: States::ALL, members: Vec::new(), terms: Vec::new(), excluded: Vec::new() }
    }
}

impl Filter {
    /// The filter with one term, and the terms for its header.
    pub fn of(field: FieldId, values: Values) -> Option<Self> {
        Filter::default().and(field, &values)
    }

    /// The filter with one more term, and the terms for its header. None if no packet matches.
    pub fn and(mut self, field: FieldId, values: &Values) -> Option<Self> {
        self.narrow(field, values)?;
        self.narrow_header(field)?;
        (!self.is_contradictory()).then_some(self)
    }

    /// The filter with one more named set, and the terms for the field and its header. None if no packet
    /// matches.
    pub fn and_member(mut self, member: Member) -> Option<Self> {
        for field in member.fields() {
            self.narrow_header(field)?;
            // A packet without the field fails the test, too.
            if !member.is_in && !self.has_field(field) {
                self.narrow(field, &Values::Numbers(all_numbers(field)))?;
            }
        }
        self.add_member(member);
        (!self.is_contradictory()).then_some(self)
    }

    /// The filter with only these of its states. None if there are none.
    pub fn and_states(mut self, states: States) -> Option<Self> {
        self.states = self.states.and(states);
        (!self.states.is_empty()).then_some(self)
    }

    /// The filter with other states.
    pub fn with_states(mut self, states: States) -> Self {
        self.states = states;
        self
    }

    /// Narrows the terms to the packets with the header of a field.
    fn narrow_header(&mut self, field: FieldId) -> Option<()> {
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
        Some(())
    }

    fn add_member(&mut self, member: Member) {
        if !self.members.contains(&member) {
            self.members.push(member);
        }
    }

    /// The filter for packets whose field has this value, without its tests of the field. None if no such
    /// packet matches. Sets that are not known match if `assumed`.
    pub fn given(&self, field: FieldId, value: u128, assumed: bool) -> Option<Self> {
        let has_value = |values: &Values| !values.is_disjoint(&Values::one(value));
        let is_excluded = self.excluded_values(field).is_some_and(has_value);
        let is_unknown = self.members.iter().any(|member| member.fields().any(|tested| tested == field));
        if is_excluded
            || !assumed && is_unknown
            || self.values(field).is_some_and(|values| !has_value(values))
        {
            return None;
        }
        Some(self.retain(|tested| tested != field))
    }

    /// The filter with only its tests of some fields.
    pub fn retain(&self, mut keeps: impl FnMut(FieldId) -> bool) -> Self {
        let mut kept = self.clone();
        kept.terms.retain(|term| keeps(term.field));
        kept.excluded.retain(|term| keeps(term.field));
        kept.members.retain(|member| member.fields().all(&mut keeps));
        kept
    }

    /// The filter with its tests moved to other fields, which are all different.
    pub fn renamed(&self, name: impl Fn(FieldId) -> FieldId) -> Self {
        let mut renamed = self.clone();
        for term in renamed.terms.iter_mut().chain(&mut renamed.excluded) {
            term.field = name(term.field);
        }
        for member in &mut renamed.members {
            (member.field, member.port) = (name(member.field), member.port.map(&name));
        }
        renamed.terms.sort_by_key(|term| term.field);
        renamed.excluded.sort_by_key(|term| term.field);
        renamed
    }

    /// The fields that the filter tests.
    pub fn fields(&self) -> impl Iterator<Item = FieldId> {
        let terms = self.terms.iter().chain(&self.excluded).map(|term| term.field);
        terms.chain(self.members.iter().flat_map(Member::fields))
    }

    /// The states of connections.
    pub fn states(&self) -> States {
        self.states
    }

    /// The tests for named sets.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The filter with other values of a field that it tests.
    pub fn with_values(&self, field: FieldId, values: Values) -> Self {
        let mut changed = self.clone();
        for term in changed.terms.iter_mut().filter(|term| term.field == field) {
            term.values = values.clone();
        }
        changed
    }

    /// Intersects the values of a field, and with those that IP packets have. None if a set becomes empty.
    fn narrow(&mut self, field: FieldId, values: &Values) -> Option<()> {
        match self.terms.binary_search_by_key(&field, |term| term.field) {
            Ok(at) => self.terms[at].values = self.terms[at].values.intersection(values),
            Err(at) => {
                let values = match values {
                    Values::Numbers(numbers) => Values::Numbers(numbers.intersection(&all_numbers(field))),
                    names => names.clone(),
                };
                self.terms.insert(at, Term { field, values });
            }
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
        other.members.iter().for_each(|member| both.add_member(member.clone()));
        both.states = both.states.and(other.states);
        (!both.is_contradictory()).then_some(both)
    }

    /// Whether no packet matches both, as far as the terms show. Cheaper than the intersection, and weaker:
    /// filters whose excluded terms leave nothing are not found.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        let is_apart = |term: &Term| other.values(term.field).is_some_and(|v| v.is_disjoint(&term.values));
        self.states.and(other.states).is_empty()
            || self.terms.iter().any(is_apart)
            || self.members.iter().any(|member| other.members.contains(&opposite(member)))
            || self.excluded.iter().any(|term| other.implies(term))
            || other.excluded.iter().any(|term| self.implies(term))
    }

    /// Number of terms, intervals and names: the cost of an operation.
    pub fn cost(&self) -> usize {
        self.terms.iter().chain(&self.excluded).map(|term| 1 + term.values.count()).sum::<usize>()
            + self.members.len()
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
        self.states.is_empty()
            || self.members.iter().any(|member| self.members.contains(&opposite(member)))
            || self.excluded.iter().any(|term| self.implies(term) || self.is_exhausted(term.field))
    }

    /// Whether the excluded terms of a field cover all its values.
    fn is_exhausted(&self, field: FieldId) -> bool {
        let values = match self.values(field) {
            Some(values) => values.clone(),
            None if !self.has_field(field) => return false,
            None if field.def().kind == ValueKind::Interface => {
                Values::Names { names: BTreeSet::new(), listed: false }
            }
            None => Values::Numbers(all_numbers(field)),
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
        self.states.is_within(other.states)
            && other.members.iter().all(|member| self.members.contains(member))
            && other.terms.iter().all(|term| self.implies(term))
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
        let terms = Filter { terms: self.terms.clone(), ..Filter::default() };
        terms.and(term.field, &term.values).is_none()
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
        rest.extend(self.clone().and_states(self.states.without(other.states)));
        let common = self.clone().with_states(self.states.and(other.states));
        for member in other.members.iter().filter(|member| !self.members.contains(member)) {
            let mut part = common.clone();
            part.add_member(opposite(member));
            rest.push(part);
        }
        for term in other.terms.iter().filter(|term| !self.implies(term) && !other.is_implied(term)) {
            let mut part = common.clone();
            part.exclude(term);
            rest.extend(Some(part).filter(|part| !part.is_contradictory()));
        }
        for term in &other.excluded {
            rest.extend(common.clone().and(term.field, &term.values));
        }
        rest
    }
}

/// The test that holds if this one does not.
fn opposite(member: &Member) -> Member {
    Member { is_in: !member.is_in, ..member.clone() }
}

#[cfg(test)]
mod tests;
