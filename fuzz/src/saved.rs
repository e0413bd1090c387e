//! Properties of files of saved sessions, whatever their bytes are. The fuzz target `saved` runs them on the
//! fuzzer's bytes, tests of `mmb-session` on the corpus and on random bytes.
//!
//! * A file is refused, or written again it has the same bytes.
//! * Any session that is read is restored or left out. When all sessions have ended, nothing is left.

use std::hash::Hasher;

use mmb_flow::SessionSettings;
use mmb_packet::VecPacket;
use mmb_packet::build::{Frame, Ip4, Udp};
use mmb_session::{KeptRules, Placement, SavedRule, SessionFile};
use mmb_session_harness::{RuleSet, SessionHarness};
use siphasher::sip::SipHasher24;

/// Bytes of a file in front of its time: what says which format it has.
const HEAD: usize = 20;
/// Longer than all timeouts, in milliseconds.
const FOREVER: u32 = 100_000_000;

/// Panics if a property does not hold.
pub fn check(bytes: &[u8]) {
    let _ = SessionFile::read(bytes);
    let mut file = Vec::new();
    SessionFile::default().write(&mut file).expect("memory");
    file.truncate(HEAD);
    file.extend_from_slice(bytes);
    let mut checksum = SipHasher24::new();
    checksum.write(&file);
    file.extend(checksum.finish().to_le_bytes());
    if let Ok(read) = SessionFile::read(&file) {
        let mut again = Vec::new();
        read.write(&mut again).expect("memory");
        assert_eq!(again, file);
        restore(&read, 1 + u16::from(bytes.first().copied().unwrap_or(0) % 3));
    }
}

/// Restores all sessions with rules and pools, sends some packets, and lets the sessions end.
fn restore(file: &SessionFile, workers: u16) {
    let lines = [
        "nat pool add p 200.0.0.1-200.0.0.4",
        "nat forward add udp 200.0.0.1 53 to 10.0.0.9 5353",
        "add-stateful ip-saddr 10.0.0.0/8 nat p",
        "add-stateful ip-proto udp accept",
    ];
    let rules = RuleSet::parse(&lines, SessionSettings::default(), None).expect("valid rules");
    let slots: Vec<u32> = rules.policy.rules().map(|view| view.slot).collect();
    let mut harness = SessionHarness::new(workers, 64, 1, rules).expect("memory");
    harness.advance(0);
    let kept: Vec<KeptRules> = file
        .saved
        .lists
        .iter()
        .map(|list| {
            let mut rules: Vec<_> = list
                .iter()
                .map(|rule| SavedRule { slot: slots[rule.slot as usize % slots.len()], ..*rule })
                .collect();
            rules.sort_unstable_by_key(|rule| rule.slot);
            rules.dedup_by_key(|rule| rule.slot);
            KeptRules { rules, lost_translation: list.len() > 3 }
        })
        .collect();
    let (all, rules) = harness.workers_mut();
    for session in &file.saved.sessions {
        let place = Placement::of(session, &rules.nat, workers);
        let restored =
            all[usize::from(place.owner)].restore(session, &kept[session.rule_list as usize], 0, rules);
        for (key, worker) in place.redirects.into_iter().flatten().filter(|_| restored.is_ok()) {
            all[usize::from(worker)].restore_redirect(&key, (place.owner, place.state), 0);
        }
    }
    for last in 1..5 {
        let frame = Frame::new(Ip4::new([10, 0, 0, last], [192, 0, 2, 7]), Udp::new(1000, 2000)).build();
        harness.process(0, VecPacket::new(&frame));
    }
    for step in 1..=8 {
        harness.advance(FOREVER / 8 * step);
    }
    for sessions in harness.workers() {
        let counters = sessions.counters();
        assert_eq!((counters.sessions, counters.redirects), (0, 0));
        let forwards = sessions.nat().config().forwards().len();
        assert!(sessions.nat().mappings() <= forwards);
    }
}
