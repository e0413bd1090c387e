//! Content-Length, Transfer-Encoding and chunks of requests.

use super::{Case, check};

/// Each case has the first line and Host in front.
fn check_lines(cases: &[Case]) {
    for &(name, lines, expected) in cases {
        check(name, &[(0, &format!("PUT / HTTP/1.1\r\nHost: a\r\n{lines}"))], expected);
    }
}

#[test]
fn content_lengths() {
    check_lines(&[
        ("content", "Content-Length: 5\r\n\r\nhello", "PUT / 5 [hello]."),
        ("zeros in front", "Content-Length: 003\r\n\r\nabc", "PUT / 3 [abc]."),
        ("zeros in front, another header", "Content-Length: 003\r\nX: 1\r\n\r\nabc", "PUT / 3 {X: 1} [abc]."),
        ("letters of both cases", "conTENT-Length: 5\r\n\r\nHELLO", "PUT / 5 [HELLO]."),
        ("spaces around", "Content-Length:  2 \r\n\r\nab", "PUT / 2 [ab]."),
        ("tabs around", "Content-Length:\t2\t  \r\n\r\nab", "PUT / 2 [ab]."),
        ("a space within", "Content-Length: 4 2\r\n\r\n", "!Length"),
        ("a space within, more digits", "Content-Length: 13 37\r\n\r\n", "!Length"),
        ("empty", "Content-Length:\r\n\r\n", "!Length"),
        ("above 2^64", "Content-Length: 1000000000000000000000\r\n\r\n", "!LengthOverflow"),
        ("negative", "Content-Length: -1234\r\n\r\n", "!Length"),
        ("negative, above 2^64", "Content-Length: -123456789123456789123456789\r\n\r\n", "!Length"),
        ("letters", "Content-Length: abc\r\n\r\n", "!Length"),
        ("two", "Content-Length: 1\r\nContent-Length: 2\r\n\r\na", "!TwoLengths"),
        ("CR instead of the hyphen", "Content\rLength: 003\r\n\r\nabc", "!BareCr"),
        ("CR instead of the empty line", "Content-Length: 3\r\n\rabc", "!BareCr"),
        ("the connection ends in front of content", "Content-Length: 100\r\n\r\n", "PUT / 100!Truncated"),
        ("the connection ends in the name", "Content-Leng", "!Truncated"),
        (
            "a length is that of its request alone",
            "Content-Length: 3\r\n\r\nabcPOST / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "PUT / 3 [abc]. POST /. GET /.",
        ),
    ]);
    check(
        "content of GET in HTTP/1.0",
        &[(0, "GET /g HTTP/1.0\r\nContent-Length: 5\r\n\r\nHELLO")],
        "GET /g 5 [HELLO].",
    );
}

#[test]
fn transfer_encodings() {
    check_lines(&[
        ("no chunk yet", "Transfer-Encoding: chunked\r\n\r\n", "PUT / chunked!Truncated"),
        ("an unknown coding", "Transfer-Encoding: carrier\r\n\r\n", "!TransferEncoding"),
        (
            "chunked twice in a word",
            "Transfer-Encoding: chunkedchunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            "!TransferEncoding",
        ),
        (
            "chunked is not the last coding",
            "Transfer-Encoding: chunked, deflate\r\n\r\nabc",
            "!TransferEncoding",
        ),
        (
            "chunked is not in the last header",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: deflate\r\n\r\nabc",
            "!TransferEncoding",
        ),
        // RFC 9112, 6.1: a coding that is not implemented is refused. llhttp does not look at these.
        (
            "chunked is the last coding",
            "Transfer-Encoding: deflate, chunked\r\n\r\n0\r\n\r\n",
            "!TransferEncoding",
        ),
        (
            "chunked is in the last header",
            "Transfer-Encoding: deflate\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "!TransferEncoding",
        ),
        // RFC 9112, 5: the space is not part of the value. Some recipients compare it, so it is refused.
        (
            "chunked and a space",
            "Transfer-Encoding: chunked \r\n\r\n1\r\na\r\n0\r\n\r\n",
            "!TransferEncoding",
        ),
        // RFC 9112, 5.2: folded values are refused.
        ("a folded coding", "Transfer-Encoding: chunked\r\n  abc\r\n\r\n0\r\n\r\n", "!ObsFold"),
    ]);
}

