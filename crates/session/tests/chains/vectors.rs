//! Vectors of packets, of which some have lost their session since that was found.

use std::sync::Arc;

use mmb_flow::{Direction, FlowRef};
use mmb_nf::DropReason;
use mmb_packet::build::Frame;
use mmb_packet::{Meta, PacketBuf, VecPacket, parse};
use mmb_policy::{Batch, Policy, VECTOR};
use mmb_session::{
    ChainBatch, DumpCursor, Environment, Next, Packets, SessionConfig, SessionView, Sessions, chain_packet,
};
use mmb_session_harness::{RuleSet, change_set};

use crate::common::*;
use crate::functions::registry;
use crate::{CLIENT, SERVER};

#[derive(Default)]
struct Many(Vec<(VecPacket, Meta, u16)>);

impl Packets for Many {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn head(&self, at: usize) -> &[u8] {
        self.0[at].0.head()
    }
    fn meta(&self, at: usize) -> &Meta {
        &self.0[at].1
    }
    fn head_and_meta(&mut self, at: usize) -> (&mut [u8], &mut Meta) {
        let (packet, meta, _) = &mut self.0[at];
        (packet.head_mut(), meta)
    }
    fn in_port(&self, at: usize) -> u16 {
        self.0[at].2
    }
    fn bytes(&self, at: usize) -> u32 {
        self.0[at].0.len() as u32
    }
}

/// A worker between whose steps something can happen.
struct Worker {
    sessions: Sessions,
    rules: RuleSet,
}

impl Worker {
    fn new(lines: &[&str]) -> Worker {
        let rules = RuleSet::parse_with(lines, Default::default(), None, &registry(), 1).expect("good lines");
        let config = SessionConfig {
            sessions: 100,
            worker: 0,
            workers: 1,
            seed: 1,
            scratchpad: RuleSet::SCRATCHPAD_BYTES,
        };
        let mut sessions = Sessions::new(config).expect("memory");
        sessions.adopt(&rules, &rules);
        sessions.tick(0, &rules, 10);
        Worker { sessions, rules }
    }

    /// Packets up to where they would go through their chains.
    fn look_up(&mut self, frames: &[(u16, Frame)]) -> (Many, [Next; VECTOR]) {
        let mut packets = Many::default();
        for (in_port, frame) in frames {
            let (bytes, mut meta) = (frame.build(), Meta::default());
            parse(&bytes, bytes.len(), &mut meta).expect("a sound frame");
            packets.0.push((VecPacket::new(&bytes), meta, *in_port));
        }
        let (mut next, mut edits) = ([Next::Pass; VECTOR], Vec::new());
        self.sessions.lookup(None, 1, &self.rules, &mut packets, &mut edits, &mut next);
        for (at, (packet, meta, in_port)) in packets.0.iter_mut().enumerate() {
            if next[at] == Next::SlowPath {
                let mut batch = Batch::new();
                let (policy, out_port) = (&self.rules.policy, self.rules.out_port(*in_port));
                policy.classifier().classify_one(&mut batch, packet.head(), meta, [*in_port, out_port]);
                next[at] = self.sessions.process_slow_path(
                    1,
                    &self.rules,
                    packet,
                    meta,
                    *in_port,
                    &batch.hits,
                    &mut edits,
                );
            }
        }
        (packets, next)
    }

    /// The rest of their way.
    fn chain(&mut self, packets: &mut Many) -> Vec<Result<u16, DropReason>> {
        let mut chain_packet: ChainBatch<'_> = packets
            .0
            .iter_mut()
            .map(|(packet, meta, in_port)| {
                let bytes = packet.len() as u32;
                chain_packet(packet.head_mut(), meta, bytes, *in_port)
            })
            .collect();
        let mut next = [Next::Chain; VECTOR];
        self.sessions.process_chain(1, &self.rules, &mut chain_packet, &mut next);
        drop(chain_packet);
        let fate = |(at, (_, meta, _)): (usize, &(VecPacket, Meta, u16))| match next[at] {
            Next::Send => Ok(meta.out_port),
            Next::Drop => Err(DropReason::from_number(meta.drop_reason).expect("a reason")),
            other => panic!("{other:?}"),
        };
        packets.0.iter().enumerate().map(fate).collect()
    }

