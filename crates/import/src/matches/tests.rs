//! Tests of the parent module.

use super::*;

fn filter(terms: &[(FieldId, Values)]) -> Filter {
    let and = |filter: Filter, (field, values): &(FieldId, Values)| filter.and(*field, values);
    terms.iter().try_fold(Filter::default(), and).unwrap()
}

fn words(terms: &[(FieldId, Values)]) -> Vec<String> {
    matches(&filter(terms)).unwrap()
}

const ANY: (FieldId, fn(u128) -> Values) = (FieldId::NetProto, Values::one);

#[test]
fn intervals_of_addresses_are_subnets_where_possible() {
    let v4 = |low: u32, high: u32| words(&[(FieldId::IpSaddr, Values::range(low.into(), high.into()))]);
    assert_eq!(v4(0x0a000000, 0x0affffff), ["ip-saddr 10.0.0.0/8"]);
    assert_eq!(v4(0x0a000001, 0x0a000001), ["ip-saddr 10.0.0.1"]);
    assert_eq!(v4(0x0a000001, 0x0a000002), ["ip-saddr 10.0.0.1-10.0.0.2"]);
    assert_eq!(v4(0, u32::MAX), ["ip-saddr"]);
    assert_eq!(v4(1, u32::MAX), ["ip-saddr 0.0.0.1-255.255.255.255"]);
    let half = Values::range(1 << 127, u128::MAX);
    assert_eq!(words(&[(FieldId::Ip6Daddr, half.clone())]), ["ip6-daddr 8000::/1"]);
    assert_eq!(words(&[(FieldId::Ip6Daddr, Values::range(1, u128::MAX))]).len(), 1);
}

#[test]
fn the_ip_version_is_written_once() {
    assert_eq!(words(&[(FieldId::TcpDport, Values::one(80))]), ["tcp-dport 80"]);
    let v4 = (ANY.0, ANY.1(IP4));
    let v6 = (ANY.0, ANY.1(IP6));
    let port = (FieldId::TcpDport, Values::one(80));
    assert_eq!(words(&[v4.clone(), port.clone()]), ["ip-proto 6 tcp-dport 80"]);
    assert_eq!(words(&[v6.clone(), port]), ["net-proto ip6 tcp-dport 80"]);
    assert_eq!(words(std::slice::from_ref(&v4)), ["net-proto ip"]);
    assert_eq!(words(&[]), ["all"]);
    assert_eq!(words(&[(FieldId::IpProto, Values::one(TCP))]), ["ip-proto 6", "net-proto ip6 tcp-sport"]);
    assert_eq!(words(&[v4, (FieldId::IpProto, Values::one(TCP))]), ["ip-proto 6"]);
    let some = Values::Numbers(Intervals::of([(TCP, TCP), (47, 47)]));
    assert_eq!(words(&[v6, (FieldId::IpProto, some.clone())]), ["net-proto ip6 tcp-sport", "ip6-next 47"]);
    assert_eq!(
        words(&[(FieldId::IpProto, some)]),
        ["ip-proto {6,47}", "net-proto ip6 tcp-sport", "ip6-next 47"]
    );
}

#[test]
fn flags_and_excluded_terms() {
    let flags = [(FieldId::TcpSyn, Values::one(1)), (FieldId::TcpAck, Values::one(0))];
    assert_eq!(words(&flags), ["tcp-ack 0 tcp-syn"]);
    let web = filter(&[(FieldId::TcpDport, Values::range(80, 90))]);
    let rest = web.minus(&filter(&[(FieldId::TcpDport, Values::one(85))]));
    assert_eq!(matches(&rest[0]).unwrap(), ["tcp-dport 80-90 ! tcp-dport 85"]);
    let above = rest[0].clone().and(FieldId::TcpDport, &Values::range(86, 99)).unwrap();
    assert_eq!(matches(&above).unwrap(), ["tcp-dport 86-90"]);
    let lan = Values::Names { names: ["a".into(), "b".into()].into(), listed: false };
    assert_eq!(words(&[(FieldId::In, lan)]), ["in != {a,b}"]);
}

/// Fragments other than the first have no transport header. Over IPv4 they have the protocol.
#[test]
fn the_protocol_needs_no_header() {
    let (v4, v6) = ((ANY.0, ANY.1(IP4)), (ANY.0, ANY.1(IP6)));
    let udp = filter(&[(FieldId::IpProto, Values::one(UDP))]);
    let without = |terms: &[(FieldId, Values)]| filter(terms).minus(&udp).remove(0);
    assert_eq!(matches(&without(&[])).unwrap(), ["! ip-proto 17 ! udp-sport"]);
    assert_eq!(matches(&without(std::slice::from_ref(&v4))).unwrap(), ["net-proto ip ! ip-proto 17"]);
    assert_eq!(matches(&without(std::slice::from_ref(&v6))).unwrap(), ["net-proto ip6 ! udp-sport"]);
    assert!(misses_fragments(&udp) && misses_fragments(&without(&[])));
    assert!(!misses_fragments(&without(&[v4])) && misses_fragments(&without(&[v6])));
    // IPv6 packets of UDP without a header are no packets that a rule can match.
    let header = filter(&[(FieldId::UdpSport, Values::range(0, 65_535))]);
    let headless = |version: u128| {
        let udp = udp.clone().and(FieldId::NetProto, &Values::one(version)).unwrap();
        matches(&udp.minus(&header)[0]).unwrap()
    };
    assert_eq!(headless(IP4), ["ip-proto 17 ! udp-sport"]);
    assert!(headless(IP6).is_empty());
    // These have a header in the source, too.
    let port = filter(&[(FieldId::UdpDport, Values::one(53))]);
    assert!(!misses_fragments(&port) && !misses_fragments(&filter(&[]).minus(&port)[0]));
    let member = |is_in| Member { field: FieldId::UdpDport, port: None, set: "p".into(), is_in };
    for (is_in, expected) in [(true, "udp-dport @p"), (false, "udp-dport ! udp-dport @p")] {
        let listed = Filter::default().and_member(member(is_in)).unwrap();
        assert_eq!(matches(&listed).unwrap(), [expected]);
        assert!(!misses_fragments(&listed));
    }
}
