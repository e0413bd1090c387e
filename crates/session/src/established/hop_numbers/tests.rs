use mmb_flow::{Direction, FlowRef, Key, Table};
use mmb_packet::Kind;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// A flow gets a next hop.
    Set(usize, u16),
    /// Routes change.
    Renew,
    /// Routes change, and each generation has used this many next hops, so often.
    RenewOften(u16, u16),
    /// Time for the worker's other work.
    Sweep,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..600usize, 1..40u16).prop_map(|(flow, hop)| Step::Set(flow, hop)),
        2 => Just(Step::Renew),
        1 => (1..200u16, 1..200u16).prop_map(|(hops, times)| Step::RenewOften(hops, times)),
        2 => Just(Step::Sweep),
    ]
}

/// A table with 300 sessions of IPv6 and 300 of IPv4, in turn.
fn table() -> Table {
    let mut table = Table::new(600, 0, 1).expect("memory");
    for n in 0..600u16 {
        let kind = if n % 2 == 0 { Kind::IP6 } else { Kind::IP4 } | Kind::TCP;
        let mut source = [0; 16];
        source[0] = 7;
        let key = Key { source, source_port: n.to_be_bytes(), kind, proto: 6, ..Key::default() };
        table.insert(&key, &key.reversed(), 0).expect("room");
    }
    table
}

proptest! {
    /// A flow's number is that of the next hop that it got in the current generation, or of none.
    #[test]
    fn a_number_stands_for_a_next_hop_of_the_current_generation(
        steps in prop::collection::vec(step(), 1..200)
    ) {
        let (mut table, mut numbers) = (table(), HopNumbers::new());
        let four = FlowRef(3);
        table.flow_mut(four).set_next_hop(77);
        let mut expected = [0u16; 600];
        for step in steps {
            match step {
                Step::Set(at, hop) => {
                    // Every second session is IPv6.
                    let flow = table.flow_mut(FlowRef((at as u32 / 2 * 4) | (at as u32 & 1)));
                    match numbers.number_of(hop) {
                        Some(number) => {
                            flow.set_next_hop(number);
                            expected[at] = hop;
                        }
                        None => prop_assert!(!numbers.has_room()),
                    }
                }
                Step::Renew => {
                    numbers.renew();
                    expected = [0; 600];
                }
                Step::RenewOften(hops, times) => {
                    for _ in 0..times {
                        (1..=hops).for_each(|hop| { numbers.number_of(hop); });
                        numbers.renew();
                    }
                    expected = [0; 600];
                }
                Step::Sweep => numbers.sweep(table.flows_mut()),
            }
            for (at, hop) in expected.iter().enumerate() {
                let flow = table.flow(FlowRef((at as u32 / 2 * 4) | (at as u32 & 1)));
                prop_assert!(!flow.is_ip4());
                prop_assert_eq!(numbers.get(flow.next_hop()), *hop);
            }
        }
        prop_assert_eq!(table.flow(four).next_hop(), 77, "a flow of IPv4 has its own");
    }
}

#[test]
fn numbers_begin_again_when_all_flows_have_been_cleared() {
    let (mut table, mut numbers) = (table(), HopNumbers::new());
    let flow = FlowRef::new(mmb_flow::SessionId(0), Direction::Forward);
    table.flow_mut(flow).set_next_hop(numbers.number_of(7).unwrap());
    let mut generations = 0;
    while numbers.has_room() {
        (1..=MOST_HOPS).for_each(|hop| assert!(numbers.number_of(hop).is_some() || hop == MOST_HOPS));
        assert_eq!(numbers.number_of(MOST_HOPS + 1), None);
        numbers.renew();
        generations += 1;
    }
    assert_eq!(generations, u16::MAX / MOST_HOPS);
    assert_eq!(numbers.number_of(1), None, "all numbers have been given out");
    let mut ticks = 0;
    while !numbers.has_room() {
        numbers.sweep(table.flows_mut());
        ticks += 1;
    }
    assert_eq!(ticks, table.flows_mut().len().div_ceil(SWEEP));
    assert_eq!((table.flow(flow).next_hop(), numbers.number_of(9)), (0, Some(1)));
}
