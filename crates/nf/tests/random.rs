//! Chains against running each function alone with a table of its own, the layout of random chains, and what
//! sessions keep when chains change.

mod common;

use std::collections::{BTreeMap, HashMap};

use mmb_nf::{
    ChainVerdict, DropReason, Function, Harness, Order, Packet, Properties, Registry, Setup, Verdict,
};
use proptest::prelude::*;

use common::{ENDS, Kind, act, packet, registry};

/// A random chain.
#[derive(Clone, Debug)]
enum Part {
    /// A function, by its number in [`POOL`].
    One(usize),
    /// A function with two outputs.
    Two(usize, Arm, Arm),
    /// By traffic: an arm that begins with a function for TCP, another with one for UDP.
    Class(usize, Arm, Option<(usize, Arm)>),
    Flow(usize),
}

#[derive(Clone, Debug)]
enum Arm {
    Body(Vec<Part>),
    Drop,
}

/// What functions there are: kinds, and words.
const POOL: [(Kind, &str); 19] = [
    (Kind::Stamp, ""),
    (Kind::Stamp, ""),
    (Kind::Stamp, ""),
    (Kind::Stamp, "source"),
    (Kind::Stamp, "pair"),
    (Kind::Drop, "drop"),
    (Kind::Drop, "drop"),
    (Kind::Drop, "drop source"),
    (Kind::Stamp, ""),
    (Kind::Stamp, "tcp"),
    (Kind::Drop, "drop udp"),
    (Kind::Stamp, "tcp"),
    (Kind::Stamp, "udp"),
    (Kind::Split, "split"),
    (Kind::Split, "split"),
    (Kind::Mix, "mix"),
    (Kind::Mix, "mix"),
    (Kind::Stamp, "flow"),
    (Kind::Stamp, "flow"),
];

fn text(parts: &[Part]) -> String {
    let arm = |arm: &Arm| match arm {
        Arm::Drop => "drop".to_owned(),
        Arm::Body(parts) if parts.is_empty() => "pass".to_owned(),
        Arm::Body(parts) => text(parts),
    };
    let headed = |head: usize, rest: &Arm| match rest {
        Arm::Body(parts) if !parts.is_empty() => format!("p{head} | {}", text(parts)),
        _ => format!("p{head}"),
    };
    let part = |part: &Part| match part {
        Part::One(n) | Part::Flow(n) => format!("p{n}"),
        Part::Two(n, a, b) => format!("p{n} [a: {}, b: {}]", arm(a), arm(b)),
        Part::Class(t, a, None) => format!("[{}, else: pass]", headed(*t, a)),
        Part::Class(t, a, Some((u, b))) => format!("[{}, {}]", headed(*t, a), headed(*u, b)),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(" | ")
}

/// Makes a chain of random numbers: no function stands in it twice.
struct Maker<'a> {
    dice: &'a mut dyn Iterator<Item = u8>,
    free: Vec<usize>,
}

impl Maker<'_> {
    fn roll(&mut self, n: usize) -> usize {
        usize::from(self.dice.next().unwrap_or(0)) % n.max(1)
    }

    fn take(&mut self, fits: impl Fn(&(Kind, &str)) -> bool) -> Option<usize> {
        let some: Vec<_> = (0..self.free.len()).filter(|&at| fits(&POOL[self.free[at]])).collect();
        let at = *some.get(self.roll(some.len()))?;
        Some(self.free.remove(at))
    }

    fn body(&mut self, most: usize, depth: usize) -> Vec<Part> {
        let steps = self.roll(most + 1);
        let mut parts = Vec::new();
        for _ in 0..steps {
            parts.extend(self.part(depth));
        }
        parts
    }

    fn arm(&mut self, depth: usize) -> Arm {
        if self.roll(6) == 0 { Arm::Drop } else { Arm::Body(self.body(2, depth + 1)) }
    }

    fn part(&mut self, depth: usize) -> Option<Part> {
        let plain = |(kind, words): &(Kind, &str)| {
            matches!(kind, Kind::Stamp | Kind::Drop)
                && !["tcp", "udp", "flow"].iter().any(|word| words.contains(word))
        };
        match self.roll(if depth < 3 { 8 } else { 4 }) {
            4 | 5 => {
                let function = self.take(|(kind, _)| matches!(kind, Kind::Split | Kind::Mix))?;
                let (a, b) = (self.arm(depth), self.arm(depth));
                // Something has to join.
                let b = if matches!((&a, &b), (Arm::Drop, Arm::Drop)) { Arm::Body(Vec::new()) } else { b };
                Some(Part::Two(function, a, b))
            }
            6 => {
                let tcp = self.take(|(_, words)| words.contains("tcp"))?;
                let a = Arm::Body(self.body(2, depth + 1));
                let udp =
                    if self.roll(2) == 0 { self.take(|(_, words)| words.contains("udp")) } else { None };
                let other = udp.map(|udp| (udp, Arm::Body(self.body(1, depth + 1))));
                Some(Part::Class(tcp, a, other))
            }
            7 => self.take(|(_, words)| *words == "flow").map(Part::Flow),
            _ => self.take(plain).map(Part::One),
        }
    }
}

