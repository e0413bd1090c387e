//! Rules, classifier, interfaces, workers, NAT, drops, version, configuration, metrics and fields.

use indexmap::IndexMap;
use mmb_dataplane::{Capability, NodeRuntime, PortInfo, RuleCounters, SessionCounters};
use mmb_flow::{PoolUsage, PortProto};
use mmb_lang::{FIELDS, Match, NatForward, NatPool, RuleLabel, Support};
use mmb_packet::DropReason;
use mmb_policy::{Policy, RuleView, Structure};

use super::masks;
use crate::api::*;
use crate::config::{Interface, file};
use crate::error::CommandError;
use crate::metrics::{RULE_LIMIT, Scrape};
use crate::transaction::{Control, State};

impl Control {
    /// `list`.
    pub fn rules(&self) -> RuleList {
        self.first_rules(usize::MAX)
    }

    /// `list MATCH…`: the rules that a packet to which all matches apply can match.
    ///
    /// # Errors
    /// An unknown interface, or matches that exclude each other.
    pub fn rules_about(&self, matches: &[Match]) -> Result<RuleList, CommandError> {
        let config = self.state().config;
        mmb_lang::check_matches(matches)?;
        config.check_matches(matches)?;
        let policy = config.policy();
        let applies = |view: &RuleView<'_>| {
            let Ok(mut rule) = view.rule() else { return false };
            rule.matches.extend_from_slice(matches);
            mmb_lang::check_matches(&rule.matches).is_ok()
        };
        let rules = policy.rules().filter(applies).map(|view| self.rule_entry(policy, &view));
        Ok(RuleList { rules: rules.collect() })
    }

    fn first_rules(&self, limit: usize) -> RuleList {
        let config = self.state().config;
        let policy = config.policy();
        let rules = policy.rules().take(limit).map(|view| self.rule_entry(policy, &view));
        RuleList { rules: rules.collect() }
    }

    fn rule_entry(&self, policy: &Policy, view: &RuleView<'_>) -> RuleEntry {
        RuleEntry::new(policy, view, self.engine().rule_counters(view.slot))
    }

    /// `show tables`.
    pub fn tables(&self) -> TableList {
        let config = self.state().config;
        let entry = |t: mmb_policy::TableInfo| TableEntry {
            mask: mask_text(t.mask.mask()),
            keys: t.occupancy.keys as u64,
            rules: t.entries as u64,
            bytes: t.occupancy.bytes as u64,
            depth: t.depth as u64,
            structure: structure(t.structure).to_owned(),
            fields: if t.structure == Structure::Hash { masks::words(t.mask.mask()) } else { String::new() },
            capacity: t.occupancy.lanes as u64,
            nodes: t.nodes as u64,
            longest: t.longest as u64,
        };
        TableList { tables: config.policy().tables().map(entry).collect(), stale: config.policy().is_stale() }
    }

    /// `show interfaces`.
    pub fn interfaces(&self) -> InterfaceList {
        let State { config, down } = self.state();
        let entry = |i: &Interface| {
            let peer = i.peer.and_then(|id| config.interface_by_id(id));
            let info = self.engine().port_info(i.id);
            let mut entry = InterfaceEntry {
                name: i.name.clone(),
                kind: i.kind.to_string(),
                reason: down.get(&i.id).cloned(),
                wire: peer.map(|p| p.name.clone()),
                routed: i.kernel_name().map(|name| self.routed(i, name, info.as_ref())),
                enabled: i.enabled,
                ..InterfaceEntry::default()
            };
            if let Some(info) = info.filter(|_| entry.reason.is_none()) {
                fill(&mut entry, info);
                let drops = self.engine().port_drops(i.id).into_iter().filter(|(_, n)| *n > 0);
                entry.drops = drops.map(|(reason, n)| (reason.name().to_owned(), n)).collect();
            }
            entry
        };
        InterfaceList { interfaces: config.interfaces().iter().map(entry).collect() }
    }

    /// `show interfaces verbose`: asks the drivers for the capabilities of their devices.
    pub(crate) fn interfaces_with_capabilities(&self) -> InterfaceList {
        let mut list = self.interfaces();
        let config = self.state().config;
        for entry in list.interfaces.iter_mut().filter(|entry| entry.reason.is_none()) {
            let id = config.interface(&entry.name).map(|i| i.id);
            let found = id.and_then(|id| self.engine().port_capabilities(id)).unwrap_or_default();
            let capability = |c: Capability| CapabilityEntry {
                name: c.name.to_owned(),
                supported: c.supported,
                detail: c.answer,
            };
            entry.capabilities = found.into_iter().map(capability).collect();
        }
        list
    }

    /// The entry of a routed interface. `kernel_name` is the kernel interface with its addresses; `info` that
    /// of its port.
    fn routed(&self, i: &Interface, kernel_name: &str, info: Option<&PortInfo>) -> RoutedEntry {
        let twin = i.routed.and_then(|routing| self.engine().port_info(routing.twin?));
        let past_engine = info.map(|info| info.twin).unwrap_or_default();
        RoutedEntry {
            interface: kernel_name.to_owned(),
            // Packets sent to the TAP are received by the kernel.
            twin: twin.map(|info| TwinEntry {
                to_kernel: info.tx_packets + past_engine.packets_to_twin,
                from_kernel: info.rx_packets + past_engine.packets_from_twin,
            }),
        }
    }

    /// `show runtime`.
    pub fn runtime(&self) -> Runtime {
        let sessions = self.engine().session_counters_by_worker();
        let workers = self.engine().runtime().into_iter().map(|w| WorkerEntry {
            worker: w.worker as u64,
            cpu: w.cpu.map(|cpu| cpu as u64),
            sleeps: w.sleeps,
            checksum_repairs: w.checksum_repairs,
            sessions: sessions.get(w.worker).map_or(0, |counters| counters.sessions),
            nodes: w.nodes.into_iter().map(|n| (n.name.clone(), node(&n))).collect(),
        });
        Runtime {
            workers: workers.collect(),
            sessions: session_counts(&sessions, self.limited_sources()),
            routing: self.routing(),
        }
    }

    /// `show nat`.
    pub fn nat(&self) -> NatReply {
        let config = self.state().config;
        let usage = self.engine().nat_usage();
        let entry = |pool: &NatPool| PoolEntry {
            addresses: config
                .nat()
                .addresses(pool)
                .map(|range| range.map(|a| a.to_string()))
                .unwrap_or_default(),
            ..pool_entry(pool, usage.iter().find(|u| u.pool == *pool.name.text))
        };
        NatReply {
            pools: config.nat().pools().iter().map(entry).collect(),
            forwards: config.nat().forwards().iter().map(forward_entry).collect(),
        }
    }

    /// `show drops`: every reason, also those that have not occurred.
    pub fn drops(&self) -> DropList {
        let by_name = |counts: Vec<(DropReason, u64)>| {
            counts.into_iter().map(|(reason, n)| (reason.name().to_owned(), n)).collect()
        };
        DropList { drops: by_name(self.engine().drops()), unedited: by_name(self.engine().unedited()) }
    }

    /// `show version`.
    pub fn version(&self) -> VersionEntry {
        let config = self.state().config;
        VersionEntry {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            engine: self.engine().describe(),
            pid: std::process::id(),
            uptime_seconds: self.uptime().as_secs(),
            rules: config.policy().len() as u64,
        }
    }

    /// `show config`.
    pub fn config(&self) -> ConfigEntry {
        let config = self.state().config;
        let file = self.file().map(|file| file.display().to_string());
        ConfigEntry { config: file::text(&config), file }
    }

    /// The values of `/metrics`.
    pub fn scrape(&self) -> Scrape {
        let version = self.version();
        Scrape {
            rule_count: version.rules,
            version: Some(version),
            rules: self.first_rules(RULE_LIMIT).rules,
            interfaces: self.interfaces(),
            runtime: self.runtime(),
            nat: self.nat(),
            functions: self.functions().functions,
            domains: self.domains().domains,
            brokers: self.brokers().brokers,
            sets: self.sets().sets,
            fast_path: self.fast_path(),
            drops: self.drops(),
            log_lost_lines: mmb_system::log::lost(),
            api_refused: self.api_counters().by_reason(),
        }
    }
}

