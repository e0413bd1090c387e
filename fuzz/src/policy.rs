//! Properties of a policy: after any additions, deletions and replacements, it agrees with the oracle on the
//! remaining rules. The fuzz target `policy` runs them on rules and frames from the fuzzer's bytes. Tests of
//! the crate run them on the corpus and on random bytes.

use std::collections::{BTreeMap, BTreeSet};

use mmb_lang::{ErrorPolicy, Rule};
use mmb_oracle::{Settings, Verdict, evaluate, evaluate_with, generate};
use mmb_packet::{DropReason, Meta, PacketBuf, VecPacket, fill_window, parse};
use mmb_policy::{
    Batch, EditLimits, Evaluation, Evaluator, Hit, PacketContext, Policy, RuleId, RuleScope, VECTOR,
};

/// Panics if policy and oracle disagree on the input `bytes`.
pub fn check(bytes: &[u8]) {
    let (rules, frames) = generate::case(bytes);
    history(&rules, bytes, &frames.iter().map(|frame| &**frame).chain([bytes]).collect::<Vec<_>>());
}

/// Random numbers for which every `drop` with a percentage drops, and for which none does.
const DROP_ALL: u32 = 0;
const DROP_NONE: u32 = u32::MAX;

/// A policy and its expected contents.
#[derive(Clone, Default)]
pub struct Pair {
    policy: Policy,
    /// Rules and slots by index.
    rules: BTreeMap<u32, (Rule, u32)>,
    /// Identities of the present and of earlier rules.
    ids: BTreeMap<u32, RuleId>,
    gone: BTreeSet<RuleId>,
    next_index: u32,
}

/// Adds the rules one by one, and applies `choices` in between: delete, release, replace, flush, rebuild.
/// Earlier policies must still agree with the oracle after all changes of their successors. Returns the
/// number of compared pairs of a policy and a frame, and the number of matches.
pub fn history(rules: &[Rule], choices: &[u8], frames: &[&[u8]]) -> (u64, u64) {
    let mut now = Pair { next_index: 1, ..Pair::default() };
    let mut all = Vec::new();
    let mut freed = Vec::new();
    for (position, rule) in rules.iter().enumerate() {
        now.add(rule, frames);
        let choice = usize::from(*choices.get(position).unwrap_or(&0));
        match choice % 16 {
            1..=3 => freed.extend(now.del(choice / 16)),
            4 => freed.drain(..).for_each(|slot| now.policy.release(slot)),
            5 | 6 => freed.extend(now.replace(choice / 16, rules)),
            7 if choice / 16 == 7 => freed.extend(now.flush()),
            8 => now.rebuild(),
            _ => {}
        }
        now.check_slots(&freed);
        now.check_identities();
        if choice % 4 == 1 {
            all.push(now.clone());
        }
    }
    all.push(now);
    let mut tester = Tester::default();
    for pair in &all {
        pair.agrees(frames, &mut tester);
    }
    (all.len() as u64 * frames.len() as u64, tester.matched)
}

impl Pair {
    fn add(&mut self, rule: &Rule, frames: &[&[u8]]) {
        match self.policy.add(rule, &generate::port) {
            Ok(index) => {
                assert_eq!(index, self.next_index);
                self.next_index += 1;
                let view = self.policy.rule(index).expect("just added");
                assert_eq!(view.rule().as_ref(), Ok(rule));
                self.rules.insert(index, (rule.clone(), view.slot));
            }
            Err(_) => never_matches(rule, frames),
        }
    }

    fn del(&mut self, choice: usize) -> Option<u32> {
        assert_eq!(self.policy.del(self.next_index), None);
        let index = *self.rules.keys().nth(choice % self.rules.len().max(1))?;
        let (_, slot) = self.rules.remove(&index)?;
        assert_eq!(self.policy.del(index), Some(slot));
        assert_eq!(self.policy.del(index), None);
        Some(slot)
    }

