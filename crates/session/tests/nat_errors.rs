//! ICMP errors and the life of the sessions that they are about.

mod common;

use common::*;
use mmb_packet::DropReason;

const CLIENT: End = ([10, 0, 0, 1], 40_000);
const SERVER: End = ([192, 0, 2, 7], 53);
const NAT: [u8; 4] = [200, 0, 0, 1];

/// RFC 5508 REQ-6, RFC 4787 REQ-12, RFC 7857 section 7.1: errors from either side, about queries and
/// datagrams, neither end a session nor put its end off.
#[test]
fn errors_do_not_keep_sessions_alive() {
    let mut net = Net::new(&["nat pool add p 200.0.0.1", "add-stateful ip-saddr 10.0.0.0/8 nat p"]);
    let shown: End = (NAT, CLIENT.1);
    net.becomes(IN, &udp(CLIENT, SERVER), &udp(shown, SERVER));
    net.becomes(OUT, &udp(SERVER, shown), &udp(SERVER, CLIENT));
    net.becomes(IN, &ping(CLIENT.0, SERVER.0, 77), &ping(NAT, SERVER.0, 77));
    let router = [198, 51, 100, 1];
    let about_datagram = error(11, 0, router, NAT, &udp(shown, SERVER));
    let about_query = error(11, 0, router, NAT, &ping(NAT, SERVER.0, 77));
    let from_inside = error(3, 3, CLIENT.0, SERVER.0, &udp(SERVER, CLIENT));
    for _ in 0..2 {
        net.wait(29_000);
        net.becomes(OUT, &about_datagram, &error(11, 0, router, CLIENT.0, &udp(CLIENT, SERVER)));
        net.becomes(OUT, &about_query, &error(11, 0, router, CLIENT.0, &ping(CLIENT.0, SERVER.0, 77)));
        net.becomes(IN, &from_inside, &error(3, 3, NAT, SERVER.0, &udp(SERVER, shown)));
        assert_eq!(net.views().len(), 2, "errors end nothing");
    }
    // A query's session goes a minute after the query, whatever was said about it two seconds before.
    net.wait(2_200);
    assert_eq!(net.views().len(), 1);
    net.drops(OUT, &about_query, DropReason::IcmpQuote);
    net.wait(239_000);
    net.becomes(IN, &from_inside, &error(3, 3, NAT, SERVER.0, &udp(SERVER, shown)));
    net.becomes(OUT, &about_datagram, &error(11, 0, router, CLIENT.0, &udp(CLIENT, SERVER)));
    net.wait(1_000);
    assert_eq!(net.views(), vec![], "five minutes after the last packet");
    net.drops(OUT, &about_datagram, DropReason::IcmpQuote);
}
