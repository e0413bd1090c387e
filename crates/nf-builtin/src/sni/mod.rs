//! `sni`: allows or refuses TLS and QUIC connections by the name of the server that the client asks for.
//!
//! Theory of operation. The first bytes of the client wait until its ClientHello is complete. So the server
//! gets no byte of one that is refused. The client gets an alert that mmb makes, and the server a reset
//! ([`mmb_nf::TakenOver`]). A server of TLS 1.3 may ask for another ClientHello, and take the name of that.
//! So the function reads on until the server takes the first one, or the second one is decided ([`retry`]).
//! Then it is detached.
//!
//! The name also chooses the output of the connection in chains. Segments in front of the ClientHello carry
//! no bytes of the client, and pass by the outputs.
//!
//! For QUIC see [`quic`].

mod config;
mod names;
mod quic;
mod retry;

use bytemuck::{Pod, Zeroable};
use mmb_packet::Kind;
use mmb_tls::{ClientHello, MOST_HELLO, Progress, read_client_hello};

use self::config::Config;
use self::quic::{QuicState, Slots};
use crate::shared::http::has_joined;
use mmb_nf::{
    ArgError, Context, Direction, DropReason, Packet, SessionInfo, Setup, StreamEdit, StreamFunction,
    StreamVerdict, TakenOver, WorkerCounters,
};

const USAGE: &str = "[errors reject|pass] [no-name allow|deny] [reset] [allow|deny NAME|file FILE…] [LABEL: NAME|file FILE…]…";

/// A fatal alert, `unrecognized_name` (RFC 6066, 3; RFC 8446, 6).
const ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 112];
/// Most bytes that wait: a ClientHello, and the headers of its records.
const MOST_WAITING: usize = 2 * MOST_HELLO;

const ALLOWED: usize = 0;
const DENIED: usize = 1;
const WITHOUT_NAME: usize = 2;
const WITH_ECH: usize = 3;
const INVALID: usize = 4;
const CUT: usize = 5;
const JOINED: usize = 6;
const UNKNOWN_VERSION: usize = 7;
const OTHER_KEYS: usize = 8;
/// Names, and whether `show functions` prints them without an occurrence.
const COUNTERS: [(&str, bool); 9] = [
    ("allowed", true),
    ("denied", true),
    ("without a name", true),
    ("with Encrypted Client Hello", false),
    ("not TLS, or malformed", false),
    ("ClientHello incomplete", false),
    ("not read: the beginning of the connection was not seen", false),
    ("QUIC datagrams of an unknown version", false),
    ("QUIC datagrams with unknown keys", false),
];

/// See the module's documentation.
pub(crate) struct Sni {
    config: Config,
    totals: WorkerCounters<{ COUNTERS.len() }>,
    denied: DropReason,
    invalid: DropReason,
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// The ClientHello is being read.
    Read,
    /// All passes.
    Passes,
    /// The client is answered.
    Answered,
    /// The ClientHello is allowed, and the server has not answered.
    Offered,
    /// The server has asked for another ClientHello, or has answered otherwise than with a ServerHello.
    Retried,
}

/// A session.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct State {
    /// In [`Phase::Answered`].
    taken: TakenOver,
    /// Bytes that wait.
    held: u32,
    /// Bytes in front of which there is nothing to decide.
    needed: u32,
    /// Behind an allowed ClientHello: bytes of the client that pass, up to the end of a record.
    skip: u32,
    /// A [`Phase`].
    phase: u8,
    /// 0: there is no decision yet. Others are one more than the output.
    output: u8,
    /// 1: data may follow the first ClientHello before the server answers.
    has_early_data: u8,
    unused: u8,
    quic: QuicState,
}

/// The buffers of a worker.
#[derive(Debug)]
pub(crate) struct Buffers {
    joined: Vec<u8>,
    message: Vec<u8>,
    slots: Slots,
}

impl Default for Buffers {
    fn default() -> Self {
        // Memory that is not used stays with the kernel.
        let (joined, message) = (Vec::with_capacity(MOST_WAITING), Vec::with_capacity(MOST_HELLO));
        Buffers { joined, message, slots: Slots::default() }
    }
}

impl State {
    fn phase(&self) -> Phase {
        match self.phase {
            0 => Phase::Read,
            1 => Phase::Passes,
            2 => Phase::Answered,
            3 => Phase::Offered,
            _ => Phase::Retried,
        }
    }

