//! A stream function without its type.

use std::any::Any;

use super::{StreamData, StreamFunction, StreamVerdict, reset_both};
use crate::context::Holding;
use crate::instance::{DynFunction, RawContext};
use crate::set::{Set, VECTOR};
use crate::vector::{RawVector, scratchpad};
use crate::{ArgError, Background, Context, Properties, SessionInfo, Verdict};

pub(crate) struct TypedStream<F>(pub F);

impl<F: StreamFunction> TypedStream<F> {
    /// Calls the function for the new bytes of a packet.
    #[inline(always)]
    fn call(
        &self,
        data: &StreamData<'_, '_>,
        is_restart: bool,
        state: &mut F::State,
        cx: &mut Context<'_, F::Local>,
    ) -> StreamVerdict {
        if is_restart {
            self.0.restart(state, cx);
        }
        let verdict = if data.is_empty() { StreamVerdict::Pass } else { self.0.data(data, state, cx) };
        match verdict {
            StreamVerdict::Pass if data.is_end() => self.0.end(data.direction(), state, cx),
            _ => verdict,
        }
    }
}

impl<F: StreamFunction> DynFunction for TypedStream<F> {
    fn any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> &'static str {
        F::TYPE
    }

    fn properties(&self) -> Properties {
        Properties { accepts: self.0.accepts(), ..Properties::default() }
    }

    fn pad(&self) -> (usize, usize) {
        (size_of::<F::State>(), align_of::<F::State>())
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn reads_content(&self) -> bool {
        F::READS_CONTENT
    }

    fn describe(&self, pad: &[u8], _: [u32; 2]) -> Option<String> {
        self.0.describe(bytemuck::try_from_bytes(pad).ok()?)
    }

    fn local(&self) -> Box<dyn Any + Send> {
        Box::new(F::Local::default())
    }

    fn open(&self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>, local: &mut dyn Any) {
        if let (Ok(state), Some(local)) = (bytemuck::try_from_bytes_mut(pad), local.downcast_mut()) {
            self.0.open(state, session, &mut cx.typed(local));
        }
    }

    fn release(&self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>, local: &mut dyn Any) {
        if let (Ok(state), Some(local)) = (bytemuck::try_from_bytes_mut(pad), local.downcast_mut()) {
            self.0.release(state, session, &mut cx.typed(local));
        }
    }

    fn vector(&self, raw: RawVector<'_, '_>, local: &mut dyn Any) -> Set {
        let Some(local) = local.downcast_mut::<F::Local>() else { return Set::EMPTY };
        let RawVector { packets, at, bases, pads, offset, verdicts, views, now, worker, emissions, .. } = raw;
        let holding = Holding::new(raw.holding.held);
        let mut events = Set::EMPTY;
        let mut cx = Context { now, worker, local, emissions, at: None, ingress: u16::MAX, holding };
        at.for_each(|i| {
            let view = views[i & (VECTOR - 1)];
            if view.is_none() {
                return;
            }
            let Some(state) = scratchpad(pads, bases[i & (VECTOR - 1)], offset) else { return };
            let Some(packet) = packets.get(i) else { return };
            cx.at = Some(i as u8);
            let data = StreamData::new(packet, view);
            let verdict = match self.call(&data, view.is_restart, state, &mut cx) {
                StreamVerdict::Pass => return,
                StreamVerdict::Block(reason) => Verdict::Refuse(reason),
                StreamVerdict::Reset(reason) => {
                    reset_both(cx.emissions, i, packet);
                    Verdict::Refuse(reason)
                }
            };
            verdicts[i & (VECTOR - 1)] = verdict;
            events.insert(i);
        });
        events
    }

    fn set(&self, args: &[&str]) -> Result<(), ArgError> {
        self.0.set(args)
    }

    fn report(&self) -> Vec<(String, String)> {
        self.0.report()
    }

    fn background(&self) -> Option<Background> {
        self.0.background()
    }
}
