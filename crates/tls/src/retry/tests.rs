use super::*;

/// The first bytes that OpenSSL sends to `example.com`, with TLS 1.3.
const HELLO: &[u8] = include_bytes!("../parse/openssl13.bin");
const CHANGE: &[u8] = &[20, 3, 3, 0, 1, 1];
const DATA: &[u8] = &[23, 3, 3, 0, 2, 22, 1];

fn server_hello(random: [u8; 32]) -> Vec<u8> {
    [&[22, 3, 3, 0, 44, 2, 0, 0, 40, 3, 3][..], &random, &[0, 0x13, 1, 0, 0, 0]].concat()
}

/// RFC 8446, 4.1.3.
#[test]
fn answers_of_servers() {
    let (retry, other) = (server_hello(RETRY_RANDOM), server_hello([7; 32]));
    assert!(takes_hello(&other) && !takes_hello(&retry));
    for cut in 0..RANDOM.end {
        assert!(!takes_hello(&other[..cut]), "{cut}");
    }
    // An alert, another message, and a record that ends within the random value.
    for (at, byte) in [(0, ALERT), (5, 1), (4, 37)] {
        let mut changed = other.clone();
        changed[at] = byte;
        assert!(!takes_hello(&changed), "{at}");
    }
}

/// Reads bytes in pieces. Returns what decides, and the bytes in front of it.
fn read(bytes: &[u8], size: usize, has_early_data: bool) -> Result<(usize, Option<String>), HelloError> {
    let (mut gone, mut skip, mut room) = (0, 0, Vec::new());
    for end in (0..bytes.len()).step_by(size).skip(1).chain([bytes.len()]) {
        match read_second_hello(&bytes[gone..end], (&mut skip, has_early_data), &mut room)? {
            SecondHello::NotYet => gone = end,
            SecondHello::Incomplete(at, needed) => {
                assert!(needed > end - gone - at && skip == 0);
                gone += at;
            }
            SecondHello::Complete(hello) => {
                let name = hello.server_name.unwrap().to_vec();
                return Ok((gone, Some(String::from_utf8(name).unwrap())));
            }
            SecondHello::None => return Ok((gone, None)),
        }
    }
    Ok((gone, Some(String::new())))
}

#[test]
fn a_second_hello_wherever_bytes_are_cut() {
    let alert = [ALERT, 3, 3, 0, 2, 1, 90];
    let early = [CHANGE, DATA, &alert, DATA, HELLO].concat();
    let finished = [CHANGE, DATA].concat();
    let key_exchange = [CHANGE, &[22, 3, 3, 0, 4, 16, 0, 0, 0]].concat();
    let name = Some("example.com".to_owned());
    for size in [1, 2, 3, 5, 6, 7, 50, 1000] {
        let Ok((gone, found)) = read(&early, size, true) else { panic!("{size}") };
        assert!(found == name && (size == 1000 || gone == early.len() - HELLO.len()), "{size}: {gone}");
        assert_eq!(read(&[CHANGE, HELLO].concat(), size, false).unwrap().1, name);
        assert_eq!(read(&early, size, false).unwrap().1, None);
        // Nothing is decided yet.
        assert_eq!(read(&finished, size, true), Ok((finished.len(), Some(String::new()))));
        assert_eq!(
            [read(&finished, size, false).unwrap().1, read(&key_exchange, size, true).unwrap().1],
            [None, None]
        );
        for wrong in [&[24, 3, 3, 0, 1, 1][..], &[22, 3, 3, 0, 0], &[22, 2, 3, 0, 9, 1], b"GET /"] {
            assert!(read(&[CHANGE, wrong].concat(), size, true).is_err(), "{wrong:?}");
        }
    }
}
