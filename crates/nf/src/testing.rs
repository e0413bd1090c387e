//! A test bench for a single function: it opens sessions and processes packets, without a chain, a table or a
//! worker.

use std::collections::HashMap;
use std::sync::Arc;

use mmb_flow::{Direction, HeldLimits, Key, SessionId, parse_key};
use mmb_packet::{Kind, Meta, PacketBuf, VecPacket, parse};
use mmb_stream::View;

use crate::context::{Emissions, Holding, Reinjection};
use crate::held::HeldPackets;
use crate::set::{Set, VECTOR};
use crate::vector::RawVector;
use crate::{
    Admission, ArgError, Context, Function, HeldEvent, OpeningPacket, Packet, SessionInfo, Setup,
    TailSegments, TranslationRequest, Vector, Verdict,
};

/// The port of the initiators.
pub const NEAR: u16 = 1;
/// The port of the responders.
pub const FAR: u16 = 2;
/// The port with the name `tap`.
pub const TAP: u16 = 7;

pub use Direction::{Forward, Reverse};

/// Makes a function from arguments that are separated by blanks. There are interfaces `near`, `far` and
/// `tap`, a pool `wan` and two workers.
///
/// # Errors
/// The error of [`Function::new`].
pub fn make<F: Function>(line: &str) -> Result<F, ArgError> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let port = |name: &str| match name {
        "near" => Some(NEAR),
        "far" => Some(FAR),
        "tap" => Some(TAP),
        _ => None,
    };
    for (name, help) in F::DROP_REASONS {
        let _ = mmb_packet::DropReason::register(name, help);
    }
    let files = Arc::default();
    let has_pool = |name: &str| name == "wan";
    F::new(&Setup {
        args: &words,
        resolve_port: &port,
        has_pool: &has_pool,
        workers: 2,
        seed: 1,
        files: &files,
    })
}

/// Returns the error for arguments that a function does not accept.
///
/// # Panics
/// If it accepts them.
pub fn refused<F: Function>(line: &str) -> String {
    make::<F>(line).err().unwrap_or_else(|| panic!("`{line}` is accepted")).to_string()
}

/// The result for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// What the function decided.
    pub verdict: Verdict,
    /// The packet afterwards.
    pub frame: Vec<u8>,
    /// Frames that were sent during the vector, each with its output port. Only the last packet has them.
    pub emitted: Vec<(u16, Vec<u8>)>,
}

/// A function with sessions.
pub struct Bench<F: Function> {
    /// The instance.
    pub function: Arc<F>,
    /// The worker's state of the instance.
    pub local: F::Local,
    /// Milliseconds.
    pub now: u32,
    /// The number of the worker.
    pub worker: u16,
    pads: Vec<u64>,
    sessions: Vec<SessionInfo>,
    emissions: Emissions,
    held: HeldPackets,
    /// Held packets by ticket.
    held_frames: HashMap<u32, (usize, Direction, Vec<u8>)>,
    /// Most bytes of the first segment of a frame. The rest is in further segments of the same size.
    pub contiguous: usize,
}

impl<F: Function> Bench<F> {
    /// Makes a bench for a function with these arguments.
    ///
    /// # Panics
    /// If the function does not accept them.
    pub fn new(line: &str) -> Self {
        Self::of(make(line).unwrap_or_else(|error| panic!("{}: {error}", F::TYPE)))
    }

    /// Makes a bench for a function.
    pub fn of(function: F) -> Self {
        Bench {
            function: Arc::new(function),
            local: F::Local::default(),
            now: 1000,
            worker: 0,
            pads: Vec::new(),
            sessions: Vec::new(),
            emissions: Emissions::default(),
            held: HeldPackets::with_limits(HeldLimits::default()),
            held_frames: HashMap::new(),
            contiguous: usize::MAX,
        }
    }

    /// Sets how many packets the function may hold.
    pub fn set_held_limits(&mut self, limits: HeldLimits) {
        self.held.set_limits(limits);
    }

    /// Returns the packets that the function has released or dropped since, in the order in which they go on.
    pub fn released(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        while let Some(event) = self.held.next_event() {
            let (HeldEvent::Released(ticket) | HeldEvent::Dropped(ticket, _)) = event;
            let Some(packet) = self.held_frames.remove(&ticket) else { continue };
            match event {
                HeldEvent::Released(_) => {
                    self.held.finish(ticket);
                    done.extend(self.process(&[packet], true));
                }
                HeldEvent::Dropped(_, reason) => {
                    let verdict = Verdict::Drop(reason);
                    done.push(Done { verdict, frame: packet.2, emitted: Vec::new() });
                }
            }
        }
        done
    }

    const fn words() -> usize {
        size_of::<F::Pad>().div_ceil(8)
    }

    /// Opens a session with the key of a frame. Returns its number.
    pub fn open(&mut self, frame: &[u8]) -> usize {
        let key = key_of_frame(frame);
        self.open_key(key, key)
    }

    /// Opens a session whose key at the function differs from the one of incoming packets.
    pub fn open_key(&mut self, key: Key, original: Key) -> usize {
        self.open_info(key, original, key)
    }

