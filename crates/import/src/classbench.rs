//! Filter sets of ClassBench (Taylor and Turner, INFOCOM 2005): five-tuples, one a line.
//!
//! ```text
//! @10.0.0.0/8  192.0.2.1/32  0 : 65535  80 : 80  0x06/0xFF  0x0200/0x1200
//!  source      destination   source     destination  protocol  flags: value/mask,
//!                            ports      ports        and mask  TCP's flags or ICMP's type in the upper byte
//! ```
//!
//! The format says nothing about what a rule does, so that the target is an option; and ClassBench's first match is of
//! no account when all rules do the same. Ports of a rule for any protocol are ports of TCP or UDP: two rules.

use std::net::Ipv4Addr;

/// A rule of a filter set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FiveTuple {
    /// Source address and the number of its bits that count.
    pub source: (Ipv4Addr, u8),
    /// Destination address and the number of its bits that count.
    pub destination: (Ipv4Addr, u8),
    /// Source ports, both ends included.
    pub source_ports: (u16, u16),
    /// Destination ports, both ends included.
    pub destination_ports: (u16, u16),
    /// The protocol; None: any.
    pub protocol: Option<u8>,
    /// Flags of TCP, or type (upper byte) and code of ICMP, and which of their bits count.
    pub flags: (u16, u16),
}

const ANY_PORT: (u16, u16) = (0, u16::MAX);
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;

/// A rule from its line; None for an empty line.
///
/// # Errors
/// What is wrong with it.
pub fn parse(line: &str) -> Result<Option<FiveTuple>, String> {
    let words: Vec<&str> = line.split_whitespace().filter(|word| *word != ":").collect();
    let (source, rest) = match words.as_slice() {
        [] => return Ok(None),
        [source, rest @ ..] => (source.strip_prefix('@').ok_or("a rule starts with @")?, rest),
    };
    let [destination, s0, s1, d0, d1, protocol, flags @ ..] = rest else {
        return Err("a rule has two addresses, two ranges of ports, a protocol and flags".into());
    };
    let protocol = match masked(protocol)? {
        (_, 0) => None,
        (number, 0xff) => Some(u8::try_from(number).map_err(|_| "a protocol has 8 bits")?),
        _ => return Err("the mask of a protocol is 0x00 or 0xFF".into()),
    };
    Ok(Some(FiveTuple {
        source: prefix(source)?,
        destination: prefix(destination)?,
        source_ports: ports(s0, s1)?,
        destination_ports: ports(d0, d1)?,
        protocol,
        flags: flags.first().map_or(Ok((0, 0)), |flags| masked(flags))?,
    }))
}

fn prefix(word: &str) -> Result<(Ipv4Addr, u8), String> {
    let parsed = word.split_once('/').and_then(|(address, length)| {
        let length = length.parse().ok().filter(|length| *length <= 32)?;
        Some((address.parse().ok()?, length))
    });
    parsed.ok_or_else(|| format!("`{word}` is no subnet"))
}

fn ports(low: &str, high: &str) -> Result<(u16, u16), String> {
    match (low.parse(), high.parse()) {
        (Ok(low), Ok(high)) if low <= high => Ok((low, high)),
        _ => Err(format!("`{low} : {high}` is no range of ports")),
    }
}

/// `value/mask`, both hexadecimal.
fn masked(word: &str) -> Result<(u16, u16), String> {
    let number = |word: &str| u16::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let parsed = word.split_once('/').and_then(|(value, mask)| Some((number(value)?, number(mask)?)));
    parsed.ok_or_else(|| format!("`{word}` is no value with a mask"))
}

impl FiveTuple {
    /// The protocols for which the rule has to be written: those with the ports it asks for.
    pub fn protocols(&self) -> Vec<Option<u8>> {
        match self.protocol {
            None if self.has_ports() => vec![Some(TCP), Some(UDP)],
            protocol => vec![protocol],
        }
    }

    fn has_ports(&self) -> bool {
        (self.source_ports, self.destination_ports) != (ANY_PORT, ANY_PORT)
    }

    /// The matches of each rule, in the language.
    ///
    /// # Errors
    /// What the language cannot say.
    pub fn matches(&self) -> Result<Vec<String>, String> {
        self.protocols().into_iter().map(|protocol| self.one(protocol)).collect()
    }

