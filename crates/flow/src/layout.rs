//! Where the users of a session's scratchpad keep their bytes.
//!
//! Theory of operation. This is section II-C of MiddleClick ("FCB size"). Network functions stand in a graph whose edges
//! packets follow; each instance has one offset in the scratchpads of all sessions, whatever way leads to it. Functions
//! on one path see the same sessions, so their bytes must not overlap. Functions on parallel paths may share bytes, as a
//! session takes one of them; unless it does not: where [`Graph::diverge`] says that packets of one session leave a
//! function by different edges (counters of different events, for instance), and for pairs that [`Graph::meet`] names
//! because rules can give them to one session from different chains.
//!
//! [`Order::Maximal`] places functions in the order of the paths, each behind the greediest path that leads to it (the
//! "maximal offset"), and from there on where the bytes of those that it may meet are free: the paper keeps these bytes in
//! a bit vector, here they are ranges. [`Order::Compact`], the paper's variant, places those first that stand on most
//! paths, from the beginning on, in holes where they fit. Neither needs more than the functions' sizes added up, each
//! rounded up to the largest alignment.

use std::ops::Range;

/// One user of the scratchpad in a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(usize);

/// In which order bytes are given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Along the paths: what is used together stands together, in the order of use.
    Maximal,
    /// By how many paths there are through a function: least bytes for most sessions.
    Compact,
}

/// Why there is no layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Packets could go in circles.
    #[error("the chains lead in a circle")]
    Circle,
    /// More than the caller's limit.
    #[error("a session would need {0} bytes of scratchpad")]
    TooLarge(usize),
}

#[derive(Clone, Debug)]
struct User {
    size: usize,
    align: usize,
    next: Vec<usize>,
    diverges: bool,
}

/// The users of the scratchpad and the ways of packets between them.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    users: Vec<User>,
    meetings: Vec<(usize, usize)>,
}

/// Offsets of all users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    places: Vec<Range<usize>>,
    bytes: usize,
}

impl Layout {
    /// The bytes of a user in the scratchpad.
    ///
    /// # Panics
    /// If the node is of another graph that had more.
    pub fn place(&self, node: Node) -> Range<usize> {
        self.places[node.0].clone()
    }

    /// Size of the scratchpads: up to the end of the last user, rounded up to the largest alignment.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Graph {
    /// Adds a user of `size` bytes that begin at a multiple of `align`, which is rounded up to a power of two.
    pub fn add(&mut self, size: usize, align: usize) -> Node {
        self.users.push(User { size, align: align.next_power_of_two(), next: Vec::new(), diverges: false });
        Node(self.users.len() - 1)
    }

    /// Packets go from one user to the other.
    pub fn edge(&mut self, from: Node, to: Node) {
        let next = &mut self.users[from.0].next;
        if !next.contains(&to.0) {
            next.push(to.0);
        }
    }

    /// Packets of one session may leave this user by several of its edges.
    pub fn diverge(&mut self, node: Node) {
        self.users[node.0].diverges = true;
    }

    /// A session may see both users, though no path leads from one to the other.
    pub fn meet(&mut self, a: Node, b: Node) {
        self.meetings.push((a.0, b.0));
    }

    /// Computes the offsets.
    ///
    /// # Errors
    /// [`LayoutError::Circle`], and [`LayoutError::TooLarge`] if scratchpads would be larger than `limit` bytes.
    pub fn layout(&self, order: Order, limit: usize) -> Result<Layout, LayoutError> {
        let sorted = self.sorted().ok_or(LayoutError::Circle)?;
        let meets = self.who_meets(&sorted);
        let mut places: Vec<Option<Range<usize>>> = vec![None; self.users.len()];
        // Where the greediest path to each user ends: the maximal offset.
        let mut least = vec![0; self.users.len()];
        for node in self.placing_order(order, &sorted) {
            let taken = |other: usize| places[other].clone().filter(|_| meets[node].contains(other));
            let taken: Vec<_> = (0..self.users.len()).filter_map(taken).collect();
            let place = self.users[node].place(least[node], &taken);
            if order == Order::Maximal {
                for &next in &self.users[node].next {
                    least[next] = least[next].max(place.end);
                }
            }
            places[node] = Some(place);
        }
        let places: Vec<_> = places.into_iter().map(Option::unwrap_or_default).collect();
        let end = places.iter().map(|place| place.end).max().unwrap_or(0);
        let bytes = end.next_multiple_of(self.users.iter().map(|user| user.align).max().unwrap_or(1));
        if bytes > limit { Err(LayoutError::TooLarge(bytes)) } else { Ok(Layout { places, bytes }) }
    }

    /// Users such that all edges lead forward; none if they lead in a circle.
    fn sorted(&self) -> Option<Vec<usize>> {
        let mut before = vec![0; self.users.len()];
        self.users.iter().flat_map(|user| &user.next).for_each(|&next| before[next] += 1);
        let mut sorted: Vec<usize> = (0..self.users.len()).filter(|&node| before[node] == 0).collect();
        let mut done = 0;
        while let Some(&node) = sorted.get(done) {
            done += 1;
            for &next in &self.users[node].next {
                before[next] -= 1;
                if before[next] == 0 {
                    sorted.push(next);
                }
            }
        }
        (done == self.users.len()).then_some(sorted)
    }

