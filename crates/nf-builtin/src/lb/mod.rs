//! `lb`: a load balancer for sessions.
//!
//! Theory of operation. Before a session is opened, one of the [`Backends`] is chosen ([`choice`]) and
//! requested as its destination; the engine does the translation. When the session opens, it is counted for
//! the back end that it really goes to, and its scratchpad holds the back end's number. A draining back end
//! keeps its sessions and gets no new ones. A back end that fails its checks ([`health`]) loses them: the
//! next packet of each ends the session, and its client gets a RST. A client that repeats its SYN gets no
//! RST; the next SYN opens a session with another back end.
//!
//! A closed TCP connection has a session for some minutes more. `least-connections` looks at FIN and RST, and
//! counts such a session no more.

mod backends;
mod choice;
mod config;
mod health;

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mmb_flow::Key;
use mmb_packet::Kind;

use backends::{Backend, Backends};
use choice::Method;
use config::{BackendAddress, Check, LbConfig};
use mmb_nf::tcp_segment::{ACK, FIN, RST, SYN, SegmentTo, reset};
use mmb_nf::{
    Admission, ArgError, Background, Context, Direction, DropReason, Function, OpeningPacket, Packet,
    Properties, SessionInfo, Setup, Translates, Vector, Verdict,
};

/// Distributes sessions over back ends.
pub(crate) struct Lb {
    backends: Arc<Backends>,
    method: Method,
    check: Check,
    every: Duration,
}

/// A session's scratchpad: the number of its back end plus one, and how much of its connection is closed.
/// Number 0: none.
type BackendNumber = u16;

/// The bits of the number; there are at most 256 back ends.
const NUMBER: BackendNumber = 0x1ff;
/// The initiator has sent a FIN. The bit above it: the responder has.
const FIN_SEEN: BackendNumber = 1 << 12;
/// Both have, or one has sent a RST. The session does not count.
const CLOSED: BackendNumber = 1 << 14;

/// A worker's turns of round robin. A turn ends when a session opens, not when it is admitted: admission may
/// happen twice, or another worker may open the session.
#[derive(Default)]
pub(super) struct Local {
    /// By address family.
    turns: Option<[usize; 2]>,
}

impl Local {
    fn turn(&mut self, is_ip4: bool, backends: &Backends) -> &mut usize {
        let turns = self.turns.get_or_insert_with(|| [backends.first_turn(); 2]);
        &mut turns[usize::from(is_ip4)]
    }
}

/// Whether the protocol of a key has ports.
fn has_ports(key: &Key) -> bool {
    matches!(Kind(key.kind).l4(), Kind::TCP | Kind::UDP)
}

/// Returns the destination of a key.
fn destination(key: &Key) -> (IpAddr, Option<u16>) {
    let [a, b, c, d, ..] = key.destination;
    let address = match key.is_ip4() {
        true => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
        false => IpAddr::V6(Ipv6Addr::from(key.destination)),
    };
    (address, has_ports(key).then(|| u16::from_be_bytes(key.destination_port)))
}

impl Lb {
    /// Ends a session whose back end is down.
    fn end(&self, packet: &Packet<'_>, cx: &mut Context<'_, Local>) -> Verdict {
        let forward = packet.direction == Direction::Forward;
        let to = if forward { SegmentTo::Sender } else { SegmentTo::Receiver };
        let opens = forward && packet.tcp_flags() & (SYN | ACK) == SYN;
        if !opens && let Some(frame) = reset(packet.head, packet.meta, to) {
            cx.emit(to.target(), frame.bytes());
        }
        Verdict::End(DropReason::BackendDown)
    }

    /// Returns the back end of a session.
    fn backend(&self, chosen: BackendNumber) -> Option<&Backend> {
        self.backends.get((chosen & NUMBER).checked_sub(1)?)
    }

    /// Takes a packet with FIN, RST or SYN into account.
    #[inline(never)]
    fn track(&self, packet: &Packet<'_>, chosen: &mut BackendNumber) {
        let Some(backend) = self.backend(*chosen) else { return };
        let (flags, sessions) = (packet.tcp_flags(), &backend.counts.sessions);
        let was_closed = *chosen & CLOSED != 0;
        if flags & (SYN | ACK | RST) == SYN && packet.direction == Direction::Forward {
            // A new connection in the session of the last one.
            *chosen &= NUMBER;
        } else if flags & RST != 0 {
            *chosen |= CLOSED;
        } else if flags & FIN != 0 {
            *chosen |= FIN_SEEN << packet.direction as u16;
            *chosen |= if *chosen & (FIN_SEEN * 3) == FIN_SEEN * 3 { CLOSED } else { 0 };
        }
        match (was_closed, *chosen & CLOSED != 0) {
            (false, true) => sessions.fetch_sub(1, Relaxed),
            (true, false) => sessions.fetch_add(1, Relaxed),
            _ => 0,
        };
    }
}

