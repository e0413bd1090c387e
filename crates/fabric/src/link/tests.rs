use mmb_nf::{Direction, Key, SessionId};
use mmb_packet::build::{Frame, Ip4, Udp};

use super::*;
use crate::descriptor::Descriptor;
use crate::layout::{FRAME, Geometry, read_record, tag_of};
use crate::pool::Pool;
use crate::shared::DomainMemory;

/// A worker's link, and the process's ends of its rings.
struct World {
    link: Link,
    shared: Arc<Shared>,
    there: Consumer<Region>,
    back: Producer<Region>,
}

fn shared(on_failure: OnFailure) -> Arc<Shared> {
    let pool = Arc::new(Pool::new(64, FRAME).unwrap());
    let memory = Arc::new(SharedMemory::create("test", pool.bytes() / 8).unwrap());
    let geometry = Geometry::new(1, 64, 128, 8);
    let pads = Arc::new(SharedMemory::create("test", geometry.pad_words()).unwrap());
    Arc::new(Shared::new(Arc::new(DomainMemory { pool, memory, on_failure }), geometry, pads).unwrap())
}

/// A process is there, with new rings.
fn attach(shared: &Arc<Shared>) -> (Consumer<Region>, Producer<Region>) {
    let rings = Arc::new(SharedMemory::create("test", shared.geometry.ring_words()).unwrap());
    shared.set_up(&rings);
    let pair = shared.geometry.rings(&rings, 0).unwrap();
    (Consumer::new(pair.there).unwrap(), Producer::new(pair.back).unwrap())
}

impl World {
    fn new(on_failure: OnFailure) -> World {
        let shared = shared(on_failure);
        let (there, back) = attach(&shared);
        let mut link = Link::new(shared.clone(), 0, 128);
        assert_eq!(link.poll(), LinkState::Up);
        World { link, shared, there, back }
    }

    fn send(&mut self, session: u32) -> Result<u32, Verdict> {
        let mut frame = Frame::new(Ip4::new([1, 1, 1, 1], [2, 2, 2, 2]), Udp::new(1, 2)).build();
        let mut meta = Meta::default();
        mmb_packet::parse(&frame, frame.len(), &mut meta).unwrap();
        let len = frame.len() as u32;
        let (direction, session) = (Direction::Forward, SessionId(session));
        let packet =
            Packet { head: &mut frame, tail: None, meta: &mut meta, len, in_port: 1, direction, session };
        let sent = self.link.send(&packet, 5, None);
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
    world.reply(Descriptor { tag: tag_of(Verdict::Drop(reason)), ..packet });
    world.reply(Descriptor { tag: tag_of(Verdict::Pass), ..packet });
    assert_eq!(world.link.receive(), Some((buffer, Verdict::Drop(reason))));
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
    for (on_failure, verdict) in
        [(OnFailure::Pass, Verdict::Pass), (OnFailure::Drop, Verdict::Drop(DropReason::ProcessFailed))]
    {
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
        let mut expected: Vec<_> = buffers.iter().map(|&buffer| (buffer, verdict)).collect();
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
