//! Whether a policy's decision about the packets of a protocol between two addresses depends on their
//! ports. Where it does not, the fast path can treat all of them like the first one.
//!
//! Theory of operation. Most rules that match on or write ports concern few addresses. An [`Area`]
//! describes what such a rule matches without ports, rounded up. Packets outside all areas are treated
//! alike if they have the same input port, protocol and addresses. The prefixes of an area are shortened to
//! a multiple of a few bits, so there are few different [`Shape`]s. A query takes one lookup per shape.
//!
//! Of an area only a mark is stored, 32 bits of its hash. Equal marks, shapes without rules and shortened
//! prefixes can make packets seem to depend on ports. The opposite error is impossible.
//!
//! The value is persistent and changes rule by rule, as all of a [`Policy`](crate::Policy).

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use mmb_classify::paged::SortedPages;
use mmb_lang::{
    Action, Comparison, Cond, FieldId, Layer, Match, MatchExpr, Rule, Value, ValueItem, ValueSet,
};

use crate::scope::{is_constant, is_out};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;

/// The port dependence of a policy without stateful rules.
#[derive(Clone, Debug, Default)]
pub struct PortDependence {
    /// Shapes of all areas, and possibly of removed ones.
    shapes: Arc<Vec<Shape>>,
    /// Number of rules by the mark of their area.
    marks: SortedPages<(u32, u32), 2048>,
}

/// The components that an area specifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    version: u8,
    port: bool,
    proto: bool,
    /// Prefix lengths of source and destination in bits.
    bits: [u8; 2],
}

/// A set of packets, described without ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Area {
    /// IP version; 0: both.
    version: u8,
    /// Input port; `None`: any.
    port: Option<u16>,
    /// Protocol; `None`: any.
    proto: Option<u8>,
    /// Prefixes of source and destination: address and length in bits.
    ends: [(u128, u8); 2],
}

impl PortDependence {
    /// Whether all packets with this input port, protocol and addresses are treated alike.
    ///
    /// It holds for unfragmented packets with a transport header and without IP options or extension
    /// headers, if no rule is an [`Policy::offload_obstacle`](crate::Policy::offload_obstacle).
    pub fn is_port_independent(&self, port: u16, proto: u8, source: IpAddr, destination: IpAddr) -> bool {
        let version = if source.is_ipv4() { 4 } else { 6 };
        let mut shapes = self.shapes.iter().filter(|shape| shape.version == 0 || shape.version == version);
        let ends = [wide(source), wide(destination)];
        !shapes.any(|shape| self.has(&shape.area(port, proto, ends)))
    }

    /// Whether queries can succeed for some packets.
    pub fn has_port_independent(&self) -> bool {
        let all = |proto| self.has(&Area { proto, ..Area::default() });
        !(all(None) || all(Some(TCP)) && all(Some(UDP)))
    }

    fn has(&self, area: &Area) -> bool {
        self.marks.get(area.mark().get()).is_some()
    }

    /// Prepares for a rule with this area and returns its mark.
    pub(crate) fn add_shape(&mut self, area: &Area) -> NonZeroU32 {
        let shape = area.shape();
        if !self.shapes.contains(&shape) {
            Arc::make_mut(&mut self.shapes).push(shape);
        }
        area.mark()
    }

    /// Adds rules by their marks.
    pub(crate) fn add(&mut self, mut marks: Vec<NonZeroU32>) {
        // Sorted, so that pages fill one after the other.
        marks.sort_unstable();
        for mark in marks {
            match self.marks.get_mut(mark.get()) {
                Some((_, rules)) => *rules += 1,
                None => drop(self.marks.insert((mark.get(), 1))),
            }
        }
    }

    /// Removes a rule by its mark.
    pub(crate) fn remove(&mut self, mark: NonZeroU32) {
        let Some((_, rules)) = self.marks.get_mut(mark.get()) else { return };
        *rules -= 1;
        if *rules == 0 {
            self.marks.remove(mark.get());
        }
    }
}

impl Shape {
    /// The area of this shape that contains a packet.
    fn area(self, port: u16, proto: u8, ends: [u128; 2]) -> Area {
        let [source, destination] = self.bits;
        Area {
            version: self.version,
            port: self.port.then_some(port),
            proto: self.proto.then_some(proto),
            ends: [first(ends[0], source), first(ends[1], destination)],
        }
    }
}

