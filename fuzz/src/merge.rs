//! Merging segments: what is cut again is the same, whatever the frames are.

use mmb_packet::checksum::complete_partial;
use mmb_packet::{Kind, LargeFrame, MergePackets, MergeRole, Merger, Meta, TcpSegment, Train, parse};

/// Frames, and the size of segments of those that are large.
#[derive(Default)]
struct Vector(Vec<(Vec<u8>, Option<u16>)>);

impl MergePackets for Vector {
    fn is_intact(&self, at: usize, segment: &TcpSegment) -> bool {
        segment.is_intact(&self.0[at].0, &[])
    }

    fn finish(&mut self, train: &Train) {
        let (frame, size) = &mut self.0[train.at()];
        train.write_headers(frame);
        *size = Some(train.segment_size());
    }
}

/// Panics if a property does not hold for `frame`, behind which come others of its flow.
pub fn check(frame: &[u8]) {
    let mut frames = vec![frame.to_vec()];
    frames.extend((1..5).map_while(|number| continued(frame, number)));
    frames.insert(frames.len() / 2, frame.to_vec());
    let (mut merger, mut packets) = (Merger::default(), Vector::default());
    for frame in &frames {
        let role = MergeRole::parse(frame, frame.len());
        packets.0.push((frame.clone(), None));
        let at = packets.0.len() - 1;
        if let Some(first) = merger.take(&role, frame, at, &mut packets) {
            packets.0.pop();
            packets.0[first].0.extend_from_slice(&frame[role.header_len()..]);
        }
    }
    merger.finish(&mut packets);
    let again: Vec<_> = packets.0.iter().flat_map(|(frame, size)| cut(frame, *size)).collect();
    // All are of one flow, so that their order is kept.
    assert_eq!(again, frames);
}

/// The segment by that number behind a frame of TCP, with a valid checksum.
fn continued(frame: &[u8], number: u32) -> Option<Vec<u8>> {
    let (mut meta, mut frame) = (Meta::default(), frame.to_vec());
    parse(&frame, frame.len(), &mut meta).ok().filter(|()| meta.kind.l4() == Kind::TCP)?;
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    let headers = LargeFrame::parse(&frame, frame.len())?;
    let add = |field: &mut [u8; 4], n: u32| {
        *field = u32::from_be_bytes(*field).wrapping_add(n).to_be_bytes();
    };
    add(frame[l4 + 4..].first_chunk_mut()?, number * headers.payload_len() as u32);
    if headers.is_ip4() {
        let id = u16::from_be_bytes([frame[l3 + 4], frame[l3 + 5]]).wrapping_add(number as u16);
        frame[l3 + 4..l3 + 6].copy_from_slice(&id.to_be_bytes());
        frame[l3 + 10..l3 + 12].fill(0);
        let length = usize::from(frame[l3] & 0xf) * 4;
        let sum = mmb_packet::checksum::sum(&frame[l3..l3 + length], 0);
        frame[l3 + 10..l3 + 12].copy_from_slice(&(!mmb_packet::checksum::fold(sum)).to_be_bytes());
    }
    headers.write_partial_checksum(&mut frame);
    complete_partial(&mut frame, [], &meta);
    Some(frame)
}

fn cut(frame: &[u8], size: Option<u16>) -> Vec<Vec<u8>> {
    let (Some(size), Some(headers)) = (size, LargeFrame::parse(frame, frame.len())) else {
        assert_eq!(size, None, "a large frame has headers");
        return vec![frame.to_vec()];
    };
    let (head, payload) = frame.split_at(headers.header_len());
    let segments = headers.segments(size.into()).map(|place| {
        let mut segment = [head, &payload[place.payload.clone()]].concat();
        assert!(headers.finish_segment(&mut segment, &[], &place));
        segment
    });
    segments.collect()
}
