//! Filter sets of ClassBench (Taylor and Turner, INFOCOM 2005): one five-tuple per line.
//!
//! ```text
//! @10.0.0.0/8  192.0.2.1/32  0 : 65535  80 : 80  0x06/0xFF  0x0200/0x1200
//!  source      destination   source     destination  protocol  value/mask of the flags:
//!                            ports      ports        and mask  TCP flags or ICMP type in the upper byte
//! ```
//!
//! The format has no actions: all rules get the same target, so their order does not matter. A line with
//! ports and without a protocol becomes two rules, one for TCP and one for UDP.

use std::net::Ipv4Addr;

/// Why a line of a filter set cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassbenchError {
    /// The line does not begin with `@`.
    #[error("a rule begins with @")]
    NoAt,
    /// The line has too few words.
    #[error("a rule has two addresses, two port ranges, a protocol and flags")]
    MissingWords,
    /// The protocol number is above 255.
    #[error("a protocol has 8 bits")]
    InvalidProtocol,
    /// Only some bits of the protocol are compared.
    #[error("the mask of a protocol is 0x00 or 0xFF")]
    PartialProtocol,
    /// Not an address with a prefix length.
    #[error("`{word}` is not a subnet")]
    InvalidSubnet {
        /// The word.
        word: String,
    },
    /// Not a range of ports.
    #[error("`{low} : {high}` is not a port range")]
    InvalidPorts {
        /// The first word.
        low: String,
        /// The second word.
        high: String,
    },
    /// Not two hexadecimal numbers.
    #[error("`{word}` is not a value with a mask")]
    InvalidMask {
        /// The word.
        word: String,
    },
    /// The rule has ports and a protocol other than TCP and UDP.
    #[error("ports with a protocol that has no ports")]
    UnexpectedPorts,
    /// The flags are neither TCP flags nor an ICMP type.
    #[error("flags that are neither TCP flags nor an ICMP type")]
    InvalidFlags,
}

/// A rule of a filter set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FiveTuple {
    /// Source address and its prefix length.
    pub source: (Ipv4Addr, u8),
    /// Destination address and its prefix length.
    pub destination: (Ipv4Addr, u8),
    /// First and last source port.
    pub source_ports: (u16, u16),
    /// First and last destination port.
    pub destination_ports: (u16, u16),
    /// The protocol; none for any.
    pub protocol: Option<u8>,
    /// TCP flags (upper byte), or ICMP type (upper byte) and code, with the mask of the bits that are
    /// compared.
    pub flags: (u16, u16),
}

const ANY_PORT: (u16, u16) = (0, u16::MAX);
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;

/// Parses a line; none for an empty line.
///
/// # Errors
/// See [`ClassbenchError`].
pub fn parse(line: &str) -> Result<Option<FiveTuple>, ClassbenchError> {
    let words: Vec<&str> = line.split_whitespace().filter(|word| *word != ":").collect();
    let (source, rest) = match words.as_slice() {
        [] => return Ok(None),
        [source, rest @ ..] => (source.strip_prefix('@').ok_or(ClassbenchError::NoAt)?, rest),
    };
    let [destination, s0, s1, d0, d1, protocol, flags @ ..] = rest else {
        return Err(ClassbenchError::MissingWords);
    };
    let protocol = match masked(protocol)? {
        (_, 0) => None,
        (number, 0xff) => Some(u8::try_from(number).map_err(|_| ClassbenchError::InvalidProtocol)?),
        _ => return Err(ClassbenchError::PartialProtocol),
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

fn prefix(word: &str) -> Result<(Ipv4Addr, u8), ClassbenchError> {
    let parsed = word.split_once('/').and_then(|(address, length)| {
        let length = length.parse().ok().filter(|length| *length <= 32)?;
        Some((address.parse().ok()?, length))
    });
    parsed.ok_or_else(|| ClassbenchError::InvalidSubnet { word: word.to_owned() })
}

fn ports(low: &str, high: &str) -> Result<(u16, u16), ClassbenchError> {
    match (low.parse(), high.parse()) {
        (Ok(low), Ok(high)) if low <= high => Ok((low, high)),
        _ => Err(ClassbenchError::InvalidPorts { low: low.to_owned(), high: high.to_owned() }),
    }
}

/// Parses `value/mask`, both hexadecimal.
fn masked(word: &str) -> Result<(u16, u16), ClassbenchError> {
    let number = |word: &str| u16::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let parsed = word.split_once('/').and_then(|(value, mask)| Some((number(value)?, number(mask)?)));
    parsed.ok_or_else(|| ClassbenchError::InvalidMask { word: word.to_owned() })
}

impl FiveTuple {
    /// The protocols of the resulting rules; none in the list stands for any protocol.
    pub fn protocols(&self) -> Vec<Option<u8>> {
        match self.protocol {
            None if self.has_ports() => vec![Some(TCP), Some(UDP)],
            protocol => vec![protocol],
        }
    }

    fn has_ports(&self) -> bool {
        (self.source_ports, self.destination_ports) != (ANY_PORT, ANY_PORT)
    }

    /// The matches of each resulting rule, in the language.
    ///
    /// # Errors
    /// Ports or flags that the protocol does not have.
    pub fn matches(&self) -> Result<Vec<String>, ClassbenchError> {
        self.protocols().into_iter().map(|protocol| self.matches_for(protocol)).collect()
    }

    fn matches_for(&self, protocol: Option<u8>) -> Result<String, ClassbenchError> {
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
            _ if self.has_ports() => return Err(ClassbenchError::UnexpectedPorts),
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

    fn flag_words(&self, protocol: Option<u8>) -> Result<String, ClassbenchError> {
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
            _ => Err(ClassbenchError::InvalidFlags),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(line: &str) -> Result<Vec<String>, ClassbenchError> {
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
    fn invalid_lines_are_refused() {
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
