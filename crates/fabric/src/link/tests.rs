use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use mmb_nf::process::{EditRights, LinkState, ProcessLink, ProcessVerdict, View};
use mmb_nf::{Direction, Key, Meta, OnFailure, SessionId};
use mmb_packet::build::{Frame, Ip4, Udp};

use super::*;
use crate::descriptor::Descriptor;
use crate::layout::{FRAME, Geometry, OPEN, PacketHeader, RELEASE, read_record, tag_of};
use crate::pool::{BUFFER_HEADER, Pool};
use crate::shared::DomainMemory;
use crate::words::read_bytes;

/// A worker's link, and the process's ends of its rings.
struct World {
    link: Link,
    shared: Arc<Shared>,
    there: Consumer<Region>,
    back: Producer<Region>,
}

fn shared(on_failure: OnFailure, buffers: u32, packets: Option<Arc<dyn PacketMemory>>) -> Arc<Shared> {
    shared_of(on_failure, buffers, Geometry::new(1, 64, 128, 8), packets)
}

fn shared_of(
    on_failure: OnFailure,
    buffers: u32,
    geometry: Geometry,
    packets: Option<Arc<dyn PacketMemory>>,
) -> Arc<Shared> {
    let pool = Arc::new(Pool::new(buffers, FRAME).unwrap());
    let memory = Arc::new(SharedMemory::create("test", pool.bytes() / 8).unwrap());
    let pads = Arc::new(SharedMemory::create("test", geometry.pad_words()).unwrap());
    let packets = packets.map(|packets| Arc::new(OnceLock::from(packets)));
    let domain = Arc::new(DomainMemory { pool, memory, on_failure, packets });
    Arc::new(Shared::new(domain, geometry, pads, true, None).unwrap())
}

/// A process is there, with new rings.
fn attach(shared: &Arc<Shared>) -> (Consumer<Region>, Producer<Region>) {
    let rings = Arc::new(SharedMemory::create("test", shared.geometry.ring_words()).unwrap());
    shared.set_up(&rings);
    let pair = shared.geometry.rings(&rings, 0).unwrap();
    (Consumer::new(pair.there).unwrap(), Producer::new(pair.back).unwrap())
}

/// A packet of a session. `meta` is filled in.
fn packet<'a>(frame: &'a mut [u8], meta: &'a mut Meta, session: u32) -> Packet<'a> {
    mmb_packet::parse(frame, frame.len(), meta).unwrap();
    let (len, direction, session) = (frame.len() as u32, Direction::Forward, SessionId(session));
    Packet { head: frame, tail: None, meta, len, segment_size: 0, in_port: 1, direction, session }
}

impl World {
    fn new(on_failure: OnFailure) -> World {
        World::with_packets(on_failure, None)
    }

    /// With rings of 64 slots, and so many buffers.
    fn with_buffers(buffers: u32) -> World {
        World::of(shared(OnFailure::Drop, buffers, None))
    }

    fn with_packets(on_failure: OnFailure, packets: Option<Arc<dyn PacketMemory>>) -> World {
        World::of(shared(on_failure, 64, packets))
    }

    fn of(shared: Arc<Shared>) -> World {
        let (there, back) = attach(&shared);
        let mut link = Link::new(shared.clone(), 0, 128);
        assert_eq!(link.poll(), LinkState::Up);
        World { link, shared, there, back }
    }

    fn send(&mut self, session: u32) -> Result<u32, Verdict> {
        self.send_frame(session, &mut frame(), None)
    }

    fn send_frame(
        &mut self,
        session: u32,
        frame: &mut [u8],
        filled: Option<FilledBuffer>,
    ) -> Result<u32, Verdict> {
        let mut meta = Meta::default();
        let packet = packet(frame, &mut meta, session);
        let sent = self.link.send(&packet, (View::NONE, EditRights::NONE), 5, filled);
        self.link.flush();
        sent
    }

    /// What the process gets, as tags and sessions.
    fn received(&mut self) -> Vec<Descriptor> {
        let all = std::iter::from_fn(|| self.there.pop().unwrap()).collect();
        self.there.publish();
        all
    }

