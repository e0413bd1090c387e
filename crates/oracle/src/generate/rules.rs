//! Rules over the whole language, read off the field table: stateless ones, which is what the oracle evaluates, and
//! stateful ones.

use std::net::IpAddr;

use mmb_lang::{
    Comparison, Cond, FIELDS, FieldDef, FieldId, Layer, Match, MatchExpr, Rule, RuleKind, Value, ValueItem,
    ValueKind, ValueSet,
};

use super::{Dice, pools, targets};

/// Protocols whose fields may stand in one rule.
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

/// A rule of up to four matches and three targets that [`mmb_lang::check`] accepts; `None` if the dice fall on one that
/// it refuses because it contradicts itself, which is one in ten.
pub fn rule(dice: &mut Dice<'_>) -> Option<Rule> {
    let rule = any_rule(dice);
    mmb_lang::check(&rule).is_ok().then_some(rule)
}

/// The same, contradictions included: [`crate::evaluate`] takes them, the engine does not.
pub fn any_rule(dice: &mut Dice<'_>) -> Rule {
    // Negated matches exclude nothing, so that a rule made of them alone may speak of all protocols at once.
    let negative = dice.one_in(8);
    let layers = dice.pick(&PROFILES);
    let allowed = |def: &&FieldDef| {
        let general = matches!(def.proto, Layer::Interface | Layer::Network);
        general || negative || layers.contains(&def.proto)
    };
    let fields: Vec<&FieldDef> = FIELDS.iter().filter(allowed).collect();
    // Rules that do not speak of transport headers may edit options of what turns out to be TCP.
    let edits =
        |def: &&FieldDef| allowed(def) || def.is_option() && layers.len() == 1 && layers[0] != Layer::Udp;
    let edited: Vec<&FieldDef> = FIELDS.iter().filter(edits).collect();
    Rule {
        kind: dice.pick(&[RuleKind::Add, RuleKind::Stateless]),
        matches: matches(dice, &fields, layers, negative),
        targets: targets::targets(dice, &edited),
        span: Default::default(),
    }
}

/// A stateful rule that [`mmb_lang::check`] accepts, if the dice fall on one: a stateless one's matches and maybe its
/// targets, and up to three that give sessions something.
pub fn stateful_rule(dice: &mut Dice<'_>) -> Option<Rule> {
    let Rule { matches, mut targets, span, .. } = any_rule(dice);
    let given = dice.below(4);
    if given > 0 && dice.one_in(2) {
        targets.clear();
    }
    targets.extend((0..given).map(|_| targets::gift(dice)));
    let rule = Rule { kind: RuleKind::Stateful, matches, targets, span };
    mmb_lang::check(&rule).is_ok().then_some(rule)
}

/// What a service chain takes: up to two matches that do not contradict each other, and ask about headers.
pub fn class(dice: &mut Dice<'_>) -> Vec<Match> {
    if dice.one_in(4) {
        return Vec::new();
    }
    let layers = dice.pick(&PROFILES);
    let fields: Vec<&FieldDef> =
        FIELDS.iter().filter(|def| def.proto == Layer::Network || layers.contains(&def.proto)).collect();
    let mut matches = matches(dice, &fields, layers, false);
    matches.truncate(2);
    let sound = mmb_lang::check_matches(&matches).is_ok();
    if sound { matches } else { Vec::new() }
}

fn matches(dice: &mut Dice<'_>, fields: &[&FieldDef], layers: &[Layer], negative: bool) -> Vec<Match> {
    if dice.one_in(12) {
        return vec![Match::all()];
    }
    // Options, extension headers and payloads are few among the fields, and there is more to them.
    let (plain, parts): (Vec<&FieldDef>, Vec<&FieldDef>) =
        fields.iter().copied().partition(|def| def.in_header());
    let mut used: Vec<FieldId> = Vec::new();
    let mut matches = Vec::new();
    for _ in 0..1 + dice.below(4) {
        let part = !parts.is_empty() && dice.below(5) >= 3;
        let def = dice.pick(if part { &parts } else { &plain });
        // Now and then a field twice, so that questions about it meet.
        if used.contains(&def.id) && !dice.one_in(4) {
            continue;
        }
        used.push(def.id);
        let one = one_match(dice, def, layers);
        matches.push(if negative || dice.one_in(4) { one.negate() } else { one });
    }
    matches
}

