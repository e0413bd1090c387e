//! A vector of packets before a function.
//!
//! Theory of operation. The type of the function is known here and nowhere else on a packet's way, so that the loop over
//! the packets, the access to their scratchpads and the function itself are compiled as one. A packet that passes leaves no
//! trace; the others' verdicts are written down.

use crate::context::Emissions;
use crate::set::{Set, VECTOR};
use crate::{Context, Function, Packet, Verdict};

/// Packets before a function, each with its scratchpad: what [`Function::vector`] gets.
pub struct Vector<'v, 'p, F: Function> {
    pub(crate) raw: RawVector<'v, 'p>,
    pub(crate) local: &'v mut F::Local,
}

/// The same before it is known what function it is.
pub(crate) struct RawVector<'v, 'p> {
    pub packets: &'v mut [Packet<'p>],
    /// Those of them that stand before the function.
    pub at: Set,
    /// Where each packet's scratchpads begin in `pads`, in units of 8 bytes. No place that there is: nothing is asked.
    pub bases: &'v [u32; VECTOR],
    /// All scratchpads, of all sessions.
    pub pads: &'v mut [u8],
    /// Where the function's begins among a session's, in bytes.
    pub offset: usize,
    /// All passing; those of `events` are written.
    pub verdicts: &'v mut [Verdict; VECTOR],
    pub now: u32,
    pub worker: u16,
    pub emissions: &'v mut Emissions,
    /// Packets that do not pass.
    pub events: Set,
}

/// A base that no scratchpad has.
pub(crate) const NO_BASE: u32 = u32::MAX;

impl<'p, F: Function> Vector<'_, 'p, F> {
    /// How many packets there are.
    pub fn len(&self) -> usize {
        self.raw.at.len()
    }

    /// Whether there are none: never.
    pub fn is_empty(&self) -> bool {
        self.raw.at.is_empty()
    }

    /// Milliseconds of the worker's clock; wraps.
    pub fn now(&self) -> u32 {
        self.raw.now
    }

    /// What the worker keeps for the instance.
    pub fn local(&mut self) -> &mut F::Local {
        self.local
    }

    /// Asks about each packet, in their order.
    #[inline(always)]
    pub fn for_each(
        &mut self,
        mut f: impl FnMut(&mut Packet<'p>, &mut F::Pad, &mut Context<'_, F::Local>) -> Verdict,
    ) {
        let RawVector { packets, at, bases, pads, offset, verdicts, now, worker, emissions, events } =
            &mut self.raw;
        let mut cx =
            Context { now: *now, worker: *worker, local: self.local, emissions, at: None, back: u16::MAX };
        let mut one = |i: usize, packet: &mut Packet<'p>, base: u32| {
            let from = base as usize * 8 + *offset;
            let bytes = pads.get_mut(from..).and_then(|pads| pads.get_mut(..size_of::<F::Pad>()));
            let Some(Ok(pad)) = bytes.map(bytemuck::try_from_bytes_mut) else { return };
            cx.at = Some(i as u8);
            let verdict = f(packet, pad, &mut cx);
            if verdict != Verdict::Pass {
                verdicts[i & (VECTOR - 1)] = verdict;
                events.insert(i);
            }
        };
        if *at == Set::first(packets.len()) {
            for (i, (packet, &base)) in packets.iter_mut().zip(bases.iter()).enumerate() {
                one(i, packet, base);
            }
        } else {
            at.for_each(|i| {
                if let Some(packet) = packets.get_mut(i) {
                    one(i, packet, bases[i & (VECTOR - 1)]);
                }
            });
        }
    }
}
