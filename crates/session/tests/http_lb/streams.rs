//! Stream functions beside `http-lb`: they read and edit the whole connection, the first request included.

use proptest::prelude::*;

use super::hosts::Offer;
use super::world::{World, address};
use super::{offer, plain};

/// What the functions `m` and `x` make of bytes. Their patterns have one byte: of a longer one, a part that
/// its sender repeats goes on.
fn edited(bytes: &[u8], functions: &str) -> Vec<u8> {
    let text = String::from_utf8(bytes.to_vec()).expect("text");
    // `m` comes first, and makes nothing that `x` finds.
    let text = if functions.contains('m') { text.replace('@', "three!") } else { text };
    if functions.contains('x') { text.replace('%', "").into_bytes() } else { text.into_bytes() }
}

const WORDS: [&str; 5] = ["@ ", "% ", "o. ", "plain words, ", "@@, "];

fn words() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&WORDS[..]), 0..1500).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// However a request is cut, and whatever is lost: the server gets the edited request, the client the
    /// edited response.
    #[test]
    fn both_directions_are_edited(
        offers in (offer(), offer()),
        (workers, chain, waits) in (1..4u16, 0..9usize, any::<bool>()),
        cuts in prop::collection::vec(1..400usize, 0..6),
        (fill, body, response) in (0..60usize, words(), words()),
        losses in prop::collection::vec(prop::bool::weighted(0.15), 0..60),
    ) {
        let server = Offer { clock: Some(offers.1.clock.unwrap_or(7)), ..offers.1 };
        let chains = [
            "l | w", "w | l", "l | m", "m | l", "l | m | x | w", "m | c | x | l", "n | m | l", "c | l | x | n", "l | x | m",
        ];
        let chain = chains[chain];
        let mut world = World::with_chain(chain, "", workers, false, (offers.0, server));
        let fill = "X-Fill: @ more %\r\n".repeat(fill);
        let head = format!("POST /static HTTP/1.1\r\nHost: www.A.example\r\n{fill}");
        let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes();
        let response = format!("HTTP/1.1 200 OK\r\n\r\n{response}.").into_bytes();
        let (to_server, to_client) = (edited(&request, chain), edited(&response, chain));
        world.client.waits = waits;
        world.response = response;
        world.losses = losses;
        world.request(&request, &cuts);
        world.expected = to_server.len();
        world.run(to_client.len(), 300);
        world.settle();
        prop_assert!(!world.client.was_reset);
        let served = world.served();
        prop_assert_eq!(served.len(), 1, "{:?}", served.iter().map(|one| one.0).collect::<Vec<_>>());
        prop_assert!([11, 12].iter().any(|&host| served[0].0 == address(false, host)), "{:?}", served[0].0);
        prop_assert!(served[0].1 == to_server, "{} of {} bytes", served[0].1.len(), to_server.len());
        let received = &world.client.received;
        prop_assert!(*received == to_client, "{} of {} bytes", received.len(), to_client.len());
        prop_assert_eq!(world.report("requests"), "1");
        prop_assert_eq!(world.net.view().state, "established");
    }
}

/// The request chooses the server as the client has sent it, and the response gets a header.
#[test]
fn responses_of_the_chosen_server_get_a_header() {
    for chain in ["l | h", "h | l", "m | h | l"] {
        let mut world = World::with_chain(chain, "", 1, false, (plain(1000), plain(0xffff_fff0)));
        world.response = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere".to_vec();
        let request = b"GET /@ HTTP/1.1\r\nHost: www.a.example\r\n\r\n";
        world.request(request, &[7, 20]);
        let sent = edited(request, if chain.contains('m') { "m" } else { "" });
        world.expected = sent.len();
        world.run(60, 20);
        let text = String::from_utf8_lossy(&world.client.received).into_owned();
        assert!(
            text.to_ascii_lowercase().contains("\r\nx-seen: yes\r\n") && text.ends_with("\r\nhere"),
            "{text}"
        );
        assert_eq!(world.served()[0].1, sent);
    }
}
