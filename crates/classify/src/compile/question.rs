//! What one match asks.

use std::net::IpAddr;

use mmb_lang::{
    Comparison, Cond, Diagnostic, FieldDef, FieldId, Match, MatchExpr, Value, ValueItem, ValueKind,
};
use mmb_packet::{Ip6Ext, Kind, Loc, NamedOption, PayloadLayer};

use crate::masked::Masked;
use crate::pattern::{Field, Presence};
use crate::predicate::{Ask, How, Kinds, Source};
use crate::ranges::{Ranges, largest};

/// What a match asks, apart from its `!`.
#[derive(Clone, Debug)]
pub(super) enum Question {
    /// Nothing: the answer is yes.
    Always,
    /// The packet has the field, and its value is in the set.
    Value {
        field: Field,
        /// What holds for every packet that has the field.
        implied: Masked,
        set: Ranges,
    },
    /// The packet has these bytes at all, and what `ask` asks of them is true (`equal`) or false.
    Bytes {
        /// What holds for every packet that has the bytes; all there is to say about that if `exists` is None.
        implied: Masked,
        /// That there are such bytes; None only if `equal` (what is asked of bytes that are not there is false).
        exists: Option<Ask>,
        ask: Ask,
        equal: bool,
    },
}

/// The question of a match.
pub(super) fn of(one: &Match, ifaces: &dyn Fn(&str) -> Option<u16>) -> Result<Question, Diagnostic> {
    let MatchExpr::Field { field, arg } = &one.what else { return Ok(Question::Always) };
    let (def, arg) = (field.def(), arg.as_ref());
    let asked = match (source(*field), def.loc) {
        (Some(source), _) if matches!(source, Source::Payload(_)) || arg.is_some() => bytes(source, arg),
        _ if *field == FieldId::NetProto => network(def, arg),
        (_, Some(Loc::TcpOptionAny)) if let Some(arg) = arg => option_kinds(def, arg),
        (_, Some(loc)) => return fixed(one, def, loc, arg, ifaces),
        (_, None) => None,
    };
    asked.ok_or_else(|| unsupported(one))
}

/// A value that stands in the window, or the presence of a field.
fn fixed(
    one: &Match,
    def: &FieldDef,
    loc: Loc,
    arg: Option<&Comparison>,
    ifaces: &dyn Fn(&str) -> Option<u16>,
) -> Result<Question, Diagnostic> {
    let set = match (arg, def.kind) {
        (Some(arg), _) => values(one, def, arg, ifaces)?,
        (None, ValueKind::Flag) => Ranges::new([(1, 1)]),
        (None, ValueKind::Shorthand(codepoint)) => Ranges::new([(codepoint.into(), codepoint.into())]),
        (None, _) => return presence(loc).ok_or_else(|| unsupported(one)),
    };
    let question = || {
        let width = u8::try_from(def.width_bits).ok()?;
        let (chunk, first) = (loc.window_bit() / 128, loc.window_bit() % 128);
        let shift = 128usize.checked_sub(first + usize::from(width))?;
        let field = Field { chunk: chunk as u8, shift: shift as u8, width, present: test(loc.valued()) };
        Some(Question::Value { field, implied: implied(loc)?.and(&field.present.masked())?, set })
    };
    question().ok_or_else(|| unsupported(one))
}

/// That the packet has the field at `loc`.
fn presence(loc: Loc) -> Option<Question> {
    let field = Field { chunk: 0, shift: 0, width: 0, present: test(loc.present()) };
    Some(Question::Value { field, implied: implied(loc)?, set: Ranges::all(0) })
}

fn test((byte, mask, value): (usize, u8, u8)) -> Presence {
    Presence { byte: byte as u8, mask, value }
}

/// What holds for every packet that has the field: the option or extension header, too, and the header it is in.
fn implied(loc: Loc) -> Option<Masked> {
    let around = match loc {
        Loc::TcpOption(_) => implied(Loc::TcpOptionAny)?,
        Loc::TcpOptionAny => test(Loc::Tcp(0).present()).masked(),
        Loc::Ip6Ext(Ip6Ext::Any) => test(Loc::Ip6(0).present()).masked(),
        Loc::Ip6Ext(_) => implied(Loc::Ip6Ext(Ip6Ext::Any))?,
        Loc::Icmp(_) => test(Loc::Ip4(0).present()).masked(),
        Loc::Icmp6(_) => test(Loc::Ip6(0).present()).masked(),
        _ => Masked::ANY,
    };
    around.and(&test(loc.present()).masked())
}

