//! The requirements of the RFCs, one by one.

use std::collections::{HashMap, HashSet};

use super::*;

/// RFC 4787 REQ-1, RFC 5382 REQ-1, RFC 5508 REQ-1: one external endpoint per internal endpoint, for all
/// remote endpoints.
#[test]
fn mapping_is_endpoint_independent() {
    for proto in [UDP, TCP] {
        let mut nat = nat(pool(4));
        let first = open(&mut nat, proto, (host(1), 5000), (remote(1), 53)).unwrap();
        for (n, port) in [(1, 80), (2, 53), (3, 4000)] {
            assert_eq!(open(&mut nat, proto, (host(1), 5000), (remote(n), port)), Ok(first));
        }
        assert_eq!(nat.mappings(), 1);
    }
    let mut nat = nat(pool(4));
    let echo = open(&mut nat, ICMP, (host(1), 777), (remote(1), ECHO)).unwrap();
    let timestamp = open(&mut nat, ICMP, (host(1), 777), (remote(2), 13)).unwrap();
    assert_eq!(echo, timestamp);
}

/// A mapping lives as long as its sessions, so their timeouts satisfy RFC 4787 REQ-5.
#[test]
fn a_mapping_lives_as_long_as_any_session_of_its_inside() {
    let mut nat = nat(pool(1));
    let (one, two) = (key(UDP, (host(1), 5000), (remote(1), 53)), key(UDP, (host(1), 5000), (remote(2), 53)));
    let mapped = nat.map(&one, P, inside(), 0).unwrap();
    nat.map(&two, P, inside(), 0).unwrap();
    nat.release(mapped.id, &one, 0);
    assert_eq!(nat.map(&one, P, inside(), 0), Ok(mapped), "the other session still holds it");
    nat.release(mapped.id, &one, 0);
    nat.release(mapped.id, &two, 0);
    assert_eq!((nat.mappings(), nat.usage()[0].hosts, nat.usage()[0].ports), (0, 0, [0; 3]));
    assert_eq!(nat.map_inbound(&key(UDP, (remote(1), 53), outside(&mapped))), Err(InboundError::Unmapped));
}

/// RFC 4787 REQ-2, RFC 7857 section 4: one external address for all sessions of a host, over all protocols.
#[test]
fn a_host_keeps_its_external_address() {
    let mut nat = nat(pool(16));
    let mut used = HashSet::new();
    for h in 0..200 {
        let addresses: HashSet<_> = (0..30u16)
            .map(|n| {
                let to = (remote(n), if n % 3 == 2 { ECHO } else { 80 });
                outside(
                    &open(&mut nat, [UDP, TCP, ICMP][usize::from(n % 3)], (host(h), 2000 + n), to).unwrap(),
                )
                .0
            })
            .collect();
        assert_eq!(addresses.len(), 1);
        used.extend(addresses);
    }
    assert_eq!(used.len(), 16, "hosts are spread over the pool");
}

/// RFC 7857 section 4: a host whose external address has no ports left is refused, and gets no other address.
#[test]
fn a_host_whose_address_is_used_up_gets_no_other() {
    let mut nat = nat(pool(2).with_ports(2000, 2009).unwrap());
    let (a, _) = outside(&open(&mut nat, UDP, (host(1), 2000), (remote(1), 53)).unwrap());
    let mut others = vec![];
    for h in 2..100 {
        let fresh = open(&mut nat, UDP, (host(h), 2000), (remote(1), 53)).map(|mapped| outside(&mapped).0);
        others.extend(fresh);
    }
    assert_eq!(others.iter().filter(|&&address| address == a).count(), 9);
    assert_eq!(others.len(), 19, "new hosts fill both addresses");
    assert_eq!(open(&mut nat, UDP, (host(1), 2001), (remote(1), 53)), Err(NatError::Exhausted));
    assert!(open(&mut nat, TCP, (host(1), 2001), (remote(1), 53)).is_ok(), "TCP has ports of its own");
}

