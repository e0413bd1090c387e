//! The condition of one match.

use mmb_lang::{
    Comparison, Cond, Diagnostic, FieldDef, FieldId, Match, MatchExpr, Value, ValueItem, ValueKind,
};
use mmb_packet::{Ip6Ext, Kind, Loc, NamedOption, PayloadLayer};

use crate::pattern::{
    ByteSource, Field, MaskedKey, MemberKey, OptionKinds, Predicate, Presence, Ranges, Relation, largest,
};

/// The condition of a match, without its `!`.
#[derive(Clone, Debug)]
pub(super) enum Condition {
    /// Always true.
    Always,
    /// The packet has the field, and its value is in `set`.
    Value {
        field: Field,
        /// Holds for every packet that has the field.
        implied: MaskedKey,
        set: Ranges,
    },
    /// The packet has these bytes, and `predicate` is true (`equal`) or false for them.
    Bytes {
        /// Holds for every packet that has the bytes. If `exists` is None, it is also sufficient.
        implied: MaskedKey,
        /// The predicate that the bytes exist. None only if `equal`, since a predicate is false for absent
        /// bytes.
        exists: Option<Predicate>,
        predicate: Predicate,
        equal: bool,
    },
    /// The packet has a field or a pair of fields, whose value is in a named set (`equal`) or not.
    Member {
        /// Holds for every packet that has the fields, and for no other.
        implied: MaskedKey,
        /// The predicate that the packet has the fields.
        present: Predicate,
        /// The predicate that the value is in the set.
        predicate: Predicate,
        equal: bool,
    },
}

/// The condition of a match.
pub(super) fn of(one: &Match, ifaces: &dyn Fn(&str) -> Option<u16>) -> Result<Condition, Diagnostic> {
    let MatchExpr::Field { field, arg } = &one.what else { return Ok(Condition::Always) };
    let (def, arg) = (field.def(), arg.as_ref());
    let asked = match (source(*field), def.loc) {
        (Some(source), _) if matches!(source, ByteSource::Payload(_)) || arg.is_some() => bytes(source, arg),
        _ if *field == FieldId::NetProto => network(def, arg),
        (_, Some(Loc::TcpOptionAny)) if let Some(arg) = arg => option_kinds(def, arg),
        (_, Some(loc)) => return fixed(one, def, loc, arg, ifaces),
        (_, None) => None,
    };
    asked.ok_or_else(|| unsupported(one))
}

/// A condition on a value in the window, or on the presence of a field.
fn fixed(
    one: &Match,
    def: &FieldDef,
    loc: Loc,
    arg: Option<&Comparison>,
    ifaces: &dyn Fn(&str) -> Option<u16>,
) -> Result<Condition, Diagnostic> {
    if let Some(arg) = arg
        && let Some(name) = arg.named_set()
    {
        return member(def, loc, name, arg).ok_or_else(|| unsupported(one));
    }
    let set = match (arg, def.kind) {
        (Some(arg), _) => values(one, def, arg, ifaces)?,
        (None, ValueKind::Flag) => Ranges::new([(1, 1)]),
        (None, ValueKind::Shorthand(codepoint)) => Ranges::new([(codepoint.into(), codepoint.into())]),
        (None, _) => return presence(loc).ok_or_else(|| unsupported(one)),
    };
    let condition = || {
        let field = field_of(def, loc)?;
        Some(Condition::Value { field, implied: implied(loc)?.and(&field.present.masked())?, set })
    };
    condition().ok_or_else(|| unsupported(one))
}

/// The place of a field's value in the window.
fn field_of(def: &FieldDef, loc: Loc) -> Option<Field> {
    let width = u8::try_from(def.width_bits).ok()?;
    let (chunk, first) = (loc.window_bit() / 128, loc.window_bit() % 128);
    let shift = 128usize.checked_sub(first + usize::from(width))?;
    Some(Field { chunk: chunk as u8, shift: shift as u8, width, present: test(loc.valued()) })
}

/// The condition that the value of a field, or a pair of values, is in a named set, or is not.
fn member(def: &FieldDef, loc: Loc, name: &str, arg: &Comparison) -> Option<Condition> {
    let equal = match arg.cond {
        Cond::Eq => true,
        Cond::Ne => false,
        _ => return None,
    };
    let (field, mut all) = present_field(def, loc)?;
    let mut key = MemberKey { field, port: None };
    if let Some(port) = arg.pair_port() {
        let (port, implied) = present_field(port.def(), port.def().loc?)?;
        (key.port, all) = (Some(port), all.and(&implied)?);
    }
    let predicate = Predicate::Member { set: name.into(), key };
    Some(Condition::Member { implied: all, present: Predicate::Present(key), predicate, equal })
}

