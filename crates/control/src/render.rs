//! Replies as text for people: aligned columns, one record a line.

use std::fmt::Write;

use indexmap::IndexMap;
use mmb_packet::DropReason;

use crate::api::{
    DiffReply, DropList, FieldList, InterfaceEntry, InterfaceList, InterfaceState, RuleList, Runtime,
    TableList, VersionEntry,
};

mod chains;
mod columns;
mod routing;
mod sessions;

pub use chains::{chains, functions};
use columns::Align::{Left, Right};
use columns::Columns;
pub use routing::neighbors;
pub(crate) use routing::{FibColumns, routing};
pub(crate) use sessions::ConnectionColumns;
pub use sessions::nat;

/// `list`.
pub fn rules(list: &RuleList) -> String {
    if list.rules.is_empty() {
        return "no rules\n".to_owned();
    }
    let mut columns = Columns::new([("index", Right), ("packets", Right), ("bytes", Right), ("rule", Left)]);
    for r in &list.rules {
        columns.row([r.index.to_string(), r.packets.to_string(), r.bytes.to_string(), r.text.clone()]);
    }
    columns.render()
}

/// `show tables`: what every packet visits, with what is below it in sum; `verbose` shows all parts.
pub fn tables(list: &TableList, verbose: bool) -> String {
    if list.tables.is_empty() {
        return "no tables: there are no rules\n".to_owned();
    }
    let mut columns = Columns::new([
        ("structure", Left),
        ("rules", Right),
        ("keys", Right),
        ("full", Right),
        ("longest", Right),
        ("parts", Right),
        ("bytes", Right),
        ("fields", Left),
    ]);
    let mut at = 0;
    while let Some(top) = list.tables.get(at) {
        let below = list.tables[at + 1..].iter().take_while(|t| !verbose && t.depth > top.depth);
        let (mut parts, mut bytes, mut longest) = (0, top.bytes, top.longest);
        for part in below {
            (parts, bytes, longest) = (parts + 1, bytes + part.bytes, longest.max(part.longest));
        }
        at += 1 + parts;
        let is_hash = top.structure == "hash";
        columns.row([
            format!("{:indent$}{}", "", top.structure, indent = 2 * top.depth as usize),
            top.rules.to_string(),
            if is_hash { top.keys.to_string() } else { "-".to_owned() },
            if is_hash { format!("{} %", 100 * top.keys / top.lanes.max(1)) } else { "-".to_owned() },
            longest.to_string(),
            if verbose { top.nodes.to_string() } else { parts.to_string() },
            bytes.to_string(),
            top.fields.clone(),
        ]);
    }
    columns.render()
}

/// `show interfaces`; `verbose` adds the device and the rarer counters.
pub fn interfaces(list: &InterfaceList, verbose: bool) -> String {
    if list.interfaces.is_empty() {
        return "no interfaces; add one with `interface add NAME KIND …`\n".to_owned();
    }
    let mut columns = Columns::new([
        ("name", Left),
        ("kind", Left),
        ("state", Left),
        ("wire", Left),
        ("rules", Left),
        ("rx-packets", Right),
        ("rx-bytes", Right),
        ("tx-packets", Right),
        ("tx-bytes", Right),
    ]);
    for i in &list.interfaces {
        let state = match i.state {
            InterfaceState::Down => "down",
            InterfaceState::Up if i.link => "up",
            InterfaceState::Up => "up, no link",
        };
        columns.row([
            i.name.clone(),
            i.kind.clone(),
            state.to_owned(),
            match (&i.wire, &i.routed) {
                (Some(peer), _) => peer.clone(),
                (None, Some(_)) => "routed".to_owned(),
                (None, None) => "-".to_owned(),
            },
            if i.enabled { "enabled" } else { "disabled" }.to_owned(),
            i.rx_packets.to_string(),
            i.rx_bytes.to_string(),
            i.tx_packets.to_string(),
            i.tx_bytes.to_string(),
        ]);
    }
    let mut text = columns.render();
    for i in &list.interfaces {
        interface_details(&mut text, i, verbose);
    }
    text
}

