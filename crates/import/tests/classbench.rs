//! Filter sets of ClassBench: the classifier finds the same rules as the oracle.
//!
//! The sets are in `../shared/data/classbench`, next to the repository; without them the tests pass. Packets
//! come from the traces of the sets and from the rules; half of the latter have one bit flipped. The oracle
//! evaluates every rule for every packet, so large sets get few packets. `CLASSBENCH_PAIRS` is the number of
//! pairs of a rule and a packet per set, 3 million by default.

use std::path::{Path, PathBuf};
use std::process::Command;

use mmb_import::classbench::{self, FiveTuple};
use mmb_lang::Rule;
use mmb_packet::build::{Frame, Icmp, Ip4, Tcp, Transport, Udp};
use mmb_packet::{Meta, fill_window, parse};
use mmb_policy::{Batch, Policy, VECTOR};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

#[test]
fn acl1_agrees_with_the_oracle() {
    agree("acl1");
}

#[test]
fn fw1_agrees_with_the_oracle() {
    agree("fw1");
}

#[test]
fn ipc1_agrees_with_the_oracle() {
    agree("ipc1");
}

/// Compares classifier and oracle on the three sizes of a filter set.
fn agree(name: &str) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/classbench");
    if !directory.exists() {
        return eprintln!("{} is not there: nothing compared", directory.display());
    }
    let pairs = std::env::var("CLASSBENCH_PAIRS").map_or(3_000_000, |pairs| pairs.parse().expect("a number"));
    for size in [1000, 10_000, 100_000] {
        let tuples = five_tuples(&unpacked(&directory.join(format!("{name}_{size}.rules.gz"))));
        let trace = directory.join(format!("{name}_{size}.trace.gz"));
        let trace = if trace.exists() { unpacked(&trace) } else { String::new() };
        let rules = rules_of(&tuples);
        let count = (pairs / rules.len()).max(20);
        let mut frames = traced(&trace, count / 2);
        let rest = count - frames.len();
        frames.extend(sampled(&tuples, rest));
        compare(&format!("{name}_{size}"), &rules, &frames);
    }
}

fn unpacked(path: &PathBuf) -> String {
    let output = Command::new("gzip").arg("-dc").arg(path).output().expect("gzip runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("a text")
}

fn five_tuples(text: &str) -> Vec<FiveTuple> {
    text.lines().filter_map(|line| classbench::parse(line).expect("a filter")).collect()
}

fn rules_of(tuples: &[FiveTuple]) -> Vec<Rule> {
    let texts = tuples.iter().flat_map(|tuple| tuple.matches().expect("mmb can say it"));
    let rule = |text: String| match mmb_lang::parse_line(&format!("add{text} drop")) {
        Ok(Some(mmb_lang::Command::Add(rule))) => rule,
        other => panic!("{text}: {other:?}"),
    };
    texts.map(rule).collect()
}

/// The fields that a filter set matches. `upper` has the TCP flags or the ICMP type.
struct Packet {
    addresses: [u32; 2],
    ports: [u16; 2],
    protocol: u8,
    upper: u8,
}

impl Packet {
    fn frame(&self) -> Vec<u8> {
        let [source, destination] = self.addresses.map(u32::to_be_bytes);
        let [sport, dport] = self.ports;
        let transport: Transport = match self.protocol {
            6 => Tcp { flags: self.upper, ..Tcp::new(sport, dport) }.into(),
            17 => Udp::new(sport, dport).into(),
            1 => Icmp::new(self.upper).into(),
            other => Transport::Raw(other),
        };
        Frame::new(Ip4::new(source, destination), transport).pad_to(60).build()
    }
}

/// Evenly spaced packets of a trace. A line has addresses, ports, protocol and flags as decimal numbers, and
/// the rule.
fn traced(trace: &str, count: usize) -> Vec<Vec<u8>> {
    let lines: Vec<&str> = trace.lines().collect();
    let step = (lines.len() / count.max(1)).max(1);
    let packet = |line: &&str| {
        let numbers: Vec<u32> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        Packet {
            addresses: [numbers[0], numbers[1]],
            ports: [numbers[2] as u16, numbers[3] as u16],
            protocol: numbers[4] as u8,
            upper: (numbers[5] >> 24) as u8,
        }
    };
    lines.iter().step_by(step).take(count).map(|line| packet(line).frame()).collect()
}

/// Packets that match a rule, every second one with one bit flipped.
fn sampled(tuples: &[FiveTuple], count: usize) -> Vec<Vec<u8>> {
    let mut random = SmallRng::seed_from_u64(7);
    let mut next = || random.next_u32();
    let packet = |number: usize| {
        let tuple = &tuples[next() as usize % tuples.len()];
        let mut address = |(base, bits): (std::net::Ipv4Addr, u8)| {
            let free = u32::MAX.checked_shr(bits.into()).unwrap_or(0);
            u32::from(base) & !free | next() & free
        };
        let mut addresses = [address(tuple.source), address(tuple.destination)];
        let mut port = |(low, high): (u16, u16)| low + (next() % (u32::from(high - low) + 1)) as u16;
        let mut ports = [port(tuple.source_ports), port(tuple.destination_ports)];
        let (value, mask) = tuple.flags;
        let upper = (value >> 8) as u8 | next() as u8 & !(mask >> 8) as u8;
        let protocol = tuple.protocol.unwrap_or([1, 6, 17][next() as usize % 3]);
        if number % 2 == 1 {
            let (side, bit) = (next() as usize % 2, next());
            if bit & 64 == 0 { addresses[side] ^= 1 << (bit % 32) } else { ports[side] ^= 1 << (bit % 16) }
        }
        Packet { addresses, ports, protocol, upper }.frame()
    };
    (0..count).map(packet).collect()
}

/// Asserts that the policy finds the same rules as the oracle for each frame.
fn compare(set: &str, rules: &[Rule], frames: &[Vec<u8>]) {
    let policy = Policy::new().replace(rules, &|_| None).expect("good rules");
    let indexed: Vec<(u32, Rule)> = (1..).zip(rules.iter().cloned()).collect();
    let mut batch = Batch::new();
    let mut matched = 0;
    for frames in frames.chunks(VECTOR) {
        batch.len = frames.len();
        for (frame, window) in frames.iter().zip(batch.windows.iter_mut()) {
            let mut meta = Meta::default();
            parse(frame, frame.len(), &mut meta).expect("a good frame");
            fill_window(frame, &meta, 0, 1, policy.classifier().chunks(), window);
        }
        policy.classifier().classify(&mut batch);
        for (packet, frame) in frames.iter().enumerate() {
            let hits = batch.hits.iter().filter(|hit| usize::from(hit.pkt) == packet);
            // Slots of a new policy count from 0, indexes from 1.
            let mut found: Vec<u32> = hits.map(|hit| hit.slot + 1).collect();
            found.sort_unstable();
            let expected = mmb_oracle::evaluate(&indexed, &|_| None, 0, 1, frame).matched;
            matched += usize::from(!expected.is_empty());
            assert_eq!(found, expected, "{set}, packet {packet}: {frame:02x?}");
        }
    }
    // Packets made from rules match them, unless a bit was flipped.
    assert!(matched * 3 > frames.len(), "{set}: only {matched} of {} packets match a rule", frames.len());
}
