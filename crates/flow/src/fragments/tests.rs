//! Fragments against a naive model: a list of datagrams by age, each with its waiting buffers.

use std::collections::VecDeque;

use mmb_packet::build::{Extension, Frame, Ip4, Ip6, Transport, Udp};
use mmb_packet::parse;
use proptest::prelude::*;

use super::*;

const TIMEOUT: u32 = 2000;

fn datagram(n: u8) -> DatagramKey {
    DatagramKey { source: [n; 16], ..DatagramKey::default() }
}

fn limits(datagrams: u32, waiting: u32, per_datagram: u32) -> FragmentLimits {
    FragmentLimits { datagrams, waiting, per_datagram }
}

fn ticket(later: FragmentAction<u8>) -> Ticket {
    match later {
        FragmentAction::Wait(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

#[test]
fn later_fragments_follow_the_first() {
    let mut f = FragmentTable::new(limits(4, 4, 4));
    f.record_first(&datagram(1), 'a', 0);
    f.record_first(&datagram(2), 'b', 10);
    assert_eq!(f.resolve_later(&datagram(1), 1999, TIMEOUT), FragmentAction::Follow('a'));
    assert_eq!(f.resolve_later(&datagram(2), 1999, TIMEOUT), FragmentAction::Follow('b'));
    f.record_first(&datagram(2), 'c', 1999);
    assert_eq!(f.resolve_later(&datagram(2), 3998, TIMEOUT), FragmentAction::Follow('c'));
    assert_eq!(f.pop_released(), None);
    assert!(matches!(f.resolve_later(&datagram(1), 2000, TIMEOUT), FragmentAction::Wait(_)), "forgotten");
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
    let [a, b, c] = [0, 1, 2].map(|now| ticket(f.resolve_later(&datagram(1), now, TIMEOUT)));
    assert_eq!(f.resolve_later(&datagram(1), 3, TIMEOUT), FragmentAction::Refused, "three of one datagram");
    let other = ticket(f.resolve_later(&datagram(2), 3, TIMEOUT));
    f.record_first(&datagram(1), 9, 1000);
    assert_eq!(
        f.resolve_later(&datagram(1), 2999, TIMEOUT),
        FragmentAction::Follow(9),
        "counted from the first one"
    );
    for expected in [a, b, c] {
        assert_eq!(f.pop_released(), Some(ReleasedFragment { ticket: expected, target: Some(9) }));
    }
    assert_eq!(f.pop_released(), None);
    f.expire(2003, TIMEOUT);
    assert_eq!(f.pop_released(), Some(ReleasedFragment { ticket: other, target: None }));
    assert_eq!(f.waiting(), 0);
}

#[test]
fn the_clock_may_wrap() {
    let mut f = FragmentTable::new(limits(4, 4, 4));
    f.record_first(&datagram(1), 'a', u32::MAX - 5);
    assert_eq!(f.resolve_later(&datagram(1), 1990, TIMEOUT), FragmentAction::Follow('a'));
    f.expire(1993, TIMEOUT);
    assert_eq!(f.len(), 1);
    f.expire(1994, TIMEOUT);
    assert_eq!(f.len(), 0);
}

#[test]
fn a_table_without_room_holds_nothing() {
    for none in [limits(0, 4, 4), limits(4, 0, 4), limits(4, 4, 0)] {
        let mut f = FragmentTable::new(none);
        assert_eq!(f.resolve_later(&datagram(1), 0, TIMEOUT), FragmentAction::Refused);
        f.record_first(&datagram(1), 5, 0);
        let after = f.resolve_later(&datagram(1), 0, TIMEOUT);
        assert_eq!(
            after,
            if none.datagrams == 0 { FragmentAction::Refused } else { FragmentAction::Follow(5) }
        );
        assert_eq!((f.len(), f.waiting()), (none.datagrams.min(1), 0));
    }
}

fn of(frame: &[u8]) -> Option<DatagramKey> {
    let mut meta = Meta::default();
    parse(frame, frame.len(), &mut meta).expect("parses");
    DatagramKey::of(frame, &meta)
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
struct Known {
    datagram: u8,
    target: Option<u8>,
    since: u32,
    buffers: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    First(u8, u8),
    FragmentAction(u8),
    Wait(u32),
    Expire,
    Clear,
    Release(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let datagrams = 0..7u8;
    prop_oneof![
        3 => (datagrams.clone(), any::<u8>()).prop_map(|(datagram, target)| Step::First(datagram, target)),
        8 => datagrams.prop_map(Step::FragmentAction),
        2 => (0..TIMEOUT).prop_map(Step::Wait),
        2 => Just(Step::Expire),
        1 => Just(Step::Clear),
        4 => (0..6usize).prop_map(Step::Release),
    ]
}

struct Model {
    limits: FragmentLimits,
    /// In order of age.
    known: Vec<Known>,
    released: VecDeque<(u32, Option<u8>)>,
}

impl Model {
    fn release(&mut self, at: usize) {
        let Known { target, buffers, .. } = self.known.remove(at);
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

    fn first(&mut self, datagram: u8, target: u8, now: u32) {
        match self.find(datagram) {
            Some(at) => {
                self.known[at].target = Some(target);
                self.release(at);
            }
            None => self.room(),
        }
        self.known.push(Known { datagram, target: Some(target), since: now, buffers: vec![] });
    }

    fn later(&mut self, datagram: u8, now: u32, buffer: u32) -> FragmentAction<u8> {
        if let Some(at) = self.find(datagram).filter(|at| now - self.known[*at].since >= TIMEOUT) {
            self.forget(at);
        }
        let found = self.find(datagram);
        if let Some(target) = found.and_then(|at| self.known[at].target) {
            return FragmentAction::Follow(target);
        }
        let of_it = found.map_or(0, |at| self.known[at].buffers.len());
        if of_it == self.limits.per_datagram as usize || self.waiting() == self.limits.waiting as usize {
            return FragmentAction::Refused;
        }
        if found.is_none() {
            self.room();
            self.known.push(Known { datagram, target: None, since: now, buffers: vec![] });
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
                Step::First(n, target) => {
                    fragments.record_first(&datagram(n), target, now);
                    model.first(n, target, now);
                }
                Step::FragmentAction(n) => {
                    next += 1;
                    let expected = model.later(n, now, next);
                    match fragments.resolve_later(&datagram(n), now, TIMEOUT) {
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
