//! Rules with prefixes and ports in few networks, and packets of a thousand flows in these networks that
//! match no rule. This corresponds to the cases `mixed` and `masks` of `mmb bench`.

use mmb_classify::{Pattern, TruePredicates};
use mmb_packet::{Kind, Window};

use crate::field_masks::FieldMasks;
use crate::rules::{Random, Shape};

/// Number of flows of the packets.
const FLOWS: usize = 1000;

/// Networks of destinations with their prefix lengths.
const NETWORKS: [(u32, u32); 10] = [
    (0xc612_0000, 24),
    (0x0503_8000, 24),
    (0x5db8_d800, 22),
    (0x2d4c_7100, 24),
    (0x6440_0000, 16),
    (0xb2f3_4000, 19),
    (0xcb00_7100, 24),
    (0x4d12_e000, 20),
    (0x9a10_2000, 23),
    (0x3e11_ce00, 24),
];

/// A source address of a rule or a packet.
pub fn source(random: &mut Random) -> u32 {
    10 << 24 | random.next() as u32 >> 8
}

/// The only network of destinations in the case `field-masks` of `mmb bench` without routes.
pub const ONE_NETWORK: [(u32, u32); 1] = [(0xc612_0000, 15)];

/// A destination address of a rule or a packet.
pub fn destination(networks: &[(u32, u32)], random: &mut Random) -> u32 {
    let (network, length) = networks[random.below(networks.len() as u64) as usize];
    network | random.next() as u32 >> length
}

/// Prefixes of any length and ranges of ports.
fn mixed(random: &mut Random) -> Pattern {
    let port = |random: &mut Random| {
        let (a, b) = (random.next() as u16, random.next() as u16);
        [(0, u16::MAX), (a, a), (a.min(b), a.max(b))][random.below(3) as usize]
    };
    let lengths = [(); 2].map(|()| 16 + random.below(17) as usize);
    let ports = [(); 2].map(|()| port(random));
    rule(random, lengths, ports)
}

/// A rule with prefixes of these lengths, source first, and these ports.
fn rule(random: &mut Random, lengths: [usize; 2], ports: [(u16, u16); 2]) -> Pattern {
    let shape = Shape {
        source: source(random),
        source_len: lengths[0],
        destination: destination(&NETWORKS, random),
        destination_len: lengths[1],
        sport: ports[0],
        dport: ports[1],
        proto: Some(if random.below(2) == 0 { 6 } else { 17 }),
    };
    shape.pattern()
}

/// Masks in any order: prefix lengths, and which ports are tested.
struct Masks(Vec<usize>);

impl Masks {
    fn new(random: &mut Random) -> Masks {
        let mut masks: Vec<usize> = (0..17 * 17 * 4).collect();
        (1..masks.len()).rev().for_each(|at| masks.swap(at, random.below(at as u64 + 1) as usize));
        Masks(masks)
    }

    /// A rule of one of the masks.
    fn rule(&self, at: usize, random: &mut Random) -> Pattern {
        let mask = self.0[at % self.0.len()];
        let port = |asked: bool, random: &mut Random| {
            let port = random.next() as u16;
            if asked { (port, port) } else { (0, u16::MAX) }
        };
        let ports = [mask & 1 != 0, mask & 2 != 0].map(|asked| port(asked, random));
        rule(random, [16 + mask / 4 % 17, 16 + mask / 68], ports)
    }
}

fn flow(networks: &[(u32, u32)], random: &mut Random) -> Window {
    let mut window = Window::default();
    let tcp = random.below(2) == 0;
    let (source, destination) = (source(random), destination(networks, random));
    let bytes = window.bytes_mut();
    bytes[..4].copy_from_slice(&source.to_be_bytes());
    bytes[4..8].copy_from_slice(&destination.to_be_bytes());
    bytes[8..12].copy_from_slice(&(random.next() as u32).to_ne_bytes());
    let l4 = if tcp { [Kind::IP4 | Kind::TCP, 6] } else { [Kind::IP4 | Kind::UDP, 17] };
    bytes[12..14].copy_from_slice(&l4);
    bytes[64..80].copy_from_slice(&[0x45, 0, 0, 52, 0, 0, 0x40, 0, 64, 0, 0, 0, 8, 0, 0, 1]);
    if tcp {
        bytes[48..60].copy_from_slice(&[0x53, 0x1e, 0x91, 0x7a, 9, 8, 7, 6, 0x80, 0x10, 0xff, 0xff]);
    } else {
        bytes[48..50].copy_from_slice(&[0, 30]);
    }
    window
}

/// Rules and packets.
pub fn rules_and_packets(n: usize, packets: usize, random: &mut Random) -> (Vec<Pattern>, Vec<Window>) {
    that_miss(n, packets, &NETWORKS, random, |_, random| mixed(random))
}

/// Rules with a mask of its own for each, of 1,156 masks, and packets.
pub fn masks_and_packets(n: usize, packets: usize, random: &mut Random) -> (Vec<Pattern>, Vec<Window>) {
    let masks = Masks::new(random);
    that_miss(n, packets, &NETWORKS, random, |at, random| masks.rule(at, random))
}

/// Rules with a mask of its own for each, over many fields, and packets; all destinations in one network.
pub fn field_masks_and_packets(n: usize, packets: usize, random: &mut Random) -> (Vec<Pattern>, Vec<Window>) {
    let mut masks = FieldMasks::default();
    that_miss(n, packets, &ONE_NETWORK, random, |_, random| masks.rule(random))
}

/// Random rules that match none of the packets' flows.
fn that_miss(
    n: usize,
    packets: usize,
    networks: &[(u32, u32)],
    random: &mut Random,
    mut rule: impl FnMut(usize, &mut Random) -> Pattern,
) -> (Vec<Pattern>, Vec<Window>) {
    let flows: Vec<Window> = (0..FLOWS).map(|_| flow(networks, random)).collect();
    let mut rules = Vec::new();
    while rules.len() < n {
        let rule = rule(rules.len(), random);
        let matches =
            |packet: &Window| rule.entries().iter().any(|entry| entry.holds(packet, TruePredicates::NONE));
        if !flows.iter().any(matches) {
            rules.push(rule);
        }
    }
    let packets = (0..packets).map(|_| flows[random.below(FLOWS as u64) as usize]).collect();
    (rules, packets)
}
