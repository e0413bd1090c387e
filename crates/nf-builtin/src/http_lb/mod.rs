//! `http-lb`: chooses the server of a connection by its first request, and does not terminate the connection.
//!
//! Theory of operation. The SYN of a client is answered with a cookie, as `synproxy` does
//! ([`crate::shared::handshake`]). The segments of the client have no session until the head of the first
//! request is complete; its bytes are kept ([`heads`]). The first clause whose conditions are true names the
//! back ends, one of which is chosen as `lb` does ([`request`]). The segment that completes the head is
//! turned into the SYN that the client has sent before, and opens the session. When the server answers, it
//! gets the bytes of the request from mmb ([`session`]). From then on client and server talk to each other.
//! The engine translates addresses and sequence numbers, and [`crate::shared::handshake::Splice`] timestamps
//! and windows.
//!
//! There is no timer. Bytes of a head that is not complete are acknowledged, since its client may wait for
//! that before it sends more (Nagle). The segment that completes the head is not, until the server has it. So
//! the client repeats it, and with it mmb repeats what the server lacks: its SYN, or bytes of the head. A
//! server that refuses, or does not answer [`session::LEAST_SYNS`] SYNs in [`session::PATIENCE`]
//! milliseconds, ends the session. The client's next repetition opens one with another server of the group.
//! Without one it gets a page with status 503. Only time counts: a repetition may have several segments, and
//! the network may duplicate them.
//!
//! A server that uses SYN cookies keeps nothing before the end of the handshake, and answers segments further
//! behind by resets. Such a reset may arrive late, when the server has the connection. So the server gets no
//! more than the first bytes before it has acknowledged some; the rest of the head waits here, and what the
//! client sends behind it in the engine. A server that does not know the connection all the same has got
//! nothing of the request, so the client's next repetition opens another session.
//!
//! What the server gets of the request passes the chain of the session as if the client had sent it, marked
//! as a packet of the engine ([`mmb_packet::PacketFlags::OURS`]). So stream functions, which come behind
//! this one, read and edit the whole connection to the server.
//!
//! What the client sends behind the head before the server has something of it is held by the engine.

mod config;
mod heads;
mod request;
mod session;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use mmb_http::{Cause, HeadBuffer};
use mmb_packet::Meta;

use self::config::{Config, Group, MOST_GROUPS};
use self::heads::{AnswerKind, Heads, MOST_HEAD, Phase};
use self::session::Pad;
use crate::lb::backends::{Backend, CLOSED};
use crate::lb::choice::Method;
use crate::lb::config::{BackendAddress, Check};
use crate::lb::health::{self, Probe};
use crate::shared::handshake::{Handshake, segment_of};
use crate::shared::http_rules::{Answer, HeaderNames};
use mmb_nf::tcp_segment::{ACK, FIN, RST, SYN};
use mmb_nf::{
    Admission, ArgError, Background, ConstantRewrite, Context, DropReason, Function, OpeningPacket, Packet,
    Properties, SessionInfo, Setup, Translates, Verdict,
};

const USAGE: &str = "[method M] [host PATTERN] [path PATTERN] [header NAME PATTERN] [cookie NAME PATTERN] \
                     to ADDRESS[:PORT][*WEIGHT]… … [default to ADDRESS[:PORT][*WEIGHT]…] \
                     [by round-robin|least-connections|hash] [check tcp [PORT]|none] [every SECONDS] \
                     [timeout SECONDS] [mss N] [window-scale N] [no-sack] [no-timestamps]";

/// The window of clients until their server has answered, in bytes: a head fits.
const WINDOW: u16 = MOST_HEAD as u16;

/// The counters, in the order of [`COUNTERS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counter {
    Requests,
    Unmatched,
    Unavailable,
    Failed,
    Reconnected,
    Timeout,
    Full,
    Malformed,
    Repeated,
    Lacking,
}

/// Their names, and whether they are shown while they are zero.
const COUNTERS: [(&str, bool); 10] = [
    ("requests", true),
    ("requests without clause", false),
    ("requests without server", false),
    ("servers that did not answer", true),
    ("connections that their server did not know", false),
    ("requests that took too long", false),
    ("packets without room", false),
    ("malformed requests", false),
    ("SYNs sent again", false),
    ("servers without promised options", false),
];

