//! QUIC: the ClientHello in the first datagrams of a connection.
//!
//! Theory of operation. Datagrams cannot wait. So parts of a ClientHello go on, and the datagram that
//! completes one is decided. A server does nothing before it has the whole message. A datagram whose packets
//! cannot be read is dropped alone: a forged one ends no connection.
//!
//! Initial packets are read with the keys of the connection that was seen last, or with those of their own
//! connection id, which begin another connection. It can begin when the server has answered the one before,
//! or when that has been silent. The bytes of a ClientHello are kept until the server has answered, and the
//! client has gone on behind the answer: a client that repeats some of them cannot put others in their place.
//! Then both have dropped the keys (RFC 9001, 4.9.1). Who uses them again, with the same connection id, may
//! begin another connection at a server that has forgotten the first one.
//!
//! A server may ask for another ClientHello, which follows the first one (RFC 9001, 4.7). All of them are
//! decided.

use bytemuck::{Pod, Zeroable};
use mmb_nf::{Context, Direction, StreamEdit, StreamVerdict};
use mmb_tls::Progress;
use mmb_tls::quic::{
    ConnectionId, CryptoStream, Initial, InitialKeys, LONG_HEADER, MOST_ID, Opened, Packet, packets,
};

use super::{Buffers, INVALID, OTHER_KEYS, Phase, Sni, State, UNKNOWN_VERSION};

/// ClientHellos of a worker whose handshake goes on. Each takes 9 KiB.
const SLOTS: usize = 4096;
/// Most Initial packets of a datagram.
const MOST_PACKETS: usize = 8;
/// Milliseconds without a packet after which a connection that was not answered makes place for another one.
const SILENCE: u32 = 30_000;

/// How far a connection is.
const NONE: u8 = 0;
/// The ClientHello is incomplete.
const READ: u8 = 1;
/// It is allowed, and the server has not answered. Another ClientHello may follow.
const ALLOWED: u8 = 2;
/// The server has answered, and the client may not have got the answer.
const ANSWERED: u8 = 3;
/// The client has gone on behind the answer.
const DONE: u8 = 4;

/// The connection of a session that was seen last.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(super) struct QuicState {
    /// The packet number that is expected next. 0: there was no packet.
    next: u64,
    /// The number of its bytes in [`Slots`]. 0: there are none.
    slot: u32,
    /// When a packet came last, in milliseconds.
    seen: u32,
    /// The connection id that its keys come from.
    id: [u8; MOST_ID],
    id_len: u8,
    phase: u8,
    unused: [u8; 2],
}

impl QuicState {
    fn id(&self) -> &[u8] {
        self.id.get(..usize::from(self.id_len)).unwrap_or(&[])
    }

    /// Takes the protection off a packet with the keys of the connection.
    fn open(&self, bytes: &mut [u8], packet: &Initial) -> Option<Opened> {
        let keys = (self.phase != NONE).then(|| InitialKeys::new(packet.version, self.id()))?;
        keys.open(bytes, packet, self.next.checked_sub(1)).ok()
    }

    /// Whether another connection has to wait.
    fn is_busy(&self, now: u32) -> bool {
        matches!(self.phase, READ | ALLOWED) && now.wrapping_sub(self.seen) < SILENCE
    }

    /// Begins a connection.
    fn begin(&mut self, id: &ConnectionId, slots: &mut Slots) {
        slots.remove(std::mem::take(&mut self.slot));
        *self = QuicState { phase: READ, ..QuicState::default() };
        let bytes = id.bytes();
        self.id_len = bytes.len() as u8;
        self.id.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
    }

    pub fn describe(&self) -> Option<&'static str> {
        match self.phase {
            READ => Some("QUIC, ClientHello incomplete"),
            ALLOWED => Some("QUIC, allowed"),
            ANSWERED | DONE => Some("QUIC, allowed and answered"),
            _ => None,
        }
    }
}

