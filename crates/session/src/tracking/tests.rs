use super::*;
use crate::SessionConfig;
use crate::testing::udp_key;
use mmb_flow::Direction;
use mmb_flow::{EditOffsets, Mangle, TcpSegment};
use mmb_nf::SettledEdits;
use mmb_packet::Kind;

/// A table with one session whose timer fires at 1000.
fn setup() -> (Table, ChainState, SessionId) {
    let config = SessionConfig { sessions: 8, worker: 0, workers: 1, seed: 1, scratchpad: 0 };
    let chains = ChainState::new(&config, 8).expect("memory");
    let mut table = Table::new(8, 0, 1).expect("memory");
    let (_, hashed) = table.find_with_hash(&udp_key());
    let id = table.open(&hashed, None, 0, 1000, true).expect("room");
    (table, chains, id)
}

#[test]
fn acknowledgements_are_stored_by_direction() {
    let (mut table, _, id) = setup();
    set_acks(&mut table, id, [7, 9]);
    assert_eq!(acks(&table, id), [7, 9]);
    assert_eq!(table.flow(FlowRef::new(id, Direction::Reverse)).ack, 9);
}

/// A timer only comes forward: a later deadline is computed when it fires.
#[test]
fn an_outcome_settles_flows_and_brings_the_timer_forward() {
    let (mut table, _, id) = setup();
    let is_settled = |table: &Table| {
        DIRECTIONS.map(|direction| table.flow(FlowRef::new(id, direction)).flags.contains(FlowFlags::SETTLED))
    };
    let outcome = TrackOutcome { timeout: 5000, settled: [true; 2], ..TrackOutcome::default() };
    apply(&mut table, 10, id, &outcome);
    assert_eq!((is_settled(&table), table.deadline(id)), ([true; 2], 1000));
    assert!(!table.is_embryonic(id));
    apply(&mut table, 10, id, &TrackOutcome { timeout: 300, settled: [false, true], ..outcome });
    assert_eq!((is_settled(&table), table.deadline(id)), ([false, true], 310));
    // Packets that come back to NAT are never settled.
    table.session_mut(id).flags |= SessionFlags::LOOP_REVERSE;
    apply(&mut table, 10, id, &outcome);
    assert_eq!(is_settled(&table), [true, false]);
}

/// Packets in chains are not translated while no session has translated numbers.
#[test]
fn sessions_with_translated_numbers_are_counted() {
    let (mut table, mut chains, id) = setup();
    chains.records.set_mangle(&mut table, id, (Mangle::default(), None));
    chains.records.release(table.session(id).flags);
    assert!(!chains.records.translates_numbers());
    table.session_mut(id).flags -= SessionFlags::MANGLE;
    let edits = SettledEdits { offsets: EditOffsets([3, 0]), ..SettledEdits::default() };
    for is_edited in [true, false] {
        match is_edited {
            true => chains.records.add_edits(&mut table, id, edits),
            false => assert!(chains.records.take_edits(&mut table, id).is_some()),
        }
        assert_eq!(chains.records.translates_numbers(), is_edited);
    }
}

/// Replies acknowledge translated numbers; the tracker knows those of the originator.
#[test]
fn numbers_of_replies_are_those_of_the_originator() {
    let (mut table, mut chains, id) = setup();
    let mangle = Mangle { sequence: 100, acknowledgment: 30, ..Mangle::default() };
    assert!(!chains.records.translates_numbers());
    chains.records.set_mangle(&mut table, id, (mangle, None));
    chains.records.set_mangle(&mut table, id, (mangle, None));
    assert!(chains.records.translates_numbers());
    let mut head = vec![0; 54];
    head[14] = 0x45;
    head[38..42].copy_from_slice(&5000_u32.to_be_bytes());
    head[42..46].copy_from_slice(&1100_u32.to_be_bytes());
    (head[46], head[47]) = (0x50, TcpSegment::ACK);
    let meta =
        Meta { kind: Kind(Kind::IP4 | Kind::TCP), l3_off: 14, l4_off: 34, proto: 6, ..Meta::default() };
    let numbers = |direction| match input(&table, &chains, FlowRef::new(id, direction), &head, &meta) {
        TrackInput::Tcp(segment) => (segment.seq, segment.ack),
        other => panic!("{other:?}"),
    };
    assert_eq!(DIRECTIONS.map(numbers), [(5000, 1100), (4970, 1000)]);
}
