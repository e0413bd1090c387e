//! The table against a map.

use std::collections::{BTreeMap, HashMap};

use mmb_packet::Kind;
use proptest::prelude::*;

use super::*;
use crate::nat::MappingId;
use crate::{RedirectState, SessionSettings, TcpSegment, TrackInput, TrackState};

const SEED: u64 = 0x5eed;

fn key4(source: [u8; 4], sport: u16, destination: [u8; 4], dport: u16) -> Key {
    let mut key = Key { kind: Kind::IP4 | Kind::TCP, proto: 6, ..Key::default() };
    key.source[..4].copy_from_slice(&source);
    key.destination[..4].copy_from_slice(&destination);
    (key.source_port, key.destination_port) = (sport.to_be_bytes(), dport.to_be_bytes());
    key
}

fn numbered(n: u32, ip6: bool) -> Key {
    let [_, b, c, d] = n.to_be_bytes();
    let mut key = key4([10, b, c, d], 1024 + d as u16, [198, 51, 100, c], 80);
    if ip6 {
        key.kind = Kind::IP6 | Kind::TCP;
        key.source = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, b, c, d];
        key.destination = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    }
    key
}

fn enter(table: &mut Table, key: &Key) -> Result<SessionId, InsertError> {
    table.insert(key, &key.reversed(), 0)
}

/// What a vector has computed ahead serves its keys only, right or wrong about the reply.
#[test]
fn a_forecast_serves_its_key() {
    let mut table = Table::new(100, 24, SEED).unwrap();
    for (n, ip6) in [(1, false), (2, false), (3, true)] {
        let key = numbered(n, ip6);
        let translated =
            Key { destination: numbered(90, ip6).source, destination_port: [9, n as u8], ..key.reversed() };
        let [a, b, c, d, ..] = translated.destination;
        // The second prediction is wrong.
        let port = if n == 2 { [1, 1] } else { translated.destination_port };
        let forecast = table.foresee(&key.pack(), (!ip6).then_some(([a, b, c, d], port)));
        let (found, hashed, is_foreseen) = table.find_foreseen(&key, Some(&forecast));
        assert_eq!((found, is_foreseen), (FlowRef::NONE, !ip6));
        let (_, _, is_foreseen) = table.find_foreseen(&numbered(n + 10, ip6), Some(&forecast));
        assert!(!is_foreseen, "another key");
        let id = table.open(&hashed, Some(&translated), 0, 1000, true).unwrap();
        assert_eq!(table.find(&key), FlowRef::new(id, Direction::Forward));
        assert_eq!(table.find(&translated), FlowRef::new(id, Direction::Reverse));
        assert_eq!(table.find_foreseen(&key, Some(&forecast)).0, FlowRef::new(id, Direction::Forward));
        assert!(table.remove(id));
        assert_eq!([table.find(&key), table.find(&translated)], [FlowRef::NONE; 2]);
    }
}

#[test]
fn both_directions_are_found_with_their_direction() {
    let mut table = Table::new(100, 24, SEED).unwrap();
    for ip6 in [false, true] {
        let forward = numbered(1, ip6);
        let reverse = Key { destination: numbered(9, ip6).source, ..forward.reversed() };
        let id = table.insert(&forward, &reverse, 77).unwrap();
        let [there, back] = [table.find(&forward), table.find(&reverse)];
        assert_eq!(
            (there, back),
            (FlowRef::new(id, Direction::Forward), FlowRef::new(id, Direction::Reverse))
        );
        assert_eq!((table.key(there), table.key(back)), (forward, reverse));
        assert_eq!(table.find(&forward.reversed()), FlowRef::NONE);
        assert_eq!((table.session(id).created, table.mapping(id), table.broker(id)), (77, None, None));
        assert_eq!(table.insert(&numbered(2, ip6), &reverse, 78), Err(InsertError::Taken(back)));
        assert_eq!(table.insert(&forward, &numbered(2, ip6), 78), Err(InsertError::Taken(there)));
        assert_eq!(table.find(&numbered(2, ip6)), FlowRef::NONE, "a refusal leaves nothing");
        assert!(table.remove(id) && !table.remove(id));
        assert_eq!([table.find(&forward), table.find(&reverse)], [FlowRef::NONE; 2]);
    }
    assert!(table.is_empty());
}

