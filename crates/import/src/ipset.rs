//! The output of `ipset save`, which `ipset restore` reads: sets and their elements.
//!
//! ```text
//! create blocked hash:ip family inet hashsize 1024 maxelem 65536 timeout 3600 comment
//! add blocked 192.0.2.7 timeout 600 comment "port scan"
//! ```
//!
//! Sets of one kind of value become named sets. A set of addresses and ports (`hash:ip,port`) becomes two:
//! one for TCP with its name, and one for UDP ([`udp_set`]). Other sets of several values have no equal.
//!
//! A set with `netmask` has one element for each prefix, so it becomes a set of prefixes. In a set with a
//! `timeout`, an element with `timeout 0` stays. Elements of mmb cannot say that, so the set gets no time of
//! its own then, and its other elements get theirs.

use std::collections::{HashMap, HashSet};

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
    /// The set ignores bits of addresses that are not their last ones.
    #[error("`bitmask` has no equal: sets have addresses and prefixes")]
    Bitmask,
    /// The element excludes values.
    #[error("an element with `nomatch` is an exception, and sets have none")]
    Exception,
    /// The line is neither `create` nor `add`, or has too few words.
    #[error("a line has `create NAME TYPE …` or `add NAME ELEMENT …`")]
    Line,
}

/// The remark on a set whose elements do not all expire.
const PERMANENT: &str = "some elements stay (`timeout 0`), so the set has no time for elements without one";

/// A set that is converted.
struct Set<'a> {
    kind: SetKind,
    /// The prefix length of the elements, if they are single addresses in the source.
    netmask: Option<&'a str>,
    /// The time of elements without one, as an option. Empty if the set has it.
    time: String,
}

/// Converts the output of `ipset save`.
pub fn convert(text: &str, script: &mut Script) {
    let stays_in = |line| match words(line).as_slice() {
        ["add" | "-A", name, _, options @ ..] if seconds(options) == Some(0) => Some(*name),
        _ => None,
    };
    let permanent: HashSet<&str> = text.lines().filter_map(stays_in).collect();
    let (mut sets, mut total) = (HashMap::new(), 0);
    for (number, line) in (1..).zip(text.lines()) {
        let words = words(line);
        if words.is_empty() || words[0].starts_with('#') || words[0] == "COMMIT" {
            continue;
        }
        total += 1;
        let place = format!("line {number}");
        match converted(&words, &permanent, &mut sets) {
            Ok(converted) => {
                if is_create(words[0]) && sets.get(words[1]).is_some_and(|set| !set.time.is_empty()) {
                    script.remark(Kind::Differs, &place, line, PERMANENT);
                }
                converted.iter().all(|converted| script.line(converted, &place, line));
            }
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
fn pair<'a>(element: &'a str, set: &Set<'_>) -> Option<(&'a str, String)> {
    let (address, service) = element.split_once(',')?;
    let (protocol, ports) = service.split_once(':').unwrap_or(("tcp", service));
    matches!(protocol, "tcp" | "udp").then(|| (protocol, with_ports(&masked(address, set), ports)))
}

/// An address, or the prefix that it stands for.
fn masked(address: &str, set: &Set<'_>) -> String {
    set.netmask.map_or_else(|| address.to_owned(), |length| format!("{address}/{length}"))
}

fn is_create(command: &str) -> bool {
    matches!(command, "create" | "-N" | "-exist")
}

/// The lines of the language for a line of words. `permanent`: the names of sets with elements that stay.
/// `sets`: the sets so far.
fn converted<'a>(
    words: &[&'a str],
    permanent: &HashSet<&str>,
    sets: &mut HashMap<&'a str, Set<'a>>,
) -> Result<Vec<String>, IpsetError> {
    let [command, name, what, options @ ..] = words else { return Err(IpsetError::Line) };
    match *command {
        command if is_create(command) => {
            if options.contains(&"bitmask") {
                return Err(IpsetError::Bitmask);
            }
            let netmask = option(options, "netmask");
            let kind = match *what {
                "hash:ip" | "bitmap:ip" if netmask.is_some() => SetKind::Prefix,
                "hash:ip" | "bitmap:ip" => SetKind::Address,
                "hash:net" => SetKind::Prefix,
                "bitmap:port" => SetKind::Port,
                "hash:ip,port" | "hash:net,port" => SetKind::AddressPort,
                other => return Err(IpsetError::Type { kind: other.to_owned() }),
            };
            let (own, of_elements) = match permanent.contains(name) {
                true => (String::new(), time(options)),
                false => (time(options), String::new()),
            };
            sets.insert(name, Set { kind, netmask, time: of_elements });
            let names = [Some((*name).to_owned()), kind.has_pairs().then(|| udp_set(name))];
            let line = |name| format!("set add {name} {}{own}", kind.word());
            Ok(names.into_iter().flatten().map(line).collect())
        }
        "add" | "-A" => {
            let set = sets.get(name).ok_or_else(|| IpsetError::UnknownSet { name: (*name).to_owned() })?;
            let kind = set.kind;
            if options.contains(&"nomatch") {
                return Err(IpsetError::Exception);
            }
            let invalid = || IpsetError::Element { element: (*what).to_owned(), kind: kind.word() };
            let (name, text) = match kind.has_pairs() {
                false => ((*name).to_owned(), masked(what, set)),
                true => match pair(what, set).ok_or_else(invalid)? {
                    ("udp", text) => (udp_set(name), text),
                    (_, text) => ((*name).to_owned(), text),
                },
            };
            let element = parse_element(&text).ok().filter(|element: &SetElement| kind.accepts(element));
            let element = element.ok_or_else(invalid)?;
            let comment = option(options, "comment").map(|text| format!(" comment \"{}\"", escaped(text)));
            let time = if seconds(options).is_some() { time(options) } else { set.time.clone() };
            Ok(vec![format!("set {name} add {element}{time}{}", comment.unwrap_or_default())])
        }
        _ => Err(IpsetError::Line),
    }
}

fn option<'a>(options: &[&'a str], name: &str) -> Option<&'a str> {
    let at = options.iter().position(|option| *option == name)?;
    options.get(at + 1).copied()
}

