//! Functions for tests: what they do to a packet is said by what they have seen of its session.

#![allow(dead_code, reason = "each test uses some of it")]

use mmb_nf::{
    Context, DropReason, EmitTarget, Function, Packet, Properties, Registry, SessionInfo, SessionKey, Setup,
    Translates, Verdict,
};
use mmb_packet::build::{Frame, Ip4, Tcp, Udp};

/// The port by which functions say what they had of a session that ends: their mark, then their scratchpad.
pub const ENDS: u16 = 99;

/// What a function does, apart from how the engine calls it. `seen` counts packets; `last` is the frame's
/// last byte.
pub fn act(kind: Kind, mark: u8, seen: &mut u32, last: &mut u8, port: u8) -> Verdict {
    *seen += 1;
    match kind {
        Kind::Stamp => {
            *last = last.wrapping_mul(31).wrapping_add(mark).wrapping_add(*seen as u8);
            Verdict::Pass
        }
        Kind::Drop if seen.is_multiple_of(u32::from(mark % 3) + 2) => Verdict::Drop(DropReason::Police),
        Kind::Drop => Verdict::Pass,
        Kind::Split => Verdict::Branch(port % 2),
        Kind::Mix if seen.is_multiple_of(3) => Verdict::Pass,
        Kind::Mix => Verdict::Branch((*seen % 2) as u8),
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Writes into the frame.
    #[default]
    Stamp,
    /// Drops each second, third or fourth packet.
    Drop,
    /// Sends sessions two ways.
    Split,
    /// Sends packets two ways, or none.
    Mix,
}

/// `MARK [WORD…]`: `drop`, `split`, `mix`; `tcp`, `udp`: takes only that; `source`, `destination`, `pair`:
/// goes by that; `translates-source`, `translates-destination`; `routes`; `end N`, `refuse N`: does so with
/// the Nth packet; `emit`: sends a copy on; `bytes16` is not a word: scratchpads have 16 bytes.
#[derive(Default)]
pub struct Probe {
    mark: u8,
    pub kind: Kind,
    properties: Properties,
    end: Option<u32>,
    refuse: Option<u32>,
    emit: bool,
    set: std::sync::atomic::AtomicU32,
}

impl Function for Probe {
    const TYPE: &'static str = "probe";
    const USAGE: &'static str = "MARK [WORD…]";
    const HELP: &'static str = "tests";

    /// Packets, the port of the opener's packets as `open` saw it, how often it was opened, nothing.
    type Pad = [u32; 4];
    /// Sessions that it has.
    type Local = i64;

    fn new(setup: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        let mut words = setup.args.iter();
        let mark = words.next().and_then(|word| word.parse().ok()).ok_or("a mark, 0 to 255, is missing")?;
        let mut probe = Probe { mark, ..Probe::default() };
        while let Some(word) = words.next() {
            let properties = &mut probe.properties;
            let mut number = || words.next().and_then(|word| word.parse().ok());
            match *word {
                "drop" => probe.kind = Kind::Drop,
                "split" => (probe.kind, properties.outputs) = (Kind::Split, vec!["a".into(), "b".into()]),
                "mix" => {
                    (probe.kind, properties.outputs) = (Kind::Mix, vec!["a".into(), "b".into()]);
                    properties.diverges = true;
                }
                "tcp" => properties.accepts = "ip-proto tcp".into(),
                "udp" => properties.accepts = "ip-proto udp".into(),
                "source" => properties.key = SessionKey::Source,
                "destination" => properties.key = SessionKey::Destination,
                "pair" => properties.key = SessionKey::Pair,
                "translates-source" => {
                    properties.translates = Translates { source: true, ..properties.translates }
                }
                "translates-destination" => {
                    properties.translates = Translates { destination: true, ..properties.translates }
                }
                "routes" => properties.routes = true,
                "slow" => properties.timeout = Some(1_000_000),
                "end" => probe.end = number(),
                "refuse" => probe.refuse = number(),
                "emit" => probe.emit = true,
                other => return Err(mmb_nf::ArgError::unknown::<Self>(other)),
            }
        }
        Ok(probe)
    }

    fn properties(&self) -> Properties {
        self.properties.clone()
    }

    fn route(&self, first: &mmb_nf::OpeningPacket<'_>, _: &mut i64) -> Option<u8> {
        Some(port_of(first.packet.head()) % 2)
    }

    fn open(&self, pad: &mut [u32; 4], session: &SessionInfo, cx: &mut Context<'_, i64>) {
        assert_eq!(*pad, [0; 4], "zeros to begin with");
        pad[1] = u32::from(u16::from_be_bytes(session.key.source_port));
        pad[2] = 1;
        *cx.local += 1;
    }

    fn packet(&self, packet: &mut Packet<'_>, pad: &mut [u32; 4], cx: &mut Context<'_, i64>) -> Verdict {
        assert_eq!(pad[2], 1, "opened once: {}", self.mark);
        let port = port_of(packet.head);
        let Some(last) = packet.head.last_mut() else { return Verdict::Pass };
        let verdict = act(self.kind, self.mark, &mut pad[0], last, port);
        if self.emit {
            cx.emit(EmitTarget::Egress, packet.head);
        }
        match Some(pad[0]) {
            seen if seen == self.end => Verdict::End(DropReason::BackendDown),
            seen if seen == self.refuse => Verdict::Refuse(DropReason::Acl),
            _ => verdict,
        }
    }

    fn release(&self, pad: &mut [u32; 4], _: &SessionInfo, cx: &mut Context<'_, i64>) {
        assert_eq!(pad[2], 1, "released once");
        *cx.local -= 1;
        let mut frame = vec![self.mark];
        frame.extend(pad[0].to_be_bytes());
        cx.emit(EmitTarget::Port(ENDS), &frame);
        pad[2] = 0;
    }

    fn set(&self, words: &[&str]) -> Result<(), mmb_nf::ArgError> {
        let number = words.first().and_then(|word| word.parse().ok()).ok_or("a number, please")?;
        self.set.store(number, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }
}

/// The port that tells the sessions of tests apart: of the side that has opened them.
fn port_of(frame: &[u8]) -> u8 {
    let ports = frame.get(34..38).unwrap_or(&[0; 4]);
    // The other side's is 53.
    if ports[..2] == [0, 53] { ports[3] } else { ports[1] }
}

pub fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.add::<Probe>();
    registry
}

/// A packet of the session of this source port, from this host; `back`: of the other side.
pub fn packet(tcp: bool, host: u8, port: u8, back: bool) -> Vec<u8> {
    let (near, far) = ([10, 0, 0, host], [192, 0, 2, 1]);
    let (source, destination) = if back { (far, near) } else { (near, far) };
    let (from, to) = if back { (53, u16::from(port) + 1024) } else { (u16::from(port) + 1024, 53) };
    let net = Ip4::new(source, destination);
    let frame = if tcp { Frame::new(net, Tcp::new(from, to)) } else { Frame::new(net, Udp::new(from, to)) };
    frame.payload([7; 12]).build()
}

pub fn udp(port: u8) -> Vec<u8> {
    packet(false, 1, port, false)
}
