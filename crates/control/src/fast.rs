//! `show fast-path`: flows that the kernel sends on by itself.

use std::fmt::Write;

use mmb_dataplane::{FastPortInfo, fast_path_obstacle};

use crate::api::{FastInterfaceEntry, FastPathReply};
use crate::config::Interface;
use crate::control::{Control, State};
use crate::render::count;

/// What the reasons for which a flow gets no place in the kernel mean.
const REASONS: [(&str, &str); 8] = [
    ("not-sent", "its packet was dropped, had to wait, or went to another worker"),
    ("other-change", "more than addresses, ports and Ethernet header of its packet was changed"),
    ("no-redirect", "its way out is no af-xdp interface, or one that cannot take frames from the kernel"),
    ("next-hop", "its next hop is not settled"),
    ("session", "it has no session, or one of which each packet has to be seen"),
    ("many-rules", "too many rules match it"),
    ("full", "there is no place left"),
    ("kernel", "the kernel did not take it"),
];

/// What one entry is for.
const KEYS: [(&str, &str); 3] = [
    ("flow", "what goes between two addresses and ports"),
    ("pair", "what goes between two addresses, where no rule looks at ports; and ports"),
    ("destination", "what goes to an address"),
];

/// Why frames cannot be redirected to an interface that is otherwise fit.
const IN_ONLY: &str = "its interface takes no frames from the kernel (of a veth, the peer's end has to receive with GRO on: \
                       ethtool -K PEER gro on)";

impl Control {
    /// `show fast-path`.
    pub fn fast_path(&self) -> FastPathReply {
        let State { config, .. } = self.present();
        let info = self.engine().fast_path();
        let entry = |i: &Interface| {
            let (from, to, reason) = match self.engine().fast_port(i.id) {
                Some(FastPortInfo::Both) => (true, true, None),
                Some(FastPortInfo::InOnly) => (true, false, Some(IN_ONLY.to_owned())),
                Some(FastPortInfo::None(why)) => (false, false, Some(why)),
                None => (false, false, Some("it is down".to_owned())),
            };
            FastInterfaceEntry { name: i.name.clone(), from, to, reason }
        };
        FastPathReply {
            on: config.fast_path(),
            active: info.learns,
            obstacle: fast_path_obstacle(config.policy(), config.nat().compiled(), config.settings()),
            key: info.key.map(str::to_owned),
            entries: info.entries,
            installed: info.installed,
            packets: info.packets,
            bytes: info.bytes,
            refused: info.refused.into_iter().map(|(why, n)| (why.to_owned(), n)).collect(),
            interfaces: config.interfaces().iter().map(entry).collect(),
        }
    }
}

/// The same for people; `verbose` shows reasons that have not occurred as well.
pub(crate) fn render(reply: &FastPathReply, verbose: bool) -> String {
    let state = match (reply.on, &reply.obstacle) {
        (false, _) => "off (`set xdp-fast-path on` switches it on)".to_owned(),
        (true, Some(why)) => format!("on, but no flow can have it: {why}"),
        (true, None) if reply.active => "on".to_owned(),
        (true, None) => "on, but no interface has one".to_owned(),
    };
    let mut text = format!("fast path: {state}\n");
    if let Some((_, what)) = reply.key.as_ref().and_then(|key| KEYS.iter().find(|(name, _)| name == key)) {
        let _ = writeln!(text, "what is one flow to it: {what}");
    }
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{} in the kernel, {} so far; it has sent on {} ({})",
        count(reply.entries, "flow"),
        reply.installed,
        count(reply.packets, "packet"),
        count(reply.bytes, "byte"),
    );
    for i in &reply.interfaces {
        let what = match (i.from, i.to) {
            (true, true) => "in and out",
            (true, false) => "in only",
            _ => "no",
        };
        let why = i.reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        let _ = writeln!(text, "{}: {what}{why}", i.name);
    }
    for (why, n) in reply.refused.iter().filter(|&(_, &n)| verbose || n > 0) {
        let meaning = REASONS.iter().find(|(name, _)| name == why).map_or("", |(_, meaning)| meaning);
        let _ = writeln!(text, "not taken, {why}: {n} ({meaning})");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply() -> FastPathReply {
        let refused = REASONS.iter().map(|(why, _)| ((*why).to_owned(), 0)).collect();
        FastPathReply {
            on: true,
            active: true,
            entries: 1,
            installed: 2,
            refused,
            ..FastPathReply::default()
        }
    }

    #[test]
    fn the_first_line_says_whether_it_works() {
        let first =
            |reply: &FastPathReply| render(reply, false).lines().next().unwrap_or_default().to_owned();
        let mut it = reply();
        assert_eq!(first(&it), "fast path: on");
        it.active = false;
        assert_eq!(first(&it), "fast path: on, but no interface has one");
        it.obstacle = Some("rule 3 has to see each packet: `ip-ttl`".to_owned());
        assert!(first(&it).ends_with("no flow can have it: rule 3 has to see each packet: `ip-ttl`"));
        it.on = false;
        assert!(first(&it).starts_with("fast path: off"));
        assert!(!render(&it, true).contains("one flow"));
        for (key, what) in KEYS {
            it.key = Some(key.to_owned());
            assert!(render(&it, false).contains(&format!("\nwhat is one flow to it: {what}\n")));
        }
    }

    #[test]
    fn reasons_that_have_occurred_are_told() {
        let mut it = reply();
        assert_eq!(render(&it, false).lines().count(), 2);
        it.refused.insert("full".to_owned(), 3);
        assert!(render(&it, false).ends_with("not taken, full: 3 (there is no place left)\n"));
        assert_eq!(render(&it, true).lines().count(), 2 + REASONS.len());
        it.interfaces =
            vec![FastInterfaceEntry { name: "lan".into(), from: true, to: false, reason: Some("so".into()) }];
        assert!(render(&it, false).contains("\nlan: in only: so\n"));
    }
}