fn make(dice: &[u8]) -> Vec<Part> {
    let mut dice = dice.iter().copied();
    let mut maker = Maker { dice: &mut dice, free: (0..POOL.len()).collect() };
    let mut parts = maker.body(5, 0);
    if parts.is_empty() {
        parts.push(Part::One(0));
    }
    parts
}

fn functions() -> String {
    let line = |(n, (_, words)): (usize, &(Kind, &str))| match *words {
        "flow" => format!("nf add p{n} flow\n"),
        words => format!("nf add p{n} probe {n} {words}\n"),
    };
    POOL.iter().enumerate().map(line).collect()
}

/// A session of the tests: TCP or not, host, port.
type Session = (bool, u8, u8);

/// Each function alone: what it has seen by its own key.
#[derive(Default)]
struct SeparateFunctions {
    /// By function, the `flow` before it, and the session (or what of it is the key).
    seen: HashMap<(usize, Option<usize>, Session), u32>,
}

impl SeparateFunctions {
    fn function(&mut self, n: usize, flow: Option<usize>, session: Session, last: &mut u8) -> Verdict {
        let (kind, words) = POOL[n];
        let (tcp, host, port) = session;
        let key = match words.contains("source") || words.contains("pair") {
            true => (n, None, (false, host, 0)),
            false => (n, flow, (tcp, host, port)),
        };
        act(kind, n as u8, self.seen.entry(key).or_default(), last, port)
    }

    /// None: it goes on.
    fn walk(
        &mut self,
        parts: &[Part],
        flow: Option<usize>,
        session: Session,
        back: bool,
        last: &mut u8,
    ) -> Option<ChainVerdict> {
        let cut = parts.iter().position(|part| matches!(part, Part::Flow(_)));
        let (before, behind) = parts.split_at(cut.unwrap_or(parts.len()));
        let behind = behind.split_first();
        let inner = |this: &mut Self, last: &mut u8| match behind {
            Some((Part::Flow(f), rest)) => this.walk(rest, Some(*f), session, back, last),
            _ => None,
        };
        if back && let Some(verdict) = inner(self, last) {
            return Some(verdict);
        }
        let mut order: Vec<&Part> = before.iter().collect();
        if back {
            order.reverse();
        }
        for part in order {
            if let Some(verdict) = self.part(part, flow, session, back, last) {
                return Some(verdict);
            }
        }
        if back { None } else { inner(self, last) }
    }

    fn part(
        &mut self,
        part: &Part,
        flow: Option<usize>,
        session: Session,
        back: bool,
        last: &mut u8,
    ) -> Option<ChainVerdict> {
        let arm = |this: &mut Self, arm: &Arm, last: &mut u8| match arm {
            Arm::Drop => Some(ChainVerdict::Drop(DropReason::ChainClass)),
            Arm::Body(parts) => this.walk(parts, flow, session, back, last),
        };
        let headed = |this: &mut Self, head: usize, rest: &Arm, last: &mut u8| {
            let mut parts = vec![Part::One(head)];
            if let Arm::Body(rest) = rest {
                parts.extend(rest.iter().cloned());
            }
            this.walk(&parts, flow, session, back, last)
        };
        match part {
            Part::One(n) => match self.function(*n, flow, session, last) {
                Verdict::Drop(reason) => Some(ChainVerdict::Drop(reason)),
                _ => None,
            },
            Part::Two(n, a, b) => match self.function(*n, flow, session, last) {
                Verdict::Branch(0) => arm(self, a, last),
                Verdict::Branch(_) => arm(self, b, last),
                _ => None,
            },
            Part::Class(tcp, a, udp) => match (session.0, udp) {
                (true, _) => headed(self, *tcp, a, last),
                (false, Some((udp, b))) => headed(self, *udp, b, last),
                (false, None) => None,
            },
            Part::Flow(_) => None,
        }
    }
}

/// Packets: TCP or not, host, port, and whether it is the other side's.
fn packets() -> impl Strategy<Value = Vec<(bool, u8, u8, bool)>> {
    prop::collection::vec((any::<bool>(), 1..3u8, 0..4u8, any::<bool>()), 1..120)
}

