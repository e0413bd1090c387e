//! Every function that comes with mmb: what it does in a process is what it does in the worker.

use mmb_nf::ChainVerdict;
use mmb_nf::harness::LargeFrames;

use super::streams::{Connection, SYN, until_all};
use super::world::{World, frame};

/// Types that run in a process of their own, with arguments that have a part of the traffic changed or
/// refused.
const IN_PROCESSES: [(&str, &str); 23] = [
    ("acl", "deny udp-dport 53 allow"),
    ("acl", "deny tcp-sport 2001 allow"),
    ("count", ""),
    ("digest", "sha256"),
    ("digest", "crc32c forward"),
    ("http-edit", "request header add X-A b response body replace evil friendly"),
    ("http-filter", "block path /secret"),
    ("http-filter", "redirect https://b.example/ path /secret"),
    ("http-log", "common"),
    ("mark", "dscp ef"),
    ("match", "evil alert"),
    ("match", "evil reset"),
    ("match", "evil close"),
    ("match", "evil mask"),
    ("match", "evil remove"),
    ("match", "evil replace friendly"),
    ("match", "evil reset http-body"),
    ("monitor", ""),
    ("mss-clamp", "600"),
    ("payload-count", ""),
    ("police", "10pps burst 10"),
    ("sieve", "100"),
    ("sni", "errors pass deny a.example"),
];
/// Types whose functions `nf add` refuses in a process, with arguments and a part of the reason.
const REFUSED: [(&str, &str, &str); 9] = [
    ("count", "json file.json", "files or sockets of its own"),
    ("flow", "", "leave `process` out"),
    ("http-lb", "host www.a.example to 10.0.0.9:80", "leave `process` out"),
    ("lb", "10.0.0.9", "leave `process` out"),
    ("log", "", "files or sockets of its own"),
    ("mirror", "near", "sends frames"),
    ("nat", "wan", "leave `process` out"),
    ("split", "web: tcp-dport 80", "routes sessions before they are opened"),
    ("synproxy", "", "leave `process` out"),
];
/// Types of brokers, which run in a process with their broker.
const OF_BROKERS: [&str; 3] = ["proxy", "respond", "url-rewrite"];

fn world(kind: &str, args: &str, place: &str) -> World {
    World::new(&format!("domain add d private buffers 256\nnf add p {kind} {args} {place}\nchain add c p"))
}

/// Large frames as `af-packet` ports receive them: in buffers of the packet memory.
const LARGE: LargeFrames = LargeFrames { segment_size: 1448, buffer: 2048 };
/// Bytes of a large frame.
const LONG: usize = 50_000;

/// Datagrams of some sessions, and connections with requests, answers and words, out of order and repeated.
fn traffic() -> Vec<Vec<u8>> {
    let mut frames: Vec<_> =
        (0..20).map(|n| frame(n % 3, if n % 4 == 0 { "evil" } else { "good" })).collect();
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nX-Word: evil\r\n\r\n");
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nContent-Type: text/plain\r\n\r\nan evil page";
    for (n, path) in (0..).zip(["/", "/secret", "/page"]) {
        let (connection, request) = (Connection(2000 + n), request(path));
        frames.extend(connection.handshake());
        let (first, second) = request.as_bytes().split_at(20);
        // The second part comes first, and the first one twice.
        frames.extend([(20, second), (0, first), (0, first)].map(|(at, bytes)| connection.data(at, bytes)));
        let (first, second) = answer.split_at(answer.len() - 6);
        frames.extend([connection.answer(0, first), connection.answer(first.len() as u32, second)]);
        frames.push(connection.fin(request.len() as u32));
    }
    // A large frame with words.
    let (connection, mut body) = (Connection(2005), vec![b'x'; LONG]);
    body[LONG - 1000..][..4].copy_from_slice(b"evil");
    let head = format!("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {LONG}\r\n\r\n");
    frames.extend(connection.handshake());
    frames.push(connection.data(0, head.as_bytes()));
    frames.push(connection.data(head.len() as u32, &body));
    // A SYN with a maximum segment size.
    frames.push(Connection(2010).with_options((1000, 0, SYN), &[2, 4, 5, 180]));
    frames
}

/// What has become of each frame, one after the other: verdict and bytes of those that went on, and the
/// frames that were sent because of them.
type Fate = (Vec<(ChainVerdict, Vec<u8>)>, Vec<(u16, Vec<u8>)>);

/// The session lookup of the engine drops the packets of refused sessions, which the harness has not.
fn fates(world: &mut World) -> Vec<Fate> {
    let (mut fates, mut refused) = (Vec::new(), Vec::new());
    for frame in traffic() {
        let ports = [34, 36].map(|at| u16::from_be_bytes([frame[at], frame[at + 1]]));
        let client = ports[0].max(ports[1]);
        if refused.contains(&client) {
            continue;
        }
        let sent = until_all(world, &[frame]);
        if sent.iter().any(|one| matches!(one.verdict, ChainVerdict::Refuse(_))) {
            refused.push(client);
        }
        let emitted = sent.iter().flat_map(|one| one.emitted.clone()).collect();
        fates.push((sent.into_iter().map(|one| (one.verdict, one.frame)).collect(), emitted));
    }
    fates
}

pub fn every_function_does_in_a_process_what_it_does_in_the_worker() {
    for (kind, args) in IN_PROCESSES {
        for place in ["process d", "process d event"] {
            let (mut local, mut apart) = (world(kind, args, ""), world(kind, args, place));
            // What ports receive depends on all functions.
            let large = apart.harness.program().takes_large_frames().then_some(LARGE);
            local.harness.set_large(large);
            apart.harness.set_large(large);
            let (expected, found) = (fates(&mut local), fates(&mut apart));
            assert_eq!(found.len(), expected.len(), "{kind} {args} {place}");
            for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(found, expected, "{kind} {args} {place}: frame {at}");
            }
            let status = apart.instance("p").process().unwrap().status();
            assert!(status.descriptors > 0, "{kind} {args}");
            assert_eq!((status.restarts, status.refused, status.lost), (0, 0, 0), "{kind} {args}");
        }
    }
}

/// A new function is in one of the lists above, or this test fails.
pub fn every_function_runs_in_a_process_or_is_refused() {
    for (kind, args, reason) in REFUSED {
        let chain = "chain add c p";
        let refused =
            World::refused(&format!("domain add d private\nnf add p {kind} {args} process d\n{chain}"));
        assert!(refused.contains(reason), "{kind}: {refused}");
    }
    let mut known: Vec<_> = IN_PROCESSES.iter().map(|(kind, _)| *kind).chain(OF_BROKERS).collect();
    known.extend(REFUSED.iter().map(|(kind, ..)| *kind));
    known.sort_unstable();
    known.dedup();
    let types: Vec<_> = mmb_nf_builtin::registry().types().into_iter().map(|info| info.name).collect();
    assert_eq!(known, types);
}
