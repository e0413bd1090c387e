//! The tracker between two ends that speak TCP.
//!
//! Two ends ([`End`]) talk over a network that loses, repeats and reorders segments. The tracker is in the
//! middle. It must always reach the state of the ends, and must drop nothing that an end could use.

mod end;

use end::{End, Phase};
use proptest::prelude::*;

use super::*;
use crate::Direction::{Forward, Reverse};

#[derive(Clone, Copy, Debug)]
enum Act {
    Write(bool, u16),
    Read(bool),
    Close(bool),
    Abort(bool),
    Open(bool),
    /// The retransmission timer of a side expires.
    Timer(bool),
    /// Delivers a segment: of the segments at a place of the network (two per direction), the nth.
    Deliver(usize, usize),
    Lose(usize, usize),
    Repeat(usize, usize),
    /// An attacker's RST or FIN, with these distances of its numbers from the expected ones.
    Forge(bool, bool, [u32; 2]),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (any::<bool>(), 1..9000u16).prop_map(|(side, n)| Act::Write(side, n)),
        3 => any::<bool>().prop_map(Act::Read),
        1 => any::<bool>().prop_map(Act::Close),
        1 => prop::bool::weighted(0.5).prop_map(Act::Abort),
        1 => any::<bool>().prop_map(Act::Open),
        4 => any::<bool>().prop_map(Act::Timer),
        50 => (0..4usize, 0..3usize).prop_map(|(place, n)| Act::Deliver(place, n)),
        4 => (0..4usize, 0..9usize).prop_map(|(place, n)| Act::Lose(place, n)),
        4 => (0..4usize, 0..9usize).prop_map(|(place, n)| Act::Repeat(place, n)),
        1 => (any::<bool>(), any::<bool>(), wrong()).prop_map(|(side, fin, n)| Act::Forge(side, fin, n)),
    ]
}

/// Distances of the numbers of a segment whose sender guesses: at least one is not close.
fn wrong() -> impl Strategy<Value = [u32; 2]> {
    let far = IN_FLIGHT + 1..=u32::MAX - IN_FLIGHT;
    let close = prop_oneof![Just(0), 1..=IN_FLIGHT];
    prop_oneof![
        (far.clone(), Just(0)).prop_map(|(seq, ack)| [seq, ack]),
        (1..=IN_FLIGHT, far.clone()).prop_map(|(seq, ack)| [seq, ack]),
        (far.clone(), far).prop_map(|(seq, ack)| [seq, ack]),
        (1..1u32 << 30, close).prop_map(|(seq, ack)| [seq.wrapping_add((1 << 31) - (1 << 29)), ack]),
    ]
}

struct World {
    ends: [End; 2],
    /// Segments from the first end to the tracker, from there to the second end, and the same in the opposite
    /// direction.
    places: [Vec<TcpSegment>; 4],
    settings: SessionSettings,
    tracked: Option<(TrackState, TrackOutcome)>,
    acks: [u32; 2],
    /// The end that the tracker considers the originator, once there is one.
    originator: usize,
    /// A retransmitted SYN came after the end, and opened a session of its own.
    renewed: bool,
}