/// The value of the option `timeout`. 0 means that elements stay.
fn seconds(options: &[&str]) -> Option<u32> {
    option(options, "timeout").and_then(|text| text.parse().ok())
}

/// The time of a set or an element in the language. Empty if there is none.
fn time(options: &[&str]) -> String {
    match seconds(options).unwrap_or(0).min(NamedSet::MAX_TIMEOUT) {
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
                     add blocked 2001:db8::1 timeout 3599\n\
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
            "set blocked add 2001:db8::1 timeout 3599s",
            "set add nets prefix",
            "set nets add 10.0.0.0/8",
            "set add web port",
            "set web add 80",
            "set web add 443-444",
            "set add pairs address-port",
            "set add pairs-udp address-port",
            "set pairs add 192.0.2.1:80 timeout 1m",
            "set pairs-udp add 192.0.2.1:53-54",
            "set add nets6 address-port",
            "set add nets6-udp address-port",
            "set nets6 add [2001:db8::/32]:443",
        ];
        assert_eq!(lines, expected);
        assert_eq!(script.remarks().count(), 6, "{text}");
    }

    /// The lines, and the failures, of output as ipset 7.17 prints it.
    fn lines(saved: &str) -> (Vec<String>, String) {
        let mut script = Script::default();
        convert(saved, &mut script);
        let text = script.text();
        let lines = text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
        (lines, script.failures())
    }

    /// A lookup masks the address first.
    #[test]
    fn an_element_of_a_set_with_a_netmask_is_a_prefix() {
        let (rules, failures) = lines(
            "create off hash:ip family inet hashsize 1024 maxelem 65536 netmask 24 bucketsize 12 initval 0x089a\n\
             add off 192.0.2.0\n\
             create off6 hash:ip family inet6 hashsize 1024 maxelem 65536 netmask 64\nadd off6 2001:db8:1:2::\n\
             create b bitmap:ip range 10.0.0.0-10.0.255.255 netmask 24\nadd b 10.0.3.0\n\
             create pp hash:ip,port family inet netmask 24\nadd pp 10.1.2.0,tcp:80\n",
        );
        let expected = [
            "set add off prefix",
            "set off add 192.0.2.0/24",
            "set add off6 prefix",
            "set off6 add 2001:db8:1:2::/64",
            "set add b prefix",
            "set b add 10.0.3.0/24",
            "set add pp address-port",
            "set add pp-udp address-port",
            "set pp add 10.1.2.0/24:80",
        ];
        assert_eq!(
            (rules.iter().map(String::as_str).collect::<Vec<_>>(), failures),
            (expected.to_vec(), "".into())
        );
        let (rules, failures) =
            lines("create m hash:ip family inet bitmask 255.255.0.255 bucketsize 12\nadd m 10.1.0.3\n");
        assert!(rules.is_empty() && failures.contains("`bitmask` has no equal"), "{failures}");
    }

    #[test]
    fn elements_that_stay_do_not_expire() {
        let (rules, failures) = lines(
            "create perm hash:ip family inet timeout 3600\nadd perm 192.0.2.7 timeout 0\n\
             add perm 192.0.2.8 timeout 500\nadd perm 192.0.2.9\n\
             create none hash:ip family inet timeout 0\nadd none 192.0.2.1 timeout 0\n",
        );
        let expected = [
            "set add perm address",
            "set perm add 192.0.2.7",
            "set perm add 192.0.2.8 timeout 500s",
            "set perm add 192.0.2.9 timeout 1h",
            "set add none address",
            "set none add 192.0.2.1",
        ];
        assert_eq!(rules, expected);
        assert!(failures.starts_with("line 1: differs") && failures.lines().count() == 2, "{failures}");
    }
}
