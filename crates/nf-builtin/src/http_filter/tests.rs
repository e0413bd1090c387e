use mmb_nf::{ChainVerdict, DropReason, Harness};
use mmb_packet::build::{Frame, Ip4, Tcp};

use crate::shared::connection::{ACK, FIN, Made, PSH, RST, Talk, dropped};

impl Talk {
    fn new(rules: &str) -> Talk {
        Talk::of(&format!("nf add f http-filter {rules}\nchain add c f"))
    }

    fn request(&mut self, text: &str) -> (ChainVerdict, Vec<Made>) {
        self.segment(0, ACK | PSH, text)
    }

    /// Whether the server gets a request.
    fn passes(&mut self, text: &str) -> bool {
        let before = self.passed.len();
        let (_, made) = self.request(text);
        made.is_empty() && &self.passed[before..] == text.as_bytes()
    }
}

fn get(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nX-Token: secret\r\n\r\n")
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
        Made { to_server: true, flags: RST | ACK, seq: before[0], ack: before[1], payload: Vec::new() };
    assert_eq!(reset, &expected);
    assert_eq!((answer.to_server, answer.flags, answer.seq), (false, FIN | PSH | ACK, before[1]));
    // The request is not acknowledged yet, so that the client repeats it if the answer is lost.
    assert_eq!(answer.ack, before[0]);
    assert!(answer.text().starts_with("HTTP/1.1 403 Forbidden\r\n") && answer.text().ends_with("</h1>\n"));
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
    talk.acked[0] = whole;
    let (_, made) = talk.segment(0, ACK, "");
    let all = Made { to_server: false, flags: ACK, seq: whole, ack: talk.next[0], payload: Vec::new() };
    assert_eq!(made, std::slice::from_ref(&all));
    let (verdict, made) = talk.segment(0, FIN | ACK, "");
    assert!(matches!(verdict, ChainVerdict::End(_)));
    assert_eq!(made, [Made { ack: all.ack + 1, ..all }]);
    assert!(talk.passed.is_empty());
    assert_eq!(talk.report(), "requests 1; blocked 1; redirected 0; reset 0; ");
}

#[test]
fn the_server_gets_no_byte_of_a_blocked_request() {
    let request = get("ads.example", "/");
    for piece in 1..request.len() {
        let mut talk = Talk::new("block host ads.example");
        let mut answer = String::new();
        for part in request.as_bytes().chunks(piece) {
            let (_, made) = talk.request(std::str::from_utf8(part).unwrap());
            made.iter().for_each(|made| answer += &made.text());
        }
        assert!(answer.starts_with("HTTP/1.1 403"), "pieces of {piece}");
        assert!(talk.passed.is_empty());
    }
}

#[test]
fn allowed_requests_arrive_wherever_segments_end() {
    let text = format!(
        "{}POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello{}",
        get("a", "/"),
        get("b", "/")
    );
    for piece in 1..text.len() {
        let mut talk = Talk::new("block host ads.example");
        for part in text.as_bytes().chunks(piece) {
            assert!(talk.request(std::str::from_utf8(part).unwrap()).1.is_empty());
        }
        assert_eq!(String::from_utf8_lossy(&talk.passed), text, "pieces of {piece}");
    }
}

/// The client repeats what it has sent, since it has nothing else to send before it is acknowledged.
#[test]
fn a_head_that_is_repeated_waits_all_the_same() {
    let request = get("ads.example", "/");
    let mut talk = Talk::new("block host ads.example");
    let before = talk.next[0];
    for end in [20, 25, 30] {
        let from = (talk.next[0] - before) as usize;
        talk.request(&request[from..end]);
        for _ in 0..2 {
            talk.harness.wait(400);
            talk.next[0] = before + from as u32;
            let (_, made) = talk.request(&request[from..end]);
            // It goes on behind the acknowledgement. The last byte is left to be repeated.
            assert!(made.iter().all(|made| made.ack == talk.next[0] - 1 && made.payload.is_empty()));
            assert!(!made.is_empty());
        }
    }
    let (_, made) = talk.request(&request[30..]);
    let answer = made.iter().find(|made| !made.to_server).unwrap();
    assert!(answer.text().starts_with("HTTP/1.1 403"));
    assert!(talk.passed.is_empty() && !talk.report().contains("heads that did not wait"));
}

