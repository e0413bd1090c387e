use mmb_policy::NumberSet;

use super::*;
use crate::testing::udp_key;

fn chooser() -> ValueChooser {
    ValueChooser::new(&SessionConfig { sessions: 1, worker: 0, workers: 1, seed: 7, scratchpad: 0 })
}

fn choice(first: u128, last: u128, random: bool) -> Choice {
    Choice { values: NumberSet::new(vec![(first, last)]).expect("a range"), random }
}

fn segment(seq: u32, flags: u8) -> TrackInput {
    TrackInput::Tcp(TcpSegment { seq, flags, ..TcpSegment::default() })
}

/// Sequence numbers are replaced from the SYN on: a connection that is picked up later keeps its numbers.
#[test]
fn sequence_numbers_are_chosen_for_a_syn() {
    let sequence = choice(5000, 5000, false);
    let plan = TranslationPlan { sequence: Some(&sequence), ..TranslationPlan::default() };
    let choose = |input: TrackInput| chooser().choose_numbers(&[0x45; 20], &udp_key(), &plan, &input, 0);
    let (mangle, new_isn) = choose(segment(1000, TcpSegment::SYN)).expect("numbers");
    assert_eq!((mangle.sequence, new_isn), (4000, None));
    assert_eq!(choose(segment(1000, TcpSegment::ACK)), None);
    assert_eq!(choose(segment(1000, TcpSegment::SYN | TcpSegment::ACK)), None);
    assert_eq!(choose(TrackInput::Udp), None);
}

/// The number that a function has sent to the originator overrides the rule's.
#[test]
fn a_number_that_the_originator_knows_is_kept() {
    let acknowledgment = choice(1, 9, true);
    let plan = TranslationPlan {
        acknowledgment: Some(&acknowledgment),
        proxied_isn: Some(77),
        ..TranslationPlan::default()
    };
    let numbers = chooser().choose_numbers(&[], &udp_key(), &plan, &segment(0, TcpSegment::SYN), 0);
    assert_eq!(numbers.and_then(|(_, new_isn)| new_isn), Some(77));
}

/// `map` gives all packets of a session one identification, `shuffle` adds an offset. A flow label is
/// replaced where it was.
#[test]
fn identifications_and_labels_are_chosen() {
    let (fixed, label) = (choice(0x1234, 0x1234, false), choice(0xabcde, 0xabcde, false));
    let plan = TranslationPlan { ip_id: Some(&fixed), label: Some(&label), ..TranslationPlan::default() };
    let header = [0x60, 0x01, 0x23, 0x45, 0, 0xff];
    let (mangle, _) =
        chooser().choose_numbers(&header, &udp_key(), &plan, &TrackInput::Udp, 0).expect("numbers");
    assert_eq!((mangle.ip_id, mangle.fixed_id), (0x1234, 1));
    assert_eq!((mangle.old_label, mangle.new_label), (0x12345, 0xabcde));
    let random = choice(0x1234, 0x1234, true);
    let plan = TranslationPlan { ip_id: Some(&random), ..TranslationPlan::default() };
    let (mangle, _) =
        chooser().choose_numbers(&header, &udp_key(), &plan, &TrackInput::Udp, 0).expect("numbers");
    assert_eq!((mangle.ip_id, mangle.fixed_id), (0x1234 - 0xff, 0));
}

/// All workers choose the same by the key, and every choice is one of the values.
#[test]
fn choices_by_the_key_are_the_same_at_all_workers() {
    let values = choice(100, 199, false);
    let config = SessionConfig { sessions: 1, worker: 1, workers: 2, seed: 7, scratchpad: 0 };
    let mut other = ValueChooser::new(&config);
    for port in 0..1000_u16 {
        let key = Key { source_port: port.to_be_bytes(), ..udp_key() };
        let value = chooser().choose_value(&values, &key);
        assert_eq!(value, other.choose_value(&values, &key));
        assert!(value.is_some_and(|value| (100..200).contains(&value)));
    }
}
