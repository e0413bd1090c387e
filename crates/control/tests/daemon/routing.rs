//! Routed ports: their twins in the kernel, and the routes from the kernel. The tests need root for a network
//! namespace of their own; without it they print that they are skipped.

use std::process::Command;
use std::time::{Duration, Instant};

use mmb_control::api::{FibList, InterfaceEntry, NeighborList, Runtime};
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};
use serde::de::DeserializeOwned;

use crate::harness::{Daemon, daemon};

/// The daemon, with the calling thread in a new network namespace; none without the permission for that.
fn routed_daemon() -> Option<Daemon> {
    let daemon = daemon();
    if let Err(e) = unshare(CloneFlags::CLONE_NEWNET) {
        println!("skipped: no network namespace ({e})");
        return None;
    }
    ip("link set lo up");
    Some(daemon)
}

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

fn is_in_kernel(ifname: &str) -> bool {
    if_nametoindex(ifname).is_ok()
}

impl Daemon {
    fn document<T: DeserializeOwned>(&self, path: &str) -> T {
        self.client().get(path).unwrap()
    }

    /// Waits until `found` returns a value for the routes.
    fn wait_for_routes<T>(&self, path: &str, found: impl Fn(&FibList) -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let list: FibList = self.document(path);
            if let Some(value) = found(&list) {
                return value;
            }
            assert!(Instant::now() < deadline, "{list:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn interface(&self, name: &str) -> InterfaceEntry {
        self.control.interfaces().interfaces.into_iter().find(|i| i.name == name).unwrap()
    }
}

#[test]
fn a_routed_port_has_a_twin() {
    let Some(daemon) = routed_daemon() else { return };
    let none = "no routes: no interface is routed; `route NAME` routes the packets of one\n";
    assert_eq!(daemon.run("show fib").unwrap(), none);
    daemon.run("interface add lan null").unwrap();
    daemon.run("interface add wan null").unwrap();
    assert_eq!(daemon.run("route lan wan").unwrap(), "packets received on lan, wan are routed\n");
    assert!(is_in_kernel("lan") && is_in_kernel("wan"));
    let entry = daemon.interface("lan");
    assert_eq!(entry.routed.unwrap().interface, "lan");
    assert!(daemon.run("show interfaces").unwrap().contains("those of the twin lan"));
    let config = "interface add lan null\ninterface add wan null\nroute lan\nroute wan\n";
    assert_eq!(daemon.control.config().config, config);
    // Routing it again is no error and keeps the twin.
    let before = if_nametoindex("lan").unwrap();
    daemon.run("route lan").unwrap();
    daemon.control.apply(config.as_bytes()).unwrap();
    assert_eq!(if_nametoindex("lan").unwrap(), before);
    // A new device keeps the twin.
    daemon.control.apply(config.replace("lan null", "lan tap").as_bytes()).unwrap();
    assert_eq!(if_nametoindex("lan").unwrap(), before);
    daemon.run("route del lan").unwrap();
    assert!(!is_in_kernel("lan") && is_in_kernel("wan"));
    let runtime: Runtime = daemon.document("/v1/runtime");
    assert!(runtime.routing.is_some());
    daemon.control.apply(b"interface add wan null\n").unwrap();
    assert!(!is_in_kernel("wan"));
    assert!(daemon.document::<Runtime>("/v1/runtime").routing.is_none());
    assert_eq!(daemon.run("show fib").unwrap(), none);
}

#[test]
fn a_failed_change_of_twins_changes_nothing() {
    let Some(daemon) = routed_daemon() else { return };
    ip("link add taken type bridge");
    for line in ["interface add taken null", "interface add other null", "interface add third null"] {
        daemon.run(line).unwrap();
    }
    daemon.run("route other").unwrap();
    let before = daemon.state();
    let error = daemon.run("route third taken").unwrap_err();
    assert!(
        error.contains("interface taken in the kernel already") && error.contains("ip link del taken"),
        "{error}"
    );
    assert_eq!(daemon.state(), before);
    assert!(!is_in_kernel("third"));
    // The same for a file. Devices that were closed for it are open again.
    let file = "interface add other null\ninterface add x tap third\ninterface add taken null\nroute taken\n";
    let error = daemon.control.apply(file.as_bytes()).unwrap_err();
    assert!(error.message.starts_with("interface `taken`: "), "{error}");
    assert_eq!(daemon.state(), before);
    assert!(is_in_kernel("other") && !is_in_kernel("third"));
    // A wired port cannot be routed, and a routed one cannot be deleted.
    daemon.run("wire taken third").unwrap();
    assert!(daemon.run("route third").unwrap_err().contains("wired to `taken`"));
    assert!(daemon.run("interface del other").unwrap_err().contains("is routed"));
    ip("link del taken");
    daemon.run("wire del taken").unwrap();
    daemon.run("route taken").unwrap();
    assert!(is_in_kernel("taken"));
}

#[test]
fn the_kernels_routes_are_shown() {
    let Some(daemon) = routed_daemon() else { return };
    daemon.run("interface add lan null").unwrap();
    daemon.run("nat pool add public 192.0.2.1 ports 10000-65535").unwrap();
    daemon.run("route lan").unwrap();
    ip("address add 192.0.2.1/24 dev lan");
    ip("address add 2001:db8::1/64 dev lan nodad");
    ip("neigh add 192.0.2.7 lladdr 02:00:00:00:00:07 dev lan nud permanent");
    ip("route add 198.51.100.0/24 via 192.0.2.7 proto static metric 20");
    ip("route add 198.51.100.64/26 proto bgp nexthop via 192.0.2.7 weight 1 nexthop via 192.0.2.8 weight 3");
    ip("route add blackhole 203.0.113.0/24");
    let hops = daemon.wait_for_routes("/v1/fib?prefix=198.51.100.0/24", |list| match &list.routes[..] {
        [one, two] if two.protocol == "bgp" => {
            assert_eq!((one.prefix.as_str(), one.metric), ("198.51.100.0/24", 20));
            assert_eq!((one.kind.as_ref(), one.protocol.as_str()), ("unicast", "static"));
            Some([one.next_hops.clone(), two.next_hops.clone()].concat())
        }
        _ => None,
    });
    let [first, _, second] = &hops[..] else { panic!("{hops:?}") };
    assert_eq!((first.interface.as_deref(), first.mac.as_deref()), (Some("lan"), Some("02:00:00:00:00:07")));
    assert_eq!((first.gateway, second.weight), (Some("192.0.2.7".parse().unwrap()), 3));
    let text = daemon.run("show fib 198.51.100.1").unwrap();
    let line = text.lines().nth(1).unwrap_or_default();
    assert!(
        line.starts_with("198.51.100.0/24  main ") && line.ends_with("via 192.0.2.7 lan forward"),
        "{text}"
    );
    daemon.wait_for_routes("/v1/fib?prefix=203.0.113.0/24", |list| {
        list.routes.iter().find(|r| r.kind == "blackhole" && r.next_hops.is_empty()).map(drop)
    });
    let neighbors: NeighborList = daemon.document("/v1/neighbors?prefix=192.0.2.0/24");
    let seven = neighbors.neighbors.iter().find(|n| n.address.to_string() == "192.0.2.7").unwrap();
    assert_eq!((seven.state.as_ref(), seven.interface.as_deref()), ("permanent", Some("lan")));
    assert!(daemon.run("show neighbors 192.0.2.7").unwrap().contains("02:00:00:00:00:07  permanent"));

    // The limit is respected.
    let all: FibList = daemon.document("/v1/fib");
    let some: FibList = daemon.document("/v1/fib?limit=2");
    assert!(some.more && !all.more && all.routes.len() > 4 && some.routes == all.routes[..2], "{some:?}");
    let response = daemon.http("GET", "/v1/fib?prefix=192.0.2.0/33", "", b"");
    assert_eq!((response.status, &response.json()["diagnostics"][0]["start"]), (400, &0.into()));

    let metrics = String::from_utf8(daemon.http("GET", "/metrics", "", b"").body).unwrap();
    for word in
        ["mmb_router_lag_seconds ", "mmb_router_routes{family=\"ip4\"} ", "mmb_router_overruns_total 0"]
    {
        assert!(metrics.lines().any(|l| l.starts_with(word)), "{word} in\n{metrics}");
    }
    assert!(daemon.run("show runtime").unwrap().starts_with("routes: "));
}

#[test]
fn ten_thousand_routes_come_in_pages() {
    let Some(daemon) = routed_daemon() else { return };
    daemon.run("interface add lan null").unwrap();
    daemon.run("route lan").unwrap();
    ip("address add 192.0.2.1/24 dev lan");
    let batch = std::env::temp_dir().join(format!("mmb-control-routes-{}", std::process::id()));
    let lines = (0..10_000u32).map(|n| format!("route add 10.{}.{}.0/24 via 192.0.2.7\n", n / 256, n % 256));
    std::fs::write(&batch, lines.collect::<String>()).unwrap();
    ip(&format!("-batch {}", batch.display()));
    std::fs::remove_file(&batch).unwrap();
    daemon.wait_for_routes("/v1/fib?prefix=10.0.0.0/8", |list| (list.routes.len() == 10_000).then_some(()));
    let list: FibList = daemon.document("/v1/fib?prefix=10.0.0.0/8");
    let numbers: Vec<String> = list.routes.iter().map(|r| r.prefix.clone()).collect();
    let expected: Vec<String> = (0..10_000).map(|n| format!("10.{}.{}.0/24", n / 256, n % 256)).collect();
    assert_eq!(numbers, expected);
    assert_eq!(daemon.run("show fib 10.0.0.0/8").unwrap().lines().count(), 10_001);
}
