//! Facts that hold for all packets that match a rule. A rule that no packet can match is rejected.
//!
//! # Theory of operation
//!
//! Positive equality matches determine header bits. [`Facts`] stores, per header, which bits are determined
//! and their values, and which network and transport protocol the fields imply. Three linear passes over the
//! matches: first protocols, since they determine bits themselves (TCP over IPv4 implies `ip-proto` 6 and
//! fragment offset 0); then equalities; then negations and `!=`, which contradict if all of their bits are
//! determined to the excluded value. Facts are sound but not complete: a rejected rule never matches, but an
//! accepted rule may still match nothing. Further passes check what bits cannot express: which options,
//! extension headers and payloads are present or absent; which numbers remain for each field with ranges,
//! sets or comparisons; which kinds of options remain.

use std::net::IpAddr;

use mmb_packet::Loc;

use super::bits::Header;
use super::{domain, kinds};
use crate::ast::{Action, Comparison, Cond, Match, MatchExpr, Target, Value, ValueItem};
use crate::diag::{Diagnostic, quote};
use crate::field::{FieldDef, FieldId, Layer, ValueKind};
use crate::names::{ETHERTYPE_IP4, ETHERTYPE_IP6};
use crate::ranges::{Range, complement};

/// Facts about all matching packets.
#[derive(Default)]
pub(super) struct Facts<'a> {
    /// [`Layer::Ip4`] or [`Layer::Ip6`].
    l3: Option<Layer>,
    /// A transport protocol.
    l4: Option<Layer>,
    /// Excluded transport protocols, as [`flag`]s.
    not_l4: u16,
    /// Bits of the headers, indexed by [`place`].
    headers: [Header; 6],
    /// Options, extension headers and payloads that are present, and that are absent, as [`bit`]s.
    present: u128,
    absent: u128,
    /// Options with a value.
    valued: u128,
    input: Option<&'a str>,
    output: Option<&'a str>,
}

/// The value that a match requires or excludes.
struct Wanted<'a> {
    def: &'static FieldDef,
    what: Bits<'a>,
    /// Whether the value is required; otherwise it is excluded if the field is present.
    equal: bool,
}

enum Bits<'a> {
    /// The name of an interface.
    Name(&'a str),
    /// The bits, right-aligned like the field's value, in the header at this [`place`].
    Masked { header: usize, bit: u16, mask: u128, key: u128 },
}

impl<'a> Facts<'a> {
    /// The facts of a rule's matches. [`super::check_match`] must have accepted them.
    pub(super) fn of(matches: &'a [Match]) -> Result<Self, Diagnostic> {
        Self::collect(matches.iter()).map_err(|index| contradiction(matches, index))
    }

    /// The facts, or the index of a match that contradicts the others.
    fn collect(matches: impl Iterator<Item = &'a Match> + Clone) -> Result<Self, usize> {
        let mut facts = Self::default();
        let pass = |holds: &mut dyn FnMut(&'a Match) -> bool| {
            matches.clone().position(|one| !holds(one)).map_or(Ok(()), Err)
        };
        pass(&mut |one| facts.learn_protocol(one))?;
        facts.imply();
        pass(&mut |one| wanted(one).is_none_or(|wanted| !wanted.equal || facts.learn(&wanted)))?;
        pass(&mut |one| facts.learn_negative(one))?;
        pass(&mut |one| facts.learn_part(one))?;
        facts.learn_numbers(matches.clone())?;
        if facts.present & bit(FieldId::TcpOpt) != 0 {
            kinds::check(matches)?;
        }
        Ok(facts)
    }

    /// Learns the protocols of a match. False on a contradiction.
    fn learn_protocol(&mut self, one: &Match) -> bool {
        let MatchExpr::Field { field, arg } = &one.what else { return true };
        let def = field.def();
        if def.proto == Layer::Network {
            return match network_protocols(one.negated, arg.as_ref()) {
                (true, true) => true,
                (true, false) => set(&mut self.l3, Layer::Ip4),
                (false, true) => set(&mut self.l3, Layer::Ip6),
                (false, false) => false,
            };
        }
        if one.negated {
            // A negated condition on a value also holds without the header. Only a negated presence implies
            // anything.
            return arg.is_some()
                || !def.in_header()
                || match (def.kind, def.proto) {
                    (ValueKind::Flag | ValueKind::Shorthand(_), _) => true,
                    (_, Layer::Ip4) => set(&mut self.l3, Layer::Ip6),
                    (_, Layer::Ip6) => set(&mut self.l3, Layer::Ip4),
                    (_, l4) => {
                        self.not_l4 |= flag(l4);
                        true
                    }
                };
        }
        let port = one.pair_port().is_none_or(|port| set(&mut self.l4, port.def().proto));
        port && match def.proto {
            Layer::Interface | Layer::Network => true,
            l3 @ (Layer::Ip4 | Layer::Ip6) => set(&mut self.l3, l3),
            l4 @ Layer::Icmp => set(&mut self.l4, l4) && set(&mut self.l3, Layer::Ip4),
            l4 @ Layer::Icmp6 => set(&mut self.l4, l4) && set(&mut self.l3, Layer::Ip6),
            l4 @ (Layer::Udp | Layer::Tcp) => set(&mut self.l4, l4),
        }
    }