/// A field, and bits that the packets that have it have, and no others.
fn present_field(def: &FieldDef, loc: Loc) -> Option<(Field, MaskedKey)> {
    let field = field_of(def, loc)?;
    Some((field, implied(loc)?.and(&field.present.masked())?))
}

/// The condition that the packet has the field at `loc`.
fn presence(loc: Loc) -> Option<Condition> {
    let field = Field { chunk: 0, shift: 0, width: 0, present: test(loc.present()) };
    Some(Condition::Value { field, implied: implied(loc)?, set: Ranges::all(0) })
}

fn test((byte, mask, value): (usize, u8, u8)) -> Presence {
    Presence { byte: byte as u8, mask, value }
}

/// Bits that every packet with the field has: presence of the option or extension header, and of the header
/// around it.
fn implied(loc: Loc) -> Option<MaskedKey> {
    let around = match loc {
        Loc::TcpOption(_) => implied(Loc::TcpOptionAny)?,
        Loc::TcpOptionAny => test(Loc::Tcp(0).present()).masked(),
        Loc::Ip6Ext(Ip6Ext::Any) => test(Loc::Ip6(0).present()).masked(),
        Loc::Ip6Ext(_) => implied(Loc::Ip6Ext(Ip6Ext::Any))?,
        Loc::Icmp(_) => test(Loc::Ip4(0).present()).masked(),
        Loc::Icmp6(_) => test(Loc::Ip6(0).present()).masked(),
        _ => MaskedKey::ANY,
    };
    around.and(&test(loc.present()).masked())
}

/// The values that satisfy the match.
fn values(
    one: &Match,
    def: &FieldDef,
    arg: &Comparison,
    ifaces: &dyn Fn(&str) -> Option<u16>,
) -> Result<Ranges, Diagnostic> {
    let width = u8::try_from(def.width_bits).map_err(|_| unsupported(one))?;
    let mut items = Vec::with_capacity(arg.values.len());
    for item in arg.values.iter() {
        let bounds = match item {
            ValueItem::Single(Value::Iface(name)) => {
                let port = ifaces(name).ok_or_else(|| {
                    Diagnostic::new(name.span.span(), format!("there is no interface {:?}", &*name.text))
                        .with_help("`show interfaces` lists the interfaces")
                })?;
                Some((port.into(), port.into()))
            }
            _ => item.bounds().filter(|(_, last)| *last <= largest(width)),
        };
        items.push(bounds.ok_or_else(|| unsupported(one))?);
    }
    by_condition(arg.cond, items, width).ok_or_else(|| unsupported(one))
}

/// The values of `width` bits that satisfy a condition with these items. None if the condition takes a single
/// value, or is for bytes.
fn by_condition(cond: Cond, items: Vec<(u128, u128)>, width: u8) -> Option<Ranges> {
    let last = largest(width);
    let one = match *items {
        [(low, high)] if low == high => Some(low),
        _ => None,
    };
    let below = |end: u128| end.checked_sub(1).map_or(Ranges::none(), |high| Ranges::new([(0, high)]));
    let upto = |set: Ranges| set.within(width);
    Some(match cond {
        Cond::Eq => upto(Ranges::new(items)),
        Cond::Ne => Ranges::new(items).complement(width),
        Cond::Lt => upto(below(one?)),
        Cond::Le => upto(Ranges::new([(0, one?)])),
        Cond::Gt => Ranges::new([(0, one?)]).complement(width),
        Cond::Ge => upto(Ranges::new([(one?, last)])),
        Cond::Contains => return None,
    })
}

/// The condition on the ethertype, expressed by [`Kind`], which is in the first chunk. Rules see only IP.
fn network(def: &FieldDef, arg: Option<&Comparison>) -> Option<Condition> {
    let arg = arg?;
    let items = arg.values.iter().map(ValueItem::bounds);
    let set = by_condition(arg.cond, items.collect::<Option<Vec<_>>>()?, u8::try_from(def.width_bits).ok()?)?;
    let (byte, mask, ip4) = Loc::Ip4(0).present();
    let field =
        |value| Field { chunk: 0, shift: 0, width: 0, present: Presence { byte: byte as u8, mask, value } };
    let is = |value| {
        let field = field(value);
        Some(Condition::Value { field, implied: field.present.masked(), set: Ranges::all(0) })
    };
    match (set.contains(0x0800), set.contains(0x86dd)) {
        (true, true) => Some(Condition::Always),
        (true, false) => is(ip4),
        (false, true) => is(Kind::IP6),
        (false, false) => {
            Some(Condition::Value { field: field(0), implied: MaskedKey::ANY, set: Ranges::none() })
        }
    }
}

/// For the presence of one network header: the presence of the other one. Every packet has one of both.
pub(super) fn other_network(present: &Presence) -> Option<MaskedKey> {
    let (ip4, ip6) = (test(Loc::Ip4(0).present()), test(Loc::Ip6(0).present()));
    let other = if *present == ip4 { ip6 } else { ip4 };
    (*present == ip4 || *present == ip6).then(|| other.masked())
}

