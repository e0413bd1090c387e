//! Functions for these tests.

use bytemuck::{Pod, Zeroable};
use mmb_nf::{
    Context, DropReason, EmitTarget, Function, Packet, Properties, Registry, SessionInfo, Setup, Verdict,
};
use mmb_packet::checksum::update16;

/// The word of a frame's IPv4 header that these functions write: the identification.
pub const ID: std::ops::Range<usize> = 18..20;

fn with_id(packet: &mut Packet<'_>, change: impl FnOnce(u16) -> u16) {
    let word = |head: &[u8], at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let (old, sum) = (word(packet.head, ID.start), word(packet.head, 24));
    let new = change(old);
    packet.head[ID].copy_from_slice(&new.to_be_bytes());
    packet.head[24..26].copy_from_slice(&update16(sum, old, new).to_be_bytes());
}

/// `digit N`: appends a hexadecimal digit to the identification, which shows the order of the functions.
pub struct Digit(u16);

impl Function for Digit {
    const TYPE: &'static str = "digit";
    const USAGE: &'static str = "N";
    const HELP: &'static str = "writes a digit";
    type Pad = ();
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        let digit = setup.args.first().and_then(|word| word.parse().ok());
        digit.map(Digit).ok_or_else(|| "which digit?".into())
    }

    fn packet(&self, packet: &mut Packet<'_>, (): &mut (), _: &mut Context<'_, ()>) -> Verdict {
        with_id(packet, |id| id << 4 | self.0);
        Verdict::Pass
    }
}

/// `number`: sets the identification to the packet's number in its session.
pub struct Number;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Count {
    packets: u32,
}

impl Function for Number {
    const TYPE: &'static str = "number";
    const USAGE: &'static str = "";
    const HELP: &'static str = "numbers packets";
    type Pad = Count;
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        Ok(Number)
    }

    fn packet(&self, packet: &mut Packet<'_>, pad: &mut Count, _: &mut Context<'_, ()>) -> Verdict {
        pad.packets += 1;
        with_id(packet, |_| pad.packets as u16);
        Verdict::Pass
    }
}

/// `gate`: returns the verdict that the first byte of a datagram names.
pub struct Gate;

impl Function for Gate {
    const TYPE: &'static str = "gate";
    const USAGE: &'static str = "";
    const HELP: &'static str = "does as it is told";
    type Pad = ();
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        Ok(Gate)
    }

    fn properties(&self) -> Properties {
        Properties { accepts: "ip-proto udp".into(), ..Properties::default() }
    }

    fn packet(&self, packet: &mut Packet<'_>, (): &mut (), _: &mut Context<'_, ()>) -> Verdict {
        match packet.l4().get(8) {
            Some(b'D') => Verdict::Drop(DropReason::ChainError),
            Some(b'R') => Verdict::Refuse(DropReason::Acl),
            Some(b'E') => Verdict::End(DropReason::BackendDown),
            _ => Verdict::Pass,
        }
    }
}

/// `copy INTERFACE|back|onward [N]`: makes N copies of each packet, and one at the end of a session.
pub struct Copy {
    to: EmitTarget,
    times: usize,
}

impl Function for Copy {
    const TYPE: &'static str = "copy";
    const USAGE: &'static str = "INTERFACE|back|onward [N]";
    const HELP: &'static str = "copies packets";
    type Pad = ();
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        let to = match setup.args.first() {
            Some(&"back") => Some(EmitTarget::Ingress),
            Some(&"onward") => Some(EmitTarget::Egress),
            Some(name) => (setup.resolve_port)(name).map(EmitTarget::Port),
            None => None,
        };
        let times = setup.args.get(1).and_then(|word| word.parse().ok()).unwrap_or(1);
        to.map(|to| Copy { to, times }).ok_or_else(|| "where to?".into())
    }

    fn packet(&self, packet: &mut Packet<'_>, (): &mut (), cx: &mut Context<'_, ()>) -> Verdict {
        (0..self.times).for_each(|_| cx.emit(self.to, packet.head));
        Verdict::Pass
    }

    fn release(&self, (): &mut (), _: &SessionInfo, cx: &mut Context<'_, ()>) {
        cx.emit(self.to, &FAREWELL);
    }
}

/// `long INTERFACE BYTES`: makes a frame of this length for each packet, out of pieces of 1,000 bytes.
pub struct LongFrame {
    to: EmitTarget,
    bytes: usize,
}

impl Function for LongFrame {
    const TYPE: &'static str = "long";
    const USAGE: &'static str = "INTERFACE BYTES";
    const HELP: &'static str = "makes long frames";
    type Pad = ();
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        let port = setup.args.first().and_then(|name| (setup.resolve_port)(name));
        let bytes = setup.args.get(1).and_then(|word| word.parse().ok());
        let (port, bytes) = port.zip(bytes).ok_or("where to, and how long?")?;
        Ok(LongFrame { to: EmitTarget::Port(port), bytes })
    }

    fn packet(&self, _: &mut Packet<'_>, (): &mut (), cx: &mut Context<'_, ()>) -> Verdict {
        let frame = long_frame(self.bytes);
        cx.emit_segments(self.to, &frame.chunks(1_000).collect::<Vec<_>>());
        Verdict::Pass
    }
}

/// The frame that `long` makes: bytes that differ from those of the neighboring pieces.
pub fn long_frame(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// The payload that `copy` sends at the end of a session.
pub const FAREWELL: [u8; 60] = [0xfa; 60];

/// The built-in functions and these.
pub fn registry() -> Registry {
    let mut registry = mmb_nf_builtin::registry();
    registry.add::<Digit>().add::<Number>().add::<Gate>().add::<Copy>().add::<LongFrame>();
    registry.add::<super::holder::Holder>().add::<super::holder::Trace>();
    registry
}