/// Counters by name, in this order.
fn named<const N: usize>(counts: [(&str, u64); N]) -> IndexMap<String, u64> {
    counts.into_iter().map(|(name, n)| (name.to_owned(), n)).collect()
}

/// The sum over all workers.
fn session_counts(workers: &[SessionCounters], limited_sources: Vec<LimitedEntry>) -> SessionCounts {
    let sum = |get: fn(&SessionCounters) -> u64| workers.iter().map(get).sum();
    SessionCounts {
        limited_sources,
        sessions: sum(|c| c.sessions),
        half_open: sum(|c| c.half_open),
        capacity: sum(|c| c.capacity),
        held_packets: sum(|c| c.chain_held),
        created: sum(|c| c.created),
        ended: named([
            ("expired", sum(|c| c.expired)),
            ("aged", sum(|c| c.aged)),
            ("replaced", sum(|c| c.replaced)),
            ("evicted", sum(|c| c.evicted)),
            ("ended", sum(|c| c.ended)),
            ("cleared", sum(|c| c.cleared)),
        ]),
        refused: named([
            (DropReason::SessionFull.name(), sum(|c| c.refused_full)),
            (DropReason::SessionLimit.name(), sum(|c| c.refused_source)),
            (DropReason::NatExhausted.name(), sum(|c| c.refused_exhausted)),
            (DropReason::NatLimit.name(), sum(|c| c.refused_limit)),
            (DropReason::SessionMiddle.name(), sum(|c| c.refused_middle)),
        ]),
    }
}

