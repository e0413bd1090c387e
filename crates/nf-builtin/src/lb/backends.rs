//! The back ends: their addresses, states and session counts.
//!
//! Theory of operation. Counts and states are atomics that all workers share. Counts change when sessions
//! open and end, not with packets. States and the number of back ends that are down are read with each vector
//! and hardly ever change, so they are kept apart from the counts. A change of a state rebuilds the
//! [`Choices`]; a lock serializes changes.

use std::net::IpAddr;
use std::sync::atomic::{
    AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;

use super::choice::{Candidate, Choices, Families, Method};
use super::config::{BackendAddress, LbConfig};
use mmb_nf::tcp_segment::{ACK, FIN, RST, SYN, SegmentTo, reset};
use mmb_nf::{Context, Direction, DropReason, Packet, ServerState, ServersWatcher, Verdict};

/// A back end.
#[derive(Debug)]
pub(crate) struct Backend {
    pub place: BackendAddress,
    weight: u16,
    pub counts: Counts,
}

/// Counters of a back end.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Sessions now.
    pub sessions: AtomicU64,
    /// Sessions ever.
    pub opened: AtomicU64,
    /// Checks that it passed.
    pub passed: AtomicU64,
    /// Checks that it failed.
    pub failed: AtomicU64,
}

/// Bits of a session's state, by [`Backend::track`]. The initiator has sent a FIN. The bit above it: the
/// responder has.
const FIN_SEEN: u16 = 1 << 12;
/// Both have, or one has sent a RST. The session does not count.
pub(crate) const CLOSED: u16 = 1 << 14;
const ENDS: u16 = (FIN_SEEN * 3) | CLOSED;

impl Backend {
    /// Takes a packet with FIN, RST or SYN of one of its sessions into account. `ends`: how much of the
    /// session's connection is closed; other bits stay.
    #[inline(never)]
    pub fn track(&self, ends: &mut u16, flags: u8, direction: Direction) {
        let was_closed = *ends & CLOSED != 0;
        if flags & (SYN | ACK | RST) == SYN && direction == Direction::Forward {
            // A new connection in the session of the last one.
            *ends &= !ENDS;
        } else if flags & RST != 0 {
            *ends |= CLOSED;
        } else if flags & FIN != 0 {
            *ends |= FIN_SEEN << direction as u16;
            *ends |= if *ends & (FIN_SEEN * 3) == FIN_SEEN * 3 { CLOSED } else { 0 };
        }
        match (was_closed, *ends & CLOSED != 0) {
            (false, true) => self.counts.sessions.fetch_sub(1, Relaxed),
            (true, false) => self.counts.sessions.fetch_add(1, Relaxed),
            _ => 0,
        };
    }
}

/// Ends a session whose back end is down. The client gets a RST.
pub(crate) fn end_of_backend<L>(packet: &Packet<'_>, cx: &mut Context<'_, L>) -> Verdict {
    let forward = packet.direction == Direction::Forward;
    let to = if forward { SegmentTo::Sender } else { SegmentTo::Receiver };
    let opens = forward && packet.tcp_flags() & (SYN | ACK) == SYN;
    if !opens && let Some(frame) = reset(packet.head, packet.meta, to) {
        cx.emit(to.target(), frame.bytes());
    }
    Verdict::End(DropReason::BackendDown)
}

/// Bits of a back end's state.
mod state {
    /// It has failed its checks.
    pub const DOWN: u8 = 1 << 0;
    /// It gets no new sessions.
    pub const DRAINING: u8 = 1 << 1;
}

/// All back ends of an instance.
#[derive(Debug)]
pub(crate) struct Backends {
    method: Method,
    families: Families,
    all: Vec<Backend>,
    /// Bits of [`state`].
    states: Vec<AtomicU8>,
    down: AtomicUsize,
    /// How often a back end may have failed.
    failures: AtomicU64,
    choices: ArcSwap<Choices>,
    /// Held while states change.
    changing: Mutex<()>,
    /// Number of workers that have begun to take turns.
    turns: AtomicUsize,
    /// Those who must know of changes of states.
    watchers: Mutex<Vec<Weak<dyn ServersWatcher>>>,
}

