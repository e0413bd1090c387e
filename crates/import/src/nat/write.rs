//! Writes pools, forwards and rules that translate.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use mmb_lang::FieldId;

use super::{
    Machine, Redirect, Translation, Translations, as_received, ip4, minus_all, port_field, single_destination,
};
use crate::filter::{Filter, UDP, Values};
use crate::matches::matches;
use crate::ordered::{Chains, Step, Verdict, exact_decisions};
use crate::script::{Kind, Script};
use crate::states::States;

/// The remark on a rule from which others cannot be subtracted.
const TOO_MANY: &str = "too many rules: the translations before it overlap with it";

/// Maximum number of forwards of a rule with a range of ports.
const MAX_FORWARDS: u128 = 64;

/// Writes the translations of chains: those of destinations in `before`, those of sources in `behind`.
pub fn convert(
    chains: &Chains,
    before: &[String],
    behind: &[String],
    machine: &Machine,
    script: &mut Script,
) -> Translations {
    let mut writer =
        Writer { machine, script, pools: Vec::new(), endpoints: BTreeSet::new(), redirects: Vec::new() };
    let destinations = writer.translations(chains, before);
    let sources = writer.translations(chains, behind);
    let sources: Vec<_> =
        sources.into_iter().filter_map(|(step, filters)| writer.source(step, &filters)).collect();
    for (step, filters) in destinations {
        writer.destination(&step, &filters);
    }
    for (step, filters, pool) in &sources {
        match as_received(filters, &writer.redirects, false) {
            Some(received) => writer.rules(&received, &format!("nat {pool}"), step),
            None => writer.remark(step, Kind::NotMapped, TOO_MANY),
        }
    }
    Translations { redirects: writer.redirects, has_sources: !sources.is_empty() }
}

/// What the steps of base chains decide about, exactly, for IPv4.
fn decisions(chains: &Chains, bases: &[String], script: &mut Script) -> Vec<(Step, Vec<Filter>)> {
    let mut all = Vec::new();
    for base in bases {
        for (step, filters) in exact_decisions(chains, base, script) {
            // Only first packets of connections meet these chains.
            let first = |filter: &Filter| {
                let first = filter.clone().and_states(States::NEW)?.with_states(States::ALL);
                ip4().and_then(|ip4| first.intersection(&ip4))
            };
            let filters: Vec<Filter> = filters.iter().filter_map(first).collect();
            match step.verdict {
                Verdict::Accept | Verdict::Translate(_) if !filters.is_empty() => all.push((step, filters)),
                Verdict::Accept => {}
                Verdict::Translate(_) => {
                    let reason = "pools and forwards translate first packets of IPv4 connections only";
                    script.remark(Kind::NotMapped, &step.place, &step.source, reason);
                }
                _ => {
                    let reason = "it stands in a chain for NAT: filter in the chain of forwarded packets";
                    script.remark(Kind::NotMapped, &step.place, &step.source, reason);
                }
            }
        }
    }
    all
}

/// A pool that is written.
struct Pool {
    name: String,
    /// Its definition, without the name.
    definition: String,
    /// Its addresses; none: those of an interface.
    addresses: Option<(Ipv4Addr, Ipv4Addr)>,
}

struct Writer<'a> {
    machine: &'a Machine,
    script: &'a mut Script,
    pools: Vec<Pool>,
    /// Protocol, address and port of the forwards.
    endpoints: BTreeSet<(&'static str, Ipv4Addr, u16)>,
    redirects: Vec<Redirect>,
}

