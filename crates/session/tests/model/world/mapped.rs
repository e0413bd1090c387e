//! Translation: what rules allow, and what a pool has promised.

use super::*;
use crate::common::End;

/// What an end inside looks like outside, and whom it talks to.
struct Mapping {
    proto: u8,
    inside: End,
    outside: End,
    remote: [u8; 4],
}

impl Mapping {
    fn is_of(&self, from: Tuple) -> bool {
        self.proto == from.proto && self.inside == from.source
    }
}

/// What bindings make of a packet that opens a session.
struct Plan {
    pool: bool,
    source: [u8; 4],
    destinations: Vec<[u8; 4]>,
    port: u16,
}

/// The last rule that says something about a field has its way.
fn plan(binds: &[Binding], from: Tuple) -> Plan {
    let (address, port) = from.destination;
    let mut plan = Plan { pool: false, source: from.source.0, destinations: vec![address], port };
    for bind in binds {
        match *bind {
            Binding::Source(address) => (plan.source, plan.pool) = (address, false),
            Binding::Pool => plan.pool = true,
            Binding::Destination(addresses) => plan.destinations = addresses.to_vec(),
            Binding::DestinationPort(port) => plan.port = port,
            Binding::SourcePort | Binding::Sequence => {}
        }
    }
    plan
}

impl World {
    /// The mappings of the pool, each as often as sessions use it.
    fn mappings(&self) -> Vec<Mapping> {
        let lives = |s: &&Session| s.pool == Some(self.pool) && self.rules[POOL_RULE].is_some();
        let mapping = |s: &Session| {
            let (out, inside, remote) = match s.inbound {
                false => (s.outside.source, s.original.source, s.outside.destination.0),
                true => (s.original.destination, s.outside.destination, s.original.source.0),
            };
            Mapping { proto: s.original.proto, inside, outside: out, remote }
        };
        self.sessions.iter().filter(lives).map(mapping).collect()
    }

    /// Checks that the rules allow a translation. Whether the pool was used.
    pub(super) fn allows(&self, binds: &[Binding], from: Tuple, to: Tuple) -> bool {
        let Plan { pool, source, destinations, port } = plan(binds, from);
        assert!(destinations.contains(&to.destination.0) && to.destination.1 == port, "{from:?} {to:?}");
        if pool {
            self.allows_mapping(from, to);
            return true;
        }
        assert_eq!(to.source.0, source);
        let moves = !binds.is_empty() && binds != [Binding::Sequence];
        if binds.contains(&Binding::SourcePort) && from.proto != ICMP {
            assert!(to.source.1 >= 1024);
        } else if (!moves || self.workers == 1)
            && self.is_free(Tuple { source: (source, from.source.1), ..to })
        {
            assert_eq!(to.source.1, from.source.1);
        } else {
            assert_eq!(to.source.1 % 2, from.source.1 % 2, "{from:?} {to:?}");
        }
        pool
    }

    /// Whether a pool's mapping, which cannot be another, makes the session look like one that there is.
    pub(super) fn is_ambiguous(&self, binds: &[Binding], from: Tuple) -> bool {
        let Plan { pool, destinations, port, .. } = plan(binds, from);
        let mappings = self.mappings();
        let mapped = mappings.iter().find(|m| m.is_of(from));
        let to = |source, address| Tuple { source, destination: (address, port), ..from };
        pool && mapped.is_some_and(|m| destinations.iter().any(|&a| !self.is_free(to(m.outside, a))))
    }

    fn is_free(&self, outside: Tuple) -> bool {
        self.sessions.iter().all(|session| session.direction_of(outside.reversed()).is_none())
    }

    fn allows_mapping(&self, from: Tuple, to: Tuple) {
        if from.proto == TCP && from.source == FORWARDED_HOST && self.port_forward.is_some() {
            assert_eq!(to.source, FORWARD_ENDPOINT);
            return;
        }
        let mappings = self.mappings();
        if mappings.iter().any(|m| m.is_of(from) && m.outside == to.source) {
            return;
        }
        assert!(!mappings.iter().any(|m| m.is_of(from)), "{to:?} is not the only one");
        let taken = mappings.iter().any(|m| m.proto == from.proto && m.outside == to.source);
        assert!(!taken, "{to:?} stands for another");
        assert!(POOL.contains(&to.source.0));
        assert!((POOL_PORTS[0]..=POOL_PORTS[1]).contains(&to.source.1));
        assert_eq!(to.source.1 % 2, from.source.1 % 2);
        let host = mappings.iter().find(|m| m.inside.0 == from.source.0);
        let paired = host.is_none_or(|m| m.outside.0 == to.source.0);
        assert!(paired, "a host has one address");
    }

    /// A packet from outside to an address of NAT's.
    pub(super) fn arrives(
        &mut self,
        in_port: u16,
        tuple: Tuple,
        detail: Detail,
        matching: &[RuleId],
        seen: &Output<'_>,
    ) -> Verdict {
        let mappings = self.mappings();
        let of_it = |m: &&Mapping| m.proto == tuple.proto && m.outside == tuple.destination;
        let mapped: Vec<_> = mappings.iter().filter(of_it).collect();
        let known = mapped.iter().any(|m| m.remote == tuple.source.0);
        let (inside, refused) = match mapped.first() {
            _ if self.is_port_forward(&tuple) => (FORWARDED_HOST, None),
            None => (FORWARDED_HOST, Some(DropReason::NatUnmapped)),
            Some(m) => (m.inside, (!known).then_some(DropReason::NatFiltered)),
        };
        if let Some(reason) = refused {
            assert_eq!(seen.outcome, Outcome::Dropped(reason), "{tuple:?}");
            return Verdict::Dropped(reason);
        }
        let outside = Tuple { destination: inside, ..tuple };
        let rule_verdict = self.rule_verdict(&[], matching);
        assert_eq!(seen.outcome, Outcome::Out(in_port ^ 1));
        assert_eq!(seen.bytes, (seen.make)(outside, Detail { tos: rule_verdict.tos, ..detail }));
        self.begin(tuple, outside, detail, matching);
        let (port_forward, rule) = (self.is_port_forward(&tuple), self.rules[POOL_RULE]);
        let at = self.sessions.len() - 1;
        let session = &mut self.sessions[at];
        session.inbound = true;
        if port_forward {
            session.port_forward = self.port_forward;
        } else {
            session.pool = Some(self.pool);
            session.translators = rule.map(|rule| (POOL_RULE, rule)).into_iter().collect();
            session.attached.extend(&session.translators);
        }
        Verdict::Session(at)
    }
}
