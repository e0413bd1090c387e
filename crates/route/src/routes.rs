//! The tables, next hops and faces as one value.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::fib4::Fib4;
use crate::fib6::Fib6;
use crate::hop::NextHops;

/// What one table leads to.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    /// IPv4.
    pub ip4: Fib4,
    /// IPv6.
    pub ip6: Fib6,
}

/// A routed port as the kernel has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct L3Interface {
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
    pub tables: Vec<RouteTable>,
    /// What they lead to.
    pub hops: NextHops,
    /// Routed ports, by their ids; `None` for others.
    pub interfaces: Vec<Option<L3Interface>>,
}

impl Routes {
    /// The port with this id, if it is routed.
    #[inline]
    pub fn interface(&self, port: u16) -> Option<&L3Interface> {
        self.interfaces.get(usize::from(port))?.as_ref()
    }

    /// The table that all packets are routed by, if there is only one: then a node in front of the lookup can ask for what it
    /// will read, as soon as a destination is at hand ([`Fib4::prefetch`], [`Fib6::prefetch`]).
    #[inline]
    pub fn single_table(&self) -> Option<&RouteTable> {
        match &*self.tables {
            [table] => Some(table),
            _ => None,
        }
    }

    /// The table that packets from `port` are routed by.
    #[inline]
    pub fn table_for_port(&self, port: u16) -> Option<&RouteTable> {
        self.tables.get(usize::from(self.interface(port)?.table))
    }
}