impl World {
    fn send(&mut self, from: usize, segments: Vec<TcpSegment>) {
        self.places[from * 2].extend(segments);
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Write(side, n) => {
                let end = &mut self.ends[usize::from(side)];
                if !end.closed {
                    end.written = end.written.wrapping_add(n.into());
                }
                self.output(side.into(), false);
            }
            Act::Read(side) => self.read(side.into()),
            Act::Close(side) => {
                self.ends[usize::from(side)].closed = true;
                self.output(side.into(), false);
            }
            Act::Abort(side) => {
                let out = self.ends[usize::from(side)].abort();
                self.send(side.into(), out);
            }
            Act::Open(side) => {
                let end = &mut self.ends[usize::from(side)];
                if end.phase == Phase::Listen {
                    end.phase = Phase::SynSent;
                }
                self.output(side.into(), false);
            }
            Act::Timer(side) => self.output(side.into(), true),
            Act::Deliver(place, n) => self.deliver(place, n),
            Act::Lose(place, n) => {
                if n < self.places[place].len() {
                    self.places[place].remove(n);
                }
            }
            Act::Repeat(place, n) => {
                if let Some(segment) = self.places[place].get(n).copied() {
                    self.places[place].push(segment);
                }
            }
            Act::Forge(side, fin, distances) => self.forge(side.into(), fin, distances),
        }
    }

    fn output(&mut self, side: usize, again: bool) {
        let out = self.ends[side].output(again);
        self.send(side, out);
    }

    fn read(&mut self, side: usize) {
        let end = &mut self.ends[side];
        if std::mem::take(&mut end.unread) > 0 && end.phase == Phase::Established {
            let out = end.acknowledgement();
            self.send(side, out);
        }
    }

    fn deliver(&mut self, place: usize, n: usize) {
        if n >= self.places[place].len() {
            return;
        }
        let segment = self.places[place].remove(n);
        let from = place / 2;
        if place.is_multiple_of(2) {
            if self.pass(from, &segment) {
                self.places[place + 1].push(segment);
            }
        } else {
            let out = self.ends[1 - from].receive(&segment);
            self.send(1 - from, out);
            self.output(1 - from, false);
        }
    }

    /// Passes a segment to the tracker, or takes the established path where the engine would.
    fn pass(&mut self, from: usize, segment: &TcpSegment) -> bool {
        let traffic = TrackInput::Tcp(*segment);
        let Some((mut track, seen)) = self.tracked.take() else {
            self.originator = from;
            self.tracked = TrackState::open(&traffic, &mut self.acks, &self.settings).ok();
            return true;
        };
        let direction = if from == self.originator { Forward } else { Reverse };
        if segment.is(TcpSegment::ACK) && seen.settled[direction as usize] {
            let ack = &mut self.acks[direction as usize];
            *ack = latest_ack(*ack, segment.ack);
            self.tracked = Some((track, seen));
            return true;
        }
        let seen = track.update(direction, &traffic, &mut self.acks, &self.settings);
        self.tracked = Some((track, seen));
        match seen.verdict {
            TrackVerdict::Pass => true,
            TrackVerdict::New => {
                (self.tracked, self.renewed) = (None, true);
                self.pass(from, segment)
            }
            TrackVerdict::Drop(_) => {
                assert!(!self.ends[1 - from].can_use(segment), "dropped {segment:x?}: {:x?}", self.ends);
                false
            }
        }
    }

    /// A forged RST or FIN on an open connection. It must not change the state, and no SYN may end it.
    fn forge(&mut self, from: usize, fin: bool, [seq, ack]: [u32; 2]) {
        let Some((track, seen)) = self.tracked else { return };
        if !["established", "fin-wait", "close-wait"].contains(&track.state_name()) || seen.embryonic {
            return;
        }
        let direction = if from == self.originator { Forward } else { Reverse };
        let flags = TcpSegment::ACK | if fin { TcpSegment::FIN } else { TcpSegment::RST };
        let [own, other] = [self.acks[direction as usize], self.acks[direction.opposite() as usize]];
        // The window check knows the windows, and needs no acknowledgement of a RST.
        if self.settings.tcp_window_check && !(1 << 30..3 << 30).contains(&seq) {
            return;
        }
        let (seq, ack) = (other.wrapping_add(seq), own.wrapping_add(ack));
        let forged = TcpSegment { seq, ack, flags, ..TcpSegment::default() };
        let syn = TcpSegment { seq, flags: TcpSegment::SYN, ..TcpSegment::default() };
        let (mut after, mut acks) = (track, self.acks);
        for segment in [forged, syn] {
            let seen = after.update(direction, &TrackInput::Tcp(segment), &mut acks, &self.settings);
            let [after, before] = [after, track].map(|track| track.revised(&acks).state_name());
            assert_eq!((after, seen.embryonic), (before, false));
            assert_ne!(seen.verdict, TrackVerdict::New);
        }
    }

    /// Lets the network and the applications work until nothing moves.
    fn come_to_rest(&mut self) {
        for _ in 0..400 {
            for place in [0, 1, 2, 3] {
                while !self.places[place].is_empty() {
                    self.deliver(place, 0);
                }
            }
            self.read(0);
            self.read(1);
            if self.places.iter().all(Vec::is_empty) {
                if self.at_rest() {
                    return;
                }
                self.output(0, true);
                self.output(1, true);
            }
        }
        panic!("the ends do not come to rest: {:x?}", self.ends);
    }

    fn at_rest(&self) -> bool {
        self.ends.iter().all(|end| match end.phase {
            Phase::Closed | Phase::Listen => true,
            Phase::SynSent | Phase::SynReceived => false,
            Phase::Established => end.una == end.written.wrapping_add(end.closed.into()),
        })
    }

    /// The expected state of the tracker after all segments have arrived.
    fn expected(&self) -> Option<&'static str> {
        if self.renewed || self.ends.iter().any(|end| end.reset) {
            return None;
        }
        let closed = [self.originator, 1 - self.originator].map(|n| self.ends[n].closed);
        self.ends.iter().all(|end| end.phase == Phase::Established).then_some(match closed {
            [false, false] => "established",
            [true, false] => "fin-wait",
            [false, true] => "close-wait",
            [true, true] => "closed",
        })
    }
}

fn end(phase: Phase) -> impl Strategy<Value = End> {
    let scale = prop::option::weighted(0.8, 0..15u8);
    // Near the wrap, near the sign bit, anywhere.
    let iss = prop_oneof![u32::MAX - 20_000..=u32::MAX, (1u32 << 31) - 20_000..1 << 31, any::<u32>()];
    let buffer = 3000..60_000u32;
    (iss, scale, buffer)
        .prop_map(move |(iss, scale, buffer)| End::new(iss, phase, scale, buffer << scale.unwrap_or(0)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn the_tracker_follows_both_endpoints(
        ends in [end(Phase::SynSent), end(Phase::Listen)],
        tcp_window_check in any::<bool>(),
        acts in prop::collection::vec(act(), 0..300),
    ) {
        let settings = SessionSettings { tcp_window_check, ..SessionSettings::default() };
        let mut world = World {
            ends,
            places: Default::default(),
            settings,
            tracked: None,
            acks: [0; 2],
            originator: 0,
            renewed: false,
        };
        world.output(0, false);
        acts.into_iter().for_each(|act| world.act(act));
        world.come_to_rest();
        if let (Some(expected), Some((track, _))) = (world.expected(), &world.tracked) {
            prop_assert_eq!(track.state_name(), expected, "{:x?}", world.ends);
        }
    }
}