#[test]
fn a_stream_that_ends_within_a_head_is_reset() {
    let mut talk = Talk::new("block host ads.example");
    talk.request("GET / HTTP/1.1\r\nHost: ads.exam");
    let (verdict, made) = talk.segment(0, FIN | ACK, "");
    dropped(verdict, "http-invalid");
    assert!(made.iter().all(|made| made.flags & RST != 0) && made.len() == 2 && talk.passed.is_empty());
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
    assert!(made[1].text().starts_with("HTTP/1.1 302 Found\r\nLocation: https://b.example/x\r\n"));
    let (_, made) = Talk::new("block").request("HEAD / HTTP/1.0\r\n\r\n");
    assert!(made[1].text().ends_with("\r\n\r\n") && made[1].text().contains("Content-Length: "));
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
    let text: String = parts.iter().map(|made| made.text()).collect();
    assert!(text.ends_with(&"x".repeat(4096)) && parts.iter().all(|made| made.payload.len() <= 524));
    let flags: Vec<_> = parts.iter().map(|made| made.flags & FIN).collect();
    assert_eq!((flags.iter().sum::<u8>(), flags.last()), (1, Some(&FIN)));
    // The client has the first two.
    (talk.next[0], talk.acked[0]) = (before[0], parts[2].seq);
    let (_, made) = talk.request(&request);
    assert_eq!(made, parts[2..]);
    let long = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(long.path(), "x".repeat(4097)).unwrap();
    assert!(refused(&format!("page {} block", long.path().display())).contains("more than 4096 bytes"));
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn the_next_request_of_a_connection_is_answered() {
    let mut talk = Talk::new("block path /no");
    assert!(talk.passes(&get("a", "/")));
    assert_eq!(talk.segment(1, ACK, OK).0, ChainVerdict::Pass);
    let server_next = talk.next[1];
    let (_, made) = talk.request(&get("a", "/no"));
    assert_eq!((made[1].seq, &made[1].text()[..12]), (server_next, "HTTP/1.1 403"));
}

#[test]
fn a_pipelined_request_is_answered_behind_the_responses_in_front() {
    let (first, no) = (get("a", "/"), get("a", "/no"));
    let all = [first.as_str(), &first, &no, &first].concat();
    for piece in [1, 7, first.len(), all.len()] {
        let mut talk = Talk::new("block path /no");
        let before = talk.next;
        for part in all.as_bytes().chunks(piece) {
            assert!(talk.request(std::str::from_utf8(part).unwrap()).1.is_empty());
        }
        let passed = first.repeat(2).into_bytes();
        assert_eq!(talk.passed, passed);
        // The client repeats what is not acknowledged: the server gets none of it.
        talk.next[0] = before[0] + passed.len() as u32;
        dropped(talk.request(&no).0, "http-blocked");
        assert_eq!(talk.segment(1, ACK, OK).0, ChainVerdict::Pass);
        assert!(talk.segment(0, ACK, "").1.is_empty());
        let acked = talk.acked[0];
        assert_eq!(talk.segment(1, ACK, OK).0, ChainVerdict::Pass);
        let (server_next, last) = (talk.next[1], std::mem::replace(&mut talk.acked[0], acked));
        // The client has not got the last response.
        assert!(talk.segment(0, ACK, "").1.is_empty());
        talk.acked[0] = last;
        let (_, made) = talk.segment(0, ACK, "");
        assert_eq!((made[1].seq, made[1].ack), (server_next, before[0] + passed.len() as u32));
        assert!(made[1].text().starts_with("HTTP/1.1 403") && made[0].to_server);
        assert_eq!((talk.passed.as_slice(), made[0].flags), (passed.as_slice(), RST | ACK));
        assert!(talk.report().starts_with("requests 3; blocked 1; "));
    }
}

/// A request that was refused waits for responses, or is answered, while the function leaves.
#[test]
fn refused_requests_do_not_go_on_without_the_function() {
    let (first, no) = (get("a", "/"), get("a", "/no"));
    for is_answered in [false, true] {
        for chain in ["nf add n payload-count\nchain add c n", "nf add n mark dscp 8\nchain add c n", ""] {
            let mut talk = Talk::new("block path /no");
            if is_answered {
                dropped(talk.request(&no).0, "http-blocked");
            } else {
                assert!(talk.passes(&first));
                assert!(talk.request(&no).1.is_empty());
            }
            let before = talk.passed.len();
            talk.next[0] -= no.len() as u32;
            if chain.is_empty() {
                let (seq, ack) = (talk.next[0], talk.acked[0]);
                let tcp = Tcp { seq, ack, flags: ACK, ..Tcp::new(4000, 80) };
                let frame = Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), tcp);
                let sent = talk.harness.send_without_chain(&frame.payload(no.as_bytes()).build());
                let sent = sent.expect("the session is kept");
                assert_eq!(sent.verdict, ChainVerdict::Refuse(DropReason::StreamReset));
            } else {
                talk.harness.load(chain).unwrap();
                let (verdict, made) = talk.request(&no);
                assert_eq!(verdict, ChainVerdict::Refuse(DropReason::StreamReset));
                assert!(made.iter().all(|one| one.flags & RST != 0 && one.payload.is_empty()), "{made:?}");
                assert_eq!(made.len(), 2);
            }
            assert_eq!(talk.passed.len(), before);
        }
    }
}