/// The bytes of a field whose values are bytes.
fn source(field: FieldId) -> Option<ByteSource> {
    Some(match field {
        FieldId::IpPayload => ByteSource::Payload(PayloadLayer::Ip),
        FieldId::Ip6Payload => ByteSource::Payload(PayloadLayer::Ip6),
        FieldId::IcmpPayload => ByteSource::Payload(PayloadLayer::Icmp),
        FieldId::Icmp6Payload => ByteSource::Payload(PayloadLayer::Icmp6),
        FieldId::UdpPayload => ByteSource::Payload(PayloadLayer::Udp),
        FieldId::TcpPayload => ByteSource::Payload(PayloadLayer::Tcp),
        FieldId::TcpOptSack => ByteSource::Option(NamedOption::Sack),
        FieldId::TcpOptFastOpen => ByteSource::Option(NamedOption::FastOpen),
        FieldId::TcpOptMptcp => ByteSource::Option(NamedOption::Mptcp),
        _ => return None,
    })
}

/// A condition on literal bytes, or on their presence.
fn bytes(source: ByteSource, arg: Option<&Comparison>) -> Option<Condition> {
    let (loc, exists) = match source {
        ByteSource::Payload(which) => (header(which), Predicate::Exists(which)),
        ByteSource::Option(option) => {
            (Loc::TcpOption(option), Predicate::OptionKind(OptionKinds::new([option.kind()])))
        }
    };
    let implied = implied(loc)?;
    let Some(arg) = arg else {
        return Some(Condition::Bytes { implied, exists: None, predicate: exists, equal: true });
    };
    let relation = match (arg.cond, source) {
        (Cond::Contains, _) => Relation::Contains,
        (Cond::Eq | Cond::Ne, ByteSource::Payload(_)) => Relation::Starts,
        (Cond::Eq | Cond::Ne, ByteSource::Option(_)) => Relation::Equals,
        _ => return None,
    };
    let literal = |item: &ValueItem| match item {
        ValueItem::Single(Value::Bytes(literal)) => Some(literal.clone()),
        _ => None,
    };
    let predicate =
        Predicate::bytes(source, relation, arg.values.iter().map(literal).collect::<Option<Vec<_>>>()?)?;
    let equal = arg.cond != Cond::Ne;
    Some(Condition::Bytes { implied, exists: (!equal).then_some(exists), predicate, equal })
}

/// The header in front of a payload.
fn header(payload: PayloadLayer) -> Loc {
    match payload {
        PayloadLayer::Ip => Loc::Ip4(0),
        PayloadLayer::Ip6 => Loc::Ip6(0),
        PayloadLayer::Icmp => Loc::Icmp(0),
        PayloadLayer::Icmp6 => Loc::Icmp6(0),
        PayloadLayer::Udp => Loc::Udp(0),
        PayloadLayer::Tcp => Loc::Tcp(0),
    }
}

/// The condition of `tcp-opt` with option kinds: some option has one of these kinds. With `!=`: there is an
/// option, and none has one of these kinds.
fn option_kinds(def: &FieldDef, arg: &Comparison) -> Option<Condition> {
    let items = arg.values.iter().map(ValueItem::bounds);
    let equal = arg.cond != Cond::Ne;
    let cond = if equal { arg.cond } else { Cond::Eq };
    let set = by_condition(cond, items.collect::<Option<Vec<_>>>()?, u8::try_from(def.width_bits).ok()?)?;
    let kinds = OptionKinds::new((2..=u8::MAX).filter(|kind| set.contains((*kind).into())));
    let any = OptionKinds::new(2..=u8::MAX);
    let there = presence(Loc::TcpOptionAny);
    match (kinds.single().and_then(NamedOption::of), equal) {
        (Some(named), true) => presence(Loc::TcpOption(named)),
        _ if kinds == if equal { any } else { OptionKinds::default() } => there,
        _ if kinds == if equal { OptionKinds::default() } else { any } => nothing(there?),
        _ => {
            let exists = (!equal).then_some(Predicate::OptionKind(any));
            let implied = implied(Loc::TcpOptionAny)?;
            Some(Condition::Bytes { implied, exists, predicate: Predicate::OptionKind(kinds), equal })
        }
    }
}

/// A condition on the same field that no packet satisfies.
fn nothing(condition: Condition) -> Option<Condition> {
    let Condition::Value { field, implied, .. } = condition else { return None };
    Some(Condition::Value { field, implied, set: Ranges::none() })
}

fn unsupported(one: &Match) -> Diagnostic {
    Diagnostic::new(one.span.span(), "the engine cannot match this")
        .with_help("`show fields` lists what can be matched")
}
