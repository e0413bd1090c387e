//! NAT commands: pools and forwards.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use super::value::subnet;
use super::{Expect, Parse, Parser};
use crate::ast::{Command, Endpoint4, Filtering, NatForward, NatPool, NatProto, PoolAddresses, Subnet};
use crate::diag::{Diagnostic, quote};
use crate::keyword::{FILTERING, NAT, NAT_FORWARD, NAT_POOL, NAT_PROTOS, POOL_INTERFACE, POOL_OPTIONS, TO};
use crate::lex::Tok;
use crate::span::Span;

impl Parser<'_> {
    /// Parses the words after `nat`.
    pub(super) fn nat(&mut self) -> Parse<Command> {
        Ok(match self.keyword(NAT, "`nat` action")? {
            "pool" => match self.keyword(NAT_POOL, "action on pools")? {
                "add" => Command::NatPoolAdd(self.pool()?),
                _ => Command::NatPoolDel { name: self.pool_name()? },
            },
            _ => match self.keyword(NAT_FORWARD, "action on forwards")? {
                "add" => Command::NatForwardAdd(self.forward()?),
                _ => Command::NatForwardDel { proto: self.nat_proto()?, outside: self.socket()? },
            },
        })
    }

    fn pool(&mut self) -> Parse<NatPool> {
        let name = self.name("a pool")?;
        let addresses = self.pool_addresses()?;
        let mut ports: Option<[u16; 2]> = None;
        let (mut block, mut limit, mut filtering) = (None, None, None);
        loop {
            self.expect(Expect::Words(POOL_OPTIONS));
            let token = self.lex.peek();
            if token.tok == Tok::End {
                break;
            }
            let option = self.keyword(POOL_OPTIONS, "option of a pool")?;
            let again = match option {
                "ports" => ports.replace(self.pool_ports()?).is_some(),
                "block" => {
                    let start = self.lex.peek().span;
                    let number = self.number("number of ports in a block", 1..=u16::MAX.into())?;
                    block.replace((number as u16, start)).is_some()
                }
                "limit" => {
                    let number = self.number("limit", 1..=u32::MAX.into())?;
                    limit.replace(number as u32).is_some()
                }
                _ => filtering.replace(self.filtering()?).is_some(),
            };
            if again {
                return Err(Diagnostic::new(token.span, format!("the pool has `{option}` twice")));
            }
        }
        let ports = ports.unwrap_or(NatPool::PORTS);
        let there_are = u32::from(ports[1] - ports[0]) + 1;
        if let Some((block, span)) = block
            && u32::from(block) > there_are
        {
            let message = format!("a block of {block} ports is more than the pool has: {there_are}");
            return Err(Diagnostic::new(span, message));
        }
        let block = block.map(|(block, _)| block);
        Ok(NatPool { name, addresses, ports, block, limit, filtering: filtering.unwrap_or_default() })
    }

    /// `A.B.C.D`, `A.B.C.D-A.B.C.E`, `A.B.C.D/LENGTH` or `interface NAME`.
    fn pool_addresses(&mut self) -> Parse<PoolAddresses> {
        self.expect(Expect::Words(POOL_INTERFACE));
        if self.eat_word("interface") {
            return self.interface_name("an interface").map(PoolAddresses::Interface);
        }
        let (text, span) = self.operand("the range of addresses")?;
        let addresses = match text.split_once('/') {
            Some((first, _)) => pool_subnet(text, first, span)?,
            None => pool_range(text, span)?,
        };
        let [first, last] = addresses.range().unwrap_or([Ipv4Addr::UNSPECIFIED; 2]);
        let number = u64::from(last.to_bits() - first.to_bits()) + 1;
        if number > NatPool::MAX_ADDRESSES.into() {
            let message =
                format!("a pool has {} addresses at most, and these are {number}", NatPool::MAX_ADDRESSES);
            return Err(Diagnostic::new(span, message));
        }
        hosts(first, last, span)?;
        Ok(addresses)
    }

    fn pool_ports(&mut self) -> Parse<[u16; 2]> {
        let (text, span) = self.operand("the range of ports")?;
        let port = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u16>().ok().filter(|port| digits && *port > 0)
        };
        match text.split_once('-').map(|(low, high)| (port(low), port(high))) {
            Some((Some(low), Some(high))) if low <= high => Ok([low, high]),
            Some((Some(_), Some(_))) => {
                Err(Diagnostic::new(span, format!("the range {} ends before it starts", quote(text))))
            }
            _ => Err(Diagnostic::new(span, format!("invalid range of ports {}", quote(text)))
                .with_help("ports are written 1024-65535; there is no port 0")),
        }
    }

    fn filtering(&mut self) -> Parse<Filtering> {
        self.expect(Expect::Filtering);
        let index = self.choice(FILTERING.iter().map(|(_, keyword)| keyword.word), "kind of filtering")?;
        Ok(FILTERING[index].0)
    }

    fn forward(&mut self) -> Parse<NatForward> {
        let proto = self.nat_proto()?;
        let outside = self.socket()?;
        self.keyword(TO, "keyword between the endpoints of a forward")?;
        Ok(NatForward { proto, outside, inside: self.socket()? })
    }

    fn nat_proto(&mut self) -> Parse<NatProto> {
        self.expect(Expect::NatProto);
        let index =
            self.choice(NAT_PROTOS.iter().map(|(_, keyword)| keyword.word), "protocol of forwards")?;
        Ok(NAT_PROTOS[index].0)
    }

    fn socket(&mut self) -> Parse<Endpoint4> {
        let (text, span) = self.operand("the IPv4 address")?;
        let Ok(address) = text.parse::<Ipv4Addr>() else {
            let message = format!("{} is not an IPv4 address", quote(text));
            return Err(Diagnostic::new(span, message).with_help("it looks like 192.0.2.1"));
        };
        hosts(address, address, span)?;
        let port = self.number("port", 1..=u16::MAX.into())? as u16;
        Ok(Endpoint4 { address, port })
    }

    /// A decimal number within the bounds. `what`: its description for messages.
    pub(super) fn number(&mut self, what: &str, bounds: RangeInclusive<u64>) -> Parse<u64> {
        let (text, span) = self.operand(&format!("the {what}"))?;
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<u64>() {
            Ok(number) if digits && bounds.contains(&number) => Ok(number),
            _ => {
                let message = format!("invalid {what} {}", quote(text));
                let help = format!("it is a number from {} to {}", bounds.start(), bounds.end());
                Err(Diagnostic::new(span, message).with_help(help))
            }
        }
    }
}

