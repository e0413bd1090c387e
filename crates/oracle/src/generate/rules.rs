//! Rules over everything that the engine runs today, read off the field table.

use mmb_lang::{
    Action, AddKind, Cond, FIELDS, FieldDef, FieldId, Layer, Match, Rule, Support, Target, Value, ValueKind,
};

use super::{Dice, pools};

/// Protocols whose fields may stand in one rule.
const PROFILES: [&[Layer]; 10] = [
    &[Layer::Ip4, Layer::Tcp],
    &[Layer::Ip4, Layer::Udp],
    &[Layer::Ip6, Layer::Tcp],
    &[Layer::Ip6, Layer::Udp],
    &[Layer::Tcp],
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
        def.loc.is_some() && (general || negative || layers.contains(&def.proto))
    };
    let fields: Vec<&FieldDef> = FIELDS.iter().filter(allowed).collect();
    Rule {
        kind: dice.pick(&[AddKind::Add, AddKind::Stateless]),
        matches: matches(dice, &fields, layers, negative),
        targets: targets(dice, &fields),
        span: Default::default(),
    }
}

fn matches(dice: &mut Dice<'_>, fields: &[&FieldDef], layers: &[Layer], negative: bool) -> Vec<Match> {
    if dice.one_in(12) {
        return vec![Match::all()];
    }
    let fields: Vec<_> = fields.iter().filter(|def| def.match_ == Support::Yes).collect();
    let mut used: Vec<FieldId> = Vec::new();
    let mut matches = Vec::new();
    for _ in 0..1 + dice.below(4) {
        let def = dice.pick(&fields);
        if used.contains(&def.id) {
            continue;
        }
        used.push(def.id);
        let one = one_match(dice, def, layers);
        matches.push(if negative || dice.one_in(4) { one.negate() } else { one });
    }
    matches
}

fn one_match(dice: &mut Dice<'_>, def: &FieldDef, layers: &[Layer]) -> Match {
    let says_something_alone = !matches!(def.proto, Layer::Interface | Layer::Network);
    if matches!(def.kind, ValueKind::Shorthand(_)) || says_something_alone && dice.one_in(5) {
        return Match::field(def.id);
    }
    let cond = if dice.one_in(4) { Cond::Ne } else { Cond::Eq };
    let mut value = value(dice, def);
    if let Value::Prefix { addr, .. } = value
        && dice.one_in(2)
    {
        let (addr, len) = pools::subnet(dice, addr);
        value = Value::Prefix { addr, len };
    }
    if cond == Cond::Eq
        && let Some(number) = implied(def.id, layers)
        && !dice.one_in(8)
    {
        value = Value::Int(number);
    }
    Match::compare(def.id, cond, value)
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

fn value(dice: &mut Dice<'_>, def: &FieldDef) -> Value {
    match def.kind {
        ValueKind::Interface => Value::Iface(dice.pick(&pools::IFACES).into()),
        ValueKind::EtherType => Value::Int(dice.pick(&[0x0800, 0x86dd])),
        ValueKind::Ip4 => Value::address(pools::ip4(dice)),
        ValueKind::Ip6 => Value::address(pools::ip6(dice)),
        _ => Value::Int(pools::number(dice, def.id, def.width_bits)),
    }
}

fn targets(dice: &mut Dice<'_>, fields: &[&FieldDef]) -> Vec<Target> {
    let writable: Vec<_> = fields
        .iter()
        .filter(|def| def.modify == Support::Yes && !matches!(def.kind, ValueKind::Shorthand(_)))
        .collect();
    let mut targets: Vec<Target> = Vec::new();
    match dice.below(8) {
        5 => targets.push(Action::Drop { ten_thousandths: 10_000 }.into()),
        6 => targets.push(Action::Drop { ten_thousandths: dice.pick(&[1, 50, 5_000, 9_999]) }.into()),
        7 => targets.push(Action::Accept.into()),
        _ => {}
    }
    let edits = if targets.is_empty() { 1 + dice.below(3) } else { dice.below(3) };
    let mut used: Vec<FieldId> = Vec::new();
    for _ in 0..edits {
        let def = dice.pick(&writable);
        if used.contains(&def.id) {
            continue;
        }
        used.push(def.id);
        targets.push(Action::Mod { field: def.id, value: value(dice, def) }.into());
    }
    targets
}
