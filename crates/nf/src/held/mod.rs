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

mod list;
mod process;
mod queue;
mod room;
mod stream;

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use arrayvec::ArrayVec;
use mmb_flow::{Direction, FlowRef, HeldLimits};
use mmb_packet::DropReason;
use mmb_stream::{HeldRange, View};

use crate::verdict::{EditRights, ProcessVerdict, Verdict};
use list::{AGE, Links, List, QUEUE};
pub use queue::HeldQueue;
pub(crate) use room::{ApartStates, MOST_APART, PlaceRoom, ProcessRoom, Urgency};

/// Most functions `flow` in front of a function that holds packets.
pub(crate) const MAX_FLOWS: usize = 3;

/// The space of the flow manager's sessions. That of a function `flow` is the index of its state.
pub(crate) const OUTER_SPACE: u32 = u32::MAX;

/// The place of a function for the packets of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldPlace {
    /// The sessions that `session` counts in.
    pub space: u32,
    /// Number of the session.
    pub session: u32,
    /// Index of the instance's state. A path has an instance once.
    pub state: u32,
}

impl std::hash::Hash for HeldPlace {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let place = u64::from(self.space) << 40 ^ u64::from(self.state) << 32 ^ u64::from(self.session);
        hasher.write_u64(place);
    }
}

/// Hashes numbers that senders do not choose.
#[derive(Default)]
struct PlaceHasher(u64);

impl Hasher for PlaceHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

/// A session of a function `flow` that a held packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldLevel {
    /// Index of the state of the function `flow`.
    pub state: usize,
    pub flow: FlowRef,
    pub uid: u32,
}

/// Where a packet with a ticket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TicketState {
    /// The entry is not in use.
    Free,
    /// A function holds the packet.
    Held,
    /// The packet is released, and its event waits.
    Released,
    /// The caller has taken the event.
    Taken,
    /// The packet is to be dropped.
    Dropped(DropReason),
}

/// A packet that is held or released.
#[derive(Clone, Debug)]
struct Entry {
    place: HeldPlace,
    direction: Direction,
    status: TicketState,
    order: u32,
    /// When it was held, in milliseconds.
    since: u32,
    links: [Links; 2],
    /// The verdict of the function on a packet that follows released ones. None: the function is asked when
    /// the packet goes on.
    verdict: Option<Verdict>,
    /// The packet was not held, and follows others.
    is_follower: bool,
    /// Identity of the flow manager's session.
    uid: u32,
    /// Its sessions of functions `flow`, the innermost first.
    levels: ArrayVec<HeldLevel, MAX_FLOWS>,
    /// The bytes of a segment that waits.
    range: HeldRange,
    /// What stream functions get of a packet that goes on.
    view: View,
    /// The timestamp with which a segment that waited goes on. None: its own.
    stamp: Option<u32>,
    /// The buffer of a packet that is in the process of the function, or [`NO_BUFFER`].
    buffer: u32,
    /// What came back from the process of a stream function.
    returned: ProcessVerdict,
    /// What a function that edits in a process may do with the bytes.
    rights: EditRights,
    /// The number of the bytes that functions in front have changed, in the memory of edits. 0: none have.
    rope: u32,
}

/// No buffer.
pub(crate) const NO_BUFFER: u32 = u32::MAX;

/// The packets of one session at one function, by direction.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    held: [List; 2],
    pending: [List; 2],
    /// The latest timestamps of segments that have waited.
    latest_stamp: [Option<u32>; 2],
}

impl Queue {
    fn len(&self) -> u32 {
        self.held.iter().chain(&self.pending).map(|list| list.len).sum()
    }
}

/// A packet that is no longer held, by its ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldEvent {
    /// The packet goes on behind the function ([`crate::Runner::resume`]).
    Released(u32),
    /// The packet is dropped.
    Dropped(u32, DropReason),
}

/// A packet that goes on.
#[derive(Clone, Debug)]
pub(crate) struct Resumed {
    /// Index of the state of the instance that held it.
    pub state: u32,
    pub verdict: Option<Verdict>,
    pub is_follower: bool,
    pub uid: u32,
    pub levels: ArrayVec<HeldLevel, MAX_FLOWS>,
    pub view: View,
    /// See [`Entry`].
    pub stamp: Option<u32>,
    /// The buffer of a packet that came back from a process, or [`NO_BUFFER`].
    pub buffer: u32,
    /// What came back from the process of a stream function.
    pub returned: ProcessVerdict,
    /// What a function that edits in a process may do with the bytes.
    pub rights: EditRights,
    /// The number of the bytes that functions in front have changed. 0: none have.
    pub rope: u32,
}

