use super::*;

fn ports(low: u128, high: u128) -> Filter {
    Filter::of(FieldId::TcpDport, Values::range(low, high)).unwrap()
}

fn from(name: &str) -> Filter {
    Filter::of(FieldId::In, Values::name(name)).unwrap()
}

#[test]
fn a_field_requires_its_header() {
    let udp = Filter::of(FieldId::UdpDport, Values::one(53)).unwrap();
    assert_eq!(udp.values(FieldId::IpProto), Some(&Values::one(UDP)));
    assert_eq!(udp.intersection(&ports(53, 53)), None);
    let v4 = Filter::of(FieldId::IpTtl, Values::one(1)).unwrap();
    assert_eq!(v4.and(FieldId::Icmp6Type, &Values::one(1)), None);
}

#[test]
fn the_difference_is_exact() {
    assert_eq!(ports(80, 90).minus(&ports(1, 79)), [ports(80, 90)]);
    assert_eq!(ports(80, 90).minus(&ports(1, 100)), []);
    let both = ports(85, 100).intersection(&from("a")).unwrap();
    let parts = ports(80, 90).minus(&both);
    assert_eq!(parts.len(), 2);
    assert!(parts.iter().all(|part| part.excluded().len() == 1));
    // No part intersects the other filter.
    assert!(parts.iter().all(|part| part.intersection(&both).is_none_or(|i| !i.excluded().is_empty())));
    // Two excluded terms that cover all values leave no packet.
    let high = Filter::of(FieldId::IpTtl, Values::range(9, 255)).unwrap();
    let low = Filter::of(FieldId::IpTtl, Values::range(0, 8)).unwrap();
    let v4 = Filter::of(FieldId::NetProto, Values::one(IP4)).unwrap();
    assert_eq!(v4.minus(&high).iter().flat_map(|rest| rest.minus(&low)).count(), 0);
    let v6 = Filter::of(FieldId::NetProto, Values::one(IP6)).unwrap();
    assert_eq!(Filter::default().minus(&v4).iter().flat_map(|rest| rest.minus(&v6)).count(), 0);
    // Excluded terms of the other remain: 80-90 minus (80-90 minus 85) is 85.
    let hole = ports(80, 90).minus(&ports(85, 85)).remove(0);
    assert_eq!(ports(80, 90).minus(&hole), [ports(85, 85)]);
}

#[test]
fn names_form_sets() {
    let others = Values::name("a").complement(FieldId::In);
    assert_eq!(others.intersection(&Values::name("a")), Values::Names { names: [].into(), listed: true });
    assert!(from("a").and(FieldId::In, &others).is_none());
    assert_eq!(from("b").and(FieldId::In, &others), Some(from("b")));
}

/// Rules see IP packets only: all but IPv4 is IPv6, and all but both is no packet.
#[test]
fn the_ip_version_has_two_values() {
    let but = |numbers: &[u128]| {
        let listed = Values::Numbers(Intervals::of(numbers.iter().map(|number| (*number, *number))));
        let filter = Filter::of(FieldId::NetProto, listed.complement(FieldId::NetProto))?;
        filter.values(FieldId::NetProto).cloned()
    };
    assert_eq!(but(&[IP4]), Some(Values::one(IP6)));
    assert_eq!(but(&[IP6]), Some(Values::one(IP4)));
    assert_eq!(but(&[IP4, IP6]), None);
    assert_eq!(but(&[0x806]), Some(Values::Numbers(Intervals::of([(IP4, IP4), (IP6, IP6)]))));
}