/// The values that fit the condition.
fn values(
    one: &Match,
    def: &FieldDef,
    arg: &Comparison,
    ifaces: &dyn Fn(&str) -> Option<u16>,
) -> Result<Ranges, Diagnostic> {
    let width = u8::try_from(def.width_bits).map_err(|_| unsupported(one))?;
    let mut items = Vec::with_capacity(arg.values.len());
    for item in arg.values.iter() {
        items.push(match item {
            ValueItem::Single(value) => range(one, width, value, ifaces)?,
            ValueItem::Range(ends) => {
                let [low, high] = &**ends;
                (range(one, width, low, ifaces)?.0, range(one, width, high, ifaces)?.1)
            }
        });
    }
    by_condition(arg.cond, items, width).ok_or_else(|| unsupported(one))
}

/// The values of a single item; a prefix is a range.
fn range(
    one: &Match,
    width: u8,
    value: &Value,
    ifaces: &dyn Fn(&str) -> Option<u16>,
) -> Result<(u128, u128), Diagnostic> {
    let whole = |number: u128| (number, number);
    let network = |address: u128, bits: u8, len: u8| {
        let ignored = if bits == width { width.checked_sub(len) } else { None };
        ignored.map(|ignored| (address & !largest(ignored), address | largest(ignored)))
    };
    let range = match value {
        Value::Int(n) => Some(whole((*n).into())),
        Value::Prefix { addr: IpAddr::V4(addr), len } => network(u32::from(*addr).into(), 32, *len),
        Value::Prefix { addr: IpAddr::V6(addr), len } => network((*addr).into(), 128, *len),
        Value::Iface(name) => {
            let port = ifaces(name).ok_or_else(|| {
                Diagnostic::new(name.span.span(), format!("there is no interface {:?}", &*name.text))
                    .with_help("`show interfaces` lists those there are")
            })?;
            Some(whole(port.into()))
        }
        Value::Bytes(_) | Value::Option { .. } => None,
    };
    range.ok_or_else(|| unsupported(one))
}

