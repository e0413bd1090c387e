//! What the rules do: verdicts, and edits of header fields and TCP options.

use std::net::IpAddr;

use mmb_lang::{Action, FIELDS, FieldDef, FieldId, Support, Target, Value, ValueKind};

use super::rules::{value, values};
use super::{Dice, pools};

/// One to four targets that write these fields only.
pub(super) fn targets(dice: &mut Dice<'_>, fields: &[&FieldDef]) -> Vec<Target> {
    let (options, plain): (Vec<&FieldDef>, Vec<&FieldDef>) = fields
        .iter()
        .filter(|def| def.is_option() || def.modify == Support::Yes)
        .filter(|def| !matches!(def.kind, ValueKind::Shorthand(_)))
        .partition(|def| def.is_option());
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
        if !options.is_empty() && dice.below(5) >= 3 {
            let def = dice.pick(&options);
            targets.push(option_edit(dice, def).into());
            continue;
        }
        let def = dice.pick(&plain);
        if used.contains(&def.id) {
            continue;
        }
        used.push(def.id);
        targets.push(Action::Mod { field: def.id, value: value(dice, def) }.into());
    }
    targets
}

/// Something that sessions are given.
pub(super) fn gift(dice: &mut Dice<'_>) -> Target {
    let fields: Vec<&FieldDef> = FIELDS.iter().filter(|def| def.translate == Support::Yes).collect();
    let def = dice.pick(&fields);
    let action = match dice.below(10) {
        0..3 => Action::Map { field: def.id, values: values(dice, def) },
        3 | 4 => Action::Shuffle { field: def.id, values: None },
        5 => Action::Shuffle { field: def.id, values: Some(values(dice, def)) },
        6 => {
            let mut addresses =
                vec![IpAddr::from(pools::ip4(dice)), pools::ip6(dice).into(), pools::ip4(dice).into()];
            addresses.rotate_left(dice.below(3));
            addresses.truncate(1 + dice.below(3));
            Action::Lb { addresses }
        }
        7 => Action::Nat { pool: pools::NAT_POOL.into() },
        _ => Action::Chain { name: dice.pick(&pools::CHAINS).into() },
    };
    action.into()
}

/// An edit of the option, of a whitelist, or of all options.
fn option_edit(dice: &mut Dice<'_>, def: &FieldDef) -> Action {
    let (field, numbered) = (def.id, def.id == FieldId::TcpOpt);
    let written = |dice: &mut Dice<'_>| match def.kind {
        ValueKind::Presence => None,
        _ if numbered => {
            let kind = pools::kind(dice);
            Some(Value::Option { kind, data: pools::option_data(dice, 38).into() })
        }
        ValueKind::Bytes { .. } if dice.one_in(8) => None,
        _ => Some(value(dice, def)),
    };
    match dice.below(8) {
        0 | 1 if def.modify == Support::Yes => match written(dice) {
            Some(value) => Action::Mod { field, value },
            None => Action::Add { field, value: None },
        },
        0..=3 => Action::Add { field, value: written(dice) },
        7 => Action::StripAll,
        choice => {
            let keep = choice == 6;
            // `strip ! tcp-opt` would keep all.
            let kind = (numbered && (keep || !dice.one_in(8))).then(|| pools::kind(dice));
            Action::Strip { keep, field, kind }
        }
    }
}
