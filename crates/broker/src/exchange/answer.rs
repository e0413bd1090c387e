//! Answers that the broker or a function makes.

use std::cell::RefCell;
use std::io::Write;
use std::time::{Duration, SystemTime};

use mmb_http::Cause;
use mmb_nf::L7Answer;

/// Returns the reason phrase of a status (RFC 9110, 15; RFC 6585; RFC 7538).
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        205 => "Reset Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        410 => "Gone",
        413 => "Content Too Large",
        418 => "I'm a teapot",
        421 => "Misdirected Request",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

/// Returns the status of the answer to a request that is not accepted.
pub(super) fn status_of(cause: Cause) -> u16 {
    match cause {
        Cause::HeadTooLong | Cause::LineTooLong | Cause::TooManyFields => 431,
        Cause::Version | Cause::Http2 | Cause::Http09 => 505,
        _ => 400,
    }
}

/// Writes an answer. `is_head`: without its body.
pub(super) fn write_answer(answer: &L7Answer, is_head: bool, connection: &[u8], out: &mut Vec<u8>) {
    let (status, reason) = (answer.status, reason(answer.status));
    let page = || {
        let title = format!("{status} {reason}");
        format!("<!DOCTYPE html><title>{title}</title><h1>{title}</h1>\n").into_bytes().into()
    };
    let body = answer.body.clone().unwrap_or_else(page);
    // Writing to memory does not fail.
    let _ = write!(out, "HTTP/1.1 {status:03} {reason}\r\n");
    write_date(out);
    out.extend_from_slice(&answer.headers);
    let has_body = !matches!(status, 204 | 304);
    if has_body {
        let _ = write!(out, "Content-Type: {}\r\nContent-Length: {}\r\n", answer.media, body.len());
    }
    out.extend_from_slice(connection);
    out.extend_from_slice(b"\r\n");
    if has_body && !is_head {
        out.extend_from_slice(&body);
    }
}

/// Writes the Date header. The text is made once a second.
fn write_date(out: &mut Vec<u8>) {
    thread_local! {
        static LAST: RefCell<(u64, String)> = RefCell::default();
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    LAST.with_borrow_mut(|(at, text)| {
        if *at != now {
            *at = now;
            *text = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(now));
        }
        let _ = write!(out, "Date: {text}\r\n");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_a_page_or_none() {
        let written = |answer: &L7Answer, is_head| {
            let mut out = Vec::new();
            write_answer(answer, is_head, b"", &mut out);
            let text = String::from_utf8(out).unwrap();
            let date = text.split_once("Date: ").unwrap().1.split_once("\r\n").unwrap().0.to_owned();
            assert_eq!(date.len(), "Sun, 06 Nov 1994 08:49:37 GMT".len());
            text.replace(&format!("Date: {date}\r\n"), "")
        };
        let gone = L7Answer::of_status(410);
        let page = "<!DOCTYPE html><title>410 Gone</title><h1>410 Gone</h1>\n";
        let head =
            format!("HTTP/1.1 410 Gone\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n", page.len());
        assert_eq!(written(&gone, true), head);
        assert_eq!(written(&gone, false), format!("{head}{page}"));
        assert_eq!(written(&L7Answer::of_status(204), false), "HTTP/1.1 204 No Content\r\n\r\n");
    }
}
