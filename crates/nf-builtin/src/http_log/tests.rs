use std::time::Duration;

use mmb_nf::{Harness, StopSignal};
use mmb_packet::build::{Frame, Ip4, Tcp};

use super::*;

/// A connection through a chain of the function.
struct Talk {
    harness: Harness,
    next: [u32; 2],
    folder: tempfile::TempDir,
}

impl Talk {
    fn new(format: &str) -> Talk {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let lines = format!("nf add h http-log {format} file {}\nchain add c h", path.display());
        let harness = Harness::new(crate::registry(), &lines).unwrap();
        let mut talk = Talk { harness, next: [100, 500], folder };
        talk.segment(0, 2, b"");
        talk.segment(1, 18, b"");
        talk
    }

    fn segment(&mut self, direction: usize, flags: u8, payload: &[u8]) {
        let (ends, ports) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [4000, 80]);
        let (seq, ack) = (self.next[direction], self.next[1 - direction]);
        let tcp = Tcp { seq, ack, flags, ..Tcp::new(ports[direction], ports[1 - direction]) };
        let net = Ip4::new(ends[direction], ends[1 - direction]);
        let frame = Frame::new(net, tcp).payload(payload.to_vec()).build();
        self.harness.send("c", &[frame]);
        self.next[direction] += payload.len() as u32 + u32::from(flags & 3 != 0);
    }

    /// Sends text in segments of `piece` bytes.
    fn say(&mut self, direction: usize, text: &str, piece: usize) {
        text.as_bytes().chunks(piece).for_each(|bytes| self.segment(direction, 16, bytes));
    }

    fn report(&self) -> Vec<(String, String)> {
        self.harness.program().instance("h").unwrap().report()
    }

    /// Returns the lines so far. To be called once.
    fn lines(&self) -> Vec<String> {
        let background = self.harness.program().instance("h").unwrap().background().unwrap();
        let stop = StopSignal::default();
        stop.stop();
        background(&stop);
        let text = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// A line without its time.
fn timeless(line: &str) -> String {
    let (front, rest) = line.split_once('[').unwrap();
    format!("{front}{}", rest.split_once("] ").unwrap().1)
}

const REQUEST: &str =
    "GET /a?b HTTP/1.1\r\nHost: a\r\nReferer: http://b/\r\nUser-Agent: x \"1\"\\\u{e9}\r\n\r\n";

#[test]
fn each_request_has_a_line_however_it_is_cut() {
    for piece in [1, 3, 1000] {
        let mut talk = Talk::new("");
        let post = "POST /up HTTP/1.0\r\nContent-Length: 4\r\n\r\nbody";
        talk.say(0, &format!("{REQUEST}{post}HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"), piece);
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
        let chunked = "HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        talk.say(1, &format!("HTTP/1.1 100 Continue\r\n\r\n{ok}0123456789{chunked}{ok}"), piece);
        let lines: Vec<_> = talk.lines().iter().map(|line| timeless(line)).collect();
        assert_eq!(
            lines,
            [
                "10.0.0.1 - - \"GET /a?b HTTP/1.1\" 200 10 \"http://b/\" \"x \\x221\\x22\\x5C\\xC3\\xA9\"",
                "10.0.0.1 - - \"POST /up HTTP/1.0\" 404 5 \"-\" \"-\"",
                "10.0.0.1 - - \"HEAD / HTTP/1.1\" 200 - \"-\" \"-\"",
            ]
        );
        assert_eq!(talk.report()[..2], [("requests", "3"), ("responses", "3")].map(own));
    }
}

fn own((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[test]
fn json_has_sizes_and_times() {
    let mut talk = Talk::new("json");
    talk.say(0, "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nab", 1000);
    talk.harness.wait(250);
    talk.say(0, "c", 1000);
    talk.say(1, "HTTP/1.0 200 OK\r\n\r\nuntil close", 1000);
    talk.segment(1, 17, b"");
    let lines = talk.lines();
    let mut value: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert!(value["time"].take().as_str().unwrap().ends_with('Z'));
    let expected = serde_json::json!({
        "time": null, "client": "10.0.0.1", "client_port": 4000, "server": "10.0.0.2", "server_port": 80,
        "method": "POST", "target": "/", "version": "1.1", "host": "a.example", "referer": null,
        "user_agent": null, "status": 200, "request_bytes": 3, "response_bytes": 11, "milliseconds": 250,
        "complete": true, "truncated": false,
    });
    assert_eq!((value, lines.len()), (expected, 1));
}

#[test]
fn requests_without_whole_responses_have_lines_too() {
    let mut talk = Talk::new("common");
    talk.say(0, &REQUEST.repeat(2), 1000);
    talk.say(0, "GET /partial", 1000);
    talk.say(1, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", 1000);
    talk.harness.end_all();
    let lines: Vec<_> = talk.lines().iter().map(|line| timeless(line)).collect();
    let expected = ["10.0.0.1 - - \"GET /a?b HTTP/1.1\" 200 3", "10.0.0.1 - - \"GET /a?b HTTP/1.1\" - -"];
    assert_eq!(lines, expected);
}

#[test]
fn other_protocols_are_counted() {
    let websocket = "GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n";
    for (request, response, count, cause) in [
        ("\u{16}\u{3}\u{1}", "", 0, "not read: malformed first line"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "x", 0, "not read: HTTP/2"),
        (websocket, "HTTP/1.1 101 Switching Protocols\r\n\r\nxyz", 1, "not read: protocol switched"),
        (
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "HTTP/1.1 200 OK\nX: y\n\n",
            1,
            "not read: line ends with LF alone",
        ),
    ] {
        let mut talk = Talk::new("common");
        talk.say(0, request, 1000);
        talk.say(1, response, 1000);
        talk.say(0, "more", 1000);
        talk.segment(0, 17, b"");
        assert!(talk.report().contains(&own((cause, "1"))), "{:?}", talk.report());
        talk.harness.end_all();
        assert_eq!(talk.lines().len(), count, "{request}");
    }
}

#[test]
fn the_time_is_that_of_the_request() {
    let frame = Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Tcp::new(4000, 80)).build();
    let mut records = Records::default();
    let number = records.insert(mmb_nf::testing::key_of_frame(&frame), 7).unwrap();
    let mut text = String::new();
    let at = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(951_826_554);
    line(&mut text, Format::Common, at, records.get(number).unwrap());
    // date -u -d @951826554
    assert_eq!(text, "10.0.0.1 - - [29/Feb/2000:12:15:54 +0000] \"  HTTP/1.0\" - -\n");
}

#[test]
fn records_are_used_again() {
    let frame = Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Tcp::new(4000, 80)).build();
    let key = mmb_nf::testing::key_of_frame(&frame);
    let mut records = Records::default();
    for expected in 1..=16_384 {
        assert_eq!(records.insert(key, 0), Some(expected));
    }
    assert_eq!(records.insert(key, 0), None);
    records.get(7).unwrap().status = 200;
    records.remove(7);
    records.remove(0);
    assert_eq!((records.len(), records.insert(key, 5)), (16_383, Some(7)));
    assert_eq!((records.get(7).unwrap().status, records.get(0).is_none()), (0, true));
}

#[test]
fn arguments() {
    let refused = |line: &str| {
        let lines = format!("nf add h http-log {line}");
        Harness::new(crate::registry(), &lines).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(refused("file").contains("needs a path"));
    assert!(refused("xml").contains("unknown argument `xml`"));
    assert_eq!(refused("json"), "");
}