    /// Keeps some rules in another order, and adds others. Returns the slots of the removed rules.
    fn replace(&mut self, choice: usize, rules: &[Rule]) -> Vec<u32> {
        let mut new: Vec<Rule> = self.rules.values().map(|(rule, _)| rule.clone()).rev().collect();
        let len = new.len();
        new.rotate_left(choice % len.max(1));
        new.truncate(len.saturating_sub(choice % 3));
        let addable = |rule: &&Rule| Policy::new().add(rule, &generate::port).is_ok();
        new.extend(rules.iter().rev().take(choice % 4).filter(addable).cloned());
        let old = std::mem::take(&mut self.rules);
        self.policy = self.policy.replace(&new, &generate::port).expect("these were added before");
        let mut gone: BTreeMap<u32, Rule> = old.into_values().map(|(rule, slot)| (slot, rule)).collect();
        let mut news = 0;
        for (index, (view, rule)) in (1..).zip(self.policy.rules().zip(&new)) {
            assert_eq!((view.index, view.rule().as_ref()), (index, Ok(rule)));
            match gone.remove(&view.slot) {
                Some(before) => assert_eq!(before, *rule, "another rule has the slot"),
                None => news += usize::from(gone.values().any(|left| left == rule)),
            }
            self.rules.insert(index, (rule.clone(), view.slot));
        }
        assert_eq!(news, 0, "rules that stay keep their slots");
        self.next_index = new.len() as u32 + 1;
        gone.into_keys().collect()
    }

    fn rebuild(&mut self) {
        self.policy = self.policy.rebuilt();
        assert!(!self.policy.is_stale(), "it was just built");
    }

    fn flush(&mut self) -> Vec<u32> {
        let slots = self.policy.flush();
        let mut expected: Vec<u32> =
            std::mem::take(&mut self.rules).into_values().map(|(_, slot)| slot).collect();
        expected.sort();
        assert_eq!(
            {
                let mut slots = slots.clone();
                slots.sort();
                slots
            },
            expected
        );
        self.next_index = 1;
        slots
    }

    /// No slot has two rules, and no slot is reused before its release.
    fn check_slots(&self, freed: &[u32]) {
        let mut slots: Vec<u32> =
            self.rules.values().map(|(_, slot)| *slot).chain(freed.iter().copied()).collect();
        slots.sort();
        assert!(slots.iter().all(|&slot| (slot as usize) < self.policy.slots()));
        assert!(slots.windows(2).all(|pair| pair[0] != pair[1]));
        let listed: Vec<_> = self.policy.rules().map(|view| (view.index, view.slot)).collect();
        assert_eq!(listed, self.rules.iter().map(|(index, (_, slot))| (*index, *slot)).collect::<Vec<_>>());
        assert_eq!((self.policy.len(), self.policy.is_empty()), (self.rules.len(), self.rules.is_empty()));
    }

    /// A rule keeps its identity as long as its slot, and no other rule ever gets it.
    fn check_identities(&mut self) {
        let slots = self.rules.values().map(|(_, slot)| *slot);
        let now: BTreeMap<u32, RuleId> =
            slots.map(|slot| (slot, self.policy.rule_id(slot).expect("a rule"))).collect();
        let distinct: BTreeSet<RuleId> = now.values().copied().collect();
        assert_eq!(distinct.len(), now.len());
        assert!(self.gone.is_disjoint(&distinct), "an identity comes again");
        let left = std::mem::replace(&mut self.ids, now).into_iter();
        self.gone.extend(left.filter(|(slot, id)| self.ids.get(slot) != Some(id)).map(|(_, id)| id));
    }