/// Lines below the table: why an interface is down, how it is routed, and notes always, the rest when asked for.
fn interface_details(text: &mut String, i: &InterfaceEntry, verbose: bool) {
    if let Some(reason) = &i.reason {
        let _ = writeln!(text, "{}: down: {reason}", i.name);
        return;
    }
    if verbose {
        let _ = writeln!(text, "{}: {} by {}, mac {}, mtu {}", i.name, i.device, i.driver, i.mac, i.mtu);
        let _ = writeln!(
            text,
            "{}: rx-missed {}, rx-errors {}, tx-errors {}",
            i.name, i.rx_missed, i.rx_errors, i.tx_errors
        );
        for c in &i.capabilities {
            let yes = if c.yes { "yes" } else { "no" };
            let _ = writeln!(text, "{}: {}: {yes} ({})", i.name, c.name, c.answer);
        }
    }
    if let Some(routed) = &i.routed {
        let _ = writeln!(text, "{}: {}", i.name, routing::face(routed));
    }
    if (verbose || i.routed.is_some()) && !i.drops.is_empty() {
        let drops: Vec<_> = i.drops.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
        let _ = writeln!(text, "{}: dropped: {}", i.name, drops.join(", "));
    }
    for note in &i.notes {
        let _ = writeln!(text, "{}: note: {note}", i.name);
    }
}

/// `1 rule`, `2 rules`.
pub fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// `show runtime`; `verbose` shows nodes that have seen no packet as well.
pub fn runtime(runtime: &Runtime, verbose: bool) -> String {
    let mut text = runtime.routing.as_ref().map(routing).unwrap_or_default();
    for w in &runtime.workers {
        let cpu = w.cpu.map_or_else(String::new, |cpu| format!(", core {cpu}"));
        let (sleeps, repairs) = (w.sleeps, w.checksum_repairs);
        let sessions = count(w.sessions, "session");
        let _ = writeln!(
            text,
            "worker {}{cpu}, {sleeps} sleeps, {repairs} checksums completed, {sessions}",
            w.worker
        );
        let shown = w.nodes.iter().filter(|(_, n)| verbose || n.packets > 0);
        text.push_str(&nodes(
            shown.map(|(name, n)| (name.as_str(), n.packets, n.vectors, n.cycles_per_packet)),
        ));
    }
    text
}

/// Graph nodes: name, packets, vectors, clock ticks (TSC) per packet.
pub fn nodes<'a>(nodes: impl Iterator<Item = (&'a str, u64, u64, f64)>) -> String {
    let mut columns = Columns::new([
        ("node", Left),
        ("packets", Right),
        ("vectors", Right),
        ("packets/vector", Right),
        ("ticks/packet", Right),
    ]);
    for (name, packets, vectors, ticks) in nodes {
        let fill = if vectors == 0 { 0.0 } else { packets as f64 / vectors as f64 };
        let numbers = [packets.to_string(), vectors.to_string(), format!("{fill:.1}"), format!("{ticks:.1}")];
        let [packets, vectors, fill, ticks] = numbers;
        columns.row([name.to_owned(), packets, vectors, fill, ticks]);
    }
    columns.render()
}

/// `show drops`: reasons that have happened; `verbose` shows all.
pub fn drops(list: &DropList, verbose: bool) -> String {
    let mut text = reasons(&list.drops, verbose).unwrap_or_else(|| "nothing dropped\n".to_owned());
    if let Some(columns) = reasons(&list.unedited, verbose) {
        text.push_str("went on unedited:\n");
        text.push_str(&columns);
    }
    text
}

/// Packets by reason; none if there are none to show.
fn reasons(counts: &IndexMap<String, u64>, verbose: bool) -> Option<String> {
    let mut columns = Columns::new([("reason", Left), ("packets", Right), ("meaning", Left)]);
    for (name, &packets) in counts.iter().filter(|&(_, &packets)| verbose || packets > 0) {
        let reason = DropReason::ALL.iter().find(|r| r.name() == name);
        columns.row([name.clone(), packets.to_string(), reason.map_or("", |r| r.help()).to_owned()]);
    }
    (!columns.is_empty()).then(|| columns.render())
}

/// `show fields`.
pub fn fields(list: &FieldList) -> String {
    let mut columns = Columns::new([
        ("field", Left),
        ("protocol", Left),
        ("bits", Right),
        ("match", Left),
        ("write", Left),
        ("meaning", Left),
    ]);
    for f in &list.fields {
        let bits = if f.bits == 0 { "-".to_owned() } else { f.bits.to_string() };
        columns.row([
            f.name.clone(),
            f.protocol.clone(),
            bits,
            f.matched.clone(),
            f.written.clone(),
            f.help.clone(),
        ]);
    }
    columns.render()
}

/// `show version`.
pub fn version(v: &VersionEntry) -> String {
    format!(
        "mmb {}\nengine: {}\nprocess {}, up {} s, {}\n",
        v.version,
        v.engine,
        v.pid,
        v.uptime_seconds,
        count(v.rules, "rule")
    )
}

