use mmb_policy::PortDependence;

use super::*;
use crate::testing::FakeKernel;

fn config(kernel: &Arc<FakeKernel>, is_learning: bool) -> Option<Arc<FastPathConfig>> {
    Some(Arc::new(FastPathConfig {
        kernel: kernel.clone(),
        is_learning,
        needs_sessions: false,
        is_plain: true,
        pairs: None,
        ports: Box::new([]),
    }))
}

#[test]
fn granularity_follows_rules_and_routes() {
    let (kernel, state) = (Arc::new(FakeKernel::default()), FastPathState::default());
    for (is_plain, pairs, one, several) in [
        (true, false, FastGranularity::Destination, FastGranularity::Flow),
        (true, true, FastGranularity::Destination, FastGranularity::Flow),
        (false, true, FastGranularity::Pair, FastGranularity::Flow),
        (false, false, FastGranularity::Flow, FastGranularity::Flow),
    ] {
        let pairs = pairs.then(PortDependence::default);
        let config = config(&kernel, true).map(|config| FastPathConfig {
            is_plain,
            pairs,
            ..FastPathConfig::clone(&config)
        });
        state.publish(config.map(Arc::new), 1);
        for (n, wanted) in [(1, one), (2, several), (3, one)] {
            state.publish_routes(n, || n == 2);
            assert_eq!((kernel.granularity(), granularity(state.in_force())), (wanted, wanted));
        }
    }
}

#[test]
fn every_change_starts_a_new_generation() {
    let (kernel, state) = (Arc::new(FakeKernel::default()), FastPathState::default());
    assert_eq!(state.in_force(), 0);
    let mut seen = vec![0];
    let mut next = |n: u64, r: u64, is_plain: bool| {
        let granularity = if is_plain { FastGranularity::Destination } else { FastGranularity::Flow };
        let expected = state.generation(n, r, granularity);
        assert_eq!((kernel.generation(), state.in_force()), (expected, expected));
        assert!(!seen.contains(&state.in_force()));
        seen.push(state.in_force());
    };
    state.publish(config(&kernel, true), 1);
    next(1, 0, true);
    state.publish_routes(1, || false);
    next(1, 1, true);
    // Numbers of routes may be published in any order.
    state.publish_routes(3, || false);
    state.publish_routes(2, || false);
    next(1, 3, true);
    assert_eq!(kernel.granularity(), FastGranularity::Destination);
    state.publish_routes(4, || true);
    next(1, 4, false);
    assert_eq!(kernel.granularity(), FastGranularity::Flow);
    state.publish(config(&kernel, true), 2);
    next(2, 4, false);
    state.ports_changed();
    next(2, 4, false);
    assert!(state.generation(u64::MAX, u64::MAX, FastGranularity::Pair) < 1 << 62);
}

#[test]
fn no_generation_is_in_force_while_nothing_is_learned() {
    let (kernel, other, state) =
        (Arc::new(FakeKernel::default()), Arc::new(FakeKernel::default()), FastPathState::default());
    state.publish(config(&kernel, true), 1);
    assert!(state.is_learning());
    state.publish(config(&kernel, false), 2);
    assert_eq!((kernel.generation(), state.in_force()), (0, 0));
    state.publish_routes(1, || false);
    assert_eq!((kernel.generation(), state.is_learning()), (0, false));
    state.publish(config(&kernel, true), 3);
    state.publish(config(&other, true), 4);
    assert_eq!((kernel.generation(), other.generation()), (0, state.in_force()));
    state.publish(None, 5);
    assert_eq!((other.generation(), state.in_force()), (0, 0));
}
