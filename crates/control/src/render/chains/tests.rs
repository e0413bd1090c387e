use super::*;
use crate::api::{RegionEntry, TypeEntry};

fn region(function: &str, offset: u64, bytes: u64) -> RegionEntry {
    RegionEntry { function: function.to_owned(), offset, bytes }
}

fn path(functions: &[&str], bytes: u64, used: u64, drops: bool) -> PathEntry {
    let functions = functions.iter().map(|&name| name.to_owned()).collect();
    PathEntry { functions, after_flow: 0, bytes, used, drops }
}

/// Figure 3 of the MiddleClick paper, after the bytes of the engine.
fn figure3() -> ChainList {
    ChainList {
        chains: vec![ChainEntry {
            name: "web".to_owned(),
            body: "[monitor, filter] | lb".to_owned(),
            rules: vec![1, 7],
            bytes: 56,
            paths: vec![path(&["monitor", "lb"], 56, 44, false), path(&["filter", "lb"], 56, 56, false)],
            ..ChainEntry::default()
        }],
        scratchpad: ScratchpadEntry {
            bytes: 56,
            limit: 256,
            header: 8,
            regions: vec![region("monitor", 8, 24), region("filter", 8, 36), region("lb", 44, 12)],
        },
        functions: vec![CostEntry {
            name: "lb".to_owned(),
            packets: 4,
            consumed: 3,
            held: 2,
            released: 1,
            ticks: 50,
            ticks_per_packet: 12.5,
            ..CostEntry::default()
        }],
    }
}

#[test]
fn chains_are_drawn() {
    let list = figure3();
    let short = "\
chain  rules  bytes  translates  traffic  functions
web    1,7       56  no          all      [monitor, filter] | lb
";
    assert_eq!(chains(&list, false), short);
    let long = "
scratchpad: 56 of 256 bytes; below, a character is 1 byte: = the engine's, . a hole
   offset  bytes  function
a       8     24  monitor
b       8     36  filter
c      44     12  lb
path  bytes  holes                                                            functions
web      56     12  ========aaaaaaaaaaaaaaaaaaaaaaaa............cccccccccccc  monitor | lb
web      56      0  ========bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbcccccccccccc  filter | lb

function  packets  dropped  refused  held  released  ticks/packet
lb              4        0        0     2         1          12.5
";
    assert_eq!(chains(&list, true), format!("{short}{long}"));
    assert!(chains(&ChainList::default(), true).starts_with("no chains; "));
}

#[test]
fn functions_after_a_second_flow_manager_have_their_bytes_elsewhere() {
    let mut list = figure3();
    list.chains[0].paths =
        vec![PathEntry { after_flow: 1, ..path(&["filter", "again", "lb"], 44, 44, false) }];
    let text = chains(&list, true);
    let drawn = format!("{}{}{}  filter | again | lb", "=".repeat(8), "b".repeat(36), ".".repeat(12));
    assert!(text.contains(&drawn), "{text}");
}

#[test]
fn large_scratchpads_are_drawn_coarsely() {
    let mut list = figure3();
    (list.scratchpad.bytes, list.scratchpad.limit) = (4000, 4096);
    list.scratchpad.regions[2].offset = 3988;
    let text = chains(&list, true);
    assert!(text.contains("is 64 bytes") && text.contains(" a....") && text.contains("....c "), "{text}");
    assert!(text.lines().all(|line| line.len() < 120), "{text}");
}

#[test]
fn functions_report() {
    let report = [("10.0.0.2", "up, 3 sessions"), ("10.0.0.3", "a\nlb: 10.0.0.2: down")];
    let report = report.map(|(what, value)| (what.to_owned(), value.to_owned())).into_iter().collect();
    let list = FunctionList {
        domains: Vec::new(),
        functions: vec![FunctionEntry {
            type_: "lb".to_owned(),
            arguments: vec!["10.0.0.2".to_owned(), "10.0.0.3".to_owned()],
            chains: vec!["web".to_owned()],
            key: "session".to_owned(),
            bytes: 8,
            cost: figure3().functions.remove(0),
            report,
            ..FunctionEntry::default()
        }],
        types: vec![TypeEntry { name: "lb".to_owned(), help: "chooses".to_owned(), ..TypeEntry::default() }],
    };
    let expected = "\
function  type  chains  traffic  bytes  packets  dropped  ticks/packet  arguments
lb        lb    web     all          8        4        0          12.5  10.0.0.2 10.0.0.3
lb: 3 packets replaced by edited ones
lb: 2 packets held, 1 released
lb: 10.0.0.2: up, 3 sessions
lb: 10.0.0.3: a\\nlb: 10.0.0.2: down
";
    assert_eq!(functions(&list, false), expected);
    let all = functions(&list, true);
    assert!(all.starts_with(expected) && all.ends_with("lb        0  -      chooses\n"), "{all}");
    assert!(functions(&FunctionList::default(), false).contains("show functions verbose"));
}
