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

pub(crate) mod backends;
pub(crate) mod choice;
pub(crate) mod config;
pub(crate) mod health;

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mmb_flow::Key;
use mmb_packet::Kind;

use backends::{Backend, Backends, CLOSED, end_of_backend};
use choice::{Families, Method};
use config::{BackendAddress, Check, LbConfig};
use health::Probe;
use mmb_nf::tcp_segment::{FIN, RST, SYN};
use mmb_nf::{
    Admission, ArgError, Background, ConstantRewrite, Context, DropReason, Function, OpeningPacket, Packet,
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
/// Number 0: none. The bits above it are those of [`Backend::track`].
type BackendNumber = u16;

/// The bits of the number; there are at most 256 back ends.
const NUMBER: BackendNumber = 0x1ff;
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
    /// Returns the back end of a session.
    fn backend(&self, chosen: BackendNumber) -> Option<&Backend> {
        self.backends.get((chosen & NUMBER).checked_sub(1)?)
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
        let backends = Arc::new(Backends::new(&words, Families::Separate));
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
        let accepts = accepts.to_owned();
        Properties { accepts, translates, takes_large_frames: true, ..Properties::default() }
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
        let flags = packet.tcp_flags();
        if self.method == Method::LeastConnections
            && flags & (FIN | RST | SYN) != 0
            && let Some(backend) = self.backend(*chosen)
        {
            backend.track(chosen, flags, packet.direction);
        }
        match (*chosen & NUMBER).checked_sub(1) {
            Some(backend) if self.backends.is_down(backend) => end_of_backend(packet, cx),
            _ => Verdict::Pass,
        }
    }

    /// While no back end is down, no session needs to be looked at, but to count connections.
    fn vector(&self, vector: &mut Vector<'_, '_, Self>) {
        if !self.backends.all_up() || self.method == Method::LeastConnections {
            vector.for_each(|packet, chosen, cx| self.packet(packet, chosen, cx));
        }
    }

    /// Sessions of back ends that are down end with their next packet.
    fn constant_rewrite(&self, chosen: &BackendNumber) -> Option<ConstantRewrite> {
        let backend = (chosen & NUMBER).checked_sub(1);
        (!backend.is_some_and(|backend| self.backends.is_down(backend))).then(ConstantRewrite::default)
    }

    fn revision(&self) -> u64 {
        self.backends.failures()
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
        lines.extend(self.check.report(self.every));
        lines.extend(self.backends.report(self.check != Check::None));
        lines
    }

    fn background(&self) -> Option<Background> {
        match self.check {
            Check::None => None,
            Check::Tcp(port) => {
                let groups = vec![Arc::clone(&self.backends)];
                Some(health::background(groups, ("lb", Probe::Tcp(port)), self.every))
            }
        }
    }
}