/// A session with a hashed key whose replies come from its destination.
#[test]
fn a_hashed_key_is_inserted_with_its_reverse() {
    let mut table = Table::new(100, 24, SEED).unwrap();
    for ip6 in [false, true] {
        let mut key = numbered(0x01_0203, ip6);
        key.asks = Key::BY_SOURCE;
        let (found, sought) = table.find_with_hash(&key);
        assert_eq!(found, FlowRef::NONE);
        let id = table.insert_hashed(&sought, None, 5).unwrap();
        assert_eq!(table.find_with_hash(&key).0, FlowRef::new(id, Direction::Forward));
        assert_eq!(table.find(&key.reversed()), FlowRef::new(id, Direction::Reverse));
        assert_eq!(table.key(FlowRef::new(id, Direction::Reverse)), key.reversed());
    }
    // Both endpoints are equal: one key.
    let mut key = numbered(7, false);
    (key.destination, key.destination_port) = (key.source, key.source_port);
    let id = table.insert_hashed(&table.find_with_hash(&key).1, None, 5).unwrap();
    assert_eq!(table.find(&key), FlowRef::new(id, Direction::Forward));
    assert!(table.remove(id));
    assert_eq!(table.find(&key), FlowRef::NONE);
}

#[test]
fn versions_with_equal_bytes_are_different_keys() {
    let mut table = Table::new(100, 0, SEED).unwrap();
    let four = key4([0x20, 1, 0xd, 0xb8], 5, [0, 0, 0, 1], 6);
    let six = Key { kind: Kind::IP6 | Kind::TCP, ..four };
    let (a, b) = (enter(&mut table, &four).unwrap(), enter(&mut table, &six).unwrap());
    assert_eq!((table.find(&four).session(), table.find(&six).session()), (a, b));
}

#[test]
fn a_session_with_itself_has_one_key() {
    let mut table = Table::new(10, 0, SEED).unwrap();
    let land = key4([10, 0, 0, 1], 80, [10, 0, 0, 1], 80);
    let id = enter(&mut table, &land).unwrap();
    assert_eq!(table.find(&land), FlowRef::new(id, Direction::Forward));
    table.remove(id);
    assert_eq!(table.find(&land), FlowRef::NONE);
}

#[test]
fn redirects_name_a_worker_and_expire_like_sessions() {
    let mut table = Table::new(10, 0, SEED).unwrap();
    let id = table.insert_redirect(&numbered(1, false), (513, RedirectState::Opening), 0).unwrap();
    let found = table.find(&numbered(1, false));
    assert_eq!((found.session(), table.redirect_worker(found)), (id, Some(513)));
    for state in [RedirectState::Claimed, RedirectState::Opening, RedirectState::Closing] {
        table.set_redirect_state(found, state);
        assert_eq!((table.redirect_worker(found), table.redirect_state(found)), (Some(513), state));
    }
    assert_eq!(table.find(&numbered(1, false).reversed()), FlowRef::NONE);
    let session = enter(&mut table, &numbered(2, false)).unwrap();
    assert_eq!(table.redirect_worker(FlowRef::new(session, Direction::Forward)), None);
    assert_eq!(table.eviction_candidate(), Some(id));
    assert!(table.remove(id));
    assert_eq!(table.find(&numbered(1, false)), FlowRef::NONE);
}

