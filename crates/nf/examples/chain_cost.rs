//! Ticks per packet of chains of monitoring functions: `cargo run --release -p mmb-nf --example chain_cost`.
//!
//! Prints, for 1 to 5 functions of 24 bytes and some numbers of sessions, what `Runner::run` takes for each
//! packet, and what a `flow` before each function (a lookup of its own) takes. The clock is the system's: a
//! tick is a nanosecond.

use std::hint::black_box;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use mmb_flow::{Direction, FlowRef, Key, ScratchpadStarts, SessionId, SessionSettings, Table, parse_key};
use mmb_nf::{
    ChainId, ChainVerdict, Context, Function, Meta, Order, Packet, PacketView, Program, ProgramSpec,
    Registry, Runner, SessionAccess, SessionInfo, Setup, Verdict,
};
use mmb_packet::build::{Frame, Ip4, Udp};
use mmb_packet::{DropReason, parse};

/// A flow monitor: 24 bytes for each session.
struct Monitor;

impl Function for Monitor {
    const TYPE: &'static str = "watch";
    const USAGE: &'static str = "";
    const HELP: &'static str = "counts packets and bytes";

    /// Packets, bytes, and when the last one came.
    type Pad = [u64; 3];
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        Ok(Monitor)
    }

    #[inline(always)]
    fn packet(&self, packet: &mut Packet<'_>, pad: &mut [u64; 3], cx: &mut Context<'_, ()>) -> Verdict {
        pad[0] += 1;
        pad[1] += u64::from(packet.len);
        pad[2] = u64::from(cx.now);
        Verdict::Pass
    }
}

struct Sessions(Table);

impl SessionAccess for Sessions {
    fn pads(&mut self) -> (&mut [u8], ScratchpadStarts<'_>) {
        self.0.scratchpads_mut()
    }

    fn pad(&mut self, id: SessionId) -> &mut [u8] {
        self.0.scratch_mut(id)
    }

    fn translator(&mut self) -> impl FnMut(FlowRef, &mut [u8], &Meta) -> Result<(), DropReason> {
        |_, _, _| Ok(())
    }

    fn finish_emission(&mut self, _: FlowRef, _: bool, _: &mut [u8]) -> bool {
        true
    }

    fn info(&self, id: SessionId) -> SessionInfo {
        info(id, self.0.key(FlowRef::new(id, Direction::Forward)))
    }

    fn uid(&self, id: SessionId) -> Option<u32> {
        self.0.is_live(id).then(|| self.0.uid(id))
    }

    fn mtu(&self, _: &Packet<'_>) -> usize {
        usize::MAX
    }
}

fn info(id: SessionId, key: Key) -> SessionInfo {
    SessionInfo {
        id,
        key,
        ingress_key: key,
        egress_key: key,
        created: 0,
        now: 0,
        in_port: 0,
        uid: 0,
        packets: [0; 2],
        bytes: [0; 2],
    }
}

fn nanoseconds() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

fn program(functions: usize, independent: bool) -> Program {
    let mut registry = Registry::default();
    registry.add::<Monitor>();
    let names: Vec<_> =
        (0..functions).map(|n| if independent { format!("f{n} | m{n}") } else { format!("m{n}") }).collect();
    let mut lines: Vec<_> =
        (0..functions).flat_map(|n| [format!("nf add m{n} watch"), format!("nf add f{n} flow")]).collect();
    lines.push(format!("chain add watched {}", names.join(" | ")));
    let (mut add, mut chains) = (Vec::new(), Vec::new());
    for line in &lines {
        match mmb_lang::parse_line(line) {
            Ok(Some(mmb_lang::Command::NfAdd(one))) => add.push(one),
            Ok(Some(mmb_lang::Command::ChainAdd(one))) => chains.push(one),
            other => panic!("{line}: {other:?}"),
        }
    }
    let what = ProgramSpec {
        functions: &add,
        chains: &chains,
        registry: &registry,
        resolve_port: &|_| None,
        has_pool: &|_| false,
        workers: 1,
        seed: 7,
        files: &Default::default(),
        processes: Default::default(),
        previous: None,
        scratchpad_limit: 256,
        order: Order::Maximal,
    };
    Program::compile(&what).unwrap_or_else(|error| panic!("{error}"))
}

/// Nanoseconds per packet, the best of some rounds.
fn measure(functions: usize, sessions: u32, independent: bool) -> f64 {
    let program = Arc::new(program(functions, independent));
    let mut ground = Sessions(Table::new(sessions.max(256), 256, 1).expect("memory"));
    let mut runner = Runner::new(0, 1, sessions as usize);
    runner.set_program(&program, &SessionSettings::default());
    let mut frames = Vec::new();
    for n in 0..sessions {
        let [_, b, c, d] = n.to_be_bytes();
        let mut frame =
            Frame::new(Ip4::new([10, b, c, d], [192, 0, 2, 1]), Udp::new(1000, 53)).payload([0; 18]).build();
        let mut meta = Meta::default();
        parse(&frame, frame.len(), &mut meta).expect("a packet");
        let key = parse_key(&frame, &meta).expect("a key");
        let id = ground.0.insert(&key, &key.reversed(), 0).expect("room");
        let opener = PacketView { head: &frame, meta: &meta, direction: Direction::Forward };
        assert!(ground.0.reserve_scratch(id, program.bytes()));
        runner.open(ChainId(0), ground.0.scratch_mut(id), &info(id, key), &opener);
        frame.shrink_to_fit();
        frames.push((frame, meta, id));
    }
    // In an order that no prefetcher foresees.
    let mut state = 1u64;
    for i in (1..frames.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        frames.swap(i, (state >> 33) as usize % (i + 1));
    }
    let rounds = (2_000_000 / frames.len()).max(6);
    let mut fates = [ChainVerdict::Pass; 256];
    let mut best = f64::MAX;
    for round in 0..rounds {
        let mut spent = 0;
        for chunk in frames.chunks_mut(256) {
            let mut packets: Vec<Packet<'_>> = chunk
                .iter_mut()
                .map(|(frame, meta, id)| Packet {
                    tail: None,
                    len: frame.len() as u32,
                    segment_size: 0,
                    head: frame,
                    meta,
                    in_port: 0,
                    direction: Direction::Forward,
                    session: *id,
                })
                .collect();
            let before = nanoseconds();
            runner.run(round as u32, &mut packets, &mut ground, &mut fates);
            spent += nanoseconds() - before;
            black_box(&fates);
        }
        best = best.min(spent as f64 / f64::from(sessions));
    }
    best
}

fn main() {
    println!("nanoseconds per packet in Runner::run");
    for sessions in [256, 1000, 64_000, 1_000_000] {
        let together: Vec<_> = (1..=5).map(|n| format!("{:6.2}", measure(n, sessions, false))).collect();
        println!("{sessions:>9} sessions, 1 to 5 functions together: {}", together.join(" "));
    }
    for sessions in [1000, 64_000] {
        let alone: Vec<_> = (1..=5).map(|n| format!("{:6.2}", measure(n, sessions, true))).collect();
        println!("{sessions:>9} sessions, a lookup before each:       {}", alone.join(" "));
    }
}
