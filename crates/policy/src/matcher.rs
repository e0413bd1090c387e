//! Finds the rules that match the packets of a vector.

use mmb_classify::{Batch, Classifier};
use mmb_packet::{Meta, Window};

use crate::Policy;

/// The lookup in all rules of a policy, or in those of one scope.
#[derive(Clone, Copy, Debug)]
pub struct Matcher<'a>(&'a Classifier);

impl Policy {
    /// All rules.
    #[inline]
    pub fn matcher(&self) -> Matcher<'_> {
        Matcher(&self.classifier)
    }

    /// The rules of [`crate::RuleScope::Packet`], whose result can differ between packets of a session. None
    /// if there are none.
    #[inline]
    pub fn per_packet(&self) -> Option<Matcher<'_>> {
        (!self.per_packet.is_empty()).then_some(Matcher(&self.per_packet))
    }
}

impl Matcher<'_> {
    /// The chunks of the window that [`Matcher::classify`] reads, as bits for [`mmb_packet::fill_window`].
    #[inline]
    pub fn chunks(&self) -> u8 {
        self.0.chunks()
    }

    /// Whether [`Matcher::inspect`] must process packets before [`Matcher::classify`]: some rule matches on
    /// bytes outside the window.
    #[inline]
    pub fn needs_bytes(&self) -> bool {
        self.0.needs_bytes()
    }

    /// Whether some rule matches on a payload. Other bytes outside the window are those of TCP options.
    #[inline]
    pub fn needs_payloads(&self) -> bool {
        self.0.needs_payloads()
    }

    /// Whether some rule may match on the bytes of the packet with this window; if not, [`Matcher::inspect`]
    /// has no effect.
    #[inline]
    pub fn needs_inspection(&self, window: &Window) -> bool {
        self.0.needs_inspection(window)
    }

    /// Evaluates matches on the bytes of packet `pkt` of the batch. `frame` is the frame or its contiguous
    /// beginning, `meta` its parse result. Bytes behind `frame` count as absent.
    #[inline]
    pub fn inspect(&self, batch: &mut Batch, pkt: usize, frame: &[u8], meta: &Meta) {
        self.0.inspect(batch, pkt, frame, meta);
    }

    /// Replaces `batch.hits` by all matching rules of the batch's windows, by ascending packet.
    #[inline]
    pub fn classify(&self, batch: &mut Batch) {
        self.0.classify(batch);
    }

    /// As [`Classifier::classify_one`].
    pub fn classify_one(&self, batch: &mut Batch, head: &[u8], meta: &Meta, ports: [u16; 2]) {
        self.0.classify_one(batch, head, meta, ports);
    }
}
