//! Small functions, each for one thing that chains can do to sessions.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::{Pod, Zeroable};
use mmb_flow::{Key, parse_key};
use mmb_nf::{
    Admission, Context, Direction, DropReason, EmitTarget, Function, OpeningPacket, Packet, Properties,
    Registry, SessionInfo, Setup, Translates, Verdict,
};

pub fn registry() -> Registry {
    let mut registry = mmb_nf_builtin::registry();
    registry.add::<NextSet>().add::<Recorder>().add::<Source>().add::<Server>().add::<Gate>();
    registry.add::<Copies>().add::<Greeter>().add::<Parity>();
    registry
}

fn names(some: &[(&str, &AtomicU64)]) -> Vec<(String, String)> {
    some.iter().map(|(name, count)| ((*name).to_owned(), count.load(Relaxed).to_string())).collect()
}

/// `tally [TIMEOUT]`: counts packets, and sees to it that each comes with its session's scratchpad, and that
/// none is left out.
pub struct NextSet {
    timeout: Option<u32>,
    opened: AtomicU64,
    released: AtomicU64,
    packets: AtomicU64,
}

#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
pub struct TallyPad {
    base: [u64; 2],
    packets: [u64; 2],
    session: u32,
    open: u32,
}

impl Function for NextSet {
    const TYPE: &'static str = "tally";
    const USAGE: &'static str = "[TIMEOUT]";
    const HELP: &'static str = "counts";
    type Pad = TallyPad;
    type Local = u64;

    fn new(setup: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        let timeout = setup.args.first().and_then(|word| word.parse().ok());
        let [opened, released, packets] = [0; 3].map(AtomicU64::new);
        Ok(NextSet { timeout, opened, released, packets })
    }

    fn properties(&self) -> Properties {
        Properties { timeout: self.timeout, ..Properties::default() }
    }

    fn open(&self, pad: &mut TallyPad, session: &SessionInfo, cx: &mut Context<'_, u64>) {
        assert!(bytemuck::bytes_of(pad).iter().all(|&byte| byte == 0), "zeros to begin with");
        *pad = TallyPad { base: session.packets, session: session.id.0, open: 1, ..TallyPad::default() };
        *cx.local += 1;
        self.opened.fetch_add(1, Relaxed);
    }

    fn packet(&self, packet: &mut Packet<'_>, pad: &mut TallyPad, _: &mut Context<'_, u64>) -> Verdict {
        assert_eq!((pad.open, pad.session), (1, packet.session.0), "the session's own scratchpad");
        pad.packets[packet.direction as usize] += 1;
        self.packets.fetch_add(1, Relaxed);
        Verdict::Pass
    }

    fn release(&self, pad: &mut TallyPad, session: &SessionInfo, cx: &mut Context<'_, u64>) {
        assert_eq!((pad.open, pad.session), (1, session.id.0));
        let passed = pad.base.iter().chain(&pad.packets).sum::<u64>();
        let counted = session.packets.iter().sum::<u64>();
        // Behind an output, it is opened for a packet that is counted already.
        assert!(passed == counted || passed == counted + 1, "what was counted has come by here");
        pad.open = 0;
        *cx.local -= 1;
        self.released.fetch_add(1, Relaxed);
    }

    fn report(&self) -> Vec<(String, String)> {
        names(&[("opened", &self.opened), ("released", &self.released), ("packets", &self.packets)])
    }
}

/// `see`: remembers the key of every packet as it stands here, and how sessions look from here.
pub struct Recorder(Mutex<Vec<String>>);

impl Recorder {
    fn note(&self, line: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

fn said(key: &Key) -> String {
    let ip = |address: [u8; 16]| match key.is_ip4() {
        true => IpAddr::from([address[0], address[1], address[2], address[3]]),
        false => IpAddr::from(address),
    };
    let [from, to] = [key.source_port, key.destination_port].map(u16::from_be_bytes);
    format!("{}:{from} {}:{to}", ip(key.source), ip(key.destination))
}

impl Function for Recorder {
    const TYPE: &'static str = "see";
    const USAGE: &'static str = "";
    const HELP: &'static str = "remembers";
    type Pad = [u8; 3];
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        Ok(Recorder(Mutex::default()))
    }

    fn open(&self, _: &mut [u8; 3], session: &SessionInfo, _: &mut Context<'_, ()>) {
        self.note(format!("open {}", said(&session.key)));
    }

    fn packet(&self, packet: &mut Packet<'_>, _: &mut [u8; 3], _: &mut Context<'_, ()>) -> Verdict {
        let way = if packet.direction == Direction::Forward { "there" } else { "back" };
        let key = parse_key(packet.head, packet.meta)
            .map_or_else(|special| format!("{special:?}"), |key| said(&key));
        self.note(format!("{way} {key}"));
        Verdict::Pass
    }

    fn release(&self, _: &mut [u8; 3], session: &SessionInfo, _: &mut Context<'_, ()>) {
        self.note(format!("release {}", said(&session.key)));
    }

    fn report(&self) -> Vec<(String, String)> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|line| (String::new(), line.clone())).collect()
    }
}

/// `source POOL`: translates the source.
pub struct Source(Arc<str>);

impl Function for Source {
    const TYPE: &'static str = "source";
    const USAGE: &'static str = "POOL";
    const HELP: &'static str = "translates";
    type Pad = ();
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        Ok(Source(setup.args[0].into()))
    }

    fn properties(&self) -> Properties {
        Properties {
            translates: Translates { source: true, ..Translates::default() },
            ..Properties::default()
        }
    }

    fn admit(&self, first: &mut OpeningPacket<'_>, (): &mut ()) -> Admission {
        first.translation.pool = Some(self.0.clone());
        Admission::Open
    }

    fn packet(&self, _: &mut Packet<'_>, (): &mut (), _: &mut Context<'_, ()>) -> Verdict {
        Verdict::Pass
    }
}