/// `diff`: lines that go with `-`, lines that come with `+`; nothing when nothing would change.
pub fn diff(d: &DiffReply) -> String {
    let mut text = String::new();
    for (sign, lines) in [('-', &d.removed), ('+', &d.added)] {
        for line in lines {
            let _ = writeln!(text, "{sign} {line}");
        }
    }
    if d.reordered {
        text.push_str("# the rules that stay change their order\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{RoutedEntry, RuleEntry, TableEntry, TwinEntry};

    #[test]
    fn a_rule_list_is_aligned() {
        let entry =
            |index, packets, bytes, text: &str| RuleEntry { index, packets, bytes, text: text.to_owned() };
        let rules = vec![entry(1, 12, 7200, "add ip-proto udp drop"), entry(107, 0, 0, "add all accept")];
        let expected = "\
index  packets  bytes  rule
    1       12   7200  add ip-proto udp drop
  107        0      0  add all accept
";
        assert_eq!(super::rules(&RuleList { rules }), expected);
        assert_eq!(super::rules(&RuleList::default()), "no rules\n");
    }

    #[test]
    fn a_down_interface_says_why() {
        let i = InterfaceEntry {
            name: "a".into(),
            kind: "af-xdp eth9".into(),
            reason: Some("there is no interface eth9".into()),
            ..InterfaceEntry::default()
        };
        let text = interfaces(&InterfaceList { interfaces: vec![i] }, false);
        assert!(text.ends_with("a: down: there is no interface eth9\n"), "{text}");
        assert!(text.lines().nth(1).is_some_and(|l| l.contains("  down  ")), "{text}");
    }

    #[test]
    fn a_routed_interface_tells_its_face_and_what_it_dropped() {
        let mut i = InterfaceEntry {
            name: "lan".into(),
            kind: "af-xdp eth1".into(),
            state: InterfaceState::Up,
            routed: Some(RoutedEntry { interface: "eth1".into(), ..RoutedEntry::default() }),
            drops: [("no-route".to_owned(), 3), ("ttl-expired".to_owned(), 2)].into_iter().collect(),
            ..InterfaceEntry::default()
        };
        let text = interfaces(&InterfaceList { interfaces: vec![i.clone()] }, false);
        assert!(text.lines().nth(1).is_some_and(|l| l.contains("  routed  ")), "{text}");
        let below = "lan: its addresses are those of eth1\nlan: dropped: no-route 3, ttl-expired 2\n";
        assert!(text.ends_with(below), "{text}");
        let twin = TwinEntry { to_kernel: 7, from_kernel: 5 };
        i.routed = Some(RoutedEntry { interface: "lan".into(), twin: Some(twin) });
        i.drops.clear();
        let text = interfaces(&InterfaceList { interfaces: vec![i] }, false);
        let below = "lan: its addresses are those of the twin lan; 7 packets to the kernel, 5 from it\n";
        assert!(text.ends_with(below), "{text}");
    }

    #[test]
    fn tables_are_summed_up_or_shown_as_a_tree() {
        let part = |depth, structure: &str, rules, bytes, fields: &str| TableEntry {
            depth,
            structure: structure.to_owned(),
            rules,
            bytes,
            keys: rules,
            lanes: 2 * rules,
            fields: fields.to_owned(),
            ..TableEntry::default()
        };
        let list = TableList {
            tables: vec![
                part(0, "leaf", 3, 100, ""),
                part(0, "hash", 40, 1_000, "ip-saddr/24"),
                part(1, "hash", 30, 500, "tcp-dport"),
                part(1, "bits", 10, 70, ""),
            ],
            stale: false,
        };
        let expected = "\
structure  rules  keys  full  longest  parts  bytes  fields
leaf           3     -     -        0      0    100
hash          40    40  50 %        0      2   1570  ip-saddr/24
";
        assert_eq!(tables(&list, false), expected);
        let all = tables(&list, true);
        assert!(all.lines().count() == 5 && all.contains("\n  hash") && all.contains("\n  bits"), "{all}");
    }

    #[test]
    fn drops_without_any_say_so() {
        let mut list =
            DropList { drops: [("rule".to_owned(), 0)].into_iter().collect(), ..DropList::default() };
        assert_eq!(drops(&list, false), "nothing dropped\n");
        list.drops.insert("unwired".to_owned(), 3);
        let text = drops(&list, false);
        assert!(text.contains("unwired") && !text.contains("rule"), "{text}");
        assert!(drops(&list, true).contains("rule"));
        list.unedited.insert("option-mtu".to_owned(), 0);
        assert_eq!(drops(&list, false), text);
        list.unedited.insert("option-space".to_owned(), 7);
        let both = drops(&list, false);
        let unedited = both.strip_prefix(&text).expect("a section of its own behind the other");
        assert!(unedited.starts_with("went on unedited:\n") && unedited.contains("option-space"), "{both}");
        assert!(!unedited.contains("option-mtu"), "{both}");
    }
}