    fn output(&self) -> Option<u8> {
        self.output.checked_sub(1)
    }

    /// Notes the output. There are at most 64.
    fn set_output(&mut self, output: u8) {
        self.output = output + 1;
    }

    /// Notes the output, if none was chosen before.
    fn choose(&mut self, output: u8) {
        if self.output().is_none() {
            self.set_output(output);
        }
    }

    /// The bytes of a call pass, and all that follow.
    fn pass(&mut self) {
        (self.phase, self.held) = (Phase::Passes as u8, 0);
    }
}

impl StreamFunction for Sni {
    const TYPE: &'static str = "sni";
    const USAGE: &'static str = USAGE;
    const HELP: &'static str =
        "allows or refuses TLS and QUIC connections by the name of their server, or chooses an output";
    const DROP_REASONS: &'static [(&'static str, &'static str)] = &[
        ("sni-denied", "a function `sni` refuses the name of the server"),
        ("sni-invalid", "a function `sni` has refused what does not begin as TLS or QUIC does"),
    ];
    const EDITS: bool = true;
    const HOLDS_UNTIL_DECIDED: bool = true;
    const SEES_PACKETS: bool = true;

    type State = State;
    type Local = Buffers;

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Sni {
            config: Config::new(setup)?,
            totals: WorkerCounters::new(setup.workers),
            denied: setup.drop_reason("sni-denied"),
            invalid: setup.drop_reason("sni-invalid"),
        })
    }

    fn outputs(&self) -> Vec<String> {
        self.config.outputs.clone()
    }

    #[inline]
    fn output(&self, state: &State) -> Option<u8> {
        state.output()
    }

    fn open(&self, state: &mut State, session: &SessionInfo, cx: &mut Context<'_, Buffers>) {
        if has_joined(session, cx.now) {
            self.totals.add(cx.worker, JOINED, 1);
            state.choose(self.config.rest());
            state.pass();
        }
    }

    #[inline]
    fn packet(&self, packet: &Packet<'_>, state: &mut State, cx: &mut Context<'_, Buffers>) -> StreamVerdict {
        match state.phase() {
            Phase::Passes if packet.meta.kind.l4() != Kind::TCP => return StreamVerdict::Pass,
            // What waits goes on first.
            Phase::Passes if state.held == 0 => return StreamVerdict::Detach,
            Phase::Answered => {}
            _ => return StreamVerdict::Pass,
        }
        match state.taken.packet(packet, ALERT, cx) {
            true => StreamVerdict::End(self.denied),
            false => StreamVerdict::Drop(self.denied),
        }
    }

    fn edit(
        &self,
        data: &mut StreamEdit<'_, '_>,
        state: &mut State,
        cx: &mut Context<'_, Buffers>,
    ) -> StreamVerdict {
        if data.is_datagram() {
            return self.datagram(data, state, cx);
        }
        match (data.direction(), state.phase()) {
            (Direction::Reverse, Phase::Offered) => return retry::read_answer(data, state, cx),
            (Direction::Forward, Phase::Read | Phase::Offered | Phase::Retried) => {}
            (Direction::Forward, Phase::Passes) => {
                state.held = 0;
                return StreamVerdict::Pass;
            }
            _ => return StreamVerdict::Pass,
        }
        if data.held() != state.held as usize {
            // There was no room for the bytes that waited.
            return self.refuse(CUT, state, cx);
        }
        if data.len() < state.needed as usize {
            return self.hold((0, state.needed as usize), data, state, cx);
        }
        if state.phase() != Phase::Read {
            return self.follow(data, state, cx);
        }
        let Buffers { joined, message, .. } = &mut *cx.local;
        let hello = match read_client_hello(data.joined(joined), message) {
            Ok(Progress::Complete(hello)) => hello,
            Ok(Progress::Incomplete(needed)) => return self.hold((0, needed), data, state, cx),
            Err(_) => return self.refuse(INVALID, state, cx),
        };
        if !self.allows(&hello, cx.worker) {
            return self.deny(data, state, cx);
        }
        state.choose(self.config.output(hello.server_name));
        if !hello.offers_tls13 {
            state.pass();
            return StreamVerdict::Detach;
        }
        (state.phase, state.skip, state.has_early_data) =
            (Phase::Offered as u8, hello.end as u32, hello.has_early_data.into());
        self.follow(data, state, cx)
    }

    fn set(&self, args: &[&str]) -> Result<(), ArgError> {
        match args {
            ["reload"] => self.config.reload(),
            _ => Err("`sni` has one setting: `reload` reads the files of names again".into()),
        }
    }

    fn release(&self, state: &mut State, _: &SessionInfo, cx: &mut Context<'_, Buffers>) {
        quic::release(&mut state.quic, &mut cx.local.slots);
    }

    /// The worker takes the packets of a client that is answered.
    fn watches(&self, _: &State) -> bool {
        false
    }

    fn answer(&self, _: u32) -> &[u8] {
        ALERT
    }

    fn describe(&self, state: &State) -> Option<String> {
        let text = match (state.quic.describe(), state.phase()) {
            (Some(text), _) => text.to_owned(),
            (None, Phase::Read) => format!("ClientHello, {} bytes wait", state.held),
            (None, Phase::Passes) => "not read any more".to_owned(),
            (None, Phase::Answered) => "refused".to_owned(),
            (None, Phase::Offered) => "ClientHello allowed, no answer yet".to_owned(),
            (None, Phase::Retried) => "ClientHello allowed, another one may follow".to_owned(),
        };
        let output = state.output().and_then(|output| self.config.outputs.get(usize::from(output)));
        Some(output.map_or_else(|| text.clone(), |output| format!("{text}, output `{output}`")))
    }

    fn report(&self) -> Vec<(String, String)> {
        let counted = COUNTERS.iter().enumerate().map(|(which, one)| (one, self.totals.sum(which)));
        let shown = counted.filter(|((_, is_shown), count)| *is_shown || *count != 0);
        shown.map(|((name, _), count)| ((*name).to_owned(), count.to_string())).collect()
    }
}

