//! Match expressions of nftables, converted to filters.

use std::collections::{BTreeSet, HashMap};

use mmb_lang::{FieldId, ValueKind};
use serde_json::Value;

use super::error::ExpressionError;
use super::sets::SetLines;
use crate::filter::{Filter, IP4, Member, Values, max};
use crate::intervals::Intervals;
use crate::names;
use crate::nat::Machine;
use crate::states::States;
use crate::values::{addresses, flags_equal};

/// Elements of named sets and maps, by family, table and name.
pub type Sets = HashMap<String, Vec<Value>>;

/// The named sets of one table.
pub struct TableSets<'a> {
    /// All sets.
    pub all: &'a Sets,
    /// The names of those that stay sets, by family, table and name.
    pub named: &'a HashMap<String, SetLines>,
    /// Family and name of the table.
    pub table: String,
    /// Properties of the machine that rulesets do not contain.
    pub machine: &'a Machine,
}

impl<'a> TableSets<'a> {
    /// The elements of a set.
    pub fn get(&self, name: &str) -> Option<&'a [Value]> {
        self.all.get(&format!("{} {name}", self.table)).map(Vec::as_slice)
    }

    /// The name of a set that stays a set, if a comparison is with one.
    fn named(&self, op: &str, right: &Value) -> Option<&'a str> {
        let name = right.as_str()?.strip_prefix('@').filter(|_| matches!(op, "==" | "!="))?;
        self.named.get(&format!("{} {name}", self.table)).map(|set| set.name.as_str())
    }
}

/// The left side of a comparison.
enum Key {
    /// One of these fields. They belong to different protocols, so a packet has at most one of them.
    Fields(Vec<FieldId>),
    /// The six upper bits of the IPv6 traffic class.
    Ip6Dscp,
    /// The protocol field of IPv4.
    Ip4Protocol,
    /// The TCP flags in a mask.
    Flags { mask: u128 },
    /// A concatenation, whose parts are compared one by one.
    Concat(Vec<Value>),
    /// The state of the connection.
    States,
    /// Whether addresses of the connection are translated.
    Status,
    /// The type of the destination address.
    AddressType,
}

/// The packets of filters that pass a `match` statement.
///
/// # Errors
/// See [`ExpressionError`].
pub fn narrow(
    filters: Vec<Filter>,
    test: &Value,
    sets: &TableSets<'_>,
) -> Result<Vec<Filter>, ExpressionError> {
    narrow_by(filters, &test["left"], test["op"].as_str().unwrap_or("=="), &test["right"], sets)
}

/// The packets of filters for which `left op right` holds.
///
/// # Errors
/// See [`ExpressionError`].
pub fn narrow_by(
    filters: Vec<Filter>,
    left: &Value,
    op: &str,
    right: &Value,
    sets: &TableSets<'_>,
) -> Result<Vec<Filter>, ExpressionError> {
    let mut narrowed = Vec::new();
    match key(left)? {
        Key::Concat(keys) => return concatenated(filters, &keys, op, right, sets),
        Key::States => {
            let states = states(op, right)?;
            narrowed.extend(filters.into_iter().filter_map(|filter| filter.and_states(states)));
        }
        // Later packets of such connections are established, too.
        Key::Status if matches!(op, "in" | "==") && right == "dnat" => {
            narrowed.extend(filters.into_iter().filter_map(|filter| filter.and_states(States::REDIRECTED)));
        }
        Key::Status => return Err(ExpressionError::UnknownConnection { expression: left.to_string() }),
        Key::AddressType => {
            let local = sets.machine.local().filter(|_| op == "==" && right == "local");
            let local = local.ok_or(ExpressionError::AddressType)?;
            narrowed.extend(filters.iter().filter_map(|filter| filter.intersection(&local)));
        }
        Key::Fields(fields) => {
            let named = sets.named(op, right);
            for field in fields {
                if let Some(set) = named {
                    let member = Member { field, port: None, set: set.to_owned(), is_in: op == "==" };
                    let with = |filter: &Filter| filter.clone().and_member(member.clone());
                    narrowed.extend(filters.iter().filter_map(with));
                    continue;
                }
                let values = compared(field, op, values(field, right, sets)?)?;
                narrowed.extend(filters.iter().cloned().filter_map(|filter| filter.and(field, &values)));
            }
        }
        Key::Ip4Protocol => {
            let values = compared(FieldId::IpProto, op, values(FieldId::IpProto, right, sets)?)?;
            let both = |filter: Filter| {
                filter.and(FieldId::NetProto, &Values::one(IP4))?.and(FieldId::IpProto, &values)
            };
            narrowed.extend(filters.into_iter().filter_map(both));
        }
        Key::Ip6Dscp => {
            let values = compared(FieldId::IpDscp, op, values(FieldId::IpDscp, right, sets)?)?;
            let Values::Numbers(numbers) = values else { return Err(ExpressionError::InvalidCodePoint) };
            let shifted = Intervals::of(numbers.iter().map(|(low, high)| (low << 2, high << 2 | 3)));
            let values = Values::Numbers(shifted);
            narrowed.extend(
                filters.into_iter().filter_map(|filter| filter.and(FieldId::Ip6TrafficClass, &values)),
            );
        }
        Key::Flags { mask } => {
            let matching = flags(mask, op, bits(right)?)?;
            narrowed.extend(filters.iter().flat_map(|a| matching.iter().filter_map(|b| a.intersection(b))));
        }
    }
    Ok(narrowed)
}

