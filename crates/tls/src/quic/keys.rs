//! The protection of Initial packets (RFC 9001, 5).

use aes::Aes128;
use aes::cipher::{BlockEncrypt, KeyInit};
use aes_gcm::aead::AeadInPlace;
use aes_gcm::{Aes128Gcm, Nonce, Tag};
use hkdf::Hkdf;
use sha2::Sha256;

use super::{Initial, QuicError, Version};

/// RFC 9001, 5.2, and RFC 9369, 3.3.1.
const SALT_V1: [u8; 20] = [
    0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc,
    0xbb, 0x7f, 0x0a,
];
const SALT_V2: [u8; 20] = [
    0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26, 0x9d, 0xcb, 0xf9,
    0xbd, 0x2e, 0xd9,
];
const TAG: usize = 16;
/// Bytes in front of the sample that masks the header, from the packet number on, and of the sample.
const BEFORE_SAMPLE: usize = 4;
const SAMPLE: usize = 16;

/// The keys of the Initial packets that a client sends.
pub struct InitialKeys {
    pub(super) payload: Aes128Gcm,
    pub(super) iv: [u8; 12],
    pub(super) header: Aes128,
}

impl std::fmt::Debug for InitialKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InitialKeys").finish_non_exhaustive()
    }
}

/// A packet without its protection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The packet number.
    pub number: u64,
    /// The place of its frames in the datagram.
    pub frames: std::ops::Range<usize>,
}

/// Derives a key with a label (RFC 8446, 7.1).
fn expand<const N: usize>(secret: &Hkdf<Sha256>, label: &[u8]) -> [u8; N] {
    let mut key = [0; N];
    let len = (N as u16).to_be_bytes();
    let parts: [&[u8]; 5] = [&len, &[6 + label.len() as u8], b"tls13 ", label, &[0]];
    // All lengths are short enough.
    let _ = secret.expand_multi_info(&parts, &mut key);
    key
}

impl InitialKeys {
    /// Derives the keys from the connection id that the client has chosen for the server.
    pub fn new(version: Version, id: &[u8]) -> InitialKeys {
        let (salt, [key, iv, header]): (_, [&[u8]; 3]) = match version {
            Version::V1 => (SALT_V1, [b"quic key", b"quic iv", b"quic hp"]),
            Version::V2 => (SALT_V2, [b"quicv2 key", b"quicv2 iv", b"quicv2 hp"]),
        };
        let initial = Hkdf::<Sha256>::new(Some(&salt), id);
        let secret: [u8; 32] = expand(&initial, b"client in");
        let secret = Hkdf::<Sha256>::from_prk(&secret).unwrap_or_else(|_| Hkdf::new(None, &secret));
        InitialKeys {
            payload: Aes128Gcm::new(&expand::<16>(&secret, key).into()),
            iv: expand(&secret, iv),
            header: Aes128::new(&expand::<16>(&secret, header).into()),
        }
    }

    /// Takes the protection off a packet, in place. `largest`: the greatest packet number so far, if there is
    /// one.
    ///
    /// # Errors
    /// The packet is too short, or was not protected with these keys. Then nothing is changed.
    pub fn open(
        &self,
        datagram: &mut [u8],
        packet: &Initial,
        largest: Option<u64>,
    ) -> Result<Opened, QuicError> {
        let at = packet.number_at.wrapping_sub(packet.range.start);
        let bytes = datagram.get_mut(packet.range.clone()).ok_or(QuicError::Malformed)?;
        let sample = bytes.get(at + BEFORE_SAMPLE..at + BEFORE_SAMPLE + SAMPLE);
        let mut mask = *sample.and_then(<[u8]>::first_chunk::<SAMPLE>).ok_or(QuicError::Malformed)?;
        self.header.encrypt_block((&mut mask).into());
        let before = *bytes.get(at..).and_then(<[u8]>::first_chunk::<4>).ok_or(QuicError::Malformed)?;
        let first_before = bytes.first().copied().unwrap_or(0);
        let first = first_before ^ mask[0] & 0x0f;
        let len = usize::from(first & 3) + 1;
        let number = before
            .iter()
            .zip(&mask[1..])
            .take(len)
            .fold(0, |number, (byte, mask)| number << 8 | u64::from(byte ^ mask));
        let full = full_number(number, len, largest);
        let (header, body) = bytes.split_at_mut_checked(at + len).ok_or(QuicError::Malformed)?;
        let (frames, tag) =
            body.len().checked_sub(TAG).map(|end| body.split_at_mut(end)).ok_or(QuicError::Malformed)?;
        header.iter_mut().take(1).for_each(|byte| *byte = first);
        header.iter_mut().skip(at).zip(&mask[1..]).for_each(|(byte, mask)| *byte ^= mask);
        let mut nonce = self.iv;
        nonce.iter_mut().skip(4).zip(full.to_be_bytes()).for_each(|(byte, number)| *byte ^= number);
        let tag = Tag::clone_from_slice(tag);
        let opened = self.payload.decrypt_in_place_detached(Nonce::from_slice(&nonce), header, frames, &tag);
        if opened.is_err() {
            // The tag is compared before anything is decrypted.
            header.iter_mut().take(1).for_each(|byte| *byte = first_before);
            header.iter_mut().skip(at).zip(before).for_each(|(byte, before)| *byte = before);
            return Err(QuicError::OtherKeys);
        }
        let start = packet.number_at + len;
        Ok(Opened { number: full, frames: start..start + frames.len() })
    }
}

/// Returns the packet number that has these lower bytes, and is closest to the next one (RFC 9000, A.3).
fn full_number(truncated: u64, len: usize, largest: Option<u64>) -> u64 {
    let next = largest.map_or(0, |largest| largest + 1);
    let window = 1 << (8 * len);
    let candidate = next & !(window - 1) | truncated;
    if candidate + window / 2 <= next && candidate + window < 1 << 62 {
        candidate + window
    } else if candidate > next + window / 2 && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::full_number;

    /// The example of RFC 9000, A.3.
    #[test]
    fn the_full_packet_number() {
        assert_eq!(full_number(0x9b32, 2, Some(0xa82f_30ea)), 0xa82f_9b32);
        assert_eq!([full_number(7, 1, None), full_number(0xff, 1, None)], [7, 0xff]);
        assert_eq!([full_number(0, 1, Some(0xff)), full_number(0xff, 1, Some(0x100))], [0x100, 0xff]);
    }
}