    fn reply(&mut self, descriptor: Descriptor) {
        assert_eq!(self.back.push(descriptor), Ok(true));
        self.back.publish();
    }

    fn rejected(&self) -> u64 {
        self.shared.counters[0].refused.load(Relaxed)
    }
}

fn frame() -> Vec<u8> {
    Frame::new(Ip4::new([1, 1, 1, 1], [2, 2, 2, 2]), Udp::new(1, 2)).build()
}

fn session(number: u32) -> SessionInfo {
    let key = Key::default();
    SessionInfo {
        id: SessionId(number),
        key,
        ingress_key: key,
        egress_key: key,
        created: 1,
        now: 2,
        in_port: 3,
        uid: 100 + number,
        packets: [0; 2],
        bytes: [0; 2],
    }
}

fn shown(all: &[Descriptor]) -> Vec<(u16, u32)> {
    all.iter().map(|one| (one.tag, one.session)).collect()
}

#[test]
fn forged_and_repeated_descriptors_are_counted() {
    let mut world = World::new(OnFailure::Drop);
    world.link.open(&session(1), None);
    let buffer = world.send(1).unwrap();
    let received = world.received();
    assert_eq!(shown(&received), [(OPEN, 1), (PACKET, 1)]);
    let (begin, packet) = (received[0], received[1]);
    let record: SessionRecord =
        read_record(buffer_words(&*world.link.pool, &begin, world.link.ledger.pool().stride()));
    assert_eq!(SessionInfo::from(record), session(1));
    world.reply(Descriptor { generation: packet.generation + 1, ..packet });
    world.reply(Descriptor { session: 2, ..packet });
    world.reply(begin);
    world.reply(begin);
    let reason = DropReason::Acl;
    world.reply(Descriptor { tag: tag_of(ProcessVerdict::Packet(Verdict::Drop(reason))), ..packet });
    world.reply(Descriptor { tag: tag_of(ProcessVerdict::Packet(Verdict::Pass)), ..packet });
    assert_eq!(world.link.receive(), Some((buffer, ProcessVerdict::Packet(Verdict::Drop(reason)))));
    assert_eq!(world.link.receive(), None);
    assert_eq!(world.rejected(), 4);
    world.link.free(buffer);
    let ledger = &world.link.ledger;
    assert_eq!((world.link.in_flight(), ledger.pool().free() + ledger.cached()), (0, 64));
}

#[test]
fn a_broken_ring_ends_the_process() {
    let mut world = World::new(OnFailure::Drop);
    let rings = world.shared.rings().unwrap();
    let pair = world.shared.geometry.rings(&rings, 0).unwrap();
    crate::words::Words::words(&pair.back)[0].store(u64::MAX / 2, Relaxed);
    assert_eq!(world.link.receive(), None);
    assert!(world.shared.is_kill_requested());
    world.shared.set_down();
    assert!(!world.shared.is_kill_requested(), "the next process is not meant");
}

#[test]
fn a_session_that_the_function_does_not_know_ends() {
    let mut world = World::new(OnFailure::Drop);
    assert_eq!(world.send(1), Err(Verdict::End(DropReason::ProcessFull)));
    world.link.open(&session(1), None);
    assert!(world.send(1).is_ok());
    world.link.release(&session(1));
    assert_eq!(world.send(1), Err(Verdict::End(DropReason::ProcessFull)));
    assert_eq!(shown(&world.received()), [(OPEN, 1), (PACKET, 1), (RELEASE, 1)]);
}

#[test]
fn packets_do_not_overtake_events_that_wait() {
    let mut world = World::new(OnFailure::Drop);
    (0..65).for_each(|number| world.link.open(&session(number), None));
    assert_eq!(world.send(0), Err(Verdict::Drop(DropReason::ProcessFull)));
    let received = world.received();
    assert_eq!(received.len(), 64);
    world.reply(received[0]);
    assert_eq!(world.link.receive(), None);
    assert_eq!(world.link.poll(), LinkState::Up);
    world.link.flush();
    assert_eq!(shown(&world.received()), [(OPEN, 64)]);
}