/// Chooses servers by requests.
pub(crate) struct HttpLb {
    handshake: Handshake,
    groups: Vec<Group>,
    names: HeaderNames,
    method: Method,
    check: Check,
    every: Duration,
    /// Milliseconds in which a head has to be complete.
    timeout: u32,
    heads: Heads,
    /// By [`AnswerKind`].
    answers: [Answer; 4],
    counts: [AtomicU64; COUNTERS.len()],
    read: DropReason,
}

/// A worker's state.
pub(crate) struct Local {
    /// Turns of round robin, by group and address family.
    turns: [[usize; 2]; MOST_GROUPS],
    /// The head that is compared.
    buffer: HeadBuffer<MOST_HEAD>,
    /// Room for the normal form of a path.
    path: [u8; MOST_HEAD + 1],
}

impl Default for Local {
    fn default() -> Local {
        Local { turns: [[0; 2]; MOST_GROUPS], buffer: HeadBuffer::default(), path: [0; MOST_HEAD + 1] }
    }
}

impl HttpLb {
    fn count(&self, counter: Counter) {
        self.counts[counter as usize].fetch_add(1, Relaxed);
    }

    fn answer(&self, kind: AnswerKind, is_head: bool) -> &[u8] {
        self.answers[kind as usize].bytes(is_head)
    }

    /// Returns the answer to a request that is not accepted.
    fn answer_to(cause: Cause) -> AnswerKind {
        match cause {
            Cause::HeadTooLong | Cause::LineTooLong | Cause::TooManyFields => AnswerKind::TooLarge,
            _ => AnswerKind::BadRequest,
        }
    }

    fn backend(&self, group: u8, backend: u16) -> Option<&Backend> {
        self.groups.get(usize::from(group))?.backends.get(backend)
    }

    /// Calls a closure for the back ends of each group, and returns whether it is true for one.
    fn any_group(&self, f: impl FnMut(&Group) -> bool) -> bool {
        // All of them: there is no short circuit.
        self.groups.iter().map(f).fold(false, |any, one| any | one)
    }

    /// The SYN of a client, or one that was made of its request, perhaps by another worker.
    fn syn(&self, first: &mut OpeningPacket<'_>, syn: &mmb_flow::TcpSegment) -> Admission {
        let cookie = syn.ack.wrapping_sub(1);
        let chosen = self.heads.with(first.key, |set| {
            let (head, _) = set.find(first.key).and_then(|way| set.get(way))?;
            let is_made = syn.ack != 0 && head.phase == Phase::Chosen && head.proven.cookie == cookie;
            is_made.then(|| (head.group.unwrap_or(0), head.backend))
        });
        match chosen {
            Some(Some((group, backend))) => {
                first.translation.proxied_isn = Some(cookie);
                self.request_server(first, group, backend)
            }
            Some(None) => self.handshake.answer(first, syn, WINDOW),
            None => Admission::Drop(self.read),
        }
    }

    /// Requests the translation of a session to its server.
    fn request_server(&self, first: &mut OpeningPacket<'_>, group: u8, backend: u16) -> Admission {
        let Some(BackendAddress { address, port }) = self.backend(group, backend).map(|one| one.place) else {
            return Admission::Drop(DropReason::NoBackend);
        };
        first.translation.destination = Some((address, port));
        // No more than the client's window before the server has answered.
        first.translation.early_bytes = u32::from(WINDOW);
        Admission::Open
    }
}

