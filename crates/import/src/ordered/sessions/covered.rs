//! Which sessions a chain accepts in both directions.

use mmb_lang::FieldId;

use crate::filter::{Filter, IP4, IP6, Values};
use crate::intervals::Intervals;
use crate::states::States;

/// The field of the type, the IP version, and ranges of types.
type ErrorTypes = (FieldId, u128, &'static [(u128, u128)]);

/// Types of ICMP errors (RFC 792), and of ICMPv6 errors (RFC 4443).
const ERRORS: [ErrorTypes; 2] =
    [(FieldId::IcmpType, IP4, &[(3, 5), (11, 12)]), (FieldId::Icmp6Type, IP6, &[(1, 4)])];

/// The packets of sessions that a chain accepts.
pub(super) struct Accepted {
    /// Established packets, by fields that all packets of a session's direction share.
    established: Vec<Filter>,
    /// Errors about sessions.
    related: Vec<Filter>,
}

impl Accepted {
    /// `filters`: the accepts of established and related packets.
    pub(super) fn new<'a>(filters: impl Iterator<Item = &'a Filter>) -> Self {
        let (mut established, mut related) = (Vec::new(), Vec::new());
        for filter in filters {
            // Packets of a session differ in the other fields.
            if filter.fields().all(is_of_session) {
                established.extend(filter.clone().and_states(States::ESTABLISHED));
            }
            related.extend(filter.clone().and_states(States::RELATED));
        }
        Accepted { established, related }
    }

    /// The accepted errors.
    pub(super) fn related(&self) -> &[Filter] {
        &self.related
    }

    /// The part of the first packets of a filter whose later packets in the same direction are accepted.
    pub(super) fn forward(&self, first: &Filter) -> Vec<Filter> {
        self.part(first, session_part, Filter::clone)
    }

    /// The part of a filter of which an accept contains `seen(filter)`, where `back` undoes `seen`.
    fn part(
        &self,
        filter: &Filter,
        seen: impl Fn(&Filter) -> Filter,
        back: impl Fn(&Filter) -> Filter,
    ) -> Vec<Filter> {
        let later = seen(filter).with_states(States::ESTABLISHED);
        if self.established.iter().any(|accepted| later.is_within(accepted)) {
            return vec![filter.clone()];
        }
        let both = |accepted: &Filter| filter.intersection(&back(accepted).with_states(filter.states()));
        self.established.iter().filter_map(both).collect()
    }
}

/// The part of first packets whose replies are accepted.
pub(super) fn replied(first: &[Filter], accepted: &Accepted) -> Vec<Filter> {
    first.iter().flat_map(|filter| accepted.part(filter, mirror, mirror)).collect()
}

/// A filter on the other direction of sessions, by the fields that all packets of a direction share.
pub(super) fn mirror(filter: &Filter) -> Filter {
    session_part(filter).renamed(other_side)
}

/// Whether a filter tests the destination.
pub(super) fn tests_destination(filter: &Filter) -> bool {
    use FieldId::{Ip6Daddr, IpDaddr, TcpDport, UdpDport};
    filter.fields().any(|field| matches!(field, IpDaddr | Ip6Daddr | TcpDport | UdpDport))
}

/// The errors about the sessions that first packets open, to both ends.
pub(super) fn errors(first: &Filter) -> Vec<Filter> {
    let about = |packets: &Filter| {
        // An error is sent to the source of the packet, from anywhere behind its output interface.
        let back = mirror(packets).retain(|field| {
            matches!(
                field,
                FieldId::In | FieldId::Out | FieldId::IpDaddr | FieldId::Ip6Daddr | FieldId::NetProto
            )
        });
        errors_within(back).map(|error| error.with_states(States::RELATED)).collect::<Vec<_>>()
    };
    [about(first), about(&mirror(first))].concat()
}

/// The filter; if it has only related packets, those that are errors.
pub(super) fn only_errors(filter: Filter) -> Vec<Filter> {
    match filter.states().and(States::ESTABLISHED).is_empty() {
        true => errors_within(filter).collect(),
        false => vec![filter],
    }
}

/// The packets of a filter that are errors.
fn errors_within(filter: Filter) -> impl Iterator<Item = Filter> {
    ERRORS.iter().filter_map(move |(field, version, types)| {
        let filter = filter.clone().and(FieldId::NetProto, &Values::one(*version))?;
        filter.and(*field, &Values::Numbers(Intervals::of(types.iter().copied())))
    })
}

/// The filter with only the tests of fields that all packets of a session's direction share.
fn session_part(filter: &Filter) -> Filter {
    filter.retain(is_of_session)
}

/// Whether all packets of a session's direction have the same value of a field.
fn is_of_session(field: FieldId) -> bool {
    field == FieldId::NetProto || field == FieldId::IpProto || other_side(field) != field
}

/// The field of replies that has the value of this field.
fn other_side(field: FieldId) -> FieldId {
    use FieldId::{In, Ip6Daddr, Ip6Saddr, IpDaddr, IpSaddr, Out, TcpDport, TcpSport, UdpDport, UdpSport};
    match field {
        In => Out,
        Out => In,
        IpSaddr => IpDaddr,
        IpDaddr => IpSaddr,
        Ip6Saddr => Ip6Daddr,
        Ip6Daddr => Ip6Saddr,
        TcpSport => TcpDport,
        TcpDport => TcpSport,
        UdpSport => UdpDport,
        UdpDport => UdpSport,
        other => other,
    }
}