#[test]
fn a_full_table_names_a_half_open_session() {
    let mut table = Table::new(3, 0, SEED).unwrap();
    let ids: Vec<_> = (0..3).map(|n| enter(&mut table, &numbered(n, false)).unwrap()).collect();
    assert_eq!(enter(&mut table, &numbered(3, false)), Err(InsertError::Full));
    table.remove_embryonic(ids[0]);
    assert_eq!((table.eviction_candidate(), table.is_embryonic(ids[0])), (Some(ids[1]), false));
    let uid = table.uid(ids[1]);
    table.remove(ids[1]);
    assert_eq!(enter(&mut table, &numbered(3, false)), Ok(ids[1]), "the number is given out again");
    assert_ne!(table.uid(ids[1]), uid);
    assert_eq!(table.eviction_candidate(), Some(ids[2]));
    ids.iter().for_each(|&id| table.remove_embryonic(id));
    assert_eq!((table.eviction_candidate(), table.occupancy().embryonic), (None, 0));
    assert_eq!(enter(&mut table, &numbered(4, false)), Err(InsertError::Full));
}

/// Under a flood, the table evicts sessions as a queue would. A young session where an old one was spares it.
#[test]
fn the_oldest_half_open_sessions_are_evicted_first() {
    const SESSIONS: u32 = 200;
    let mut table = Table::new(SESSIONS, 0, SEED).unwrap();
    let enter_at = |table: &mut Table, n: u32| {
        let key = numbered(n, false);
        table.insert(&key, &key.reversed(), n).unwrap()
    };
    let mut ages: BTreeMap<u32, SessionId> = (0..SESSIONS).map(|n| (n, enter_at(&mut table, n))).collect();
    let evict = |table: &mut Table, ages: &mut BTreeMap<u32, SessionId>| {
        let victim = table.eviction_candidate().unwrap();
        let rank = ages.values().position(|&id| id == victim).unwrap();
        ages.retain(|_, id| *id != victim);
        table.remove(victim);
        rank
    };
    for n in SESSIONS..2 * SESSIONS {
        assert_eq!(evict(&mut table, &mut ages), 0);
        ages.insert(n, enter_at(&mut table, n));
    }
    // One in the way of the hand ends, and its number is given out again.
    let ended = *ages.values().nth(7).unwrap();
    ages.retain(|_, id| *id != ended);
    table.remove(ended);
    ages.insert(2 * SESSIONS, enter_at(&mut table, 2 * SESSIONS));
    for n in 2 * SESSIONS + 1..10 * SESSIONS {
        let rank = evict(&mut table, &mut ages);
        assert!(rank < 4, "{rank} are older");
        ages.insert(n, enter_at(&mut table, n));
    }
}

/// What few sessions have does not pass on to the next session with the number.
#[test]
fn rare_fields_go_with_their_sessions() {
    let mut table = Table::new(3, 0, SEED).unwrap();
    let settings = SessionSettings { tcp_window_check: true, ..SessionSettings::default() };
    let segment = TcpSegment { seq: 7, window: 9, flags: TcpSegment::SYN, ..TcpSegment::default() };
    let (track, _) = TrackState::open(&TrackInput::Tcp(segment), &mut [0; 2], &settings).unwrap();
    let ids = [0, 1].map(|n| enter(&mut table, &numbered(n, false)).unwrap());
    table.set_track(ids[0], &track);
    table.set_mapping(ids[0], Some(MappingId(0)));
    table.set_broker(ids[0], 254);
    assert_eq!((table.track(ids[0]), table.mapping(ids[0])), (track, Some(MappingId(0))));
    assert_eq!((table.broker(ids[0]), table.broker(ids[1])), (Some(254), None));
    table.remove(ids[0]);
    assert_eq!(enter(&mut table, &numbered(2, false)), Ok(ids[0]));
    for id in ids {
        assert_eq!((table.track(id), table.mapping(id)), (TrackState::default(), None));
        assert_eq!(table.broker(id), None);
        table.set_broker(id, 255);
        assert_eq!(table.broker(id), None, "cannot be stored");
    }
}

