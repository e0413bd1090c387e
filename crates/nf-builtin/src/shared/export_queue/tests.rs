//! Tests of the parent module.

use std::sync::mpsc;

use super::*;

#[test]
fn clock_offsets_use_the_fastest_reading() {
    let mut ahead = Ahead::default();
    // The thread began 500 ms before the worker, whose clock wraps meanwhile; items stay 90, 3 and 70 ms.
    let base = u32::MAX - 100;
    for (put, stay) in [(0, 90), (200, 3), (400, 70)] {
        ahead.learn(base.wrapping_add(put + stay + 500), base.wrapping_add(put));
    }
    assert_eq!(ahead.0, Some(503));
    ahead.learn(700_000, 2);
    assert_eq!(ahead.0, Some(699_998), "the worker's clock began anew");
    ahead.learn(700_000, 600_000);
    assert_eq!(ahead.0, Some(100_000), "and it was another worker's before");
}

#[test]
fn times_of_day() {
    let day = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let times = ClockReading::at(day, 5);
    assert_eq!(times.of(5), day);
    assert_eq!(times.of(5u32.wrapping_sub(1500)), day - Duration::from_millis(1500));
    assert_eq!(times.of(25), day + Duration::from_millis(20));
    assert_eq!(
        ClockReading::at(SystemTime::UNIX_EPOCH, 0).of(1),
        SystemTime::UNIX_EPOCH + Duration::from_millis(1)
    );
}

#[test]
fn records_that_do_not_fit_are_counted() {
    let outbox = ExportQueue::with_room(2, 3);
    (0..5).for_each(|n| outbox.put(0, n, n));
    outbox.put(1, 0, 100);
    outbox.put(7, 0, 0);
    assert_eq!(outbox.lost(), 2);
    let mut ahead = [Ahead::default(); 2];
    let items: Vec<_> = outbox.take(&mut ahead, 10).into_iter().map(|(_, n)| n).collect();
    assert_eq!(items, [0, 1, 2, 100]);
    assert!(outbox.take(&mut ahead, 10).is_empty());
    outbox.record(4, Ok(()));
    outbox.record(2, Err(ExportError::NoAddress { collector: "x".into() }));
    let report = [("written", "4"), ("lost", "2"), ("failed", "2"), ("trouble", "x has no address")];
    assert_eq!(outbox.report(), report.map(|(name, value)| (name.to_string(), value.to_string())));
    outbox.record(0, Ok(()));
    assert_eq!(outbox.report().len(), 3, "a fault that has ended is not reported");
}

#[test]
fn stopping_the_queue_leaves_no_records() {
    let (outbox, stop) = (ExportQueue::new(1), StopSignal::default());
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        outbox.put(0, 0, 1);
        scope.spawn(|| outbox.serve(&stop, move |items| sender.send(items.len()).unwrap()));
        assert_eq!(receiver.recv(), Ok(1));
        (0..10).for_each(|n| outbox.put(0, n, 1));
        stop.stop();
    });
    assert_eq!(receiver.iter().sum::<usize>(), 10);
}