    /// Sets the bits that the protocols imply.
    fn imply(&mut self) {
        // A header has its own version. Packets with another version are dropped as malformed before.
        self.headers[IP4].fix(0, 0xf, 4, 4);
        self.headers[IP6].fix(0, 0xf, 6, 4);
        if let (Some(Layer::Ip4), Some(l4)) = (self.l3, self.l4) {
            self.headers[IP4].fix(IP4_PROTO, 0xff, number(l4).into(), 8);
            self.headers[IP4].fix(IP4_OFFSET, 0x1fff, 0, 13);
        }
    }

    /// Learns the value of a field. False on a contradiction.
    fn learn(&mut self, wanted: &Wanted<'a>) -> bool {
        match wanted.what {
            Bits::Name(name) if wanted.def.id == FieldId::In => set(&mut self.input, name),
            Bits::Name(name) => set(&mut self.output, name),
            Bits::Masked { header, bit, mask, key } => {
                self.headers[header].fix(bit, mask, key, wanted.def.width_bits)
                    && self.l4.is_none_or(|l4| self.next_header_allows(l4))
            }
        }
    }

    /// Learns an excluded value or an absent header. False on a contradiction.
    fn learn_negative(&mut self, one: &Match) -> bool {
        if self.l4.is_some() && is_negated_presence(one, self.l4) {
            return false;
        }
        let Some(wanted) = wanted(one).filter(|wanted| !wanted.equal) else { return true };
        if !self.has(wanted.def.proto) {
            return true;
        }
        match wanted.what {
            Bits::Name(name) if wanted.def.id == FieldId::In => self.input != Some(name),
            Bits::Name(name) => self.output != Some(name),
            Bits::Masked { header, bit, mask, key } => {
                if wanted.def.id == FieldId::IpProto {
                    let l4 = L4.iter().find(|(_, number)| key == (*number).into());
                    self.not_l4 |= l4.map_or(0, |(l4, _)| flag(*l4));
                }
                !self.headers[header].is_fixed_to(bit, mask, key, wanted.def.width_bits)
            }
        }
    }

    /// Learns a present or absent option, extension header or payload. False on a contradiction.
    fn learn_part(&mut self, one: &Match) -> bool {
        let MatchExpr::Field { field, arg } = &one.what else { return true };
        let def = field.def();
        if def.in_header() {
            return true;
        }
        if !one.negated {
            let any = match def.loc {
                Some(Loc::TcpOption(_)) => bit(FieldId::TcpOpt),
                Some(Loc::Ip6Ext(_)) => bit(FieldId::Ip6Eh),
                _ => 0,
            };
            self.present |= bit(*field) | any;
            self.valued |= if arg.is_some() { bit(*field) } else { 0 };
        } else if arg.is_none() {
            self.absent |= bit(*field);
        }
        self.present & self.absent == 0
    }

    /// Checks which numbers remain for fields with more than equality. The error is the index of the last
    /// match on a field without remaining values.
    fn learn_numbers(&mut self, matches: impl Iterator<Item = &'a Match> + Clone) -> Result<(), usize> {
        if !matches.clone().any(domain::is_complex) {
            return Ok(());
        }
        let mut excluded: Vec<(FieldId, Range)> = Vec::new();
        for one in matches.clone() {
            let Some((def, ranges)) = domain::excluded(one) else { continue };
            // A negated condition also holds without a value.
            let has_value =
                if def.in_header() { self.has(def.proto) } else { self.valued & bit(def.id) != 0 };
            if !one.negated || has_value {
                let fixed = self.number(def).map(|value| complement(vec![(value, value)], def.largest()));
                excluded.extend(ranges.into_iter().chain(fixed.into_iter().flatten()).map(|r| (def.id, r)));
            }
        }
        excluded.sort_unstable();
        for group in excluded.chunk_by(|a, b| a.0 == b.0) {
            let field = group[0].0;
            let ranges: Vec<Range> = group.iter().map(|(_, range)| *range).collect();
            if field == FieldId::IpProto {
                for (l4, number) in L4 {
                    let out = ranges.iter().any(|(low, high)| (*low..=*high).contains(&number.into()));
                    self.not_l4 |= if out { flag(l4) } else { 0 };
                }
            }
            if complement(ranges, field.def().largest()).is_empty() {
                let about =
                    |one: &Match| matches!(&one.what, MatchExpr::Field { field: f, .. } if *f == field);
                return Err(matches.enumerate().filter(|(_, one)| about(one)).last().map_or(0, |(i, _)| i));
            }
        }
        Ok(())
    }

