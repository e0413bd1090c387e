//! Cookies that name the server of a client.
//!
//! The value stands for the address of the server: it is the same after a restart and in other instances, and
//! does not change when servers are added. It does not tell the address.

use std::hash::Hasher;

use mmb_http::MessageHead;
use siphasher::sip::SipHasher13;

use crate::lb::config::BackendAddress;

/// Bytes of a value.
const VALUE: usize = 16;

/// The cookies of the servers of an instance.
pub(super) struct Cookies {
    name: Box<[u8]>,
    /// The values of Set-Cookie, by server.
    headers: Vec<Box<[u8]>>,
}

impl Cookies {
    pub fn new(name: &[u8], places: impl Iterator<Item = BackendAddress>) -> Cookies {
        let header = |place: BackendAddress| {
            let mut hasher = SipHasher13::new();
            hasher.write(place.to_string().as_bytes());
            let text = format!("={:016x}; Path=/; HttpOnly", hasher.finish());
            [name, text.as_bytes()].concat().into()
        };
        Cookies { name: name.into(), headers: places.map(header).collect() }
    }

    /// Returns the value of Set-Cookie for a server.
    pub fn header(&self, server: u16) -> Option<&[u8]> {
        self.headers.get(usize::from(server)).map(|header| &**header)
    }

    /// Returns the server that the cookies of a request name (RFC 6265, 4.2.1).
    pub fn find(&self, request: &MessageHead) -> Option<u16> {
        let pairs = request.values(b"cookie").flat_map(|value| value.split(|&byte| byte == b';'));
        let mut values =
            pairs.filter_map(|pair| pair.trim_ascii().strip_prefix(&*self.name)?.strip_prefix(b"="));
        let value = values.next()?;
        let from = self.name.len() + 1;
        let is_of = |header: &[u8]| header.get(from..from + VALUE) == Some(value);
        self.headers.iter().position(|header| is_of(header)).map(|server| server as u16)
    }
}