#[test]
fn scratchpads_are_apart_and_aligned() {
    let mut table = Table::new(4, 20, SEED).unwrap();
    let ids: Vec<_> = (0..4).map(|n| enter(&mut table, &numbered(n, false)).unwrap()).collect();
    for &id in &ids {
        assert!(table.reserve_scratch(id, 20) && !table.reserve_scratch(id, 25));
        table.scratch_mut(id).fill(id.0 as u8 + 1);
    }
    for &id in &ids {
        assert_eq!(table.scratch(id), [id.0 as u8 + 1; 24]);
        assert_eq!(table.scratch(id).as_ptr().align_offset(8), 0);
    }
    assert_eq!(table.clear_scratch(ids[2]), [0; 24]);
    assert_eq!(table.scratch(ids[3]), [4; 24]);
}

/// Scratchpads keep their bytes, whatever others reserve, and lie where the starts say.
#[test]
fn scratchpads_grow_with_what_their_sessions_need() {
    const SESSIONS: u32 = 2500;
    proptest!(|(seed in any::<u64>(), reserved in prop::collection::vec((0..SESSIONS, 0..321_usize), 1..60))| {
        let mut table = Table::new(SESSIONS, 300, seed).unwrap();
        for n in 0..SESSIONS {
            enter(&mut table, &numbered(n, false)).unwrap();
        }
        let mut written: HashMap<u32, Vec<u8>> = HashMap::new();
        for (n, (session, bytes)) in reserved.into_iter().enumerate() {
            let id = SessionId(session);
            let is_reserved = table.reserve_scratch(id, bytes);
            prop_assert_eq!(is_reserved, bytes <= 320);
            prop_assert!(table.scratch(id).len() >= bytes);
            let mut known = written.remove(&session).unwrap_or_default();
            prop_assert_eq!(&table.scratch(id)[..known.len()], &known[..]);
            known.resize(known.len().max(bytes), 0);
            known[..bytes].fill(n as u8 + 1);
            table.scratch_mut(id)[..known.len()].copy_from_slice(&known);
            written.insert(session, known);
            let (all, starts) = table.scratchpads_mut();
            for (&session, known) in &written {
                let start = starts.of(SessionId(session));
                prop_assert!(start != ScratchpadStarts::NONE || known.is_empty());
                if !known.is_empty() {
                    prop_assert_eq!(&all[start as usize * 8..][..known.len()], &known[..]);
                }
            }
        }
    });
}

/// A session takes what it needs, not what the table permits, and the next size when it needs more.
#[test]
fn scratchpads_have_the_next_size() {
    let mut table = Table::new(3000, 320, SEED).unwrap();
    let sizes = [(1, 16), (16, 16), (17, 32), (64, 64), (65, 128), (256, 256), (257, 320), (8, 320)];
    for (bytes, size) in sizes {
        assert!(table.reserve_scratch(SessionId(1500), bytes));
        assert_eq!(table.scratch(SessionId(1500)).len(), size, "{bytes}");
        assert_eq!(table.scratch(SessionId(1024)).len(), size, "the same block");
        assert_eq!(table.scratch(SessionId(1023)).len() + table.scratch(SessionId(2048)).len(), 0);
        if size >= 64 {
            assert_eq!(table.scratch(SessionId(1500)).as_ptr().align_offset(64), 0);
        }
    }
}

/// Bytes of sessions that have ended are not worth a copy.
#[test]
fn only_scratchpads_of_live_sessions_move() {
    let mut table = Table::new(4, 64, SEED).unwrap();
    let ids: Vec<_> = (0..3).map(|n| enter(&mut table, &numbered(n, false)).unwrap()).collect();
    for &id in &ids {
        assert!(table.reserve_scratch(id, 8));
        table.scratch_mut(id).fill(7);
    }
    table.remove(ids[1]);
    assert!(table.reserve_scratch(ids[0], 64));
    assert_eq!([0, 1, 2].map(|n| table.scratch(ids[n])[15]), [7, 0, 7]);
}

/// The memory limit: 256 bytes per session, with both directions and the index.
#[test]
fn a_session_takes_at_most_256_bytes() {
    const SESSIONS: u32 = 1_000_000;
    let table = Table::new(SESSIONS, 24, SEED).unwrap();
    assert!(table.bytes() <= 256 * SESSIONS as usize, "{} bytes each", table.bytes() / SESSIONS as usize);
}