/// `A.B.C.D` or `A.B.C.D-A.B.C.E`.
fn pool_range(text: &str, span: Span) -> Parse<PoolAddresses> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (Ok(first), Ok(last)) = (first.parse::<Ipv4Addr>(), last.parse::<Ipv4Addr>()) else {
        let message = format!("invalid range of IPv4 addresses {}", quote(text));
        let help =
            "a pool has 192.0.2.1, 192.0.2.1-192.0.2.9, 192.0.2.0/28 or the address of an `interface NAME`";
        return Err(Diagnostic::new(span, message).with_help(help));
    };
    if first > last {
        let message = format!("the range {} ends before it starts", quote(text));
        return Err(Diagnostic::new(span, message));
    }
    Ok(PoolAddresses::Range([first, last]))
}

/// `A.B.C.D/LENGTH`.
fn pool_subnet(text: &str, first: &str, span: Span) -> Parse<PoolAddresses> {
    let (Ok(first), Ok(Subnet { address, len })) =
        (first.parse::<Ipv4Addr>(), subnet(text, span, Some(true)))
    else {
        let message = format!("invalid IPv4 subnet {}", quote(text));
        return Err(Diagnostic::new(span, message).with_help("a subnet is written 192.0.2.0/28"));
    };
    if address != first {
        let message = format!("`{first}` is not the first address of a subnet of length {len}");
        let help = format!("write {address}/{len} for the subnet, or {first} for this address only");
        return Err(Diagnostic::new(span, message).with_help(help));
    }
    Ok(PoolAddresses::Subnet { first, length: len })
}

/// Checks that all addresses of the range can be addresses of hosts.
fn hosts(first: Ipv4Addr, last: Ipv4Addr, span: Span) -> Parse<()> {
    // RFC 6890: this network, loopback; multicast and all addresses above.
    let others = [(0x0000_0000, 0x00ff_ffff), (0x7f00_0000, 0x7fff_ffff), (0xe000_0000, u32::MAX)];
    for (low, high) in others {
        if first.to_bits() <= high && low <= last.to_bits() {
            let bad = Ipv4Addr::from_bits(low.max(first.to_bits()));
            return Err(Diagnostic::new(span, format!("no host on a network has the address `{bad}`")));
        }
    }
    Ok(())
}
