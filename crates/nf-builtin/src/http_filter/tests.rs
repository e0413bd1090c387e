use mmb_nf::{ChainVerdict, Harness};
use mmb_packet::build::{Frame, Ip4, Tcp};

/// Offset of the TCP header in a frame.
const TCP: usize = 34;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// A connection through a chain of the function.
struct Talk {
    harness: Harness,
    next: [u32; 2],
    /// What the server has got.
    passed: Vec<u8>,
}

/// A segment that mmb has made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Made {
    /// The server gets it.
    to_server: bool,
    flags: u8,
    seq: u32,
    ack: u32,
    payload: String,
}

impl Made {
    fn read((port, frame): &(u16, Vec<u8>)) -> Made {
        mmb_nf::testing::assert_checksums(frame);
        let number = |at: usize| u32::from_be_bytes(frame[TCP + at..TCP + at + 4].try_into().unwrap());
        let payload = &frame[TCP + usize::from(frame[TCP + 12] >> 4) * 4..];
        Made {
            to_server: *port == mmb_nf::harness::FAR,
            flags: frame[TCP + 13],
            seq: number(4),
            ack: number(8),
            payload: String::from_utf8_lossy(payload).into_owned(),
        }
    }
}

impl Talk {
    fn new(rules: &str) -> Talk {
        let lines = format!("nf add f http-filter {rules}\nchain add c f");
        let harness = Harness::new(crate::registry(), &lines).unwrap();
        let mut talk = Talk { harness, next: [100, 500], passed: Vec::new() };
        talk.segment(0, SYN, "");
        talk.segment(1, SYN | ACK, "");
        talk
    }

    fn frame(&self, direction: usize, flags: u8, payload: &str) -> Vec<u8> {
        let (ends, ports) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [4000, 80]);
        let (seq, ack) = (self.next[direction], self.next[1 - direction]);
        let tcp = Tcp { seq, ack, flags, ..Tcp::new(ports[direction], ports[1 - direction]) };
        let net = Ip4::new(ends[direction], ends[1 - direction]);
        Frame::new(net, tcp).payload(payload.as_bytes().to_vec()).build()
    }

    /// Sends a segment. Returns the verdict, and what mmb sends.
    fn segment(&mut self, direction: usize, flags: u8, payload: &str) -> (ChainVerdict, Vec<Made>) {
        let frame = self.frame(direction, flags, payload);
        let sent = self.harness.send("c", &[frame]).remove(0);
        if sent.verdict == ChainVerdict::Pass && direction == 0 {
            self.passed.extend_from_slice(payload.as_bytes());
        }
        self.next[direction] += payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        (sent.verdict, sent.emitted.iter().map(Made::read).collect())
    }

    fn request(&mut self, text: &str) -> (ChainVerdict, Vec<Made>) {
        self.segment(0, ACK | PSH, text)
    }

    fn passes(&mut self, text: &str) -> bool {
        self.request(text).0 == ChainVerdict::Pass
    }

    fn report(&self) -> String {
        let report = self.harness.program().instance("f").unwrap().report();
        report.into_iter().map(|(name, value)| format!("{name} {value}; ")).collect()
    }
}

fn get(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nX-Token: secret\r\n\r\n")
}

fn dropped(verdict: ChainVerdict, name: &str) {
    let reason = match verdict {
        ChainVerdict::Drop(reason) | ChainVerdict::Refuse(reason) | ChainVerdict::End(reason) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason.name(), name);
}

#[test]
fn a_blocked_request_is_answered_until_the_client_has_the_answer() {
    let mut talk = Talk::new("block host ads.example");
    let before = talk.next;
    let request = get("ads.example", "/");
    let (verdict, made) = talk.request(&request);
    dropped(verdict, "http-blocked");
    let [reset, answer] = &made[..] else { panic!("{made:?}") };
    let expected =
        Made { to_server: true, flags: RST | ACK, seq: before[0], ack: before[1], payload: "".into() };
    assert_eq!(reset, &expected);
    assert_eq!((answer.to_server, answer.flags, answer.seq), (false, FIN | PSH | ACK, before[1]));
    // The request is not acknowledged yet, so that the client repeats it if the answer is lost.
    assert_eq!(answer.ack, before[0]);
    assert!(answer.payload.starts_with("HTTP/1.1 403 Forbidden\r\n") && answer.payload.ends_with("</h1>\n"));
    let whole = before[1] + answer.payload.len() as u32 + 1;

    // The answer is lost.
    talk.next[0] = before[0];
    let (verdict, made) = talk.request(&request);
    dropped(verdict, "http-blocked");
    assert_eq!(made, std::slice::from_ref(answer));
    // The server has not got the reset.
    let (verdict, made) = talk.segment(1, ACK, "");
    dropped(verdict, "http-blocked");
    assert_eq!((made[0].flags, made[0].to_server, made.len()), (RST, true, 1));
    // The client acknowledges the answer, and then ends.
    talk.next[1] = whole;
    let (_, made) = talk.segment(0, ACK, "");
    let all = Made { to_server: false, flags: ACK, seq: whole, ack: talk.next[0], payload: "".into() };
    assert_eq!(made, std::slice::from_ref(&all));
    let (verdict, made) = talk.segment(0, FIN | ACK, "");
    assert!(matches!(verdict, ChainVerdict::End(_)));
    assert_eq!(made, [Made { ack: all.ack + 1, ..all }]);
    assert!(talk.passed.is_empty());
    assert_eq!(talk.report(), "requests 1; blocked 1; redirected 0; reset 0; ");
}