/// What several sessions share may be seen in another order, where packets of both directions come together.
fn shares(parts: &[Part]) -> bool {
    text(parts).split([' ', '[', ']', ',', ':']).any(|word| ["p3", "p4", "p7"].contains(&word))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// The packets that come out do not depend on the other chains nor on the mixture of the vectors.
    #[test]
    fn a_chain_is_its_functions_each_with_a_table_of_its_own(
        dice in [prop::collection::vec(any::<u8>(), 60), prop::collection::vec(any::<u8>(), 60)],
        packets in packets(),
        compact: bool,
        cut in 1..40usize,
    ) {
        let chains = dice.map(|dice| make(&dice));
        let lines = format!("{}chain add x {}\nchain add y {}", functions(), text(&chains[0]), text(&chains[1]));
        let mut harness = Harness::new(registry(), "").unwrap();
        let order = if compact { Order::Compact } else { Order::Maximal };
        if let Err(error) = harness.load_with(&lines, order) {
            // Nothing but what the maker does not see: a function for which nothing is left.
            prop_assert!(error.to_string().contains("no packet reaches"), "{lines}: {error}");
            return Ok(());
        }
        let mut separate = SeparateFunctions::default();
        let mut opened = std::collections::HashSet::new();
        let shares = chains.iter().any(|parts| shares(parts));
        for batch in packets.chunks(cut) {
            for (name, parts) in [("x", &chains[0]), ("y", &chains[1])] {
                let mine: Vec<_> = batch.iter().filter(|(_, _, port, _)| (port % 2 == 0) == (name == "x")).collect();
                let mut vectors: Vec<Vec<(Session, bool)>> = vec![Vec::new()];
                for &&(tcp, host, port, back) in &mine {
                    let session = (tcp, host, port / 2 + if name == "x" { 0 } else { 100 });
                    let back = !opened.insert(session) && back;
                    if shares && vectors.last().and_then(|vector| vector.last()).is_some_and(|(_, before)| *before != back) {
                        vectors.push(Vec::new());
                    }
                    vectors.last_mut().unwrap().push((session, back));
                }
                for vector in vectors.iter().filter(|vector| !vector.is_empty()) {
                    let frames: Vec<_> = vector.iter().map(|&((tcp, host, port), back)| packet(tcp, host, port, back)).collect();
                    let sent = harness.send(name, &frames);
                    for ((&(session, back), frame), sent) in vector.iter().zip(&frames).zip(&sent) {
                        let mut last = *frame.last().unwrap();
                        let verdict = separate.walk(parts, None, session, back, &mut last).unwrap_or(ChainVerdict::Pass);
                        prop_assert_eq!(sent.verdict, verdict, "{} {:?} {}", lines, session, back);
                        prop_assert_eq!(*sent.frame.last().unwrap(), last, "{} {:?} {}", lines, session, back);
                    }
                }
            }
        }
        harness.end_all();
        harness.runner().tick(u32::MAX / 4, usize::MAX);
    }

    /// Functions that stay in a session's chain keep their bytes, those that leave let go of it once, new
    /// ones begin anew.
    #[test]
    fn sessions_move_with_their_bytes(
        chains in prop::collection::vec(prop::sample::subsequence((0..8usize).collect::<Vec<_>>(), 1..6).prop_shuffle(), 1..6),
        sent in prop::collection::vec(prop::collection::vec(0..6u8, 0..10), 6),
    ) {
        let mut harness = Harness::new(registry(), "").unwrap();
        let mut model: HashMap<u8, BTreeMap<usize, u32>> = HashMap::new();
        let mut told: Vec<(u8, u32)> = Vec::new();
        let mut expected = Vec::new();
        for (chain, ports) in chains.iter().zip(&sent) {
            let names: Vec<_> = chain.iter().map(|n| format!("p{n}")).collect();
            harness.load(&format!("{}chain add x {}", functions(), names.join(" | "))).unwrap();
            for &port in ports {
                let had = model.entry(port).or_default();
                expected.extend(had.iter().filter(|(n, _)| !chain.contains(n)).map(|(&n, &seen)| (n as u8, seen)));
                had.retain(|n, _| chain.contains(n));
                let mut last = 7;
                let mut verdict = ChainVerdict::Pass;
                for &n in chain {
                    had.entry(n).or_default();
                }
                for &n in chain {
                    let seen = had.entry(n).or_default();
                    if let Verdict::Drop(reason) = act(POOL[n].0, n as u8, seen, &mut last, port) {
                        verdict = ChainVerdict::Drop(reason);
                        break;
                    }
                }
                // Each from its own host, so that none shares what is a source's.
                let one = harness.send("x", &[packet(false, port + 1, port, false)]).remove(0);
                prop_assert_eq!((one.verdict, *one.frame.last().unwrap()), (verdict, last), "{:?} {}", chains, port);
                told.extend(one.emitted.iter().filter(|(to, _)| *to == ENDS).map(|(_, frame)| endpoint_report(frame)));
            }
        }
        expected.extend(model.values().flatten().map(|(&n, &seen)| (n as u8, seen)));
        told.extend(harness.end_all().iter().map(|(_, frame)| endpoint_report(frame)));
        expected.sort_unstable();
        told.sort_unstable();
        prop_assert_eq!(told, expected);
        harness.runner().tick(1, 1);
        prop_assert_eq!(harness.runner().programs(), 1);
    }
}

