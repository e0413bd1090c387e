//! Properties of the reader of ClientHellos.

use mmb_tls::{Progress, read_client_hello};

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
}
