//! Whether a rule matches: every match, one after the other, on values read bit by bit.

use std::net::IpAddr;

use mmb_lang::{Arg, Cond, FieldId, Match, MatchOn, Rule, Value, ValueItem};

use crate::fields;
use crate::headers::{Headers, Net};

/// A packet and what surrounds it.
pub(crate) struct Packet<'a> {
    pub frame: &'a [u8],
    pub headers: &'a Headers,
    pub in_port: u16,
    pub out_port: u16,
    pub ifaces: &'a dyn Fn(&str) -> Option<u16>,
}

/// All matches of `rule` hold.
pub(crate) fn rule_matches(rule: &Rule, packet: &Packet<'_>) -> bool {
    rule.matches.iter().all(|one| match_holds(one, packet))
}

fn match_holds(one: &Match, packet: &Packet<'_>) -> bool {
    let holds = match &one.what {
        MatchOn::All => true,
        MatchOn::Field { field, arg } => field_holds(*field, arg.as_ref(), packet),
    };
    holds != one.negated
}

fn field_holds(field: FieldId, arg: Option<&Arg>, packet: &Packet<'_>) -> bool {
    let name = field.name();
    let Some((value, width)) = read(name, packet) else { return false };
    match (arg, fields::shorthand(name)) {
        (Some(arg), _) => arg_holds(arg, value, width, packet),
        (None, Some(codepoint)) => value == codepoint,
        (None, None) => width > 1 || value == 1,
    }
}

/// Value and width of the field called `name`; `None` if the packet does not have it.
fn read(name: &str, packet: &Packet<'_>) -> Option<(u128, usize)> {
    match name {
        "in" => Some((packet.in_port.into(), 16)),
        "out" => Some((packet.out_port.into(), 16)),
        "net-proto" => match packet.headers.net {
            Net::Ip4 => Some((0x0800, 16)),
            Net::Ip6 => Some((0x86dd, 16)),
        },
        _ => {
            let place =
                fields::place(name).unwrap_or_else(|| panic!("mmb_lang::check lets no rule on {name} pass"));
            Some((place.read(packet.frame, packet.headers)?, place.width))
        }
    }
}

fn arg_holds(arg: &Arg, field: u128, width: usize, packet: &Packet<'_>) -> bool {
    let fits = |item: &ValueItem| item_fits(item, field, width, packet);
    let ordered = |holds: fn(&u128, &u128) -> bool| {
        let value = arg.values.single().and_then(|value| number(value, packet));
        value.is_some_and(|value| holds(&field, &value))
    };
    match arg.cond {
        Cond::Eq => arg.values.iter().any(fits),
        Cond::Ne => !arg.values.iter().any(fits),
        Cond::Lt => ordered(u128::lt),
        Cond::Le => ordered(u128::le),
        Cond::Gt => ordered(u128::gt),
        Cond::Ge => ordered(u128::ge),
        Cond::Contains => panic!("mmb_lang::check lets no `contains` pass"),
    }
}

fn item_fits(item: &ValueItem, field: u128, width: usize, packet: &Packet<'_>) -> bool {
    match item {
        ValueItem::Range(ends) => {
            let [low, high] = ends.each_ref().map(|end| number(end, packet));
            low.zip(high).is_some_and(|(low, high)| (low..=high).contains(&field))
        }
        ValueItem::Single(value) => {
            let ignored = match value {
                Value::Prefix { len, .. } => width as u32 - u32::from(*len),
                _ => 0,
            };
            let network = |address: u128| address.checked_shr(ignored).unwrap_or(0);
            number(value, packet).is_some_and(|value| network(value) == network(field))
        }
    }
}

/// A value as the number that the field's bits make; `None` for an interface that does not exist.
pub(crate) fn number(value: &Value, packet: &Packet<'_>) -> Option<u128> {
    match value {
        Value::Int(n) => Some((*n).into()),
        Value::Prefix { addr: IpAddr::V4(addr), .. } => Some(u32::from(*addr).into()),
        Value::Prefix { addr: IpAddr::V6(addr), .. } => Some((*addr).into()),
        Value::Iface(name) => (packet.ifaces)(name).map(u128::from),
        Value::Bytes(_) | Value::Option { .. } => panic!("mmb_lang::check lets no such value pass"),
    }
}
