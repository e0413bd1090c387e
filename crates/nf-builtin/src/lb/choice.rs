//! Choice of a back end for a session.
//!
//! Theory of operation. [`Choices`] holds, for each address family, the back ends that accept sessions,
//! prepared for the configured method. It is rebuilt whenever a back end comes or goes, and published as one
//! value. Round robin follows a schedule in which each back end appears as often as its weight says, spread
//! evenly (smooth weighted round robin). The points of the hash ring depend on a back end's address alone
//! (Karger et al., 1997). So only the sessions of a back end that goes are moved, and they return when it
//! comes back. The points are the same in every process, so that several machines choose alike.

use std::hash::{BuildHasher, Hash, Hasher};
use std::net::IpAddr;

use hashring::HashRing;
use siphasher::sip::SipHasher13;

use super::config::BackendAddress;

/// How back ends are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// In turn.
    RoundRobin,
    /// The one with the fewest sessions for its weight.
    LeastConnections,
    /// By the source address.
    Hash,
}

impl Method {
    const ALL: [(Method, &'static str); 3] = [
        (Method::RoundRobin, "round-robin"),
        (Method::LeastConnections, "least-connections"),
        (Method::Hash, "hash"),
    ];

    pub fn parse(word: &str) -> Option<Method> {
        Self::ALL.into_iter().find(|(_, name)| *name == word).map(|(method, _)| method)
    }

    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(method, _)| *method == self).map_or("", |(_, name)| name)
    }
}

/// The hash of the ring. It has no secret, so that it is the same everywhere.
#[derive(Clone, Copy, Debug)]
struct Plain;

impl BuildHasher for Plain {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new()
    }
}

/// One of a back end's points on the ring.
#[derive(Clone, Copy, Debug)]
struct Point {
    backend: u16,
    replica: u32,
    place: BackendAddress,
}

impl Hash for Point {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The number is left out, so that back ends configured before this one change nothing.
        match self.place.address {
            IpAddr::V4(address) => state.write(&address.octets()),
            IpAddr::V6(address) => state.write(&address.octets()),
        }
        state.write(&self.place.port.unwrap_or(0).to_be_bytes());
        state.write(&self.replica.to_be_bytes());
    }
}

/// Points of a back end with weight 1, unless there are many back ends. Shares then differ by a twelfth.
const POINTS: u32 = 160;
/// Approximate limit of all points.
const MOST_POINTS: u32 = 1 << 16;

/// Which back ends a session may go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Families {
    /// Those of its own address family.
    Separate,
    /// All.
    Any,
}

/// What the choice needs of a back end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub place: BackendAddress,
    pub weight: u16,
    /// It accepts sessions.
    pub takes: bool,
}

/// The back ends of one address family that accept sessions.
#[derive(Debug)]
struct Family {
    /// Their numbers and weights.
    there: Vec<(u16, u16)>,
    /// Their numbers in the order of their turns.
    schedule: Vec<u16>,
    ring: HashRing<Point, Plain>,
}

/// See the module's theory of operation.
#[derive(Debug)]
pub(crate) struct Choices {
    method: Method,
    four: Family,
    six: Family,
}

impl Choices {
    pub fn new(method: Method, families: Families, candidates: &[Candidate]) -> Choices {
        let family = |is_ip4: bool| {
            Family::new(method, candidates, |one| {
                families == Families::Any || one.place.address.is_ipv4() == is_ip4
            })
        };
        Choices { method, four: family(true), six: family(false) }
    }

    /// Returns the number of the back end for a session from a source. `turn` is the number of sessions of
    /// the family that the worker has opened. `sessions` returns the sessions of a back end.
    pub fn choose(
        &self,
        source: &[u8; 16],
        is_ip4: bool,
        turn: usize,
        sessions: impl Fn(u16) -> u64,
    ) -> Option<u16> {
        let family = if is_ip4 { &self.four } else { &self.six };
        match self.method {
            Method::RoundRobin => family.schedule.get(turn % family.schedule.len().max(1)).copied(),
            Method::LeastConnections => family.least(turn, sessions),
            Method::Hash => family.ring.get(source).map(|point| point.backend),
        }
    }
}

impl Family {
    fn new(method: Method, candidates: &[Candidate], is_of_family: impl Fn(&Candidate) -> bool) -> Family {
        let of_family = |one: &&Candidate| is_of_family(one);
        let divisor = candidates.iter().map(|one| u32::from(one.weight)).fold(0, gcd).max(1);
        let shares = |one: &Candidate| u32::from(one.weight) / divisor;
        // Of all candidates, so that no points move when one goes.
        let total = candidates.iter().filter(of_family).map(shares).sum::<u32>().max(1);
        let points = (MOST_POINTS / total).clamp(1, POINTS);
        let numbered = (0..).zip(candidates).filter(|(_, one)| of_family(one) && one.takes);
        let there: Vec<_> = numbered.clone().map(|(backend, one)| (backend, one.weight)).collect();
        let shared: Vec<_> = numbered.clone().map(|(backend, one)| (backend, shares(one))).collect();
        let schedule = if method == Method::RoundRobin { schedule(&shared) } else { Vec::new() };
        let mut ring = HashRing::with_hasher(Plain);
        if method == Method::Hash {
            let of = |(backend, one): (u16, &Candidate)| {
                let place = one.place;
                (0..shares(one) * points).map(move |replica| Point { backend, replica, place })
            };
            ring.batch_add(numbered.flat_map(of).collect());
        }
        Family { there, schedule, ring }
    }

    fn least(&self, turn: usize, sessions: impl Fn(u16) -> u64) -> Option<u16> {
        // Ties go to another back end each time.
        let (before, behind) = self.there.split_at(turn % self.there.len().max(1));
        let mut best: Option<(u16, u16, u64)> = None;
        for &(backend, weight) in behind.iter().chain(before) {
            let load = sessions(backend);
            let less = best.is_none_or(|(_, other, least)| {
                u128::from(load) * u128::from(other) < u128::from(least) * u128::from(weight)
            });
            if less {
                best = Some((backend, weight, load));
            }
        }
        best.map(|(backend, ..)| backend)
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns numbers in the order of their turns, each as often as its share, spread evenly. In every turn each
/// number gains its share as credit; the one with the most credit is taken and pays the total.
fn schedule(shares: &[(u16, u32)]) -> Vec<u16> {
    let total: i64 = shares.iter().map(|(_, share)| i64::from(*share)).sum();
    let mut credits: Vec<_> = shares.iter().map(|&(backend, share)| (0, backend, i64::from(share))).collect();
    let mut turns = Vec::new();
    for _ in 0..total {
        credits.iter_mut().for_each(|(credit, _, share)| *credit += *share);
        // Ties go to the first.
        if let Some((credit, backend, _)) = credits.iter_mut().rev().max_by_key(|(credit, ..)| *credit) {
            *credit -= total;
            turns.push(*backend);
        }
    }
    turns
}

#[cfg(test)]
mod tests;
