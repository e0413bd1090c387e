//! Whether what a policy does to the packets of a protocol between two addresses depends on their ports: where it does not, somebody
//! who has seen it done to one of them may do it to all.
//!
//! Theory of operation. Rules that look at ports, or write them, are mostly about few addresses. Of what such a rule matches, an
//! [`Area`] is what can be said without ports, rounded up: packets outside of all areas are treated alike if they come in by the
//! same port, are of the same protocol and go between the same addresses. An address of an area is a prefix, which is cut to a
//! multiple of a few bits, so that areas have few [`Shape`]s however many rules there are; to ask about a packet takes one look
//! for each shape. Of an area only a mark is kept, 32 bits of its hash. Two areas with the same mark, a shape that no rule has any
//! more, a prefix that is shorter than the rule's: all of this makes some packets seem to depend on ports that do not, and never
//! the other way round.
//!
//! It changes rule by rule, as all of a [`Policy`](crate::Policy) does, and is a value as that is.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use mmb_classify::paged::SortedPages;
use mmb_lang::{
    Action, Comparison, Cond, FieldId, Layer, Match, MatchExpr, Rule, RuleKind, Value, ValueItem, ValueSet,
};

use crate::scope::{is_constant, is_out};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;

/// The rules of a policy without stateful ones, as far as they look at ports.
#[derive(Clone, Debug, Default)]
pub struct PortDependence {
    /// Those of all areas, and maybe more.
    shapes: Arc<Vec<Shape>>,
    /// How many rules have an area with a mark.
    marks: SortedPages<(u32, u32), 2048>,
}

/// What an area says something about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    version: u8,
    port: bool,
    proto: bool,
    /// Of source and destination, how many bits.
    bits: [u8; 2],
}

/// Packets, told apart without their ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Area {
    /// That of IP; 0: both.
    version: u8,
    /// Where they come in; None: anywhere.
    port: Option<u16>,
    /// None: any.
    proto: Option<u8>,
    /// Source and destination: the first bits of an address, and how many there are.
    ends: [(u128, u8); 2],
}

impl PortDependence {
    /// Whether all that comes in by a port, is of a protocol and goes between these addresses is treated alike. It is to be whole
    /// packets with a transport header and neither IP options nor extension headers, and no rule may look at
    /// more than their flow ([`Policy::offload_obstacle`](crate::Policy::offload_obstacle)).
    pub fn is_port_independent(&self, port: u16, proto: u8, source: IpAddr, destination: IpAddr) -> bool {
        let version = if source.is_ipv4() { 4 } else { 6 };
        let mut shapes = self.shapes.iter().filter(|shape| shape.version == 0 || shape.version == version);
        let ends = [wide(source), wide(destination)];
        !shapes.any(|shape| self.has(&shape.area(port, proto, ends)))
    }

    /// Whether some are: there is something to find by asking.
    pub fn has_port_independent(&self) -> bool {
        let all = |proto| self.has(&Area { proto, ..Area::default() });
        !(all(None) || all(Some(TCP)) && all(Some(UDP)))
    }

    fn has(&self, area: &Area) -> bool {
        self.marks.get(area.mark().get()).is_some()
    }

    /// A rule with this area is about to come; answers the mark that it comes and goes with.
    pub(crate) fn expect(&mut self, area: &Area) -> NonZeroU32 {
        let shape = area.shape();
        if !self.shapes.contains(&shape) {
            Arc::make_mut(&mut self.shapes).push(shape);
        }
        area.mark()
    }

    /// Rules come.
    pub(crate) fn add(&mut self, mut marks: Vec<NonZeroU32>) {
        // In their order, so that many fill the pages one after the other.
        marks.sort_unstable();
        for mark in marks {
            match self.marks.get_mut(mark.get()) {
                Some((_, rules)) => *rules += 1,
                None => drop(self.marks.insert((mark.get(), 1))),
            }
        }
    }

    /// A rule goes.
    pub(crate) fn remove(&mut self, mark: NonZeroU32) {
        let Some((_, rules)) = self.marks.get_mut(mark.get()) else { return };
        *rules -= 1;
        if *rules == 0 {
            self.marks.remove(mark.get());
        }
    }
}

impl Shape {
    /// The area of this shape that a packet is in.
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
    /// That of a rule. None: what it does to a packet does not depend on ports; or it is stateful, and sessions count.
    pub fn of(rule: &Rule, ifaces: &dyn Fn(&str) -> Option<u16>) -> Option<Area> {
        let asks = rule.matches.iter().any(asks_for_more);
        let writes = rule.targets.iter().any(|target| writes_more(&target.action));
        if rule.kind == RuleKind::Stateful || !(asks || writes) {
            return None;
        }
        let mut area = Area::default();
        for one in rule.matches.iter().filter(|one| !one.negated) {
            if let MatchExpr::Field { field, arg } = &one.what {
                area.narrow(*field);
                area.narrow_to(*field, arg.as_ref(), ifaces);
            }
        }
        // So that there are few shapes.
        let step = if area.version == 4 { 4 } else { 16 };
        area.ends = area.ends.map(|(address, bits)| first(address, bits - bits % step));
        Some(area)
    }

    /// To packets that have a field. What a rule asks for twice may be narrowed to either, and what contradicts itself to anything.
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

    /// To packets of which a field has one of the values.
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

    /// What is kept of it.
    fn mark(&self) -> NonZeroU32 {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(self);
        NonZeroU32::new(hash as u32).unwrap_or(NonZeroU32::MIN)
    }
}

/// Whether packets that differ in nothing but their ports may differ in a match.
fn asks_for_more(one: &Match) -> bool {
    use FieldId::*;
    let MatchExpr::Field { field, arg } = &one.what else { return false };
    let is_port = matches!(field, TcpSport | TcpDport | UdpSport | UdpDport);
    is_port && arg.is_some() || !(is_constant(one) || is_out(one))
}

/// Whether a target writes more than where a packet goes out.
fn writes_more(action: &Action) -> bool {
    match action {
        Action::Accept | Action::Mod { field: FieldId::Out, .. } => false,
        Action::Drop { ten_thousandths } => *ten_thousandths < 10_000,
        _ => true,
    }
}

/// An address whose first bit is the number's highest one.
fn wide(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => address.into(),
    }
}

/// So many of the first bits of an address.
fn first(address: u128, bits: u8) -> (u128, u8) {
    let rest = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
    (address & !rest, bits)
}

/// The first bits that all of these addresses and subnets have in common.
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
