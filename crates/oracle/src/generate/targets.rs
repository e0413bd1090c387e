//! Random targets: verdicts, and edits of header fields and TCP options.

use std::net::IpAddr;

use mmb_lang::{Action, FIELDS, FieldDef, FieldId, Support, Target, Value, ValueKind};

use super::rules::{value, values};
use super::{ByteChoices, pools};

/// One to four targets that write these fields only.
pub(super) fn targets(choices: &mut ByteChoices<'_>, fields: &[&FieldDef]) -> Vec<Target> {
    let (options, plain): (Vec<&FieldDef>, Vec<&FieldDef>) = fields
        .iter()
        .filter(|def| def.is_option() || def.modify == Support::Yes)
        .filter(|def| !matches!(def.kind, ValueKind::Shorthand(_)))
        .partition(|def| def.is_option());
    let mut targets: Vec<Target> = Vec::new();
    match choices.below(8) {
        5 if choices.one_in(4) => targets.push(Action::Block.into()),
        5 if choices.one_in(4) => targets.push(Action::Reject.into()),
        5 => targets.push(Action::Drop { ten_thousandths: 10_000 }.into()),
        6 => targets.push(Action::Drop { ten_thousandths: choices.pick(&[1, 50, 5_000, 9_999]) }.into()),
        7 => targets.push(Action::Accept.into()),
        4 if choices.one_in(4) => targets.push(Action::Log { prefix: None }.into()),
        _ => {}
    }
    let edits = if targets.is_empty() { 1 + choices.below(3) } else { choices.below(3) };
    let mut used: Vec<FieldId> = Vec::new();
    for _ in 0..edits {
        if !options.is_empty() && choices.below(5) >= 3 {
            let def = choices.pick(&options);
            targets.push(option_edit(choices, def).into());
            continue;
        }
        let def = choices.pick(&plain);
        if used.contains(&def.id) {
            continue;
        }
        used.push(def.id);
        targets.push(Action::Mod { field: def.id, value: value(choices, def) }.into());
    }
    targets
}

/// A binding.
pub(super) fn gift(choices: &mut ByteChoices<'_>) -> Target {
    let fields: Vec<&FieldDef> = FIELDS.iter().filter(|def| def.translate == Support::Yes).collect();
    let def = choices.pick(&fields);
    let action = match choices.below(10) {
        0..3 => Action::Map { field: def.id, values: values(choices, def) },
        3 | 4 => Action::Shuffle { field: def.id, values: None },
        5 => Action::Shuffle { field: def.id, values: Some(values(choices, def)) },
        6 => {
            let mut addresses = vec![
                IpAddr::from(pools::ip4(choices)),
                pools::ip6(choices).into(),
                pools::ip4(choices).into(),
            ];
            addresses.rotate_left(choices.below(3));
            addresses.truncate(1 + choices.below(3));
            Action::Lb { addresses }
        }
        7 => Action::Nat { pool: pools::NAT_POOL.into() },
        8 => Action::Broker { name: choices.pick(&pools::BROKERS).into() },
        _ => Action::Chain { name: choices.pick(&pools::CHAINS).into() },
    };
    action.into()
}

/// An edit of the option, of a list of kinds to keep, or of all options.
fn option_edit(choices: &mut ByteChoices<'_>, def: &FieldDef) -> Action {
    let (field, numbered) = (def.id, def.id == FieldId::TcpOpt);
    let written = |choices: &mut ByteChoices<'_>| match def.kind {
        ValueKind::Presence => None,
        _ if numbered => {
            let kind = pools::kind(choices);
            Some(Value::Option { kind, data: pools::option_data(choices, 38).into() })
        }
        ValueKind::Bytes { .. } if choices.one_in(8) => None,
        _ => Some(value(choices, def)),
    };
    match choices.below(8) {
        0 | 1 if def.modify == Support::Yes => match written(choices) {
            Some(value) => Action::Mod { field, value },
            None => Action::Add { field, value: None },
        },
        0..=3 => Action::Add { field, value: written(choices) },
        7 => Action::StripAll,
        choice => {
            let keep = choice == 6;
            // `strip ! tcp-opt` would keep all options.
            let kind = (numbered && (keep || !choices.one_in(8))).then(|| pools::kind(choices));
            Action::Strip { keep, field, kind }
        }
    }
}
