//! A function without its type: what the runner calls, and its implementation for functions of packets. The
//! folders of streams and of L7 have theirs.

use std::any::Any;
use std::sync::Arc;

use mmb_packet::Meta;

use crate::bytes::raw::{PassedBytes, RawBytes, Refusal};
use crate::context::{Emissions, Holding};
use crate::l7::DynL7;
use crate::set::Set;
use crate::stream::EditMemory;
use crate::vector::RawVector;
use crate::{
    Admission, ArgError, Background, ConstantRewrite, Context, Function, LineSource, OpeningPacket,
    Properties, SessionInfo, StreamCounter, Vector,
};

/// The context of a function without its type.
pub(crate) struct RawContext<'a> {
    pub now: u32,
    pub worker: u16,
    pub emissions: &'a mut Emissions,
    pub at: Option<u8>,
    pub ingress: u16,
    pub holding: Holding<'a>,
    pub edits: Option<&'a mut EditMemory>,
}

/// A function without its type. Scratchpads are bytes, and `local` is a value of [`DynFunction::local`].
pub(crate) trait DynFunction: Send + Sync {
    fn any(&self) -> &dyn Any;
    fn kind(&self) -> &'static str;
    fn properties(&self) -> Properties;
    /// Returns size and alignment of the scratchpad.
    fn pad(&self) -> (usize, usize);
    /// Returns [`Function::HOLDS`].
    fn holds(&self) -> bool {
        false
    }
    /// Whether the function is a [`crate::StreamFunction`].
    fn is_stream(&self) -> bool {
        false
    }
    /// Whether the function is a [`crate::L7Function`].
    fn is_l7_only(&self) -> bool {
        false
    }
    /// Whether [`DynFunction::read_bytes`] can be called.
    fn reads_bytes(&self) -> bool {
        false
    }
    /// Passes bytes that no packet has brought.
    ///
    /// # Errors
    /// The function does not let the connection go on.
    fn read_bytes(
        &self,
        raw: &RawBytes<'_, '_>,
        passed: &mut PassedBytes,
        pad: &mut [u8],
        (cx, local): (RawContext<'_>, &mut dyn Any),
    ) -> Result<(), Refusal> {
        let _ = (pad, cx, local);
        passed.out.extend_from_slice(raw.bytes);
        Ok(())
    }
    /// See [`crate::StreamFunction::request_headers`].
    fn request_headers(&self) -> Vec<Box<[u8]>> {
        Vec::new()
    }
    /// Returns the function as brokers use it.
    fn l7(&self) -> Option<&dyn DynL7> {
        None
    }
    /// Returns [`crate::StreamFunction::READS_CONTENT`].
    fn reads_content(&self) -> bool {
        false
    }
    /// Returns [`crate::StreamFunction::EDITS`].
    fn edits(&self) -> bool {
        false
    }
    /// See [`crate::StreamFunction::refuses`].
    fn refuses(&self, pad: &[u8]) -> bool {
        let _ = pad;
        false
    }
    /// Returns [`crate::StreamFunction::SEES_PACKETS`].
    fn sees_packets(&self) -> bool {
        false
    }
    /// See [`crate::StreamFunction::watches`].
    fn watches(&self, pad: &[u8]) -> bool {
        let _ = pad;
        true
    }
    /// See [`crate::StreamFunction::output`].
    fn output(&self, pad: &[u8]) -> Option<u8> {
        let _ = pad;
        None
    }
    /// See [`crate::StreamFunction::answer`].
    fn answer(&self, number: u32) -> &[u8] {
        let _ = number;
        &[]
    }
    /// Returns what `show connections verbose` prints of a session, from its scratchpad. `held`: the packets
    /// that the function holds of it, by direction.
    fn describe(&self, pad: &[u8], held: [u32; 2]) -> Option<String> {
        let _ = (pad, held);
        None
    }
    fn local(&self) -> Box<dyn Any + Send>;
    fn admit(&self, packet: &mut OpeningPacket<'_>, local: &mut dyn Any) -> Admission {
        let _ = (packet, local);
        Admission::Open
    }
    fn route(&self, packet: &OpeningPacket<'_>, local: &mut dyn Any) -> Option<u8> {
        let _ = (packet, local);
        None
    }
    fn open(&self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>, local: &mut dyn Any);
    fn release(&self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>, local: &mut dyn Any);
    /// Processes packets. Returns the positions of those that do not pass.
    fn vector(&self, raw: RawVector<'_, '_>, local: &mut dyn Any) -> Set;
    /// Processes packets that the function held. Returns the positions of those that do not pass.
    fn resume(&self, raw: RawVector<'_, '_>, local: &mut dyn Any) -> Set {
        let _ = (raw, local);
        Set::EMPTY
    }
    /// Takes packets out of a group of stream functions. Returns the positions of those that do not pass.
    fn exit(&self, raw: RawVector<'_, '_>) -> Set {
        let _ = raw;
        Set::EMPTY
    }
    /// See [`Function::translate_sent`].
    fn translate_sent(&self, head: &mut [u8], meta: &Meta, pad: &[u8]) {
        let _ = (head, meta, pad);
    }
    /// See [`Function::constant_rewrite`].
    fn constant_rewrite(&self, pad: &[u8]) -> Option<ConstantRewrite> {
        let _ = pad;
        None
    }
    /// See [`Function::revision`].
    fn revision(&self) -> u64 {
        0
    }
    fn set(&self, args: &[&str]) -> Result<(), ArgError>;
    fn report(&self) -> Vec<(String, String)>;
    /// The counters of a stream context.
    fn stream_counters(&self) -> Vec<(StreamCounter, u64)> {
        Vec::new()
    }
    fn background(&self) -> Option<Background> {
        None
    }
    /// See [`crate::StreamFunction::lines`].
    fn lines(&self) -> Option<Arc<dyn LineSource>> {
        None
    }
    /// Whether scratchpads mean nothing without the state of the worker: they do not move, and do not
    /// outlive a process.
    fn has_local_state(&self) -> bool {
        false
    }
    /// Returns [`crate::StreamFunction::HOLDS_UNTIL_DECIDED`].
    fn holds_until_decided(&self) -> bool {
        false
    }
}

pub(crate) struct TypedFunction<F>(pub F);

impl<F: Function> DynFunction for TypedFunction<F> {
    fn any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> &'static str {
        F::TYPE
    }

