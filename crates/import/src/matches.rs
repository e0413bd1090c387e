//! Writes filters as matches of the language.

use mmb_lang::{FieldId, ValueKind};

use crate::filter::{Filter, ICMP6, IP4, IP6, Member, TCP, Term, UDP, Values, max};
use crate::intervals::Intervals;

/// Maximum number of protocols of an IPv6 rule. Each becomes a rule.
const MAX_PROTOCOLS: u128 = 16;

/// The filter needs matches that the language does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an IPv6 rule of mmb can match at most {MAX_PROTOCOLS} protocols")]
pub struct TooManyProtocols;

/// The matches of rules that together match exactly the packets of a filter.
///
/// # Errors
/// The filter has too many protocols for IPv6.
pub fn matches(filter: &Filter) -> Result<Vec<String>, TooManyProtocols> {
    match (network(filter), filter.values(FieldId::IpProto)) {
        (Network::Both, Some(_)) if !has_header_field(filter) => {
            let mut all = Vec::new();
            for version in [IP4, IP6] {
                if let Some(part) = filter.clone().and(FieldId::NetProto, &Values::one(version)) {
                    all.extend(matches(&part)?);
                }
            }
            Ok(all)
        }
        (Network::Ip6, Some(Values::Numbers(protocols))) if !has_header_field(filter) => {
            let Some(numbers) = protocols.numbers(MAX_PROTOCOLS) else {
                return Err(TooManyProtocols);
            };
            let one = |number: u128| {
                let part = filter.clone().and(FieldId::IpProto, &Values::one(number))?;
                match header_field(number) {
                    Some(field) => Some((part.and(field, &Values::range(0, max(field)))?, None)),
                    None => Some((part, Some(number))),
                }
            };
            numbers.into_iter().filter_map(one).map(|(part, next)| line(&part, next)).collect()
        }
        _ => Ok(vec![line(filter, None)?]),
    }
}

/// The IP versions of a filter. Its term has no other values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Network {
    Ip4,
    Ip6,
    Both,
}

fn network(filter: &Filter) -> Network {
    match filter.values(FieldId::NetProto) {
        Some(values) if *values == Values::one(IP4) => Network::Ip4,
        Some(values) if *values == Values::one(IP6) => Network::Ip6,
        _ => Network::Both,
    }
}

/// Whether the filter tests a field of a transport header, which implies the protocol.
fn has_header_field(filter: &Filter) -> bool {
    use mmb_lang::Layer::{Icmp, Icmp6, Tcp, Udp};
    let members = filter.members().iter().filter(|member| member.is_in).flat_map(Member::fields);
    let mut fields = filter.terms().iter().map(|term| term.field).chain(members);
    fields.any(|field| matches!(field.def().proto, Tcp | Udp | Icmp | Icmp6))
}

/// Whether the rules miss fragments that the filter has. Fragments other than the first have no transport
/// header. Over IPv4 `ip-proto` matches them, and over IPv6 no field has their protocol.
pub fn misses_fragments(filter: &Filter) -> bool {
    let is_excluded = |term: &Term| term.field == FieldId::IpProto && !filter.excludes(term);
    network(filter) != Network::Ip4
        && (filter.values(FieldId::IpProto).is_some() && !has_header_field(filter)
            || filter.excluded().iter().any(is_excluded))
}

/// A field that all packets with this transport protocol have, except for fragments other than the first.
fn header_field(protocol: u128) -> Option<FieldId> {
    match protocol {
        TCP => Some(FieldId::TcpSport),
        UDP => Some(FieldId::UdpSport),
        ICMP6 => Some(FieldId::Icmp6Type),
        _ => None,
    }
}

/// The matches of one rule. `next` is the protocol of an IPv6 rule without a test of a header field.
fn line(filter: &Filter, next: Option<u128>) -> Result<String, TooManyProtocols> {
    let version = network(filter);
    let mut words = Vec::new();
    for term in filter.terms() {
        match term.field {
            FieldId::NetProto => {}
            // A header field implies it.
            FieldId::IpProto if version != Network::Ip4 => {}
            _ => words.push(term_text(term)),
        }
    }
    words.extend(filter.members().iter().filter(|member| member.is_in).map(member_text));
    words.extend(next.map(|number| format!("ip6-next {number}")));
    let has_field = |prefix: &str| words.iter().any(|word| word.starts_with(prefix));
    match version {
        Network::Ip4 if !has_field("ip-") && !has_field("icmp-") => words.insert(0, "net-proto ip".into()),
        Network::Ip6 if !has_field("ip6-") && !has_field("icmp6-") => words.insert(0, "net-proto ip6".into()),
        _ => {}
    }
    for term in filter.excluded().iter().filter(|term| !filter.excludes(term)) {
        words.extend(excluded(term, version)?.iter().map(|term| format!("! {term}")));
    }
    let others = filter.members().iter().filter(|member| !member.is_in);
    words.extend(others.map(|member| format!("! {}", member_text(member))));
    if words.is_empty() {
        words.push("all".into());
    }
    Ok(words.join(" "))
}

