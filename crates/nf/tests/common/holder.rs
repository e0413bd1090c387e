//! Functions that hold packets, and that show the order of packets. The first payload byte of a datagram
//! selects what is done.

#![allow(dead_code, reason = "each test uses some of it")]

use std::sync::{Mutex, PoisonError};

use mmb_nf::{ArgError, Context, Direction, DropReason, Function, Packet, Properties, Setup, Verdict};

/// Offset of the payload behind the beginning of a UDP header.
const PAYLOAD: usize = 8;

/// `hold [outputs]`: by the first payload byte of a datagram:
///
/// | byte | effect |
/// |---|---|
/// | `H` | holds the packet |
/// | `0` to `9` | holds the packet, ordered by the digit |
/// | `R` | releases all packets, and passes behind them |
/// | `r` | releases the first packet, and passes behind it |
/// | `A` | passes, and releases all packets behind the packet |
/// | `B` | passes, and releases packets before order 5 behind the packet |
/// | `O` | releases all packets of the other direction |
/// | `D` | drops all packets that are held, and passes |
/// | `E` | releases all packets, and ends the session |
/// | `s` | leaves by the second output |
///
/// It writes `*` over the first byte of packets that it has held, when they go on.
pub struct Holder {
    has_outputs: bool,
}

impl Function for Holder {
    const TYPE: &'static str = "hold";
    const USAGE: &'static str = "[outputs]";
    const HELP: &'static str = "holds packets";
    const HOLDS: bool = true;
    type Pad = u32;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Holder { has_outputs: !setup.args.is_empty() })
    }

    fn properties(&self) -> Properties {
        let outputs = if self.has_outputs { vec!["a".into(), "b".into()] } else { Vec::new() };
        Properties { outputs, ..Properties::default() }
    }

    fn packet(&self, packet: &mut Packet<'_>, held: &mut u32, cx: &mut Context<'_, ()>) -> Verdict {
        let passed = if self.has_outputs { Verdict::Branch(0) } else { Verdict::Pass };
        match packet.l4().get(PAYLOAD) {
            Some(b'H') => {
                *held += 1;
                return Verdict::Hold;
            }
            Some(digit @ b'0'..=b'9') => return cx.hold_at(u32::from(digit - b'0')),
            Some(b'R') => drop(cx.held(packet).release()),
            Some(b'r') => drop(cx.held(packet).release_first(1)),
            Some(b'A') => drop(cx.held(packet).behind_packet().release()),
            Some(b'B') => drop(cx.held(packet).behind_packet().release_before(5)),
            Some(b'O') => drop(cx.held(packet).opposite().release()),
            Some(b'D') => drop(cx.held(packet).drop_all(DropReason::Police)),
            Some(b'E') => {
                cx.held(packet).release();
                return Verdict::End(DropReason::BackendDown);
            }
            Some(b's') if self.has_outputs => return Verdict::Branch(1),
            _ => {}
        }
        passed
    }

    fn resume(&self, packet: &mut Packet<'_>, _: &mut u32, _: &mut Context<'_, ()>) -> Verdict {
        packet.write_l4(PAYLOAD, b"*");
        if self.has_outputs { Verdict::Branch(0) } else { Verdict::Pass }
    }
}

/// `trace`: shows the payloads of all packets in the order in which they come, those of the reverse direction
/// in brackets.
pub struct Trace(Mutex<Vec<String>>);

impl Function for Trace {
    const TYPE: &'static str = "trace";
    const USAGE: &'static str = "";
    const HELP: &'static str = "shows the order of packets";
    type Pad = ();
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Trace(Mutex::default()))
    }

    fn packet(&self, packet: &mut Packet<'_>, (): &mut (), _: &mut Context<'_, ()>) -> Verdict {
        let payload: Vec<u8> = packet.payload().flatten().copied().collect();
        let text = String::from_utf8_lossy(&payload).into_owned();
        let text = if packet.direction == Direction::Forward { text } else { format!("({text})") };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        Verdict::Pass
    }

    fn report(&self) -> Vec<(String, String)> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        vec![("seen".into(), seen.join(" "))]
    }
}