/// Bytes of ClientHellos.
#[derive(Debug)]
pub(super) struct Slots {
    streams: Vec<CryptoStream>,
    free: Vec<u32>,
    /// The one that is being read.
    work: Box<CryptoStream>,
}

impl Default for Slots {
    fn default() -> Self {
        // Memory that is not used stays with the kernel.
        let (streams, free) = (Vec::with_capacity(SLOTS), Vec::with_capacity(SLOTS));
        Slots { streams, free, work: Box::default() }
    }
}

impl Slots {
    /// Copies the bytes with a number to `work`.
    fn load(&mut self, number: u32) {
        match self.streams.get((number as usize).wrapping_sub(1)) {
            Some(stream) => (*self.work).clone_from(stream),
            None => self.work.clear(),
        }
    }

    /// Keeps the bytes in `work` under a number. Returns false if there is no room.
    fn save(&mut self, number: &mut u32) -> bool {
        if *number == 0 {
            *number = match self.free.pop() {
                Some(number) => number,
                None if self.streams.len() < SLOTS => {
                    self.streams.push(CryptoStream::default());
                    self.streams.len() as u32
                }
                None => return false,
            };
        }
        let place = self.streams.get_mut((*number as usize).wrapping_sub(1));
        place.is_some_and(|place| {
            place.clone_from(&self.work);
            true
        })
    }

    fn remove(&mut self, number: u32) {
        if number != 0 {
            self.free.push(number);
        }
    }
}

impl Sni {
    /// A datagram of a session.
    pub(super) fn datagram(
        &self,
        data: &StreamEdit<'_, '_>,
        state: &mut State,
        cx: &mut Context<'_, Buffers>,
    ) -> StreamVerdict {
        if data.direction() == Direction::Reverse {
            reply(data, &mut state.quic, &mut cx.local.slots);
            return StreamVerdict::Pass;
        }
        let is_joined = state.phase() == Phase::Passes;
        let begins = state.quic.phase == NONE && !is_joined;
        let is_short = data.bytes().next().is_some_and(|first| first & LONG_HEADER == 0);
        if is_short && !begins && data.can_edit() {
            // A packet behind the handshake, alone.
            return StreamVerdict::Pass;
        }
        let (worker, now) = (cx.worker, cx.now);
        let Buffers { joined, slots, .. } = &mut *cx.local;
        joined.clear();
        data.chunks().for_each(|chunk| joined.extend_from_slice(chunk));
        let (mut initials, mut n) = ([const { None }; MOST_PACKETS], 0);
        let mut has_handshake = false;
        for packet in packets(joined) {
            match packet {
                // Fragments are not whole datagrams.
                _ if !data.can_edit() => return self.invalid(INVALID, state, worker),
                Ok(Packet::Initial(initial)) => {
                    let Some(place) = initials.get_mut(n) else {
                        return self.invalid(INVALID, state, worker);
                    };
                    (*place, n) = (Some(initial), n + 1);
                }
                Ok(Packet::UnknownVersion(_)) => return self.invalid(UNKNOWN_VERSION, state, worker),
                Ok(packet @ (Packet::Early | Packet::Handshake | Packet::Short)) if n != 0 || !begins => {
                    has_handshake |= packet == Packet::Handshake;
                }
                _ => return self.invalid(INVALID, state, worker),
            }
        }
        for packet in initials.iter().flatten() {
            let verdict = self.initial((joined, packet), state, slots, (is_joined, worker, now));
            if verdict != StreamVerdict::Pass {
                return verdict;
            }
        }
        if has_handshake && state.quic.phase == ANSWERED {
            state.quic.phase = DONE;
            slots.remove(std::mem::take(&mut state.quic.slot));
        }
        StreamVerdict::Pass
    }