/// `a . b == @set`, where the set stays a set: `a` is an address and `b` a port. None: they are not.
fn pair_members(
    filters: &[Filter],
    keys: &[Value],
    (set, is_in): (&str, bool),
) -> Result<Option<Vec<Filter>>, ExpressionError> {
    let [address, port] = keys else { return Ok(None) };
    let (Key::Fields(addresses), Key::Fields(ports)) = (key(address)?, key(port)?) else { return Ok(None) };
    let mut narrowed = Vec::new();
    for (field, port) in addresses.iter().flat_map(|address| ports.iter().map(move |port| (*address, *port)))
    {
        let member = Member { field, port: Some(port), set: set.to_owned(), is_in };
        narrowed.extend(filters.iter().filter_map(|filter| filter.clone().and_member(member.clone())));
    }
    Ok(Some(narrowed))
}

/// `a . b == { x . y, … }`: one filter per element, if the set does not stay a set.
fn concatenated(
    filters: Vec<Filter>,
    keys: &[Value],
    op: &str,
    right: &Value,
    sets: &TableSets<'_>,
) -> Result<Vec<Filter>, ExpressionError> {
    if let Some(set) = sets.named(op, right)
        && let Some(narrowed) = pair_members(&filters, keys, (set, op == "=="))?
    {
        return Ok(narrowed);
    }
    if op != "==" {
        return Err(ExpressionError::ConcatenationOperator);
    }
    let elements = match right {
        Value::String(name) => name
            .strip_prefix('@')
            .and_then(|name| sets.get(name))
            .ok_or_else(|| ExpressionError::UnknownSet { name: name.clone() })?,
        right => right["set"].as_array().map_or(std::slice::from_ref(right), Vec::as_slice),
    };
    let mut all = Vec::new();
    for element in elements {
        let Some(parts) = element["concat"].as_array().filter(|parts| parts.len() == keys.len()) else {
            return Err(ExpressionError::ConcatenationElement);
        };
        let mut narrowed = filters.clone();
        for (key, part) in keys.iter().zip(parts) {
            narrowed = narrow_by(narrowed, key, "==", part, sets)?;
        }
        all.extend(narrowed);
    }
    Ok(all)
}

/// Parses the left side of a comparison.
fn key(left: &Value) -> Result<Key, ExpressionError> {
    let unknown = || ExpressionError::UnknownField { expression: left.to_string() };
    if let Some(parts) = left["concat"].as_array() {
        return Ok(Key::Concat(parts.clone()));
    }
    if let Some([of, mask]) = left["&"].as_array().map(Vec::as_slice) {
        return match key(of)? {
            Key::Flags { .. } => Ok(Key::Flags { mask: bits(mask)? }),
            _ => Err(unknown()),
        };
    }
    if let Some(connection) = left.get("ct") {
        return match connection["key"].as_str() {
            Some("state") => Ok(Key::States),
            Some("status") => Ok(Key::Status),
            _ => Err(ExpressionError::UnknownConnection { expression: left.to_string() }),
        };
    }
    let flags = &left["fib"]["flags"];
    if left["fib"]["result"] == "type" && (flags == "daddr" || *flags == serde_json::json!(["daddr"])) {
        return Ok(Key::AddressType);
    }
    let word = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    if let Some(payload) = left.get("payload") {
        return payload_key(&word(payload, "protocol"), &word(payload, "field")).ok_or_else(unknown);
    }
    let field = if let Some(meta) = left.get("meta") {
        match word(meta, "key").as_str() {
            "iifname" | "iif" => Some(FieldId::In),
            "oifname" | "oif" => Some(FieldId::Out),
            "l4proto" => Some(FieldId::IpProto),
            "nfproto" | "protocol" => Some(FieldId::NetProto),
            _ => None,
        }
    } else if let Some(option) = left.get("tcp option") {
        match (word(option, "name").as_str(), word(option, "field").as_str()) {
            ("maxseg", "size") => Some(FieldId::TcpOptMss),
            ("window", "count") => Some(FieldId::TcpOptWscale),
            _ => None,
        }
    } else {
        None
    };
    field.map(|field| Key::Fields(vec![field])).ok_or_else(unknown)
}

