//! Tests of the parent module.

use proptest::prelude::*;

use super::*;

const NO_LIMIT: usize = usize::MAX;

/// The chain of figures 2 and 3: the manager's byte, then a flow monitor (24 bytes) for one class of
/// sessions and an HTTP filter (36 bytes) for another, then a load balancer for both. Section II-C:
/// offset 1 for monitor and filter, 37 for the balancer. In the compact variant the balancer comes first.
#[test]
fn figure_3() {
    let mut graph = Graph::default();
    let [manager, monitor, filter, balancer] = [1, 24, 36, 4].map(|size| graph.add(size, 1));
    for (from, to) in [(manager, monitor), (manager, filter), (monitor, balancer), (filter, balancer)] {
        graph.edge(from, to);
    }
    let layout = graph.layout(Order::Maximal, NO_LIMIT).unwrap();
    assert_eq!([manager, monitor, filter, balancer].map(|n| layout.place(n).start), [0, 1, 1, 37]);
    assert_eq!(layout.bytes(), 41);
    let layout = graph.layout(Order::Compact, NO_LIMIT).unwrap();
    assert_eq!([manager, monitor, filter, balancer].map(|n| layout.place(n).start), [0, 5, 5, 1]);
    assert_eq!(layout.bytes(), 41);
    assert_eq!(graph.layout(Order::Maximal, 40), Err(LayoutError::TooLarge(41)));
}

#[test]
fn sessions_on_several_paths_need_room_for_all() {
    let mut graph = Graph::default();
    let [split, a, b, c] = [0, 8, 16, 4].map(|size| graph.add(size, 4));
    graph.edge(split, a);
    graph.edge(split, b);
    graph.edge(b, c);
    let apart = graph.layout(Order::Maximal, NO_LIMIT).unwrap();
    assert_eq!((apart.place(a), apart.place(b), apart.bytes()), (0..8, 0..16, 20));
    graph.diverge(split);
    let together = graph.layout(Order::Maximal, NO_LIMIT).unwrap();
    assert_eq!((together.place(a), together.place(b), together.place(c)), (0..8, 8..24, 24..28));
    let mut graph = Graph::default();
    let [a, b] = [8, 16].map(|size| graph.add(size, 4));
    assert_eq!(graph.layout(Order::Compact, NO_LIMIT).unwrap().bytes(), 16);
    graph.meet(b, a);
    assert_eq!(graph.layout(Order::Compact, NO_LIMIT).unwrap().bytes(), 24);
}

#[test]
fn cycles_are_refused() {
    let mut graph = Graph::default();
    let [a, b] = [8, 16].map(|size| graph.add(size, 4));
    graph.edge(a, b);
    graph.edge(b, a);
    assert_eq!(graph.layout(Order::Maximal, NO_LIMIT), Err(LayoutError::Cycle));
}

#[derive(Clone, Debug)]
struct Shape {
    users: Vec<(usize, u32, bool)>,
    edges: Vec<(usize, usize)>,
    meetings: Vec<(usize, usize)>,
}

/// Edges lead from lower to higher numbers.
fn shape() -> impl Strategy<Value = Shape> {
    (2..10usize).prop_flat_map(|n| {
        let user = (0..40usize, 0..5u32, prop::bool::weighted(0.2));
        let pair = (0..n, 0..n);
        (
            prop::collection::vec(user, n),
            prop::collection::vec(pair.clone(), 0..2 * n),
            prop::collection::vec(pair, 0..3),
        )
            .prop_map(|(users, edges, meetings)| {
                let edges = edges.into_iter().map(|(a, b)| (a.min(b), a.max(b))).filter(|(a, b)| a != b);
                let meetings = meetings.into_iter().filter(|(a, b)| a != b).collect();
                Shape { users, edges: edges.collect(), meetings }
            })
    })
}

fn build(shape: &Shape) -> (Graph, Vec<Node>) {
    let mut graph = Graph::default();
    let nodes: Vec<_> = shape.users.iter().map(|&(size, align, _)| graph.add(size, 1 << align)).collect();
    shape.edges.iter().for_each(|&(a, b)| graph.edge(nodes[a], nodes[b]));
    shape.meetings.iter().for_each(|&(a, b)| graph.meet(nodes[a], nodes[b]));
    let diverging = shape.users.iter().zip(&nodes).filter(|(user, _)| user.2);
    diverging.for_each(|(_, &node)| graph.diverge(node));
    (graph, nodes)
}

/// All sets of users that one session may see from `node` on: one of its edges, or all of them.
fn sessions(shape: &Shape, node: usize) -> Vec<Vec<usize>> {
    let edges: std::collections::BTreeSet<_> =
        shape.edges.iter().filter(|&&(a, _)| a == node).map(|&(_, b)| b).collect();
    let below: Vec<_> = edges.into_iter().map(|next| sessions(shape, next)).collect();
    let mut all = if !shape.users[node].2 || below.is_empty() {
        below.into_iter().flatten().collect()
    } else {
        below.into_iter().fold(vec![vec![]], |all: Vec<Vec<usize>>, ways| {
            let join =
                |some: &Vec<usize>| ways.iter().map(|way| [&some[..], way].concat()).collect::<Vec<_>>();
            all.iter().flat_map(join).take(500).collect()
        })
    };
    if all.is_empty() {
        all.push(vec![]);
    }
    all.iter_mut().for_each(|session| session.push(node));
    all
}

proptest! {
    #[test]
    fn users_of_one_session_do_not_overlap(shape in shape(), compact: bool) {
        let (graph, nodes) = build(&shape);
        let order = if compact { Order::Compact } else { Order::Maximal };
        let layout = graph.layout(order, NO_LIMIT).unwrap();
        let overlap = |a: usize, b: usize| {
            let (a, b) = (layout.place(nodes[a]), layout.place(nodes[b]));
            a.start < b.end && b.start < a.end
        };
        let begins = |n: &usize| shape.edges.iter().all(|&(_, to)| to != *n);
        for session in (0..nodes.len()).filter(begins).flat_map(|n| sessions(&shape, n)) {
            for &a in &session {
                prop_assert!(session.iter().all(|&b| a == b || !overlap(a, b)), "{:?}", layout);
            }
        }
        prop_assert!(shape.meetings.iter().all(|&(a, b)| !overlap(a, b)));
        for (&(size, align, _), &node) in shape.users.iter().zip(&nodes) {
            prop_assert_eq!(layout.place(node).len(), size);
            prop_assert!(layout.place(node).start.is_multiple_of(1 << align));
            prop_assert!(layout.place(node).end <= layout.bytes());
        }
    }

    #[test]
    fn never_more_than_the_sum(shape in shape(), compact: bool) {
        let order = if compact { Order::Compact } else { Order::Maximal };
        let most = shape.users.iter().map(|&(_, align, _)| 1 << align).max().unwrap_or(1);
        let sum: usize = shape.users.iter().map(|(size, ..)| size.next_multiple_of(most)).sum();
        prop_assert!(build(&shape).0.layout(order, NO_LIMIT).unwrap().bytes() <= sum);
    }

    /// Without divergence, offsets grow along every path.
    #[test]
    fn maximal_offsets_keep_the_order_of_paths(shape in shape()) {
        let (graph, nodes) = build(&shape);
        let layout = graph.layout(Order::Maximal, NO_LIMIT).unwrap();
        for &(a, b) in &shape.edges {
            prop_assert!(layout.place(nodes[a]).end <= layout.place(nodes[b]).start);
        }
    }
}