#[test]
fn the_server_never_gets_a_whole_head() {
    let request = get("ads.example", "/");
    for piece in 1..request.len() {
        let mut talk = Talk::new("block host ads.example");
        let mut answer = String::new();
        for part in request.as_bytes().chunks(piece) {
            let (_, made) = talk.request(std::str::from_utf8(part).unwrap());
            made.iter().for_each(|made| answer += &made.payload);
        }
        assert!(answer.starts_with("HTTP/1.1 403"), "pieces of {piece}");
        assert!(request.as_bytes().starts_with(&talk.passed) && talk.passed.len() < request.len());
        assert_eq!(talk.passed.len(), (request.len() - 1) / piece * piece);
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = "allow host ok.ads.example block host *.ads.example block path /admin method GET \
                 block header x-token sec* path /token block path *.exe";
    for (host, path, expected) in [
        ("ok.ads.example", "/", true),
        ("ADS.example", "/", true),
        ("x.ADS.example:80", "/", false),
        ("a", "/", true),
        ("a", "/admin", false),
        ("a", "/%61dmin/x?y", false),
        ("a", "/x/..//admin", false),
        ("a", "/administrator", true),
        ("a", "/token", false),
        ("a", "/x/y.exe?z", false),
        ("a", "http://a/x.exe", false),
    ] {
        assert_eq!(Talk::new(rules).passes(&get(host, path)), expected, "{host} {path}");
    }
    assert!(Talk::new(rules).passes("POST /admin HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert!(Talk::new(rules).passes("GET /token HTTP/1.1\r\nHost: a\r\n\r\n"));
}

#[test]
fn answers() {
    let (_, made) = Talk::new("redirect https://b.example/x path /old").request(&get("a", "/old"));
    assert!(made[1].payload.starts_with("HTTP/1.1 302 Found\r\nLocation: https://b.example/x\r\n"));
    let (_, made) = Talk::new("block").request("HEAD / HTTP/1.0\r\n\r\n");
    assert!(made[1].payload.ends_with("\r\n\r\n") && made[1].payload.contains("Content-Length: "));
    let mut talk = Talk::new("reset host a");
    let (verdict, made) = talk.request(&get("a", "/"));
    dropped(verdict, "http-blocked");
    assert!(made.iter().all(|made| made.flags & RST != 0) && made.len() == 2);
    assert_eq!(talk.report(), "requests 1; blocked 0; redirected 0; reset 1; ");
}

#[test]
fn a_long_page_is_in_several_segments_and_repeated_from_what_is_missing() {
    let page = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(page.path(), "x".repeat(4096)).unwrap();
    let mut talk = Talk::new(&format!("page {} block", page.path().display()));
    let before = talk.next;
    let request = get("a", "/");
    let (_, made) = talk.request(&request);
    let parts = &made[1..];
    let text: String = parts.iter().map(|made| &*made.payload).collect();
    assert!(text.ends_with(&"x".repeat(4096)) && parts.iter().all(|made| made.payload.len() <= 524));
    let flags: Vec<_> = parts.iter().map(|made| made.flags & FIN).collect();
    assert_eq!((flags.iter().sum::<u8>(), flags.last()), (1, Some(&FIN)));
    // The client has the first two.
    talk.next = [before[0], parts[2].seq];
    let (_, made) = talk.request(&request);
    assert_eq!(made, parts[2..]);
    let long = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(long.path(), "x".repeat(4097)).unwrap();
    assert!(refused(&format!("page {} block", long.path().display())).contains("more than 4096 bytes"));
}

#[test]
fn keep_alive_and_pipelining() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let mut talk = Talk::new("block path /no");
    assert!(talk.passes(&get("a", "/")));
    assert_eq!(talk.segment(1, ACK, answer).0, ChainVerdict::Pass);
    let server_next = talk.next[1];
    let (_, made) = talk.request(&get("a", "/no"));
    assert_eq!((made[1].seq, &made[1].payload[..12]), (server_next, "HTTP/1.1 403"));

    // The response to the first request is still to come: an answer would be taken for it.
    let mut talk = Talk::new("block path /no");
    assert!(talk.passes(&get("a", "/")));
    let (_, made) = talk.request(&get("a", "/no"));
    assert!(made.iter().all(|made| made.flags & RST != 0) && made.len() == 2);
}

#[test]
fn responses_are_blocked_by_their_type() {
    let video = "HTTP/1.1 200 OK\r\nContent-Type: Video/mp4; x=y\r\nContent-Length: 5\r\n\r\nabc";
    let mut talk = Talk::new("block type video/*");
    assert!(talk.passes(&get("a", "/")));
    let before = talk.next;
    let (verdict, made) = talk.segment(1, ACK, video);
    dropped(verdict, "http-blocked");
    let answer = made.iter().find(|made| !made.to_server).unwrap();
    assert_eq!((answer.seq, answer.ack), (before[1], before[0]));
    assert!(answer.payload.starts_with("HTTP/1.1 403") && made.len() == 2);
    // What the server sends before it gets the reset is dropped too.
    dropped(talk.segment(1, ACK, "de").0, "http-blocked");

    // The client has the beginning of the head.
    let mut talk = Talk::new("block type video/*");
    assert!(talk.passes(&get("a", "/")));
    assert_eq!(talk.segment(1, ACK, &video[..20]).0, ChainVerdict::Pass);
    let (_, made) = talk.segment(1, ACK, &video[20..]);
    assert!(made.iter().all(|made| made.flags & RST != 0) && made.len() == 2);

    let mut talk = Talk::new("block type video/*");
    assert!(talk.passes(&get("a", "/")));
    let text = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(talk.segment(1, ACK, text).0, ChainVerdict::Pass);
}

#[test]
fn malformed_requests_are_rejected_or_pass() {
    let smuggled = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut talk = Talk::new("allow");
    let (verdict, made) = talk.request(smuggled);
    dropped(verdict, "http-invalid");
    assert!(made[1].payload.starts_with("HTTP/1.1 400 Bad Request\r\n"));
    assert!(talk.report().contains("rejected: Content-Length with Transfer-Encoding 1; "));
    let mut talk = Talk::new("allow");
    dropped(talk.request("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n").0, "http-invalid");
    assert!(talk.report().contains("rejected: target and Host differ 1; "));

    let mut talk = Talk::new("errors pass block path /x");
    assert!(talk.passes(smuggled) && talk.passes(&get("a", "/x")));
    assert!(talk.report().contains("not read: Content-Length with Transfer-Encoding 1; "));
    // A malformed response ends the connection.
    let mut talk = Talk::new("allow");
    assert!(talk.passes(&get("a", "/")));
    let (verdict, made) = talk.segment(1, ACK, "HTTP/1.1 200 OK\nX: y\n\n");
    dropped(verdict, "http-invalid");
    assert!(made.iter().all(|made| made.flags & RST != 0) && made.len() == 2);
}

#[test]
fn other_protocols_pass() {
    let mut talk = Talk::new("block path /x");
    assert!(talk.passes("GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n"));
    let switch = "HTTP/1.1 101 Switching Protocols\r\n\r\n";
    assert_eq!(talk.segment(1, ACK, switch).0, ChainVerdict::Pass);
    assert!(talk.passes(&get("a", "/x")));
    assert!(talk.passes("\u{1}\u{2}"));
}

fn refused(rules: &str) -> String {
    let lines = format!("nf add f http-filter {rules}");
    Harness::new(crate::registry(), &lines).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn arguments() {
    for (rules, expected) in [
        ("", "needs a rule"),
        ("host a", "unknown argument `host`"),
        ("block host", "`host` needs a pattern"),
        ("block path admin", "must begin with `/` or `*`"),
        ("block header x", "`header` needs a name and a pattern"),
        ("block type a host b", "no other condition"),
        ("redirect", "`redirect` needs a URL"),
        ("redirect http://\u{e9}/", "visible ASCII"),
        ("errors", "`errors` needs"),
        ("page /nowhere/x block", "/nowhere/x"),
        ("page", "`page` needs a path"),
        ("errors reject block host a reset method TRACE allow", ""),
    ] {
        let error = refused(rules);
        assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{rules}: {error}");
    }
    let many: String = (0..15).map(|n| format!(" header x{n} y")).collect();
    assert!(refused(&format!("block{many}")).contains("more than 15 headers"));
}