    fn clear(&mut self, n: u32) {
        let id = mmb_flow::SessionId(n);
        assert!(self.sessions.clear(id, 1, &self.rules));
    }

    /// Packets that a `see` has seen.
    fn seen(&self) -> usize {
        let report = self.rules.chains.instance("t").expect("there").report();
        report.iter().filter(|(_, line)| line.starts_with("there")).count()
    }
}

fn client(n: u16) -> End {
    (CLIENT.0, CLIENT.1 + n)
}

const LINES: &[&str] = &["nf add t see", "chain add web t", "add-stateful in port0 chain web"];

#[test]
fn sessions_that_end_within_a_vector() {
    for again in [false, true] {
        let mut worker = Worker::new(LINES);
        let frames: Vec<_> = (0..4).map(|n| (IN, udp(client(n), SERVER))).collect();
        let (mut packets, next) = worker.look_up(&frames);
        assert_eq!(next[..4], [Next::Chain; 4]);
        assert_eq!(worker.chain(&mut packets), [Ok(OUT); 4]);
        let (mut packets, next) = worker.look_up(&frames);
        assert_eq!(next[..4], [Next::Chain; 4], "the short way");
        [1, 2].into_iter().for_each(|n| worker.clear(n));
        let mut expected = [Ok(OUT), Err(DropReason::ChainError), Err(DropReason::ChainError), Ok(OUT)];
        if again {
            // One of the numbers is another session's now, the other one the same conversation's.
            let (mut others, _) =
                worker.look_up(&[(IN, udp(client(9), SERVER)), (IN, udp(client(1), SERVER))]);
            let number = |n: u32| FlowRef::new(mmb_flow::SessionId(n), Direction::Forward).0;
            assert_eq!([0, 1].map(|at| others.0[at].1.session), [number(2), number(1)]);
            assert_eq!(worker.chain(&mut others), [Ok(OUT); 2]);
            expected[1] = Ok(OUT);
        }
        assert_eq!(worker.chain(&mut packets), expected);
        assert_eq!(worker.seen(), if again { 9 } else { 6 });
        // From here on nothing is in doubt.
        worker.sessions.tick(1, &worker.rules, 10);
        let (mut packets, _) = worker.look_up(&frames);
        assert_eq!(worker.chain(&mut packets), [Ok(OUT); 4]);
    }
}

/// Several packets of one vector that each would end their session.
#[test]
fn a_session_ends_once() {
    let mut worker = Worker::new(&[
        "nf add t see",
        "nf add g gate end 2",
        "chain add web t | g",
        "add-stateful in port0 chain web",
    ]);
    let frames: Vec<_> = (0..6).map(|n| (IN, udp(client(n % 2), SERVER))).collect();
    let (mut packets, _) = worker.look_up(&frames);
    let expected: Vec<_> =
        (0..6).map(|n| if n < 2 { Ok(OUT) } else { Err(DropReason::BackendDown) }).collect();
    assert_eq!(worker.chain(&mut packets), expected);
    assert_eq!((worker.sessions.counters().closed, worker.sessions.counters().sessions), (2, 0));
    assert_eq!(worker.seen(), 6);
}

