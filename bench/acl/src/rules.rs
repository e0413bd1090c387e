//! Filter sets and traces of ClassBench, for both classifiers.

use std::net::Ipv4Addr;

use mmb_packet::build::{Frame, Icmp, Ip4, Tcp, Transport, Udp};

use mmb_import::classbench::{FiveTuple, parse};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// A rule as both classifiers get it. One line of a filter set makes one or two (see
/// [`FiveTuple::protocols`]).
pub struct Rule {
    /// The line's number, from 1.
    pub number: u32,
    /// What the line says; flags are left out.
    pub five_tuple: FiveTuple,
    /// The protocol of this rule.
    pub protocol: Option<u8>,
}

/// A packet as a classifier of five-tuples sees it; ports are 0 where the protocol has none.
#[derive(Clone, Copy)]
pub struct Key {
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    pub source_port: u16,
    pub destination_port: u16,
    pub protocol: u8,
}

/// The rules of a filter set. Those whose ports belong to a protocol without ports are left out.
pub fn read_rules(text: &str) -> Result<Vec<Rule>, String> {
    let mut rules = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(five_tuple) = parse(line).map_err(|error| format!("line {number}: {error}"))? else {
            continue;
        };
        let five_tuple = FiveTuple { flags: (0, 0), ..five_tuple };
        if five_tuple.matches().is_ok() {
            let rule = |protocol| Rule { number, five_tuple, protocol };
            rules.extend(five_tuple.protocols().into_iter().map(rule));
        }
    }
    Ok(rules)
}

impl Rule {
    /// The rule in mmb's language.
    pub fn text(&self) -> Result<String, String> {
        let matches = FiveTuple { protocol: self.protocol, ..self.five_tuple }
            .matches()
            .map_err(|error| error.to_string())?;
        Ok(format!("add{} drop", matches.concat()))
    }

    /// A packet that the rule matches: its corner or a place inside, as the dice say.
    fn packet(&self, dice: &mut Dice) -> Key {
        let five = &self.five_tuple;
        let mut address = |(base, bits): (Ipv4Addr, u8)| {
            let free = u32::MAX.checked_shr(bits.into()).unwrap_or(0);
            Ipv4Addr::from(u32::from(base) & !free | dice.next() & free)
        };
        let (source, destination) = (address(five.source), address(five.destination));
        let mut port =
            |(low, high): (u16, u16)| (u32::from(low) + dice.next() % (u32::from(high - low) + 1)) as u16;
        let (source_port, destination_port) = (port(five.source_ports), port(five.destination_ports));
        let protocol = self.protocol.unwrap_or(if dice.next().is_multiple_of(2) { TCP } else { UDP });
        Key { source, destination, source_port, destination_port, protocol }.without_ports()
    }
}

impl Key {
    /// Ports are 0 where the protocol has none.
    fn without_ports(self) -> Self {
        match self.protocol {
            TCP | UDP => self,
            _ => Key { source_port: 0, destination_port: 0, ..self },
        }
    }

    /// The frame that has this key.
    pub fn frame(&self) -> Vec<u8> {
        let ip = Ip4::new(self.source.octets(), self.destination.octets());
        let transport: Transport = match self.protocol {
            TCP => Tcp::new(self.source_port, self.destination_port).into(),
            UDP => Udp::new(self.source_port, self.destination_port).into(),
            ICMP => Icmp::new(8).into(),
            other => Transport::Raw(other),
        };
        Frame::new(ip, transport).pad_to(60).build()
    }
}

/// The packets of a trace: source, destination, ports, protocol as decimal numbers, then what is of no
/// account here.
pub fn read_trace(text: &str) -> Result<Vec<Key>, String> {
    let key = |line: &str| {
        let mut words = line.split_whitespace();
        let mut number = || words.next()?.parse::<u32>().ok();
        let (source, destination) = (number()?.into(), number()?.into());
        let (source_port, destination_port) =
            (u16::try_from(number()?).ok()?, u16::try_from(number()?).ok()?);
        let protocol = u8::try_from(number()?).ok()?;
        Some(Key { source, destination, source_port, destination_port, protocol }.without_ports())
    };
    (1..)
        .zip(text.lines())
        .map(|(n, line)| key(line).ok_or(format!("line {n}: no packet of a trace")))
        .collect()
}

/// Packets that match rules drawn evenly, for sets without a trace.
pub fn sample(rules: &[Rule], count: usize, seed: u64) -> Vec<Key> {
    let mut dice = Dice(seed);
    (0..count).map(|_| rules[dice.next() as usize % rules.len()].packet(&mut dice)).collect()
}

/// Numbers that look random (SplitMix64, Steele et al., 2014).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 32) as u32
    }
}