    /// The value of a header field, if all of its bits are determined.
    fn number(&self, def: &FieldDef) -> Option<u128> {
        let (header, bit) = place(def.loc?)?;
        if def.width_bits > 32 {
            return None;
        }
        self.headers[header].get(bit, def.width_bits).map(u128::from)
    }

    /// Whether all matching packets have the header.
    fn has(&self, layer: Layer) -> bool {
        matches!(layer, Layer::Interface | Layer::Network) || self.l3 == Some(layer) || self.l4 == Some(layer)
    }

    /// Rejects a target that applies to no matching packet.
    pub(super) fn check_reach(&self, target: &Target) -> Result<(), Diagnostic> {
        let (layer, what) = match &target.action {
            Action::Mod { field, .. } => (field.def().proto, format!("mod {field}")),
            Action::Add { field, .. } => (field.def().proto, format!("add {field}")),
            Action::Strip { .. } | Action::StripAll => (Layer::Tcp, target.to_string()),
            Action::Map { field, .. } => (field.def().proto, format!("map {field}")),
            Action::Shuffle { field, .. } => (field.def().proto, format!("shuffle {field}")),
            Action::Nat { .. } => (Layer::Ip4, target.to_string()),
            Action::Lb { addresses } => {
                let other = addresses.iter().find(|one| self.l3 == Some(other_family(one)));
                match other {
                    Some(address) if address.is_ipv4() => (Layer::Ip4, format!("lb {address}")),
                    Some(address) => (Layer::Ip6, format!("lb {address}")),
                    None => return Ok(()),
                }
            }
            _ => return Ok(()),
        };
        let can_be = match layer {
            Layer::Interface | Layer::Network => true,
            Layer::Ip4 | Layer::Ip6 => self.l3.is_none_or(|l3| l3 == layer),
            Layer::Icmp => self.l3 != Some(Layer::Ip6) && self.allows(layer),
            Layer::Icmp6 => self.l3 != Some(Layer::Ip4) && self.allows(layer),
            Layer::Udp | Layer::Tcp => self.allows(layer),
        };
        if can_be {
            return Ok(());
        }
        let message =
            format!("`{what}` never applies: the rule's matches leave no packet with {}", header(layer));
        Err(Diagnostic::new(target.span.span(), message))
    }

    /// Whether a matching packet may have the transport header.
    fn allows(&self, l4: Layer) -> bool {
        let ip4 = &self.headers[IP4];
        self.l4.is_none_or(|known| known == l4)
            && self.not_l4 & flag(l4) == 0
            && self.next_header_allows(l4)
            && ip4.get(IP4_PROTO, 8).is_none_or(|proto| proto == u32::from(number(l4)))
            && ip4.get(IP4_OFFSET, 13).is_none_or(|offset| offset == 0)
    }

    /// Whether the next-header field of the fixed IPv6 header may lead to the transport header.
    fn next_header_allows(&self, l4: Layer) -> bool {
        const EXTENSIONS: [u32; 8] = [0, 43, 44, 51, 60, 135, 139, 140];
        self.headers[IP6]
            .get(IP6_NEXT, 8)
            .is_none_or(|next| next == u32::from(number(l4)) || EXTENSIONS.contains(&next))
    }
}

/// Sets a fact. False if it had another value.
fn set<T: PartialEq + Copy>(fact: &mut Option<T>, value: T) -> bool {
    *fact.get_or_insert(value) == value
}

/// Whether a match on `net-proto` holds for IPv4 and for IPv6. Rules see no other packets.
fn network_protocols(negated: bool, arg: Option<&Comparison>) -> (bool, bool) {
    let Some(arg) = arg else { return (true, true) };
    let holds = |ethertype: u64| {
        let named = arg.values.contains(&ValueItem::Single(Value::Int(ethertype)));
        named == ((arg.cond == Cond::Eq) != negated)
    };
    (holds(ETHERTYPE_IP4), holds(ETHERTYPE_IP6))
}

/// Whether a match requires packets without the header.
fn is_negated_presence(one: &Match, layer: Option<Layer>) -> bool {
    match &one.what {
        MatchExpr::Field { field, arg: None } => {
            one.negated
                && Some(field.def().proto) == layer
                && field.def().in_header()
                && wanted(one).is_none()
        }
        _ => false,
    }
}