/// Matches for an excluded term. A packet must match none of them.
fn excluded(term: &Term, version: Network) -> Result<Vec<String>, TooManyProtocols> {
    let numbers = match &term.values {
        // A flag has no match for its presence.
        values if term.field.def().kind == ValueKind::Flag && *values == Values::range(0, 1) => {
            let name = term.field.name();
            return Ok(vec![name.to_owned(), format!("{name} 0")]);
        }
        Values::Numbers(numbers) if term.field == FieldId::IpProto && version != Network::Ip4 => numbers,
        _ => return Ok(vec![term_text(term)]),
    };
    let Some(numbers) = numbers.numbers(MAX_PROTOCOLS) else {
        return Err(TooManyProtocols);
    };
    let over_ip4 = |number: u128| (version == Network::Both).then(|| format!("ip-proto {number}"));
    let over_ip6 = |number: u128| match header_field(number) {
        Some(field) => field.name().to_owned(),
        None => format!("ip6-next {number}"),
    };
    let words = |number: u128| over_ip4(number).into_iter().chain([over_ip6(number)]);
    Ok(numbers.into_iter().flat_map(words).collect())
}

/// A term as a match.
fn term_text(term: &Term) -> String {
    let name = term.field.name();
    match &term.values {
        Values::Names { names, listed } => {
            let sign = if *listed { "" } else { "!= " };
            format!("{name} {sign}{}", braces(names.iter().cloned().collect()))
        }
        // A flag without a value matches 1.
        values if term.field.def().kind == ValueKind::Flag => {
            if *values == Values::one(1) {
                name.to_owned()
            } else {
                format!("{name} 0")
            }
        }
        Values::Numbers(numbers) => {
            let rest = numbers.complement(max(term.field));
            if rest.is_empty() {
                return name.to_owned();
            }
            match rest.count() < numbers.count() {
                true => format!("{name} != {}", list(term.field, &rest)),
                false => format!("{name} {}", list(term.field, numbers)),
            }
        }
    }
}

/// A named set as a match.
fn member_text(member: &Member) -> String {
    let port = member.port.map(|port| format!(",{port}")).unwrap_or_default();
    format!("{}{port} @{}", member.field, member.set)
}

fn braces(mut items: Vec<String>) -> String {
    match items.len() {
        1 => items.remove(0),
        _ => format!("{{{}}}", items.join(",")),
    }
}

fn list(field: FieldId, numbers: &Intervals) -> String {
    braces(numbers.iter().flat_map(|(low, high)| interval(field, low, high)).collect())
}

/// An interval as a number, a range or a subnet.
fn interval(field: FieldId, low: u128, high: u128) -> Vec<String> {
    let bits = match field.def().kind {
        ValueKind::Ip4 => 32,
        ValueKind::Ip6 => 128,
        ValueKind::EtherType => {
            return (low..=high)
                .map(|number| if number == IP4 { "ip".into() } else { format!("{number:#x}") })
                .collect();
        }
        _ if low == high => return vec![low.to_string()],
        _ => return vec![format!("{low}-{high}")],
    };
    let address = |number: u128| match bits {
        32 => std::net::Ipv4Addr::from(number as u32).to_string(),
        _ => std::net::Ipv6Addr::from(number).to_string(),
    };
    let free = (high - low).checked_add(1).map_or(128, u128::trailing_zeros);
    let aligned = low.trailing_zeros().min(bits) >= free;
    let is_subnet = aligned && high - low == 1u128.checked_shl(free).map_or(u128::MAX, |size| size - 1);
    vec![match is_subnet {
        true if free == 0 => address(low),
        true => format!("{}/{}", address(low), bits - free),
        false => format!("{}-{}", address(low), address(high)),
    }]
}

#[cfg(test)]
mod tests;
