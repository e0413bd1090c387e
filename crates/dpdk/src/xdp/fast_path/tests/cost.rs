//! Measurements of the program and of its tables.

use super::*;

/// The least of ten measurements of a frame, in nanoseconds.
fn nanoseconds(rig: &Rig, frame: &[u8]) -> u32 {
    (0..10).map(|_| run_on(&rig.port, frame, 1_000_000).2).min().unwrap()
}

fn tcp_packet(address: IpAddr, bytes: usize, partial: bool) -> Sent {
    let (ends, payload) = ([(address, 1000), (address, 80)], vec![7; bytes]);
    Sent { proto: 6, ends, macs: [[2; 6]; 2], ttl: 64, noise: 0, payload, partial, pad: 60 }
}

/// Prints the cost of a frame without an entry.
fn print_misses(rig: &Rig, addresses: [IpAddr; 2]) {
    let stages = [
        (0, 0, FastGranularity::Flow),
        (NOW, 0, FastGranularity::Flow),
        (NOW, 60_000, FastGranularity::Flow),
        (NOW, 0, FastGranularity::Pair),
    ];
    for (generation, flows, granularity) in stages {
        rig.path.set_generation(generation, granularity);
        for n in 0..flows {
            let key = rig.key(6, (Ipv4Addr::from(n).into(), 1), (addresses[0], 80));
            rig.path.install(1 + n, NOW, &key, &rig.wire()).unwrap();
        }
        let [v4, v6] = addresses.map(|address| nanoseconds(rig, &tcp_packet(address, 0, false).build()));
        println!(
            "generation {generation}, {flows} more of {granularity:?}, no entry: IPv4 {v4} ns, IPv6 {v6} ns"
        );
    }
}

/// Prints the cost of the operations on the tables.
fn print_operations(rig: &Rig, address: IpAddr) {
    let key = |n: u32| rig.key(6, (Ipv4Addr::from(n).into(), 1), (address, 80));
    let keys: Vec<_> = (0..60_000).map(key).collect();
    let each = |work: &dyn Fn(u32, &FastKey)| {
        let start = Instant::now();
        (1..).zip(&keys).for_each(|(slot, key)| work(slot, key));
        start.elapsed().as_nanos() / keys.len() as u128
    };
    let removal = each(&|slot, key| rig.path.remove(key, slot));
    let install = each(&|slot, key| rig.path.install(slot, NOW, key, &rig.wire()).unwrap());
    let stats = each(&|slot, _| {
        std::hint::black_box(rig.path.flow_stats(slot));
    });
    let revoke = each(&|slot, _| rig.path.revoke(slot));
    println!(
        "a flow's removal {removal} ns, installation {install} ns, stats {stats} ns, revocation {revoke} ns"
    );
    let start = Instant::now();
    let yes = (0..100).filter(|_| XdpFeatures::of(index("peer0")).takes_redirects()).count();
    assert_eq!(yes, 100, "the other end has a program");
    println!("whether an interface takes frames: {} us", start.elapsed().as_micros() / 100);
}

/// Prints the cost of forwarded frames.
fn print_hits(rig: &Rig, address: IpAddr) {
    // Two flows whose translations undo each other: every run sees the same frame.
    let ends = tcp_packet(address, 0, false).ends;
    let other = [(address, 7), (address, 8)];
    let nat =
        |ends: [End; 2]| FastAction { track_tcp: true, decrement_ttl: false, ..rig.nat(ends[0], ends[1]) };
    let frame = tcp_packet(address, 1400, false).build();
    for (name, there, back) in [("wire", rig.wire(), rig.wire()), ("NAT", nat(other), nat(ends))] {
        rig.path.install(65_000, NOW, &rig.key(6, ends[0], ends[1]), &there).unwrap();
        rig.path.install(65_001, NOW, &rig.key(6, other[0], other[1]), &back).unwrap();
        for granularity in [FastGranularity::Flow, FastGranularity::Pair] {
            rig.path.set_generation(NOW, granularity);
            println!("{address} {name}, {granularity:?}: {} ns", nanoseconds(rig, &frame));
        }
    }
    let pair = rig.key(6, ends[0], ends[1]).without_ports();
    rig.path.install(65_002, NOW, &pair, &rig.wire()).unwrap();
    println!("{address}, of a pair: {} ns", nanoseconds(rig, &frame));
    // A checksum is completed only once, so this is the minimum of many single runs, including their fixed
    // cost.
    for partial in [false, true] {
        let frame = tcp_packet(address, 1400, partial).build();
        let least = (0..20_000).map(|_| run_on(&rig.port, &frame, 1).2).min().unwrap();
        println!("{address}, once, checksum to be completed {partial}: {least} ns");
    }
}

/// Prints all measurements. Run it with `--ignored --nocapture` on a release build.
#[test]
#[ignore = "a measurement"]
fn cost() {
    let Some(rig) = rig() else { return };
    let addresses = [IpAddr::from([10, 0, 0, 1]), "2001:db8::1".parse::<IpAddr>().unwrap()];
    print_misses(&rig, addresses);
    print_operations(&rig, addresses[0]);
    addresses.into_iter().for_each(|address| print_hits(&rig, address));
}