impl Backends {
    pub fn new(words: &LbConfig, families: Families) -> Backends {
        let backend =
            |&(place, weight): &(BackendAddress, u16)| Backend { place, weight, counts: Counts::default() };
        let all: Vec<_> = words.backends.iter().map(backend).collect();
        let states: Vec<_> = all.iter().map(|_| AtomicU8::new(0)).collect();
        let choices = Choices::new(words.method, families, &candidates(&all, &states));
        Backends {
            method: words.method,
            families,
            all,
            states,
            down: AtomicUsize::new(0),
            failures: AtomicU64::new(0),
            choices: ArcSwap::from_pointee(choices),
            changing: Mutex::new(()),
            turns: AtomicUsize::new(0),
            watchers: Mutex::default(),
        }
    }

    pub fn all(&self) -> &[Backend] {
        &self.all
    }

    /// Returns the first turn of the next worker.
    pub fn first_turn(&self) -> usize {
        self.turns.fetch_add(1, Relaxed)
    }

    /// Returns the back end for a session from a source address.
    pub fn choose(&self, source: &[u8; 16], is_ip4: bool, turn: usize) -> Option<&Backend> {
        self.get(self.choose_number(source, is_ip4, turn)?)
    }

    /// Returns the number of the back end for a session from a source address.
    pub fn choose_number(&self, source: &[u8; 16], is_ip4: bool, turn: usize) -> Option<u16> {
        let load = |backend: u16| {
            self.get(backend).map_or(u64::MAX, |backend| backend.counts.sessions.load(Relaxed))
        };
        self.choices.load().choose(source, is_ip4, turn, load)
    }

    /// Iterates over the numbers of the back ends of a family that take sessions, from one of them on.
    pub fn taking(&self, is_ip4: bool, first: u16) -> impl Iterator<Item = u16> {
        let count = self.all.len() as u16;
        let numbers = (first..count).chain(0..first.min(count));
        numbers.filter(move |&number| {
            let is_of_family = self.get(number).is_some_and(|one| one.place.address.is_ipv4() == is_ip4);
            is_of_family && self.state(number) == 0
        })
    }

    /// For `show functions`: a line for each back end.
    pub fn report(&self, has_checks: bool) -> impl Iterator<Item = (String, String)> {
        (0..).zip(&self.all).map(move |(number, backend)| {
            let [sessions, opened, passed, failed] = {
                let counts = &backend.counts;
                [&counts.sessions, &counts.opened, &counts.passed, &counts.failed]
                    .map(|count| count.load(Relaxed))
            };
            let mut line = format!("{}, {sessions} sessions, {opened} opened", self.state_name(number));
            if has_checks {
                line.push_str(&format!(", checks {passed} passed, {failed} failed"));
            }
            (backend.place.to_string(), line)
        })
    }

    /// Returns the number of a back end other than those that were tried, for a source address.
    pub fn choose_untried(&self, source: &[u8; 16], is_ip4: bool, turn: usize, tried: &[u16]) -> Option<u16> {
        let first = self.choose_number(source, is_ip4, turn)?;
        if !tried.contains(&first) {
            return Some(first);
        }
        // Once more in turn; hashing and loads may name the same one again.
        let next = (1..self.all.len())
            .filter_map(|step| self.choose_number(source, is_ip4, turn.wrapping_add(step)));
        let any = (0..).take(self.all.len()).filter(|&number| self.state(number) == 0);
        next.chain(any).find(|number| !tried.contains(number))
    }

    /// Whether a back end may get a session that was with it before: also while it is drained.
    pub fn keeps(&self, backend: u16) -> bool {
        self.get(backend).is_some() && !self.is_down(backend)
    }

    pub fn get(&self, backend: u16) -> Option<&Backend> {
        self.all.get(usize::from(backend))
    }

    /// Returns the number of the back end with an address and port: the one with that port, or one without a
    /// port. For protocols without ports, any back end at the address.
    pub fn at(&self, address: IpAddr, port: Option<u16>) -> Option<u16> {
        let find = |fits: &dyn Fn(Option<u16>) -> bool| {
            self.all.iter().position(|one| one.place.address == address && fits(one.place.port))
        };
        let at = match port {
            Some(_) => find(&|of| of == port).or_else(|| find(&|of| of.is_none())),
            None => find(&|_| true),
        };
        at.map(|at| at as u16)
    }

