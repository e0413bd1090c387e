//! Members of next-hop groups. All groups share one list, in which each has a range.

use mmb_route::{NextHop, NextHopId, NextHopKind, NextHops};
use rustc_hash::FxHashMap;

/// Maximum number of members of a group. More would not distribute flows noticeably better.
const MAX_MEMBERS: u32 = 512;
/// The list is compacted when this many elements are unused.
const MAX_UNUSED: usize = 4096;

/// The ranges of the list in use.
#[derive(Debug, Default)]
pub(crate) struct GroupRanges {
    /// The group whose range starts at this index.
    owners: FxHashMap<u32, NextHopId>,
    used: usize,
}

impl GroupRanges {
    /// Releases the range of a group. Has no effect on other next hops.
    pub fn release(&mut self, hop: &NextHop) {
        if hop.kind == NextHopKind::Group && self.owners.remove(&hop.first).is_some() {
            self.used -= usize::from(hop.members);
        }
    }

    /// Releases the range of `before`; returns a next hop without a route.
    pub fn clear(&mut self, before: &NextHop) -> NextHop {
        self.release(before);
        NextHop::default()
    }

    /// Makes next hop `id`, which was `before`, a group of paths with weights. Returns `before` if it is that
    /// group already.
    pub fn set(
        &mut self,
        hops: &mut NextHops,
        id: NextHopId,
        before: NextHop,
        parts: &[(NextHopId, u16)],
    ) -> NextHop {
        let members = replicate(parts);
        let list = hops.members();
        let old = before.first as usize..before.first as usize + usize::from(before.members);
        if before.kind == NextHopKind::Group && list.get(old) == Some(&members[..]) {
            return before;
        }
        self.release(&before);
        if list.len() > 2 * self.used + MAX_UNUSED {
            self.compact(hops);
        }
        let list = hops.members_mut();
        let hop = NextHop {
            kind: NextHopKind::Group,
            first: list.len() as u32,
            members: members.len() as u16,
            ..NextHop::default()
        };
        list.extend(members);
        self.owners.insert(hop.first, id);
        self.used += usize::from(hop.members);
        hop
    }

    /// Removes gaps from the list.
    fn compact(&mut self, hops: &mut NextHops) {
        let mut list = Vec::with_capacity(self.used + MAX_UNUSED);
        let mut owners = FxHashMap::default();
        for &id in self.owners.values() {
            let mut hop = *hops.get(id);
            let old = hop.first as usize..hop.first as usize + usize::from(hop.members);
            let Some(members) = hops.members().get(old) else { continue };
            hop.first = list.len() as u32;
            list.extend_from_slice(members);
            owners.insert(hop.first, id);
            hops.set(id, hop);
        }
        *hops.members_mut() = list;
        self.owners = owners;
    }
}

/// Repeats each part in proportion to its weight, in lowest terms and at least once. The sum is at most
/// [`MAX_MEMBERS`], if the number of parts allows.
fn replicate(parts: &[(NextHopId, u16)]) -> Vec<NextHopId> {
    let weight = |part: &(NextHopId, u16)| u32::from(part.1.max(1));
    let divisor = parts.iter().map(weight).fold(0, gcd).max(1);
    let sum = parts.iter().map(weight).sum::<u32>() / divisor;
    let times = |part: &(NextHopId, u16)| {
        let times = weight(part) / divisor;
        if sum > MAX_MEMBERS {
            (u64::from(times) * u64::from(MAX_MEMBERS) / u64::from(sum)).max(1) as usize
        } else {
            times as usize
        }
    };
    parts
        .iter()
        .flat_map(|part| std::iter::repeat_n(part.0, times(part)))
        .take(usize::from(u16::MAX))
        .collect()
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_reduced_to_lowest_terms() {
        assert_eq!(replicate(&[(1, 1), (2, 1)]), [1, 2]);
        assert_eq!(replicate(&[(1, 4), (2, 8)]), [1, 2, 2]);
        let huge = replicate(&[(1, 65535), (2, 1), (3, 32768)]);
        let of = |id| huge.iter().filter(|m| **m == id).count();
        assert_eq!((of(1), of(2), of(3)), (341, 1, 170));
    }

    #[test]
    fn released_ranges_are_reused() {
        let (mut ranges, mut hops) = (GroupRanges::default(), NextHops::default());
        let mut set = |hops: &mut NextHops, id: NextHopId, parts: &[(NextHopId, u16)]| {
            let before = *hops.get(id);
            let hop = ranges.set(hops, id, before, parts);
            hops.set(id, hop);
        };
        set(&mut hops, 9, &[(1, 1), (2, 1)]);
        for round in 0..10_000 {
            set(&mut hops, 10, &[(round, 1), (2, 1), (3, 1 + (round as u16 & 1))]);
        }
        assert!(hops.members().len() < 3 * MAX_UNUSED);
        let of = |id: NextHopId| {
            let hop = hops.get(id);
            &hops.members()[hop.first as usize..][..usize::from(hop.members)]
        };
        assert_eq!((of(9), of(10)), (&[1, 2][..], &[9999, 2, 3, 3][..]));
    }
}