/// Both ends count differently behind the edits of another function.
#[test]
fn the_numbers_of_an_edited_connection() {
    let edits = "http-edit request header add X-A 1234 response header add X-Box mmb";
    for order in ["e | f", "f | e"] {
        let mut talk =
            Talk::of(&format!("nf add e {edits}\nnf add f http-filter block path /no\nchain add c {order}"));
        let start = talk.next;
        let first = get("a", "/");
        talk.request(&first);
        let to_server = start[0] + talk.passed.len() as u32;
        assert_eq!(talk.passed.len(), first.len() + "X-A: 1234\r\n".len());
        talk.acked[1] = to_server;
        let (_, made) = talk.segment(1, ACK, OK);
        let to_client = start[1] + made.iter().map(|made| made.payload.len() as u32).sum::<u32>();
        assert_eq!(to_client - start[1], (OK.len() + "X-Box: mmb\r\n".len()) as u32);
        talk.acked[0] = to_client;
        let client_next = talk.next[0];
        let (verdict, made) = talk.request(&get("a", "/no"));
        dropped(verdict, "http-blocked");
        let [reset, answer] = &made[..] else { panic!("{made:?}") };
        assert_eq!((reset.to_server, reset.seq, reset.ack), (true, to_server, talk.next[1]));
        assert_eq!((answer.seq, answer.ack, answer.to_server), (to_client, client_next, false));
        // The answer is lost; the client repeats its request.
        talk.next[0] = client_next;
        let (_, made) = talk.request(&get("a", "/no"));
        assert_eq!(made, std::slice::from_ref(answer));
        talk.acked[0] = to_client + answer.payload.len() as u32 + 1;
        let (_, made) = talk.segment(0, ACK, "");
        assert_eq!((made[0].seq, made[0].ack, made[0].flags), (talk.acked[0], talk.next[0], ACK));
        assert!(matches!(talk.segment(0, FIN | ACK, "").0, ChainVerdict::End(_)));
    }
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
    assert!(answer.text().starts_with("HTTP/1.1 403") && made.len() == 2);
    // What the server sends before it gets the reset is dropped too.
    dropped(talk.segment(1, ACK, "de").0, "http-blocked");

    let mut talk = Talk::new("block type video/*");
    assert!(talk.passes(&get("a", "/")));
    let before = talk.next;
    talk.segment(1, ACK, &video[..20]);
    assert_eq!(talk.acked[0], before[1]);
    let (_, made) = talk.segment(1, ACK, &video[20..]);
    let answer = made.iter().find(|made| !made.to_server).unwrap();
    assert_eq!((answer.seq, &answer.text()[..12]), (before[1], "HTTP/1.1 403"));

    // The second of two responses.
    let mut talk = Talk::new("block type video/*");
    assert!(talk.passes(&get("a", "/").repeat(2)));
    let (_, made) = talk.segment(1, ACK, [OK, video].concat());
    assert!(made.iter().map(|made| made.text()).eq([OK.to_owned()]));
    talk.acked[0] = before[1] + OK.len() as u32;
    let (_, made) = talk.segment(0, ACK, "");
    assert_eq!((made[1].seq, &made[1].text()[..12]), (talk.acked[0], "HTTP/1.1 403"));

    let mut talk = Talk::new("block type video/*");
    assert!(talk.passes(&get("a", "/")));
    let text = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(talk.segment(1, ACK, text).0, ChainVerdict::Pass);
}

#[test]
fn heads_that_are_too_long_are_refused() {
    let mut talk = Talk::new("block path /no");
    let before = talk.next[0];
    let line = format!("X-Long: {}\r\n", "x".repeat(1000));
    let mut answer = talk.request("GET / HTTP/1.1\r\nHost: a\r\n").1;
    while answer.is_empty() {
        assert!(talk.next[0] - before < 1 << 17);
        answer = talk.request(&line).1;
    }
    assert!(answer[1].text().starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"));
    assert!(talk.passed.is_empty() && talk.next[0] - before > 1 << 16);
}

#[test]
fn malformed_requests_are_rejected_or_pass() {
    let smuggled = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut talk = Talk::new("allow");
    let (verdict, made) = talk.request(smuggled);
    dropped(verdict, "http-invalid");
    assert!(made[1].text().starts_with("HTTP/1.1 400 Bad Request\r\n"));
    assert!(talk.report().contains("rejected: Content-Length with Transfer-Encoding 1; "));
    let mut talk = Talk::new("allow");
    dropped(talk.request("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n").0, "http-invalid");
    assert!(talk.report().contains("rejected: target and Host differ 1; "));
    let mut talk = Talk::new("allow");
    let (verdict, made) = talk.request("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n");
    dropped(verdict, "http-invalid");
    assert!(made[1].text().starts_with("HTTP/1.1 400 Bad Request\r\n"));
    assert!(talk.report().contains("rejected: invalid target 1; "));

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
