//! When a queue is asked for frames whose question is a system call.
//!
//! # Theory of operation
//! A question that finds nothing costs as much as one that finds a frame. So behind one, the queue is not
//! asked again for a moment. A frame often comes as the answer to one that the port has sent, or has received
//! before. How long that takes is learned ([`Pace::gap`]): the queue is asked for the first time after half
//! of it, then each time after an eighth. So an answer is delayed by little of the time that it takes anyway.
//! If the first question finds one, a quarter of the time is expected from then on.
//!
//! A wait on the descriptor is a question, too, and its end the answer. A worker that waits whenever it finds
//! nothing asks in no other way, unless packets of other ports keep it from waiting. No frame is missed: the
//! descriptor stays readable as long as a frame is there, so that the next wait ends at once.
//!
//! Times are ticks of the time-stamp counter.

use std::time::Duration;

/// A queue is asked again after this time at least and at most.
const SHORTEST: Duration = Duration::from_micros(4);
const LONGEST: Duration = Duration::from_micros(256);
/// The least time while waits tell about frames. What comes later than the double is no answer.
const BESIDE_WAITS: Duration = Duration::from_micros(64);
/// The pause is this part of the time since the last frame.
const PAUSE_PART: u64 = 8;
/// A new gap is one of so many in the average.
const AVERAGED: u64 = 8;
/// Behind so many frames that came alone, the next one is expected to come alone, too.
const ALONE: u8 = 4;

/// The constants of a [`Pace`] in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pauses {
    shortest: u64,
    beside_waits: u64,
    longest: u64,
}

impl Pauses {
    /// `tsc_hz`: ticks per second.
    pub(super) fn new(tsc_hz: u64) -> Pauses {
        let ticks = |pause: Duration| tsc_hz / 1_000_000 * pause.as_micros() as u64;
        Pauses { shortest: ticks(SHORTEST), beside_waits: ticks(BESIDE_WAITS), longest: ticks(LONGEST) }
    }
}

/// When a queue is asked again.
#[derive(Debug, Default)]
pub(super) struct Pace {
    pauses: Pauses,
    /// Frames that the port had sent, when it was looked at last.
    sent: u64,
    /// When a frame was received or sent last.
    active_at: u64,
    /// When the queue was empty last, and whether it was since the last frame.
    empty_at: u64,
    was_empty: bool,
    pause: u64,
    /// The usual time from a frame to the next one that is received.
    gap: u64,
    /// Who asks waits as soon as there are no packets.
    waits: bool,
    /// A wait has ended because of a frame, which was not read yet.
    is_reported: bool,
    /// How often a frame was alone, up to [`ALONE`].
    alone: u8,
    /// When nothing was read behind a frame last, since it was expected to be alone.
    expected_at: u64,
}

impl Pace {
    pub(super) fn new(pauses: Pauses) -> Pace {
        Pace { pauses, ..Pace::default() }
    }

    /// Whether the queue is to be asked. `sent`: frames that the port has sent so far, which may be answered
    /// soon.
    #[inline]
    pub(super) fn is_due(&mut self, now: u64, sent: u64) -> bool {
        if sent != self.sent {
            (self.sent, self.active_at, self.was_empty) = (sent, now, false);
            self.pause = self.pause.min(self.next_pause(0));
            if self.gap > self.pauses.shortest {
                self.empty_at = now;
            }
        }
        self.is_reported || now.wrapping_sub(self.empty_at) >= self.pause
    }

    /// Whether a single frame is expected, so that nothing is to be read behind it.
    #[inline]
    pub(super) fn expects_one(&self) -> bool {
        self.is_reported && self.alone == ALONE
    }

    /// Notes how many frames were read, and whether there are no more.
    #[inline]
    pub(super) fn note_read(&mut self, now: u64, frames: u32, is_empty: bool) {
        self.note_alone(now, frames, is_empty);
        if frames > 0 {
            self.learn_gap(now.wrapping_sub(self.active_at));
            (self.active_at, self.was_empty) = (now, false);
        }
        self.is_reported = false;
        if is_empty {
            self.note_empty(now);
        } else {
            self.pause = 0;
        }
    }

    /// Notes the end of a wait. `waits_again`: the next one comes as soon as there are no packets.
    pub(super) fn note_wait(&mut self, now: u64, is_readable: bool, waits_again: bool) {
        (self.waits, self.is_reported) = (waits_again, is_readable);
        if !is_readable {
            self.note_empty(now);
        }
    }

    fn note_empty(&mut self, now: u64) {
        (self.empty_at, self.was_empty) = (now, now != self.active_at);
        self.pause = self.next_pause(now.wrapping_sub(self.active_at));
    }

    /// The pause at a time since the last frame.
    #[inline]
    fn next_pause(&self, since: u64) -> u64 {
        let Pauses { shortest, beside_waits, longest } = self.pauses;
        let half = self.gap / 2;
        let pause = if since < half { half - since } else { since.max(self.gap) / PAUSE_PART };
        pause.clamp(if self.waits { beside_waits } else { shortest }, longest)
    }

    /// Takes the time from a frame to the next one into the average. Where the first question has found the
    /// next one, it may have come much earlier.
    #[inline]
    fn learn_gap(&mut self, gap: u64) {
        if gap > 2 * self.pauses.beside_waits {
            return;
        }
        self.gap = match self.was_empty || self.is_reported {
            true => (self.gap * (AVERAGED - 1) + gap) / AVERAGED,
            false => gap.min(self.gap) / 4,
        };
    }