#[test]
fn the_end_of_a_process_loses_nothing() {
    for on_failure in [OnFailure::Pass, OnFailure::Drop] {
        let mut world = World::new(on_failure);
        world.link.open(&session(1), None);
        world.link.open(&session(2), None);
        let buffers = [world.send(1).unwrap(), world.send(2).unwrap()];
        let received = world.received();
        // The first session is acknowledged; the rest is lost.
        world.reply(received[0]);
        assert_eq!(world.link.receive(), None);
        world.shared.set_down();
        assert_eq!(world.link.poll(), LinkState::Down(on_failure));
        let mut lost: Vec<_> = std::iter::from_fn(|| world.link.receive()).collect();
        lost.sort_unstable_by_key(|(buffer, _)| *buffer);
        let mut expected: Vec<_> = buffers.iter().map(|&buffer| (buffer, ProcessVerdict::Lost)).collect();
        expected.sort_unstable_by_key(|(buffer, _)| *buffer);
        assert_eq!(lost, expected);
        buffers.iter().for_each(|&buffer| world.link.free(buffer));
        (world.there, world.back) = attach(&world.shared);
        assert_eq!(world.link.poll(), LinkState::Up);
        world.link.flush();
        assert_eq!(shown(&world.received()), [(OPEN, 2)]);
        assert_eq!(world.shared.counters[0].lost.load(Relaxed), 2);
    }
}

/// Packet memory of two buffers of 2048 bytes, which knows what is pinned.
struct TwoBuffers {
    memory: SharedMemory,
    pinned: Mutex<Vec<u32>>,
}

impl TwoBuffers {
    fn new() -> Arc<TwoBuffers> {
        Arc::new(TwoBuffers { memory: SharedMemory::create("test", 512).unwrap(), pinned: Mutex::default() })
    }

    /// A frame in a buffer.
    #[allow(clippy::mut_from_ref, reason = "the test uses each buffer once at a time")]
    fn frame(&self, buffer: usize) -> &mut [u8] {
        let bytes = frame();
        // SAFETY: the bytes are in the mapping, and the test has no other slice of the buffer.
        let place = unsafe {
            let start = self.memory.as_mut_ptr().add(buffer * 2048 + 128);
            std::slice::from_raw_parts_mut(start, bytes.len())
        };
        place.copy_from_slice(&bytes);
        place
    }

    fn pinned(&self) -> Vec<u32> {
        self.pinned.lock().unwrap().clone()
    }
}

impl PacketMemory for TwoBuffers {
    fn file(&self) -> (BorrowedFd<'_>, u64) {
        (self.memory.as_fd(), 0)
    }

    fn bytes(&self) -> usize {
        4096
    }

    fn pin(&self, frame: &[u8]) -> Option<(u64, u32)> {
        let at = frame.as_ptr().addr().checked_sub(self.memory.as_mut_ptr().addr())?;
        let buffer = (at / 2048) as u32;
        let mut pinned = self.pinned.lock().unwrap();
        let is_free = at < 4096 && !pinned.contains(&buffer);
        is_free.then(|| pinned.push(buffer))?;
        Some((at as u64, buffer))
    }

    fn unpin(&self, buffer: u32) {
        let mut pinned = self.pinned.lock().unwrap();
        let at = pinned.iter().position(|&one| one == buffer).expect("a pin ends once");
        pinned.remove(at);
    }
}

/// Where the process looks for the frame of a packet.
fn place_of(world: &World, descriptor: &Descriptor) -> Option<u64> {
    let words = buffer_words(&*world.link.pool, descriptor, world.link.ledger.pool().stride());
    let header: PacketHeader = read_record(words);
    header.place()
}

