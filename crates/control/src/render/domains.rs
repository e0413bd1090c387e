//! `show domains` as text.

use std::fmt::Write;

use super::columns::Align::{Left, Right};
use super::columns::Columns;
use crate::api::{DomainList, ProcessEntry};

/// `show domains`; `verbose` adds all counters.
pub(crate) fn domains(list: &DomainList, verbose: bool) -> String {
    if list.domains.is_empty() {
        return "no domains; add one with `domain add NAME private|zero-copy`\n".to_owned();
    }
    let mut columns = Columns::new([
        ("domain", Left),
        ("kind", Left),
        ("buffers", Right),
        ("used", Right),
        ("on-failure", Left),
        ("functions", Left),
    ]);
    for domain in &list.domains {
        let names: Vec<&str> = domain.functions.iter().map(|one| &*one.function).collect();
        columns.row([
            domain.name.clone(),
            domain.kind.clone(),
            domain.buffers.to_string(),
            domain.used.to_string(),
            domain.on_failure.clone(),
            if names.is_empty() { "-".to_owned() } else { names.join(",") },
        ]);
    }
    let mut text = columns.render();
    let functions: Vec<&ProcessEntry> = list.domains.iter().flat_map(|domain| &domain.functions).collect();
    if !functions.is_empty() {
        text.push('\n');
        text.push_str(&processes(&functions));
    }
    for one in functions {
        let name = &one.function;
        // Writing to a String cannot fail.
        if let Some(reason) = &one.last_failure {
            let _ = writeln!(text, "{name}: last failure: {}", reason.replace('\n', " "));
        }
        let counters = [
            ("in place", one.in_place),
            ("wakeups", one.wakeups),
            ("ring slots", one.slots),
            ("buffers in use", one.buffers),
            ("no room", one.full),
            ("lost", one.lost),
        ];
        for (what, n) in counters.into_iter().filter(|_| verbose) {
            let _ = writeln!(text, "{name}: {what}: {n}");
        }
    }
    text
}

fn processes(functions: &[&ProcessEntry]) -> String {
    let mut columns = Columns::new([
        ("function", Left),
        ("mode", Left),
        ("state", Left),
        ("process", Right),
        ("restarts", Right),
        ("cpu", Right),
        ("descriptors", Right),
        ("waiting", Right),
        ("returned", Right),
        ("credits", Right),
        ("refused", Right),
    ]);
    for one in functions {
        columns.row([
            one.function.clone(),
            one.processor.map_or_else(|| one.mode.clone(), |cpu| format!("{} cpu {cpu}", one.mode)),
            if one.process.is_some() { "up" } else { "down" }.to_owned(),
            one.process.map_or_else(|| "-".to_owned(), |process| process.to_string()),
            one.restarts.to_string(),
            format!("{:.2} s", one.cpu_seconds),
            one.descriptors.to_string(),
            one.waiting.to_string(),
            one.returned.to_string(),
            one.credits.to_string(),
            one.refused.to_string(),
        ]);
    }
    columns.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::DomainStatus;

    #[test]
    fn a_process_that_has_ended_has_its_reason() {
        let none = "no domains; add one with `domain add NAME private|zero-copy`\n";
        assert_eq!(domains(&DomainList::default(), true), none);
        let mut domain = DomainStatus {
            name: "tenant1".into(),
            kind: "private".into(),
            buffers: 4096,
            on_failure: "drop".into(),
            ..DomainStatus::default()
        };
        let shown =
            |domain: &DomainStatus, verbose| domains(&DomainList { domains: vec![domain.clone()] }, verbose);
        let head = "domain   kind     buffers  used  on-failure  functions\n";
        assert_eq!(shown(&domain, false), format!("{head}tenant1  private     4096     0  drop        -\n"));
        domain.functions.push(ProcessEntry {
            function: "fw".into(),
            mode: "event".into(),
            processor: Some(3),
            restarts: 2,
            wakeups: 7,
            last_failure: Some("has ended (signal 9)".into()),
            ..ProcessEntry::default()
        });
        let text = shown(&domain, true);
        assert!(text.contains("\nfw        event cpu 3  down         -         2"), "{text}");
        assert!(
            text.contains("\nfw: last failure: has ended (signal 9)\nfw: in place: 0\nfw: wakeups: 7\n"),
            "{text}"
        );
    }
}
