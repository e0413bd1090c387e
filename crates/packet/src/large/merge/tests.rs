//! Tests of the parent module: what is merged and cut again are the same frames, each flow in its order.

#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::build::{Frame, Ip4, Ip6, Tcp, Udp};

const PSH_ACK: u8 = 0x18;
const FIN_ACK: u8 = 0x11;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const URG: u8 = 0x20;
const CWR: u8 = 0x80;

/// Packets of a vector: bytes, and the size of segments of large frames.
#[derive(Default)]
struct Vector(Vec<(Vec<u8>, Option<u16>)>);

impl MergePackets for Vector {
    fn is_intact(&self, at: usize, segment: &TcpSegment) -> bool {
        let (head, rest) = self.0[at].0.split_at(segment.frame.payload);
        let (odd, rest) = rest.split_at(rest.len().min(7));
        segment.is_intact(head, &[odd, rest])
    }

    fn finish(&mut self, train: &Train) {
        let (frame, size) = &mut self.0[train.at()];
        train.write_headers(frame);
        *size = Some(train.segment_size());
    }
}

/// Merges frames, as a port does before it sends them.
fn merge(frames: &[Vec<u8>]) -> Vec<(Vec<u8>, Option<u16>)> {
    let (mut merger, mut packets) = (Merger::default(), Vector::default());
    for frame in frames {
        let role = MergeRole::parse(frame, frame.len());
        packets.0.push((frame.clone(), None));
        let at = packets.0.len() - 1;
        if let Some(first) = merger.take(&role, frame, at, &mut packets) {
            packets.0.pop();
            packets.0[first].0.extend_from_slice(&frame[role.header_len()..]);
        }
    }
    merger.finish(&mut packets);
    packets.0
}

/// Cuts large frames.
fn cut(merged: &[(Vec<u8>, Option<u16>)]) -> Vec<Vec<u8>> {
    let one = |(frame, size): &(Vec<u8>, Option<u16>)| {
        let Some(size) = size else { return vec![frame.clone()] };
        let headers = LargeFrame::parse(frame, frame.len()).unwrap();
        assert_eq!(headers.header_len() + headers.payload_len(), frame.len(), "lengths of the large frame");
        if headers.is_ip4() {
            let l3 = headers.network.l3;
            assert_eq!(fold(sum(&frame[l3..l3 + IP4], 0)), 0xffff, "checksum of the large frame");
        }
        let (head, payload) = frame.split_at(headers.header_len());
        let segment = |place: super::super::SegmentPlace| {
            let mut head = head.to_vec();
            let part = &payload[place.payload.clone()];
            assert!(headers.finish_segment(&mut head, &[part], &place));
            [&head, part].concat()
        };
        headers.segments((*size).into()).map(segment).collect()
    };
    merged.iter().flat_map(one).collect()
}

/// The frames between two addresses and ports, in order.
fn by_flow(frames: &[Vec<u8>]) -> std::collections::BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut flows = std::collections::BTreeMap::<_, Vec<_>>::new();
    for frame in frames {
        let mut meta = crate::Meta::default();
        let _ = crate::parse(frame, frame.len(), &mut meta);
        let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
        let key = match meta.kind.l3() {
            crate::Kind::IP4 => [&[meta.proto], &frame[l3 + 12..l3 + 20], &frame[l4..l4 + 4]].concat(),
            crate::Kind::IP6 => [&[meta.proto], &frame[l3 + 8..l3 + 40], &frame[l4..l4 + 4]].concat(),
            _ => Vec::new(),
        };
        flows.entry(key).or_default().push(frame.clone());
    }
    flows
}

/// A connection that sends, and what it sends next.
#[derive(Clone, Debug)]
struct Sender {
    is_ip4: bool,
    tag: Option<u16>,
    port: u16,
    seq: u32,
    id: u16,
    options: Vec<u8>,
}

impl Sender {
    fn new(is_ip4: bool) -> Sender {
        Sender { is_ip4, tag: None, port: 1000, seq: 0xffff_ff00, id: 0xfffe, options: vec![1; 12] }
    }