/// RFC 4787 REQ-3, RFC 5382 REQ-7: no two internal endpoints share an external endpoint, even with the same
/// source port and destination; 64,000 hosts over one address.
#[test]
fn sixty_four_thousand_hosts_with_the_same_port_share_an_address() {
    for proto in [UDP, TCP] {
        let mut nat = nat(pool(1));
        let mut seen = HashSet::new();
        for h in 0..64_000 {
            let mapped = open(&mut nat, proto, (host(h), 40_000), (remote(1), 443)).unwrap();
            assert!(seen.insert(outside(&mapped)));
        }
        let rest =
            (64_000..65_000).filter(|&h| open(&mut nat, proto, (host(h), 40_000), (remote(1), 443)).is_ok());
        assert_eq!(rest.count(), 64_512 - 64_000, "1024-65535 are all given out");
        assert!(
            open(&mut nat, proto, (host(65_001), 500), (remote(1), 443)).is_ok(),
            "low ports are kept for low ones"
        );
    }
}

/// RFC 4787 section 4.2.1, port preservation, if the port is free.
#[test]
fn ports_are_preserved_where_they_are_free() {
    let mut nat = nat(pool(1));
    for port in [1, 123, 1023, 1024, 5060, 65535] {
        assert_eq!(outside(&open(&mut nat, UDP, (host(1), port), (remote(1), 53)).unwrap()).1, port);
        assert_ne!(outside(&open(&mut nat, UDP, (host(2), port), (remote(1), 53)).unwrap()).1, port);
        assert_eq!(outside(&open(&mut nat, TCP, (host(2), port), (remote(1), 53)).unwrap()).1, port);
    }
}

/// RFC 4787 REQ-3 a: ports below 1024 for such ports, other ports for others.
#[test]
fn low_ports_map_to_low_ports() {
    let mut nat = nat(pool(1));
    for h in 0..1000 {
        let low = outside(&open(&mut nat, UDP, (host(h), 500), (remote(1), 500)).unwrap()).1;
        let high = outside(&open(&mut nat, UDP, (host(h), 4500), (remote(1), 4500)).unwrap()).1;
        assert!(low < 1024 && high >= 1024, "{low} {high}");
    }
    // When the low ports are used up, a high port is better than none.
    let ports: Vec<_> =
        (1000..1100).map(|h| open(&mut nat, UDP, (host(h), 500), (remote(1), 500)).unwrap()).collect();
    assert_eq!(ports.iter().filter(|mapped| outside(mapped).1 < 1024).count(), 23);
}

/// RFC 4787 REQ-4: parity is preserved while ports of that parity are left.
#[test]
fn port_parity_is_kept() {
    let mut nat = nat(pool(1).with_ports(30_000, 30_099).unwrap());
    for n in 0..50 {
        assert_eq!(outside(&open(&mut nat, UDP, (host(n), 40_000), (remote(1), 53)).unwrap()).1 % 2, 0);
    }
    for n in 0..50 {
        assert_eq!(outside(&open(&mut nat, UDP, (host(n), 40_001), (remote(1), 53)).unwrap()).1 % 2, 1);
    }
    let mut nat = self::nat(pool(1).with_ports(30_000, 30_009).unwrap());
    let given =
        (0..10).map(|n| outside(&open(&mut nat, UDP, (host(n), 40_000), (remote(1), 53)).unwrap()).1 % 2);
    assert_eq!(
        given.collect::<Vec<_>>(),
        [0, 0, 0, 0, 0, 1, 1, 1, 1, 1],
        "better the other parity than none"
    );
}

/// RFC 4787 section 4.2.3: the ports of RTP and RTCP stay adjacent if possible.
#[test]
fn rtp_pairs_stay_together() {
    let mut nat = nat(pool(1));
    for h in 0..50 {
        let rtp = outside(&open(&mut nat, UDP, (host(h), 6000), (remote(1), 7000)).unwrap()).1;
        let rtcp = outside(&open(&mut nat, UDP, (host(h), 6001), (remote(1), 7001)).unwrap()).1;
        assert_eq!((rtp % 2, rtcp), (0, rtp + 1));
    }
}

/// The results for packets from several remote endpoints to the external endpoint of a UDP session that
/// `host(1):5000` has with `remote(1):53`.
fn filtering(kind: Filtering) -> [Result<(), InboundError>; 3] {
    let mut nat = nat(pool(1).with_filtering(kind));
    let to = outside(&open(&mut nat, UDP, (host(1), 5000), (remote(1), 53)).unwrap());
    [(remote(1), 53), (remote(1), 54), (remote(2), 53)].map(|from| {
        nat.map_inbound(&key(UDP, from, to)).map(|arrived| {
            assert_eq!((arrived.address, arrived.port), (host(1).octets(), 5000u16.to_be_bytes()));
            assert_eq!(arrived.location, Some(inside()));
        })
    })
}

