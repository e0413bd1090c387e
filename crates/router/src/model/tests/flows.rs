//! Which changes concern forwarded flows.

use super::*;

/// Whether a change may concern flows.
fn concerns_flows(model: &mut Model, change: impl FnOnce(&mut Model)) -> bool {
    let before = model.routes(&[]);
    change(model);
    !model.routes(&[]).keeps_flows_of(&before)
}

#[test]
fn neighbors_that_nothing_was_forwarded_to_concern_no_flow() {
    use libc::{NUD_DELAY, NUD_FAILED, NUD_INCOMPLETE, NUD_PROBE, NUD_REACHABLE, NUD_STALE};
    for (prefix, neighbors) in [("10.0.0.0/24", "10.0.0."), ("2001:db8::/64", "2001:db8::")] {
        let to = |last: u8| ip(&format!("{neighbors}{last}"));
        let mut model = model(&[1, 2]);
        model.apply(Event::Route(route(254, prefix, &[next_hop(1, "")]), InsertMode::Prepend));
        let mut set = |last, state, mac| {
            let neighbor = Neighbor { mac: Some(mac), ..neighbor(1, to(last), state) };
            let event = if state == 0 { Event::NeighborGone(neighbor) } else { Event::Neighbor(neighbor) };
            concerns_flows(&mut model, |model| model.apply(event))
        };
        // Unused addresses.
        for state in [NUD_INCOMPLETE, NUD_FAILED, NUD_INCOMPLETE, NUD_FAILED, 0, NUD_FAILED, 0] {
            assert!(!set(5, state, MAC), "{prefix} {state}");
        }
        // One that answers, until it may have been used.
        assert!(!set(5, NUD_INCOMPLETE, MAC) && !set(5, NUD_REACHABLE, MAC) && !set(6, NUD_REACHABLE, MAC));
        assert!(set(5, NUD_STALE, MAC));
        assert!(!set(5, NUD_DELAY, MAC));
        assert!(set(5, NUD_PROBE, [2, 0, 0, 0, 9, 9]), "another Ethernet address");
        assert!(set(5, NUD_FAILED, MAC) && !set(5, 0, MAC));
        // Sessions keep the number of the path of a stale neighbour, which another one may get.
        assert!(!set(5, NUD_STALE, MAC) && set(5, 0, MAC));
        assert!(set(6, 0, MAC), "{prefix}");
    }
}

#[test]
fn other_changes_concern_flows() {
    let mut model = model(&[1, 2]);
    let add = |prefix: &str, next_hops: &[NextHopSpec]| {
        Event::Route(route(254, prefix, next_hops), InsertMode::Replace)
    };
    let gone = |prefix: &str, next_hops: &[NextHopSpec]| Event::RouteGone(route(254, prefix, next_hops));
    let of = |interface, address: &str, state| Event::Neighbor(neighbor(interface, ip(address), state));
    let (a, b) = (next_hop(1, "10.0.0.1"), next_hop(2, "10.0.1.1"));
    let (up, failed, none) = (libc::NUD_REACHABLE, libc::NUD_FAILED, libc::NUD_INCOMPLETE);
    let steps = [
        (add("10.0.0.0/24", &[next_hop(1, "")]), true),
        (add("10.0.1.0/24", &[next_hop(2, "")]), true),
        (add("10.9.0.0/16", &[a]), true),
        (of(1, "10.0.0.1", none), false),
        (of(1, "10.0.0.1", up), false),
        (add("10.9.1.0/24", &[a]), true),
        (add("10.9.1.0/24", &[b]), true),
        (gone("10.9.1.0/24", &[b]), true),
        // A host route in the place of a neighbour that does not answer.
        (of(1, "10.0.0.7", failed), false),
        (add("10.0.0.7/32", &[b]), true),
        (gone("10.0.0.7/32", &[b]), true),
        (Event::Link(Link { mtu: 1400, ..link(1) }), true),
        // Of several next hops, one does not answer.
        (add("10.8.0.0/16", &[a, b]), true),
        (of(2, "10.0.1.1", none), false),
        (of(2, "10.0.1.1", failed), false),
        (of(2, "10.0.1.1", up), false),
        (of(2, "10.0.1.1", failed), true),
        (Event::Link(Link { up: false, ..link(2) }), true),
    ];
    for (at, (event, expected)) in steps.into_iter().enumerate() {
        let text = format!("{at}: {event:?}");
        assert_eq!(concerns_flows(&mut model, |model| model.apply(event)), expected, "{text}");
    }
    assert!(concerns_flows(&mut model, |model| model.set_ports([(1, 7)].into_iter().collect())));
    assert!(concerns_flows(&mut model, |model| model.apply(Event::Link(Link { vrf: Some(9), ..link(9) }))));
}

/// Between routes of which the second keep flows, what was forwarded is forwarded by the same path, to a
/// confirmed neighbour as before, and a reverse path filter finds each source where it was.
pub(super) fn check_kept_flows(before: &Routes, after: &Routes, to: IpAddr) -> Result<(), TestCaseError> {
    let id = |routes: &Routes| match to {
        IpAddr::V4(to) => routes.tables[0].ip4.lookup(to.into()),
        IpAddr::V6(to) => routes.tables[0].ip6.lookup(to.into()),
    };
    let (old, new) = (*before.hops.get(id(before)), *after.hops.get(id(after)));
    if old.kind == NextHopKind::Forward {
        prop_assert_eq!(id(before), id(after), "{}", to);
        prop_assert_eq!(NextHop { neighbor_stale: false, ..new }, NextHop { neighbor_stale: false, ..old });
        prop_assert!(old.neighbor_stale || !new.neighbor_stale, "{}", to);
    }
    let place = |hop: &NextHop| match hop.kind {
        NextHopKind::Forward | NextHopKind::Resolve | NextHopKind::Failed => Some((hop.port, hop.interface)),
        _ => None,
    };
    prop_assert!(place(&old).is_none_or(|old| place(&new) == Some(old)), "{}", to);
    Ok(())
}