#[test]
fn two_framings() {
    check_lines(&[
        // RFC 9112, 6.3: both is an attempt at smuggling. h1spec also permits that chunked wins.
        (
            "a length, then chunked",
            "content-LengtH: 5\r\nTransFer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            "!LengthAndChunked",
        ),
        (
            "chunked, then a length",
            "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
            "!LengthAndChunked",
        ),
        // Identity is no coding any more (RFC 9112, 7).
        (
            "a length, then identity",
            "Content-Length: 1\r\nTransfer-Encoding: identity\r\n\r\na",
            "!TransferEncoding",
        ),
        (
            "identity, then a length",
            "Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nabcde",
            "!TransferEncoding",
        ),
        (
            "a length, then empty codings",
            "Content-Length: 8\r\nTransfer-Encoding:\r\nTransfer-Encoding:\r\n\r\n1\r\na\r\n0\r\n",
            "!TransferEncoding",
        ),
    ]);
    // RFC 9112, 6.1.
    check(
        "chunked in HTTP/1.0",
        &[(0, "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n")],
        "!ChunkedInHttp10",
    );
}

/// Each case is the content of a request, behind `Transfer-Encoding: chunked`.
#[test]
fn chunks() {
    let cases: &[Case] = &[
        ("a digit in lower case", "a\r\n0123456789\r\n0\r\n\r\n", " [0123456789]."),
        ("a digit in upper case", "A\r\n0123456789\r\n0\r\n\r\n", " [0123456789]."),
        ("twelve bytes", "c\r\nHello, world\r\n0\r\n\r\n", " [Hello, world]."),
        ("two digits", "11\r\nabcdefghijklmnopq\r\n0\r\n\r\n", " [abcdefghijklmnopq]."),
        ("three zeros at the end", "2\r\nab\r\n3\r\n cd\r\n000\r\n\r\n", " [ab] [ cd]."),
        ("trailers", "2\r\nab\r\n0\r\nVary: *\r\nX: t/p\r\n\r\n", " [ab]Vary=*;X=t/p;."),
        ("an extension", "a;foo=bar\r\n0123456789\r\n0\r\n\r\n", " [0123456789]."),
        ("extensions", "2;a;b=c;d=e\r\nxy\r\n3;f;g\r\n zz\r\n0\r\n\r\n", " [xy] [ zz]."),
        ("quoted values", "2;a=\"b; c\";d=\"e\";f;g=h\r\nxy\r\n0\r\n\r\n", " [xy]."),
        ("escapes in quoted values", "2;a=\"b \\\"c\\\"; \\\\d\\\\\";e=\"f\"\r\nxy\r\n0\r\n\r\n", " [xy]."),
        ("the connection ends behind the last size", "2;a\r\nxy\r\n0\r\n", " [xy]!Truncated"),
        ("no semicolon", "2 abc\r\nxy\r\n0 d\r\n\r\n", "!ChunkSize"),
        ("no name behind the semicolon", "2;\r\nxy\r\n0\r\n\r\n", "!ChunkExtension"),
        ("a quote that is not closed", "2;a=\"b\";c=\"d; e\r\nxy\r\n0\r\n\r\n", "!ChunkExtension"),
        ("no last chunk", "3\r\nfoo\r\n\r\n", " [foo]!BareCr"),
        ("space and LF behind the size", "3 \n  \r\nfoo\r\n\r\n", "!BareLf"),
        // RFC 9112, 7.1: the size ends with the line, or with an extension.
        ("space behind the size", "a \r\n0123456789\r\n0\r\n\r\n", "!BareCr"),
        ("CR CR behind the size", "5\r\r;abcd\r\n34\r\nE\r\n0\r\n\r\n", "!BareCr"),
        ("a letter that is no digit", "Z\r\nhello\r\n0\r\n\r\n", "!ChunkSize"),
        ("no line end behind a chunk", "5\r\nabcde0\r\n\r\n", " [abcde]!ChunkEnd"),
        ("LF instead of line ends", "1\nA\n1;a\nB\n0\n\n", "!BareLf"),
    ];
    for &(name, text, expected) in cases {
        let text = format!("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{text}");
        check(name, &[(0, &text)], &format!("PUT / chunked{expected}"));
    }
}
