//! The options of one rule of iptables.

use mmb_lang::FieldId;

use super::error::OptionError;
use super::target::Target;
use crate::filter::{Filter, IP4, IP6, Member, TCP, Values};
use crate::intervals::Intervals;
use crate::ipset::udp_set;
use crate::names;
use crate::nat::Machine;
use crate::ordered::{Chains, Verdict};
use crate::script::Kind;
use crate::states::States;
use crate::values::{addresses, flags_equal};

/// A rule whose options are being read.
pub(super) struct Rule<'a> {
    ip6: bool,
    machine: &'a Machine,
    words: std::slice::Iter<'a, String>,
    filters: Vec<Filter>,
    /// The transport protocol, after `-p`.
    protocol: Option<u128>,
    target: Option<Target<'a>>,
    /// Whether the rule has a limit of its rate.
    is_limited: bool,
    /// Named sets that the rule refers to.
    has_sets: bool,
    /// Whether the rule is about the loopback interface.
    is_loopback: bool,
}

/// Matches whose options are all supported, or that only add comments.
const MODULES: [&str; 19] = [
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "icmpv6",
    "multiport",
    "iprange",
    "ttl",
    "hl",
    "length",
    "dscp",
    "tcpmss",
    "comment",
    "ecn",
    "conntrack",
    "state",
    "limit",
    "set",
    "addrtype",
];

impl<'a> Rule<'a> {
    /// The rule of the words after the name of the chain.
    pub(super) fn new(ip6: bool, machine: &'a Machine, words: &'a [String]) -> Self {
        let version = Filter::of(FieldId::NetProto, Values::one(if ip6 { IP6 } else { IP4 }));
        let filters = version.into_iter().collect();
        Rule {
            ip6,
            machine,
            words: words.iter(),
            filters,
            protocol: None,
            target: None,
            is_limited: false,
            has_sets: false,
            is_loopback: false,
        }
    }

    /// The filters of the options read so far; a packet matches the rule if it matches one of them.
    pub(super) fn into_filters(self) -> Vec<Filter> {
        self.filters
    }

