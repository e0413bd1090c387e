use super::*;
use crate::api::{RoutedEntry, RuleEntry, TableEntry, TwinEntry};

#[test]
fn a_rule_list_is_aligned() {
    let entry = |index, packets, bytes, text: &str| RuleEntry {
        index,
        packets,
        bytes,
        text: text.to_owned(),
        ..RuleEntry::default()
    };
    let drop = RuleEntry { decided: Some(9), ..entry(1, 12, 7200, "add ip-proto udp drop") };
    let rules = vec![drop, entry(107, 0, 0, "add all mod ip-ttl 3")];
    let expected = "\
index  packets  bytes  decided  rule
    1       12   7200        9  add ip-proto udp drop
  107        0      0        -  add all mod ip-ttl 3
";
    assert_eq!(super::rules(&RuleList { rules }), expected);
    assert_eq!(super::rules(&RuleList::default()), "no rules\n");
}

#[test]
fn a_down_interface_has_its_reason() {
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
fn a_routed_interface_has_its_kernel_interface_and_drops() {
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
fn tables_are_summed_or_shown_as_a_tree() {
    let part = |depth, structure: &str, rules, bytes, fields: &str| TableEntry {
        depth,
        structure: structure.to_owned(),
        rules,
        bytes,
        keys: rules,
        capacity: 2 * rules,
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
fn drops_show_reasons_that_have_occurred() {
    let mut list = DropList { drops: [("rule".to_owned(), 0)].into_iter().collect(), ..DropList::default() };
    assert_eq!(drops(&list, false), "no drops\n");
    list.drops.insert("unwired".to_owned(), 3);
    let text = drops(&list, false);
    assert!(text.contains("unwired") && !text.contains("rule"), "{text}");
    assert!(drops(&list, true).contains("rule"));
    list.unedited.insert("option-mtu".to_owned(), 0);
    assert_eq!(drops(&list, false), text);
    list.unedited.insert("option-space".to_owned(), 7);
    let both = drops(&list, false);
    let unedited = both.strip_prefix(&text).expect("a section after the drops");
    assert!(unedited.starts_with("forwarded unedited:\n") && unedited.contains("option-space"), "{both}");
    assert!(!unedited.contains("option-mtu"), "{both}");
}