impl RuleEntry {
    /// The entry of a rule with these counters.
    pub fn new(policy: &Policy, view: &RuleView<'_>, counters: RuleCounters) -> RuleEntry {
        let RuleLabel { name, comment } = view.label();
        let info = policy.rule_info(view.slot);
        RuleEntry {
            index: view.index,
            text: view.text.to_owned(),
            name: name.map(|name| name.text.into()),
            comment: comment.map(String::from),
            packets: counters.packets,
            bytes: counters.bytes,
            decided: (info.drops || info.accepts).then_some(counters.decided),
        }
    }
}

/// The entry of a pool, without its addresses. `usage` is none until the workers have the pool.
fn pool_entry(pool: &NatPool, usage: Option<&PoolUsage>) -> PoolEntry {
    let mut entry = PoolEntry {
        name: pool.name.to_string(),
        interface: pool.addresses.interface().map(|name| name.to_string()),
        ports: pool.ports,
        block: pool.block,
        limit: pool.limit,
        filtering: pool.filtering.word().to_owned(),
        ..PoolEntry::default()
    };
    if let Some(u) = usage {
        (entry.hosts, entry.sessions) = (u.hosts, u.sessions);
        entry.ports_used =
            PortProto::ALL.iter().zip(u.ports).map(|(proto, n)| (proto.name().to_owned(), n)).collect();
        entry.ports_total = u.ports_total;
        (entry.blocks_used, entry.blocks_total) = (u.blocks, u.blocks_total);
        (entry.exhausted, entry.limited) = (u.exhausted, u.limited);
    }
    entry
}

fn forward_entry(forward: &NatForward) -> ForwardEntry {
    ForwardEntry {
        protocol: forward.proto.word().to_owned(),
        outside: forward.outside.address.to_string(),
        outside_port: forward.outside.port,
        inside: forward.inside.address.to_string(),
        inside_port: forward.inside.port,
    }
}

fn fill(entry: &mut InterfaceEntry, info: PortInfo) {
    entry.state = InterfaceState::Up;
    entry.link = info.link_up;
    entry.driver = info.driver;
    entry.device = info.device;
    entry.mac = info.mac;
    entry.mtu = info.mtu;
    entry.rx_packets = info.rx_packets;
    entry.rx_bytes = info.rx_bytes;
    entry.tx_packets = info.tx_packets;
    entry.tx_bytes = info.tx_bytes;
    entry.rx_missed = info.rx_missed;
    entry.rx_errors = info.rx_errors;
    entry.tx_errors = info.tx_errors;
    entry.tx_merged = info.tx_merged;
    entry.notes = info.notes;
}

/// The name of a structure of the classifier.
fn structure(structure: Structure) -> &'static str {
    match structure {
        Structure::Hash => "hash",
        Structure::Leaf => "leaf",
        Structure::Bits => "bits",
        Structure::Always => "always",
        Structure::Predicate(_) => "predicate",
    }
}

/// The chunks of a mask that are not zero, each with its number; bytes are in window order.
fn mask_text(mask: &[u128]) -> String {
    let chunks = mask.iter().enumerate().filter(|(_, chunk)| **chunk != 0);
    chunks.map(|(n, chunk)| format!("{n}:{:032x}", u128::from_be(*chunk))).collect::<Vec<_>>().join(" ")
}

fn node(n: &NodeRuntime) -> NodeEntry {
    let ratio = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
    NodeEntry {
        packets: n.packets,
        vectors: n.vectors,
        ticks: n.ticks,
        ticks_per_packet: ratio(n.ticks, n.packets),
        packets_per_vector: ratio(n.packets, n.vectors),
    }
}

/// `show fields`.
pub fn fields() -> FieldList {
    let entry = |f: &mmb_lang::FieldDef| FieldEntry {
        name: f.name.to_owned(),
        protocol: f.proto.to_string(),
        bits: u32::from(f.width_bits),
        match_: f.match_ == Support::Yes,
        modify: f.modify == Support::Yes,
        matched: f.info().matched.replace('`', ""),
        written: f.info().written.replace('`', ""),
        help: f.help.to_owned(),
        example: f.example.to_owned(),
    };
    FieldList { fields: FIELDS.iter().map(entry).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_show_their_bytes_in_window_order() {
        let mut mask = [0u128; 5];
        mask[0] = (0xffff_ff00u128 << 96).to_be();
        mask[4] = 0xffu128.to_be();
        let expected = format!("0:ffffff{} 4:{}ff", "0".repeat(26), "0".repeat(30));
        assert_eq!(mask_text(&mask), expected);
    }

    #[test]
    fn every_field_of_the_language_is_listed() {
        let fields = fields().fields;
        assert_eq!(fields.len(), FIELDS.len());
        assert!(fields.iter().any(|f| f.name == "tcp-dport" && f.match_ && f.modify && f.bits == 16));
        assert!(fields.iter().any(|f| f.name == "ip-checksum" && !f.modify));
    }
}
