//! Network functions and service chains as text.

use std::fmt::Write;

use super::columns::Align::{Left, Right};
use super::columns::{Columns, one_line};
use crate::api::{
    ChainEntry, ChainList, CostEntry, DomainEntry, FunctionEntry, FunctionList, PathEntry, ScratchpadEntry,
};
use crate::text::count;

/// Maximum width of a drawn scratchpad, in characters.
const PICTURE: u64 = 64;

/// Character for bytes of the engine.
const ENGINE: char = '=';
/// Character for unused bytes.
const HOLE: char = '.';

/// Characters for the bytes of functions, in the order of their offsets.
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// `show chains`; `verbose` adds drawn scratchpads and the cost of functions.
pub fn chains(list: &ChainList, verbose: bool) -> String {
    if list.chains.is_empty() {
        return "no chains; add one with `chain add NAME FUNCTION | FUNCTION …`\n".to_owned();
    }
    let mut columns = Columns::new([
        ("chain", Left),
        ("rules", Left),
        ("bytes", Right),
        ("translates", Left),
        ("traffic", Left),
        ("functions", Left),
    ]);
    for chain in &list.chains {
        columns.row([
            chain.name.clone(),
            super::sessions::rules(&chain.rules),
            chain.bytes.to_string(),
            if chain.translates { "yes" } else { "no" }.to_owned(),
            all_if_empty(&chain.traffic),
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

/// Draws the scratchpads of sessions: the bytes of each function, and the bytes in use on each path.
fn picture(scratchpad: &ScratchpadEntry, chains: &[ChainEntry]) -> String {
    let unit = scratchpad.bytes.div_ceil(PICTURE).next_power_of_two();
    let mut text = format!(
        "scratchpad: {} of {} bytes; below, a character is {}: {ENGINE} the engine's, {HOLE} a hole\n",
        scratchpad.bytes,
        scratchpad.limit,
        count(unit, "byte")
    );
    let letters: Vec<(char, &str)> = LETTERS
        .chars()
        .cycle()
        .zip(scratchpad.regions.iter().map(|region| region.function.as_str()))
        .collect();
    let mut columns = Columns::new([("", Left), ("offset", Right), ("bytes", Right), ("function", Left)]);
    for (region, (letter, name)) in scratchpad.regions.iter().zip(&letters) {
        let numbers = (region.offset.to_string(), region.bytes.to_string());
        columns.row([letter.to_string(), numbers.0, numbers.1, (*name).to_owned()]);
    }
    if !columns.is_empty() {
        text.push_str(&columns.render());
    }
    let mut columns =
        Columns::new([("path", Left), ("bytes", Right), ("holes", Right), ("", Left), ("functions", Left)]);
    for chain in chains {
        for path in &chain.paths {
            let end = if path.drops { " | drop" } else { "" };
            columns.row([
                chain.name.clone(),
                path.bytes.to_string(),
                path.bytes.saturating_sub(path.used).to_string(),
                draw(path, scratchpad, &letters, unit),
                format!("{}{end}", path.functions.join(" | ")),
            ]);
        }
    }
    text + &columns.render()
}

/// Draws the bytes of one path.
fn draw(path: &PathEntry, scratchpad: &ScratchpadEntry, letters: &[(char, &str)], unit: u64) -> String {
    let mut cells = vec![HOLE; scratchpad.bytes.div_ceil(unit) as usize];
    let mut fill = |offset: u64, bytes: u64, with: char| {
        let (first, end) = (offset / unit, (offset + bytes).div_ceil(unit));
        for cell in cells.iter_mut().take(end as usize).skip(first as usize) {
            *cell = with;
        }
    };
    fill(0, scratchpad.header, ENGINE);
    for (region, (letter, name)) in scratchpad.regions.iter().zip(letters) {
        let before_flow = path.functions.len().saturating_sub(path.after_flow as usize);
        if path.functions.iter().take(before_flow).any(|function| function == name) {
            fill(region.offset, region.bytes, *letter);
        }
    }
    cells.into_iter().collect()
}

/// Counters and cost of functions.
fn costs<'a>(functions: impl Iterator<Item = &'a CostEntry>) -> String {
    let mut columns = Columns::new([
        ("function", Left),
        ("packets", Right),
        ("dropped", Right),
        ("refused", Right),
        ("held", Right),
        ("released", Right),
        ("ticks/packet", Right),
    ]);
    for cost in functions {
        columns.row([
            cost.name.clone(),
            cost.packets.to_string(),
            cost.drops.to_string(),
            cost.refused.to_string(),
            cost.held.to_string(),
            cost.released.to_string(),
            format!("{:.1}", cost.ticks_per_packet),
        ]);
    }
    columns.render()
}

/// `show functions`: instances and their reports; `verbose` adds all types.
pub fn functions(list: &FunctionList, verbose: bool) -> String {
    let mut text = if list.functions.is_empty() {
        "no functions; add one with `nf add NAME TYPE …`\n".to_owned()
    } else {
        instances(&list.functions)
    };
    for DomainEntry { name, kind, buffers, on_failure, functions } in &list.domains {
        let users = if functions.is_empty() { "no function".to_owned() } else { functions.join(",") };
        let _ = writeln!(text, "domain {name}: {kind}, {buffers} buffers, on-failure {on_failure}: {users}");
    }
    for function in &list.functions {
        let CostEntry { name, consumed, held, released, .. } = &function.cost;
        if *consumed > 0 {
            let _ = writeln!(text, "{name}: {} replaced by edited ones", count(*consumed, "packet"));
        }
        if *held > 0 {
            let _ = writeln!(text, "{name}: {} held, {released} released", count(*held, "packet"));
        }
        for (what, value) in &function.report {
            let line = one_line(format!("{}: {what}: {value}", function.cost.name));
            text.push_str(&line);
            text.push('\n');
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
        text.push_str("`show functions verbose` lists the types\n");
    }
    text
}

fn instances(functions: &[FunctionEntry]) -> String {
    let mut columns = Columns::new([
        ("function", Left),
        ("type", Left),
        ("chains", Left),
        ("traffic", Left),
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
            all_if_empty(&function.traffic),
            format!("{}{key}", function.bytes),
            cost.packets.to_string(),
            cost.drops.to_string(),
            format!("{:.1}", cost.ticks_per_packet),
            match &*function.domain {
                "" => function.arguments.join(" "),
                domain => {
                    let cpu = function.processor.map(|cpu| format!("cpu {cpu}")).unwrap_or_default();
                    let words = [&function.arguments.join(" "), "process", domain, &function.mode, &cpu];
                    words.join(" ").trim().to_owned()
                }
            },
        ]);
    }
    columns.render()
}

fn all_if_empty(matches: &str) -> String {
    if matches.is_empty() { "all".to_owned() } else { matches.to_owned() }
}

#[cfg(test)]
mod tests;
