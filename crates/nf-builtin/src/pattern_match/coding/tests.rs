use mmb_http::Connection;

use super::*;

/// Reads the head of a message in pieces.
fn coding(fields: &str, piece: usize) -> Result<Option<Coding>, ()> {
    let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let (mut connection, mut reader) = (Connection::default(), CodingReader::default());
    for mut bytes in text.as_bytes().chunks(piece) {
        loop {
            let (len, event) = connection.next(0, bytes);
            bytes = &bytes[len..];
            reader.push(&event);
            match event {
                Event::More => break,
                Event::Head(_) => return reader.end(),
                Event::Invalid(cause) => panic!("{cause:?}"),
                _ => {}
            }
        }
    }
    panic!("no head");
}

#[test]
fn codings_are_found_wherever_the_head_is_cut() {
    for (fields, expected) in [
        ("", Ok(None)),
        ("Content-Encoding: gzip\r\n", Ok(Some(Coding::Gzip))),
        ("CONTENT-ENCODING:X-Gzip \t\r\nX: deflate\r\n", Ok(Some(Coding::Gzip))),
        ("content-encoding: identity , deflate\r\n", Ok(Some(Coding::Deflate))),
        ("Content-Encoding: identity\r\nContent-Encoding:\r\n", Ok(None)),
        ("X-Content-Encoding: gzip\r\nContent-Encoding-X: gzip\r\nContent-Encodin: gzip\r\n", Ok(None)),
        ("Content-Encoding: br\r\n", Ok(Some(Coding::Br))),
        ("Content-Encoding: ZSTD\r\n", Ok(Some(Coding::Zstd))),
        ("Content-Encoding: compress\r\n", Err(())),
        ("Content-Encoding: gzip, gzip\r\n", Err(())),
        ("Content-Encoding: gzip\r\nContent-Encoding: br\r\n", Err(())),
        ("Content-Encoding: identity-and-more\r\n", Err(())),
    ] {
        for piece in 1..60 {
            assert_eq!(coding(fields, piece), expected, "{fields} in pieces of {piece}");
        }
    }
}
