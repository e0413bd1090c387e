//! Whether a rule matches: every match in turn, on values read bit by bit.

use std::net::IpAddr;

use mmb_lang::{Action, Comparison, Cond, FieldId, Match, MatchExpr, Rule, Value, ValueItem};

use crate::InSet;
use crate::fields;
use crate::headers::{Headers, Net, Transport};
use crate::options::{self, Opt, named};

/// A packet and its ports.
pub(crate) struct Packet<'a> {
    pub frame: &'a [u8],
    pub headers: &'a Headers,
    pub in_port: u16,
    pub out_port: u16,
    pub ifaces: &'a dyn Fn(&str) -> Option<u16>,
    pub in_set: &'a InSet<'a>,
}

/// Whether all matches of `rule` hold. One with a broker matches packets with a TCP header only.
pub(crate) fn rule_matches(rule: &Rule, packet: &Packet<'_>) -> bool {
    let has_broker = rule.targets.iter().any(|target| matches!(target.action, Action::Broker { .. }));
    all_hold(&rule.matches, packet) && (!has_broker || packet.headers.transport == Transport::Tcp)
}

/// Whether all of these matches hold.
pub(crate) fn all_hold(matches: &[Match], packet: &Packet<'_>) -> bool {
    matches.iter().all(|one| match_holds(one, packet))
}

fn match_holds(one: &Match, packet: &Packet<'_>) -> bool {
    let holds = match &one.what {
        MatchExpr::All => true,
        MatchExpr::Field { field, arg } => field_holds(*field, arg.as_ref(), packet),
    };
    holds != one.negated
}

fn field_holds(field: FieldId, arg: Option<&Comparison>, packet: &Packet<'_>) -> bool {
    let name = field.name();
    if let Some(numbers) = extension(name) {
        return packet.headers.extensions.iter().any(|number| numbers.contains(number));
    }
    if name.ends_with("-payload") {
        let payload = packet.headers.payload(packet.frame, name);
        return payload.is_some_and(|bytes| arg.is_none_or(|arg| payload_holds(arg, bytes)));
    }
    if options::is_option(field) {
        return option_holds(name, arg, packet);
    }
    let Some((value, width)) = read(name, packet) else { return false };
    if let Some(arg) = arg
        && let Some(set) = arg.named_set()
    {
        let port = match arg.pair_port() {
            None => None,
            Some(port) => match read(port.name(), packet) {
                Some((port, _)) => Some(port as u16),
                None => return false,
            },
        };
        return (packet.in_set)(set, width, value, port) == (arg.cond == Cond::Eq);
    }
    match (arg, fields::shorthand(name)) {
        (Some(arg), _) => arg_holds(arg, value, width, packet),
        (None, Some(codepoint)) => value == codepoint,
        (None, None) => width > 1 || value == 1,
    }
}

/// Value and width of the field `name`; `None` if the packet does not have it.
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

/// Numbers of the extension headers that the field `name` denotes (RFC 8200, 4; IANA).
fn extension(name: &str) -> Option<&'static [u8]> {
    Some(match name {
        "ip6-eh" => &[0, 43, 44, 50, 51, 60, 135, 139, 140],
        "ip6-eh-hopbyhop" => &[0],
        "ip6-eh-routing" => &[43],
        "ip6-eh-fragment" => &[44],
        "ip6-eh-esp" => &[50],
        "ip6-eh-ah" => &[51],
        "ip6-eh-destopt" => &[60],
        "ip6-eh-mobility" => &[135],
        "ip6-eh-hip" => &[139],
        "ip6-eh-shim6" => &[140],
        _ => return None,
    })
}

fn payload_holds(arg: &Comparison, payload: &[u8]) -> bool {
    let starts = || literals(arg).any(|literal| payload.starts_with(literal));
    match arg.cond {
        Cond::Eq => starts(),
        Cond::Ne => !starts(),
        Cond::Contains => literals(arg).any(|literal| contains(payload, literal)),
        cond => panic!("mmb_lang::check lets no {cond} on a payload pass"),
    }
}

fn option_holds(name: &str, arg: Option<&Comparison>, packet: &Packet<'_>) -> bool {
    let area = packet.headers.option_area(packet.frame);
    let list = area.map_or_else(Vec::new, |area| options::walk(&packet.frame[area]));
    let Some((kind, number)) = named(name) else {
        let fits = |arg: &Comparison, option: &Opt| arg_holds(arg, option.kind.into(), 8, packet);
        return match arg {
            None => !list.is_empty(),
            // If no kind fits, all are unequal.
            Some(arg) if arg.cond == Cond::Ne => {
                !list.is_empty() && list.iter().all(|option| fits(arg, option))
            }
            Some(arg) => list.iter().any(|option| fits(arg, option)),
        };
    };
    let mut of_kind = list.iter().filter(|option| option.kind == kind);
    match (arg, number) {
        (None, _) => of_kind.next().is_some(),
        (Some(arg), Some(length)) => {
            let value = of_kind.rfind(|option| option.data.len() == length);
            let value = value.map(|option| option.data.iter().fold(0, |n, byte| n << 8 | u128::from(*byte)));
            value.is_some_and(|value| arg_holds(arg, value, length * 8, packet))
        }
        (Some(arg), None) => of_kind.next_back().is_some_and(|option| data_holds(arg, &option.data)),
    }
}

fn data_holds(arg: &Comparison, data: &[u8]) -> bool {
    match arg.cond {
        Cond::Eq => literals(arg).any(|literal| data == literal),
        Cond::Ne => literals(arg).all(|literal| data != literal),
        Cond::Contains => literals(arg).any(|literal| contains(data, literal)),
        cond => panic!("mmb_lang::check lets no {cond} on an option's bytes pass"),
    }
}

fn literals(arg: &Comparison) -> impl Iterator<Item = &[u8]> {
    arg.values.iter().map(|item| match item {
        ValueItem::Single(Value::Bytes(bytes)) => &**bytes,
        other => panic!("mmb_lang::check lets no {other:?} on bytes pass"),
    })
}

fn contains(bytes: &[u8], literal: &[u8]) -> bool {
    bytes.windows(literal.len()).any(|window| window == literal)
}

fn arg_holds(arg: &Comparison, field: u128, width: usize, packet: &Packet<'_>) -> bool {
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
        Cond::Contains => panic!("mmb_lang::check lets no `contains` on numbers pass"),
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

/// A value as a number of the field's bits; `None` for an unknown interface.
pub(crate) fn number(value: &Value, packet: &Packet<'_>) -> Option<u128> {
    match value {
        Value::Int(n) => Some((*n).into()),
        Value::Prefix { addr: IpAddr::V4(addr), .. } => Some(u32::from(*addr).into()),
        Value::Prefix { addr: IpAddr::V6(addr), .. } => Some((*addr).into()),
        Value::Iface(name) => (packet.ifaces)(name).map(u128::from),
        Value::Bytes(_) | Value::Set(_) | Value::PairSet(..) | Value::Option { .. } => {
            panic!("mmb_lang::check lets no such value pass")
        }
    }
}
