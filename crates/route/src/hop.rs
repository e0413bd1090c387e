//! Next hops: how the packets of a route are handled.

use std::net::IpAddr;
use std::sync::Arc;

/// Number of a next hop: the result of a FIB lookup. 0 is the next hop of packets without a route.
pub type NextHopId = u32;

/// How the packets of a next hop are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NextHopKind {
    /// No route: drop, with an ICMP error "network unreachable".
    #[default]
    NoRoute,
    /// Sent by `port` with the Ethernet addresses in `header`.
    Forward,
    /// Sent by `port` once the Ethernet address of the neighbour is known. The neighbour is `gateway`, or
    /// the destination itself. Packets wait until the kernel has resolved the address.
    Resolve,
    /// As [`NextHopKind::Resolve`], for a neighbour that has not answered recently: the sender gets an ICMP
    /// error "host unreachable", and the kernel retries.
    Failed,
    /// Handed to the kernel: local and group addresses, broadcasts, or interfaces that the engine does not
    /// own.
    Punt,
    /// Dropped silently.
    Blackhole,
    /// Dropped, with an ICMP error "host unreachable".
    Unreachable,
    /// Dropped, with an ICMP error "administratively prohibited".
    Prohibit,
    /// One of several next hops, selected by the flow hash.
    Group,
}

/// A next hop; one cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, align(64))]
pub struct NextHop {
    /// Ethernet destination and source address, for [`NextHopKind::Forward`].
    pub header: [u8; 12],
    /// Kernel index of the output interface.
    pub interface: u32,
    /// Index of the first member of a [`NextHopKind::Group`] in [`NextHops::members`].
    pub first: u32,
    /// Number of members of a group. A next hop of greater weight is listed several times.
    pub members: u16,
    /// Output port.
    pub port: u16,
    /// Maximum length of an outgoing IP packet in bytes.
    pub mtu: u16,
    /// How packets are handled.
    pub kind: NextHopKind,
    /// The neighbour's address, for [`NextHopKind::Forward`], [`NextHopKind::Resolve`] and
    /// [`NextHopKind::Failed`]. `None`: the destination itself.
    pub gateway: Option<IpAddr>,
    /// The kernel's neighbour entry is stale. Packets that use it trigger a request to the kernel to verify
    /// it.
    pub neighbor_stale: bool,
}

const _: () = assert!(size_of::<NextHop>() == 64);

/// Next hops per page.
const PAGE: usize = 256;

/// All next hops by number. A clone shares all pages; a change copies one page.
#[derive(Clone, Debug, Default)]
pub struct NextHops {
    pages: Arc<Vec<Arc<[NextHop; PAGE]>>>,
    members: Arc<Vec<NextHopId>>,
}

impl NextHops {
    /// The next hop with this number; an unused number has no route.
    #[inline]
    pub fn get(&self, id: NextHopId) -> &NextHop {
        const NONE: &NextHop = &NextHop {
            header: [0; 12],
            interface: 0,
            first: 0,
            members: 0,
            port: 0,
            mtu: 0,
            kind: NextHopKind::NoRoute,
            gateway: None,
            neighbor_stale: false,
        };
        let id = id as usize;
        self.pages.get(id / PAGE).map_or(NONE, |page| &page[id % PAGE])
    }

    /// Sets a next hop. Unset numbers below it have no route.
    pub fn set(&mut self, id: NextHopId, hop: NextHop) {
        let id = id as usize;
        let pages = Arc::make_mut(&mut self.pages);
        while pages.len() <= id / PAGE {
            pages.push(Arc::new([NextHop::default(); PAGE]));
        }
        Arc::make_mut(&mut pages[id / PAGE])[id % PAGE] = hop;
    }

    /// Members of all groups.
    pub fn members(&self) -> &[NextHopId] {
        &self.members
    }

    /// Members of all groups, mutable; copied if shared.
    pub fn members_mut(&mut self) -> &mut Vec<NextHopId> {
        Arc::make_mut(&mut self.members)
    }

    /// The next hop of a flow. For a group, the flow hash selects the member.
    #[inline]
    pub fn for_flow(&self, id: NextHopId, flow_hash: u32) -> &NextHop {
        let hop = self.get(id);
        if hop.kind == NextHopKind::Group { self.get(self.member(hop, flow_hash)) } else { hop }
    }

    /// The number of [`NextHops::for_flow`]'s next hop. It is not a group unless the selected member is
    /// one.
    #[inline]
    pub fn resolve(&self, id: NextHopId, flow_hash: u32) -> NextHopId {
        let hop = self.get(id);
        if hop.kind == NextHopKind::Group { self.member(hop, flow_hash) } else { id }
    }

    #[inline(never)]
    fn member(&self, group: &NextHop, flow_hash: u32) -> NextHopId {
        // Multiplied because workers distribute flows by the upper bits of the hash.
        let hash = flow_hash.wrapping_mul(0x9e37_79b1);
        let at = (u64::from(hash) * u64::from(group.members)) >> 32;
        self.members.get(group.first as usize + at as usize).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hops(members: &[NextHopId]) -> NextHops {
        let mut hops = NextHops::default();
        for port in 1..=600 {
            hops.set(port.into(), NextHop { port, kind: NextHopKind::Forward, ..NextHop::default() });
        }
        hops.members_mut().extend(members);
        let (first, members) = (1, members.len() as u16 - 1);
        hops.set(900, NextHop { kind: NextHopKind::Group, first, members, ..NextHop::default() });
        hops
    }

    #[test]
    fn unused_numbers_have_no_route() {
        let hops = hops(&[0, 1]);
        assert_eq!([0, 700, 901, 1 << 30, u32::MAX].map(|id| hops.get(id).kind), [NextHopKind::NoRoute; 5]);
        assert_eq!((hops.get(600).port, hops.get(900).kind), (600, NextHopKind::Group));
    }

    /// Three members, one of them listed twice: flows are distributed by weight for any upper bits of the
    /// hash.
    #[test]
    fn a_group_distributes_flows_by_weight() {
        let hops = hops(&[500, 7, 8, 9, 9]);
        for upper in [0, 0x8000_0000] {
            let mut flows = [0; 10];
            for hash in 0..40_000 {
                let id = hops.resolve(900, upper | hash);
                assert_eq!((hops.for_flow(900, upper | hash).port, hops.resolve(id, hash)), (id as u16, id));
                flows[id as usize] += 1;
            }
            assert!(flows[..7].iter().all(|n| *n == 0));
            assert!((9_500..10_500).contains(&flows[7]) && (9_500..10_500).contains(&flows[8]), "{flows:?}");
        }
        assert_eq!(hops.for_flow(3, 1).port, 3);
    }

    #[test]
    fn clones_are_independent() {
        let before = hops(&[0, 1]);
        let mut after = before.clone();
        after.set(5, NextHop { mtu: 1400, ..NextHop::default() });
        after.members_mut().clear();
        assert_eq!((before.get(5).port, before.members().len()), (5, 2));
        assert_eq!((after.get(5).mtu, after.resolve(900, 1), after.get(6).port), (1400, 0, 6));
    }
}