    fn placing_order(&self, order: Order, sorted: &[usize]) -> Vec<usize> {
        let mut placing = sorted.to_vec();
        if order == Order::Compact {
            let paths = self.paths(sorted);
            placing.sort_by_key(|&node| std::cmp::Reverse(paths[node]));
        }
        placing
    }

    /// On how many paths from a beginning to an end each user stands.
    fn paths(&self, sorted: &[usize]) -> Vec<u64> {
        let mut to = vec![0u64; self.users.len()];
        for &node in sorted {
            to[node] = to[node].max(1);
            for &next in &self.users[node].next {
                to[next] = to[next].saturating_add(to[node]);
            }
        }
        let mut from = vec![0u64; self.users.len()];
        for &node in sorted.iter().rev() {
            let sum = self.users[node].next.iter().fold(0u64, |sum, &next| sum.saturating_add(from[next]));
            from[node] = sum.max(1);
        }
        to.iter().zip(from).map(|(to, from)| to.saturating_mul(from)).collect()
    }

    /// For each user, those that may see a session of its.
    fn who_meets(&self, sorted: &[usize]) -> Vec<Set> {
        let mut below = vec![Set::new(self.users.len()); self.users.len()];
        for &node in sorted.iter().rev() {
            for &next in &self.users[node].next {
                let reached = below[next].clone();
                below[node].extend(&reached);
                below[node].insert(next);
            }
        }
        let mut meets = below.clone();
        for (node, user) in self.users.iter().enumerate().filter(|(_, user)| user.diverges) {
            for &next in &user.next {
                // Whoever is behind one edge meets all that is behind the others; behind its own, only what it met before
                // unless other edges lead there as well.
                let mut others = Set::new(self.users.len());
                for &other in user.next.iter().filter(|&&other| other != next) {
                    others.extend(&below[other]);
                    others.insert(other);
                }
                let mine = below[next].iter().chain([next]).filter(|&n| n != node);
                mine.collect::<Vec<_>>().into_iter().for_each(|n| meets[n].extend(&others));
            }
        }
        for &(a, b) in &self.meetings {
            meets[a].insert(b);
        }
        for node in 0..self.users.len() {
            for other in meets[node].iter().collect::<Vec<_>>() {
                meets[other].insert(node);
            }
        }
        meets
    }
}

impl User {
    /// The first free place from `least` on.
    fn place(&self, least: usize, taken: &[Range<usize>]) -> Range<usize> {
        let mut at = least.next_multiple_of(self.align);
        let overlaps = |at: usize| taken.iter().filter(move |t| t.start < at + self.size && at < t.end);
        while let Some(end) = overlaps(at).map(|t| t.end).max() {
            at = end.next_multiple_of(self.align);
        }
        at..at + self.size
    }
}

/// A set of users.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Set(Vec<u64>);

impl Set {
    fn new(len: usize) -> Set {
        Set(vec![0; len.div_ceil(64)])
    }

    fn insert(&mut self, node: usize) {
        self.0[node / 64] |= 1 << (node % 64);
    }

    fn contains(&self, node: usize) -> bool {
        self.0[node / 64] >> (node % 64) & 1 != 0
    }

    fn extend(&mut self, other: &Set) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        (0..self.0.len() * 64).filter(|&node| self.contains(node))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NO_LIMIT: usize = usize::MAX;

    /// The chain of Figures 2 and 3: the manager's byte, then a flow monitor (24 bytes) for one class of sessions and an HTTP
    /// filter (36 bytes) for another, then a load balancer for both. Section II-C: offset 1 for monitor and filter,
    /// 37 for the balancer; in the compact variant the balancer's bytes stand at the beginning.
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
    fn sessions_that_take_several_ways_need_room_for_all() {
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
    fn circles_are_refused() {
        let mut graph = Graph::default();
        let [a, b] = [8, 16].map(|size| graph.add(size, 4));
        graph.edge(a, b);
        graph.edge(b, a);
        assert_eq!(graph.layout(Order::Maximal, NO_LIMIT), Err(LayoutError::Circle));
    }

    #[derive(Clone, Debug)]
    struct Shape {
        users: Vec<(usize, u32, bool)>,
        edges: Vec<(usize, usize)>,
        meetings: Vec<(usize, usize)>,
    }

    /// Edges lead from lower to higher numbers, and numbers are shuffled by the multiplication.
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

    /// All users that one session may see if it begins at `node`: one of its edges, or all of them.
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

        /// Without divergence, along every path offsets grow: what is used first stands first.
        #[test]
        fn maximal_offsets_keep_the_order_of_paths(shape in shape()) {
            let (graph, nodes) = build(&shape);
            let layout = graph.layout(Order::Maximal, NO_LIMIT).unwrap();
            for &(a, b) in &shape.edges {
                prop_assert!(layout.place(nodes[a]).end <= layout.place(nodes[b]).start);
            }
        }
    }
}