/// RFC 4787 REQ-8, RFC 5382 REQ-3. The first remote endpoint is found by its session, before the filtering.
#[test]
fn the_pool_determines_filtering() {
    use InboundError::Filtered;
    assert_eq!(filtering(Filtering::EndpointIndependent), [Ok(()), Ok(()), Ok(())]);
    assert_eq!(filtering(Filtering::AddressDependent), [Ok(()), Ok(()), Err(Filtered)]);
    assert_eq!(filtering(Filtering::AddressAndPortDependent), [Err(Filtered), Err(Filtered), Err(Filtered)]);
    assert_eq!(Filtering::default(), Filtering::AddressDependent);
}

/// RFC 7857 sections 5 and 6: a mapping of one protocol is not a mapping of another, and admits nothing of
/// it.
#[test]
fn mappings_and_filters_are_separate_for_each_protocol() {
    let mut nat = nat(pool(1).with_filtering(Filtering::EndpointIndependent));
    let udp = open(&mut nat, UDP, (host(1), 5000), (remote(1), 53)).unwrap();
    let to = outside(&udp);
    for (proto, port) in [(TCP, 53), (ICMP, ECHO)] {
        assert_eq!(nat.map_inbound(&key(proto, (remote(1), port), to)), Err(InboundError::Unmapped));
        let port = if proto == ICMP { ECHO } else { 53 };
        let other = open(&mut nat, proto, (host(2), 5000), (remote(1), port)).unwrap();
        assert_eq!(outside(&other), to, "each has all the ports");
    }
}

/// RFC 7857 section 9, RFC 6056 section 4: ports that are not preserved cannot be predicted from one another.
#[test]
fn ports_that_must_change_are_random() {
    let ports = |seed| {
        let mut nat = Nat::new(config(&[pool(1)], &[]), ROOM, seed).unwrap();
        (0..200)
            .map(|h| outside(&open(&mut nat, UDP, (host(h), 5000), (remote(1), 53)).unwrap()).1)
            .collect::<Vec<_>>()
    };
    let (one, two) = (ports(1), ports(2));
    let near = one.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 64).count();
    let up = one.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!(near < 10 && (70..130).contains(&up), "{near} {up}");
    assert!(one.iter().zip(&two).filter(|(a, b)| a == b).count() < 10);
}

/// Address-dependent filtering of an internal endpoint with many remote addresses: each is admitted while a
/// session with it exists.
#[test]
fn filtering_follows_the_sessions() {
    let mut nat = nat(pool(1));
    let out = |n| key(UDP, (host(1), 5000), (remote(n), 53));
    let all: Vec<_> = (1..=5).map(|n| nat.map(&out(n), P, inside(), 0).unwrap()).collect();
    let mapped = all[0];
    let from = |n| key(UDP, (remote(n), 99), outside(&mapped));
    for n in [3, 1, 5] {
        let arrived = nat.map_inbound(&from(n)).unwrap();
        nat.release(mapped.id, &out(n), 0);
        assert!(nat.map_inbound(&from(n)).is_ok(), "the session from outside counts too");
        nat.release(arrived.id, &from(n), 0);
        nat.release(arrived.id, &from(n), 0);
        assert_eq!(nat.map_inbound(&from(n)), Err(InboundError::Filtered));
    }
    assert!(nat.map_inbound(&from(2)).is_ok() && nat.map_inbound(&from(4)).is_ok());
    assert_eq!(nat.map_inbound(&from(6)), Err(InboundError::Filtered));
}