/// The first packet of a flow behind a change of elements renews its decision; each one is counted once.
#[test]
fn all_packets_behind_a_change_of_elements_are_counted() {
    let mut policy = Policy::new();
    change_set(&mut policy, "set add hosts address").expect("a set");
    let lines = ["add-stateful in port0 accept", "add ip-saddr @hosts block"];
    let mut policy = RuleSet::parse(&lines, Default::default(), Some(&policy)).expect("good lines").policy;
    let with = |policy: &Policy| RuleSet::new(policy.clone(), Default::default(), Default::default());
    let mut worker = Worker::new(&[]);
    let (old, slot) = (with(&policy), policy.rule(1).expect("a rule").slot);
    worker.sessions.adopt(&worker.rules, &old);
    worker.rules = old;
    let packets = |host: u8| (IN, udp(([10, 0, 0, host], 1000), ([192, 0, 2, 1], 53)));
    worker.look_up(&[packets(1), packets(2)]);
    worker.sessions.flush(&worker.rules);
    change_set(&mut policy, "set hosts add 10.0.0.2").expect("a change");
    let (new, change) = (with(&policy), policy.take_element_change().expect("few elements"));
    worker.sessions.adopt_elements(&Arc::new(change), &worker.rules);
    worker.rules = new;
    let (_, next) = worker.look_up(&[packets(1), packets(2), packets(1), packets(1)]);
    assert_eq!(next[..4], [Next::Pass, Next::Drop, Next::Pass, Next::Pass]);
    worker.sessions.flush(&worker.rules);
    // The rule matches the packet that another rule blocks, too.
    assert_eq!(worker.rules.counts(slot).0, 4);
}

/// What listings and counters tell after a step.
fn state_of(worker: &Worker) -> (Vec<SessionView>, Vec<(u64, u64)>) {
    let (mut views, mut cursor) = (Vec::new(), DumpCursor::default());
    while worker.sessions.dump(1, &worker.rules, &mut cursor, 7, |view| views.push(view)) {}
    (views, (0..3).map(|slot| worker.rules.counts(slot)).collect())
}

/// Packets of a flow that follow each other are decided and counted together. The result is the same as for
/// each alone.
#[test]
fn trains_of_packets() {
    const POOL: &str = "nat pool add p 200.0.0.1";
    let accept = "add-stateful in port0 accept";
    let all: [&[&str]; 6] = [
        &[accept],
        &[accept, "add udp-dport 80 in port0 mod ip-ttl 3"],
        &[accept, "add udp-dport 80 block"],
        &[accept, "add ip-ttl 9 block"],
        &[POOL, "nf add n source p", "chain add web n", "add-stateful in port0 ip-proto != icmp chain web"],
        LINES,
    ];
    for lines in all {
        let [mut together, mut alone] = [Worker::new(lines), Worker::new(lines)];
        let packet = |flow: u16, ack: u32| match flow % 2 {
            0 => (IN, udp(client(flow), SERVER)),
            _ => (IN, tcp(client(flow), SERVER, ACK, 101, 501 + ack)),
        };
        let mut random = 7_u32;
        for round in 0..30 {
            let mut frames = Vec::new();
            while frames.len() < 40 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let (flow, n) = ((random >> 20) as u16 % 4, random >> 28);
                frames.extend((0..=n).map(|ack| packet(flow, ack ^ 3)));
            }
            if round == 0 {
                // Sessions are opened by one packet each.
                frames = (0..4).map(|flow| packet(flow, 0)).collect();
            }
            let (mut packets, next) = together.look_up(&frames);
            let chained = next[0] == Next::Chain;
            let sent = if chained { together.chain(&mut packets) } else { Vec::new() };
            for (at, frame) in frames.iter().enumerate() {
                let (mut single, outcome) = alone.look_up(std::slice::from_ref(frame));
                assert_eq!(outcome[0], next[at], "{lines:?}");
                if chained {
                    assert_eq!(alone.chain(&mut single), [sent[at]]);
                }
                assert_eq!(single.0[0].0, packets.0[at].0);
            }
            [&mut together, &mut alone].into_iter().for_each(|worker| worker.sessions.flush(&worker.rules));
            assert_eq!(state_of(&together), state_of(&alone), "{lines:?}");
        }
    }
}
