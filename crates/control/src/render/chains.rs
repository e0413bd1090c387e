//! Network functions and service chains as text.

use std::fmt::Write;

use super::columns::Align::{Left, Right};
use super::columns::Columns;
use super::count;
use crate::api::{ChainEntry, ChainList, CostEntry, FunctionEntry, FunctionList, ScratchpadEntry, WayEntry};

/// Most characters of a picture of a scratchpad.
const PICTURE: u64 = 64;

/// What stands for the engine's bytes, and for those that nothing uses.
const ENGINE: char = '=';
const HOLE: char = '.';

/// What stands for functions, in the order of their offsets.
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// `show chains`; `verbose` draws the scratchpads and adds what functions cost.
pub fn chains(list: &ChainList, verbose: bool) -> String {
    if list.chains.is_empty() {
        return "no chains; add one with `chain add NAME FUNCTION | FUNCTION …`\n".to_owned();
    }
    let mut columns = Columns::new([
        ("chain", Left),
        ("rules", Left),
        ("bytes", Right),
        ("translates", Left),
        ("takes", Left),
        ("functions", Left),
    ]);
    for chain in &list.chains {
        columns.row([
            chain.name.clone(),
            super::sessions::rules(&chain.rules),
            chain.bytes.to_string(),
            if chain.translates { "yes" } else { "no" }.to_owned(),
            all_if_empty(&chain.takes),
            chain.body.clone(),
        ]);
    }
    let mut text = columns.render();
    if verbose {
        text.push('\n');
        text.push_str(&picture(&list.scratchpad, &list.chains));
        text.push('\n');
        text.push_str(&costs(list.functions.iter()));
    }
    text
}

/// The scratchpads of sessions, drawn: where each function has its bytes, and what is used on each way.
fn picture(scratchpad: &ScratchpadEntry, chains: &[ChainEntry]) -> String {
    let unit = scratchpad.bytes.div_ceil(PICTURE).next_power_of_two();
    let mut text = format!(
        "scratchpad: {} of {} bytes; below, a character is {}: {ENGINE} the engine's, {HOLE} a hole\n",
        scratchpad.bytes,
        scratchpad.limit,
        count(unit, "byte")
    );
    let letters: Vec<(char, &str)> =
        LETTERS.chars().cycle().zip(scratchpad.places.iter().map(|place| place.function.as_str())).collect();
    let mut columns = Columns::new([("", Left), ("offset", Right), ("bytes", Right), ("function", Left)]);
    for (place, (letter, name)) in scratchpad.places.iter().zip(&letters) {
        let numbers = (place.offset.to_string(), place.bytes.to_string());
        columns.row([letter.to_string(), numbers.0, numbers.1, (*name).to_owned()]);
    }
    if !columns.is_empty() {
        text.push_str(&columns.render());
    }
    let mut columns =
        Columns::new([("way", Left), ("bytes", Right), ("holes", Right), ("", Left), ("functions", Left)]);
    for chain in chains {
        for way in &chain.ways {
            let end = if way.drops { " | drop" } else { "" };
            columns.row([
                chain.name.clone(),
                way.bytes.to_string(),
                way.bytes.saturating_sub(way.used).to_string(),
                draw(way, scratchpad, &letters, unit),
                format!("{}{end}", way.functions.join(" | ")),
            ]);
        }
    }
    text + &columns.render()
}

/// One way's bytes.
fn draw(way: &WayEntry, scratchpad: &ScratchpadEntry, letters: &[(char, &str)], unit: u64) -> String {
    let mut cells = vec![HOLE; scratchpad.bytes.div_ceil(unit) as usize];
    let mut fill = |offset: u64, bytes: u64, with: char| {
        let (first, behind) = (offset / unit, (offset + bytes).div_ceil(unit));
        for cell in cells.iter_mut().take(behind as usize).skip(first as usize) {
            *cell = with;
        }
    };
    fill(0, scratchpad.header, ENGINE);
    for (place, (letter, name)) in scratchpad.places.iter().zip(letters) {
        let here = way.functions.len().saturating_sub(way.behind as usize);
        if way.functions.iter().take(here).any(|function| function == name) {
            fill(place.offset, place.bytes, *letter);
        }
    }
    cells.into_iter().collect()
}

/// What functions have done, and what that cost.
fn costs<'a>(functions: impl Iterator<Item = &'a CostEntry>) -> String {
    let mut columns = Columns::new([
        ("function", Left),
        ("packets", Right),
        ("dropped", Right),
        ("refused", Right),
        ("ticks/packet", Right),
    ]);
    for cost in functions {
        columns.row([
            cost.name.clone(),
            cost.packets.to_string(),
            cost.drops.to_string(),
            cost.refused.to_string(),
            format!("{:.1}", cost.ticks_per_packet),
        ]);
    }
    columns.render()
}

/// `show functions`: instances, and below what they say of themselves; `verbose` adds the types there are.
pub fn functions(list: &FunctionList, verbose: bool) -> String {
    let mut text = if list.functions.is_empty() {
        "no functions; add one with `nf add NAME TYPE …`\n".to_owned()
    } else {
        instances(&list.functions)
    };
    for function in &list.functions {
        for (what, value) in &function.report {
            let _ = writeln!(text, "{}: {what}: {value}", function.cost.name);
        }
    }
    if verbose {
        let mut columns =
            Columns::new([("type", Left), ("bytes", Right), ("usage", Left), ("meaning", Left)]);
        for kind in &list.types {
            let usage = if kind.usage.is_empty() { "-" } else { &kind.usage };
            columns.row([kind.name.clone(), kind.bytes.to_string(), usage.to_owned(), kind.help.clone()]);
        }
        text.push('\n');
        text.push_str(&columns.render());
    } else if list.functions.is_empty() {
        text.push_str("`show functions verbose` lists the types there are\n");
    }
    text
}