    /// Whether no back end is down.
    #[inline]
    pub fn all_up(&self) -> bool {
        self.down.load(Relaxed) == 0
    }

    /// Returns a number that increases when a back end goes down.
    pub fn failures(&self) -> u64 {
        self.failures.load(Acquire)
    }

    #[inline]
    pub fn is_down(&self, backend: u16) -> bool {
        self.state(backend) & state::DOWN != 0
    }

    fn state(&self, backend: u16) -> u8 {
        self.states.get(usize::from(backend)).map_or(0, |state| state.load(Relaxed))
    }

    /// Returns the name of a back end's state.
    pub fn state_name(&self, backend: u16) -> &'static str {
        match self.state(backend) {
            0 => "up",
            state::DOWN => "down",
            state::DRAINING => "draining",
            _ => "draining, down",
        }
    }

    pub fn set_down(&self, backend: u16, down: bool) {
        self.change(|number| number == backend, state::DOWN, down);
    }

    /// Sets or clears draining of the back ends at an address; without a port, at any port. False: there are
    /// none.
    pub fn set_draining(&self, place: BackendAddress, draining: bool) -> bool {
        let is_meant = |backend: u16| {
            let at = self.get(backend).map(|backend| backend.place);
            at.is_some_and(|at| {
                at.address == place.address && (place.port.is_none() || at.port == place.port)
            })
        };
        self.change(is_meant, state::DRAINING, draining)
    }

    /// Tells a watcher of changes of states.
    pub fn watch(&self, watcher: Weak<dyn ServersWatcher>) {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner).push(watcher);
    }

    /// Returns the states of all back ends, with their checks.
    pub fn export_states(&self) -> Vec<ServerState> {
        let all = (0..).zip(&self.all);
        let export = |(number, backend): (u16, &Backend)| ServerState {
            is_down: self.is_down(number),
            is_draining: self.state(number) & state::DRAINING != 0,
            passed: backend.counts.passed.load(Relaxed),
            failed: backend.counts.failed.load(Relaxed),
        };
        all.map(export).collect()
    }

    /// Takes over states that another process has exported.
    pub fn import_states(&self, states: &[ServerState]) {
        for ((number, backend), state) in (0..).zip(&self.all).zip(states) {
            backend.counts.passed.store(state.passed, Relaxed);
            backend.counts.failed.store(state.failed, Relaxed);
            let wanted = [(state::DOWN, state.is_down), (state::DRAINING, state.is_draining)];
            for (bit, set) in wanted {
                if set != (self.state(number) & bit != 0) {
                    self.change(|other| other == number, bit, set);
                }
            }
        }
    }

    fn change(&self, is_meant: impl Fn(u16) -> bool, bit: u8, set: bool) -> bool {
        let changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut any = false;
        for (backend, state) in (0..).zip(&self.states) {
            if is_meant(backend) {
                any = true;
                if set {
                    state.fetch_or(bit, Relaxed)
                } else {
                    state.fetch_and(!bit, Relaxed)
                };
            }
        }
        let down = self.states.iter().filter(|state| state.load(Relaxed) & state::DOWN != 0).count();
        self.down.store(down, Relaxed);
        if any && set && bit == state::DOWN {
            // Who sees the number sees the states.
            self.failures.fetch_add(1, Release);
        }
        self.choices
            .store(Choices::new(self.method, self.families, &candidates(&self.all, &self.states)).into());
        drop(changing);
        let watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        watchers.iter().filter_map(Weak::upgrade).for_each(|watcher| watcher.servers_changed());
        any
    }
}

fn candidates(all: &[Backend], states: &[AtomicU8]) -> Vec<Candidate> {
    let candidate = |(one, state): (&Backend, &AtomicU8)| Candidate {
        place: one.place,
        weight: one.weight,
        takes: state.load(Relaxed) == 0,
    };
    all.iter().zip(states).map(candidate).collect()
}
