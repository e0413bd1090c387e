//! Timers: an array of deadlines, which is swept.
//!
//! # Theory of operation
//!
//! Time is a 32-bit clock of milliseconds that wraps after 49.7 days. Deadlines lie less than half of that
//! ahead. Each session has one deadline. 64 of them are a group, and 64 groups are a region. Groups and
//! regions have a *bound*: none of their timers has an earlier deadline. Arming a timer writes the deadline
//! and moves the bounds forward if they are later. Disarming it clears the deadline and leaves the bounds.
//!
//! Every tick of 64 ms begins a sweep. It examines the bounds of all regions, then the groups of regions
//! whose bound has passed, then the deadlines of groups whose bound has passed, and sets these bounds anew.
//! 64 numbers are compared at once, without branches. So a timer expires up to 64 ms after its deadline, and
//! never before it. The caller bounds the work of a call; the next call continues the sweep. A sweep begins
//! with the highest numbers: the table reuses the numbers that were freed last first, and so in ascending
//! order.
//!
//! Packets do not touch timers. When the timer of a session that saw packets expires, the caller arms it
//! again for the remaining time.

use std::io;

use wide::i32x4;

use crate::arena::Arena;
use crate::fcb::SessionId;

/// log2 of the milliseconds in a tick.
const TICK_BITS: u32 = 6;
/// Timers of a group, and groups of a region.
const GROUP: usize = 64;

/// No deadline, or no bound.
const NONE: u32 = 0;

/// Those of 64 numbers that are left to examine: a bit for each.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    first: usize,
    bits: u64,
}

impl Pending {
    fn peek(&self) -> Option<usize> {
        self.bits.checked_ilog2().map(|bit| self.first + bit as usize)
    }

    fn next(&mut self) -> Option<usize> {
        let number = self.peek()?;
        self.bits &= !(1 << (number - self.first));
        Some(number)
    }
}

/// The timers of a table's sessions. See the module's theory of operation.
#[derive(Debug)]
pub(crate) struct Timers {
    /// By session. [`NONE`]: the timer is not armed.
    deadlines: Arena<u32>,
    /// The bounds of groups and of regions. [`NONE`]: no timer is armed.
    groups: Box<[u32]>,
    regions: Box<[u32]>,
    armed: u32,
    /// The tick in which the present sweep has begun.
    tick: u32,
    /// How many times 64 regions the sweep has left to examine.
    chunks: usize,
    due_regions: Pending,
    due_groups: Pending,
    due_timers: Pending,
}

impl Timers {
    /// Creates the timers of `capacity` sessions.
    ///
    /// # Errors
    /// The operating system's error if it cannot reserve the address space.
    pub fn new(capacity: usize) -> io::Result<Timers> {
        let whole = |count: usize| count.next_multiple_of(GROUP);
        let groups = whole(capacity.div_ceil(GROUP));
        let regions = whole(groups / GROUP);
        Ok(Timers {
            deadlines: Arena::new(whole(capacity))?,
            groups: vec![NONE; groups].into(),
            regions: vec![NONE; regions].into(),
            armed: 0,
            tick: 0,
            chunks: 0,
            due_regions: Pending::default(),
            due_groups: Pending::default(),
            due_timers: Pending::default(),
        })
    }

    /// Number of armed timers.
    pub fn armed(&self) -> u32 {
        self.armed
    }

    /// Bytes of memory when all sessions are in use.
    pub fn bytes(&self) -> usize {
        size_of_val(self.deadlines.get()) + size_of_val(&*self.groups) + size_of_val(&*self.regions)
    }

    /// Makes the system allocate the memory of the first timers.
    pub fn touch(&mut self, bytes: usize) {
        self.deadlines.touch(0..bytes);
    }

    /// Requests memory for the next timers: `sessions` have been in use.
    pub fn request_next(&mut self, sessions: usize) {
        self.deadlines.request_next(sessions);
    }

    /// The place of a deadline, for a prefetch.
    #[inline]
    pub fn place(&self, id: SessionId) -> &u32 {
        self.deadlines.at(id.0 as usize)
    }

    /// The deadline of a timer. Meaningless if it is not armed.
    #[inline]
    pub fn deadline(&self, id: SessionId) -> u32 {
        *self.place(id)
    }