/// Most sessions whose clients functions answer at the same time.
const MOST_TAKEN_OVER: usize = 65_536;

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

impl Resumed {
    /// Whether another packet was held by the same function, behind the same functions `flow`.
    pub fn has_place_of(&self, other: &Resumed) -> bool {
        let states =
            |one: &Resumed| one.levels.iter().map(|level| level.state).collect::<ArrayVec<_, MAX_FLOWS>>();
        self.state == other.state && states(self) == states(other)
    }
}

impl HeldPackets {
    /// Makes an empty set of held packets.
    pub fn with_limits(limits: HeldLimits) -> HeldPackets {
        let mut held = HeldPackets::default();
        held.set_limits(limits);
        held
    }

    /// Notes that a function answers the client of a session. Returns false if there is no room.
    pub fn take_over(&mut self, session: u32) -> bool {
        self.taken_over.len() < MOST_TAKEN_OVER && self.taken_over.insert(session)
    }

    /// Whether a function answers the client of a session.
    pub fn is_taken_over(&self, session: u32) -> bool {
        self.taken_over.contains(&session)
    }

    /// Notes that both ends of a session have got a FIN. Returns false if there is no room.
    pub fn close(&mut self, session: u32, reason: DropReason) -> bool {
        let has_room = self.closed.len() < MOST_TAKEN_OVER;
        has_room && self.closed.insert(session, reason).is_none()
    }

    /// Whether both ends of any session have got a FIN.
    pub fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// Returns why packets of a session are dropped whose ends have got a FIN.
    pub fn closed(&self, session: u32) -> Option<DropReason> {
        self.closed.get(&session).copied()
    }

    /// The session has ended.
    pub fn end_closed(&mut self, session: u32) {
        if !self.closed.is_empty() {
            self.closed.remove(&session);
        }
    }

