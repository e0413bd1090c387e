use super::*;
use crate::bench::traffic::{Generated, Generator, Proto};

/// The answers to `count` segments of one flow.
fn answers(config: &Generated, count: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let mut generator = Generator::new(config, 0);
    let mut answers = Answers::new(u64::from(config.in_flight) * u64::from(config.flows));
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let mut frame = vec![0; generator.frame_len()];
        generator.write_next(&mut frame);
        answers.add(&frame);
        sent.push(frame);
        let mut out = [0; MAX_ANSWER];
        let len = answers.write_next(&mut out);
        received.extend((len > 0).then(|| out[..len].to_vec()));
    }
    (sent, received)
}

#[test]
fn every_second_segment_is_acknowledged() {
    for ip6 in [false, true] {
        let config =
            Generated { flows: 1, size: 700, proto: Proto::Tcp, ip6, answered: true, ..Generated::default() };
        let (sent, received) = answers(&config, 6);
        assert_eq!(received.len(), 3);
        for (answer, segment) in received.iter().zip(sent.iter().skip(1).step_by(2)) {
            let (meta, sent) = (read(answer).expect("a valid frame"), read(segment).expect("a valid frame"));
            let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
            assert_eq!((answer.len(), usize::from(meta.end)), (l4 + 32, l4 + 32));
            let payload = u32::from(sent.end - sent.l4_off) - 32;
            assert_eq!(number(answer, l4 + 8), number(segment, l4 + 4).wrapping_add(payload));
            assert_eq!(number(answer, l4 + 4), number(segment, l4 + 8));
            assert_eq!(answer[l4 + 13], ACK);
            assert_eq!(
                (&answer[l4..l4 + 2], &answer[l4 + 2..l4 + 4]),
                (&segment[l4 + 2..l4 + 4], &segment[l4..l4 + 2])
            );
            let addresses = if ip6 { l3 + 8..l3 + 40 } else { l3 + 12..l3 + 20 };
            let pseudo = checksum::sum(&answer[addresses], 6 + 32);
            assert_eq!(checksum::fold(checksum::sum(&answer[l4..], pseudo)), 0xffff);
            assert!(ip6 || checksum::fold(checksum::sum(&answer[l3..l4], 0)) == 0xffff);
        }
    }
}

#[test]
fn acknowledgments_come_when_so_many_segments_are_in_flight() {
    let config = Generated {
        flows: 1,
        size: 700,
        proto: Proto::Tcp,
        answered: true,
        in_flight: 5,
        ..Generated::default()
    };
    let end =
        |frame: &Vec<u8>, at: usize| number(frame, usize::from(read(frame).expect("valid").l4_off) + at);
    for (count, acknowledged) in [(6, None), (7, Some(1)), (8, Some(1)), (9, Some(3)), (100, Some(93))] {
        let (sent, received) = answers(&config, count);
        let last = received.last().map(|answer| end(answer, 8));
        assert_eq!(last, acknowledged.map(|at: usize| end(&sent[at + 1], 4)), "{count}");
    }
}

#[test]
fn segments_without_data_and_datagrams_have_no_answer() {
    for (size, proto) in [(66, Proto::Tcp), (700, Proto::Udp)] {
        let config = Generated { flows: 1, size, proto, answered: true, ..Generated::default() };
        assert_eq!(answers(&config, 4).1, Vec::<Vec<u8>>::new());
    }
}