#[test]
fn packets_of_the_engine_s_memory_are_read_where_they_are() {
    let memory = TwoBuffers::new();
    let mut world = World::with_packets(OnFailure::Drop, Some(memory.clone()));
    world.link.open(&session(1), None);
    let first = world.send_frame(1, memory.frame(0), None).unwrap();
    let second = world.send_frame(1, memory.frame(1), None).unwrap();
    // A frame from elsewhere, and one whose buffer is pinned, are copied.
    let third = world.send(1).unwrap();
    let fourth = world.send_frame(1, memory.frame(0), None).unwrap();
    assert_eq!(memory.pinned(), [0, 1]);
    let received = world.received();
    let places: Vec<_> = received[1..].iter().map(|one| place_of(&world, one)).collect();
    assert_eq!(places, [Some(128), Some(2048 + 128), None, None]);
    assert_eq!(world.shared.counters[0].in_place.load(Relaxed), 2);
    received.iter().for_each(|one| world.reply(*one));
    let back: Vec<_> = std::iter::from_fn(|| world.link.receive()).map(|(buffer, _)| buffer).collect();
    assert_eq!(back, [first, second, third, fourth]);
    assert!(memory.pinned().is_empty(), "nobody shares a packet that goes on");
    // What the process has left in the buffer is not copied back: it could only read.
    let mut meta = Meta::default();
    let mut packet = packet(memory.frame(0), &mut meta, 1);
    assert_eq!(world.link.copy_back(first, &mut packet), Ok(()));
    assert_eq!(*packet.head, *frame());
    back.iter().for_each(|&buffer| world.link.free(buffer));
    assert_eq!(world.link.ledger.in_use(), 0);
}

/// A buffer that goes on to the next function without the frame is filled there, or the packet stays again.
#[test]
fn a_buffer_without_its_frame_is_handed_on() {
    let memory = TwoBuffers::new();
    let mut world = World::with_packets(OnFailure::Drop, Some(memory.clone()));
    world.link.open(&session(1), None);
    for is_pinned_elsewhere in [false, true] {
        let buffer = world.send_frame(1, memory.frame(0), None).unwrap();
        let received = world.received();
        world.reply(*received.last().unwrap());
        while world.link.receive().is_none_or(|(back, _)| back != buffer) {}
        let filled = world.link.detach_buffer(buffer).unwrap();
        assert!(filled.is_in_place);
        if is_pinned_elsewhere {
            memory.pinned.lock().unwrap().push(0);
        }
        assert_eq!(world.send_frame(1, memory.frame(0), Some(filled)), Ok(buffer));
        let received = world.received();
        let descriptor = received[0];
        assert_eq!(place_of(&world, &descriptor), (!is_pinned_elsewhere).then_some(128));
        if is_pinned_elsewhere {
            let words = buffer_words(&*world.link.pool, &descriptor, world.link.ledger.pool().stride());
            let mut bytes = frame();
            bytes.fill(0);
            read_bytes(&words[BUFFER_HEADER / 8..], &mut bytes);
            assert_eq!(bytes, frame());
        }
        world.reply(descriptor);
        assert!(world.link.receive().is_some());
        world.link.free(buffer);
        memory.pinned.lock().unwrap().clear();
    }
}

/// kill -9: each pin ends once, when the process is gone, and so it does when the function is deleted.
#[test]
fn the_end_of_a_process_ends_its_pins() {
    let memory = TwoBuffers::new();
    let mut world = World::with_packets(OnFailure::Pass, Some(memory.clone()));
    world.link.open(&session(1), None);
    let buffer = world.send_frame(1, memory.frame(0), None).unwrap();
    assert_eq!(memory.pinned(), [0]);
    world.shared.set_down();
    assert_eq!(world.link.poll(), LinkState::Down(OnFailure::Pass));
    assert!(memory.pinned().is_empty());
    assert_eq!(world.link.receive(), Some((buffer, ProcessVerdict::Lost)));
    world.link.free(buffer);
    (world.there, world.back) = attach(&world.shared);
    assert_eq!(world.link.poll(), LinkState::Up);
    world.send_frame(1, memory.frame(1), None).unwrap();
    assert_eq!(memory.pinned(), [1]);
    drop(world);
    assert!(memory.pinned().is_empty());
}