    /// The session has ended, or a new connection has begun in it.
    pub fn end_takeover(&mut self, session: u32) {
        if !self.taken_over.is_empty() {
            self.taken_over.remove(&session);
        }
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

    /// The packet that was being processed has its place: packets that go on behind it are pending now.
    pub fn flush_behind(&mut self) {
        while let Some(ticket) = self.behind.first_ticket() {
            self.behind.remove(&mut self.entries, QUEUE, ticket);
            if let Some(&Entry { place, direction, .. }) = self.entries.get(ticket as usize) {
                self.add_pending(place, direction, ticket);
            }
        }
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
        self.hold_within(self.limits.session, (place, direction), order)
    }

    /// Holds a packet as [`HeldPackets::hold`] does, if its session has fewer than `most`.
    fn hold_within(
        &mut self,
        most: u32,
        (place, direction): (HeldPlace, Direction),
        order: Option<u32>,
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
            (entry.order, entry.since) = (order, now);
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

    fn add_pending(&mut self, place: HeldPlace, direction: Direction, ticket: u32) {
        if let Some(queue) = self.queues.get_mut(&place) {
            queue.pending[direction as usize].push(&mut self.entries, QUEUE, ticket);
        }
        if let Some(entry) = self.entries.get_mut(ticket as usize) {
            entry.status = TicketState::Released;
        }
        self.pending += 1;
        self.events.push_back(ticket);
    }

    /// Takes the first held packet of a queue out of it.
    fn pop_held(&mut self, place: HeldPlace, direction: Direction) -> Option<u32> {
        let list = &mut self.queues.get_mut(&place)?.held[direction as usize];
        let ticket = list.first_ticket()?;
        list.remove(&mut self.entries, QUEUE, ticket);
        self.by_age.remove(&mut self.entries, AGE, ticket);
        Some(ticket)
    }

    /// Marks a packet as dropped that is in no list.
    fn drop_later(&mut self, ticket: u32, reason: DropReason) {
        if let Some(entry) = self.entries.get_mut(ticket as usize) {
            entry.status = TicketState::Dropped(reason);
            self.events.push_back(ticket);
        }
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

    /// Takes the next event.
    pub fn next_event(&mut self) -> Option<HeldEvent> {
        let ticket = self.events.pop_front()?;
        let entry = self.entries.get_mut(ticket as usize)?;
        if let TicketState::Dropped(reason) = entry.status {
            self.release_entry(ticket);
            return Some(HeldEvent::Dropped(ticket, reason));
        }
        entry.status = TicketState::Taken;
        Some(HeldEvent::Released(ticket))
    }

    /// Returns what is known of a packet whose event was taken.
    pub fn taken(&self, ticket: u32) -> Result<Resumed, DropReason> {
        match self.entries.get(ticket as usize) {
            Some(&Entry {
                status: TicketState::Taken,
                place,
                verdict,
                is_follower,
                uid,
                ref levels,
                view,
                stamp,
                buffer,
                returned,
                rights,
                rope,
                ..
            }) => {
                let (state, levels) = (place.state, levels.clone());
                Ok(Resumed {
                    state,
                    verdict,
                    is_follower,
                    uid,
                    levels,
                    view,
                    stamp,
                    buffer,
                    returned,
                    rights,
                    rope,
                })
            }
            Some(&Entry { status: TicketState::Dropped(reason), .. }) => Err(reason),
            _ => Err(DropReason::ChainError),
        }
    }

    /// A packet whose event was taken goes on. Its ticket is free.
    pub fn finish(&mut self, ticket: u32) {
        let Some(entry) = self.entries.get(ticket as usize) else { return };
        let (place, direction) = (entry.place, entry.direction);
        match entry.status {
            TicketState::Taken => {
                if let Some(queue) = self.queues.get_mut(&place) {
                    queue.pending[direction as usize].remove(&mut self.entries, QUEUE, ticket);
                }
                self.pending -= 1;
                self.remove_empty(place);
            }
            TicketState::Dropped(_) => {}
            TicketState::Free | TicketState::Held | TicketState::Released => return,
        }
        self.release_entry(ticket);
    }

    fn release_entry(&mut self, ticket: u32) {
        if let Some(entry) = self.entries.get_mut(ticket as usize) {
            entry.status = TicketState::Free;
            self.segment_bytes -= std::mem::take(&mut entry.range).len();
            if let Some(count) = self.of_states.get_mut(entry.place.state as usize) {
                *count = count.saturating_sub(1);
            }
            if entry.buffer != NO_BUFFER {
                self.unused_buffers.push((entry.place.state, entry.buffer));
                entry.buffer = NO_BUFFER;
            }
            if entry.rope != 0 {
                self.unused_ropes.push(std::mem::take(&mut entry.rope));
            }
            self.free.push(ticket);
        }
    }

    fn remove_empty(&mut self, place: HeldPlace) {
        if self.queues.get(&place).is_some_and(|queue| queue.len() == 0) {
            self.queues.remove(&place);
        }
    }

    /// A session leaves a function: its packets there are dropped.
    pub fn leave(&mut self, place: HeldPlace) {
        if self.queues.is_empty() {
            return;
        }
        for direction in [Direction::Forward, Direction::Reverse] {
            while let Some(ticket) = self.pop_held(place, direction) {
                self.drop_later(ticket, DropReason::HeldEnded);
            }
            let Some(queue) = self.queues.get_mut(&place) else { return };
            let list = &mut queue.pending[direction as usize];
            while let Some(ticket) = list.first_ticket() {
                list.remove(&mut self.entries, QUEUE, ticket);
                self.pending -= 1;
                if let Some(entry) = self.entries.get_mut(ticket as usize) {
                    // Its event waits already, or the caller has it.
                    entry.status = TicketState::Dropped(DropReason::HeldEnded);
                }
            }
        }
        self.queues.remove(&place);
    }

    /// Drops packets that were held for longer than `timeout` milliseconds, at most `budget`. Returns true if
    /// there may be more.
    pub fn expire(&mut self, now: u32, timeout: u32, budget: usize) -> bool {
        for _ in 0..budget {
            let oldest = self.by_age.first_ticket().and_then(|ticket| self.entries.get(ticket as usize));
            let Some(oldest) = oldest.filter(|entry| now.wrapping_sub(entry.since) >= timeout) else {
                return false;
            };
            let (place, direction) = (oldest.place, oldest.direction as usize);
            let Some(ticket) = self.by_age.first_ticket() else { return false };
            if self.lose_in_process(ticket) {
                continue;
            }
            self.by_age.remove(&mut self.entries, AGE, ticket);
            if let Some(queue) = self.queues.get_mut(&place) {
                queue.held[direction].remove(&mut self.entries, QUEUE, ticket);
            }
            self.drop_later(ticket, DropReason::HeldTimeout);
            self.remove_empty(place);
        }
        true
    }
}

impl Entry {
    const FREE: Entry = Entry {
        place: HeldPlace { space: 0, session: 0, state: 0 },
        direction: Direction::Forward,
        status: TicketState::Free,
        order: 0,
        since: 0,
        links: [Links::NONE; 2],
        verdict: None,
        is_follower: false,
        uid: 0,
        levels: ArrayVec::new_const(),
        range: HeldRange { from: 0, to: 0, has_fin: false },
        view: View::NONE,
        stamp: None,
        buffer: NO_BUFFER,
        returned: ProcessVerdict::Lost,
        rights: EditRights::NONE,
        rope: 0,
    };
}
