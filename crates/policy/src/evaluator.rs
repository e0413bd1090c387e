//! Evaluates a policy for single packets: for tests, fuzzing and offline tools. There are no sessions:
//! stateful rules apply per packet, and their bindings are ignored.

use mmb_lang::ErrorPolicy;
use mmb_packet::{DropReason, Kind, Meta, PacketBuf, parse};
use mmb_rewrite::EditLimits;

use crate::{Batch, Outcome, Policy, Verdict};

/// Result of a policy for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// The output port, or the drop reason.
    pub verdict: Result<u16, DropReason>,
    /// Indexes of all matching rules, ascending. Empty for packets that are not (readable) IP.
    pub matched: Vec<u32>,
    /// Index of the rule that decided: that drops the packet, or accepts it although a rule with `drop`
    /// matches.
    pub decider: Option<u32>,
    /// Why edits failed. The packet then leaves unchanged or is dropped, depending on the configuration.
    pub refused: Option<DropReason>,
}

/// Context of a packet.
#[derive(Clone, Copy)]
pub struct PacketContext<'a> {
    /// Input port.
    pub in_port: u16,
    /// Output port before redirections.
    pub out_port: u16,
    /// Action if edits fail.
    pub on_error: ErrorPolicy,
    /// Maximum frame length in bytes, by output port.
    pub frame_max: &'a dyn Fn(u16) -> usize,
}

impl PacketContext<'_> {
    /// Forwarding between two ports without a frame limit; packets are forwarded if edits fail.
    pub fn wire(in_port: u16, out_port: u16) -> Self {
        PacketContext { in_port, out_port, on_error: ErrorPolicy::Forward, frame_max: &|_| usize::MAX }
    }
}

/// Buffers for evaluations, to be reused for many packets.
#[derive(Debug, Default)]
pub struct Evaluator {
    batch: Batch,
    edits: Vec<u32>,
}

impl Evaluator {
    /// Buffers for packets of any policy.
    pub fn new() -> Self {
        Self::default()
    }

    /// Processes a packet as the dataplane's nodes do: parse, classify, decide, edit. `random` decides
    /// about percentages. A dropped packet is unchanged.
    pub fn evaluate(
        &mut self,
        policy: &Policy,
        packet: &mut impl PacketBuf,
        around: PacketContext<'_>,
        random: impl FnMut() -> u32,
    ) -> Evaluation {
        let mut processed =
            Evaluation { verdict: Ok(around.out_port), matched: Vec::new(), decider: None, refused: None };
        let mut meta = Meta { out_port: around.out_port, ..Meta::default() };
        if let Err(reason) = parse(packet.head(), packet.len(), &mut meta) {
            processed.verdict = Err(reason);
            return processed;
        }
        if meta.kind == Kind::default() {
            return processed;
        }
        self.classify(policy, packet.head(), &meta, around);
        self.edits.clear();
        let mut outcome = Outcome::default();
        let count = |slot, _| processed.matched.extend(policy.effect(slot).map(|effect| effect.index));
        let sink = &mut (count, |verdict: Verdict| outcome = verdict.outcome);
        policy.decide(&self.batch, &mut self.edits, random, sink);
        processed.matched.sort_unstable();
        processed.decider = outcome.decider.and_then(|slot| policy.index(slot));
        if outcome.drop {
            processed.verdict = Err(DropReason::Rule);
            return processed;
        }
        let limits = EditLimits { frame_max: around.frame_max };
        match policy.edit(&self.edits, packet, &mut meta, limits) {
            Ok(()) => processed.verdict = Ok(meta.out_port),
            Err(reason) => {
                processed.refused = Some(reason);
                if around.on_error == ErrorPolicy::Drop {
                    processed.verdict = Err(reason);
                }
            }
        }
        processed
    }

    /// Finds the matching rules.
    fn classify(&mut self, policy: &Policy, head: &[u8], meta: &Meta, around: PacketContext<'_>) {
        let ports = [around.in_port, around.out_port];
        policy.classifier().classify_one(&mut self.batch, head, meta, ports);
    }
}
