//! Properties of the reader of ClientHellos.

use mmb_tls::retry::{SecondHello, read_second_hello};
use mmb_tls::{ClientHello, Progress, read_client_hello};

/// Checks what is read of bytes from the network, wherever they are cut.
pub fn check(bytes: &[u8]) {
    let mut room = Vec::new();
    let whole = read_client_hello(bytes, &mut room);
    if let Ok(Progress::Complete(hello)) = whole
        && let Some(name) = hello.server_name
    {
        assert!(bytes.len() > name.len() && !name.is_empty() && name.len() <= 255);
    }
    let mut other = Vec::new();
    for cut in (0..bytes.len()).take(300).chain([bytes.len() / 2]) {
        match read_client_hello(&bytes[..cut], &mut other) {
            // No decision before all bytes that it needs have come.
            Ok(Progress::Incomplete(needed)) => {
                assert!(needed > cut);
                let is_enough = !matches!(whole, Ok(Progress::Incomplete(_)) | Err(_));
                assert!(!is_enough || needed <= bytes.len());
            }
            // Bytes behind do not change it.
            decided => assert_eq!(decided, whole),
        }
    }
    [false, true].into_iter().for_each(|has_early_data| check_second(bytes, has_early_data));
}

/// The second ClientHello does not depend on where the bytes are cut.
fn check_second(bytes: &[u8], has_early_data: bool) {
    let (mut skip, mut room, mut other) = (0, Vec::new(), Vec::new());
    let whole = read_second_hello(bytes, (&mut skip, has_early_data), &mut room);
    for cut in (0..bytes.len()).take(300) {
        let mut left = 0;
        match read_second_hello(&bytes[..cut], (&mut left, has_early_data), &mut other) {
            Ok(SecondHello::NotYet) => {
                let rest = read_second_hello(&bytes[cut..], (&mut left, has_early_data), &mut other);
                let moved = rest.map(|found| match found {
                    SecondHello::Incomplete(at, needed) => SecondHello::Incomplete(cut + at, needed),
                    SecondHello::Complete(hello) => {
                        SecondHello::Complete(ClientHello { end: cut + hello.end, ..hello })
                    }
                    found => found,
                });
                assert_eq!((moved, left), (whole, skip));
            }
            Ok(SecondHello::Incomplete(at, needed)) => assert!(at + needed > cut),
            decided => assert_eq!(decided, whole),
        }
    }
}
