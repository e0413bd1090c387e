//! Random rules over the whole language, based on its field table: stateless ones, which the oracle
//! evaluates, and stateful ones.

use std::net::IpAddr;

use mmb_lang::{
    Comparison, Cond, FIELDS, FieldDef, FieldId, Layer, Match, MatchExpr, Rule, RuleKind, Value, ValueItem,
    ValueKind, ValueSet,
};

use super::{ByteChoices, pools, targets};

/// Protocols whose fields can be in one rule.
const PROFILES: [&[Layer]; 12] = [
    &[Layer::Ip4, Layer::Tcp],
    &[Layer::Ip4, Layer::Udp],
    &[Layer::Ip6, Layer::Tcp],
    &[Layer::Ip6, Layer::Udp],
    &[Layer::Tcp],
    &[Layer::Tcp],
    &[Layer::Ip4, Layer::Tcp],
    &[Layer::Udp],
    &[Layer::Ip4],
    &[Layer::Ip6],
    &[Layer::Ip4, Layer::Icmp],
    &[Layer::Ip6, Layer::Icmp6],
];

/// A rule of up to four matches and three targets that [`mmb_lang::check`] accepts. `None` if the generated
/// rule contradicts itself, which happens once in ten times.
pub fn rule(choices: &mut ByteChoices<'_>) -> Option<Rule> {
    let rule = any_rule(choices);
    mmb_lang::check(&rule).is_ok().then_some(rule)
}

/// A rule that can contradict itself: [`crate::evaluate`] accepts it, the engine does not.
pub fn any_rule(choices: &mut ByteChoices<'_>) -> Rule {
    // A rule of negated matches only can name all protocols at once.
    let negative = choices.one_in(8);
    let layers = choices.pick(&PROFILES);
    let allowed = |def: &&FieldDef| {
        let general = matches!(def.proto, Layer::Interface | Layer::Network);
        general || negative || layers.contains(&def.proto)
    };
    let fields: Vec<&FieldDef> = FIELDS.iter().filter(allowed).collect();
    // Rules without transport matches can edit TCP options; they apply to TCP packets.
    let edits =
        |def: &&FieldDef| allowed(def) || def.is_option() && layers.len() == 1 && layers[0] != Layer::Udp;
    let edited: Vec<&FieldDef> = FIELDS.iter().filter(edits).collect();
    Rule {
        kind: choices.pick(&[RuleKind::Add, RuleKind::Stateless]),
        matches: matches(choices, &fields, layers, negative),
        targets: targets::targets(choices, &edited),
        label: None,
        span: Default::default(),
    }
}

/// A stateful rule that [`mmb_lang::check`] accepts, or `None`: matches and possibly targets of a stateless
/// rule, and up to three bindings.
pub fn stateful_rule(choices: &mut ByteChoices<'_>) -> Option<Rule> {
    let Rule { matches, mut targets, span, .. } = any_rule(choices);
    let given = choices.below(4);
    if given > 0 && choices.one_in(2) {
        targets.clear();
    }
    targets.extend((0..given).map(|_| targets::gift(choices)));
    let rule = Rule { kind: RuleKind::Stateful, matches, targets, label: None, span };
    mmb_lang::check(&rule).is_ok().then_some(rule)
}

/// The class of a service chain: up to two matches on headers that do not contradict each other.
pub fn class(choices: &mut ByteChoices<'_>) -> Vec<Match> {
    if choices.one_in(4) {
        return Vec::new();
    }
    let layers = choices.pick(&PROFILES);
    let fields: Vec<&FieldDef> =
        FIELDS.iter().filter(|def| def.proto == Layer::Network || layers.contains(&def.proto)).collect();
    let mut matches = matches(choices, &fields, layers, false);
    matches.truncate(2);
    let sound = mmb_lang::check_matches(&matches).is_ok();
    if sound { matches } else { Vec::new() }
}

fn matches(
    choices: &mut ByteChoices<'_>,
    fields: &[&FieldDef],
    layers: &[Layer],
    negative: bool,
) -> Vec<Match> {
    if choices.one_in(12) {
        return vec![Match::all()];
    }
    // Options, extension headers and payloads are few among the fields, so they get a greater weight.
    let (plain, parts): (Vec<&FieldDef>, Vec<&FieldDef>) =
        fields.iter().copied().partition(|def| def.in_header());
    let mut used: Vec<FieldId> = Vec::new();
    let mut matches = Vec::new();
    for _ in 0..1 + choices.below(4) {
        let part = !parts.is_empty() && choices.below(5) >= 3;
        let def = choices.pick(if part { &parts } else { &plain });
        // Sometimes a field is repeated, so that its matches combine.
        if used.contains(&def.id) && !choices.one_in(4) {
            continue;
        }
        used.push(def.id);
        let one = one_match(choices, def, layers);
        matches.push(if negative || choices.one_in(4) { one.negate() } else { one });
    }
    matches
}

