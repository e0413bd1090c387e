//! Tests of the parent module.

use super::*;
use crate::api::NeighborEntry;

fn hop(gateway: Option<&str>, interface: Option<&str>, state: &'static str, weight: u16) -> NextHopEntry {
    NextHopEntry {
        gateway: gateway.map(|g| g.parse().unwrap()),
        kernel_interface: "eth7".to_owned(),
        interface: interface.map(str::to_owned),
        state: state.into(),
        weight,
        mac: None,
        mtu: 1500,
    }
}

#[test]
fn routes_have_their_next_hops_in_one_cell() {
    let mut columns = FibColumns::new();
    assert_eq!(columns.flush(), "");
    let route = |prefix: &str, kind: &'static str, next_hops| RouteEntry {
        prefix: prefix.to_owned(),
        table: if kind == "unicast" { 10 } else { 254 },
        kind: kind.into(),
        protocol: "bgp".to_owned(),
        metric: 20,
        next_hops,
    };
    let two =
        vec![hop(Some("192.0.2.1"), Some("wan"), "forward", 1), hop(Some("2001:db8::1"), None, "punt", 2)];
    columns.row(&route("198.51.100.0/24", "unicast", two));
    columns.row(&route("203.0.113.0/24", "blackhole", Vec::new()));
    columns.row(&route("10.0.0.7/32", "neighbor", vec![hop(None, Some("lan"), "forward", 1)]));
    let expected = "\
prefix           table  kind       protocol  metric  next hops
198.51.100.0/24  10     unicast    bgp           20  via 192.0.2.1 wan forward, via 2001:db8::1 eth7 punt weight 2
203.0.113.0/24   main   blackhole  bgp           20  -
10.0.0.7/32      main   neighbor   bgp           20  lan forward
";
    assert_eq!(columns.flush(), expected);
}

#[test]
fn unknown_values_of_neighbours_are_dashes() {
    assert_eq!(neighbors(&NeighborList::default()), "no neighbors\n");
    let neighbor = NeighborEntry {
        address: "10.0.0.7".parse().unwrap(),
        kernel_interface: "eth7".to_owned(),
        interface: Some("lan".to_owned()),
        mac: None,
        state: "incomplete".into(),
    };
    let text = neighbors(&NeighborList { neighbors: vec![neighbor] });
    assert_eq!(text.lines().nth(1), Some("10.0.0.7  lan        eth7    -    incomplete"));
}

#[test]
fn routing_takes_two_lines() {
    let counts = RoutingCounts { routes_ip4: 7, neighbors: 1, lag_max_us: 1_234, ..Default::default() };
    let text = routing(&counts);
    assert!(text.starts_with("routes: 7 IPv4, 0 IPv6, 0 next hops, 1 neighbor; "), "{text}");
    assert!(text.contains("the slowest after 1.23 ms") && text.lines().count() == 2, "{text}");
}
