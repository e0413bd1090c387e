//! Tables, next hops and L3 interfaces as one value.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::fib::{Fib4, Fib6};
use crate::hop::NextHops;

/// A routing table of both address families.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    /// IPv4.
    pub ip4: Fib4,
    /// IPv6.
    pub ip6: Fib6,
}

/// Addresses and table of a routed port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct L3Interface {
    /// Index in [`Routes::tables`] of the table for packets that arrive here.
    pub table: u16,
    /// Ethernet address; frames to other addresses are not routed.
    pub mac: [u8; 6],
    /// IPv4 source address of ICMP errors about packets that arrive here.
    pub ip4: Option<Ipv4Addr>,
    /// IPv6 source address of ICMP errors about packets that arrive here.
    pub ip6: Option<Ipv6Addr>,
}

/// The complete routing state. A clone shares all pages.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// The tables; the main table is the first.
    pub tables: Vec<RouteTable>,
    /// The next hops that the tables refer to.
    pub hops: NextHops,
    /// L3 interfaces by port id; `None` for ports that are not routed.
    pub interfaces: Vec<Option<L3Interface>>,
    /// Counts the changes that forwarded flows may notice. Between routes with the same number, only the
    /// treatment of packets has changed that were not forwarded: neighbours were added, resolved, given up
    /// or removed. 0: changes are not counted.
    pub flow_generation: u64,
}

impl Routes {
    /// Whether these routes, which replace `before`, forward its flows to the same next hops.
    pub fn keeps_flows_of(&self, before: &Routes) -> bool {
        self.flow_generation != 0 && self.flow_generation == before.flow_generation
    }

    /// The L3 interface of a port; `None` if it is not routed.
    #[inline]
    pub fn interface(&self, port: u16) -> Option<&L3Interface> {
        self.interfaces.get(usize::from(port))?.as_ref()
    }

    /// The table for all packets if there is only one. An earlier node can then prefetch the lookup of a
    /// destination ([`crate::Fib::prefetch`]).
    #[inline]
    pub fn single_table(&self) -> Option<&RouteTable> {
        match &*self.tables {
            [table] => Some(table),
            _ => None,
        }
    }

    /// The table for packets that arrive at `port`.
    #[inline]
    pub fn table_for_port(&self, port: u16) -> Option<&RouteTable> {
        self.tables.get(usize::from(self.interface(port)?.table))
    }
}
