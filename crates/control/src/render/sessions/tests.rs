use super::*;
use crate::api::{ForwardEntry, PoolEntry};

fn side(source: &str, sport: Option<u16>, destination: &str, dport: Option<u16>, n: u64) -> FlowEntry {
    FlowEntry {
        source: source.parse().unwrap(),
        source_port: sport,
        destination: destination.parse().unwrap(),
        destination_port: dport,
        in_: (n > 0).then(|| "left".to_owned()),
        packets: n,
        bytes: 60 * n,
    }
}

fn connection(forward: FlowEntry, reverse: FlowEntry) -> ConnectionEntry {
    ConnectionEntry {
        protocol: "tcp".into(),
        state: "established".into(),
        forward,
        reverse,
        translated: true,
        age_seconds: 3,
        idle_seconds: 1,
        expires_seconds: 7439,
        rules: vec![1, 12],
        chain: None,
        refused: None,
        functions: Default::default(),
        id: "0.0.1".to_owned(),
        worker: 0,
        uid: 1,
    }
}

#[test]
fn connections_have_both_directions_as_received() {
    let mut columns = ConnectionColumns::new(false);
    assert_eq!(columns.flush(), "");
    columns.row(&connection(
        side("10.0.0.1", Some(4000), "192.0.2.1", Some(80), 10),
        side("192.0.2.1", Some(80), "198.51.100.1", Some(4000), 8),
    ));
    let text = columns.flush();
    let line = "tcp       established  10.0.0.1:4000 > 192.0.2.1:80  192.0.2.1:80 > 198.51.100.1:4000   3s    7439s  \
                10/8     600/480  1,12";
    assert_eq!(text.lines().nth(1), Some(line), "{text}");
    let six = ("2001:db8::1", "2001:db8::2");
    columns.row(&connection(side(six.0, Some(1), six.1, Some(2), 1), side(six.1, None, six.0, None, 0)));
    let text = columns.flush();
    assert!(text.contains("[2001:db8::1]:1 > [2001:db8::2]:2  2001:db8::2 > 2001:db8::1  "), "{text}");
    assert_eq!(text.lines().count(), 1);
    let mut chained = connection(side(six.0, Some(1), six.1, Some(2), 1), side(six.1, None, six.0, None, 0));
    chained.chain = Some("web".to_owned());
    columns.row(&chained);
    assert!(columns.flush().ends_with("  1,12 (web)\n"));
    chained.refused = Some("acl".to_owned());
    columns.row(&chained);
    assert!(columns.flush().ends_with("  1,12 (web, refused: acl)\n"));
}

#[test]
fn verbose_adds_columns() {
    let mut columns = ConnectionColumns::new(true);
    let ends = ("10.0.0.1", "10.0.0.2");
    columns.row(&connection(side(ends.0, None, ends.1, None, 1), side(ends.1, None, ends.0, None, 0)));
    let text = columns.flush();
    let heads: Vec<_> = text.lines().next().unwrap_or_default().split_whitespace().collect();
    let cells: Vec<_> = text.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    // `A > B` are three words, twice.
    assert_eq!((heads.len(), cells.len()), (15, 19), "{text}");
    assert!(cells.contains(&"left/-") && cells.contains(&"yes"), "{text}");
}

#[test]
fn nat_shows_pools_and_forwards() {
    assert!(nat(&NatReply::default()).starts_with("no NAT pools"));
    let pool = PoolEntry {
        name: "p".to_owned(),
        addresses: ["192.0.2.1".to_owned(), "192.0.2.4".to_owned()],
        ports: [1024, 65535],
        block: Some(64),
        ports_used: [("tcp".to_owned(), 7)].into_iter().collect(),
        ports_total: 258_048,
        blocks_used: 3,
        blocks_total: 4032,
        filtering: "address-dependent".to_owned(),
        ..PoolEntry::default()
    };
    let forward = ForwardEntry {
        protocol: "tcp".to_owned(),
        outside: "192.0.2.1".to_owned(),
        outside_port: 80,
        inside: "10.0.0.1".to_owned(),
        inside_port: 8080,
    };
    let text = nat(&NatReply { pools: vec![pool], forwards: vec![forward] });
    assert!(text.contains("192.0.2.1-192.0.2.4") && text.contains("3/4032 of 64"), "{text}");
    assert!(text.ends_with("tcp      192.0.2.1:80  10.0.0.1:8080\n"), "{text}");
}