    /// Opens a session whose packets leave with another key.
    pub fn open_onward(&mut self, key: Key, onward: Key) -> usize {
        self.open_info(key, key, onward)
    }

    fn open_info(&mut self, key: Key, original: Key, onward: Key) -> usize {
        let number = self.sessions.len();
        let info = SessionInfo {
            id: SessionId(number as u32),
            key,
            ingress_key: original,
            egress_key: onward,
            created: self.now,
            now: self.now,
            in_port: NEAR,
            uid: number as u32 + 100,
            packets: [0; 2],
            bytes: [0; 2],
        };
        self.sessions.push(info);
        self.pads.resize(self.pads.len() + Self::words(), 0);
        self.with(number, |function, pad, info, cx| function.open(pad, info, cx));
        number
    }

    /// Ends a session. Its scratchpad stays as it was left.
    pub fn release(&mut self, session: usize) {
        self.sessions[session].now = self.now;
        self.with(session, |function, pad, info, cx| function.release(pad, info, cx));
    }

    fn with(
        &mut self,
        session: usize,
        f: impl FnOnce(&F, &mut F::Pad, &SessionInfo, &mut Context<'_, F::Local>),
    ) {
        let mut pad = self.pad(session);
        let mut cx = Context {
            now: self.now,
            worker: self.worker,
            local: &mut self.local,
            emissions: &mut self.emissions,
            at: None,
            ingress: NEAR,
            holding: Holding::new(&mut self.held),
        };
        f(&self.function, &mut pad, &self.sessions[session], &mut cx);
        self.set_pad(session, pad);
    }

    /// Returns a session's scratchpad.
    pub fn pad(&self, session: usize) -> F::Pad {
        let bytes = bytemuck::cast_slice(&self.pads[session * Self::words()..][..Self::words()]);
        bytemuck::pod_read_unaligned(&bytes[..size_of::<F::Pad>()])
    }

    /// Overwrites a session's scratchpad.
    pub fn set_pad(&mut self, session: usize, pad: F::Pad) {
        let bytes: &mut [u8] =
            bytemuck::cast_slice_mut(&mut self.pads[session * Self::words()..][..Self::words()]);
        bytes[..size_of::<F::Pad>()].copy_from_slice(bytemuck::bytes_of(&pad));
    }

    /// Returns what the engine knows of a session, to be changed by the test.
    pub fn info(&mut self, session: usize) -> &mut SessionInfo {
        &mut self.sessions[session]
    }

    /// Offers a packet that is about to open a session. Returns the decision, the packet afterwards, and the
    /// request.
    pub fn admit(&mut self, frame: &[u8]) -> (Admission, Vec<u8>, TranslationRequest) {
        let (mut packet, mut meta) = (VecPacket::new(frame), parsed(frame));
        let key = key_of_frame(frame);
        let mut first = OpeningPacket {
            packet: &mut packet,
            meta: &mut meta,
            key: &key,
            in_port: NEAR,
            now: self.now,
            translation: TranslationRequest::default(),
        };
        let admission = self.function.admit(&mut first, &mut self.local);
        let translation = first.translation;
        (admission, packet.head().to_vec(), translation)
    }

    /// Processes a packet of a session.
    ///
    /// # Panics
    /// If the frame is malformed.
    pub fn packet(&mut self, session: usize, direction: Direction, frame: &[u8]) -> Done {
        self.packets(&[(session, direction, frame.to_vec())]).pop().expect("one for each")
    }

    /// Processes a vector of packets. The last result has all frames that were sent.
    ///
    /// # Panics
    /// If there are no packets or too many, or if a frame is malformed.
    pub fn packets(&mut self, packets: &[(usize, Direction, Vec<u8>)]) -> Vec<Done> {
        self.process(packets, false)
    }

    fn process(&mut self, packets: &[(usize, Direction, Vec<u8>)], is_resumed: bool) -> Vec<Done> {
        assert!(!packets.is_empty() && packets.len() <= VECTOR);
        let mut frames: Vec<_> = packets.iter().map(|(_, _, frame)| frame.clone()).collect();
        let tail_of = |frame: &Vec<u8>| {
            let tail = frame.get(self.contiguous..).unwrap_or(&[]);
            tail.chunks(self.contiguous.max(1)).map(<[u8]>::to_vec).collect()
        };
        let tails: Vec<Vec<Vec<u8>>> = frames.iter().map(tail_of).collect();
        let mut metas: Vec<_> = frames.iter().map(|frame| parsed(frame)).collect();
        let (mut bases, mut verdicts) = ([0; VECTOR], [Verdict::Pass; VECTOR]);
        let mut vector = Vec::new();
        for (i, (frame, meta)) in frames.iter_mut().zip(&mut metas).enumerate() {
            let (session, direction, _) = packets[i];
            bases[i] = (session * Self::words()) as u32;
            let (len, head) = (frame.len() as u32, frame.len().min(self.contiguous));
            let (in_port, out_port) = ports(direction);
            meta.out_port = out_port;
            vector.push(Packet {
                head: &mut frame[..head],
                tail: tails.get(i).filter(|tail| !tail.is_empty()).map(|tail| tail as &dyn TailSegments),
                meta,
                len,
                segment_size: 0,
                in_port,
                direction,
                session: SessionId(session as u32),
            });
        }
        self.held.set_time(self.now);
        let raw = RawVector {
            packets: &mut vector,
            at: Set::first(packets.len()),
            bases: &bases,
            pads: bytemuck::cast_slice_mut(&mut self.pads),
            offset: 0,
            verdicts: &mut verdicts,
            views: &mut [View::NONE; VECTOR],
            edits: None,
            keeps_bytes: false,
            group: crate::program::ir::GroupPlace::default(),
            unread: &mut Vec::new(),
            on_overflow: mmb_stream::OnOverflow::default(),
            now: self.now,
            worker: self.worker,
            emissions: &mut self.emissions,
            holding: Holding { is_resumed, ..Holding::new(&mut self.held) },
            room: None,
            stream_verdicts: None,
            events: Set::EMPTY,
        };
        let mut vector = Vector { raw, local: &mut self.local };
        match is_resumed {
            true => vector.for_each(|packet, pad, cx| self.function.resume(packet, pad, cx)),
            false => self.function.vector(&mut vector),
        }
        let events: Vec<_> = vector.raw.events.iter().collect();
        let told = (0..packets.len()).filter(|&at| verdicts[at] != Verdict::Pass);
        assert_eq!(events, told.collect::<Vec<_>>(), "verdicts without an event");
        let held = (0..packets.len()).filter(|&at| verdicts[at] == Verdict::Hold);
        let held: Vec<_> = held.map(|at| (at, metas[at].stage.ticket())).collect();
        let done = |(frame, verdict)| Done { verdict, frame, emitted: Vec::new() };
        let mut done: Vec<_> = std::iter::zip(frames, verdicts).map(done).collect();
        for (at, ticket) in held {
            let (session, direction, _) = packets[at];
            self.held_frames.insert(ticket, (session, direction, done[at].frame.clone()));
        }
        self.emissions.resolve(|at| packets.get(usize::from(at)).map(|(_, direction, _)| ports(*direction)));
        done.last_mut().into_iter().for_each(|last| last.emitted = self.emitted());
        done
    }

    /// Returns and clears the frames that were sent, each with its output port.
    pub fn emitted(&mut self) -> Vec<(u16, Vec<u8>)> {
        let mut emitted: Vec<_> = self.emissions.iter().map(|e| (e.out_port, e.frame.to_vec())).collect();
        self.emissions.clear();
        let next = |one: Reinjection<'_>| (one.out_port, one.frame.to_vec());
        emitted.extend(std::iter::from_fn(|| self.emissions.reinject(next)));
        emitted
    }
}

/// Port in and port out.
fn ports(direction: Direction) -> (u16, u16) {
    match direction {
        Forward => (NEAR, FAR),
        Reverse => (FAR, NEAR),
    }
}

/// Parses a frame.
///
/// # Panics
/// If the frame is malformed.
pub fn parsed(frame: &[u8]) -> Meta {
    let mut meta = Meta::default();
    parse(frame, frame.len(), &mut meta).expect("a well-formed packet");
    meta
}

/// Returns the key of a frame.
///
/// # Panics
/// If the frame has no key of its own.
pub fn key_of_frame(frame: &[u8]) -> Key {
    parse_key(frame, &parsed(frame)).expect("a packet with a key of its own")
}

/// Asserts that the checksums of a frame are right: IPv4 header, TCP, UDP, ICMP and ICMPv6.
///
/// # Panics
/// If one is wrong.
pub fn assert_checksums(frame: &[u8]) {
    use mmb_packet::checksum::{fold, pseudo4, pseudo6, sum};
    let meta = parsed(frame);
    let (l3, l4, end) = (usize::from(meta.l3_off), usize::from(meta.l4_off), usize::from(meta.end));
    let ip = &frame[l3..];
    let segment = &frame[l4..end];
    let pseudo = if ip[0] >> 4 == 4 {
        assert_eq!(fold(sum(&frame[l3..l3 + usize::from(ip[0] & 15) * 4], 0)), 0xffff, "IPv4 header");
        let [source, destination] = [12, 16].map(|at| std::array::from_fn(|i| ip[at + i]));
        pseudo4(source, destination, meta.proto, segment.len() as u16)
    } else {
        let [source, destination] = [8, 24].map(|at| std::array::from_fn(|i| ip[at + i]));
        pseudo6(&source, &destination, meta.proto, segment.len() as u32)
    };
    match meta.proto {
        _ if meta.kind.l4() == Kind::L4_NONE => {}
        17 if segment[6..8] == [0, 0] => {}
        6 | 17 | 58 => assert_eq!(fold(sum(segment, pseudo)), 0xffff, "transport header"),
        1 => assert_eq!(fold(sum(segment, 0)), 0xffff, "ICMP"),
        _ => {}
    }
}