/// `server ADDRESS PORT`…: gives sessions one server after the other, by worker.
pub struct Server(Vec<(IpAddr, u16)>);

impl Function for Server {
    const TYPE: &'static str = "server";
    const USAGE: &'static str = "ADDRESS PORT …";
    const HELP: &'static str = "translates";
    type Pad = u32;
    type Local = usize;

    fn new(setup: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        let (pairs, _) = setup.args.as_chunks::<2>();
        let server = |[address, port]: &[&str; 2]| Some((address.parse().ok()?, port.parse().ok()?));
        pairs.iter().map(server).collect::<Option<_>>().map(Server).ok_or("no servers".into())
    }

    fn properties(&self) -> Properties {
        Properties {
            translates: Translates { destination: true, ..Translates::default() },
            ..Properties::default()
        }
    }

    fn admit(&self, first: &mut OpeningPacket<'_>, next: &mut usize) -> Admission {
        if self.0.is_empty() {
            return Admission::Drop(DropReason::NoBackend);
        }
        let (address, port) = self.0[*next % self.0.len()];
        *next += 1;
        first.translation.destination = Some((address, Some(port)));
        Admission::Open
    }

    fn packet(&self, _: &mut Packet<'_>, _: &mut u32, _: &mut Context<'_, usize>) -> Verdict {
        Verdict::Pass
    }
}

/// `gate drop|refuse|end N`: says so of each session's packets from the `N`th on.
pub struct Gate(Verdict, u32);

impl Function for Gate {
    const TYPE: &'static str = "gate";
    const USAGE: &'static str = "drop|refuse|end N";
    const HELP: &'static str = "drops";
    type Pad = u32;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        let verdict = match setup.args[0] {
            "drop" => Verdict::Drop(DropReason::Police),
            "refuse" => Verdict::Refuse(DropReason::Acl),
            _ => Verdict::End(DropReason::BackendDown),
        };
        Ok(Gate(verdict, setup.args[1].parse().map_err(|_| "no number")?))
    }

    fn packet(&self, _: &mut Packet<'_>, seen: &mut u32, _: &mut Context<'_, ()>) -> Verdict {
        *seen += 1;
        if *seen >= self.1 { self.0 } else { Verdict::Pass }
    }
}

/// `copies`: sends a frame when a session begins and ends, and two for each packet.
pub struct Copies;

impl Function for Copies {
    const TYPE: &'static str = "copies";
    const USAGE: &'static str = "";
    const HELP: &'static str = "emits";
    type Pad = ();
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        Ok(Copies)
    }

    fn open(&self, (): &mut (), _: &SessionInfo, cx: &mut Context<'_, ()>) {
        cx.emit(EmitTarget::Port(5), b"a session begins");
    }

    fn packet(&self, packet: &mut Packet<'_>, (): &mut (), cx: &mut Context<'_, ()>) -> Verdict {
        cx.emit(EmitTarget::Ingress, b"back");
        cx.emit(EmitTarget::Egress, packet.head);
        Verdict::Pass
    }

    fn release(&self, (): &mut (), _: &SessionInfo, cx: &mut Context<'_, ()>) {
        cx.emit(EmitTarget::Ingress, b"a session ends");
    }
}

/// `greeter`: answers SYNs itself with the number 7000, and opens sessions for what acknowledges that.
pub struct Greeter;

impl Greeter {
    pub const NUMBER: u32 = 7000;
}

impl Function for Greeter {
    const TYPE: &'static str = "greeter";
    const USAGE: &'static str = "";
    const HELP: &'static str = "answers";
    type Pad = ();
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        Ok(Greeter)
    }

    fn properties(&self) -> Properties {
        let translates = Translates { sequence_numbers: true, ..Translates::default() };
        Properties { accepts: "ip-proto tcp".to_owned(), translates, ..Properties::default() }
    }

    fn admit(&self, first: &mut OpeningPacket<'_>, (): &mut ()) -> Admission {
        let at = usize::from(first.meta.l4_off);
        let head = first.packet.head_mut();
        let (flags, ack) =
            (head[at + 13], u32::from_be_bytes(head[at + 8..at + 12].try_into().expect("four")));
        if flags & 2 != 0 {
            let (to, from) = head[..12].split_at_mut(6);
            to.swap_with_slice(from);
            head[at + 13] = 18;
            return Admission::Answer;
        }
        if ack != Self::NUMBER + 1 {
            return Admission::Drop(DropReason::SynCookieBad);
        }
        first.translation.proxied_isn = Some(Self::NUMBER);
        Admission::Open
    }

    fn packet(&self, _: &mut Packet<'_>, (): &mut (), _: &mut Context<'_, ()>) -> Verdict {
        Verdict::Pass
    }
}

/// `parity`: has outputs `odd` and `even`, by the opener's port.
pub struct Parity;

impl Function for Parity {
    const TYPE: &'static str = "parity";
    const USAGE: &'static str = "";
    const HELP: &'static str = "branches";
    type Pad = u16;
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        Ok(Parity)
    }

    fn properties(&self) -> Properties {
        Properties { outputs: vec!["even".to_owned(), "odd".to_owned()], ..Properties::default() }
    }

    fn open(&self, pad: &mut u16, session: &SessionInfo, _: &mut Context<'_, ()>) {
        *pad = u16::from_be_bytes(session.ingress_key.source_port) & 1;
    }

    fn packet(&self, _: &mut Packet<'_>, pad: &mut u16, _: &mut Context<'_, ()>) -> Verdict {
        Verdict::Branch(*pad as u8)
    }
}
