//! Examples of the policy's behaviour.

use mmb_lang::{Command, Diagnostic, Rule, parse_line};
use mmb_packet::build::{Frame, Ip4, Tcp};
use mmb_packet::{DropReason, PacketBuf, VecPacket};
use mmb_policy::{Batch, Evaluation, Evaluator, MAX_EDITS, PacketContext, Policy, Verdict};

fn rule(line: &str) -> Rule {
    match parse_line(line) {
        Ok(Some(Command::Add(rule))) => rule,
        other => panic!("{other:?}"),
    }
}

fn ifaces(name: &str) -> Option<u16> {
    ["lan", "wan"].iter().position(|iface| *iface == name).map(|port| port as u16)
}

fn add(policy: &mut Policy, line: &str) -> Result<u32, Diagnostic> {
    policy.add(&rule(line), &ifaces)
}

fn policy(lines: &[&str]) -> Policy {
    let mut policy = Policy::new();
    for line in lines {
        add(&mut policy, line).expect("a good rule");
    }
    policy
}

fn replaced(policy: &Policy, lines: &[&str]) -> Result<Policy, (usize, Diagnostic)> {
    let rules: Vec<Rule> = lines.iter().map(|line| rule(line)).collect();
    policy.replace(&rules, &ifaces)
}

/// Index, slot and text of all rules.
fn listed(policy: &Policy) -> Vec<(u32, u32, &str)> {
    policy.rules().map(|view| (view.index, view.slot, view.text)).collect()
}

/// A SYN from 10.0.0.1:1025 to 10.0.0.2:80 that enters at `lan`.
fn run(policy: &Policy, random: impl FnMut() -> u32) -> (Evaluation, Vec<u8>) {
    let frame = Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Tcp::new(1025, 80));
    let mut packet = VecPacket::new(&frame.build());
    let processed = Evaluator::new().evaluate(policy, &mut packet, PacketContext::wire(0, 1), random);
    (processed, packet.head().to_vec())
}

fn verdict(lines: &[&str]) -> Result<u16, DropReason> {
    run(&policy(lines), || unreachable!("no percentages here")).0.verdict
}

#[test]
fn accept_precedes_drop_and_drop_precedes_edits() {
    assert_eq!(verdict(&["add tcp-dport 80 drop", "add all mod ip-ttl 3"]), Err(DropReason::Rule));
    assert_eq!(verdict(&["add tcp-dport 80 drop", "add ip-saddr 10.0.0.0/8 accept"]), Ok(1));
    assert_eq!(verdict(&["add tcp-dport 81 drop", "add udp-dport 80 drop"]), Ok(1));
    assert_eq!(verdict(&["add in lan mod out lan"]), Ok(0));
    let accepted = policy(&["add all mod ip-ttl 3", "add all drop", "add all accept"]);
    assert_eq!(run(&accepted, || 0).1[14 + 8], 3);
}

#[test]
fn edits_apply_in_the_order_of_indexes() {
    let mut policy =
        policy(&["add all mod ip-ttl 1", "add tcp-dport 80 mod ip-ttl 2", "add all mod ip-ttl 3"]);
    assert_eq!(run(&policy, || 0).1[14 + 8], 3);
    let slot = policy.del(1).unwrap();
    policy.release(slot);
    add(&mut policy, "add in lan mod ip-ttl 4").unwrap();
    assert_eq!(policy.rule(4).unwrap().slot, slot, "the last rule has the first slot");
    assert_eq!(run(&policy, || 0).1[14 + 8], 4);
}

#[test]
fn percentages_drop_their_share() {
    let policy = policy(&["add all drop 0.5"]);
    // Numbers evenly distributed over the whole range.
    let dropped =
        (0..10_000u64).filter(|i| run(&policy, || (i << 32).div_ceil(10_000) as u32).0.verdict.is_err());
    assert_eq!(dropped.count(), 50);
    assert_eq!(run(&policy, || 0).0.matched, [1]);
    assert_eq!(run(&policy, || u32::MAX).0.matched, [1]);
}

#[test]
fn slots_are_reused_after_their_release() {
    let mut now = policy(&["add all drop", "add in lan drop"]);
    assert_eq!((now.del(1), now.del(1), now.del(7)), (Some(0), None, None));
    assert_eq!(add(&mut now, "add in wan drop"), Ok(3));
    now.release(0);
    now.release(0);
    now.release(1);
    now.release(900);
    assert_eq!(add(&mut now, "add ip-ttl 1 drop"), Ok(4));
    assert_eq!(add(&mut now, "add ip-ttl 2 drop"), Ok(5));
    assert_eq!(
        listed(&now),
        [
            (2, 1, "add in lan drop"),
            (3, 2, "add in wan drop"),
            (4, 0, "add ip-ttl 1 drop"),
            (5, 3, "add ip-ttl 2 drop"),
        ]
    );
    assert_eq!(now.flush(), [1, 2, 0, 3]);
    assert_eq!((now.len(), now.slots(), now.tables().count(), now.classifier().chunks()), (0, 4, 0, 0));
    now.release(2);
    assert_eq!((add(&mut now, "add all drop"), add(&mut now, "add all drop")), (Ok(1), Ok(2)));
    assert_eq!(listed(&now), [(1, 2, "add all drop"), (2, 4, "add all drop")]);
}