    /// The next segment, with what `edit` changes of it. It has valid checksums.
    fn next(&mut self, length: usize, edit: impl FnOnce(&mut Tcp, &mut Ip4, &mut Ip6)) -> Vec<u8> {
        let options = self.options.clone();
        let mut tcp = Tcp { seq: self.seq, flags: ACK, ack: 7, options, ..Tcp::new(self.port, 2000) };
        let mut ip4 = Ip4 { id: self.id, flags: 2, ..Ip4::new([10, 0, 0, 1], [192, 168, 3, 4]) };
        let mut ip6 = Ip6::new([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], [0xfd00, 0, 0, 0, 5, 0, 0, 2]);
        edit(&mut tcp, &mut ip4, &mut ip6);
        let frame = if self.is_ip4 { Frame::new(ip4, tcp) } else { Frame::new(ip6, tcp) };
        let frame = self.tag.iter().fold(frame, |frame, tag| frame.vlan(*tag));
        let payload: Vec<u8> = (0..length).map(|n| (n as u32 ^ self.seq) as u8).collect();
        self.seq = self.seq.wrapping_add(length as u32);
        self.id = self.id.wrapping_add(1);
        frame.payload(payload).build()
    }

    fn plain(&mut self, length: usize) -> Vec<u8> {
        self.next(length, |_, _, _| ())
    }
}

/// Lengths and sizes of what frames become.
fn shapes(frames: &[Vec<u8>]) -> Vec<(usize, Option<u16>)> {
    let merged = merge(frames);
    assert_eq!(by_flow(&cut(&merged)), by_flow(frames));
    merged.into_iter().map(|(frame, size)| (frame.len(), size)).collect()
}

#[test]
fn a_train_is_one_large_frame() {
    for is_ip4 in [true, false] {
        let mut sender = Sender { tag: Some(5), ..Sender::new(is_ip4) };
        let frames: Vec<_> = [1448, 1448, 1448, 100].map(|length| sender.plain(length)).into();
        let headers = frames[0].len() - 1448;
        assert_eq!(shapes(&frames), [(headers + 3 * 1448 + 100, Some(1448))]);
        let [(frame, _)] = &merge(&frames)[..] else { panic!("one frame") };
        let large = LargeFrame::parse(frame, frame.len()).unwrap();
        let TcpSegment { frame: parsed, .. } = match MergeRole::parse(&frames[0], frames[0].len()) {
            MergeRole::Segment(segment) => segment,
            role => panic!("{role:?}"),
        };
        assert_eq!(LargeFrame { end: parsed.end, ..large }, parsed);
    }
}

#[test]
fn what_ends_a_train() {
    let next = |edit: &dyn Fn(&mut Tcp, &mut Ip4, &mut Ip6)| {
        let mut sender = Sender::new(true);
        let frames = [sender.plain(500), sender.next(500, edit), sender.plain(500)];
        shapes(&frames).len()
    };
    assert_eq!(next(&|_, _, _| ()), 1);
    for last in [PSH_ACK, FIN_ACK] {
        assert_eq!(next(&|tcp, _, _| tcp.flags = last), 2, "the last one of a train");
    }
    for apart in [ACK | SYN, ACK | RST, ACK | URG, ACK | CWR, ACK | ECE, 0] {
        assert_eq!(next(&|tcp, _, _| tcp.flags = apart), 3, "flags {apart:#x}");
    }
    assert_eq!(next(&|tcp, _, _| tcp.ack = 8), 3);
    assert_eq!(next(&|tcp, _, _| tcp.window ^= 1), 3);
    assert_eq!(next(&|tcp, _, _| tcp.options = vec![1; 8]), 3);
    assert_eq!(next(&|tcp, _, _| tcp.options[11] = 0), 3);
    assert_eq!(next(&|tcp, _, _| tcp.seq = tcp.seq.wrapping_add(1)), 3);
    assert_eq!(next(&|_, ip4, _| ip4.ttl ^= 1), 3);
    assert_eq!(next(&|_, ip4, _| ip4.tos ^= 3), 3, "congestion");
    assert_eq!(next(&|_, ip4, _| ip4.id ^= 1), 3);
    assert_eq!(next(&|_, ip4, _| ip4.flags = 0), 3);
    assert_eq!(next(&|_, ip4, _| ip4.options = vec![1; 4]), 3);
    assert_eq!(next(&|_, ip4, _| ip4.flags = 1), 3, "a fragment");
}

#[test]
fn acknowledgements_and_longer_segments_stay_alone() {
    let mut sender = Sender::new(false);
    let frames = [sender.plain(0), sender.plain(0), sender.plain(100), sender.plain(101), sender.plain(101)];
    assert_eq!(shapes(&frames).len(), 4);
    let frames = [sender.plain(100), sender.plain(0), sender.plain(100)];
    assert_eq!(shapes(&frames).len(), 3, "order");
}