/// The values of `width` bits that fit a condition with these items; None: it takes one value, or is for bytes.
fn by_condition(cond: Cond, items: Vec<(u128, u128)>, width: u8) -> Option<Ranges> {
    let last = largest(width);
    let one = match *items {
        [(low, high)] if low == high => Some(low),
        _ => None,
    };
    let below = |end: u128| end.checked_sub(1).map_or(Ranges::none(), |high| Ranges::new([(0, high)]));
    let upto = |set: Ranges| set.and(&Ranges::all(width));
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

/// The ethertypes of IP by way of [`Kind`], which is in the chunk that every mask uses; rules see no others.
fn network(def: &FieldDef, arg: Option<&Comparison>) -> Option<Question> {
    let number = |value: &Value| if let Value::Int(n) = value { Some(u128::from(*n)) } else { None };
    let arg = arg?;
    let items = arg.values.iter().map(|item| match item {
        ValueItem::Single(value) => number(value).map(|n| (n, n)),
        ValueItem::Range(ends) => number(&ends[0]).zip(number(&ends[1])),
    });
    let set = by_condition(arg.cond, items.collect::<Option<Vec<_>>>()?, u8::try_from(def.width_bits).ok()?)?;
    let (byte, mask, ip4) = Loc::Ip4(0).present();
    let field =
        |value| Field { chunk: 0, shift: 0, width: 0, present: Presence { byte: byte as u8, mask, value } };
    let is = |value| {
        let field = field(value);
        Some(Question::Value { field, implied: field.present.masked(), set: Ranges::all(0) })
    };
    match (set.contains(0x0800), set.contains(0x86dd)) {
        (true, true) => Some(Question::Always),
        (true, false) => is(ip4),
        (false, true) => is(Kind::IP6),
        (false, false) => {
            Some(Question::Value { field: field(0), implied: Masked::ANY, set: Ranges::none() })
        }
    }
}

/// For the presence of one network header: that of the other, since rules see IP only.
pub(super) fn other_network(present: &Presence) -> Option<Masked> {
    let (ip4, ip6) = (test(Loc::Ip4(0).present()), test(Loc::Ip6(0).present()));
    let other = if *present == ip4 { ip6 } else { ip4 };
    (*present == ip4 || *present == ip6).then(|| other.masked())
}

/// The bytes that a field is about, for fields whose values are bytes.
fn source(field: FieldId) -> Option<Source> {
    Some(match field {
        FieldId::IpPayload => Source::Payload(PayloadLayer::Ip),
        FieldId::Ip6Payload => Source::Payload(PayloadLayer::Ip6),
        FieldId::IcmpPayload => Source::Payload(PayloadLayer::Icmp),
        FieldId::Icmp6Payload => Source::Payload(PayloadLayer::Icmp6),
        FieldId::UdpPayload => Source::Payload(PayloadLayer::Udp),
        FieldId::TcpPayload => Source::Payload(PayloadLayer::Tcp),
        FieldId::TcpOptSack => Source::Option(NamedOption::Sack),
        FieldId::TcpOptFastOpen => Source::Option(NamedOption::FastOpen),
        FieldId::TcpOptMptcp => Source::Option(NamedOption::Mptcp),
        _ => return None,
    })
}

/// A question about literal bytes, or whether there are any.
fn bytes(source: Source, arg: Option<&Comparison>) -> Option<Question> {
    let (loc, exists) = match source {
        Source::Payload(which) => (header(which), Ask::Exists(which)),
        Source::Option(option) => (Loc::TcpOption(option), Ask::OptionKind(Kinds::new([option.kind()]))),
    };
    let implied = implied(loc)?;
    let Some(arg) = arg else {
        return Some(Question::Bytes { implied, exists: None, ask: exists, equal: true });
    };
    let how = match (arg.cond, source) {
        (Cond::Contains, _) => How::Contains,
        (Cond::Eq | Cond::Ne, Source::Payload(_)) => How::Starts,
        (Cond::Eq | Cond::Ne, Source::Option(_)) => How::Equals,
        _ => return None,
    };
    let literal = |item: &ValueItem| match item {
        ValueItem::Single(Value::Bytes(literal)) => Some(literal.clone()),
        _ => None,
    };
    let ask = Ask::bytes(source, how, arg.values.iter().map(literal).collect::<Option<Vec<_>>>()?)?;
    let equal = arg.cond != Cond::Ne;
    Some(Question::Bytes { implied, exists: (!equal).then_some(exists), ask, equal })
}

/// The header that a payload stands behind.
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

/// `tcp-opt` with a condition on the kinds: some option's kind fits; with `!=`, there is an option and none fits.
fn option_kinds(def: &FieldDef, arg: &Comparison) -> Option<Question> {
    let number = |value: &Value| if let Value::Int(n) = value { Some(u128::from(*n)) } else { None };
    let items = arg.values.iter().map(|item| match item {
        ValueItem::Single(value) => number(value).map(|n| (n, n)),
        ValueItem::Range(ends) => number(&ends[0]).zip(number(&ends[1])),
    });
    let equal = arg.cond != Cond::Ne;
    let cond = if equal { arg.cond } else { Cond::Eq };
    let set = by_condition(cond, items.collect::<Option<Vec<_>>>()?, u8::try_from(def.width_bits).ok()?)?;
    let kinds = Kinds::new((2..=u8::MAX).filter(|kind| set.contains((*kind).into())));
    let any = Kinds::new(2..=u8::MAX);
    let there = presence(Loc::TcpOptionAny);
    match (kinds.single().and_then(NamedOption::of), equal) {
        (Some(named), true) => presence(Loc::TcpOption(named)),
        _ if kinds == if equal { any } else { Kinds::default() } => there,
        _ if kinds == if equal { Kinds::default() } else { any } => nothing(there?),
        _ => {
            let exists = (!equal).then_some(Ask::OptionKind(any));
            let implied = implied(Loc::TcpOptionAny)?;
            Some(Question::Bytes { implied, exists, ask: Ask::OptionKind(kinds), equal })
        }
    }
}

/// A question about the same field that no packet answers with yes.
fn nothing(question: Question) -> Option<Question> {
    let Question::Value { field, implied, .. } = question else { return None };
    Some(Question::Value { field, implied, set: Ranges::none() })
}

fn unsupported(one: &Match) -> Diagnostic {
    Diagnostic::new(one.span.span(), "the engine cannot match this")
        .with_help("`show fields` says what can be matched")
}