    fn one(&self, protocol: Option<u8>) -> Result<String, String> {
        let mut words = String::new();
        for (field, (address, length)) in [("ip-saddr", self.source), ("ip-daddr", self.destination)] {
            if length > 0 {
                words.push_str(&format!(" {field} {address}/{length}"));
            }
        }
        match protocol {
            Some(number) => words.push_str(&format!(" ip-proto {number}")),
            None if words.is_empty() => words.push_str(" net-proto ip"),
            None => {}
        }
        let header = match protocol {
            Some(TCP) => "tcp",
            Some(UDP) => "udp",
            _ if self.has_ports() => return Err("ports of a protocol that has none".into()),
            _ => "",
        };
        for (field, range) in [("sport", self.source_ports), ("dport", self.destination_ports)] {
            match range {
                ANY_PORT => {}
                (low, high) if low == high => words.push_str(&format!(" {header}-{field} {low}")),
                (low, high) => words.push_str(&format!(" {header}-{field} {low}-{high}")),
            }
        }
        Ok(words + &self.flag_words(protocol)?)
    }

    fn flag_words(&self, protocol: Option<u8>) -> Result<String, String> {
        const BITS: [&str; 8] = ["fin", "syn", "rst", "push", "ack", "urg", "ece", "cwr"];
        let (value, mask) = self.flags;
        match (protocol, mask) {
            (_, 0) => Ok(String::new()),
            (Some(TCP), mask) if mask & 0xff == 0 => Ok((0..8)
                .filter(|bit| mask >> 8 >> bit & 1 == 1)
                .map(|bit| {
                    format!(" tcp-{}{}", BITS[bit], if value >> 8 >> bit & 1 == 1 { "" } else { " 0" })
                })
                .collect()),
            (Some(ICMP), 0xff00) => Ok(format!(" icmp-type {}", value >> 8)),
            (Some(ICMP), 0xffff) => Ok(format!(" icmp-type {} icmp-code {}", value >> 8, value & 0xff)),
            _ => Err("flags that are neither TCP's nor a type of ICMP".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(line: &str) -> Result<Vec<String>, String> {
        parse(line)?.map_or(Ok(Vec::new()), |rule| rule.matches())
    }

    #[test]
    fn lines_of_real_filter_sets() {
        let line = "@165.245.102.57/32\t54.80.239.130/32\t0 : 65535\t5555 : 5555\t0x06/0xFF\t0x1000/0x1000\t";
        let words = " ip-saddr 165.245.102.57/32 ip-daddr 54.80.239.130/32 ip-proto 6 tcp-dport 5555 tcp-ack";
        assert_eq!(matches(line).unwrap(), [words]);
        let line = "@0.0.0.0/0 10.0.0.0/8 1024 : 65535 53 : 53 0x00/0x00 0x0000/0x0000";
        assert_eq!(
            matches(line).unwrap(),
            [
                " ip-daddr 10.0.0.0/8 ip-proto 6 tcp-sport 1024-65535 tcp-dport 53",
                " ip-daddr 10.0.0.0/8 ip-proto 17 udp-sport 1024-65535 udp-dport 53",
            ]
        );
        let any = "0 : 65535 0 : 65535";
        assert_eq!(matches(&format!("@0.0.0.0/0 0.0.0.0/0 {any} 0x00/0x00")).unwrap(), [" net-proto ip"]);
        let icmp = format!("@0.0.0.0/0 0.0.0.0/0 {any} 0x01/0xFF 0x0800/0xff00");
        assert_eq!(matches(&icmp).unwrap(), [" ip-proto 1 icmp-type 8"]);
        let syn = format!("@0.0.0.0/0 0.0.0.0/0 {any} 0x06/0xFF 0x0200/0x1200");
        assert_eq!(matches(&syn).unwrap(), [" ip-proto 6 tcp-syn tcp-ack 0"]);
        assert_eq!(matches(" \t"), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_rule_or_cannot_be_said() {
        let any = "0 : 65535 0 : 65535";
        let bad = [
            "10.0.0.0/8 10.0.0.0/8 0 : 1 0 : 1 0x06/0xFF 0x0000/0x0000".to_owned(),
            "@10.0.0.0/8 10.0.0.0/8 0 : 1 0x06/0xFF".to_owned(),
            format!("@10.0.0.0/33 10.0.0.0/8 {any} 0x06/0xFF"),
            format!("@10.0.0.0/8 10.0.0/8 {any} 0x06/0xFF"),
            "@10.0.0.0/8 10.0.0.0/8 2 : 1 0 : 1 0x06/0xFF".to_owned(),
            format!("@10.0.0.0/8 10.0.0.0/8 {any} 0x06/0x0F"),
            format!("@10.0.0.0/8 10.0.0.0/8 {any} 0x106/0xFF"),
            format!("@10.0.0.0/8 10.0.0.0/8 {any} 0x06/0xFF 7"),
            "@10.0.0.0/8 10.0.0.0/8 1 : 1 0 : 1 0x2f/0xFF".to_owned(),
            format!("@10.0.0.0/8 10.0.0.0/8 {any} 0x11/0xFF 0x0100/0x0100"),
        ];
        for line in bad {
            assert!(matches(&line).is_err(), "{line}");
        }
    }
}