fn one_match(choices: &mut ByteChoices<'_>, def: &FieldDef, layers: &[Layer]) -> Match {
    let alone = match def.kind {
        ValueKind::Shorthand(_) | ValueKind::Presence => true,
        ValueKind::Interface | ValueKind::EtherType => false,
        _ => choices.one_in(5),
    };
    if alone {
        return Match::field(def.id);
    }
    let (cond, values) = question(choices, def);
    let implied = implied(def.id, layers).filter(|_| cond == Cond::Eq && !choices.one_in(8));
    let values = match implied {
        None => values,
        Some(number) if values.single().is_some() => Value::Int(number).into(),
        // A set or a range that contains the one valid value.
        Some(number) => {
            let mut items = values.to_vec();
            items.push(ValueItem::Single(Value::Int(number)));
            ValueSet::new(items).unwrap_or(values)
        }
    };
    let arg = Comparison { cond, values, span: Default::default() };
    MatchExpr::Field { field: def.id, arg: Some(arg) }.into()
}

/// A comparison and values that fit the field.
fn question(choices: &mut ByteChoices<'_>, def: &FieldDef) -> (Cond, ValueSet) {
    let bytes = matches!(def.kind, ValueKind::Bytes { .. });
    let named = matches!(def.kind, ValueKind::Interface | ValueKind::EtherType);
    let equality = if choices.one_in(4) { Cond::Ne } else { Cond::Eq };
    match choices.below(8) {
        4 | 5 if bytes => (Cond::Contains, value(choices, def).into()),
        5 if !named => {
            let cond = choices.pick(&[Cond::Lt, Cond::Le, Cond::Gt, Cond::Ge]);
            (cond, value(choices, def).into())
        }
        6 if !named && !bytes => (equality, range(choices, def).into()),
        7 => {
            let cond = if bytes && choices.one_in(2) { Cond::Contains } else { equality };
            let count = 2 + choices.below(3);
            let items = (0..count).map(|_| item(choices, def)).collect();
            (cond, ValueSet::new(items).unwrap_or_else(|| value(choices, def).into()))
        }
        _ => (equality, single(choices, def).into()),
    }
}

/// A value, a range or a set.
pub(super) fn values(choices: &mut ByteChoices<'_>, def: &FieldDef) -> ValueSet {
    let count = choices.pick(&[1, 1, 2, 3]);
    let items = (0..count).map(|_| item(choices, def)).collect();
    ValueSet::new(items).unwrap_or_else(|| value(choices, def).into())
}

/// A member of a set.
fn item(choices: &mut ByteChoices<'_>, def: &FieldDef) -> ValueItem {
    let ranges = !matches!(def.kind, ValueKind::Interface | ValueKind::EtherType | ValueKind::Bytes { .. });
    if ranges && choices.one_in(3) { range(choices, def) } else { ValueItem::Single(single(choices, def)) }
}

fn range(choices: &mut ByteChoices<'_>, def: &FieldDef) -> ValueItem {
    let (a, b) = (value(choices, def), value(choices, def));
    let ends = if order(&a) <= order(&b) { [a, b] } else { [b, a] };
    ValueItem::Range(Box::new(ends))
}

fn order(value: &Value) -> u128 {
    match value {
        Value::Int(number) => (*number).into(),
        Value::Prefix { addr: IpAddr::V4(addr), .. } => addr.to_bits().into(),
        Value::Prefix { addr: IpAddr::V6(addr), .. } => addr.to_bits(),
        _ => 0,
    }
}

/// A value; for addresses a subnet in half of the cases.
fn single(choices: &mut ByteChoices<'_>, def: &FieldDef) -> Value {
    match value(choices, def) {
        Value::Prefix { addr, .. } if choices.one_in(2) => {
            let (addr, len) = pools::subnet(choices, addr);
            Value::Prefix { addr, len }
        }
        value => value,
    }
}

/// The value of a protocol field that is consistent with the other fields of the rule.
fn implied(field: FieldId, layers: &[Layer]) -> Option<u64> {
    let transport = layers.iter().find_map(|layer| match layer {
        Layer::Tcp => Some(6),
        Layer::Udp => Some(17),
        Layer::Icmp => Some(1),
        Layer::Icmp6 => Some(58),
        _ => None,
    });
    match field {
        FieldId::NetProto if layers.contains(&Layer::Ip4) => Some(0x0800),
        FieldId::NetProto if layers.contains(&Layer::Ip6) => Some(0x86dd),
        FieldId::IpProto | FieldId::Ip6Next => transport,
        FieldId::IpVer => Some(4),
        FieldId::Ip6Ver => Some(6),
        _ => None,
    }
}

/// A value of the field; for addresses a whole address.
pub(super) fn value(choices: &mut ByteChoices<'_>, def: &FieldDef) -> Value {
    match def.kind {
        ValueKind::Interface => Value::Iface(choices.pick(&pools::IFACES).into()),
        ValueKind::EtherType => Value::Int(choices.pick(&[0x0800, 0x86dd])),
        ValueKind::Ip4 => Value::address(pools::ip4(choices)),
        ValueKind::Ip6 => Value::address(pools::ip6(choices)),
        ValueKind::Bytes { max } if def.is_option() => {
            let data = pools::option_data(choices, max.into());
            Value::Bytes(if data.is_empty() { [0].into() } else { data.into() })
        }
        ValueKind::Bytes { .. } => Value::Bytes(pools::literal(choices).into()),
        _ => Value::Int(pools::number(choices, def.id, def.width_bits)),
    }
}