fn payload_key(protocol: &str, field: &str) -> Option<Key> {
    use FieldId as F;
    let one = |field| Some(Key::Fields(vec![field]));
    match (protocol, field) {
        ("ip", "saddr") => one(F::IpSaddr),
        ("ip", "daddr") => one(F::IpDaddr),
        ("ip", "protocol") => Some(Key::Ip4Protocol),
        ("ip", "ttl") => one(F::IpTtl),
        ("ip", "dscp") => one(F::IpDscp),
        ("ip", "ecn") => one(F::IpEcn),
        ("ip", "length") => one(F::IpLen),
        ("ip", "id") => one(F::IpId),
        ("ip", "hdrlength") => one(F::IpIhl),
        ("ip6", "saddr") => one(F::Ip6Saddr),
        ("ip6", "daddr") => one(F::Ip6Daddr),
        ("ip6", "nexthdr") => one(F::Ip6Next),
        ("ip6", "hoplimit") => one(F::Ip6HopLimit),
        ("ip6", "length") => one(F::Ip6Len),
        ("ip6", "flowlabel") => one(F::Ip6FlowLabel),
        ("ip6", "dscp") => Some(Key::Ip6Dscp),
        ("icmp", "type") => one(F::IcmpType),
        ("icmp", "code") => one(F::IcmpCode),
        ("icmpv6", "type") => one(F::Icmp6Type),
        ("icmpv6", "code") => one(F::Icmp6Code),
        ("udp", "sport") => one(F::UdpSport),
        ("udp", "dport") => one(F::UdpDport),
        ("udp", "length") => one(F::UdpLen),
        ("tcp", "sport") => one(F::TcpSport),
        ("tcp", "dport") => one(F::TcpDport),
        ("tcp", "sequence") => one(F::TcpSeqNum),
        ("tcp", "ackseq") => one(F::TcpAckNum),
        ("tcp", "window") => one(F::TcpWin),
        ("tcp", "urgptr") => one(F::TcpUrgPtr),
        ("tcp", "doff") => one(F::TcpOffset),
        ("tcp", "flags") => Some(Key::Flags { mask: 0xff }),
        // `th`: ports of TCP or UDP.
        ("th", "sport") => Some(Key::Fields(vec![F::TcpSport, F::UdpSport])),
        ("th", "dport") => Some(Key::Fields(vec![F::TcpDport, F::UdpDport])),
        _ => None,
    }
}

/// The values of a field for which `field op right` holds.
fn compared(field: FieldId, op: &str, right: Values) -> Result<Values, ExpressionError> {
    if matches!(op, "==" | "!=") {
        return Ok(if op == "!=" { right.complement(field) } else { right });
    }
    let bound = match &right {
        Values::Numbers(numbers) => numbers.numbers(1).and_then(|one| one.first().copied()),
        Values::Names { .. } => None,
    };
    let Some(bound) = bound else { return Err(ExpressionError::NotOneNumber { op: op.to_owned() }) };
    let below = bound.checked_sub(1).map(|high| (0, high));
    let interval = match op {
        "<" => below,
        "<=" => Some((0, bound)),
        ">" => Some((bound + 1, max(field))),
        ">=" => Some((bound, max(field))),
        _ => return Err(ExpressionError::UnknownOperator { op: op.to_owned() }),
    };
    Ok(Values::Numbers(Intervals::of(interval)))
}

