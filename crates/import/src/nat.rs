//! NAT of other systems as pools, forwards and rules that translate.
//!
//! Theory of operation. Linux translates destinations before its filter and sources behind it, so the filter
//! and the rules of `POSTROUTING` see translated destinations. Rules of mmb see packets as received. For each
//! rule that translates destinations, a [`Redirect`] has the packets as received and their new destination.
//! [`as_received`] turns a filter on translated packets into filters on the same packets as received: those
//! of each redirect whose new destination the filter accepts, and all others that it accepts.
//!
//! Masquerading and translated sources become a pool and a stateful rule. A destination becomes a forward if
//! the packets are those to one address and port, from anywhere. Else it becomes a rule with `map`, which
//! does not reach packets to the address of a pool: those need a forward.

mod write;

use std::net::Ipv4Addr;

use mmb_lang::FieldId;

use crate::filter::{Filter, IP4, TCP, UDP, Values};
use crate::states::States;

pub use self::write::convert;

/// Maximum number of filters that one becomes.
const MAX_FILTERS: usize = 64;

/// How a rule translates the connections of its packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Translation {
    /// The source becomes the address of the output interface, with these ports.
    Masquerade {
        /// First and last port.
        ports: Option<(u16, u16)>,
    },
    /// The source becomes one of these addresses.
    Source {
        /// First and last address.
        addresses: (Ipv4Addr, Ipv4Addr),
        /// First and last port.
        ports: Option<(u16, u16)>,
    },
    /// The destination becomes this one.
    Destination {
        /// The address.
        address: Ipv4Addr,
        /// The port; none: it stays.
        port: Option<u16>,
    },
}

/// Connections whose destination is translated.
#[derive(Clone, Debug)]
pub struct Redirect {
    /// Their first packets, as received.
    pub received: Filter,
    /// The new address.
    pub address: Ipv4Addr,
    /// The new port.
    pub port: Option<u16>,
}

impl Redirect {
    /// The field of the destination port.
    fn port_field(&self) -> Option<FieldId> {
        port_field(&self.received)
    }

    /// The packets as received of which a filter accepts the translation.
    fn before(&self, filter: &Filter, assumed: bool) -> Option<Filter> {
        let mut seen = filter.clone().and_states(filter.states().without(States::DIRECT))?;
        seen = seen.given(FieldId::IpDaddr, u32::from(self.address).into(), assumed)?;
        if let (Some(field), Some(port)) = (self.port_field(), self.port) {
            seen = seen.given(field, port.into(), assumed)?;
        }
        seen.intersection(&self.received)
    }
}

/// The field of the destination port of packets with one protocol.
pub fn port_field(filter: &Filter) -> Option<FieldId> {
    let protocol = filter.values(FieldId::IpProto)?;
    match () {
        () if *protocol == Values::one(TCP) => Some(FieldId::TcpDport),
        () if *protocol == Values::one(UDP) => Some(FieldId::UdpDport),
        () => None,
    }
}

/// Whether a field is changed by the translation of a destination.
fn is_destination(field: FieldId) -> bool {
    matches!(field, FieldId::IpDaddr | FieldId::TcpDport | FieldId::UdpDport)
}

/// The packets as received of filters on translated packets. Sets that are not known match if `assumed`.
/// None: they would be too many filters; if `assumed`, there are more packets instead.
pub fn as_received(filters: &[Filter], redirects: &[Redirect], assumed: bool) -> Option<Vec<Filter>> {
    let mut all = Vec::new();
    for filter in filters {
        all.extend(received(filter, redirects, assumed)?);
    }
    Some(all)
}

fn received(filter: &Filter, redirects: &[Redirect], assumed: bool) -> Option<Vec<Filter>> {
    let sees_any = States::NEW.is_within(filter.states()) || filter.states().and(States::NEW).is_empty();
    if redirects.is_empty() || sees_any && !filter.fields().any(is_destination) {
        let needs_redirect = filter.states() == States::REDIRECTED;
        return Some(if needs_redirect { Vec::new() } else { vec![filter.clone()] });
    }
    let direct = filter.clone().and_states(filter.states().without(States::REDIRECTED));
    let direct: Vec<Filter> = direct.into_iter().collect();
    let left = minus_all(direct.clone(), redirects.iter().map(|redirect| &redirect.received));
    let mut all = left.or_else(|| assumed.then_some(direct))?;
    all.extend(redirects.iter().filter_map(|redirect| redirect.before(filter, assumed)));
    Some(all)
}

/// The packets of filters that are in none of the others. None: they would be too many filters.
fn minus_all<'a>(filters: Vec<Filter>, others: impl Iterator<Item = &'a Filter>) -> Option<Vec<Filter>> {
    let mut left = filters;
    for other in others {
        let mut kept: Vec<Filter> = Vec::new();
        for filter in left.iter().flat_map(|filter| filter.minus(other)) {
            if !kept.iter().any(|kept| filter.is_within(kept)) {
                kept.push(filter);
            }
        }
        left = kept;
        if left.len() > MAX_FILTERS {
            return None;
        }
    }
    Some(left)
}

/// The translations of a ruleset that are converted.
#[derive(Clone, Debug, Default)]
pub struct Translations {
    /// Those of destinations.
    pub redirects: Vec<Redirect>,
    /// Whether there are translations of sources.
    pub has_sources: bool,
}

/// What the ruleset does not say about the machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// The interface by which masqueraded packets leave, for rules that do not name it.
    pub outside: Option<String>,
    /// Addresses of the machine that packets to translate are sent to, for rules that name none.
    pub addresses: Vec<Ipv4Addr>,
}

impl Machine {
    /// The packets to the machine's own addresses. None: they are not known.
    pub fn local(&self) -> Option<Filter> {
        let addresses = self.addresses.iter().map(|address| u128::from(u32::from(*address)));
        let values = crate::intervals::Intervals::of(addresses.map(|address| (address, address)));
        (!values.is_empty()).then(|| Filter::of(FieldId::IpDaddr, Values::Numbers(values)))?
    }
}

/// The only address of an IPv4 filter's destination.
fn single_destination(filter: &Filter) -> Option<Ipv4Addr> {
    let Values::Numbers(numbers) = filter.values(FieldId::IpDaddr)? else { return None };
    let address = numbers.numbers(1)?.first().copied()?;
    u32::try_from(address).ok().map(Ipv4Addr::from)
}

/// IPv4 packets.
fn ip4() -> Option<Filter> {
    Filter::of(FieldId::NetProto, Values::one(IP4))
}