#[test]
fn a_full_table_is_hardly_displaced() {
    let mut table = Table::new(50_000, 0, SEED).unwrap();
    for n in 0..50_000 {
        enter(&mut table, &numbered(n, n % 3 == 0)).unwrap();
    }
    let displaced = table.occupancy().displaced;
    assert!(displaced < 2_000, "{displaced} of 100,000 keys");
    let ids: Vec<_> =
        std::iter::successors(table.next_session(0), |id| table.next_session(id.0 + 1)).collect();
    assert_eq!(ids.len(), 50_000);
    ids.into_iter().for_each(|id| assert!(table.remove(id)));
    assert_eq!(table.occupancy(), TableOccupancy { capacity: 50_000, ..TableOccupancy::default() });
}

#[test]
fn timers_go_with_their_sessions() {
    let mut table = Table::new(3, 0, SEED).unwrap();
    let now = u32::MAX - 1000;
    let ids: Vec<_> = (0..3)
        .map(|n| table.insert(&numbered(n, false), &numbered(n, false).reversed(), now).unwrap())
        .collect();
    for (&id, ahead) in ids.iter().zip([500, 700, 90_000]) {
        table.arm_timer(id, now.wrapping_add(ahead));
    }
    table.arm_timer(ids[2], now.wrapping_add(2_000));
    table.remove(ids[1]);
    assert_eq!(enter(&mut table, &numbered(7, false)), Ok(ids[1]), "its number, without its timer");
    assert_eq!(table.next_expired(now.wrapping_add(400), &mut 10), None);
    assert_eq!(table.next_expired(now.wrapping_add(1_000), &mut 10), Some(ids[0]));
    table.arm_timer(ids[0], now.wrapping_add(3_000));
    assert_eq!(table.next_expired(now.wrapping_add(1_000), &mut 10), None);
    assert_eq!(table.next_expired(now.wrapping_add(2_500), &mut 10), Some(ids[2]));
    assert_eq!((table.occupancy().timers, table.deadline(ids[0])), (1, now.wrapping_add(3_000)));
    assert_eq!(table.next_expired(now.wrapping_add(5_000), &mut 0), None, "no budget");
    assert_eq!(table.next_expired(now.wrapping_add(5_000), &mut 10), Some(ids[0]));
}

#[test]
fn seeds_make_different_tables() {
    let tables = [1, 2].map(Hasher::new);
    let same = (0..10_000).filter(|&n| {
        let [a, b] = [0, 1].map(|i| tables[i].hash(&numbered(n, false).pack()).one_of(1000));
        a == b
    });
    assert!(same.count() < 50);
}

/// A flip of any bit of a key changes bucket and tag as a random function would.
#[test]
fn every_bit_of_a_key_counts() {
    let hasher = Hasher::new(SEED);
    for ip6 in [false, true] {
        let (mut buckets, mut tags, mut n) = (0, 0, 0);
        for base in (0..200).map(|i| numbered(i * 977, ip6)) {
            for bit in (0..36 * 8).filter(|bit| ip6 || !(32..128).contains(&(bit % 128)) || *bit >= 256) {
                let mut other: [u8; 40] = bytemuck::cast(base);
                other[bit / 8] ^= 1 << (bit % 8);
                let [a, b] = [base, bytemuck::cast(other)].map(|key: Key| hasher.hash(&key.pack()));
                buckets += u32::from(a.one_of(256) == b.one_of(256));
                tags += u32::from(a.tag() == b.tag());
                n += 1;
            }
        }
        assert!((n / 512..n / 128).contains(&buckets), "{buckets} of {n}");
        assert!(tags < 10, "{tags} of {n}");
    }
}

