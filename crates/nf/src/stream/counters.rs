//! The counters of stream contexts.

use mmb_stream::Cause;

use super::edits::counters::COUNTERS as EDIT_COUNTERS;

/// The kind of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// Bytes of payload.
    Bytes,
    /// Packets, segments, connections or edits with something in common.
    Event,
    /// Streams that could not be read, or edited. The name is the reason.
    Refusal,
}

/// A counter of a stream context, as programs read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCounter {
    /// Its kind.
    pub kind: CounterKind,
    /// Distinguishes the counter from others of its kind: lower case letters and `-`.
    pub name: &'static str,
    /// The name in `show functions`.
    pub text: &'static str,
}

impl StreamCounter {
    pub(super) const fn bytes(name: &'static str, text: &'static str) -> Self {
        StreamCounter { kind: CounterKind::Bytes, name, text }
    }

    pub(super) const fn event(name: &'static str, text: &'static str) -> Self {
        StreamCounter { kind: CounterKind::Event, name, text }
    }

    pub(super) const fn refusal(name: &'static str, text: &'static str) -> Self {
        StreamCounter { kind: CounterKind::Refusal, name, text }
    }

    /// Returns the counter of a cause. `show connections` prints its text, too.
    pub(super) const fn of(cause: Cause) -> Self {
        match cause {
            Cause::None => Self::event("", ""),
            Cause::Retransmitted => Self::event("retransmitted", "retransmitted segments"),
            Cause::Overlap => Self::event("overlapping", "overlapping segments"),
            Cause::ResetOutside => Self::event("resets-outside-window", "resets outside the window"),
            Cause::OutsideWindow => Self::event("outside-window", "dropped outside the window"),
            Cause::BehindEnd => Self::event("behind-end", "dropped behind the end"),
            Cause::Duplicate => Self::event("duplicate", "dropped copies of held segments"),
            Cause::NoRoom => Self::refusal("no-room-to-hold", "no room to hold"),
            Cause::NoSyn => Self::refusal("no-syn", "no SYN seen"),
            Cause::Gap => Self::refusal("gap", "gap in the bytes seen"),
            Cause::Fragment => Self::refusal("tcp-fragment", "IP fragments of TCP"),
            Cause::Conflict => Self::event("conflicting", "retransmissions with other bytes"),
            Cause::NotKept => Self::refusal("no-room-to-keep", "no room to keep bytes"),
            Cause::WrongPort => Self::event("wrong-port", "dropped from the other end's port"),
            Cause::Detached => Self::event("detached", "detached"),
        }
    }
}

/// The counters in front of those of causes: bytes that functions were given, packets with such bytes, and
/// segments that came too early.
const GIVEN: [StreamCounter; EARLY + 1] = [
    StreamCounter::bytes("read", "bytes"),
    StreamCounter::event("packets", "packets with bytes"),
    StreamCounter::event("early", "early segments"),
];
pub(super) const BYTES: usize = 0;
pub(super) const PACKETS: usize = 1;
pub(super) const EARLY: usize = 2;
/// Those of [`Cause::ALL`] without the first follow, and then [`EDIT_COUNTERS`].
pub(super) const FIRST_EDIT: usize = GIVEN.len() + Cause::ALL.len() - 1;
pub(super) const COUNTERS: usize = FIRST_EDIT + EDIT_COUNTERS.len();

const _: () = assert!(EARLY + Cause::Detached as usize + 1 == FIRST_EDIT);

/// Returns all counters in the order of their numbers.
pub(super) fn all() -> impl Iterator<Item = StreamCounter> {
    let causes = Cause::ALL.into_iter().filter(|&cause| cause != Cause::None).map(StreamCounter::of);
    GIVEN.into_iter().chain(causes).chain(EDIT_COUNTERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_a_kind_have_different_names() {
        let all: Vec<_> = all().collect();
        assert_eq!(all.len(), COUNTERS);
        for (at, one) in all.iter().enumerate() {
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
            assert!(!one.name.is_empty() && one.name.bytes().all(is_plain), "{one:?}");
            let same = |other: &StreamCounter| other.kind == one.kind && other.name == one.name;
            assert!(!all[..at].iter().any(same), "{one:?}");
        }
    }
}