impl Function for HttpLb {
    const TYPE: &'static str = "http-lb";
    const USAGE: &'static str = USAGE;
    const HELP: &'static str =
        "chooses the server of a connection by host, path, header or cookie of its first request";
    const DROP_REASONS: &'static [(&'static str, &'static str)] = &[(
        "http-lb",
        "a function `http-lb` has taken the packet: it reads the request, or waits for the server to answer",
    )];
    const HOLDS: bool = true;

    type Pad = Pad;
    type Local = Local;

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let Config { groups, names, method, check, every, promise, timeout } = Config::parse(setup.args)?;
        Ok(HttpLb {
            handshake: Handshake::new(setup.seed, promise),
            groups,
            names,
            method,
            check,
            every,
            timeout,
            heads: Heads::new(setup.seed),
            answers: [Answer::unavailable(), Answer::bad_request(), Answer::too_large(), Answer::timeout()],
            counts: Default::default(),
            read: setup.drop_reason("http-lb"),
        })
    }

    fn properties(&self) -> Properties {
        let places = || self.groups.iter().flat_map(|group| group.backends.all());
        let has = |ip4: bool| places().any(|one| one.place.address.is_ipv4() == ip4);
        let accepts = match (has(true), has(false)) {
            (true, false) => "net-proto ip4 tcp-sport",
            (false, true) => "net-proto ip6 tcp-sport",
            _ => "tcp-sport",
        };
        let translates = Translates { destination: true, sequence_numbers: true, ..Translates::default() };
        let accepts = accepts.to_owned();
        Properties { accepts, translates, takes_large_frames: true, ..Properties::default() }
    }

    fn admit(&self, first: &mut OpeningPacket<'_>, local: &mut Local) -> Admission {
        let Some(segment) = segment_of(first) else { return Admission::Drop(DropReason::SynCookieBad) };
        match segment.flags & (SYN | ACK | FIN | RST) {
            SYN => self.syn(first, &segment),
            ACK => self.request(first, &segment, local),
            flags if flags == ACK | FIN => self.request(first, &segment, local),
            flags if flags & (SYN | RST) == RST => self.give_up(first, &segment),
            _ => Admission::Drop(DropReason::SynCookieBad),
        }
    }

    fn open(&self, pad: &mut Pad, session: &SessionInfo, _: &mut Context<'_, Local>) {
        self.begin(pad, session);
    }

    fn packet(&self, packet: &mut Packet<'_>, pad: &mut Pad, cx: &mut Context<'_, Local>) -> Verdict {
        self.process(packet, pad, cx)
    }

    fn resume(&self, packet: &mut Packet<'_>, pad: &mut Pad, _: &mut Context<'_, Local>) -> Verdict {
        pad.splice.translate(packet);
        Verdict::Pass
    }

    fn constant_rewrite(&self, pad: &Pad) -> Option<ConstantRewrite> {
        self.constant_rewrite_of(pad)
    }

    fn revision(&self) -> u64 {
        self.groups.iter().fold(0, |sum, group| sum.wrapping_add(group.backends.failures()))
    }

    fn translate_sent(&self, head: &mut [u8], meta: &Meta, pad: &Pad) {
        pad.splice.translate_sent(head, meta);
    }

    fn release(&self, pad: &mut Pad, _: &SessionInfo, _: &mut Context<'_, Local>) {
        if pad.has_backend() {
            if let Some(backend) = self.backend(pad.group, pad.backend).filter(|_| pad.ends & CLOSED == 0) {
                backend.counts.sessions.fetch_sub(1, Relaxed);
            }
            self.free_head(pad);
        }
        *pad = Pad::default();
    }

    fn set(&self, words: &[&str]) -> Result<(), ArgError> {
        let &[what @ ("drain" | "undrain"), word] = words else {
            return Err(
                "settings of `http-lb` are `drain ADDRESS[:PORT]` and `undrain ADDRESS[:PORT]`".into()
            );
        };
        let is_known = BackendAddress::parse(word)
            .is_some_and(|place| self.any_group(|group| group.backends.set_draining(place, what == "drain")));
        match is_known {
            true => Ok(()),
            false => Err(ArgError::invalid("back end", word, "must be an address behind a `to`")),
        }
    }

    fn report(&self) -> Vec<(String, String)> {
        let counted = COUNTERS
            .iter()
            .zip(&self.counts)
            .map(|((name, is_shown), count)| (name, is_shown, count.load(Relaxed)));
        let shown = counted.filter(|(_, is_shown, count)| **is_shown || *count != 0);
        let mut lines: Vec<_> =
            shown.map(|(name, _, count)| ((*name).to_owned(), count.to_string())).collect();
        lines.push(("by".to_owned(), self.method.name().to_owned()));
        lines.extend(self.check.report(self.every));
        for group in &self.groups {
            let of_group = group.backends.report(self.check != Check::None);
            lines.extend(of_group.map(|(place, line)| (format!("{} to {place}", group.name), line)));
        }
        lines
    }

    fn background(&self) -> Option<Background> {
        let Check::Tcp(port) = self.check else { return None };
        let groups = self.groups.iter().map(|group| group.backends.clone()).collect();
        Some(health::background(groups, (Self::TYPE, Probe::Tcp(port)), self.every))
    }
}