/// Operations on the table and on a map.
#[derive(Clone, Debug)]
enum Step {
    Insert(u32, bool, u32),
    Redirect(u32, u16),
    Remove(usize),
    Settle(usize),
    Find(u32, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let n = 0..40u32;
    prop_oneof![
        4 => (n.clone(), any::<bool>(), n.clone()).prop_map(|(n, ip6, m)| Step::Insert(n, ip6, m)),
        1 => (n.clone(), any::<u16>()).prop_map(|(n, worker)| Step::Redirect(n, worker)),
        2 => any::<usize>().prop_map(Step::Remove),
        1 => any::<usize>().prop_map(Step::Settle),
        3 => (n, any::<bool>()).prop_map(|(n, ip6)| Step::Find(n, ip6)),
    ]
}

#[derive(Default)]
struct Model {
    keys: HashMap<Key, FlowRef>,
    /// In order of age: the number, and whether the session is half open.
    sessions: BTreeMap<u32, (SessionId, bool)>,
    clock: u32,
}

impl Model {
    fn nth(&self, n: usize) -> Option<(u32, SessionId)> {
        let at = n.checked_rem(self.sessions.len())?;
        self.sessions.iter().nth(at).map(|(&age, &(id, _))| (age, id))
    }

    fn enter(&mut self, keys: &[Key], capacity: u32, got: Result<SessionId, InsertError>) {
        self.clock += 1;
        if let Some(&found) = keys.iter().find_map(|key| self.keys.get(key)) {
            return assert_eq!(got, Err(InsertError::Taken(found)));
        }
        if self.sessions.len() == capacity as usize {
            return assert_eq!(got, Err(InsertError::Full));
        }
        let id = got.unwrap();
        assert!(self.sessions.values().all(|&(other, _)| other != id));
        for (&key, direction) in keys.iter().zip([Direction::Forward, Direction::Reverse]) {
            self.keys.entry(key).or_insert(FlowRef::new(id, direction));
        }
        self.sessions.insert(self.clock, (id, true));
    }
}

proptest! {
    #[test]
    fn agrees_with_a_map(steps in prop::collection::vec(step(), 1..200), seed: u64, capacity in 1..24u32) {
        let mut table = Table::new(capacity, 8, seed).unwrap();
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Insert(n, ip6, m) => {
                    let forward = numbered(n, ip6);
                    let reverse = Key { source_port: [3, m as u8], ..forward.reversed() };
                    model.enter(&[forward, reverse], capacity, table.insert(&forward, &reverse, 0));
                }
                Step::Redirect(n, worker) => {
                    let key = numbered(n, false);
                    let inserted = table.insert_redirect(&key, (worker, RedirectState::Open), 0);
                    model.enter(&[key], capacity, inserted);
                }
                Step::Remove(n) => if let Some((age, id)) = model.nth(n) {
                    prop_assert!(table.remove(id));
                    model.keys.retain(|_, found| found.session() != id);
                    model.sessions.remove(&age);
                },
                Step::Settle(n) => if let Some((age, id)) = model.nth(n) {
                    table.remove_embryonic(id);
                    model.sessions.insert(age, (id, false));
                },
                Step::Find(n, ip6) => {
                    let key = numbered(n, ip6);
                    prop_assert_eq!(table.find(&key), model.keys.get(&key).copied().unwrap_or(FlowRef::NONE));
                }
            }
            prop_assert_eq!(table.len() as usize, model.sessions.len());
            let half_open = |id| model.sessions.values().any(|&session| session == (id, true));
            match table.eviction_candidate() {
                Some(id) => prop_assert!(half_open(id)),
                None => prop_assert!(!model.sessions.values().any(|(_, half_open)| *half_open)),
            }
        }
        for (key, &found) in &model.keys {
            prop_assert_eq!((table.find(key), table.key(found)), (found, *key));
        }
        let ids: Vec<_> = std::iter::successors(table.next_session(0), |id| table.next_session(id.0 + 1)).collect();
        let mut expected: Vec<_> = model.sessions.values().map(|&(id, _)| id).collect();
        expected.sort();
        prop_assert_eq!(ids, expected);
    }
}