/// The value that a match requires or excludes, if it is a simple condition.
fn wanted(one: &Match) -> Option<Wanted<'_>> {
    let MatchExpr::Field { field, arg } = &one.what else { return None };
    let def = field.def();
    let loc = def.loc?;
    let width = def.width_bits;
    let all = u128::MAX.checked_shr(128_u32.saturating_sub(width.into())).unwrap_or(0);
    let (equal, mask, key) = match (arg, def.kind) {
        (None, ValueKind::Flag) => (true, 1, 1),
        (None, ValueKind::Shorthand(bits)) => (true, all, bits.into()),
        (None, _) => return None,
        (Some(arg), _) => {
            let equal = match arg.cond {
                Cond::Eq => true,
                // A negated condition holds with the value and without the header: it implies nothing.
                Cond::Ne if !one.negated => false,
                _ => return None,
            };
            match arg.values.single()? {
                Value::Int(number) => (equal, all, (*number).into()),
                Value::Prefix { addr, len } => {
                    (equal, all & !all.checked_shr((*len).into()).unwrap_or(0), bits(addr))
                }
                Value::Iface(name) => {
                    return Some(Wanted { def, what: Bits::Name(name), equal: equal != one.negated });
                }
                Value::Bytes(_) | Value::Set(_) | Value::PairSet(..) | Value::Option { .. } => return None,
            }
        }
    };
    let (header, bit) = place(loc)?;
    Some(Wanted { def, what: Bits::Masked { header, bit, mask, key }, equal: equal != one.negated })
}

fn bits(addr: &IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => addr.to_bits().into(),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

/// The message about a contradiction. It names the first other match that contradicts, if there is one, and
/// marks the later of the two.
fn contradiction(matches: &[Match], index: usize) -> Diagnostic {
    let one = &matches[index];
    let alone = Facts::collect(std::iter::once(one)).is_err();
    let pair =
        |other: &usize| *other != index && Facts::collect([&matches[*other], one].into_iter()).is_err();
    let show = |one: &Match| quote(&one.to_string());
    if alone {
        return Diagnostic::new(one.span.span(), format!("{} never holds", show(one)));
    }
    match (0..matches.len()).find(pair) {
        Some(other) => {
            let (first, last) = (&matches[index.min(other)], &matches[index.max(other)]);
            let message = format!("no packet matches both {} and {}", show(first), show(last));
            Diagnostic::new(last.span.span(), message)
        }
        None => {
            let message = format!("no packet matches {} and the rest of the rule", show(one));
            Diagnostic::new(one.span.span(), message)
        }
    }
}

/// "an IPv4 header", "a TCP header", …
fn header(layer: Layer) -> String {
    let article = if matches!(layer, Layer::Udp | Layer::Tcp) { "a" } else { "an" };
    format!("{article} {layer} header")
}

/// The transport protocols with fields, and their numbers.
const L4: [(Layer, u8); 4] = [(Layer::Tcp, 6), (Layer::Udp, 17), (Layer::Icmp, 1), (Layer::Icmp6, 58)];

/// The network protocol of the other address family.
fn other_family(address: &IpAddr) -> Layer {
    if address.is_ipv4() { Layer::Ip6 } else { Layer::Ip4 }
}

/// One bit per layer.
fn flag(layer: Layer) -> u16 {
    1 << layer as u16
}

/// One bit per field.
fn bit(field: FieldId) -> u128 {
    1 << field as u8
}

fn number(l4: Layer) -> u8 {
    L4.iter().find(|(layer, _)| *layer == l4).map_or(0, |(_, number)| *number)
}

const IP4: usize = 0;
const IP6: usize = 1;
/// Bit offsets of the fields that protocols imply.
const IP4_PROTO: u16 = 72;
const IP4_OFFSET: u16 = 51;
const IP6_NEXT: u16 = 48;

/// The header of a field, and its bit offset there.
fn place(loc: Loc) -> Option<(usize, u16)> {
    match loc {
        Loc::InPort | Loc::OutPort | Loc::Ethertype => None,
        Loc::TcpOption(_) | Loc::TcpOptionAny | Loc::Ip6Ext(_) => None,
        Loc::Ip4(bit) => Some((IP4, bit)),
        Loc::Ip6(bit) => Some((IP6, bit)),
        Loc::Tcp(bit) => Some((2, bit)),
        Loc::Udp(bit) => Some((3, bit)),
        Loc::Icmp(bit) => Some((4, bit)),
        Loc::Icmp6(bit) => Some((5, bit)),
    }
}
