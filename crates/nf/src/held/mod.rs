//! Packets that functions hold.
//!
//! Theory of operation. The runner's caller keeps the packets; here is only what is known of them. Each has a
//! *ticket*, by which the caller stores it. A function holds the packets of a session and direction in a
//! *queue*. A packet that is released leaves the queue and becomes an event, in order. The caller takes the
//! events and runs the released packets through the rest of their chain ([`crate::Runner::resume`]). Until
//! then they are *pending*. A packet that passes the function while others of its queue are pending would
//! overtake them. It gets a ticket as well and follows them ([`HeldPackets::follow`]).
//!
//! All memory is reserved when a program with a function that holds packets is loaded.

mod depart;
mod entry;
mod list;
mod place;
mod process;
mod queue;
mod room;
mod sessions;
mod stream;

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::BuildHasherDefault;

use mmb_flow::{Direction, HeldLimits};
use mmb_packet::DropReason;
use mmb_stream::HeldRange;

use crate::verdict::Verdict;
pub use depart::HeldEvent;
use entry::{Entry, TicketState};
pub(crate) use entry::{HeldLevel, MAX_FLOWS, NO_BUFFER, Resumed};
use list::{AGE, List, QUEUE};
use place::PlaceHasher;
pub(crate) use place::{HeldPlace, OUTER_SPACE};
pub use queue::HeldQueue;
pub(crate) use room::{ApartStates, MOST_APART, PlaceRoom, ProcessRoom, Urgency};
use sessions::MOST_TAKEN_OVER;

/// States whose packets are counted. Those behind them are seldom used.
const COUNTED_STATES: usize = 4096;

/// The packets that the functions of a worker hold.
#[derive(Debug, Default)]
pub(crate) struct HeldPackets {
    /// Sessions of the flow manager whose clients functions answer ([`crate::TakenOver`]).
    taken_over: HashSet<u32>,
    /// Sessions of the flow manager whose ends have got a FIN, with the reason why packets are dropped.
    closed: HashMap<u32, DropReason>,
    limits: HeldLimits,
    entries: Vec<Entry>,
    free: Vec<u32>,
    queues: HashMap<HeldPlace, Queue, BuildHasherDefault<PlaceHasher>>,
    /// Held packets, the oldest first.
    by_age: List,
    events: VecDeque<u32>,
    /// Released packets that have not gone on.
    pending: u32,
    /// Released packets that go on behind the packet that is being processed.
    behind: List,
    /// Bytes of all segments that wait for others, or were released and have not gone on.
    segment_bytes: u64,
    /// Packets that were held since this was read last.
    newly_held: u64,
    /// Tickets given out since start.
    issued: u64,
    now: u32,
    /// Packets with a ticket, by the states of their functions.
    of_states: Vec<u32>,
    /// States and buffers of packets that do not wait for their processes any more.
    unused_buffers: Vec<(u32, u32)>,
    /// Numbers of changed bytes of packets that do not wait any more.
    unused_ropes: Vec<u32>,
}

/// The packets of one session at one function, by direction.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    held: [List; 2],
    pending: [List; 2],
    /// The latest timestamps of segments that have waited.
    latest_stamp: [Option<u32>; 2],
    /// No segment that waits ends behind these numbers.
    furthest_end: [u32; 2],
}

impl Queue {
    fn len(&self) -> u32 {
        self.held.iter().chain(&self.pending).map(|list| list.len).sum()
    }
}

impl HeldPackets {
    /// Makes an empty set of held packets.
    pub fn with_limits(limits: HeldLimits) -> HeldPackets {
        let mut held = HeldPackets::default();
        held.set_limits(limits);
        held
    }

    /// Sets limits, and reserves memory. Packets above a lower limit stay.
    pub fn set_limits(&mut self, limits: HeldLimits) {
        self.limits = limits;
        let (old, new) = (self.entries.len(), limits.worker as usize);
        if new > old {
            self.entries.resize(new, Entry::FREE);
            self.free.reserve(new - self.free.len());
            self.free.extend((old as u32..new as u32).rev());
            self.queues.reserve(new);
            self.events.reserve(new);
            self.unused_buffers.reserve(new);
            self.unused_ropes.reserve(new);
            self.of_states.resize(COUNTED_STATES, 0);
            self.taken_over.reserve(MOST_TAKEN_OVER);
            self.closed.reserve(MOST_TAKEN_OVER);
        }
    }

    /// Returns the number above all tickets.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of packets that are held or have been released and have not gone on.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether there are released packets that have not gone on.
    #[inline(always)]
    pub fn is_draining(&self) -> bool {
        self.pending != 0
    }

