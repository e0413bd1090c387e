//! The options of one rule of iptables.

use mmb_lang::FieldId;

use crate::filter::{Filter, IP4, IP6, Values};
use crate::intervals::Intervals;
use crate::names;
use crate::ordered::{Chains, OTHER_ANSWER, Verdict, log_prefix};
use crate::script::Kind;
use crate::values::{addresses, flags_equal};

/// Why a rule cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OptionError {
    /// An option has no value.
    #[error("`{option}` has no value")]
    NoValue {
        /// The option.
        option: String,
    },
    /// The import does not know an option.
    #[error("unknown option `{option}`")]
    UnknownOption {
        /// The option.
        option: String,
    },
    /// A match needs connection state.
    #[error("`-m {name}` needs connection state, which `add` rules do not have")]
    NeedsState {
        /// Name of the match.
        name: String,
    },
    /// mmb has no equivalent of a match.
    #[error("mmb has no equivalent of `-m {name}`")]
    UnknownMatch {
        /// Name of the match.
        name: String,
    },
    /// mmb has no equivalent of a target.
    #[error("mmb has no equivalent of the target {name}")]
    UnknownTarget {
        /// Name of the target.
        name: String,
    },
    /// Not an address, a subnet or a range of addresses.
    #[error("`{text}` is neither a subnet nor a range")]
    InvalidAddress {
        /// The text.
        text: String,
    },
    /// A pattern for interface names.
    #[error("mmb matches interfaces by their full names, not by `{name}`")]
    InterfacePattern {
        /// The pattern.
        name: String,
    },
    /// Not the name or number of a protocol.
    #[error("unknown protocol `{name}`")]
    UnknownProtocol {
        /// The text.
        name: String,
    },
    /// Ports of a protocol other than TCP and UDP.
    #[error("mmb matches ports of TCP and UDP only")]
    UnsupportedPorts,
    /// Not a list of TCP flags.
    #[error("`{mask} {set}` are not TCP flags")]
    InvalidFlags {
        /// The flags that are compared.
        mask: String,
        /// The flags that are set.
        set: String,
    },
    /// Not an ICMP type.
    #[error("unknown ICMP type `{text}`")]
    UnknownType {
        /// The text.
        text: String,
    },
    /// A negated ICMP type with a code.
    #[error("a negated ICMP type with a code is not supported")]
    NegatedCode,
    /// Not a DSCP code point.
    #[error("`{text}` is not a code point")]
    InvalidCodePoint {
        /// The text.
        text: String,
    },
    /// Not a number of hops.
    #[error("`{text}` is not a number of hops")]
    InvalidHops {
        /// The text.
        text: String,
    },
    /// Not a number or a range of numbers.
    #[error("`{text}` is not a range of numbers")]
    InvalidRange {
        /// The text.
        text: String,
    },
}

/// A rule whose options are being read.
pub(super) struct Rule<'a> {
    ip6: bool,
    words: std::slice::Iter<'a, String>,
    filters: Vec<Filter>,
    /// The transport protocol, after `-p`.
    protocol: Option<u128>,
    target: Option<&'a str>,
    /// What the target `REJECT` answers, if the rule says it.
    answer: Option<&'a str>,
    /// The prefix of the target `LOG`.
    log_prefix: Option<&'a str>,
    /// Whether the rule is about the loopback interface.
    is_loopback: bool,
}

/// Matches whose options are all supported, or that only add comments.
const MODULES: [&str; 14] = [
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
];

impl<'a> Rule<'a> {
    /// The rule of the words after the name of the chain.
    pub(super) fn new(ip6: bool, words: &'a [String]) -> Self {
        let version = Filter::of(FieldId::NetProto, Values::one(if ip6 { IP6 } else { IP4 }));
        let filters = version.into_iter().collect();
        Rule {
            ip6,
            words: words.iter(),
            filters,
            protocol: None,
            target: None,
            answer: None,
            log_prefix: None,
            is_loopback: false,
        }
    }

    /// The filters of the options read so far; a packet matches the rule if it matches one of them.
    pub(super) fn into_filters(self) -> Vec<Filter> {
        self.filters
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
        use FieldId::{IpFragOffset, TcpOptMss};
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
            "-m" | "--match"
                if matches!(value, "conntrack" | "state" | "connlimit" | "recent" | "hashlimit") =>
            {
                Err(OptionError::NeedsState { name: value.to_owned() })
            }
            "-m" | "--match" => Err(OptionError::UnknownMatch { name: value.to_owned() }),
            "--comment" => Ok(()),
            "-c" => self.value(option).map(drop),
            "-j" | "--jump" => {
                self.target = Some(value);
                // The other words are options of the target.
                let options = std::mem::take(&mut self.words);
                let value_of = |option: &str| {
                    let mut options = options.clone();
                    options.find(|word| *word == option).and(options.next()).map(String::as_str)
                };
                self.answer = value_of("--reject-with");
                self.log_prefix = value_of("--log-prefix").or_else(|| value_of("--nflog-prefix"));
                Ok(())
            }
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
            "--mss" => self.and(TcpOptMss, ranges(value, u16::MAX.into())?, negated),
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
        let invalid = || OptionError::InvalidAddress { text: text.to_owned() };
        let (low, high) = addresses(text).ok_or_else(invalid)?;
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

    /// The verdicts of the rule, in order.
    pub(super) fn verdicts(&self, chains: &Chains) -> Result<Vec<Verdict>, OptionError> {
        let note = |reason: &str| Verdict::Remark(Kind::Note, reason.to_owned());
        if self.is_loopback {
            return Ok(vec![note("packets of the loopback interface do not pass mmb")]);
        }
        Ok(vec![match self.target {
            None => note("it only counts, which all rules of mmb do"),
            Some("LOG" | "NFLOG" | "ULOG") => Verdict::Log(self.log_prefix.and_then(log_prefix)),
            Some("ACCEPT") => Verdict::Accept,
            Some("DROP") => Verdict::Drop,
            Some("REJECT") => {
                let remark = (self.answer != Some("tcp-reset")).then(|| note(OTHER_ANSWER));
                return Ok(remark.into_iter().chain([Verdict::Reject]).collect());
            }
            Some("RETURN") => Verdict::Return,
            Some(chain) if chains.contains_key(chain) => Verdict::Jump(chain.to_owned()),
            Some(target) => return Err(OptionError::UnknownTarget { name: target.to_owned() }),
        }])
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
