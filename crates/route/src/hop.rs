//! Next hops: what becomes of the packets of a route.

use std::net::IpAddr;
use std::sync::Arc;

/// A next hop's number: what a FIB leads to. 0 is that of packets without a route.
pub type NextHopId = u32;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NextHopKind {
    /// There is no route: dropped, and its sender told that the network cannot be reached.
    #[default]
    NoRoute,
    /// It goes out by `port` behind `header`.
    Forward,
    /// It goes out by `port`, to a neighbour whose Ethernet address is not known: `gateway`, or, without one, the
    /// destination itself. It waits until the kernel has found out.
    Resolve,
    /// As [`NextHopKind::Resolve`], for a neighbour that has not answered of late: its sender is told that the host cannot be
    /// reached, and the kernel is asked to try again.
    Failed,
    /// It is the kernel's: for one of the machine's own addresses, a group, all of a network, or out of an interface that is
    /// none of ours.
    Punt,
    /// It is dropped silently.
    Blackhole,
    /// It is dropped, and its sender told that the host cannot be reached.
    Unreachable,
    /// It is dropped, and its sender told that this is prohibited.
    Prohibit,
    /// One of several next hops, by the hash of its flow.
    Group,
}

/// A next hop; one cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, align(64))]
pub struct NextHop {
    /// Ethernet destination and source, for [`NextHopKind::Forward`].
    pub header: [u8; 12],
    /// The kernel's index of the interface that it goes out by.
    pub interface: u32,
    /// Members of a [`NextHopKind::Group`]: the first one's place in [`NextHops::members`].
    pub first: u32,
    /// How many there are. A next hop of more weight is there several times.
    pub members: u16,
    /// The port that it goes out by.
    pub port: u16,
    /// Bytes of the largest IP packet that goes out.
    pub mtu: u16,
    /// What becomes of packets.
    pub kind: NextHopKind,
    /// The neighbour, for [`NextHopKind::Forward`], [`NextHopKind::Resolve`] and [`NextHopKind::Failed`]; `None`: the destination itself.
    pub gateway: Option<IpAddr>,
    /// The kernel has not heard of the neighbour for a while: whoever uses it says so, and the kernel asks it.
    pub neighbor_stale: bool,
}

const _: () = assert!(size_of::<NextHop>() == 64);

/// Next hops in a page.
const PAGE: usize = 256;

/// All next hops by number. Cloning is cheap; a change copies one page.
#[derive(Clone, Debug, Default)]
pub struct NextHops {
    pages: Arc<Vec<Arc<[NextHop; PAGE]>>>,
    members: Arc<Vec<NextHopId>>,
}

impl NextHops {
    /// The next hop with this number; that of packets without a route if there is none.
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

    /// Sets a next hop; those before it that are not set are of packets without a route.
    pub fn set(&mut self, id: NextHopId, hop: NextHop) {
        let id = id as usize;
        let pages = Arc::make_mut(&mut self.pages);
        while pages.len() <= id / PAGE {
            pages.push(Arc::new([NextHop::default(); PAGE]));
        }
        Arc::make_mut(&mut pages[id / PAGE])[id % PAGE] = hop;
    }

    /// Members of groups, by place.
    pub fn members(&self) -> &[NextHopId] {
        &self.members
    }

    /// The same, to be changed: copied if it is shared.
    pub fn members_mut(&mut self) -> &mut Vec<NextHopId> {
        Arc::make_mut(&mut self.members)
    }

    /// The next hop of a flow: of a group, the member that the flow's hash chooses.
    #[inline]
    pub fn for_flow(&self, id: NextHopId, flow_hash: u32) -> &NextHop {
        let hop = self.get(id);
        if hop.kind == NextHopKind::Group { self.get(self.member(hop, flow_hash)) } else { hop }
    }

    /// The number of [`NextHops::for_flow`]'s next hop: never that of a group, except of one that a group is a member of.
    #[inline]
    pub fn resolve(&self, id: NextHopId, flow_hash: u32) -> NextHopId {
        let hop = self.get(id);
        if hop.kind == NextHopKind::Group { self.member(hop, flow_hash) } else { id }
    }

    #[inline(never)]
    fn member(&self, group: &NextHop, flow_hash: u32) -> NextHopId {
        // Multiplied, since workers divide flows among them by the upper bits of the hash as it is.
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
    fn what_is_not_there_has_no_route() {
        let hops = hops(&[0, 1]);
        assert_eq!([0, 700, 901, 1 << 30, u32::MAX].map(|id| hops.get(id).kind), [NextHopKind::NoRoute; 5]);
        assert_eq!((hops.get(600).port, hops.get(900).kind), (600, NextHopKind::Group));
    }

    /// Three members, one of them twice: flows are spread by weight, whatever the hash's upper bits are, and stay.
    #[test]
    fn a_group_is_shared_by_flows() {
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
    fn older_clones_stay_as_they_were() {
        let before = hops(&[0, 1]);
        let mut after = before.clone();
        after.set(5, NextHop { mtu: 1400, ..NextHop::default() });
        after.members_mut().clear();
        assert_eq!((before.get(5).port, before.members().len()), (5, 2));
        assert_eq!((after.get(5).mtu, after.resolve(900, 1), after.get(6).port), (1400, 0, 6));
    }
}