    /// Arms a timer. An earlier deadline of it no longer counts.
    #[inline]
    pub fn arm(&mut self, id: SessionId, deadline: u32) {
        // The time that stands for no deadline comes once in 49.7 days. A millisecond later will do.
        let deadline = if deadline == NONE { deadline + 1 } else { deadline };
        let timer = id.0 as usize;
        let place = self.deadlines.at_mut(timer);
        self.armed += u32::from(*place == NONE);
        *place = deadline;
        lower(&mut self.groups[timer / GROUP], deadline);
        lower(&mut self.regions[timer / GROUP / GROUP], deadline);
    }

    /// Disarms a timer. Does nothing if it is not armed.
    #[inline]
    pub fn disarm(&mut self, id: SessionId) {
        let place = self.deadlines.at_mut(id.0 as usize);
        self.armed -= u32::from(*place != NONE);
        *place = NONE;
    }

    /// Returns the next timer that has expired by `now`, and disarms it. `budget` decreases by one for each
    /// timer, group or region that is examined. At zero the result is none; the next call continues.
    pub fn due(&mut self, now: u32, budget: &mut u32) -> Option<SessionId> {
        while *budget > 0 && self.armed > 0 {
            if let Some(timer) = self.due_timers.next() {
                *budget -= 1;
                let id = SessionId(timer as u32);
                // It may have been armed again or disarmed since its group was examined.
                if has_passed(self.deadline(id), now) {
                    self.disarm(id);
                    return Some(id);
                }
            } else if let Some(group) = self.due_groups.next() {
                *budget -= 1;
                self.examine_group(group, now);
            } else if let Some(region) = self.due_regions.next() {
                *budget -= 1;
                self.examine_region(region, now);
            } else if !self.examine_chunk(now) {
                return None;
            }
        }
        None
    }

    /// A timer that expires soon. For a prefetch.
    pub fn next(&self) -> Option<SessionId> {
        self.due_timers.peek().map(|timer| SessionId(timer as u32))
    }

    fn examine_group(&mut self, group: usize, now: u32) {
        let (due, bound) = examine(self.deadlines.get(), group, now);
        self.due_timers = due;
        self.groups[group] = bound;
        if bound != NONE {
            lower(&mut self.regions[group / GROUP], bound);
        }
    }

    fn examine_region(&mut self, region: usize, now: u32) {
        (self.due_groups, self.regions[region]) = examine(&self.groups, region, now);
    }

    /// Examines the bounds of the next 64 regions. False: the sweep of this tick is complete.
    fn examine_chunk(&mut self, now: u32) -> bool {
        if self.chunks == 0 {
            let tick = now >> TICK_BITS;
            if tick == self.tick {
                return false;
            }
            (self.tick, self.chunks) = (tick, self.regions.len() / GROUP);
        }
        self.chunks -= 1;
        (self.due_regions, _) = examine(&self.regions, self.chunks, now);
        true
    }
}

/// Moves a bound forward to a deadline if it is later.
#[inline]
fn lower(bound: &mut u32, deadline: u32) {
    if *bound == NONE || (deadline.wrapping_sub(*bound) as i32) < 0 {
        *bound = deadline;
    }
}

/// Whether a time is there and has passed.
#[inline]
fn has_passed(time: u32, now: u32) -> bool {
    time != NONE && (time.wrapping_sub(now) as i32) <= 0
}

/// The times of a group that have passed by `now`, and the earliest of the others; [`NONE`] if there is none.
fn examine(times: &[u32], group: usize, now: u32) -> (Pending, u32) {
    let (mut bits, mut later_bits) = (0, 0);
    let mut earliest = i32x4::splat(i32::MAX);
    let (groups, _) = times.as_chunks::<GROUP>();
    let (fours, _) = groups[group].as_chunks::<4>();
    for (at, &four) in fours.iter().enumerate() {
        let times = i32x4::new(bytemuck::cast(four));
        let left = times - i32x4::splat(now as i32);
        let there = !times.simd_eq(i32x4::splat(NONE as i32));
        let later = left.simd_gt(i32x4::splat(0)) & there;
        bits |= u64::from((there & !later).to_bitmask()) << (4 * at);
        later_bits |= later.to_bitmask();
        earliest = earliest.min(later.select(left, earliest));
    }
    let bound = if later_bits == 0 { NONE } else { now.wrapping_add(earliest.reduce_min() as u32) };
    (Pending { first: group * GROUP, bits }, bound)
}

#[cfg(test)]
mod tests;
