//! Fragments against a naive model: a list of datagrams by age, each with its waiting buffers.

use std::collections::VecDeque;

use mmb_packet::build::{Extension, Frame, Ip4, Ip6, Transport, Udp};
use mmb_packet::{Meta, parse};
use proptest::prelude::*;

use super::datagram::Extent;
use super::*;

const TIMEOUT: u32 = 2000;

/// A fragment of a datagram with blocks of eight bytes, which has 9 of them.
fn piece(n: u8, start: u16, end: u16) -> Fragment {
    let datagram = DatagramKey { source: [n; 16], ..DatagramKey::default() };
    Fragment { datagram, extent: Some(Extent { start, end, is_last: end == 9 }) }
}

fn first(n: u8) -> Fragment {
    piece(n, 0, 3)
}

fn resolve(f: &mut FragmentTable<char>, fragment: Fragment, now: u32) -> FragmentAction<char> {
    f.resolve_later(&fragment, false, now, TIMEOUT)
}

fn limits(datagrams: u32, waiting: u32, per_datagram: u32) -> FragmentLimits {
    FragmentLimits { datagrams, waiting, per_datagram }
}

fn ticket(later: FragmentAction<char>) -> Ticket {
    match later {
        FragmentAction::Wait(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

#[test]
fn later_fragments_follow_the_first() {
    let mut f = FragmentTable::new(limits(4, 4, 4));
    f.record_first(&first(1), 'a', 0);
    f.record_first(&first(2), 'b', 10);
    assert_eq!(resolve(&mut f, piece(1, 3, 4), 1999), FragmentAction::Follow('a'));
    assert_eq!(resolve(&mut f, piece(2, 3, 4), 1999), FragmentAction::Follow('b'));
    f.record_first(&first(2), 'c', 1999);
    assert_eq!(resolve(&mut f, piece(2, 4, 5), 3998), FragmentAction::Follow('c'));
    assert_eq!(f.pop_released(), None);
    assert!(matches!(resolve(&mut f, piece(1, 4, 5), 2000), FragmentAction::Wait(_)), "forgotten");
    f.expire(3999, TIMEOUT);
    assert_eq!((f.len(), f.waiting()), (1, 1));
    f.expire(4000, TIMEOUT);
    assert_eq!((f.len(), f.waiting()), (0, 1));
    assert_eq!(f.pop_released().map(|r| r.target), Some(None));
    assert_eq!((f.is_empty(), f.waiting()), (true, 0));
}

#[test]
fn held_fragments_are_released_in_order() {
    let mut f = FragmentTable::new(limits(4, 8, 3));
    let [a, b, c] = [0, 1, 2].map(|now| ticket(resolve(&mut f, piece(1, 3, 4), now)));
    assert_eq!(resolve(&mut f, piece(1, 3, 4), 3), FragmentAction::Refused, "three of one datagram");
    let other = ticket(resolve(&mut f, piece(2, 3, 4), 3));
    f.record_first(&first(1), 'z', 1000);
    let counted_from_the_first = resolve(&mut f, piece(1, 3, 4), 2999);
    assert_eq!(counted_from_the_first, FragmentAction::Follow('z'));
    for expected in [a, b, c] {
        assert_eq!(f.pop_released(), Some(ReleasedFragment { ticket: expected, target: Some('z') }));
    }
    assert_eq!(f.pop_released(), None);
    f.expire(2003, TIMEOUT);
    assert_eq!(f.pop_released(), Some(ReleasedFragment { ticket: other, target: None }));
    assert_eq!(f.waiting(), 0);
}

/// RFC 5722, 4: all fragments of the datagram are dropped, those that wait or have not come included.
#[test]
fn an_overlap_refuses_the_datagram() {
    for overlap in [piece(1, 2, 5), piece(1, 0, 3), piece(1, 4, 8), Fragment { extent: None, ..first(1) }] {
        let mut f = FragmentTable::new(limits(4, 8, 3));
        f.record_first(&first(1), 'a', 0);
        assert_eq!(resolve(&mut f, piece(1, 3, 6), 1), FragmentAction::Follow('a'));
        let is_duplicate = overlap == first(1);
        assert_eq!(resolve(&mut f, overlap, 2), FragmentAction::Overlap);
        let after = if is_duplicate { FragmentAction::Follow('a') } else { FragmentAction::Overlap };
        assert_eq!(resolve(&mut f, piece(1, 6, 8), 3), after, "{overlap:?}");
        assert!(!f.admits_first(&first(1), 4, TIMEOUT));
        assert_eq!(resolve(&mut f, piece(1, 8, 9), 5), after);
        assert!(f.admits_first(&first(1), TIMEOUT, TIMEOUT), "forgotten");
    }
    // A second first fragment of another length, while a fragment waits.
    let mut f = FragmentTable::new(limits(4, 8, 3));
    f.record_first(&first(1), 'a', 0);
    assert!(!f.admits_first(&piece(1, 0, 4), 1, TIMEOUT));
    assert_eq!(resolve(&mut f, piece(1, 3, 4), 1), FragmentAction::Overlap);
    assert!(!f.admits_first(&Fragment { extent: None, ..first(2) }, 1, TIMEOUT));
}

/// An identification may be used again as soon as its datagram is complete.
#[test]
fn a_complete_datagram_makes_room_for_the_next() {
    let mut f = FragmentTable::new(limits(4, 8, 3));
    for (target, now) in [('a', 0), ('b', 1)] {
        assert!(f.admits_first(&first(1), now, TIMEOUT));
        f.record_first(&first(1), target, now);
        assert_eq!(resolve(&mut f, piece(1, 3, 9), now), FragmentAction::Follow(target));
        assert_eq!(f.resolve_later(&piece(1, 3, 9), true, now, TIMEOUT), FragmentAction::Follow(target));
    }
    let waiting = ticket(resolve(&mut f, piece(1, 3, 9), 2));
    assert!(f.admits_first(&first(1), 3, TIMEOUT));
    f.record_first(&first(1), 'c', 3);
    assert_eq!(f.pop_released(), Some(ReleasedFragment { ticket: waiting, target: Some('c') }));
    assert_eq!(resolve(&mut f, piece(1, 3, 9), 3), FragmentAction::Follow('c'));
}

#[test]
fn the_clock_may_wrap() {
    let mut f = FragmentTable::new(limits(4, 4, 4));
    f.record_first(&first(1), 'a', u32::MAX - 5);
    assert_eq!(resolve(&mut f, piece(1, 3, 4), 1990), FragmentAction::Follow('a'));
    f.expire(1993, TIMEOUT);
    assert_eq!(f.len(), 1);
    f.expire(1994, TIMEOUT);
    assert_eq!(f.len(), 0);
}

#[test]
fn a_table_without_room_holds_nothing() {
    for none in [limits(0, 4, 4), limits(4, 0, 4), limits(4, 4, 0)] {
        let mut f = FragmentTable::new(none);
        assert_eq!(resolve(&mut f, piece(1, 3, 4), 0), FragmentAction::Refused);
        f.record_first(&first(1), 'e', 0);
        let after = resolve(&mut f, piece(1, 3, 4), 0);
        let expected =
            if none.datagrams == 0 { FragmentAction::Refused } else { FragmentAction::Follow('e') };
        assert_eq!(after, expected);
        assert_eq!((f.len(), f.waiting()), (none.datagrams.min(1), 0));
    }
}

fn fragment(frame: &[u8]) -> Option<Fragment> {
    let mut meta = Meta::default();
    if let Err(reason) = parse(frame, frame.len(), &mut meta) {
        assert!(reason.is_transport_error());
    }
    Fragment::of(frame, &meta)
}

fn of(frame: &[u8]) -> Option<DatagramKey> {
    fragment(frame).map(|fragment| fragment.datagram)
}

/// RFC 791, 3.2 and RFC 8200, 4.5: lengths in multiples of 8 bytes, except for the last one.
#[test]
fn extents_are_those_of_the_headers() {
    let extent = |start, end, is_last| Some(Extent { start, end, is_last });
    for (offset, more, length, expected) in [
        (3, true, 16, extent(3, 5, false)),
        (3, false, 16, extent(3, 5, true)),
        (3, false, 17, extent(3, 6, true)),
        (3, true, 17, None),
        (3, true, 0, None),
        (3, false, 0, None),
        (8189, false, 23, extent(8189, 8192, true)),
        (8189, false, 24, None),
        (8191, true, 8, None),
    ] {
        let ip4 = Ip4 {
            flags: u8::from(more),
            fragment_offset: offset,
            options: vec![1; 8],
            ..Ip4::new([10, 0, 0, 1], [10, 0, 0, 2])
        };
        let ahead = Extension::Plain { number: 0, body: vec![0; 6] };
        let ip6 = Ip6::new([1; 16], [2; 16]).with([ahead, Extension::Fragment { offset, more, id: 1 }]);
        for frame in [Frame::new(ip4, Transport::Raw(17)), Frame::new(ip6, Transport::Raw(17))] {
            let frame = frame.payload(vec![0; length]).pad_to(100).build();
            assert_eq!(fragment(&frame).map(|fragment| fragment.extent), Some(expected), "{offset} {length}");
        }
    }
}

/// RFC 791, 2.3: source, destination, protocol and identification.
#[test]
fn datagrams_over_ip4() {
    let ip = |flags, fragment_offset| Ip4 {
        flags,
        fragment_offset,
        id: 77,
        ..Ip4::new([10, 0, 0, 1], [10, 0, 0, 2])
    };
    let later = |ip: Ip4, proto| of(&Frame::new(ip, Transport::Raw(proto)).payload([0; 16]).build());
    let first = of(&Frame::new(ip(1, 0), Udp::new(1, 2)).payload([0; 8]).build());
    assert_ne!(first, None);
    assert_eq!(later(ip(1, 2), 17), first);
    assert_eq!(later(Ip4 { options: vec![1; 4], ttl: 3, ..ip(0, 4) }, 17), first);
    for other in [
        later(ip(0, 2), 6),
        later(Ip4 { id: 78, ..ip(0, 2) }, 17),
        later(Ip4 { src: [10, 0, 0, 3].into(), ..ip(0, 2) }, 17),
        later(Ip4 { dst: [10, 0, 0, 3].into(), ..ip(0, 2) }, 17),
    ] {
        assert!(other.is_some() && other != first);
    }
    assert_eq!(of(&Frame::new(ip(2, 0), Udp::new(1, 2)).build()), None);
}

/// RFC 8200, 4.5: source, destination and identification. The next header may differ.
#[test]
fn datagrams_over_ip6() {
    let ip = |id, offset, ahead: Vec<Extension>| {
        let fragment = Extension::Fragment { offset, more: true, id };
        Ip6::new([0xfd00, 0, 0, 0, 0, 0, 0, 1], [0xfd00, 0, 0, 0, 0, 0, 0, 2])
            .with([ahead, vec![fragment]].concat())
    };
    let hops = Extension::Plain { number: 0, body: vec![0; 14] };
    let secured = Extension::Authentication { spi: 1, sequence: 2 };
    let first = of(&Frame::new(ip(0xf000_0001, 0, vec![]), Udp::new(1, 2)).payload([0; 8]).build());
    let later = |ip: Ip6, proto| of(&Frame::new(ip, Transport::Raw(proto)).payload([0; 16]).build());
    assert_ne!(first, None);
    assert_eq!(later(ip(0xf000_0001, 2, vec![hops, secured]), 60), first);
    let other = later(ip(0xf001_0001, 2, vec![]), 17);
    assert!(other.is_some() && other != first);
    let four = Ip4 { flags: 1, ..Ip4::new([0xfd, 0, 0, 0], [0xfd, 0, 0, 0]) };
    assert_ne!(of(&Frame::new(four, Udp::new(1, 2)).payload([0; 8]).build()), first);
}

/// A datagram of the model.
#[derive(Clone, Debug)]
struct ModelDatagram {
    datagram: u8,
    target: Option<u8>,
    since: u32,
    buffers: Vec<u32>,
    /// Fragments that have come, and blocks of eight bytes.
    parts: Vec<(u16, u16)>,
    refused: bool,
    complete: bool,
}

impl ModelDatagram {
    fn new(datagram: u8, since: u32) -> ModelDatagram {
        ModelDatagram {
            datagram,
            target: None,
            since,
            buffers: vec![],
            parts: vec![],
            refused: false,
            complete: false,
        }
    }

    /// None: a duplicate. False: an overlap.
    fn add(&mut self, part: (u16, u16)) -> Option<bool> {
        if self.parts.contains(&part) {
            return None;
        }
        if self.parts.iter().any(|(start, end)| part.0 < *end && *start < part.1) {
            return Some(false);
        }
        self.parts.push(part);
        self.complete = self.parts.iter().map(|(start, end)| end - start).sum::<u16>() == 9;
        Some(true)
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    First(u8, u8, u16),
    Later(u8, u16, u16),
    Wait(u32),
    Expire,
    Clear,
    Release(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let datagrams = 0..7u8;
    prop_oneof![
        3 => (datagrams.clone(), any::<u8>(), 3..5u16)
            .prop_map(|(datagram, target, end)| Step::First(datagram, target, end)),
        8 => (datagrams, 3..9u16, 1..4u16)
            .prop_map(|(datagram, start, length)| Step::Later(datagram, start, (start + length).min(9))),
        2 => (0..TIMEOUT).prop_map(Step::Wait),
        2 => Just(Step::Expire),
        1 => Just(Step::Clear),
        4 => (0..6usize).prop_map(Step::Release),
    ]
}

struct Model {
    limits: FragmentLimits,
    /// In order of age.
    known: Vec<ModelDatagram>,
    released: VecDeque<(u32, Option<u8>)>,
}

impl Model {
    fn release(&mut self, at: usize) {
        let ModelDatagram { target, buffers, .. } = self.known.remove(at);
        self.released.extend(buffers.into_iter().map(|buffer| (buffer, target)));
    }

    fn room(&mut self) {
        if self.known.len() == self.limits.datagrams as usize {
            self.known[0].target = None;
            self.release(0);
        }
    }

    fn find(&self, datagram: u8) -> Option<usize> {
        self.known.iter().position(|known| known.datagram == datagram)
    }

    fn forget(&mut self, at: usize) {
        self.known[at].target = None;
        self.release(at);
    }

    fn waiting(&self) -> usize {
        self.released.len() + self.known.iter().map(|known| known.buffers.len()).sum::<usize>()
    }

    fn refuse(&mut self, at: usize) {
        let known = &mut self.known[at];
        (known.target, known.refused) = (None, true);
        self.released.extend(std::mem::take(&mut known.buffers).into_iter().map(|buffer| (buffer, None)));
    }

    /// Forgets a datagram that has expired.
    fn current(&mut self, datagram: u8, now: u32) -> Option<usize> {
        if let Some(at) = self.find(datagram).filter(|at| now - self.known[*at].since >= TIMEOUT) {
            self.forget(at);
        }
        self.find(datagram)
    }

    /// Returns whether the fragment is admitted.
    fn first(&mut self, datagram: u8, target: u8, end: u16, now: u32) -> bool {
        let found = self.current(datagram, now);
        if let Some(at) = found {
            let known = &mut self.known[at];
            if known.refused {
                return false;
            }
            if known.target.is_some() && !known.complete {
                if known.add((0, end)) == Some(false) {
                    self.refuse(at);
                }
                return false;
            }
            self.known[at].target = Some(target);
            self.release(at);
        } else {
            self.room();
        }
        let mut known = ModelDatagram { target: Some(target), ..ModelDatagram::new(datagram, now) };
        known.add((0, end));
        self.known.push(known);
        true
    }

    fn later(&mut self, datagram: u8, part: (u16, u16), now: u32, buffer: u32) -> FragmentAction<u8> {
        let mut found = self.current(datagram, now);
        if let Some(at) = found {
            let known = &mut self.known[at];
            match known.target {
                _ if known.refused => return FragmentAction::Overlap,
                Some(_) if known.complete => {
                    let ModelDatagram { buffers, .. } = self.known.remove(at);
                    self.known.push(ModelDatagram { buffers, ..ModelDatagram::new(datagram, now) });
                    found = Some(self.known.len() - 1);
                }
                Some(target) => {
                    return match known.add(part) {
                        Some(true) => FragmentAction::Follow(target),
                        Some(false) => {
                            self.refuse(at);
                            FragmentAction::Overlap
                        }
                        None => FragmentAction::Overlap,
                    };
                }
                None => {}
            }
        }
        let of_it = found.map_or(0, |at| self.known[at].buffers.len());
        if of_it == self.limits.per_datagram as usize || self.waiting() == self.limits.waiting as usize {
            return FragmentAction::Refused;
        }
        if found.is_none() {
            self.room();
            self.known.push(ModelDatagram::new(datagram, now));
        }
        let at = found.unwrap_or(self.known.len() - 1);
        self.known[at].buffers.push(buffer);
        FragmentAction::Wait(Ticket(buffer))
    }
}

proptest! {
    #[test]
    fn fragments_agree_with_the_model(
        (datagrams, waiting, per_datagram) in (1..6u32, 1..8u32, 1..4u32),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let limits = limits(datagrams, waiting, per_datagram);
        let mut model = Model { limits, known: vec![], released: VecDeque::new() };
        let mut fragments = FragmentTable::new(limits);
        // The buffers that the caller keeps: numbers that identify them.
        let mut kept = vec![None; waiting as usize];
        let (mut now, mut next) = (0u32, 0u32);
        for step in steps {
            match step {
                Step::First(n, target, end) => {
                    let is_admitted = fragments.admits_first(&piece(n, 0, end), now, TIMEOUT);
                    prop_assert_eq!(is_admitted, model.first(n, target, end, now));
                    if is_admitted {
                        fragments.record_first(&piece(n, 0, end), target, now);
                    }
                }
                Step::Later(n, start, end) => {
                    next += 1;
                    let expected = model.later(n, (start, end), now, next);
                    match fragments.resolve_later(&piece(n, start, end), false, now, TIMEOUT) {
                        FragmentAction::Wait(ticket) => {
                            prop_assert_eq!(expected, FragmentAction::Wait(Ticket(next)));
                            let place = &mut kept[ticket.0 as usize];
                            prop_assert_eq!(place.replace(next), None, "in use");
                        }
                        other => prop_assert_eq!(other, expected),
                    }
                }
                Step::Wait(ms) => now += ms,
                Step::Expire => {
                    fragments.expire(now, TIMEOUT);
                    while model.known.first().is_some_and(|known| now - known.since >= TIMEOUT) {
                        model.forget(0);
                    }
                }
                Step::Clear => {
                    fragments.clear();
                    while !model.known.is_empty() {
                        model.forget(0);
                    }
                }
                Step::Release(n) => for _ in 0..n {
                    let released = fragments.pop_released();
                    let buffer = released.and_then(|r| kept[r.ticket.0 as usize].take());
                    let expected = model.released.pop_front();
                    prop_assert_eq!(buffer, expected.map(|(buffer, _)| buffer));
                    prop_assert_eq!(released.and_then(|r| r.target), expected.and_then(|(_, target)| target));
                }
            }
            prop_assert_eq!(fragments.len() as usize, model.known.len());
            prop_assert_eq!(fragments.waiting() as usize, model.waiting());
        }
    }
}