    /// Whether events wait.
    #[inline(always)]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns the number of tickets that were given out since start.
    #[inline(always)]
    pub fn issued(&self) -> u64 {
        self.issued
    }

    /// Sets the time, in milliseconds.
    pub fn set_time(&mut self, now: u32) {
        self.now = now;
    }

    /// Whether released packets go on behind the packet that is being processed.
    #[inline(always)]
    pub fn has_behind(&self) -> bool {
        self.behind.len != 0
    }

    /// Holds a packet. Returns its ticket. `order`: its place among the held packets; None: behind all.
    ///
    /// # Errors
    /// The session or the worker has as many held packets as the limits allow.
    pub fn hold(
        &mut self,
        place: HeldPlace,
        direction: Direction,
        order: Option<u32>,
    ) -> Result<u32, DropReason> {
        self.hold_within(self.limits.session, (place, direction), order, HeldRange::default())
    }

    /// Holds a packet as [`HeldPackets::hold`] does, if its session has fewer than `most`. `range`: its
    /// bytes, if it is a segment that waits.
    fn hold_within(
        &mut self,
        most: u32,
        (place, direction): (HeldPlace, Direction),
        order: Option<u32>,
        range: HeldRange,
    ) -> Result<u32, DropReason> {
        let ticket = self.issue(most, (place, direction), None)?;
        let Self { queues, entries, by_age, .. } = self;
        let Some(queue) = queues.get_mut(&place) else { return Err(DropReason::HeldFull) };
        let list = &mut queue.held[direction as usize];
        let mut before = None;
        let order = match order {
            None => list.last(entries).map_or(0, |last| last.order),
            Some(order) => {
                let is_later = |entry: &Entry| (entry.order.wrapping_sub(order) as i32) > 0;
                before = list.rposition(entries, is_later);
                order
            }
        };
        let now = self.now;
        if let Some(entry) = entries.get_mut(ticket as usize) {
            (entry.order, entry.since, entry.range) = (order, now, range);
        }
        list.insert_before(entries, QUEUE, ticket, before);
        by_age.push(entries, AGE, ticket);
        self.newly_held += 1;
        Ok(ticket)
    }

    /// Returns the number of packets that were held since the last call of this method.
    pub fn take_newly_held(&mut self) -> u64 {
        std::mem::take(&mut self.newly_held)
    }

    /// Gives a ticket to a packet that a function passes, if it has to follow packets that the function has
    /// released. `verdict`: that of the function; None: the function is asked again when the packet goes on.
    /// Returns None if the packet goes on now.
    pub fn follow(
        &mut self,
        place: HeldPlace,
        direction: Direction,
        verdict: Option<Verdict>,
    ) -> Option<Result<u32, DropReason>> {
        if self.queues.get(&place)?.pending[direction as usize].len == 0 {
            return None;
        }
        let ticket = self.issue(self.process_limit(), (place, direction), verdict);
        if let Ok(ticket) = ticket {
            if let Some(entry) = self.entries.get_mut(ticket as usize) {
                entry.is_follower = true;
            }
            self.add_pending(place, direction, ticket);
        }
        Some(ticket)
    }

    /// Takes an entry, if the session has fewer than `most` packets. The queue exists afterwards.
    fn issue(
        &mut self,
        most: u32,
        (place, direction): (HeldPlace, Direction),
        verdict: Option<Verdict>,
    ) -> Result<u32, DropReason> {
        if !self.fits(most, self.len_of(place), 0) {
            return Err(DropReason::HeldFull);
        }
        let ticket = self.free.pop().ok_or(DropReason::HeldFull)?;
        self.queues.entry(place).or_default();
        if let Some(entry) = self.entries.get_mut(ticket as usize) {
            *entry = Entry { place, direction, verdict, status: TicketState::Held, ..Entry::FREE };
        }
        if let Some(count) = self.of_states.get_mut(place.state as usize) {
            *count += 1;
        }
        self.issued += 1;
        Ok(ticket)
    }

    /// Notes the identity of the flow manager's session of a held packet.
    pub fn set_uid(&mut self, ticket: u32, uid: u32) {
        if let Some(entry) = self.entries.get_mut(ticket as usize) {
            entry.uid = uid;
        }
    }

    /// Notes that a held packet belongs to a session of a function `flow`, inside of the next one.
    pub fn add_level(&mut self, ticket: u32, level: HeldLevel) {
        if let Some(entry) = self.entries.get_mut(ticket as usize) {
            // Compilation has checked the number of functions `flow`.
            let _ = entry.levels.try_push(level);
        }
    }
}
