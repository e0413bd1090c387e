//! `show fast-path` as text.

use std::fmt::Write;

use crate::api::FastPathReply;
use crate::text::count;

/// The reasons for which a flow is not offloaded, with their meaning.
const REASONS: [(&str, &str); 8] = [
    ("not-sent", "its packet was dropped, held, or handed to another worker"),
    ("other-change", "its packet was changed in more than addresses, ports and Ethernet header"),
    ("no-redirect", "it leaves by an interface to which XDP cannot redirect frames"),
    ("next-hop", "its next hop is not resolved"),
    ("session", "it has no session, or one whose packets must all be seen"),
    ("many-rules", "too many rules match it"),
    ("full", "the table is full"),
    ("kernel", "the kernel refused the entry"),
];

/// What one entry of the table stands for.
const KEYS: [(&str, &str); 3] = [
    ("flow", "packets between two addresses and ports"),
    ("pair", "packets between two addresses, where no rule matches ports; else also ports"),
    ("destination", "packets to an address"),
];

/// `show fast-path`; `verbose` adds the reasons that have not occurred.
pub(crate) fn fast_path(reply: &FastPathReply, verbose: bool) -> String {
    let state = match (reply.enabled, &reply.obstacle) {
        (false, _) => "off (`set fast-path auto` enables it)".to_owned(),
        (true, Some(reason)) => format!("{}, but no flow can be offloaded: {reason}", reply.mode),
        (true, None) if reply.active => reply.mode.clone(),
        (true, None) => format!("{}, but no interface supports it", reply.mode),
    };
    let mut text = format!("fast path: {state}\n");
    if let Some((_, what)) = reply.key.as_ref().and_then(|key| KEYS.iter().find(|(name, _)| name == key)) {
        let _ = writeln!(text, "one entry: {what}");
    }
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{} in the kernel, {} so far; forwarded there: {} ({})",
        count(reply.entries, "flow"),
        reply.installed,
        count(reply.packets, "packet"),
        count(reply.bytes, "byte"),
    );
    for i in &reply.interfaces {
        let what = match (i.ingress, i.egress) {
            (true, true) => "in and out",
            (true, false) => "in only",
            _ => "no",
        };
        let program = i.program.as_ref().filter(|_| i.ingress || i.egress);
        let program = program.map_or_else(String::new, |program| format!(" at {program}"));
        let reason = i.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        let _ = writeln!(text, "{}: {what}{program}{reason}", i.name);
    }
    for (reason, n) in reply.refused.iter().filter(|&(_, &n)| verbose || n > 0) {
        let meaning = REASONS.iter().find(|(name, _)| name == reason).map_or("", |(_, meaning)| meaning);
        let _ = writeln!(text, "not offloaded, {reason}: {n} ({meaning})");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::FastInterfaceEntry;

    fn reply() -> FastPathReply {
        let refused = REASONS.iter().map(|(reason, _)| ((*reason).to_owned(), 0)).collect();
        FastPathReply {
            enabled: true,
            mode: "auto".to_owned(),
            active: true,
            entries: 1,
            installed: 2,
            refused,
            ..FastPathReply::default()
        }
    }

    #[test]
    fn the_first_line_has_the_state() {
        let first =
            |reply: &FastPathReply| fast_path(reply, false).lines().next().unwrap_or_default().to_owned();
        let mut it = reply();
        assert_eq!(first(&it), "fast path: auto");
        it.active = false;
        assert_eq!(first(&it), "fast path: auto, but no interface supports it");
        it.obstacle = Some("rule 3 has to see each packet: `ip-ttl`".to_owned());
        assert!(first(&it).ends_with("no flow can be offloaded: rule 3 has to see each packet: `ip-ttl`"));
        it.enabled = false;
        assert!(first(&it).starts_with("fast path: off"));
        assert!(!fast_path(&it, true).contains("one entry"));
        for (key, what) in KEYS {
            it.key = Some(key.to_owned());
            assert!(fast_path(&it, false).contains(&format!("\none entry: {what}\n")));
        }
    }

    #[test]
    fn reasons_that_have_occurred_are_shown() {
        let mut it = reply();
        assert_eq!(fast_path(&it, false).lines().count(), 2);
        it.refused.insert("full".to_owned(), 3);
        assert!(fast_path(&it, false).ends_with("not offloaded, full: 3 (the table is full)\n"));
        assert_eq!(fast_path(&it, true).lines().count(), 2 + REASONS.len());
        it.interfaces = vec![FastInterfaceEntry {
            name: "lan".into(),
            program: Some("xdp".into()),
            ingress: true,
            egress: false,
            reason: Some("so".into()),
        }];
        assert!(fast_path(&it, false).contains("\nlan: in only at xdp: so\n"));
    }
}
