//! Properties of stream functions for any segments. The fuzz target `stream` runs them on segments, time and
//! limits from the fuzzer's bytes. A test of the crate runs them on the corpus and on random bytes.
//!
//! * Each packet goes on or is dropped once, at once or after a wait.
//! * What goes on begins at a byte whose predecessors have all gone on.
//! * What goes on has the bytes of the first packet that went on.
//! * Functions read each byte once, in order, from the first packet with it that goes on.
//! * When the sender has repeated everything in order, all has been read, and nothing waits.

use std::sync::{Mutex, PoisonError};

use mmb_nf::{
    ArgError, ChainVerdict, Context, Direction, Harness, Registry, Setup, StreamData, StreamFunction,
    StreamVerdict,
};
use mmb_packet::build::{Frame, Ip4, Tcp};

/// Length of each stream in bytes.
const LEN: usize = 256;
const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;
/// Offset of the TCP header in a frame.
const TCP: usize = 34;

/// Records the bytes of both directions, and their ends.
#[derive(Default)]
struct Record(Mutex<[(Vec<u8>, u32); 2]>);

impl StreamFunction for Record {
    const TYPE: &'static str = "record";
    const USAGE: &'static str = "";
    const HELP: &'static str = "records bytes";
    type State = u32;
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Record::default())
    }

    fn data(&self, data: &StreamData<'_, '_>, _: &mut u32, _: &mut Context<'_, ()>) -> StreamVerdict {
        let mut read = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (bytes, ends) = &mut read[data.direction() as usize];
        assert!(*ends == 0 && !data.is_empty());
        bytes.extend(data.bytes());
        StreamVerdict::Pass
    }

    fn end(&self, direction: Direction, _: &mut u32, _: &mut Context<'_, ()>) -> StreamVerdict {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[direction as usize].1 += 1;
        StreamVerdict::Pass
    }

    fn report(&self) -> Vec<(String, String)> {
        let read = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        read.iter().map(|(bytes, ends)| (ends.to_string(), hex(bytes))).collect()
    }
}

/// Runs the input `bytes`. Panics if a property does not hold.
pub fn check(bytes: &[u8]) {
    let Some((&[a, b, c], mut steps)) = bytes.split_first_chunk() else { return };
    let initial = [u32::from(a) << 24 | 0x00ff_ff80, u32::MAX - u32::from(b)];
    let mut registry = Registry::default();
    registry.add_stream::<Record>();
    let chain = if c & 1 == 0 { "one" } else { "one | two" };
    let lines = format!("nf add one record\nnf add two record\nchain add c {chain}");
    let harness = Harness::new(registry, &lines).expect("a valid configuration");
    let mut run = Run { harness, initial, streams: Default::default(), sent: 0, done: 0 };
    run.open();
    let mut vector = Vec::new();
    while let Some((&[what, from, len, fill], rest)) = steps.split_first_chunk() {
        steps = rest;
        match what & 7 {
            0 => run.harness.expire(u32::from(fill) * 100),
            1 => run.send(&std::mem::take(&mut vector)),
            _ => {
                let (direction, from) = (usize::from(what >> 7), usize::from(from));
                let to = (from + usize::from(len & 63)).min(LEN);
                // The segment that reaches the end may have the FIN.
                let flags = if to == LEN && what & 8 != 0 { ACK | FIN } else { ACK };
                vector.push(run.frame(direction, from, &vec![fill; to - from], flags));
            }
        }
    }
    run.send(&vector);
    run.finish();
    if c & 1 != 0 {
        assert_eq!(run.read("one"), run.read("two"));
    }
}

struct Run {
    harness: Harness,
    initial: [u32; 2],
    /// What has gone on in each direction.
    streams: [Vec<u8>; 2],
    sent: usize,
    done: usize,
}

impl Run {
    fn frame(&self, direction: usize, from: usize, payload: &[u8], flags: u8) -> Vec<u8> {
        let (ends, ports) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [4000, 80]);
        let tcp = Tcp {
            seq: self.initial[direction].wrapping_add(from as u32),
            ack: self.initial[1 - direction],
            flags,
            ..Tcp::new(ports[direction], ports[1 - direction])
        };
        Frame::new(Ip4::new(ends[direction], ends[1 - direction]), tcp).payload(payload).build()
    }

    fn open(&mut self) {
        for (direction, flags) in [(0, SYN), (1, SYN | ACK)] {
            self.initial[direction] = self.initial[direction].wrapping_sub(1);
            let frame = self.frame(direction, 0, b"", flags);
            self.initial[direction] = self.initial[direction].wrapping_add(1);
            self.harness.send("c", &[frame]);
        }
    }

    /// Sends a vector of frames, and follows what goes on.
    fn send(&mut self, frames: &[Vec<u8>]) {
        self.sent += frames.len();
        let mut sent = self.harness.send("c", frames);
        sent.extend(self.harness.released());
        for one in sent {
            match one.verdict {
                ChainVerdict::Pass => self.note(&one.frame),
                ChainVerdict::Drop(_) => self.done += 1,
                ChainVerdict::Hold => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn note(&mut self, frame: &[u8]) {
        self.done += 1;
        let direction = usize::from(frame[TCP..TCP + 2] != 4000u16.to_be_bytes());
        let seq = u32::from_be_bytes([frame[TCP + 4], frame[TCP + 5], frame[TCP + 6], frame[TCP + 7]]);
        let from = seq.wrapping_sub(self.initial[direction]) as usize;
        let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        let (payload, stream) = (&frame[TCP + 20..end], &mut self.streams[direction]);
        if payload.is_empty() {
            return;
        }
        assert!(from <= stream.len(), "byte {} is missing in front of {from}", stream.len());
        let known = (stream.len() - from).min(payload.len());
        assert_eq!(payload[..known], stream[from..from + known], "what goes on agrees with what has gone on");
        stream.extend_from_slice(payload.get(stream.len() - from..).unwrap_or(&[]));
    }

    fn read(&self, name: &str) -> [(Vec<u8>, u32); 2] {
        let report = self.harness.program().instance(name).expect("configured").report();
        let byte = |pair: &[u8]| u8::from_str_radix(&String::from_utf8_lossy(pair), 16).expect("two digits");
        [0, 1].map(|at| {
            let (ends, hex) = &report[at];
            (hex.as_bytes().chunks(2).map(byte).collect(), ends.parse().expect("a number"))
        })
    }

    /// The senders repeat everything.
    fn finish(&mut self) {
        let read = self.read("one");
        assert_eq!([&read[0].0, &read[1].0], [&self.streams[0], &self.streams[1]]);
        for direction in [0, 1] {
            for from in (0..LEN).step_by(32) {
                let flags = if from + 32 == LEN { ACK | FIN } else { ACK };
                let frame = self.frame(direction, from, &[0xaa; 32], flags);
                self.send(&[frame]);
            }
        }
        let read = self.read("one");
        assert_eq!([&read[0].0, &read[1].0], [&self.streams[0], &self.streams[1]]);
        assert!(self.streams.iter().all(|stream| stream.len() == LEN), "all was sent");
        assert_eq!(read.map(|(_, ends)| ends), [1, 1]);
        assert_eq!(self.done, self.sent, "packets that went on or were dropped");
        assert_eq!(self.harness.runner().held().0, 0, "packets that wait");
    }
}