impl Function for Lb {
    const TYPE: &'static str = "lb";
    const USAGE: &'static str = "ADDRESS[:PORT][*WEIGHT]… [by round-robin|least-connections|hash] \
         [check tcp [PORT]|none] [every SECONDS]";
    const HELP: &'static str = "shares sessions out among back ends";

    type Pad = BackendNumber;
    type Local = Local;

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let words = LbConfig::parse(setup.args)?;
        let backends = Arc::new(Backends::new(&words));
        Ok(Lb { backends, method: words.method, check: words.check, every: words.every })
    }

    fn properties(&self) -> Properties {
        let has = |ip4: bool| self.backends.all().iter().any(|one| one.place.address.is_ipv4() == ip4);
        let accepts = match (has(true), has(false)) {
            (true, false) => "net-proto ip4",
            (false, true) => "net-proto ip6",
            _ => "",
        };
        let translates = Translates { destination: true, ..Translates::default() };
        Properties { accepts: accepts.to_owned(), translates, ..Properties::default() }
    }

    fn admit(&self, first: &mut OpeningPacket<'_>, local: &mut Local) -> Admission {
        let is_ip4 = first.key.is_ip4();
        let turn = *local.turn(is_ip4, &self.backends);
        let Some(backend) = self.backends.choose(&first.key.source, is_ip4, turn) else {
            return Admission::Drop(DropReason::NoBackend);
        };
        let BackendAddress { address, port } = backend.place;
        first.translation.destination = Some((address, port.filter(|_| has_ports(first.key))));
        Admission::Open
    }

    fn open(&self, chosen: &mut BackendNumber, session: &SessionInfo, cx: &mut Context<'_, Local>) {
        let turn = cx.local.turn(session.key.is_ip4(), &self.backends);
        *turn = turn.wrapping_add(1);
        let (address, port) = destination(&session.egress_key);
        if let Some(number) = self.backends.at(address, port)
            && let Some(backend) = self.backends.get(number)
        {
            *chosen = number + 1;
            backend.counts.sessions.fetch_add(1, Relaxed);
            backend.counts.opened.fetch_add(1, Relaxed);
        }
    }

    fn packet(
        &self,
        packet: &mut Packet<'_>,
        chosen: &mut BackendNumber,
        cx: &mut Context<'_, Local>,
    ) -> Verdict {
        if self.method == Method::LeastConnections && packet.tcp_flags() & (FIN | RST | SYN) != 0 {
            self.track(packet, chosen);
        }
        match (*chosen & NUMBER).checked_sub(1) {
            Some(backend) if self.backends.is_down(backend) => self.end(packet, cx),
            _ => Verdict::Pass,
        }
    }

    /// While no back end is down, no session needs to be looked at, but to count connections.
    fn vector(&self, vector: &mut Vector<'_, '_, Self>) {
        if !self.backends.all_up() || self.method == Method::LeastConnections {
            vector.for_each(|packet, chosen, cx| self.packet(packet, chosen, cx));
        }
    }

    fn release(&self, chosen: &mut BackendNumber, _: &SessionInfo, _: &mut Context<'_, Local>) {
        if let Some(backend) = self.backend(*chosen).filter(|_| *chosen & CLOSED == 0) {
            backend.counts.sessions.fetch_sub(1, Relaxed);
        }
        *chosen = 0;
    }

    fn set(&self, words: &[&str]) -> Result<(), ArgError> {
        let &[what @ ("drain" | "undrain"), word] = words else {
            return Err("settings of `lb` are `drain ADDRESS[:PORT]` and `undrain ADDRESS[:PORT]`".into());
        };
        let place =
            BackendAddress::parse(word).filter(|&place| self.backends.set_draining(place, what == "drain"));
        place.map(|_| ()).ok_or_else(|| {
            let all: Vec<_> = self.backends.all().iter().map(|one| one.place.to_string()).collect();
            ArgError::invalid("back end", word, format!("must be one of {}", all.join(", ")))
        })
    }

    fn report(&self) -> Vec<(String, String)> {
        let mut lines = vec![("by".to_owned(), self.method.name().to_owned())];
        if let Check::Tcp(port) = self.check {
            let port = port.map_or_else(|| "its port".to_owned(), |port| port.to_string());
            lines.push(("check".to_owned(), format!("tcp {port} every {} s", self.every.as_secs_f64())));
        }
        for (number, backend) in (0..).zip(self.backends.all()) {
            let [sessions, opened, passed, failed] = {
                let counts = &backend.counts;
                [&counts.sessions, &counts.opened, &counts.passed, &counts.failed]
                    .map(|count| count.load(Relaxed))
            };
            let mut line =
                format!("{}, {sessions} sessions, {opened} opened", self.backends.state_name(number));
            if self.check != Check::None {
                line.push_str(&format!(", checks {passed} passed, {failed} failed"));
            }
            lines.push((backend.place.to_string(), line));
        }
        lines
    }

    fn background(&self) -> Option<Background> {
        match self.check {
            Check::None => None,
            Check::Tcp(port) => Some(health::background(&self.backends, port, self.every)),
        }
    }
}
