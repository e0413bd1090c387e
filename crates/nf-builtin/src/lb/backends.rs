//! The back ends: their addresses, states and session counts.
//!
//! Theory of operation. Counts and states are atomics that all workers share. Counts change when sessions
//! open and end, not with packets. States and the number of back ends that are down are read with each vector
//! and hardly ever change, so they are kept apart from the counts. A change of a state rebuilds the
//! [`Choices`]; a lock serializes changes.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::choice::{Candidate, Choices, Method};
use super::config::{BackendAddress, LbConfig};

/// A back end.
#[derive(Debug)]
pub(super) struct Backend {
    pub place: BackendAddress,
    weight: u16,
    pub counts: Counts,
}

/// Counters of a back end.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Sessions now.
    pub sessions: AtomicU64,
    /// Sessions ever.
    pub opened: AtomicU64,
    /// Checks that it passed.
    pub passed: AtomicU64,
    /// Checks that it failed.
    pub failed: AtomicU64,
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
pub(super) struct Backends {
    method: Method,
    all: Vec<Backend>,
    /// Bits of [`state`].
    states: Vec<AtomicU8>,
    down: AtomicUsize,
    choices: ArcSwap<Choices>,
    /// Held while states change.
    changing: Mutex<()>,
    /// Number of workers that have begun to take turns.
    turns: AtomicUsize,
}

impl Backends {
    pub fn new(words: &LbConfig) -> Backends {
        let backend =
            |&(place, weight): &(BackendAddress, u16)| Backend { place, weight, counts: Counts::default() };
        let all: Vec<_> = words.backends.iter().map(backend).collect();
        let states: Vec<_> = all.iter().map(|_| AtomicU8::new(0)).collect();
        let choices = Choices::new(words.method, &candidates(&all, &states));
        Backends {
            method: words.method,
            all,
            states,
            down: AtomicUsize::new(0),
            choices: ArcSwap::from_pointee(choices),
            changing: Mutex::new(()),
            turns: AtomicUsize::new(0),
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
        let load = |backend: u16| {
            self.get(backend).map_or(u64::MAX, |backend| backend.counts.sessions.load(Relaxed))
        };
        let backend = self.choices.load().choose(source, is_ip4, turn, load)?;
        self.get(backend)
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
        self.choices.store(Choices::new(self.method, &candidates(&self.all, &self.states)).into());
        drop(changing);
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
