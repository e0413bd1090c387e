use super::*;

/// The first bytes that OpenSSL sends for `example.com` and `-servername`, with TLS 1.3 and 1.2.
const OPENSSL: [&[u8]; 2] = [include_bytes!("openssl13.bin"), include_bytes!("openssl12.bin")];

fn read(bytes: &[u8]) -> Result<Option<(Option<String>, bool)>, HelloError> {
    let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    Ok(match read_client_hello(bytes, &mut Vec::new())? {
        Progress::Incomplete(_) => None,
        Progress::Complete(hello) => Some((hello.server_name.map(text), hello.has_ech)),
    })
}

/// Puts a length in front of bytes.
fn vector(length_bytes: usize, bytes: &[u8]) -> Vec<u8> {
    [&bytes.len().to_be_bytes()[8 - length_bytes..], bytes].concat()
}

fn names(names: &[(u8, &str)]) -> Vec<u8> {
    let list: Vec<_> =
        names.iter().flat_map(|(kind, name)| [&[*kind][..], &vector(2, name.as_bytes())].concat()).collect();
    vector(2, &list)
}

fn message(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let list: Vec<u8> = extensions
        .iter()
        .flat_map(|(kind, data)| [&kind.to_be_bytes()[..], &vector(2, data)].concat())
        .collect();
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0], &vector(2, &list)].concat();
    [&[1][..], &vector(3, &body)].concat()
}

fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| [&[22, 3, 1][..], &vector(2, part)].concat()).collect()
}

fn hello(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    records(&message(extensions), 1 << 14)
}

#[test]
fn messages_of_openssl() {
    for bytes in OPENSSL {
        assert_eq!(read(bytes), Ok(Some((Some("example.com".to_owned()), false))));
        for cut in 0..bytes.len() {
            let progress = read_client_hello(&bytes[..cut], &mut Vec::new()).map(|progress| match progress {
                Progress::Incomplete(needed) => needed,
                Progress::Complete(_) => 0,
            });
            assert!(
                progress.is_ok_and(|needed| needed > cut && needed <= bytes.len()),
                "{cut}: {progress:?}"
            );
        }
        for size in 1..40 {
            let bytes = records(&bytes[5..], size);
            assert_eq!(read(&bytes), Ok(Some((Some("example.com".to_owned()), false))), "records of {size}");
        }
    }
}

#[test]
fn extensions() {
    let grease = || (0x0a0a, vec![0]);
    assert_eq!(read(&hello(&[])), Ok(Some((None, false))));
    assert_eq!(read(&hello(&[grease(), (43, vec![2, 3, 4])])), Ok(Some((None, false))));
    let ech = [grease(), (0xfe0d, vec![1; 100]), (0, names(&[(0, "outer.example.")]))];
    assert_eq!(read(&hello(&ech)), Ok(Some((Some("outer.example".to_owned()), true))));
    // Without the vector of extensions (RFC 5246, 7.4.1.2).
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0, 10, 1, 0]].concat();
    assert_eq!(read(&records(&[&[1][..], &vector(3, &body)].concat(), 99)), Ok(Some((None, false))));
}

/// RFC 8446, 4.2.1 and 4.2.10.
#[test]
fn a_server_may_ask_for_another_hello() {
    let found = |bytes: &[u8]| match read_client_hello(bytes, &mut Vec::new()) {
        Ok(Progress::Complete(hello)) => (hello.offers_tls13, hello.has_early_data, hello.end),
        other => panic!("{other:?}"),
    };
    assert_eq!(OPENSSL.map(|bytes| found(bytes).0), [true, false]);
    let early = hello(&[(43, vec![2, 3, 4]), (42, vec![])]);
    // Data behind it.
    assert_eq!(found(&[&early[..], &[23, 3, 3, 0, 1, 0]].concat()), (true, true, early.len()));
    let early = records(&early[5..], 20);
    assert_eq!(found(&[&early[..], &[23, 3, 3, 0, 1, 0]].concat()), (true, true, early.len()));
}

#[test]
fn what_is_wrong_is_refused() {
    let long = "a".repeat(256);
    for (list, expected) in [
        (names(&[(0, "a"), (0, "b")]), HelloError::TwoNames),
        (names(&[(1, "a")]), HelloError::Malformed),
        (names(&[]), HelloError::Malformed),
        (vec![], HelloError::Malformed),
        (names(&[(0, "")]), HelloError::Name),
        (names(&[(0, ".")]), HelloError::Name),
        (names(&[(0, "a\0.b")]), HelloError::Name),
        (names(&[(0, "a b")]), HelloError::Name),
        (names(&[(0, &long)]), HelloError::Name),
        ([names(&[(0, "a")]), vec![0]].concat(), HelloError::Malformed),
    ] {
        assert_eq!(read(&hello(&[(0, list.clone())])), Err(expected), "{list:?}");
    }
    assert_eq!(read(&hello(&[(0, names(&[(0, "a")])), (0, names(&[(0, "b")]))])), Err(HelloError::TwoNames));
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"\x80\x2e\x01\x03\x01",
        b"\x16\x02",
        &[22, 3, 1, 0, 0],
        &[22, 3, 1, 0xff, 0],
    ] {
        assert_eq!(read(bytes), Err(HelloError::NotTls));
    }
    // A ServerHello.
    assert_eq!(read(&[22, 3, 3, 0, 4, 2]), Err(HelloError::OtherMessage));
    // A second message in the record of the first one, which has come or not.
    let two = records(&[message(&[]), message(&[])].concat(), 99);
    assert_eq!(read(&two), Err(HelloError::Malformed));
    assert_eq!(read(&two[..5 + message(&[]).len()]), Err(HelloError::Malformed));
    // An alert in the middle.
    let split = records(&message(&[]), 20);
    assert_eq!(read(&[&split[..25], &[21, 3, 1, 0, 2, 1, 0]].concat()), Err(HelloError::Malformed));
    assert_eq!(read(&[22, 3, 1, 0, 4, 1, 0, 0x80, 0]), Err(HelloError::TooLong));
    let odd = [&[1][..], &vector(3, &[&[3, 3][..], &[7; 32], &[0, 0, 1, 0x13, 1, 0]].concat())].concat();
    assert_eq!(read(&records(&odd, 99)), Err(HelloError::Malformed));
}