fn instances(functions: &[FunctionEntry]) -> String {
    let mut columns = Columns::new([
        ("function", Left),
        ("type", Left),
        ("chains", Left),
        ("takes", Left),
        ("bytes", Right),
        ("packets", Right),
        ("dropped", Right),
        ("ticks/packet", Right),
        ("arguments", Left),
    ]);
    for function in functions {
        let cost = &function.cost;
        let key = if function.key == "session" { String::new() } else { format!("/{}", function.key) };
        columns.row([
            cost.name.clone(),
            function.type_.clone(),
            if function.chains.is_empty() { "-".to_owned() } else { function.chains.join(",") },
            all_if_empty(&function.takes),
            format!("{}{key}", function.bytes),
            cost.packets.to_string(),
            cost.drops.to_string(),
            format!("{:.1}", cost.ticks_per_packet),
            function.arguments.join(" "),
        ]);
    }
    columns.render()
}

fn all_if_empty(matches: &str) -> String {
    if matches.is_empty() { "all".to_owned() } else { matches.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{PlaceEntry, TypeEntry};

    fn place(function: &str, offset: u64, bytes: u64) -> PlaceEntry {
        PlaceEntry { function: function.to_owned(), offset, bytes }
    }

    fn way(functions: &[&str], bytes: u64, used: u64, drops: bool) -> WayEntry {
        let functions = functions.iter().map(|&name| name.to_owned()).collect();
        WayEntry { functions, behind: 0, bytes, used, drops }
    }

    /// The paper's Figure 3, behind the engine's bytes.
    fn figure3() -> ChainList {
        ChainList {
            chains: vec![ChainEntry {
                name: "web".to_owned(),
                body: "[monitor, filter] | lb".to_owned(),
                rules: vec![1, 7],
                bytes: 56,
                ways: vec![way(&["monitor", "lb"], 56, 44, false), way(&["filter", "lb"], 56, 56, false)],
                ..ChainEntry::default()
            }],
            scratchpad: ScratchpadEntry {
                bytes: 56,
                limit: 256,
                header: 8,
                places: vec![place("monitor", 8, 24), place("filter", 8, 36), place("lb", 44, 12)],
            },
            functions: vec![CostEntry {
                name: "lb".to_owned(),
                packets: 4,
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
chain  rules  bytes  translates  takes  functions
web    1,7       56  no          all    [monitor, filter] | lb
";
        assert_eq!(chains(&list, false), short);
        let long = "
scratchpad: 56 of 256 bytes; below, a character is 1 byte: = the engine's, . a hole
   offset  bytes  function
a       8     24  monitor
b       8     36  filter
c      44     12  lb
way  bytes  holes                                                            functions
web     56     12  ========aaaaaaaaaaaaaaaaaaaaaaaa............cccccccccccc  monitor | lb
web     56      0  ========bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbcccccccccccc  filter | lb

function  packets  dropped  refused  ticks/packet
lb              4        0        0          12.5
";
        assert_eq!(chains(&list, true), format!("{short}{long}"));
        assert!(chains(&ChainList::default(), true).starts_with("no chains; "));
    }

    #[test]
    fn what_stands_behind_a_second_flow_manager_has_its_bytes_elsewhere() {
        let mut list = figure3();
        list.chains[0].ways = vec![WayEntry { behind: 1, ..way(&["filter", "again", "lb"], 44, 44, false) }];
        let text = chains(&list, true);
        let drawn = format!("{}{}{}  filter | again | lb", "=".repeat(8), "b".repeat(36), ".".repeat(12));
        assert!(text.contains(&drawn), "{text}");
    }

    #[test]
    fn large_scratchpads_are_drawn_coarsely() {
        let mut list = figure3();
        (list.scratchpad.bytes, list.scratchpad.limit) = (4000, 4096);
        list.scratchpad.places[2].offset = 3988;
        let text = chains(&list, true);
        assert!(text.contains("is 64 bytes") && text.contains(" a....") && text.contains("....c "), "{text}");
        assert!(text.lines().all(|line| line.len() < 120), "{text}");
    }

    #[test]
    fn functions_report() {
        let report = [("10.0.0.2".to_owned(), "up, 3 sessions".to_owned())].into_iter().collect();
        let list = FunctionList {
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
            types: vec![TypeEntry {
                name: "lb".to_owned(),
                help: "chooses".to_owned(),
                ..TypeEntry::default()
            }],
        };
        let expected = "\
function  type  chains  takes  bytes  packets  dropped  ticks/packet  arguments
lb        lb    web     all        8        4        0          12.5  10.0.0.2 10.0.0.3
lb: 10.0.0.2: up, 3 sessions
";
        assert_eq!(functions(&list, false), expected);
        let all = functions(&list, true);
        assert!(all.starts_with(expected) && all.ends_with("lb        0  -      chooses\n"), "{all}");
        assert!(functions(&FunctionList::default(), false).contains("show functions verbose"));
    }
}
