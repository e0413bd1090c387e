use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn ledger(buffers: u32) -> Ledger {
    Ledger::new(Arc::new(Pool::new(buffers, 1514).unwrap()))
}

#[test]
fn pools_that_cannot_be() {
    assert!(Pool::new(0, 1514).is_none());
    assert_eq!(Pool::new(8, 1514).unwrap().stride() % 64, 0);
    let large = Pool::new(1 << 17, u16::MAX).unwrap();
    assert!(
        large.bytes() > u32::MAX as usize,
        "buffers have numbers, since offsets would need more than 32 bits"
    );
}

#[test]
fn a_buffer_comes_back_once() {
    let mut ledger = ledger(4);
    let (buffer, descriptor) = ledger.issue(60, 7, 1).unwrap();
    assert_eq!((ledger.in_flight(), ledger.len_of(buffer)), (1, 60));
    assert_eq!(ledger.accept(&descriptor), Ok(buffer));
    assert_eq!(ledger.accept(&descriptor), Err(Rejected::Owner));
    ledger.free(buffer);
    assert_eq!(ledger.accept(&descriptor), Err(Rejected::Owner));
    ledger.free(buffer);
    assert_eq!(ledger.pool().free() + ledger.cached(), 4, "it is free once");
}

#[test]
fn buffers_of_a_vector_are_used_again() {
    let mut ledger = ledger(4096);
    let mut pass = || {
        let issued: Vec<_> = (0..256).map(|_| ledger.issue(60, 7, 1).unwrap()).collect();
        for (buffer, descriptor) in &issued {
            assert_eq!(ledger.accept(descriptor), Ok(*buffer));
            ledger.free(*buffer);
        }
        let mut buffers: Vec<_> = issued.into_iter().map(|(buffer, _)| buffer).collect();
        buffers.sort_unstable();
        buffers
    };
    assert_eq!(pass(), pass());
}

#[test]
fn a_replayed_descriptor_is_of_an_earlier_loan() {
    let mut ledger = ledger(1);
    let (buffer, old) = ledger.issue(60, 7, 1).unwrap();
    ledger.accept(&old).unwrap();
    ledger.free(buffer);
    let (_, new) = ledger.issue(60, 7, 1).unwrap();
    assert_eq!(ledger.accept(&old), Err(Rejected::Generation));
    assert_eq!(ledger.accept(&new), Ok(buffer));
}

#[test]
fn each_field_is_compared() {
    let mut ledger = ledger(4);
    let (_, true_one) = ledger.issue(60, 7, 1).unwrap();
    let other = (true_one.buffer + 1) % 4;
    let forged = [
        (Descriptor { buffer: 4, ..true_one }, Rejected::Number),
        (Descriptor { buffer: u32::MAX, ..true_one }, Rejected::Number),
        (Descriptor { buffer: other, ..true_one }, Rejected::Owner),
        (Descriptor { generation: 0, ..true_one }, Rejected::Generation),
        (Descriptor { len: 61, ..true_one }, Rejected::Length),
        (Descriptor { session: 8, ..true_one }, Rejected::Length),
    ];
    for (descriptor, reason) in forged {
        assert_eq!(ledger.accept(&descriptor), Err(reason), "{descriptor:?}");
    }
    assert!(ledger.accept(&Descriptor { tag: 9, ..true_one }).is_ok(), "the verdict is the process's");
}

#[test]
fn buffers_of_others_are_refused() {
    let pool = Arc::new(Pool::new(64, 1514).unwrap());
    let (mut mine, mut theirs) = (Ledger::new(pool.clone()), Ledger::new(pool.clone()));
    let (_, descriptor) = theirs.issue(60, 7, 1).unwrap();
    assert_eq!(mine.accept(&descriptor), Err(Rejected::Owner));
    drop(mine);
    assert!(theirs.accept(&descriptor).is_ok());
    drop(theirs);
    assert_eq!(pool.free(), 64);
}

#[test]
fn long_frames_and_empty_pools_are_refused() {
    let mut ledger = ledger(2);
    assert!(ledger.issue(1515, 0, 0).is_none());
    assert!(ledger.issue(1514, 0, 0).is_some() && ledger.issue(0, 0, 0).is_some());
    assert!(ledger.issue(1, 0, 0).is_none());
}

#[test]
fn buffers_of_a_process_that_is_gone_are_reclaimed() {
    let mut ledger = ledger(8);
    let in_flight: Vec<_> = (0..4).map(|session| ledger.issue(60, session, 0).unwrap()).collect();
    ledger.accept(&in_flight[1].1).unwrap();
    let mut reclaimed: Vec<_> = ledger.reclaim().collect();
    reclaimed.sort_unstable();
    let mut expected = vec![in_flight[0].0, in_flight[2].0, in_flight[3].0];
    expected.sort_unstable();
    assert_eq!(reclaimed, expected);
    assert_eq!((ledger.in_flight(), ledger.accept(&in_flight[0].1)), (0, Err(Rejected::Owner)));
    (0..8).for_each(|buffer| ledger.free(buffer));
    assert_eq!(ledger.pool().free() + ledger.cached(), 8);
}

proptest! {
    /// No buffer is lost, and none has two owners. The oracle is a table of what is in flight and what is
    /// returned.
    #[test]
    fn no_buffer_is_lost(steps in prop::collection::vec((0_u8..4, any::<prop::sample::Index>()), 0..300)) {
        let pool = Arc::new(Pool::new(16, 100).unwrap());
        let mut ledger = Ledger::new(pool.clone());
        let (mut in_flight, mut back): (Vec<(u32, Descriptor)>, Vec<u32>) = (vec![], vec![]);
        let mut generations = HashMap::new();
        for (step, index) in steps {
            match step {
                0 => match ledger.issue(index.index(101), step.into(), 0) {
                    Some((buffer, descriptor)) => {
                        prop_assert!(in_flight.iter().all(|one| one.0 != buffer) && !back.contains(&buffer));
                        prop_assert!(generations.insert(buffer, descriptor.generation) < Some(descriptor.generation));
                        in_flight.push((buffer, descriptor));
                    }
                    None => prop_assert_eq!(in_flight.len() + back.len(), 16),
                },
                1 if !in_flight.is_empty() => {
                    let (buffer, descriptor) = in_flight.swap_remove(index.index(in_flight.len()));
                    prop_assert_eq!(ledger.accept(&descriptor), Ok(buffer));
                    prop_assert!(ledger.accept(&descriptor).is_err());
                    back.push(buffer);
                }
                2 if !back.is_empty() => ledger.free(back.swap_remove(index.index(back.len()))),
                3 if index.index(8) == 0 => back.extend(ledger.reclaim().inspect(|buffer| {
                    in_flight.retain(|one| one.0 != *buffer);
                })),
                _ => {}
            }
            prop_assert_eq!(ledger.in_flight() as usize, in_flight.len());
            prop_assert_eq!(pool.free() + ledger.cached() + in_flight.len() + back.len(), 16);
        }
        drop(ledger);
        prop_assert_eq!(pool.free(), 16);
    }
}
