//! The tables, next hops and faces as one value.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::fib4::Fib4;
use crate::fib6::Fib6;
use crate::hop::Hops;

/// What one table leads to.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// IPv4.
    pub ip4: Fib4,
    /// IPv6.
    pub ip6: Fib6,
}

/// A routed port as the kernel has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Face {
    /// The place in [`Routes::tables`] of the table that packets from there are routed by.
    pub table: u16,
    /// Its Ethernet address: only frames to it are routed.
    pub mac: [u8; 6],
    /// The address that complains about packets that came in here.
    pub ip4: Option<Ipv4Addr>,
    /// The same, of IPv6.
    pub ip6: Option<Ipv6Addr>,
}

/// All that routing needs to know. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// The tables: the main one is the first.
    pub tables: Vec<Table>,
    /// What they lead to.
    pub hops: Hops,
    /// Routed ports, by their ids; `None` for others.
    pub faces: Vec<Option<Face>>,
}

impl Routes {
    /// The port with this id, if it is routed.
    #[inline]
    pub fn face(&self, port: u16) -> Option<&Face> {
        self.faces.get(usize::from(port))?.as_ref()
    }

    /// The table that all packets are routed by, if there is only one: then a node in front of the lookup can ask for what it
    /// will read, as soon as a destination is at hand ([`Fib4::prefetch`], [`Fib6::prefetch`]).
    #[inline]
    pub fn only_table(&self) -> Option<&Table> {
        match &*self.tables {
            [table] => Some(table),
            _ => None,
        }
    }

    /// The table that packets from `port` are routed by.
    #[inline]
    pub fn table_of(&self, port: u16) -> Option<&Table> {
        self.tables.get(usize::from(self.face(port)?.table))
    }
}