impl Sni {
    /// Whether a connection is allowed. Counts it.
    fn allows(&self, hello: &ClientHello<'_>, worker: u16) -> bool {
        self.totals.add(worker, WITH_ECH, hello.has_ech.into());
        self.totals.add(worker, WITHOUT_NAME, hello.server_name.is_none().into());
        let is_allowed = self.config.allows(hello.server_name);
        self.totals.add(worker, if is_allowed { ALLOWED } else { DENIED }, 1);
        is_allowed
    }

    /// Whether another ClientHello of an allowed connection is allowed. It must not change the output.
    fn allows_again(&self, hello: &ClientHello<'_>, output: Option<u8>, worker: u16) -> bool {
        let name = hello.server_name;
        let is_allowed = self.config.allows(name) && output == Some(self.config.output(name));
        self.totals.add(worker, DENIED, (!is_allowed).into());
        is_allowed
    }

    /// Waits for the rest of a ClientHello that begins at a position. So many bytes of it are needed.
    fn hold(
        &self,
        (at, needed): (usize, usize),
        data: &mut StreamEdit<'_, '_>,
        state: &mut State,
        cx: &mut Context<'_, Buffers>,
    ) -> StreamVerdict {
        let held = data.len() - at;
        if held > MOST_WAITING {
            return self.refuse(INVALID, state, cx);
        }
        if !data.hold_from(at) {
            return self.refuse(CUT, state, cx);
        }
        (state.held, state.needed) = (held as u32, needed as u32);
        StreamVerdict::Pass
    }

    /// The client is refused.
    fn deny(
        &self,
        data: &StreamEdit<'_, '_>,
        state: &mut State,
        cx: &mut Context<'_, Buffers>,
    ) -> StreamVerdict {
        if self.config.resets || !data.can_edit() {
            return StreamVerdict::Reset(self.denied);
        }
        match TakenOver::begin(data.packet(), (0, ALERT), cx) {
            Some(taken) => {
                (state.taken, state.phase) = (taken, Phase::Answered as u8);
                StreamVerdict::Drop(self.denied)
            }
            None => StreamVerdict::Reset(self.denied),
        }
    }

    /// The connection is not TLS, or cannot be read.
    fn refuse(&self, counter: usize, state: &mut State, cx: &mut Context<'_, Buffers>) -> StreamVerdict {
        self.totals.add(cx.worker, counter, 1);
        state.choose(self.config.rest());
        state.pass();
        if self.config.passes_errors { StreamVerdict::Detach } else { StreamVerdict::Reset(self.invalid) }
    }
}

#[cfg(test)]
mod tests;