    /// Learns whether frames come alone. One that comes shortly behind another one that was expected to be
    /// alone ends the expectation.
    #[inline]
    fn note_alone(&mut self, now: u64, frames: u32, is_empty: bool) {
        match (frames, self.expects_one()) {
            (0, _) => {}
            (1, true) if now.wrapping_sub(self.expected_at) >= self.pauses.beside_waits => {
                self.expected_at = now;
            }
            (1, false) if is_empty => self.alone = (self.alone + 1).min(ALONE),
            _ => self.alone = 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ticks are microseconds.
    fn pace() -> Pace {
        Pace::new(Pauses::new(1_000_000))
    }

    /// Asks a queue at each tick from `from` on, and finds nothing. Returns when it was asked in this time.
    fn asked(pace: &mut Pace, sent: u64, from: u64, ticks: u64) -> Vec<u64> {
        let mut asked = Vec::new();
        for now in from..from + ticks {
            if pace.is_due(now, sent) {
                pace.note_read(now, 0, true);
                asked.push(now - from);
            }
        }
        asked
    }

    /// Sends a frame each 200 ticks, and asks until its answer is read, which comes after `answer` ticks.
    /// Returns how often the queue was asked for the last one, and when it was read.
    fn exchange(pace: &mut Pace, from: u64, times: u64, answer: u64) -> (usize, u64) {
        let mut last = (0, 0);
        for number in 1..=times {
            let (begin, sent) = (from + number * 200, from + number);
            let mut count = 0;
            for now in begin..begin + 200 {
                if pace.is_due(now, sent) {
                    count += 1;
                    let has_come = now - begin >= answer;
                    pace.note_read(now, has_come.into(), true);
                    if has_come {
                        last = (count, now - begin);
                        break;
                    }
                }
            }
        }
        last
    }

    #[test]
    fn a_queue_without_frames_is_asked_less_and_less_often() {
        let mut pace = pace();
        pace.is_due(1_000_000, 1);
        pace.note_read(1_000_000, 1, true);
        let asked = asked(&mut pace, 1, 1_000_000, 10_000);
        let gaps: Vec<u64> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!((asked[0], gaps[0], gaps[gaps.len() - 1]), (4, 4, 256));
        assert!(gaps.is_sorted());
        // An answer is delayed by little of the time that it has taken.
        assert!(asked.windows(2).all(|pair| pair[1] - pair[0] <= 4.max(pair[0] / PAUSE_PART)));
    }

    #[test]
    fn an_answer_is_expected_after_its_usual_time() {
        let mut pace = pace();
        let (first, read) = exchange(&mut pace, 1_000_000, 1, 80);
        assert!(first > 12 && read < 90, "{first} at {read}");
        let (later, read) = exchange(&mut pace, 2_000_000, 40, 80);
        assert!(later <= 6 && (80..=90).contains(&read), "{later} at {read}");
    }

    #[test]
    fn answers_that_come_earlier_are_expected_earlier() {
        let mut pace = pace();
        exchange(&mut pace, 1_000_000, 40, 120);
        let (_, read) = exchange(&mut pace, 2_000_000, 1, 5);
        assert!(read <= 64, "{read}");
        let (_, read) = exchange(&mut pace, 3_000_000, 2, 5);
        assert!(read <= 8, "{read}");
    }

    #[test]
    fn a_frame_in_either_direction_makes_the_pause_short() {
        let mut pace = pace();
        asked(&mut pace, 1, 1_000_000, 10_000);
        let last = pace.empty_at;
        assert!(!pace.is_due(last + 4, 1));
        assert!(pace.is_due(last + 4, 2), "a frame was sent");
        pace.note_read(last + 4, 1, true);
        assert!(!pace.is_due(last + 7, 2));
        assert!(pace.is_due(last + 8, 2), "a frame was received");
    }

    #[test]
    fn a_queue_with_frames_is_asked_again_at_once() {
        let mut pace = pace();
        assert!(pace.is_due(1_000_000, 0));
        pace.note_read(1_000_000, 1, false);
        assert!(pace.is_due(1_000_000, 0));
    }

    #[test]
    fn a_wait_answers_the_question() {
        let mut pace = pace();
        pace.note_wait(1_000_000, false, false);
        assert!(!pace.is_due(1_000_003, 0));
        pace.note_wait(1_000_003, true, false);
        assert!(pace.is_due(1_000_003, 0));
        pace.note_read(1_000_003, 1, true);
        assert!(pace.is_due(1_000_007, 0));
        // Who waits again asks by waiting, but not for ever.
        pace.note_wait(1_000_008, false, true);
        assert!(!pace.is_due(1_000_071, 0) && pace.is_due(1_000_072, 0));
        assert!(!pace.is_due(1_000_071, 1), "a frame was sent");
    }

    #[test]
    fn nothing_is_read_behind_frames_that_come_alone() {
        let mut pace = pace();
        let mut now = 1_000_000;
        for _ in 0..ALONE {
            assert!(!pace.expects_one());
            pace.note_wait(now, true, true);
            pace.note_read(now, 1, true);
            now += 1_000;
        }
        for _ in 0..10 {
            pace.note_wait(now, true, true);
            assert!(pace.expects_one());
            pace.note_read(now, 1, true);
            now += 1_000;
        }
        assert!(!pace.expects_one(), "no wait has reported a frame");
        pace.note_wait(now, true, true);
        pace.note_read(now, 1, true);
        pace.note_wait(now + 5, true, true);
        pace.note_read(now + 5, 1, true);
        pace.note_wait(now + 10, true, true);
        assert!(!pace.expects_one(), "two together");
    }
}