    fn properties(&self) -> Properties {
        self.0.properties()
    }

    fn pad(&self) -> (usize, usize) {
        (size_of::<F::Pad>(), align_of::<F::Pad>())
    }

    fn holds(&self) -> bool {
        F::HOLDS
    }

    fn local(&self) -> Box<dyn Any + Send> {
        Box::new(F::Local::default())
    }

    fn admit(&self, packet: &mut OpeningPacket<'_>, local: &mut dyn Any) -> Admission {
        local.downcast_mut().map_or(Admission::Open, |local| self.0.admit(packet, local))
    }

    fn route(&self, packet: &OpeningPacket<'_>, local: &mut dyn Any) -> Option<u8> {
        local.downcast_mut().and_then(|local| self.0.route(packet, local))
    }

    fn open(&self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>, local: &mut dyn Any) {
        if let (Ok(pad), Some(local)) = (bytemuck::try_from_bytes_mut(pad), local.downcast_mut()) {
            self.0.open(pad, session, &mut cx.typed(local));
        }
    }

    fn release(&self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>, local: &mut dyn Any) {
        if let (Ok(pad), Some(local)) = (bytemuck::try_from_bytes_mut(pad), local.downcast_mut()) {
            self.0.release(pad, session, &mut cx.typed(local));
        }
    }

    fn vector(&self, raw: RawVector<'_, '_>, local: &mut dyn Any) -> Set {
        let Some(local) = local.downcast_mut() else { return Set::EMPTY };
        let mut vector = Vector { raw, local };
        self.0.vector(&mut vector);
        vector.raw.events
    }

    fn resume(&self, raw: RawVector<'_, '_>, local: &mut dyn Any) -> Set {
        let Some(local) = local.downcast_mut() else { return Set::EMPTY };
        let mut vector = Vector::<F> { raw, local };
        vector.raw.holding.is_resumed = true;
        vector.for_each(|packet, pad, cx| self.0.resume(packet, pad, cx));
        vector.raw.events
    }

    fn translate_sent(&self, head: &mut [u8], meta: &Meta, pad: &[u8]) {
        if let Ok(pad) = bytemuck::try_from_bytes(pad) {
            self.0.translate_sent(head, meta, pad);
        }
    }

    fn constant_rewrite(&self, pad: &[u8]) -> Option<ConstantRewrite> {
        self.0.constant_rewrite(bytemuck::try_from_bytes(pad).ok()?)
    }

    fn revision(&self) -> u64 {
        self.0.revision()
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

impl<'a> RawContext<'a> {
    pub(crate) fn typed<L>(self, local: &'a mut L) -> Context<'a, L> {
        let RawContext { now, worker, emissions, at, ingress, holding, .. } = self;
        Context { now, worker, local, emissions, at, ingress, holding }
    }
}