fn one_match(dice: &mut Dice<'_>, def: &FieldDef, layers: &[Layer]) -> Match {
    let alone = match def.kind {
        ValueKind::Shorthand(_) | ValueKind::Presence => true,
        ValueKind::Interface | ValueKind::EtherType => false,
        _ => dice.one_in(5),
    };
    if alone {
        return Match::field(def.id);
    }
    let (cond, values) = question(dice, def);
    let implied = implied(def.id, layers).filter(|_| cond == Cond::Eq && !dice.one_in(8));
    let values = match implied {
        None => values,
        Some(number) if values.single().is_some() => Value::Int(number).into(),
        // A set or a range with the one value that makes sense added.
        Some(number) => {
            let mut items = values.to_vec();
            items.push(ValueItem::Single(Value::Int(number)));
            ValueSet::new(items).unwrap_or(values)
        }
    };
    let arg = Comparison { cond, values, span: Default::default() };
    MatchExpr::Field { field: def.id, arg: Some(arg) }.into()
}

/// A condition and values that go together with the field.
fn question(dice: &mut Dice<'_>, def: &FieldDef) -> (Cond, ValueSet) {
    let bytes = matches!(def.kind, ValueKind::Bytes { .. });
    let named = matches!(def.kind, ValueKind::Interface | ValueKind::EtherType);
    let equality = if dice.one_in(4) { Cond::Ne } else { Cond::Eq };
    match dice.below(8) {
        4 | 5 if bytes => (Cond::Contains, value(dice, def).into()),
        5 if !named => {
            let cond = dice.pick(&[Cond::Lt, Cond::Le, Cond::Gt, Cond::Ge]);
            (cond, value(dice, def).into())
        }
        6 if !named && !bytes => (equality, range(dice, def).into()),
        7 => {
            let cond = if bytes && dice.one_in(2) { Cond::Contains } else { equality };
            let count = 2 + dice.below(3);
            let items = (0..count).map(|_| item(dice, def)).collect();
            (cond, ValueSet::new(items).unwrap_or_else(|| value(dice, def).into()))
        }
        _ => (equality, single(dice, def).into()),
    }
}

/// A value, a range or a set.
pub(super) fn values(dice: &mut Dice<'_>, def: &FieldDef) -> ValueSet {
    let count = dice.pick(&[1, 1, 2, 3]);
    let items = (0..count).map(|_| item(dice, def)).collect();
    ValueSet::new(items).unwrap_or_else(|| value(dice, def).into())
}

/// A member of a set.
fn item(dice: &mut Dice<'_>, def: &FieldDef) -> ValueItem {
    let ranges = !matches!(def.kind, ValueKind::Interface | ValueKind::EtherType | ValueKind::Bytes { .. });
    if ranges && dice.one_in(3) { range(dice, def) } else { ValueItem::Single(single(dice, def)) }
}

fn range(dice: &mut Dice<'_>, def: &FieldDef) -> ValueItem {
    let (a, b) = (value(dice, def), value(dice, def));
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

/// A value, of addresses a subnet half of the times.
fn single(dice: &mut Dice<'_>, def: &FieldDef) -> Value {
    match value(dice, def) {
        Value::Prefix { addr, .. } if dice.one_in(2) => {
            let (addr, len) = pools::subnet(dice, addr);
            Value::Prefix { addr, len }
        }
        value => value,
    }
}

/// What a field that names a protocol must be for the other fields of the rule to make sense.
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

/// A value of the field; of addresses a whole one.
pub(super) fn value(dice: &mut Dice<'_>, def: &FieldDef) -> Value {
    match def.kind {
        ValueKind::Interface => Value::Iface(dice.pick(&pools::IFACES).into()),
        ValueKind::EtherType => Value::Int(dice.pick(&[0x0800, 0x86dd])),
        ValueKind::Ip4 => Value::address(pools::ip4(dice)),
        ValueKind::Ip6 => Value::address(pools::ip6(dice)),
        ValueKind::Bytes { max } if def.is_option() => {
            let data = pools::option_data(dice, max.into());
            Value::Bytes(if data.is_empty() { [0].into() } else { data.into() })
        }
        ValueKind::Bytes { .. } => Value::Bytes(pools::literal(dice).into()),
        _ => Value::Int(pools::number(dice, def.id, def.width_bits)),
    }
}