    /// An Initial packet of a client.
    fn initial(
        &self,
        (bytes, packet): (&mut [u8], &Initial),
        state: &mut State,
        slots: &mut Slots,
        (is_joined, worker, now): (bool, u16, u32),
    ) -> StreamVerdict {
        let quic = &mut state.quic;
        let opened = match quic.open(bytes, packet) {
            Some(opened) => opened,
            None => {
                let keys = InitialKeys::new(packet.version, packet.destination.bytes());
                match keys.open(bytes, packet, None) {
                    Ok(_) if quic.is_busy(now) => return self.invalid(OTHER_KEYS, state, worker),
                    Ok(opened) => {
                        quic.begin(&packet.destination, slots);
                        opened
                    }
                    // Its connection began before the session was read.
                    Err(_) if is_joined && quic.phase == NONE => return StreamVerdict::Pass,
                    Err(_) => return self.invalid(OTHER_KEYS, state, worker),
                }
            }
        };
        quic.next = quic.next.max(opened.number + 1);
        quic.seen = now;
        if quic.phase == DONE && packet.destination.bytes() != quic.id() {
            // No server has keys for it.
            return StreamVerdict::Pass;
        }
        slots.load(quic.slot);
        let has_bytes = match slots.work.add_frames(bytes.get(opened.frames).unwrap_or(&[])) {
            Ok(has_bytes) => has_bytes,
            Err(_) => return self.invalid(INVALID, state, worker),
        };
        if !has_bytes {
            return StreamVerdict::Pass;
        }
        if quic.phase == DONE {
            quic.begin(&packet.destination, slots);
            (quic.next, quic.seen) = (opened.number + 1, now);
        }
        if let Err(verdict) = self.hellos(&slots.work, state, worker) {
            return verdict;
        }
        if slots.save(&mut state.quic.slot) { StreamVerdict::Pass } else { StreamVerdict::NoRoom }
    }

    /// Decides the ClientHellos of a connection, as far as they have come.
    fn hellos(&self, stream: &CryptoStream, state: &mut State, worker: u16) -> Result<(), StreamVerdict> {
        let mut at = 0;
        loop {
            let hello = match stream.hello(at) {
                Ok(Progress::Complete(hello)) => hello,
                Ok(Progress::Incomplete(_)) => return Ok(()),
                Err(_) => return Err(self.invalid(INVALID, state, worker)),
            };
            let is_first = state.quic.phase == READ;
            let is_allowed = match is_first {
                true => self.allows(&hello, worker),
                false => self.allows_again(&hello, state.output(), worker),
            };
            if !is_allowed {
                return Err(StreamVerdict::Block(self.denied));
            }
            if is_first {
                state.quic.phase = ALLOWED;
                state.set_output(self.config.output(hello.server_name));
            }
            at = hello.end;
        }
    }

    /// A datagram cannot be read. It is dropped, or passes.
    fn invalid(&self, counter: usize, state: &mut State, worker: u16) -> StreamVerdict {
        self.totals.add(worker, counter, 1);
        if !self.config.passes_errors {
            return StreamVerdict::Drop(self.invalid);
        }
        state.choose(self.config.rest());
        StreamVerdict::Pass
    }
}

/// A datagram of the server.
fn reply(data: &StreamEdit<'_, '_>, quic: &mut QuicState, slots: &mut Slots) {
    let is_waiting = matches!(quic.phase, READ | ALLOWED);
    let Some(bytes) = data.chunks().next().filter(|_| is_waiting) else { return };
    for packet in packets(bytes) {
        match packet {
            // The client begins anew, with another connection id or version.
            Ok(Packet::Retry | Packet::VersionNegotiation) => quic.phase = NONE,
            // Sent when the server has the whole ClientHello.
            Ok(Packet::Handshake) if quic.phase == ALLOWED => quic.phase = ANSWERED,
            _ => {}
        }
    }
    if quic.phase == NONE {
        slots.remove(std::mem::take(&mut quic.slot));
    }
}

/// A session has ended.
pub(super) fn release(quic: &mut QuicState, slots: &mut Slots) {
    slots.remove(std::mem::take(&mut quic.slot));
}
