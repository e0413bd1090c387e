//! One packet through a policy, from its bytes to its bytes: for tests, fuzzing and offline tools. There are no sessions
//! here: stateful rules work packet by packet as well, and what they would give to sessions is left out.

use mmb_lang::ErrorPolicy;
use mmb_packet::{DropReason, Kind, Meta, PacketBuf, fill_window, parse};
use mmb_rewrite::EditLimits;

use crate::{Batch, Policy};

/// What became of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// The port it goes out at, or why it is dropped.
    pub verdict: Result<u16, DropReason>,
    /// Indexes of all rules that match, ascending. Empty for what is not (readable) IP.
    pub matched: Vec<u32>,
    /// Why its edits could not be made, if that is so: it goes on as it came, or is dropped for that.
    pub refused: Option<DropReason>,
}

/// What surrounds a packet.
#[derive(Clone, Copy)]
pub struct PacketContext<'a> {
    /// The port it came in at.
    pub in_port: u16,
    /// The port it is to leave at.
    pub out_port: u16,
    /// What becomes of it if its edits cannot be made.
    pub on_error: ErrorPolicy,
    /// The longest frame, in bytes, that goes out at a port.
    pub frame_max: &'a dyn Fn(u16) -> usize,
}

impl PacketContext<'_> {
    /// From port to port, with frames of any length, and forward on errors.
    pub fn wire(in_port: u16, out_port: u16) -> Self {
        PacketContext { in_port, out_port, on_error: ErrorPolicy::Forward, frame_max: &|_| usize::MAX }
    }
}

/// The buffers that evaluating takes, to be used for many packets.
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

    /// Does to a packet what the dataplane's nodes do: parses it, finds the rules that match, decides, edits. `random`
    /// decides about percentages. A packet that is dropped is left as it was.
    pub fn evaluate(
        &mut self,
        policy: &Policy,
        packet: &mut impl PacketBuf,
        around: PacketContext<'_>,
        random: impl FnMut() -> u32,
    ) -> Evaluation {
        let mut processed = Evaluation { verdict: Ok(around.out_port), matched: Vec::new(), refused: None };
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
        let mut drop = false;
        let count = |slot, _| processed.matched.extend(policy.effect(slot).map(|effect| effect.index));
        policy.decide(&self.batch, &mut self.edits, random, count, |verdict| drop = verdict.drop);
        processed.matched.sort_unstable();
        if drop {
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

    /// Finds the rules that match.
    fn classify(&mut self, policy: &Policy, head: &[u8], meta: &Meta, around: PacketContext<'_>) {
        self.batch.len = 1;
        let window = &mut self.batch.windows[0];
        fill_window(head, meta, around.in_port, around.out_port, policy.chunks(), window);
        if policy.needs_bytes() {
            policy.inspect(&mut self.batch, 0, head, meta);
        }
        policy.classify(&mut self.batch);
    }
}
