//! The output of `ipset save`, which `ipset restore` reads: sets and their elements.
//!
//! ```text
//! create blocked hash:ip family inet hashsize 1024 maxelem 65536 timeout 3600 comment
//! add blocked 192.0.2.7 timeout 600 comment "port scan"
//! ```
//!
//! Sets of one kind of value become named sets. A set of addresses and ports (`hash:ip,port`) becomes two:
//! one for TCP with its name, and one for UDP ([`udp_set`]). Other sets of several values have no equal.

use std::collections::HashMap;

use mmb_lang::{NamedSet, SetElement, SetKind, parse_element};

use crate::script::{Kind, Script};
use crate::values::with_ports;

/// Why a line cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IpsetError {
    /// The type of the set has no equal.
    #[error(
        "sets of type {kind} have no equal: there are sets of addresses, of prefixes, of ports, and of addresses \
         with ports"
    )]
    Type {
        /// The type.
        kind: String,
    },
    /// The set was not created, or not converted.
    #[error("there is no set `{name}`")]
    UnknownSet {
        /// The name.
        name: String,
    },
    /// The element cannot be in the set.
    #[error("`{element}` cannot be in a set of kind {kind}")]
    Element {
        /// The element.
        element: String,
        /// The kind of the set.
        kind: &'static str,
    },
    /// The element excludes values.
    #[error("an element with `nomatch` is an exception, and sets have none")]
    Exception,
    /// The line is neither `create` nor `add`, or has too few words.
    #[error("a line has `create NAME TYPE …` or `add NAME ELEMENT …`")]
    Line,
}

/// Converts the output of `ipset save`.
pub fn convert(text: &str, script: &mut Script) {
    let (mut kinds, mut total) = (HashMap::new(), 0);
    for (number, line) in (1..).zip(text.lines()) {
        let words = words(line);
        if words.is_empty() || words[0].starts_with('#') || words[0] == "COMMIT" {
            continue;
        }
        total += 1;
        let place = format!("line {number}");
        match converted(&words, &mut kinds) {
            Ok(converted) => _ = converted.iter().all(|converted| script.line(converted, &place, line)),
            Err(error) => script.remark(Kind::NotMapped, &place, line, error.to_string()),
        }
    }
    script.set_total(total);
}

/// The words of a line. A text in quotes is one word.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (word, behind) = match rest.strip_prefix('"').and_then(|text| text.split_once('"')) {
            Some(quoted) => quoted,
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word);
        rest = behind.trim_start();
    }
    words
}

/// The name of the set with the elements for UDP of a set of addresses and ports.
pub fn udp_set(name: &str) -> String {
    format!("{name}-udp")
}

/// The protocol and the text in the language of an element of a set of addresses and ports.
fn pair(element: &str) -> Option<(&str, String)> {
    let (address, service) = element.split_once(',')?;
    let (protocol, ports) = service.split_once(':').unwrap_or(("tcp", service));
    matches!(protocol, "tcp" | "udp").then(|| (protocol, with_ports(address, ports)))
}

/// The lines of the language for a line of words. `kinds`: the kinds of the sets so far.
fn converted<'a>(
    words: &[&'a str],
    kinds: &mut HashMap<&'a str, SetKind>,
) -> Result<Vec<String>, IpsetError> {
    let [command, name, what, options @ ..] = words else { return Err(IpsetError::Line) };
    match *command {
        "create" | "-N" | "-exist" => {
            let kind = match *what {
                "hash:ip" | "bitmap:ip" => SetKind::Address,
                "hash:net" => SetKind::Prefix,
                "bitmap:port" => SetKind::Port,
                "hash:ip,port" | "hash:net,port" => SetKind::AddressPort,
                other => return Err(IpsetError::Type { kind: other.to_owned() }),
            };
            kinds.insert(name, kind);
            let names = [Some((*name).to_owned()), kind.has_pairs().then(|| udp_set(name))];
            let line = |name| format!("set add {name} {}{}", kind.word(), time(options));
            Ok(names.into_iter().flatten().map(line).collect())
        }
        "add" | "-A" => {
            let kind = *kinds.get(name).ok_or_else(|| IpsetError::UnknownSet { name: (*name).to_owned() })?;
            if options.contains(&"nomatch") {
                return Err(IpsetError::Exception);
            }
            let invalid = || IpsetError::Element { element: (*what).to_owned(), kind: kind.word() };
            let (name, text) = match kind.has_pairs() {
                false => ((*name).to_owned(), (*what).to_owned()),
                true => match pair(what).ok_or_else(invalid)? {
                    ("udp", text) => (udp_set(name), text),
                    (_, text) => ((*name).to_owned(), text),
                },
            };
            let element = parse_element(&text).ok().filter(|element: &SetElement| kind.accepts(element));
            let element = element.ok_or_else(invalid)?;
            let comment = option(options, "comment").map(|text| format!(" comment \"{}\"", escaped(text)));
            Ok(vec![format!("set {name} add {element}{}{}", time(options), comment.unwrap_or_default())])
        }
        _ => Err(IpsetError::Line),
    }
}

fn option<'a>(options: &[&'a str], name: &str) -> Option<&'a str> {
    let at = options.iter().position(|option| *option == name)?;
    options.get(at + 1).copied()
}

/// The time of a set or an element; in ipset, 0 means that elements stay.
fn time(options: &[&str]) -> String {
    let seconds = option(options, "timeout").and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
    match seconds.min(NamedSet::MAX_TIMEOUT) {
        0 => String::new(),
        seconds => format!(" timeout {seconds}s"),
    }
}

fn escaped(text: &str) -> String {
    text.chars().flat_map(|c| if c == '\\' { vec!['\\', '\\'] } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_sets_become_named_sets() {
        let saved = "create blocked hash:ip family inet hashsize 1024 maxelem 65536 timeout 3600 comment\n\
                     add blocked 192.0.2.7 timeout 600 comment \"port scan\"\n\
                     add blocked 2001:db8::1 timeout 0\n\
                     create nets hash:net family inet\nadd nets 10.0.0.0/8\nadd nets 10.1.0.0/16 nomatch\n\
                     create web bitmap:port range 0-1023\nadd web 80\nadd web 443-444\n\
                     create pairs hash:ip,port timeout 60\nadd pairs 192.0.2.1,tcp:80\n\
                     add pairs 192.0.2.1,udp:53-54 timeout 0\nadd pairs 192.0.2.1,icmp:8/0\n\
                     create nets6 hash:net,port family inet6\nadd nets6 2001:db8::/32,tcp:443\n\
                     create macs hash:mac\nadd macs 02:00:00:00:00:01\nswap a b\n";
        let mut script = Script::default();
        convert(saved, &mut script);
        let text = script.text();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "set add blocked address timeout 1h",
            "set blocked add 192.0.2.7 timeout 10m comment \"port scan\"",
            "set blocked add 2001:db8::1",
            "set add nets prefix",
            "set nets add 10.0.0.0/8",
            "set add web port",
            "set web add 80",
            "set web add 443-444",
            "set add pairs address-port timeout 1m",
            "set add pairs-udp address-port timeout 1m",
            "set pairs add 192.0.2.1:80",
            "set pairs-udp add 192.0.2.1:53-54",
            "set add nets6 address-port",
            "set add nets6-udp address-port",
            "set nets6 add [2001:db8::/32]:443",
        ];
        assert_eq!(lines, expected);
        assert_eq!(script.remarks().count(), 5, "{text}");
    }
}
