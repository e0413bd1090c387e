//! One packet through a policy, from its bytes to its bytes: for tests, fuzzing and offline tools.

use mmb_packet::{DropReason, Kind, Meta, PacketBuf, fill_window, parse};

use crate::{Batch, Policy};

/// What became of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processed {
    /// The port it goes out at, or why it is dropped.
    pub verdict: Result<u16, DropReason>,
    /// Indexes of all rules that match, ascending. Empty for what is not (readable) IP.
    pub matched: Vec<u32>,
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

    /// Does to a packet what the dataplane's nodes do: parses it, finds the rules that match, decides, edits. The packet
    /// came in at `in_port` and is to leave at `out_port`; `random` decides about percentages. A packet that is dropped
    /// is left as it was.
    pub fn run(
        &mut self,
        policy: &Policy,
        packet: &mut impl PacketBuf,
        in_port: u16,
        out_port: u16,
        random: impl FnMut() -> u32,
    ) -> Processed {
        let mut processed = Processed { verdict: Ok(out_port), matched: Vec::new() };
        let mut meta = Meta { out_port, ..Meta::default() };
        if let Err(reason) = parse(packet.head(), packet.len(), &mut meta) {
            processed.verdict = Err(reason);
            return processed;
        }
        if meta.kind == Kind::default() {
            return processed;
        }
        self.batch.n = 1;
        let window = &mut self.batch.windows[0];
        fill_window(packet.head(), &meta, in_port, out_port, policy.chunks(), window);
        policy.classify(&mut self.batch);
        self.edits.clear();
        let mut drop = false;
        let count = |slot, _| processed.matched.extend(policy.effect(slot).map(|effect| effect.index));
        policy.decide(&self.batch, &mut self.edits, random, count, |verdict| drop = verdict.drop);
        processed.matched.sort_unstable();
        if drop {
            processed.verdict = Err(DropReason::Rule);
            return processed;
        }
        for &slot in &self.edits {
            policy.edit(slot, packet.head_mut(), &mut meta);
        }
        processed.verdict = Ok(meta.out_port);
        processed
    }
}
