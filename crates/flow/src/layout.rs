//! The layout of scratchpads: which bytes each user gets.
//!
//! # Theory of operation
//!
//! This implements section II-C of MiddleClick ("FCB size"). Network functions are the nodes of a graph,
//! whose edges packets follow. Each instance has one offset, which holds for the scratchpads of all sessions.
//! Functions on one path see the same sessions, so their bytes must not overlap. Functions on parallel paths
//! may share bytes, since a session takes only one of the paths. There are two exceptions: [`Graph::diverge`]
//! marks functions whose packets of one session leave by several edges, and [`Graph::meet`] marks pairs that
//! see one session because rules assign it to several chains.
//!
//! [`Order::Maximal`] places functions in path order. Each function begins after the largest path that leads
//! to it (the "maximal offset"), or later where the bytes of the functions that it may meet are free. The
//! paper keeps these bytes in a bit vector; here they are ranges. [`Order::Compact`], the paper's variant,
//! first places the functions that lie on most paths, into the first hole that fits. Neither needs more than
//! the sum of the sizes, each rounded up to the largest alignment.

use std::ops::Range;

/// A user of the scratchpad in a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(usize);

/// The order in which bytes are assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In path order: bytes that are used together lie together, in the order of use.
    Maximal,
    /// By the number of paths through a function: the smallest scratchpad for most sessions.
    Compact,
}

/// Why there is no layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The edges form a cycle.
    #[error("the chains form a cycle")]
    Cycle,
    /// The scratchpad would exceed the caller's limit.
    #[error("a session needs {0} bytes of scratchpad, more than the limit")]
    TooLarge(usize),
}

#[derive(Clone, Debug)]
struct User {
    size: usize,
    align: usize,
    next: Vec<usize>,
    diverges: bool,
}

/// The users of the scratchpad and the paths of packets between them.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    users: Vec<User>,
    meetings: Vec<(usize, usize)>,
}

/// The offsets of all users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    places: Vec<Range<usize>>,
    bytes: usize,
}

impl Layout {
    /// The byte range of a user.
    ///
    /// # Panics
    /// If the node belongs to another graph with more nodes.
    pub fn place(&self, node: Node) -> Range<usize> {
        self.places[node.0].clone()
    }

    /// Size of a scratchpad: the end of the last user, rounded up to the largest alignment.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Graph {
    /// Adds a user of `size` bytes. `align` is rounded up to a power of two.
    pub fn add(&mut self, size: usize, align: usize) -> Node {
        self.users.push(User { size, align: align.next_power_of_two(), next: Vec::new(), diverges: false });
        Node(self.users.len() - 1)
    }

    /// Adds an edge: packets go from one user to the other.
    pub fn edge(&mut self, from: Node, to: Node) {
        let next = &mut self.users[from.0].next;
        if !next.contains(&to.0) {
            next.push(to.0);
        }
    }

    /// Marks a user whose packets of one session may leave by several edges.
    pub fn diverge(&mut self, node: Node) {
        self.users[node.0].diverges = true;
    }

    /// Marks two users that may see the same session although no path connects them.
    pub fn meet(&mut self, a: Node, b: Node) {
        self.meetings.push((a.0, b.0));
    }

    /// Computes the offsets.
    ///
    /// # Errors
    /// [`LayoutError::Cycle`], and [`LayoutError::TooLarge`] if scratchpads would exceed `limit` bytes.
    pub fn layout(&self, order: Order, limit: usize) -> Result<Layout, LayoutError> {
        let sorted = self.sorted().ok_or(LayoutError::Cycle)?;
        let meets = self.conflicts(&sorted);
        let mut places: Vec<Option<Range<usize>>> = vec![None; self.users.len()];
        // End of the largest path to each user: the maximal offset.
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

    /// The users in topological order; none if there is a cycle.
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

    /// Number of paths from a source to a sink through each user.
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

    /// For each user, the users that may see a session of its.
    fn conflicts(&self, sorted: &[usize]) -> Vec<Set> {
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
                // Users after one edge meet all users after the other edges. Users after the same edge keep
                // the users that they already meet, unless other edges lead there too.
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
    /// The first free range from `least` on.
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
mod tests;
