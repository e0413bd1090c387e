//! Where the members of groups lie, in the one list that all groups share.

use mmb_route::{Hop, HopId, HopKind, Hops};
use rustc_hash::FxHashMap;

/// Members of one group; more would not divide flows noticeably better.
const MOST: u32 = 512;
/// Unused places from which on the list is made anew.
const LOOSE: usize = 4096;

/// Ranges of the list that groups use.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// Owner of the range that begins at a place.
    owners: FxHashMap<u32, HopId>,
    used: usize,
}

impl Ranges {
    /// `hop` is no group any more, if it was one.
    pub fn free(&mut self, hop: &Hop) {
        if hop.kind == HopKind::Group && self.owners.remove(&hop.first).is_some() {
            self.used -= usize::from(hop.members);
        }
    }

    /// What was `before` leads nowhere.
    pub fn none(&mut self, before: &Hop) -> Hop {
        self.free(before);
        Hop::default()
    }

    /// Next hop `id`, `before` till now, as a group of ways with weights.
    pub fn group(&mut self, hops: &mut Hops, id: HopId, before: Hop, parts: &[(HopId, u16)]) -> Hop {
        let members = spread(parts);
        let list = hops.members();
        let old = before.first as usize..before.first as usize + usize::from(before.members);
        if before.kind == HopKind::Group && list.get(old.clone()) == Some(&members[..]) {
            return before;
        }
        if before.kind == HopKind::Group && old.len() == members.len() {
            hops.members_mut()[old].copy_from_slice(&members);
            return before;
        }
        self.free(&before);
        if list.len() > 2 * self.used + LOOSE {
            self.tidy(hops);
        }
        let list = hops.members_mut();
        let hop = Hop {
            kind: HopKind::Group,
            first: list.len() as u32,
            members: members.len() as u16,
            ..Hop::default()
        };
        list.extend(members);
        self.owners.insert(hop.first, id);
        self.used += usize::from(hop.members);
        hop
    }

    /// Closes the gaps.
    fn tidy(&mut self, hops: &mut Hops) {
        let mut list = Vec::with_capacity(self.used + LOOSE);
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

/// Each part as often as its weight says, in lowest terms and [`MOST`] in all at most, but at least once.
fn spread(parts: &[(HopId, u16)]) -> Vec<HopId> {
    let weight = |part: &(HopId, u16)| u32::from(part.1.max(1));
    let divisor = parts.iter().map(weight).fold(0, gcd).max(1);
    let sum = parts.iter().map(weight).sum::<u32>() / divisor;
    let times = |part: &(HopId, u16)| {
        let times = weight(part) / divisor;
        if sum > MOST {
            (u64::from(times) * u64::from(MOST) / u64::from(sum)).max(1) as usize
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
    fn weights_in_lowest_terms() {
        assert_eq!(spread(&[(1, 1), (2, 1)]), [1, 2]);
        assert_eq!(spread(&[(1, 4), (2, 8)]), [1, 2, 2]);
        let huge = spread(&[(1, 65535), (2, 1), (3, 32768)]);
        let of = |id| huge.iter().filter(|m| **m == id).count();
        assert_eq!((of(1), of(2), of(3)), (341, 1, 170));
    }

    #[test]
    fn ranges_are_used_again() {
        let (mut ranges, mut hops) = (Ranges::default(), Hops::default());
        let mut set = |hops: &mut Hops, id: HopId, parts: &[(HopId, u16)]| {
            let before = *hops.get(id);
            let hop = ranges.group(hops, id, before, parts);
            hops.set(id, hop);
        };
        set(&mut hops, 9, &[(1, 1), (2, 1)]);
        for round in 0..10_000 {
            set(&mut hops, 10, &[(round, 1), (2, 1), (3, 1 + (round as u16 & 1))]);
        }
        assert!(hops.members().len() < 3 * LOOSE);
        let of = |id: HopId| {
            let hop = hops.get(id);
            &hops.members()[hop.first as usize..][..usize::from(hop.members)]
        };
        assert_eq!((of(9), of(10)), (&[1, 2][..], &[9999, 2, 3, 3][..]));
    }
}
