use super::*;

/// Several functions of a chain keep it for each session.
const _: () = assert!(size_of::<Connection>() == 80);
use crate::Element;

/// Sends bytes in a direction. Returns bodies, and other events by name.
fn send(connection: &mut Connection, direction: usize, text: &str) -> Vec<String> {
    let (mut bytes, mut found) = (text.as_bytes(), Vec::new());
    loop {
        let (len, event) = connection.next(direction, bytes);
        bytes = &bytes[len..];
        match event {
            Event::More => return found,
            Event::Bytes(Element::Body, bytes) => found.push(format!("body {}", bytes.escape_ascii())),
            Event::Opaque(bytes) => found.push(format!("opaque {}", bytes.escape_ascii())),
            Event::Head(head) => found.push(format!("head {}", head.status)),
            Event::Done => found.push("done".into()),
            Event::Invalid(cause) => {
                found.push(format!("{cause:?}"));
                if !cause.is_opaque() {
                    return found;
                }
            }
            _ => {}
        }
    }
}

fn request(method: &str, lines: &str) -> String {
    let target = if method == "CONNECT" { "a:1" } else { "/" };
    format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

const LENGTH_3: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";

#[test]
fn pipelined_responses_belong_to_their_requests() {
    let mut connection = Connection::default();
    let text = request("GET", "") + &request("HEAD", "") + &request("GET", "");
    assert_eq!(send(&mut connection, 0, &text), ["head 0", "done"].repeat(3));
    assert_eq!(connection.unanswered(), 3);
    let text = format!("{LENGTH_3}abc{LENGTH_3}HTTP/1.1 100 Continue\r\n\r\n{LENGTH_3}def");
    let expected = [
        "head 200", "body abc", "done", "head 200", "done", "head 100", "done", "head 200", "body def",
        "done",
    ];
    assert_eq!(send(&mut connection, 1, &text), expected);
    assert_eq!(connection.unanswered(), 0);
}

#[test]
fn more_requests_than_are_remembered_are_refused() {
    let mut connection = Connection::default();
    let text = request("HEAD", "").repeat(32);
    assert_eq!(send(&mut connection, 0, &text).len(), 64);
    assert_eq!(send(&mut connection, 0, &request("GET", "")), ["TooManyRequests"]);
    assert_eq!(send(&mut connection, 0, "x"), ["TooManyRequests"]);
    assert_eq!(send(&mut connection, 1, &LENGTH_3.repeat(32)).len(), 64);
}

#[test]
fn protocols_are_switched() {
    let websocket = request("GET", "Upgrade: websocket\r\nConnection: Upgrade\r\n");
    let mut connection = Connection::default();
    send(&mut connection, 0, &websocket);
    let switch = "HTTP/1.1 101 Switching Protocols\r\n\r\n\u{1}x";
    assert_eq!(send(&mut connection, 1, switch), ["head 101", "opaque \\x01x"]);
    assert_eq!(send(&mut connection, 0, "\u{2}"), ["opaque \\x02"]);
    assert_eq!((connection.given_up(), connection.end(0)), (Some(Cause::Switched), None));

    // Without an upgrade, and with a request behind it.
    let mut connection = Connection::default();
    send(&mut connection, 0, &request("GET", ""));
    assert_eq!(send(&mut connection, 1, switch), ["UnexpectedSwitch"]);
    let mut connection = Connection::default();
    send(&mut connection, 0, &(websocket.clone() + &request("GET", "")));
    assert_eq!(send(&mut connection, 1, switch), ["UnexpectedSwitch"]);
    let mut connection = Connection::default();
    send(&mut connection, 0, &(websocket.clone() + "GE"));
    assert_eq!(send(&mut connection, 1, switch), ["UnexpectedSwitch"]);
    let mut connection = Connection::default();
    send(&mut connection, 0, &websocket.replace("GET", "HEAD"));
    assert_eq!(send(&mut connection, 1, switch), ["UnexpectedSwitch"]);
    // The server may decline.
    let mut connection = Connection::default();
    send(&mut connection, 0, &websocket);
    assert_eq!(send(&mut connection, 1, &format!("{LENGTH_3}abc")), ["head 200", "body abc", "done"]);
    assert_eq!(send(&mut connection, 0, &request("GET", "")), ["head 0", "done"]);
}

#[test]
fn tunnels_begin_with_the_response() {
    let mut connection = Connection::default();
    send(&mut connection, 0, &request("CONNECT", ""));
    assert_eq!(send(&mut connection, 1, "HTTP/1.1 200 OK\r\n\r\nabc"), ["head 200", "opaque abc"]);
    assert_eq!(send(&mut connection, 0, "xyz"), ["opaque xyz"]);

    let mut connection = Connection::default();
    send(&mut connection, 0, &request("CONNECT", ""));
    assert_eq!(send(&mut connection, 0, "early"), ["EarlyTunnel"]);

    // A request behind a tunnel that was refused is read again.
    let mut connection = Connection::default();
    send(&mut connection, 0, &request("CONNECT", ""));
    let refused = "HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(send(&mut connection, 1, refused), ["head 405", "done"]);
    assert_eq!(send(&mut connection, 0, &request("GET", "")), ["head 0", "done"]);
    assert_eq!(connection.unanswered(), 1);
}

#[test]
fn http2_begins_a_connection_only() {
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut connection = Connection::default();
    assert_eq!(send(&mut connection, 0, preface), ["Http2", "opaque 2.0\\r\\n\\r\\nSM\\r\\n\\r\\n"]);
    assert_eq!(send(&mut connection, 1, "x"), ["opaque x"]);
    let mut connection = Connection::default();
    send(&mut connection, 0, &request("GET", ""));
    assert_eq!(send(&mut connection, 0, preface), ["Version"]);
    assert_eq!(send(&mut connection, 0, "x"), ["Version"]);
}

#[test]
fn a_response_without_a_request_answers_none() {
    let mut connection = Connection::default();
    assert!(send(&mut connection, 0, "GET / HT").is_empty());
    assert_eq!(send(&mut connection, 1, "HTTP/1.1 408 Timeout\r\n\r\nabc"), ["head 408", "body abc"]);
    assert_eq!((connection.end(1), connection.unanswered()), (Some(Event::Done), 0));
    assert_eq!(connection.end(0), Some(Event::Invalid(Cause::Truncated)));
    assert_eq!(connection.end(1), None);
}

#[test]
fn errors_stay_until_the_connection_is_given_up() {
    let mut connection = Connection::default();
    assert_eq!(send(&mut connection, 0, "GET /\r\n"), ["Http09"]);
    assert_eq!(send(&mut connection, 0, "GET"), ["Http09"]);
    connection.give_up(Cause::Http09);
    assert_eq!(send(&mut connection, 0, "GET"), ["opaque GET"]);
    assert_eq!(send(&mut connection, 1, "x"), ["opaque x"]);
    assert_eq!(connection.given_up(), Some(Cause::Http09));
}