#[test]
fn rules_that_stay_keep_their_slots() {
    let mut old = policy(&["add all drop", "add in lan drop", "add all drop", "add ip-ttl 1 drop"]);
    let new =
        replaced(&old, &["add in wan drop", "add all drop", "mmb  add  in == lan drop", "add all drop"])
            .unwrap();
    assert_eq!(
        listed(&new),
        [
            (1, 4, "add in wan drop"),
            (2, 0, "add all drop"),
            (3, 1, "add in lan drop"),
            (4, 2, "add all drop")
        ]
    );
    assert_eq!(new.rule(3).unwrap().rule(), Ok(rule("add in lan drop")));
    let less = replaced(&new, &["add all drop"]).unwrap();
    assert_eq!(listed(&less), [(1, 0, "add all drop")]);
    old.flush();
    assert_eq!((old.len(), new.len(), less.len()), (0, 4, 1));
}

#[test]
fn an_invalid_rule_changes_nothing() {
    let mut policy = policy(&["add all drop"]);
    for line in ["add in nowhere drop", "add all mod out nowhere", "add ip-proto tcp udp-dport 80 drop"] {
        let before = listed(&policy).len();
        let error = add(&mut policy, line).unwrap_err();
        assert!(!error.message.is_empty() && error.span.end <= line.len());
        assert_eq!((listed(&policy).len(), policy.slots()), (before, 1));
    }
    let (position, error) = replaced(&policy, &["add all drop", "add in nowhere drop"]).unwrap_err();
    assert_eq!((position, error.message.contains("nowhere")), (1, true));
    assert_eq!(add(&mut policy, "add all drop"), Ok(2));
}

#[test]
fn one_packet_gets_a_bounded_number_of_edits() {
    let mut policy = Policy::new();
    let edit = rule("add all mod ip-ttl 3");
    for _ in 0..MAX_EDITS + 9 {
        policy.add(&edit, &ifaces).unwrap();
    }
    let mut batch = Batch::new();
    batch.len = 1;
    batch.windows[0].bytes_mut()[mmb_packet::window::KIND] = mmb_packet::Kind::IP4;
    policy.classifier().classify(&mut batch);
    let (mut edits, mut counted) = (vec![7], 0);
    policy.decide(
        &batch,
        &mut edits,
        || 0,
        &mut (
            |_, _| counted += 1,
            |verdict: Verdict| {
                assert_eq!((verdict.edits_at, usize::from(verdict.edits_len)), (1, MAX_EDITS));
            },
        ),
    );
    assert_eq!(
        (counted, edits.len(), edits.last()),
        (MAX_EDITS + 9, MAX_EDITS + 1, Some(&(MAX_EDITS as u32 + 8)))
    );
}

/// The count is correct for all ways to add and delete rules.
#[test]
fn the_output_port_is_needed_if_a_rule_matches_on_it() {
    let mut rules = policy(&["add out wan drop", "add in lan mod out wan", "add-stateful ! out lan accept"]);
    assert!(rules.needs_out_port());
    rules.del(1);
    assert!(rules.needs_out_port() && rules.rebuilt().needs_out_port());
    let with = replaced(&rules, &["add tcp-syn out != wan drop", "add all accept"]).expect("good rules");
    assert!(with.needs_out_port());
    assert!(!replaced(&with, &["add in wan drop"]).expect("good rules").needs_out_port());
    rules.del(3);
    assert!(!rules.needs_out_port(), "`mod out` asks nothing");
    add(&mut rules, "add out lan drop").expect("a good rule");
    assert!(rules.needs_out_port());
    rules.flush();
    assert!(!rules.needs_out_port());
}

#[test]
fn names_are_unique_and_find_their_rules() {
    let mut named = policy(&["add ip-ttl 1 drop name web", "add ip-ttl 2 drop"]);
    assert_eq!(named.named("web").map(|view| (view.index, view.body)), Some((1, "add ip-ttl 1 drop")));
    let taken = add(&mut named, "add ip-ttl 3 drop comment \"x\" name web").unwrap_err();
    assert_eq!(taken.message, "rule 1 has the name `web` already");
    assert_eq!((taken.span.start, taken.span.end, named.len()), (35, 38, 2));
    named.del(1);
    assert!(named.named("web").is_none());
    assert_eq!(add(&mut named, "add ip-ttl 3 drop name web"), Ok(3));
    let twice = replaced(&named, &["add ip-ttl 1 drop name a", "add ip-ttl 1 drop name a"]).unwrap_err();
    assert_eq!((twice.0, &*twice.1.message), (1, "rule 1 has the name `a` already"));
    named.flush();
    assert!(named.named("web").is_none());
}

#[test]
fn a_rule_with_another_name_or_comment_is_kept() {
    let old = policy(&["add ip-ttl 1 drop", "add ip-ttl 2 drop name two comment \"a\""]);
    let new = replaced(&old, &["add ip-ttl 2 drop comment \"b\"", "add ip-ttl 1 drop name one"]).unwrap();
    let texts = ["add ip-ttl 2 drop comment \"b\"", "add ip-ttl 1 drop name one"];
    assert_eq!(listed(&new), [(1, 1, texts[0]), (2, 0, texts[1])]);
    assert_eq!((new.rule_id(0), new.rule_id(1)), (old.rule_id(0), old.rule_id(1)));
    assert!(new.named("two").is_none());
    assert_eq!(new.named("one").map(|view| view.slot), Some(0));
    assert_eq!(new.rule(1).map(|view| view.label().comment), Some(Some("b".into())));
}