/// RFC 5508 REQ-1: identifiers are translated like ports, and queries from outside are not admitted.
#[test]
fn icmp_queries_are_mapped_by_identifier() {
    let mut nat = nat(pool(1).with_filtering(Filtering::EndpointIndependent));
    let (one, two) = ((host(1), 4242), (host(2), 4242));
    let first = open(&mut nat, ICMP, one, (remote(1), ECHO)).unwrap();
    let second = open(&mut nat, ICMP, two, (remote(1), ECHO)).unwrap();
    assert_eq!(outside(&first), (outer(1), 4242));
    assert_ne!(outside(&first), outside(&second));
    let reply = nat.map_inbound(&key(ICMP, (remote(9), ECHO), outside(&second))).unwrap();
    assert_eq!((reply.address, reply.port), (host(2).octets(), 4242u16.to_be_bytes()));
    // A query to an address of the pool, with an identifier that is mapped or equals a type.
    for identifier in [4242, ECHO, 13] {
        assert_eq!(
            nat.map_inbound(&key(ICMP, (remote(9), identifier), (outer(1), ECHO))),
            Err(InboundError::Unmapped)
        );
    }
    // A reply without a query, and a type that is neither.
    assert_eq!(open(&mut nat, ICMP, (host(1), ECHO), (remote(1), 4242)), Err(NatError::Unsupported));
    assert_eq!(open(&mut nat, ICMP, (host(1), 0), (remote(1), 0)), Err(NatError::Unsupported));
}

/// Identifiers that could be confused with a type are never allocated, not even to a host that uses one.
#[test]
fn icmp_identifiers_are_never_type_numbers() {
    let mut nat = nat(pool(1));
    for h in 0..2000 {
        for identifier in [8, 13, 15, 17] {
            let mapped = open(&mut nat, ICMP, (host(h), identifier), (remote(1), ECHO)).unwrap();
            assert!(outside(&mapped).1 >= 32);
        }
    }
}

/// RFC 5508 REQ-8: exhaustion has its own error, is counted, and is reported once per second.
#[test]
fn exhaustion_is_counted_and_reported_once_a_second() {
    let mut nat = nat(pool(1).with_ports(2000, 2003).unwrap());
    let session = |h| key(UDP, (host(h), 2000), (remote(1), 53));
    let held: Vec<_> = (0..4).map(|h| nat.map(&session(h), P, inside(), 0).unwrap()).collect();
    for now in [0, 10, 999, 1000, 1500] {
        assert_eq!(nat.map(&session(9), P, inside(), now), Err(NatError::Exhausted));
    }
    let events: Vec<_> = std::iter::from_fn(|| nat.event()).collect();
    let told =
        |at| NatEvent { at, pool: "p".into(), host: host(9), what: NatEventKind::Exhausted(PortProto::Udp) };
    assert_eq!(events, [told(0), told(1000)]);
    let usage = &nat.usage()[0];
    assert_eq!((usage.exhausted, usage.ports, usage.ports_total, usage.hosts), (5, [4, 0, 0], 4, 4));
    nat.release(held[2].id, &session(2), 0);
    assert_eq!(nat.map(&session(9), P, inside(), 2000).map(|m| outside(&m)), Ok(outside(&held[2])));
}

/// A host has at most as many sessions as its limit, whatever others have. Sessions from outside do not
/// count.
#[test]
fn the_limit_applies_to_each_host() {
    let mut nat = nat(pool(1).with_limit(3).unwrap().with_filtering(Filtering::EndpointIndependent));
    let session = |h, n| key(TCP, (host(h), 5000 + n % 2), (remote(n), 80));
    let mapped: Vec<_> = (0..3).map(|n| nat.map(&session(1, n), P, inside(), 0).unwrap()).collect();
    assert_eq!(nat.map(&session(1, 3), P, inside(), 0), Err(NatError::Limit));
    assert_eq!(nat.map(&key(TCP, (host(1), 7777), (remote(1), 80)), P, inside(), 0), Err(NatError::Limit));
    assert!(nat.map(&session(2, 0), P, inside(), 0).is_ok());
    let from_outside = key(TCP, (remote(7), 7), outside(&mapped[0]));
    let arrived = nat.map_inbound(&from_outside).unwrap();
    nat.release(arrived.id, &from_outside, 0);
    assert_eq!(nat.map(&session(1, 3), P, inside(), 0), Err(NatError::Limit));
    nat.release(mapped[1].id, &session(1, 1), 0);
    assert!(nat.map(&session(1, 3), P, inside(), 0).is_ok());
    assert_eq!((nat.usage()[0].limited, nat.usage()[0].sessions), (3, 4));
}

/// A host and one of its blocks.
type Owned = (Ipv4Addr, PortBlock);

