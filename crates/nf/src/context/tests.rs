//! Tests of the parent module.

use super::*;

const PORTS: fn(u8) -> Option<(u16, u16)> = |at| Some((10 + u16::from(at), 20 + u16::from(at)));

fn sent(emissions: &Emissions) -> Vec<(u16, u16, Option<u8>, Vec<u8>)> {
    let one = |e: Emission<'_>| (e.out_port, e.in_port, e.packet, e.frame.to_vec());
    emissions.iter().map(one).collect()
}

#[test]
fn ports_are_those_of_the_packet() {
    let mut emissions = Emissions::default();
    emissions.push(EmitTarget::Ingress, None, 5, &[b"end"]);
    emissions.push(EmitTarget::Egress, None, 5, &[b"nowhere"]);
    emissions.push(EmitTarget::Ingress, Some(1), 0, &[b"back"]);
    emissions.push(EmitTarget::Egress, Some(2), 0, &[b"on"]);
    emissions.push(EmitTarget::Port(7), Some(3), 0, &[b"port"]);
    emissions.resolve(PORTS);
    let end = (5, 5, None, b"end".to_vec());
    let others = [
        (11, 11, Some(1), b"back".to_vec()),
        (22, 12, Some(2), b"on".to_vec()),
        (7, 13, Some(3), b"port".to_vec()),
    ];
    assert_eq!(sent(&emissions), [&[end], &others[..]].concat());
    assert_eq!(emissions.lost(), 1);
    emissions.clear();
    assert!(emissions.is_empty());
}

/// A frame is completed once, when the ports of its vector are known. One that fails is not sent.
#[test]
fn frames_are_completed_once() {
    let mut emissions = Emissions::default();
    emissions.push(EmitTarget::Egress, Some(0), 0, &[b"aa"]);
    emissions.set_place(0, false, false);
    emissions.push(EmitTarget::Egress, Some(1), 0, &[b"bb"]);
    emissions.push(EmitTarget::Ingress, Some(2), 0, &[b"cc"]);
    emissions.push(EmitTarget::Port(9), Some(3), 0, &[b"dd"]);
    emissions.set_place(1, true, true);
    for new in [true, false] {
        let first = emissions.resolve(PORTS);
        let mut asked = Vec::new();
        emissions.finish(first, |at, is_egress, after, frame| {
            asked.push((at, is_egress, after));
            frame.fill(b'x');
            at < 2
        });
        let all = [(0, true, None), (1, true, Some(true)), (2, false, Some(true))];
        assert_eq!(asked, if new { &all[..] } else { &[] });
        let frames: Vec<_> = sent(&emissions).into_iter().map(|(_, _, _, frame)| frame).collect();
        assert_eq!(frames, [b"xx", b"xx", b"dd"]);
    }
    assert_eq!(emissions.lost(), 1);
}

/// A frame can be longer than any buffer, and come in slices.
#[test]
fn emitted_frames_have_any_length() {
    let mut emissions = Emissions::default();
    let (head, payload) = ([1; 14], vec![2; 60_000]);
    emissions.push(EmitTarget::Port(1), None, 0, &[&head, &payload]);
    assert_eq!(emissions.iter().next().unwrap().frame, [&head[..], &payload].concat());
}

#[test]
fn emissions_are_bounded() {
    let mut emissions = Emissions::default();
    (0..Emissions::MAX_FRAMES + 5).for_each(|_| emissions.push(EmitTarget::Port(1), None, 0, &[&[0; 60]]));
    assert_eq!((emissions.len(), emissions.lost()), (Emissions::MAX_FRAMES, 5));
}