/// The connection states for which `op right` holds.
fn states(op: &str, right: &Value) -> Result<States, ExpressionError> {
    let unknown = || ExpressionError::UnknownStates { value: right.to_string() };
    let words = match right {
        Value::Array(words) => words.as_slice(),
        right => right["set"].as_array().map_or(std::slice::from_ref(right), Vec::as_slice),
    };
    let all: Option<Vec<States>> = words.iter().map(|word| States::of(word.as_str()?)).collect();
    let all = all.ok_or_else(unknown)?.into_iter().fold(States::NONE, States::or);
    match op {
        "in" | "==" => Ok(all),
        "!=" => Ok(States::ALL.without(all)),
        _ => Err(unknown()),
    }
}

fn flags(mask: u128, op: &str, set: u128) -> Result<Vec<Filter>, ExpressionError> {
    match op {
        "==" => Ok(flags_equal(mask, set, false)),
        "!=" => Ok(flags_equal(mask, set, true)),
        // At least one of these flags is set.
        "in" => Ok(flags_equal(mask & set, 0, true)),
        _ => Err(ExpressionError::FlagOperator { op: op.to_owned() }),
    }
}

/// Parses TCP flags: a number, a name or several names.
fn bits(value: &Value) -> Result<u128, ExpressionError> {
    let bits = match value {
        Value::Number(number) => number.as_u64().map(u128::from),
        Value::String(name) => names::flag(name).or_else(|| names::number(name)),
        Value::Array(names) => return names.iter().map(bits).try_fold(0, |all, one| Ok(all | one?)),
        Value::Object(object) => match object.get("|").and_then(Value::as_array) {
            Some(parts) => return parts.iter().map(bits).try_fold(0, |all, one| Ok(all | one?)),
            None => None,
        },
        _ => None,
    };
    bits.filter(|bits| *bits <= 0xff)
        .ok_or_else(|| ExpressionError::InvalidFlags { value: value.to_string() })
}

/// The values on the right side of a comparison.
fn values(field: FieldId, right: &Value, sets: &TableSets<'_>) -> Result<Values, ExpressionError> {
    if field.def().kind == ValueKind::Interface {
        return interfaces(right, sets);
    }
    let mut intervals = Vec::new();
    collect(field, right, sets, &mut intervals)?;
    Ok(Values::Numbers(Intervals::of(intervals)))
}

/// The members of a named or anonymous set. A single value is a set of one.
fn members<'a>(right: &'a Value, sets: &'a TableSets<'a>) -> Result<&'a [Value], ExpressionError> {
    match right {
        Value::String(name) if name.starts_with('@') => {
            sets.get(&name[1..]).ok_or_else(|| ExpressionError::UnknownSet { name: name.clone() })
        }
        right => Ok(right["set"].as_array().map_or(std::slice::from_ref(right), Vec::as_slice)),
    }
}

fn interfaces(right: &Value, sets: &TableSets<'_>) -> Result<Values, ExpressionError> {
    let mut found = BTreeSet::new();
    for member in members(right, sets)? {
        match member.as_str() {
            Some(name) if !name.ends_with('*') => found.insert(name.to_owned()),
            _ => return Err(ExpressionError::InterfacePattern { pattern: member.to_string() }),
        };
    }
    Ok(Values::Names { names: found, listed: true })
}

fn collect(
    field: FieldId,
    right: &Value,
    sets: &TableSets<'_>,
    into: &mut Vec<(u128, u128)>,
) -> Result<(), ExpressionError> {
    for member in members(right, sets)? {
        let member = member["elem"].get("val").unwrap_or(member);
        into.push(interval(field, member).ok_or_else(|| ExpressionError::InvalidValue {
            value: member.to_string(),
            field: field.name(),
        })?);
    }
    Ok(())
}

fn interval(field: FieldId, value: &Value) -> Option<(u128, u128)> {
    let checked = |(low, high): (u128, u128)| (high <= max(field)).then_some((low, high));
    let addresses = |text: &str| addresses(text, field.def().width_bits.into());
    let interval = match value {
        Value::Number(number) => number.as_u64().map(|number| (number.into(), number.into()))?,
        Value::String(text) => match field.def().kind {
            ValueKind::Ip4 | ValueKind::Ip6 => addresses(text)?,
            _ => names::value(field, text).or_else(|| names::number(text)).map(|number| (number, number))?,
        },
        Value::Object(object) => {
            if let Some([low, high]) = object.get("range").and_then(Value::as_array).map(Vec::as_slice) {
                (interval(field, low)?.0, interval(field, high)?.1)
            } else {
                let prefix = object.get("prefix")?;
                addresses(&format!("{}/{}", prefix["addr"].as_str()?, prefix["len"]))?
            }
        }
        _ => return None,
    };
    checked(interval)
}
