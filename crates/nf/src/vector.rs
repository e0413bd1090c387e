//! A vector of packets in front of a function.
//!
//! Theory of operation. On the path of a packet, the type of the function is known in this module alone. The
//! loop over the packets, the access to their scratchpads and the function are compiled as one. A packet that
//! passes leaves no trace; verdicts of other packets are written down.

use bytemuck::Pod;
use mmb_flow::{ScratchpadStarts, SessionId};
use mmb_packet::DropReason;
use mmb_stream::{OnOverflow, View};

use crate::context::{Emissions, Holding};
use crate::held::ProcessRoom;
use crate::program::ir::GroupPlace;
use crate::set::{Set, VECTOR};
use crate::stream::EditMemory;
use crate::{Context, Function, Packet, StreamVerdict, Verdict};

/// Packets in front of a function, each with its scratchpad: the input of [`Function::vector`].
pub struct Vector<'v, 'p, F: Function> {
    pub(crate) raw: RawVector<'v, 'p>,
    pub(crate) local: &'v mut F::Local,
}

/// A vector without the type of the function.
pub(crate) struct RawVector<'v, 'p> {
    pub packets: &'v mut [Packet<'p>],
    /// Positions of the packets that are in front of the function.
    pub at: Set,
    /// Start of each packet's scratchpads in `pads`, in units of 8 bytes. A packet with an invalid start
    /// passes.
    pub bases: &'v [u32; VECTOR],
    /// The scratchpads of all sessions.
    pub pads: &'v mut [u8],
    /// Offset of the function's scratchpad in those of a session, in bytes.
    pub offset: usize,
    /// All passing. Verdicts of `events` are written.
    pub verdicts: &'v mut [Verdict; VECTOR],
    /// What stream functions get of each packet.
    pub views: &'v mut [View; VECTOR],
    /// A stream context keeps bytes.
    pub keeps_bytes: bool,
    /// The place of a stream function in its group.
    pub group: GroupPlace,
    /// The memory of edited streams, for a group of functions of which one edits.
    pub edits: Option<&'v mut EditMemory>,
    /// What becomes of streams for whose state a function has no room.
    pub on_overflow: OnOverflow,
    pub now: u32,
    pub worker: u16,
    pub emissions: &'v mut Emissions,
    pub holding: Holding<'v>,
    /// Sessions that no function of their chain reads any more. No more than it has room for.
    pub unread: &'v mut Vec<SessionId>,
    /// The room in the process of the function behind a stream context.
    pub room: Option<ProcessRoom>,
    /// Where the verdicts of a stream function are written, in the place of what they stand for.
    pub stream_verdicts: Option<&'v mut [StreamVerdict; VECTOR]>,
    /// Positions of packets that do not pass.
    pub events: Set,
}

/// A start that no scratchpad has.
pub(crate) const NO_BASE: u32 = ScratchpadStarts::NONE;

/// The scratchpad of a function in those of a session, which begin at `base`. None for [`NO_BASE`].
#[inline(always)]
pub(crate) fn scratchpad<T: Pod>(pads: &mut [u8], base: u32, offset: usize) -> Option<&mut T> {
    let bytes = pads.get_mut(base as usize * 8 + offset..)?.get_mut(..size_of::<T>())?;
    bytemuck::try_from_bytes_mut(bytes).ok()
}

impl<'p, F: Function> Vector<'_, 'p, F> {
    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.raw.at.len()
    }

    /// Whether there are no packets. Functions get no empty vectors.
    pub fn is_empty(&self) -> bool {
        self.raw.at.is_empty()
    }

    /// Returns milliseconds of the worker's clock; wraps.
    pub fn now(&self) -> u32 {
        self.raw.now
    }

    /// Returns the worker's state of the instance.
    pub fn local(&mut self) -> &mut F::Local {
        self.local
    }

    /// Calls a closure for each packet in order, and records its verdict.
    #[inline(always)]
    pub fn for_each(
        &mut self,
        mut f: impl FnMut(&mut Packet<'p>, &mut F::Pad, &mut Context<'_, F::Local>) -> Verdict,
    ) {
        let RawVector {
            packets,
            at,
            bases,
            pads,
            offset,
            verdicts,
            now,
            worker,
            emissions,
            holding,
            events,
            ..
        } = &mut self.raw;
        let Holding { held, space, state, is_resumed, .. } = holding;
        let holding = Holding {
            held,
            space: *space,
            state: *state,
            is_resumed: *is_resumed,
            order: None,
            answer: None,
            answered: None,
        };
        let (now, worker, ingress) = (*now, *worker, u16::MAX);
        let mut cx = Context { now, worker, local: self.local, emissions, at: None, ingress, holding };
        let mut one = |i: usize, packet: &mut Packet<'p>, base: u32| {
            let Some(pad) = scratchpad(pads, base, *offset) else { return };
            cx.at = Some(i as u8);
            let mut verdict = f(packet, pad, &mut cx);
            if F::HOLDS {
                verdict = cx.settle(packet, verdict);
            } else if verdict == Verdict::Hold {
                verdict = Verdict::Drop(DropReason::ChainError);
            }
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