    /// Every frame, alone and in a vector with the others.
    fn agrees(&self, frames: &[&[u8]], tester: &mut Tester) {
        let rules: Vec<(u32, Rule)> =
            self.rules.iter().map(|(index, (rule, _))| (*index, rule.clone())).collect();
        for (position, frame) in frames.iter().enumerate() {
            let around = surroundings(position);
            let PacketContext { in_port, out_port, on_error, frame_max } = around;
            let settings = Settings { on_error, frame_max, ..Settings::default() };
            let outcome = evaluate_with(&settings, &rules, &generate::port, in_port, out_port, frame);
            tester.matched += outcome.matched.len() as u64;
            for random in [DROP_ALL, DROP_NONE] {
                let mut packet = VecPacket::new(frame);
                let processed = tester.evaluator.evaluate(&self.policy, &mut packet, around, || random);
                let by_chance = outcome.verdict == Verdict::MayDrop && random == DROP_ALL;
                let verdict = match (outcome.verdict, outcome.refused) {
                    (Verdict::Drop(reason), _) => Err(reason),
                    _ if by_chance => Err(DropReason::Rule),
                    (_, Some(reason)) if on_error == ErrorPolicy::Drop => Err(reason),
                    _ => Ok(outcome.out_port),
                };
                let refused = if by_chance { None } else { outcome.refused };
                // Of rules that drop a share, any may decide.
                let decider = if by_chance { processed.decider } else { outcome.decider };
                let decider = match processed.decider {
                    Some(index) if drops_a_share(&self.rules[&index].0) => {
                        assert!(random == DROP_ALL && verdict == Err(DropReason::Rule));
                        Some(index)
                    }
                    _ => decider,
                };
                let expected = Evaluation { verdict, matched: outcome.matched.clone(), decider, refused };
                if processed != expected {
                    self.tell(frame, &processed, &expected);
                }
                let same = match verdict {
                    Ok(_) => outcome.check_bytes(packet.head()).map_err(|difference| difference.to_string()),
                    Err(_) => {
                        (packet.head() == *frame).then_some(()).ok_or("dropped, yet changed".to_owned())
                    }
                };
                if let Err(difference) = same {
                    panic!("{difference} in {:?}", generate::Frame(packet.head().to_vec()));
                }
            }
        }
        for (number, frames) in frames.chunks(VECTOR).enumerate() {
            self.agrees_with_itself(number * VECTOR, frames, tester);
        }
    }

    /// The second classifier finds the rules to evaluate per packet, among those that the first one finds.
    fn per_packet_is_part(&self, found: &Batch, frames: &[&[u8]], first: usize) {
        let is_asked = |slot: u32| self.policy.rule_info(slot).scope == RuleScope::Packet;
        let Some(again) = self.policy.per_packet() else {
            assert!(found.hits.iter().all(|hit| !is_asked(hit.slot)));
            return;
        };
        let mut batch = Batch::new();
        for (frame, position) in frames.iter().zip(first..) {
            let mut meta = Meta::default();
            if parse(frame, frame.len(), &mut meta).is_err() || meta.kind.0 == 0 {
                continue;
            }
            let PacketContext { in_port, out_port, .. } = surroundings(position);
            let pkt = batch.len;
            fill_window(frame, &meta, in_port, out_port, again.chunks(), &mut batch.windows[pkt]);
            if again.needs_bytes() {
                again.inspect(&mut batch, pkt, frame, &meta);
            }
            batch.len += 1;
        }
        again.classify(&mut batch);
        let sorted = |hits: &[Hit]| {
            let mut hits: Vec<_> = hits.iter().map(|hit| (hit.pkt, hit.slot)).collect();
            hits.retain(|(_, slot)| is_asked(*slot));
            hits.sort();
            hits
        };
        assert_eq!(batch.hits.len(), sorted(&batch.hits).len());
        assert_eq!(sorted(&batch.hits), sorted(&found.hits));
    }

    /// Panics with the details of a disagreement between policy and oracle.
    fn tell(&self, frame: &[u8], processed: &Evaluation, expected: &Evaluation) -> ! {
        let [missing, surplus] = [(expected, processed), (processed, expected)].map(|(one, other)| {
            let only = one.matched.iter().filter(|index| !other.matched.contains(index));
            only.map(|index| self.rules[index].0.to_string()).collect::<Vec<_>>()
        });
        let verdicts = [processed, expected].map(|p| (p.verdict, p.refused));
        panic!(
            "{:?}: rules not found {missing:?}, found wrongly {surplus:?}; {:?} instead of {:?}",
            generate::Frame(frame.to_vec()),
            verdicts[0],
            verdicts[1]
        )
    }