    /// The target, if the rule has one.
    pub(super) fn target(&self) -> Option<&Target<'a>> {
        self.target.as_ref()
    }

    /// Whether it matches the state of connections.
    pub(super) fn has_states(&self) -> bool {
        self.filters.iter().any(|filter| filter.states() != States::ALL)
    }

    /// Reads all options.
    pub(super) fn read(&mut self) -> Result<(), OptionError> {
        let mut negated = false;
        while let Some(word) = self.words.next() {
            if word == "!" {
                negated = true;
                continue;
            }
            self.option(word, negated)?;
            negated = false;
        }
        Ok(())
    }

    /// The value of an option.
    fn value(&mut self, option: &str) -> Result<&'a str, OptionError> {
        let no_value = || OptionError::NoValue { option: option.to_owned() };
        self.words.next().map(String::as_str).ok_or_else(no_value)
    }

    /// The field for the IP version of the file.
    fn by_version(&self, ip4: FieldId, ip6: FieldId) -> FieldId {
        if self.ip6 { ip6 } else { ip4 }
    }

    fn option(&mut self, option: &str, negated: bool) -> Result<(), OptionError> {
        use FieldId::IpFragOffset;
        let unknown = || OptionError::UnknownOption { option: option.to_owned() };
        if matches!(option, "-f" | "--fragment") {
            return self.and(IpFragOffset, Values::one(0), !negated);
        }
        if option == "--syn" {
            return self.flags("FIN,SYN,RST,ACK", "SYN", negated);
        }
        let value = self.value(option)?;
        match option {
            "-m" | "--match" if MODULES.contains(&value) => Ok(()),
            "-m" | "--match" => Err(OptionError::UnknownMatch { name: value.to_owned() }),
            "--comment" => Ok(()),
            "-c" => self.value(option).map(drop),
            "-j" | "--jump" | "-g" | "--goto" => {
                // The other words are options of the target.
                let options = std::mem::take(&mut self.words);
                self.target = Some(Target { name: value, goes: matches!(option, "-g" | "--goto"), options });
                Ok(())
            }
            "--ctstate" | "--state" => self.states(value, negated),
            "--limit" | "--limit-burst" => {
                self.is_limited = true;
                Ok(())
            }
            "--match-set" => {
                let sides = self.value(option)?;
                self.set(value, sides, negated)
            }
            "--dst-type" if !negated && !self.ip6 => self.local(value),
            "--dst-type" | "--src-type" => Err(OptionError::AddressType),
            "-s" | "--source" => {
                self.address(self.by_version(FieldId::IpSaddr, FieldId::Ip6Saddr), value, negated)
            }
            "-d" | "--destination" => {
                self.address(self.by_version(FieldId::IpDaddr, FieldId::Ip6Daddr), value, negated)
            }
            "--src-range" => {
                self.address(self.by_version(FieldId::IpSaddr, FieldId::Ip6Saddr), value, negated)
            }
            "--dst-range" => {
                self.address(self.by_version(FieldId::IpDaddr, FieldId::Ip6Daddr), value, negated)
            }
            "-i" | "--in-interface" => self.interface(FieldId::In, value, negated),
            "-o" | "--out-interface" => self.interface(FieldId::Out, value, negated),
            "-p" | "--protocol" => self.protocol(value, negated),
            "--sport" | "--sports" | "--source-port" | "--source-ports" => {
                self.ports(&[true], value, negated)
            }
            "--dport" | "--dports" | "--destination-port" | "--destination-ports" => {
                self.ports(&[false], value, negated)
            }
            "--ports" | "--port" => self.ports(&[true, false], value, negated),
            "--tcp-flags" => {
                let set = self.value(option)?;
                self.flags(value, set, negated)
            }
            "--icmp-type" => self.icmp(FieldId::IcmpType, FieldId::IcmpCode, value, negated),
            "--icmpv6-type" => self.icmp(FieldId::Icmp6Type, FieldId::Icmp6Code, value, negated),
            "--mss" => self.segment_size(value, negated),
            "--ecn-ip-ect" if !self.ip6 => self.and(FieldId::IpEcn, ranges(value, 3)?, negated),
            "--dscp" => self.dscp(value, negated),
            "--length" => self.length(value, negated),
            _ => match option.trim_start_matches('-').split_once('-') {
                Some(("ttl" | "hl", relation)) => self.ttl(relation, value, negated),
                _ => Err(unknown()),
            },
        }
    }

    fn and(&mut self, field: FieldId, values: Values, negated: bool) -> Result<(), OptionError> {
        let values = if negated { values.complement(field) } else { values };
        let filters = std::mem::take(&mut self.filters);
        self.filters = filters.into_iter().filter_map(|filter| filter.and(field, &values)).collect();
        Ok(())
    }

    fn address(&mut self, field: FieldId, text: &str, negated: bool) -> Result<(), OptionError> {
        let invalid = || OptionError::InvalidAddress {
            text: text.to_owned(),
            version: if self.ip6 { "IPv6" } else { "IPv4" },
        };
        let (low, high) = addresses(text, field.def().width_bits.into()).ok_or_else(invalid)?;
        self.and(field, Values::range(low, high), negated)
    }

    fn interface(&mut self, field: FieldId, name: &str, negated: bool) -> Result<(), OptionError> {
        if name.ends_with('+') {
            return Err(OptionError::InterfacePattern { name: name.to_owned() });
        }
        self.is_loopback |= name == "lo" && !negated;
        self.and(field, Values::name(name), negated)
    }

    fn protocol(&mut self, name: &str, negated: bool) -> Result<(), OptionError> {
        if name == "all" {
            return Ok(());
        }
        let unknown = || OptionError::UnknownProtocol { name: name.to_owned() };
        let number = names::protocol(name).ok_or_else(unknown)?;
        self.protocol = Some(number).filter(|_| !negated);
        self.and(FieldId::IpProto, Values::one(number), negated)
    }

    /// Ports on one of the sides: `true` is the source, `false` the destination.
    fn ports(&mut self, sides: &[bool], text: &str, negated: bool) -> Result<(), OptionError> {
        use FieldId::{TcpDport, TcpSport, UdpDport, UdpSport};
        let (source, destination) = match self.protocol {
            Some(6) => (TcpSport, TcpDport),
            Some(17) => (UdpSport, UdpDport),
            _ => return Err(OptionError::UnsupportedPorts),
        };
        let values = ranges(text, u16::MAX.into())?;
        let fields: Vec<_> =
            sides.iter().map(|is_source| if *is_source { source } else { destination }).collect();
        if negated {
            // No side may match.
            return fields.into_iter().try_for_each(|field| self.and(field, values.clone(), true));
        }
        let with = |field: &FieldId| {
            self.filters.iter().cloned().filter_map(|f| f.and(*field, &values)).collect::<Vec<_>>()
        };
        self.filters = fields.iter().flat_map(with).collect();
        Ok(())
    }

    fn flags(&mut self, mask: &str, set: &str, negated: bool) -> Result<(), OptionError> {
        let bits = |names: &str| match names {
            "ALL" => Some(0x3f),
            "NONE" => Some(0),
            names => names.split(',').map(|name| names::flag(&name.to_lowercase())).sum(),
        };
        let (Some(mask), Some(set)) = (bits(mask), bits(set)) else {
            return Err(OptionError::InvalidFlags { mask: mask.to_owned(), set: set.to_owned() });
        };
        let matching = flags_equal(mask, set, negated);
        let filters = std::mem::take(&mut self.filters);
        self.filters =
            filters.iter().flat_map(|a| matching.iter().filter_map(|b| a.intersection(b))).collect();
        Ok(())
    }

    fn icmp(&mut self, kind: FieldId, code: FieldId, text: &str, negated: bool) -> Result<(), OptionError> {
        if text == "any" {
            return Ok(());
        }
        let (kind_text, code_text) =
            text.split_once('/').map_or((text, None), |(kind, code)| (kind, Some(code)));
        let number = |text| names::number(text).or_else(|| names::value(kind, text)).filter(|n| *n <= 255);
        let Some(number) = number(kind_text) else {
            return Err(OptionError::UnknownType { text: text.to_owned() });
        };
        match code_text {
            Some(_) if negated => Err(OptionError::NegatedCode),
            Some(text) => {
                self.and(kind, Values::one(number), false)?;
                self.and(code, ranges(text, 255)?, false)
            }
            None => self.and(kind, Values::one(number), negated),
        }
    }

    fn dscp(&mut self, text: &str, negated: bool) -> Result<(), OptionError> {
        let number = names::number(text).filter(|number| *number < 64);
        let number = number.ok_or_else(|| OptionError::InvalidCodePoint { text: text.to_owned() })?;
        match self.ip6 {
            // DSCP is the upper six bits of the traffic class.
            true => self.and(FieldId::Ip6TrafficClass, Values::range(number << 2, number << 2 | 3), negated),
            false => self.and(FieldId::IpDscp, Values::one(number), negated),
        }
    }

    /// The maximum segment size that a TCP segment announces. Negated: also segments that announce none.
    fn segment_size(&mut self, text: &str, negated: bool) -> Result<(), OptionError> {
        let values = ranges(text, u16::MAX.into())?;
        if !negated {
            return self.and(FieldId::TcpOptMss, values, false);
        }
        self.and(FieldId::IpProto, Values::one(TCP), false)?;
        let filters = std::mem::take(&mut self.filters);
        self.filters = match Filter::of(FieldId::TcpOptMss, values) {
            Some(excluded) => filters.iter().flat_map(|filter| filter.minus(&excluded)).collect(),
            None => filters,
        };
        Ok(())
    }

    /// The length of the packet. The IPv6 header has the length without its own 40 bytes.
    fn length(&mut self, text: &str, negated: bool) -> Result<(), OptionError> {
        let values = ranges(text, u16::MAX.into())?;
        match values {
            Values::Numbers(numbers) if self.ip6 => {
                let shorter = numbers.iter().filter(|(_, high)| *high >= 40);
                let shorter = shorter.map(|(low, high)| (low.saturating_sub(40), high - 40));
                self.and(FieldId::Ip6Len, Values::Numbers(Intervals::of(shorter)), negated)
            }
            values => self.and(FieldId::IpLen, values, negated),
        }
    }

    fn ttl(&mut self, relation: &str, text: &str, negated: bool) -> Result<(), OptionError> {
        let number = names::number(text).filter(|number| *number <= 255);
        let number = number.ok_or_else(|| OptionError::InvalidHops { text: text.to_owned() })?;
        let values = match relation {
            "eq" => Values::one(number),
            "lt" => Values::Numbers(Intervals::of(number.checked_sub(1).map(|high| (0, high)))),
            "gt" => Values::range(number + 1, 255),
            _ => return Err(OptionError::UnknownOption { option: format!("--ttl-{relation}") }),
        };
        self.and(self.by_version(FieldId::IpTtl, FieldId::Ip6HopLimit), values, negated)
    }

    /// Connection states.
    fn states(&mut self, text: &str, negated: bool) -> Result<(), OptionError> {
        let unknown = || OptionError::UnknownStates { states: text.to_owned() };
        let states = match text {
            // Later packets of such connections are established, too.
            "DNAT" if !negated => States::REDIRECTED,
            text if text.split(',').any(|word| word == "DNAT") => return Err(OptionError::MixedDnat),
            text => {
                let all: Option<Vec<States>> = text.split(',').map(States::of).collect();
                all.ok_or_else(unknown)?.into_iter().fold(States::NONE, States::or)
            }
        };
        let states = if negated { States::ALL.without(states) } else { states };
        let filters = std::mem::take(&mut self.filters);
        self.filters = filters.into_iter().filter_map(|filter| filter.and_states(states)).collect();
        Ok(())
    }

    /// A named set of addresses, or of addresses and ports.
    fn set(&mut self, name: &str, sides: &str, negated: bool) -> Result<(), OptionError> {
        let (address, port) =
            sides.split_once(',').map_or((sides, None), |(address, port)| (address, Some(port)));
        let field = match address {
            "src" => self.by_version(FieldId::IpSaddr, FieldId::Ip6Saddr),
            "dst" => self.by_version(FieldId::IpDaddr, FieldId::Ip6Daddr),
            _ => return Err(OptionError::UnsupportedSet),
        };
        let member = |port, set| Member { field, port, set, is_in: !negated };
        let members = match port {
            None => vec![member(None, name.to_owned())],
            Some("src") if !negated => vec![
                member(Some(FieldId::TcpSport), name.to_owned()),
                member(Some(FieldId::UdpSport), udp_set(name)),
            ],
            Some("dst") if !negated => vec![
                member(Some(FieldId::TcpDport), name.to_owned()),
                member(Some(FieldId::UdpDport), udp_set(name)),
            ],
            Some(_) => return Err(OptionError::UnsupportedSet),
        };
        self.has_sets = true;
        let filters = std::mem::take(&mut self.filters);
        let with = |filter: &Filter| -> Vec<Filter> {
            members.iter().filter_map(|member| filter.clone().and_member(member.clone())).collect()
        };
        self.filters = filters.iter().flat_map(with).collect();
        Ok(())
    }

    /// Addresses of the machine.
    fn local(&mut self, kind: &str) -> Result<(), OptionError> {
        let local = self.machine.local().filter(|_| kind == "LOCAL").ok_or(OptionError::AddressType)?;
        let filters = std::mem::take(&mut self.filters);
        self.filters = filters.iter().filter_map(|filter| filter.intersection(&local)).collect();
        Ok(())
    }

    /// The verdicts of the rule, in order.
    pub(super) fn verdicts(
        &self,
        chains: &Chains,
        key: impl Fn(&str) -> String,
    ) -> Result<Vec<Verdict>, OptionError> {
        let note = |reason: &str| Verdict::Remark(Kind::Note, reason.to_owned());
        if self.is_loopback {
            return Ok(vec![note("packets of the loopback interface do not pass mmb")]);
        }
        let Some(target) = &self.target else {
            return Ok(vec![note("it only counts, which all rules of mmb do")]);
        };
        let mut notes = Vec::new();
        if self.is_limited {
            if !target.logs() {
                return Err(OptionError::Limited);
            }
            notes.push(note("a rule logs twenty packets at once, and ten a second"));
        }
        if self.filters.is_empty() {
            return Ok(vec![note("no packet of mmb has such a state or such addresses")]);
        }
        if self.has_sets {
            notes.push(note("`import ipset` converts the set, whose lines come before"));
        }
        notes.extend(target.verdicts(chains, key)?);
        Ok(notes)
    }
}

/// Parses numbers and ranges, separated by commas: `80,443,8000:8100`. An open end is 0 or `max`.
fn ranges(text: &str, max: u128) -> Result<Values, OptionError> {
    let end = |text: &str, open: u128| if text.is_empty() { Some(open) } else { names::number(text) };
    let one = |part: &str| {
        let (low, high) = part.split_once(':').unwrap_or((part, part));
        if part.is_empty() { None } else { Some((end(low, 0)?, end(high, max).filter(|high| *high <= max)?)) }
    };
    let all: Option<Vec<_>> = text.split(',').map(one).collect();
    all.map(|all| Values::Numbers(Intervals::of(all)))
        .ok_or_else(|| OptionError::InvalidRange { text: text.to_owned() })
}