#[test]
fn a_full_ring_drops_and_keeps_no_buffer() {
    let mut world = World::with_buffers(128);
    world.link.open(&session(1), None);
    assert!((0..63).all(|_| world.send(1).is_ok()));
    for _ in 0..100 {
        assert_eq!(world.send(1), Err(Verdict::Drop(DropReason::ProcessFull)));
    }
    assert_eq!((world.link.in_flight(), world.shared.counters[0].full.load(Relaxed)), (64, 100));
    for descriptor in world.received() {
        world.reply(descriptor);
    }
    let back: Vec<_> = std::iter::from_fn(|| world.link.receive()).collect();
    back.iter().for_each(|(buffer, _)| world.link.free(*buffer));
    let ledger = &world.link.ledger;
    assert_eq!((back.len(), ledger.pool().free() + ledger.cached()), (63, 128));
    assert!(world.send(1).is_ok());
}

/// A process that keeps all events holds up the worker only shortly when it ends, and none is lost.
#[test]
fn many_events_that_a_process_keeps() {
    const EVENTS: u32 = 1 << 16;
    let geometry = Geometry::new(1, EVENTS, EVENTS, 8);
    let shared = shared_of(OnFailure::Drop, EVENTS, geometry, None);
    let (there, back) = attach(&shared);
    let mut world = World { link: Link::new(shared.clone(), 0, EVENTS), shared, there, back };
    assert_eq!(world.link.poll(), LinkState::Up);
    let mut had = Vec::new();
    for number in 0..EVENTS {
        world.link.open(&session(number), None);
        if number.is_multiple_of(1024) {
            world.link.flush();
            had.extend(world.received());
        }
    }
    assert_eq!(had.len(), MOST_SENT);
    let begin = Instant::now();
    world.shared.set_down();
    assert_eq!(world.link.poll(), LinkState::Down(OnFailure::Drop));
    assert!(begin.elapsed() < Duration::from_millis(500), "{:?}", begin.elapsed());
    assert_eq!((world.link.in_flight(), world.link.ledger.in_use()), (0, 0));
    (world.there, world.back) = attach(&world.shared);
    world.link.poll();
    world.link.flush();
    let again = world.received();
    assert_eq!(shown(&again), shown(&had));
    // Those that have waited follow when these come back.
    again.iter().for_each(|one| world.reply(*one));
    assert_eq!(world.link.receive(), None);
    world.link.poll();
    world.link.flush();
    assert_eq!(world.received()[0].session, MOST_SENT as u32);
}

#[test]
fn events_come_back_in_their_order() {
    let mut world = World::new(OnFailure::Drop);
    (0..3).for_each(|number| world.link.open(&session(number), None));
    world.link.flush();
    let received = world.received();
    world.reply(received[0]);
    assert_eq!(world.link.receive(), None);
    assert!(!world.shared.is_kill_requested());
    world.reply(received[2]);
    assert_eq!(world.link.receive(), None);
    assert!(world.shared.is_kill_requested());
    assert_eq!(world.rejected(), 1);
    world.shared.set_down();
    world.link.poll();
    assert_eq!(world.link.ledger.in_use(), 0);
    (world.there, world.back) = attach(&world.shared);
    world.link.poll();
    world.link.flush();
    assert_eq!(shown(&world.received()), [(OPEN, 1), (OPEN, 2)]);
}

/// The next process of a function has the buffers of the last one, with other generations.
#[test]
fn descriptors_of_an_earlier_process_are_refused() {
    let mut world = World::new(OnFailure::Drop);
    world.link.open(&session(1), None);
    let buffer = world.send(1).unwrap();
    let stale = world.received();
    world.reply(stale[0]);
    assert_eq!(world.link.receive(), None);
    world.shared.set_down();
    world.link.poll();
    assert_eq!(world.link.receive(), Some((buffer, ProcessVerdict::Lost)));
    world.link.free(buffer);
    (world.there, world.back) = attach(&world.shared);
    assert_eq!(world.link.poll(), LinkState::Up);
    assert_eq!(world.send(1), Ok(buffer), "the last buffer is used again");
    let rejected = world.rejected();
    stale.iter().for_each(|one| world.reply(*one));
    assert_eq!(world.link.receive(), None);
    assert_eq!((world.rejected(), world.link.in_flight()), (rejected + 2, 1));
    let fresh = world.received();
    world.reply(fresh[0]);
    assert_eq!(world.link.receive(), Some((buffer, ProcessVerdict::Packet(Verdict::Pass))));
}