/// The blocks that were allocated and freed since the last call.
fn blocks(nat: &mut Nat) -> (Vec<Owned>, Vec<Owned>) {
    let (mut taken, mut freed) = (vec![], vec![]);
    while let Some(event) = nat.event() {
        match event.what {
            NatEventKind::BlockAllocated(block) => taken.push((event.host, block)),
            NatEventKind::BlockFreed(block) => freed.push((event.host, block)),
            NatEventKind::Exhausted(_) => panic!("{event:?}"),
        }
    }
    (taken, freed)
}

/// One event when a host gets a block, for any number of mappings, and one when it loses it.
#[test]
fn block_allocation_and_release_are_each_reported_once() {
    let mut nat = nat(pool(2).with_block(100).unwrap());
    let session =
        |h, n: u16| key(if n.is_multiple_of(2) { UDP } else { TCP }, (host(h), 40_000 + n), (remote(1), 80));
    let mut held = HashMap::new();
    for h in 0..50 {
        for n in 0..150 {
            let mapped = nat.map(&session(h, n), P, inside(), 7).unwrap();
            held.insert((h, n), mapped);
        }
    }
    let (taken, freed) = blocks(&mut nat);
    assert_eq!(freed, []);
    for h in 0..50 {
        let mine: Vec<_> =
            taken.iter().filter(|(owner, _)| *owner == host(h)).map(|(_, block)| *block).collect();
        assert_eq!(mine.len(), 1, "75 ports of each protocol fit into a block of 100");
        let PortBlock { address, ports: (first, last) } = mine[0];
        assert!(last - first == 99 && first >= 1024, "{first}-{last}");
        for n in 0..150 {
            let (at, port) = outside(&held[&(h, n)]);
            assert!(at == address && (first..=last).contains(&port));
        }
    }
    let distinct: HashSet<_> = taken.iter().map(|(_, block)| (block.address, block.ports)).collect();
    assert_eq!(distinct.len(), 50, "nobody shares a block");
    assert_eq!((nat.usage()[0].blocks, nat.usage()[0].blocks_total), (50, 2 * 645));
    for ((h, n), mapped) in &held {
        nat.release(mapped.id, &session(*h, *n), 9);
    }
    let (mut ours, mut theirs) = (taken, blocks(&mut nat).1);
    ours.sort_by_key(|(host, _)| *host);
    theirs.sort_by_key(|(host, _)| *host);
    assert_eq!(ours, theirs);
    assert_eq!((nat.usage()[0].blocks, nat.mappings()), (0, 0));
}

/// A host gets more blocks as needed, and continues with its blocks when none is left.
#[test]
fn a_host_gets_more_blocks_as_needed() {
    let mut nat = nat(pool(1).with_ports(2000, 2039).unwrap().with_block(10).unwrap());
    for n in 0..35 {
        open(&mut nat, UDP, (host(1), 3000 + n), (remote(1), 80)).unwrap();
    }
    assert_eq!(nat.usage()[0].blocks, 4);
    assert_eq!(open(&mut nat, UDP, (host(2), 3000), (remote(1), 80)), Err(NatError::Exhausted));
    for n in 35..40 {
        open(&mut nat, UDP, (host(1), 3000 + n), (remote(1), 80)).unwrap();
    }
    assert_eq!(open(&mut nat, UDP, (host(1), 3100), (remote(1), 80)), Err(NatError::Exhausted));
    assert!(open(&mut nat, TCP, (host(1), 3100), (remote(1), 80)).is_ok());
}

/// Protocols without ports get an address. Packets from outside without a session are not admitted.
#[test]
fn protocols_without_ports_get_an_address() {
    const GRE: u8 = 47;
    let mut nat = nat(pool(4).with_filtering(Filtering::EndpointIndependent));
    let session = key(GRE, (host(1), 0), (remote(1), 0));
    let mapped = nat.map(&session, P, inside(), 0).unwrap();
    let tcp = open(&mut nat, TCP, (host(1), 99), (remote(1), 80)).unwrap();
    assert_eq!(outside(&mapped), (outside(&tcp).0, 0));
    assert_eq!(nat.map(&key(GRE, (host(1), 0), (remote(2), 0)), P, inside(), 0), Ok(mapped));
    assert_eq!(nat.map_inbound(&key(GRE, (remote(1), 0), outside(&mapped))), Err(InboundError::Unmapped));
}