    /// The frames in one vector have the same results as each alone.
    fn agrees_with_itself(&self, first: usize, frames: &[&[u8]], tester: &mut Tester) {
        let Tester { evaluator, batch, edits, .. } = tester;
        let classifier = self.policy.classifier();
        let mut alone = Vec::new();
        batch.len = 0;
        for (frame, position) in frames.iter().zip(first..) {
            let around = surroundings(position);
            let mut meta = Meta { out_port: around.out_port, ..Meta::default() };
            if parse(frame, frame.len(), &mut meta).is_err() || meta.kind.0 == 0 {
                continue;
            }
            let window = &mut batch.windows[batch.len];
            fill_window(frame, &meta, around.in_port, around.out_port, classifier.chunks(), window);
            if classifier.needs_bytes() {
                classifier.inspect(batch, batch.len, frame, &meta);
            }
            batch.len += 1;
            let mut packet = VecPacket::new(frame);
            let processed = evaluator.evaluate(&self.policy, &mut packet, around, || DROP_ALL);
            alone.push((processed, packet, meta, frame, around.frame_max));
        }
        classifier.classify(batch);
        self.per_packet_is_part(batch, frames, first);
        edits.clear();
        let mut verdicts = Vec::new();
        let mut counted = vec![Vec::new(); batch.len];
        let index: BTreeMap<u32, u32> = self.rules.iter().map(|(index, (_, slot))| (*slot, *index)).collect();
        let count = |slot, pkt| counted[usize::from(pkt)].push(index[&slot]);
        let sink = &mut (count, |verdict: mmb_policy::Verdict| verdicts.push(verdict));
        self.policy.decide(batch, edits, || DROP_ALL, sink);
        counted.iter_mut().for_each(|matched| matched.sort());
        assert!(counted.iter().eq(alone.iter().map(|(processed, ..)| &processed.matched)));
        for verdict in verdicts {
            let (processed, packet, mut meta, frame, frame_max) = alone[usize::from(verdict.pkt)].clone();
            assert_eq!(verdict.outcome.drop, processed.verdict == Err(DropReason::Rule));
            let mut edited = VecPacket::new(frame);
            let at = verdict.edits_at as usize;
            let slots = &edits[at..at + usize::from(verdict.edits_len)];
            let result = self.policy.edit(slots, &mut edited, &mut meta, EditLimits { frame_max });
            assert_eq!((result.err(), edited.head()), (processed.refused, packet.head()));
        }
    }
}

/// Buffers.
#[derive(Default)]
struct Tester {
    evaluator: Evaluator,
    batch: Batch,
    edits: Vec<u32>,
    /// Number of matches, over all frames and policies.
    matched: u64,
}

/// Whether a rule drops some of the packets.
fn drops_a_share(rule: &Rule) -> bool {
    rule.targets.iter().any(|target| {
        matches!(target.action, mmb_lang::Action::Drop { ten_thousandths } if ten_thousandths < 10_000)
    })
}

/// The input and output port of the frame at this position.
fn ports(position: usize) -> (u16, u16) {
    (position as u16 % 4, position as u16 / 3 % 5)
}

/// The ports of the frame at this position, whether edits may fail, and the maximum frame length.
fn surroundings(position: usize) -> PacketContext<'static> {
    let (in_port, out_port) = ports(position);
    let on_error = if position.is_multiple_of(2) { ErrorPolicy::Forward } else { ErrorPolicy::Drop };
    PacketContext {
        in_port,
        out_port,
        on_error,
        frame_max: &|port| [74, usize::MAX, 62, 1_500][usize::from(port) % 4],
    }
}

/// A rule that the language accepts is only rejected if it can match nothing.
fn never_matches(rule: &Rule, frames: &[&[u8]]) {
    for (position, frame) in frames.iter().enumerate() {
        let (in_port, out_port) = ports(position);
        let outcome = evaluate(&[(1, rule.clone())], &generate::port, in_port, out_port, frame);
        assert_eq!(outcome.matched, [], "`{rule}` is refused");
    }
}