impl Writer<'_> {
    fn remark(&mut self, step: &Step, kind: Kind, reason: &str) {
        self.script.remark(kind, &step.place, &step.source, reason);
    }

    /// The steps of base chains that translate, with the packets that no step before them translates.
    fn translations(&mut self, chains: &Chains, bases: &[String]) -> Vec<(Step, Vec<Filter>)> {
        let (mut translated, mut all): (Vec<Filter>, Vec<(Step, Vec<Filter>)>) = Default::default();
        for (step, filters) in decisions(chains, bases, self.script) {
            match minus_all(filters.clone(), translated.iter()) {
                _ if step.verdict == Verdict::Accept => continue,
                Some(left) if left.is_empty() => {
                    self.remark(&step, Kind::Note, "the translations before it match all its packets");
                }
                Some(left) => all.push((step, left)),
                None => self.remark(&step, Kind::NotMapped, TOO_MANY),
            }
            translated.extend(filters);
        }
        all
    }

    fn rules(&mut self, filters: &[Filter], target: &str, step: &Step) {
        let Step { place, source, .. } = step;
        self.script.comment(format!("{place}: {source}"));
        for filter in filters {
            match matches(&filter.clone().with_states(States::ALL)) {
                Ok(lines) => lines.iter().for_each(|matches| {
                    self.script.rule(&format!("add-stateful {matches} {target}"), place, source);
                }),
                Err(error) => self.remark(step, Kind::NotMapped, &error.to_string()),
            }
        }
    }

    /// Writes the pool of a step that translates sources. Returns the packets that it translates, and the
    /// name of the pool.
    fn source(&mut self, step: Step, filters: &[Filter]) -> Option<(Step, Vec<Filter>, String)> {
        let filters = filters.to_vec();
        match step.verdict.clone() {
            Verdict::Translate(Translation::Masquerade { ports }) => {
                let (filters, interface) = self.leaving(&step, filters)?;
                let definition = format!("interface {interface}{}", ports_text(ports));
                let name = self.pool(&step, interface, definition, None)?;
                Some((step, filters, name))
            }
            Verdict::Translate(Translation::Source { addresses, ports }) => {
                let range = match addresses {
                    (first, last) if first == last => first.to_string(),
                    (first, last) => format!("{first}-{last}"),
                };
                let name = format!("snat-{}", self.pools.len() + 1);
                let definition = format!("{range}{}", ports_text(ports));
                let name = self.pool(&step, name, definition, Some(addresses))?;
                Some((step, filters, name))
            }
            _ => None,
        }
    }

    /// The output interface of masqueraded packets.
    fn leaving(&mut self, step: &Step, filters: Vec<Filter>) -> Option<(Vec<Filter>, String)> {
        let named: BTreeSet<&String> = filters.iter().filter_map(single_output).collect();
        if let (1, Some(name)) = (named.len(), named.first())
            && filters.iter().all(|filter| single_output(filter).is_some())
        {
            let name = (*name).clone();
            return Some((filters, name));
        }
        let Some(outside) = self.machine.outside.clone() else {
            let reason = "a pool has the address of one interface, and the rule does not say by which one the \
                          packets leave: `--outside INTERFACE` does";
            self.remark(step, Kind::NotMapped, reason);
            return None;
        };
        let leaving = |filter: Filter| filter.and(FieldId::Out, &Values::name(&outside));
        let filters: Vec<Filter> = filters.into_iter().filter_map(leaving).collect();
        if filters.is_empty() {
            self.remark(step, Kind::Note, "none of its packets leave by the interface of --outside");
            return None;
        }
        Some((filters, outside))
    }

    /// Writes a pool, unless there is one with this definition. Returns its name.
    fn pool(
        &mut self,
        step: &Step,
        name: String,
        definition: String,
        addresses: Option<(Ipv4Addr, Ipv4Addr)>,
    ) -> Option<String> {
        if let Some(pool) = self.pools.iter().find(|pool| pool.definition == definition) {
            return Some(pool.name.clone());
        }
        let shares = |pool: &Pool| match (pool.addresses, addresses) {
            (Some((first, last)), Some((low, high))) => first <= high && low <= last,
            (None, None) => pool.name == name,
            _ => false,
        };
        if self.pools.iter().any(shares) {
            self.remark(step, Kind::NotMapped, "pools cannot share addresses");
            return None;
        }
        let line = format!("nat pool add {name} {definition}");
        if !self.script.line(&line, &step.place, &step.source) {
            return None;
        }
        self.pools.push(Pool { name: name.clone(), definition, addresses });
        Some(name)
    }

    /// Writes the forwards or rules of a step that translates destinations.
    fn destination(&mut self, step: &Step, filters: &[Filter]) {
        let Verdict::Translate(Translation::Destination { address, port }) = step.verdict else { return };
        for filter in filters {
            let named = match filter.values(FieldId::IpDaddr) {
                Some(_) => vec![filter.clone()],
                // A forward is for an address of the machine.
                None => {
                    self.machine.local().and_then(|local| filter.intersection(&local)).into_iter().collect()
                }
            };
            let named = if named.is_empty() { vec![filter.clone()] } else { named };
            for received in named.iter().flat_map(by_destination) {
                let redirect = Redirect { received, address, port };
                if !self.forwards(step, &redirect) {
                    self.map(step, redirect);
                }
            }
        }
    }

    /// Writes forwards for packets to one address and to a few ports, from anywhere. False: they are others.
    fn forwards(&mut self, step: &Step, redirect: &Redirect) -> bool {
        let Redirect { received, address, port } = redirect;
        let (Some(outside), Some(field)) = (single_destination(received), port_field(received)) else {
            return false;
        };
        let is_plain = received.members().is_empty()
            && received.fields().all(|tested| {
                [field, FieldId::IpDaddr, FieldId::NetProto, FieldId::IpProto, FieldId::In].contains(&tested)
            })
            && received.excluded().iter().all(|term| term.field == FieldId::In);
        let ports = match received.values(field) {
            Some(Values::Numbers(numbers)) => numbers.numbers(MAX_FORWARDS),
            _ => None,
        };
        let Some(ports) = ports.filter(|_| is_plain) else { return false };
        let protocol = if *received.values(FieldId::IpProto).unwrap_or(&Values::one(0)) == Values::one(UDP) {
            "udp"
        } else {
            "tcp"
        };
        self.script.comment(format!("{}: {}", step.place, step.source));
        if received.fields().any(|tested| tested == FieldId::In) {
            self.remark(step, Kind::Note, "a forward holds for packets from all interfaces");
        }
        for number in ports.iter().filter_map(|port| u16::try_from(*port).ok()) {
            if !self.endpoints.insert((protocol, outside, number)) {
                self.remark(step, Kind::NotMapped, "there is a forward of this address and port already");
                continue;
            }
            let inside = port.unwrap_or(number);
            let line = format!("nat forward add {protocol} {outside} {number} to {address} {inside}");
            let one = received.clone().and(field, &Values::one(number.into()));
            if self.script.line(&line, &step.place, &step.source) {
                let redirect =
                    one.map(|received| Redirect { received, address: *address, port: Some(inside) });
                self.redirects.extend(redirect);
            }
        }
        true
    }

    /// Writes a rule with `map`.
    fn map(&mut self, step: &Step, redirect: Redirect) {
        let Redirect { received, address, port } = &redirect;
        let has_pool_address =
            self.pools.iter().any(|pool| match (received.values(FieldId::IpDaddr), pool.addresses) {
                (None, _) => true,
                (Some(values), Some((first, last))) => {
                    !values.is_disjoint(&Values::range(first.to_bits().into(), last.to_bits().into()))
                }
                (Some(_), None) => false,
            });
        if has_pool_address {
            let reason = "packets to the address of a pool need a forward, which is for one address of the \
                          machine, at most 64 ports, and all sources: `-d ADDRESS` in the rule names it, or \
                          `--local ADDRESS`";
            return self.remark(step, Kind::NotMapped, reason);
        }
        let mut target = format!("map ip-daddr {address}");
        match (port, port_field(received)) {
            (Some(port), Some(field)) => target.push_str(&format!(" map {} {port}", field.name())),
            (Some(_), None) => {
                return self.remark(step, Kind::NotMapped, "only TCP and UDP have ports to translate");
            }
            (None, _) => {}
        }
        self.rules(std::slice::from_ref(received), &target, step);
        self.redirects.push(redirect);
    }
}

/// The filter, one for each of its destinations if they are few.
fn by_destination(filter: &Filter) -> Vec<Filter> {
    let numbers = match filter.values(FieldId::IpDaddr) {
        Some(Values::Numbers(numbers)) => numbers.numbers(MAX_FORWARDS),
        _ => None,
    };
    let Some(numbers) = numbers else { return vec![filter.clone()] };
    numbers
        .into_iter()
        .filter_map(|number| filter.clone().and(FieldId::IpDaddr, &Values::one(number)))
        .collect()
}

/// The only output interface of a filter.
fn single_output(filter: &Filter) -> Option<&String> {
    match filter.values(FieldId::Out)? {
        Values::Names { names, listed: true } if names.len() == 1 => names.first(),
        _ => None,
    }
}

fn ports_text(ports: Option<(u16, u16)>) -> String {
    ports.map(|(low, high)| format!(" ports {low}-{high}")).unwrap_or_default()
}