fn endpoint_report(frame: &[u8]) -> (u8, u32) {
    (frame[0], u32::from_be_bytes([frame[1], frame[2], frame[3], frame[4]]))
}

/// A function with some bytes.
struct Block<const N: usize>(Properties);

impl<const N: usize> Function for Block<N> {
    const TYPE: &'static str = match N {
        0 => "b0",
        1 => "b1",
        3 => "b3",
        _ => "b36",
    };
    const USAGE: &'static str = "[two [diverges]]";
    const HELP: &'static str = "tests";
    type Pad = [u8; N];
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        let outputs = if setup.args.is_empty() { vec![] } else { vec!["a".into(), "b".into()] };
        Ok(Block(Properties { outputs, diverges: setup.args.len() > 1, ..Properties::default() }))
    }

    fn properties(&self) -> Properties {
        self.0.clone()
    }

    fn packet(&self, _: &mut Packet<'_>, _: &mut [u8; N], _: &mut mmb_nf::Context<'_, ()>) -> Verdict {
        Verdict::Pass
    }
}

fn blocks() -> Registry {
    let mut registry = registry();
    registry.add::<Block<0>>().add::<Block<1>>().add::<Block<3>>().add::<Block<36>>();
    registry
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Functions that a session may see together have bytes of their own, aligned; a shared instance has one
    /// place; no layout needs more than all functions one behind the other.
    #[test]
    fn layouts(
        dice in prop::array::uniform3(prop::collection::vec(any::<u8>(), 60)),
        sizes in prop::collection::vec(0..4usize, POOL.len()),
        compact: bool,
    ) {
        let chains = dice.map(|dice| make(&dice));
        let line = |(n, (kind, words)): (usize, &(Kind, &str))| {
            let block = ["b0", "b1", "b3", "b36"][sizes[n]];
            match (kind, *words) {
                (_, "flow") => format!("nf add p{n} flow\n"),
                (Kind::Split, _) => format!("nf add p{n} {block} two\n"),
                (Kind::Mix, _) => format!("nf add p{n} {block} two diverges\n"),
                (_, words) if words.contains("tcp") || words.contains("udp") => format!("nf add p{n} probe {n} {words}\n"),
                _ => format!("nf add p{n} {block}\n"),
            }
        };
        let functions: String = POOL.iter().enumerate().map(line).collect();
        let lines: String = chains.iter().enumerate().map(|(n, parts)| format!("chain add x{n} {}\n", text(parts))).collect();
        let mut harness = Harness::new(blocks(), "").unwrap();
        let order = if compact { Order::Compact } else { Order::Maximal };
        if let Err(error) = harness.load_with(&format!("{functions}{lines}"), order) {
            prop_assert!(error.to_string().contains("no packet reaches"), "{lines}: {error}");
            return Ok(());
        }
        let program = harness.program();
        let places = program.scratchpads();
        let place = |instance: usize| places.iter().find(|place| place.instance == instance);
        for chain in program.chains() {
            for way in program.paths(chain) {
                // Behind a `flow` are other scratchpads.
                let flow = way.instances.iter().position(|&one| program.instances()[one].kind() == "flow");
                let here = &way.instances[..flow.unwrap_or(way.instances.len())];
                for (n, &one) in here.iter().enumerate() {
                    for &other in &here[n + 1..] {
                        if let (Some(one), Some(other)) = (place(one), place(other)) {
                            let apart = one.offset + one.bytes <= other.offset || other.offset + other.bytes <= one.offset;
                            prop_assert!(apart, "{} {:?} {:?}", lines, one, other);
                        }
                    }
                }
            }
        }
        for one in &places {
            prop_assert_eq!(places.iter().filter(|other| other.instance == one.instance).count(), 1);
            prop_assert!(one.offset >= 8 && one.offset + one.bytes <= program.bytes());
            let align = if program.instances()[one.instance].kind() == "probe" { 4 } else { 1 };
            prop_assert_eq!(one.offset % align, 0);
        }
        let sum: usize = places.iter().map(|place| place.bytes.next_multiple_of(4)).sum();
        prop_assert!(program.bytes() <= 8 + sum, "{} > 8 + {}: {}", program.bytes(), sum, lines);
        prop_assert_eq!(program.layout_diagram().lines().count(), places.len() + 1);
    }
}
