//! Large frames of a harness.

use mmb_packet::LargeFrame;

/// Large frames, as functions get them.
#[derive(Clone, Copy, Debug)]
pub struct LargeFrames {
    /// See [`crate::Packet::segment_size`].
    pub segment_size: u16,
    /// Bytes of each buffer of a frame.
    pub buffer: usize,
}

impl LargeFrames {
    /// Returns the bytes of a large frame behind its first buffer, by buffers. None: it is an ordinary one.
    pub(super) fn tail_of(&self, frame: &[u8]) -> Option<Vec<Vec<u8>>> {
        let large = LargeFrame::parse(frame, frame.len())?;
        let is_large = large.payload_len() > self.segment_size.into();
        let tail = frame.get(self.buffer..).unwrap_or(&[]);
        is_large.then(|| tail.chunks(self.buffer.max(1)).map(<[u8]>::to_vec).collect())
    }
}

/// Returns the frames as which one leaves by a port that takes no large frames. `segment_size`: see
/// [`crate::Emission::segment_size`].
pub fn segments_of(frame: &[u8], segment_size: u16) -> Vec<Vec<u8>> {
    let large = LargeFrame::parse(frame, frame.len()).filter(|_| segment_size != 0);
    let Some(large) = large else { return vec![frame.to_vec()] };
    let (headers, payload) = frame.split_at(large.header_len());
    let segments = large.segments(segment_size.into()).map(|place| {
        let mut segment = [headers, &payload[place.payload.clone()]].concat();
        large.finish_segment(&mut segment, &[], &place);
        segment
    });
    segments.collect()
}
