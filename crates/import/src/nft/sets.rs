//! Named sets of nftables that stay sets.

use std::net::{Ipv4Addr, Ipv6Addr};

use mmb_lang::parse_line;
use serde_json::Value;

use crate::values::{addresses, with_ports};

/// A set as lines of the language.
#[derive(Debug)]
pub struct SetLines {
    /// Its name.
    pub name: String,
    /// The line that adds it, and those that add its elements.
    pub lines: Vec<String>,
}

impl SetLines {
    /// The lines of a set. None: its kind or an element has no equal.
    pub fn of(set: &Value) -> Option<SetLines> {
        let name = set["name"].as_str()?.to_owned();
        let elements = set["elem"].as_array().map_or(&[][..], Vec::as_slice);
        let is_interval =
            set["flags"].as_array().is_some_and(|flags| flags.iter().any(|flag| flag == "interval"));
        let kind = match (set["type"].as_str(), concatenation(&set["type"]).as_slice()) {
            (Some("inet_service"), _) => "port",
            (Some("ipv4_addr" | "ipv6_addr"), _) if is_interval => "prefix",
            (Some("ipv4_addr" | "ipv6_addr"), _) => "address",
            (None, ["ipv4_addr" | "ipv6_addr", "inet_service"]) => "address-port",
            _ => return None,
        };
        let mut lines = vec![format!("set add {name} {kind}{}", time(&set["timeout"]))];
        for element in elements {
            let (value, timeout) = match element.get("elem") {
                Some(element) => {
                    let left = element.get("expires").or_else(|| element.get("timeout"));
                    (&element["val"], time(left.unwrap_or(&Value::Null)))
                }
                None => (element, String::new()),
            };
            let values = match kind {
                "port" => vec![port(value)?],
                "address-port" => pairs(value)?,
                _ => prefixes(value)?,
            };
            lines.extend(values.iter().map(|value| format!("set {name} add {value}{timeout}")));
        }
        lines.iter().all(|line| parse_line(line).is_ok()).then_some(SetLines { name, lines })
    }
}

/// The types that a type concatenates.
fn concatenation(types: &Value) -> Vec<&str> {
    types.as_array().map(|types| types.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

/// The time of a set or an element.
fn time(seconds: &Value) -> String {
    seconds.as_u64().filter(|seconds| *seconds > 0).map(|s| format!(" timeout {s}s")).unwrap_or_default()
}

/// A port or a range of ports.
fn port(value: &Value) -> Option<String> {
    if let Some([low, high]) = value["range"].as_array().map(Vec::as_slice) {
        return Some(format!("{}-{}", low.as_u64()?, high.as_u64()?));
    }
    value.as_u64().map(|port| port.to_string())
}

/// An address, a prefix, or the prefixes of a range.
fn prefixes(value: &Value) -> Option<Vec<String>> {
    if let Some([low, high]) = value["range"].as_array().map(Vec::as_slice) {
        let (low, high) = (low.as_str()?, high.as_str()?);
        let bits = if low.contains(':') { 128 } else { 32 };
        return Some(cover(addresses(low, bits)?.0, addresses(high, bits)?.0, bits));
    }
    if let Some(prefix) = value.get("prefix") {
        return Some(vec![format!("{}/{}", prefix["addr"].as_str()?, prefix["len"].as_u64()?)]);
    }
    value.as_str().map(|address| vec![address.to_owned()])
}

/// Addresses or prefixes, each with a port or a range of ports.
fn pairs(value: &Value) -> Option<Vec<String>> {
    let [address, service] = value["concat"].as_array()?.as_slice() else { return None };
    let service = port(service)?;
    Some(prefixes(address)?.iter().map(|prefix| with_ports(prefix, &service)).collect())
}

/// The prefixes that together have the addresses from `low` to `high`: at most two for each bit.
fn cover(mut low: u128, high: u128, bits: u32) -> Vec<String> {
    let mut all = Vec::new();
    while low <= high {
        let fits = |free: u32| {
            let size = 1u128.checked_shl(free).map_or(u128::MAX, |size| size - 1);
            low & size == 0 && high - low >= size
        };
        let free = (0..=bits).rev().find(|free| fits(*free)).unwrap_or(0);
        let address = match bits {
            32 => Ipv4Addr::from(low as u32).to_string(),
            _ => Ipv6Addr::from(low).to_string(),
        };
        all.push(format!("{address}/{}", bits - free));
        let size = 1u128.checked_shl(free).unwrap_or(0);
        match low.checked_add(size).filter(|_| size > 0) {
            Some(next) => low = next,
            None => break,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sets_of_addresses_prefixes_and_ports_stay_sets() {
        let lines = |set: Value| SetLines::of(&set).map(|set| set.lines);
        let some = |lines: &[&str]| Some(lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
        let range = json!({"range": ["10.0.0.5", "10.0.0.8"]});
        let prefix = json!({"prefix": {"addr": "192.0.2.0", "len": 24}});
        let set = json!({"name": "a", "type": "ipv4_addr", "flags": ["interval"], "elem": [range, prefix]});
        let expected = [
            "set add a prefix",
            "set a add 10.0.0.5/32",
            "set a add 10.0.0.6/31",
            "set a add 10.0.0.8/32",
            "set a add 192.0.2.0/24",
        ];
        assert_eq!(lines(set), some(&expected));
        let timed = json!({"elem": {"val": "2001:db8::1", "timeout": 60, "expires": 30}});
        let set = json!({"name": "b", "type": "ipv6_addr", "timeout": 60, "elem": [timed]});
        assert_eq!(lines(set), some(&["set add b address timeout 60s", "set b add 2001:db8::1 timeout 30s"]));
        let set = json!({"name": "c", "type": "inet_service", "elem": [22, {"range": [80, 90]}]});
        assert_eq!(lines(set), some(&["set add c port", "set c add 22", "set c add 80-90"]));
        let (one, many) = (json!({"concat": ["192.0.2.1", 443]}), json!({"range": [8000, 8100]}));
        let (net, low) =
            (json!({"prefix": {"addr": "10.0.0.0", "len": 8}}), json!({"range": ["10.0.0.5", "10.0.0.6"]}));
        let elements =
            json!([one, {"elem": {"val": {"concat": [net, many]}, "timeout": 60}}, {"concat": [low, 53]}]);
        let set = json!({"name": "e", "type": ["ipv4_addr", "inet_service"], "flags": ["interval"], "elem": elements});
        let expected = [
            "set add e address-port",
            "set e add 192.0.2.1:443",
            "set e add 10.0.0.0/8:8000-8100 timeout 60s",
            "set e add 10.0.0.5/32:53",
            "set e add 10.0.0.6/32:53",
        ];
        assert_eq!(lines(set), some(&expected));
        let pair = json!({"concat": ["2001:db8::1", 53]});
        let set = json!({"name": "f", "type": ["ipv6_addr", "inet_service"], "elem": [pair]});
        assert_eq!(lines(set), some(&["set add f address-port", "set f add [2001:db8::1]:53"]));
        assert_eq!(lines(json!({"name": "g", "type": ["inet_service", "ipv4_addr"]})), None);
        assert_eq!(lines(json!({"name": "d", "type": "ether_addr"})), None);
        assert_eq!(lines(json!({"name": "no name", "type": "ipv4_addr"})), None);
        assert_eq!(cover(0, u128::from(u32::MAX), 32), ["0.0.0.0/0"]);
        assert_eq!(cover(0, u128::MAX, 128), ["::/0"]);
    }
}