impl Area {
    /// The area of a rule. `None`: the rule's effect does not depend on ports, or the rule is stateful.
    pub fn of(rule: &Rule, ifaces: &dyn Fn(&str) -> Option<u16>) -> Option<Area> {
        let asks = rule.matches.iter().any(matches_on_ports);
        let writes = rule.targets.iter().any(|target| writes_headers(&target.action));
        if rule.is_stateful() || !(asks || writes) {
            return None;
        }
        let mut area = Area::default();
        for one in rule.matches.iter().filter(|one| !one.negated) {
            if let MatchExpr::Field { field, arg } = &one.what {
                area.narrow(*field);
                one.pair_port().into_iter().for_each(|port| area.narrow(port));
                area.narrow_to(*field, arg.as_ref(), ifaces);
            }
        }
        // Limits the number of shapes.
        let step = if area.version == 4 { 4 } else { 16 };
        area.ends = area.ends.map(|(address, bits)| first(address, bits - bits % step));
        Some(area)
    }

    /// Restricts the area to packets with a field. For repeated or contradictory matches any of them may
    /// apply.
    fn narrow(&mut self, field: FieldId) {
        match field.def().proto {
            Layer::Interface | Layer::Network => {}
            Layer::Ip4 => self.version = 4,
            Layer::Ip6 => self.version = 6,
            Layer::Icmp => (self.version, self.proto) = (4, Some(ICMP)),
            Layer::Icmp6 => (self.version, self.proto) = (6, Some(ICMP6)),
            Layer::Udp => self.proto = Some(UDP),
            Layer::Tcp => self.proto = Some(TCP),
        }
    }

    /// Restricts the area to packets whose field has one of the values.
    fn narrow_to(&mut self, field: FieldId, arg: Option<&Comparison>, ifaces: &dyn Fn(&str) -> Option<u16>) {
        let Some(Comparison { cond: Cond::Eq, values, .. }) = arg else { return };
        match (field, values.single()) {
            (FieldId::In, Some(Value::Iface(name))) => self.port = ifaces(name),
            (FieldId::IpProto, Some(Value::Int(proto))) => self.proto = u8::try_from(*proto).ok(),
            (FieldId::IpSaddr | FieldId::Ip6Saddr, _) => self.ends[0] = common(values),
            (FieldId::IpDaddr | FieldId::Ip6Daddr, _) => self.ends[1] = common(values),
            _ => {}
        }
    }

    fn shape(&self) -> Shape {
        let bits = self.ends.map(|(_, bits)| bits);
        Shape { version: self.version, port: self.port.is_some(), proto: self.proto.is_some(), bits }
    }

    /// The stored part of the area.
    fn mark(&self) -> NonZeroU32 {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(self);
        NonZeroU32::new(hash as u32).unwrap_or(NonZeroU32::MIN)
    }
}

/// Whether a match can distinguish packets that differ only in their ports.
fn matches_on_ports(one: &Match) -> bool {
    use FieldId::*;
    let MatchExpr::Field { field, arg } = &one.what else { return false };
    let is_port = matches!(field, TcpSport | TcpDport | UdpSport | UdpDport);
    (is_port || one.pair_port().is_some()) && arg.is_some() || !(is_constant(one) || is_out(one))
}

/// Whether a target does more than drop, accept or redirect.
fn writes_headers(action: &Action) -> bool {
    match action {
        Action::Accept
        | Action::Block
        | Action::Reject
        | Action::Log { .. }
        | Action::Mod { field: FieldId::Out, .. } => false,
        Action::Drop { ten_thousandths } => *ten_thousandths < 10_000,
        _ => true,
    }
}

/// An address as a number whose most significant bit is the address's first.
fn wide(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => address.into(),
    }
}

/// A prefix of this length.
fn first(address: u128, bits: u8) -> (u128, u8) {
    let rest = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
    (address & !rest, bits)
}

/// The longest common prefix of these addresses and subnets.
fn common(values: &ValueSet) -> (u128, u8) {
    let both = |a: (u128, u8), b: (u128, u8)| {
        let same = (a.0 ^ b.0).leading_zeros() as u8;
        first(a.0, same.min(a.1).min(b.1))
    };
    let of = |value: &Value| match value {
        Value::Prefix { addr, len } => (wide(*addr), *len),
        _ => (0, 0),
    };
    let items = values.iter().map(|item| match item {
        ValueItem::Single(value) => of(value),
        ValueItem::Range(ends) => both(of(&ends[0]), of(&ends[1])),
    });
    items.reduce(both).unwrap_or((0, 0))
}

#[cfg(test)]
mod tests;
