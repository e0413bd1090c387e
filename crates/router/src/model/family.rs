//! All routes of one address family.

use std::net::IpAddr;

use mmb_route::RouteTable;

use super::paths::PathTable;
use super::prefix::{AddressBits, Prefix};
use super::route_list::RouteList;
use super::tree::{Context, Neighbors, RouteEntry, Tree};
use crate::netlink::Route;

/// The routes of an address family in all tables, and its neighbours.
#[derive(Debug, Default)]
pub(crate) struct Family<A> {
    pub trees: Vec<Tree<A>>,
    pub neighbors: Neighbors<A>,
}

impl<A: AddressBits> Family<A> {
    pub fn change(
        &mut self,
        slot: usize,
        route: &Route,
        paths: &mut PathTable,
        fib: &mut RouteTable,
        f: impl FnOnce(&mut RouteList, &mut PathTable),
    ) {
        if let Some(prefix) = Prefix::new(route.prefix, route.length) {
            let context = &mut Context { paths, neighbors: &self.neighbors, fib };
            self.trees[slot].change(prefix, context, f);
        }
    }

    pub fn retain(
        &mut self,
        paths: &mut PathTable,
        fibs: &mut [RouteTable],
        keep: impl Fn(&RouteEntry, &PathTable) -> bool,
        look: impl Fn(&RouteEntry) -> bool,
    ) {
        for (tree, fib) in self.trees.iter_mut().zip(fibs) {
            tree.retain(&mut Context { paths, neighbors: &self.neighbors, fib }, &keep, &look);
        }
    }

    pub fn clear(&mut self, slot: usize, paths: &mut PathTable, fibs: &mut [RouteTable]) {
        let context = &mut Context { paths, neighbors: &self.neighbors, fib: &mut fibs[slot] };
        self.trees[slot].retain(context, |_, _| false, |_| false);
    }

    pub fn neighbor(
        &mut self,
        (interface, address): (u32, IpAddr),
        there: bool,
        paths: &mut PathTable,
        fibs: &mut [RouteTable],
    ) {
        let Some(bits) = A::of(address) else { return };
        let interfaces = self.neighbors.entry(bits).or_default();
        interfaces.retain(|other| *other != interface);
        if there {
            interfaces.push(interface);
        } else if interfaces.is_empty() {
            self.neighbors.remove(&bits);
        }
        for (tree, fib) in self.trees.iter_mut().zip(fibs) {
            tree.settle_neighbor(bits, &mut Context { paths, neighbors: &self.neighbors, fib });
        }
    }

    pub fn settle_neighbors(&mut self, paths: &mut PathTable, fibs: &mut [RouteTable]) {
        for (tree, fib) in self.trees.iter_mut().zip(fibs) {
            for bits in self.neighbors.keys() {
                tree.settle_neighbor(*bits, &mut Context { paths, neighbors: &self.neighbors, fib });
            }
        }
    }

    /// Number of routes in all tables.
    pub fn count(&self) -> usize {
        self.trees.iter().map(Tree::count).sum()
    }
}