#[test]
fn a_bad_checksum_stays_bad() {
    for is_ip4 in [true, false] {
        for bad in 0..3usize {
            let mut sender = Sender::new(is_ip4);
            let mut frames: Vec<_> = (0..3).map(|_| sender.plain(1000)).collect();
            *frames[bad].last_mut().unwrap() ^= 1;
            assert_eq!(shapes(&frames).len(), if bad == 1 { 3 } else { 2 });
            // A large frame has no part of the bad one.
            let merged = merge(&frames);
            let alone = merged.iter().find(|(frame, _)| *frame == frames[bad]).unwrap();
            assert_eq!(alone.1, None);
        }
    }
    let mut sender = Sender::new(true);
    let mut frames: Vec<_> = (0..3).map(|_| sender.plain(1000)).collect();
    // The type of service of all, without a new checksum of the header.
    frames.iter_mut().for_each(|frame| frame[15] ^= 4);
    assert_eq!(shapes(&frames).len(), 3);
}

#[test]
fn a_frame_is_no_longer_than_a_packet_can_be() {
    let mut sender = Sender::new(true);
    let frames: Vec<_> = (0..100).map(|_| sender.plain(1448)).collect();
    let lengths = shapes(&frames);
    assert!(lengths.iter().all(|(length, _)| *length <= LONGEST) && lengths.len() == 3, "{lengths:?}");
    let frames: Vec<_> = (0..100).map(|_| sender.plain(10)).collect();
    assert_eq!(shapes(&frames).len(), 2);
}

#[test]
fn flows_are_merged_beside_each_other() {
    let mut senders: Vec<_> =
        (0..2 * TRAINS as u16).map(|port| Sender { port, ..Sender::new(port % 2 == 0) }).collect();
    let mut round = |n: usize| -> Vec<_> { (0..4 * n).map(|at| senders[at % n].plain(700)).collect() };
    assert_eq!(shapes(&round(TRAINS)).len(), TRAINS);
    // Too many flows at a time: no train lasts.
    assert_eq!(shapes(&round(2 * TRAINS)).len(), 8 * TRAINS);
}

#[test]
fn trailing_bytes_and_other_packets_stay() {
    let mut sender = Sender::new(true);
    let frames = [sender.plain(4), sender.plain(4)].map(|frame| [frame, vec![0; 2]].concat());
    assert_eq!(shapes(&frames).len(), 2);
    let udp = Frame::new(Ip4::new([10, 0, 0, 1], [192, 168, 3, 4]), Udp::new(1, 2)).payload([0; 50]).build();
    let arp = Frame::ethernet(0x0806).payload([0; 60]).build();
    let frames = [sender.plain(100), udp, arp, sender.plain(100)];
    assert_eq!(shapes(&frames).len(), 3);
}

/// What changes from a segment to the next.
#[derive(Clone, Debug)]
struct Step {
    sender: usize,
    length: usize,
    flags: u8,
    fault: u8,
    at: prop::sample::Index,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![6 => Just(1000usize), 1 => Just(0), 2 => 1..1400usize];
    let flags = prop_oneof![8 => Just(ACK), 1 => Just(PSH_ACK), 1 => any::<u8>()];
    let fault = prop_oneof![8 => Just(0u8), 2 => 1..6u8];
    let step = (0..12usize, length, flags, fault, any::<prop::sample::Index>());
    vec(
        step.prop_map(|(sender, length, flags, fault, at)| Step {
            sender: sender / 3,
            length,
            flags,
            fault,
            at,
        }),
        0..256,
    )
}

proptest! {
    #[test]
    fn merged_and_cut_frames_are_the_same(steps in steps(), tag in prop::option::of(1..4000u16)) {
        let mut senders: Vec<_> =
            (0..4).map(|port| Sender { port, tag, ..Sender::new(port % 2 == 0) }).collect();
        let frames: Vec<Vec<u8>> = steps.iter().map(|step| {
            let mut frame = senders[step.sender].next(step.length, |tcp, ip4, ip6| {
                tcp.flags = step.flags;
                match step.fault {
                    1 => ip4.id = ip4.id.wrapping_add(1),
                    2 => (ip4.ttl, ip6.hop_limit) = (9, 9),
                    _ => {}
                }
            });
            let at = step.at.index(frame.len());
            match step.fault {
                // Any byte, with checksums that do not fit.
                3 => frame[at] ^= 1,
                4 => frame.truncate(at),
                5 => frame.extend([0; 3]),
                _ => {}
            }
            frame
        }).collect();
        let merged = merge(&frames);
        let again = cut(&merged);
        prop_assert_eq!(again.len(), frames.len());
        if steps.iter().all(|step| step.fault != 4) {
            prop_assert_eq!(by_flow(&again), by_flow(&frames));
        }
        let sorted = |mut frames: Vec<Vec<u8>>| { frames.sort(); frames };
        prop_assert_eq!(sorted(again), sorted(frames));
    }
}
