//! What the fast path is told about sessions of `http-lb` is what the engine does to each of their segments.

use mmb_flow::{SessionSettings, TcpSegment};
use mmb_nf::testing::parsed;
use mmb_session::{AddedNumbers, OffloadSource, OffloadState};
use proptest::prelude::*;

use crate::common::{IN, Net};
use crate::hosts::*;
use crate::world::World;
use crate::{REQUEST, offer, plain};

/// The numbers of a segment: sequence and acknowledgment, window, timestamps.
type Numbers = (u32, u32, u16, Option<(u32, u32)>);

pub fn numbers(frame: &[u8]) -> Numbers {
    let Came { segment: TcpSegment { seq, ack, window, .. }, stamps, .. } = Came::read(frame);
    (seq, ack, window, stamps)
}

/// The numbers with which the fast path forwards a segment. None: it leaves the segment to the engine.
pub fn forwarded(net: &Net, port: u16, frame: &[u8]) -> Option<Numbers> {
    let meta = parsed(frame);
    let (seq, ack, window, stamps) = numbers(frame);
    if TcpSegment::read(frame, &meta)?.flags & (SYN | ACK | FIN | RST) != ACK {
        return None;
    }
    net.harness.workers().iter().find_map(|sessions| {
        let candidate = sessions.offload_candidate(frame, &meta)?;
        let state = sessions.offload_state(candidate, port);
        if !matches!(state, OffloadState::Eligible { .. }) {
            return None;
        }
        let AddedNumbers { sequence, acknowledgment, timestamp, echo, window_shift } =
            sessions.added_numbers(candidate);
        let scaled = f64::from(window) * 2f64.powi(window_shift.into());
        let stamps = stamps.map(|(value, echoed)| (value.wrapping_add(timestamp), echoed.wrapping_add(echo)));
        Some((
            seq.wrapping_add(sequence),
            ack.wrapping_add(acknowledgment),
            scaled.min(65_535.0) as u16,
            stamps,
        ))
    })
}

/// A world whose segments are compared with what the fast path makes of them.
fn world(chain: &str, workers: u16, is_ip6: bool, offers: (Offer, Offer)) -> World {
    let settings = SessionSettings::default();
    let world = World::with_settings(chain, "", (workers, settings), is_ip6, offers);
    World { forwarded: Some(0), ..world }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever both ends offer, and whatever is lost: sequence numbers, timestamps and windows.
    #[test]
    fn the_fast_path_does_what_the_engine_does(
        offers in (offer(), offer()),
        (workers, chain) in (1..3u16, 0..3usize),
        (body, response) in (0..20_000usize, 20_000..40_000usize),
        losses in prop::collection::vec(prop::bool::weighted(0.1), 0..60),
    ) {
        let server = Offer { clock: Some(offers.1.clock.unwrap_or(7)), ..offers.1 };
        // Functions that translate sources accept IPv4 alone.
        let (chain, is_ip6) = [("l", true), ("l | n", false), ("n | l", false)][chain];
        let mut world = world(chain, workers, is_ip6, (offers.0, server));
        let head = format!("POST /static HTTP/1.1\r\nHost: b\r\nContent-Length: {body}\r\n\r\n");
        let request = [head.into_bytes(), vec![b'b'; body]].concat();
        let answer: Vec<u8> = (0..response).map(|at| ((at * 31) >> 3) as u8).collect();
        (world.response, world.losses) = (answer.clone(), losses);
        world.request(&request, &[]);
        world.run(answer.len(), 200);
        world.settle();
        prop_assert_eq!(world.served()[0].1, &request[..]);
        prop_assert_eq!(&world.client.received, &answer);
        prop_assert!(world.forwarded.unwrap_or(0) > 10, "{:?}", world.forwarded);
    }
}

/// A function that counts has to see all packets.
#[test]
fn other_functions_keep_the_session() {
    let mut world = world("c | l", 1, false, (plain(1000), plain(0xffff_fff0)));
    world.response = vec![b'r'; 50_000];
    world.request(REQUEST, &[]);
    world.run(50_000, 10);
    assert_eq!((world.client.received.len(), world.forwarded), (50_000, Some(0)));
}

/// Bytes of the request that the server has not acknowledged are the function's to repeat.
#[test]
fn nothing_is_forwarded_before_the_server_has_the_request() {
    let mut world = world("l", 1, false, (plain(1000), plain(0xffff_fff0)));
    world.silent = [11, 12, 13, 14].map(|host| crate::address(false, host)).into();
    world.request(REQUEST, &[]);
    world.run(1, 3);
    assert_eq!(world.forwarded, Some(0));
    assert!(world.net.view().state != "established");
    let frame = world.client.repeat(world.net.now.wrapping_add(60_000)).into_iter().next().expect("it waits");
    assert_eq!(forwarded(&world.net, IN, &frame), None);
}
