//! Initial packets of clients, for tests.

use aes::cipher::BlockEncrypt;
use aes_gcm::Nonce;
use aes_gcm::aead::AeadInPlace;

use super::{InitialKeys, Version};

/// Returns a CRYPTO frame.
pub fn crypto_frame(offset: u16, bytes: &[u8]) -> Vec<u8> {
    let number = |n: u16| (n & 0x3fff | 0x4000).to_be_bytes();
    [&[6][..], &number(offset), &number(bytes.len() as u16), bytes].concat()
}

/// Returns an Initial packet with a number of four bytes. `id`: the connection id that its keys come from.
pub fn initial_packet(
    (version, id): (Version, &[u8]),
    destination: &[u8],
    number: u32,
    frames: &[u8],
) -> Vec<u8> {
    let (first, version_number) = match version {
        Version::V1 => (0xc3, 1u32),
        Version::V2 => (0xd3, 0x6b33_43cf),
    };
    let len = (4 + frames.len() + 16) as u16;
    let mut packet = [
        &[first][..],
        &version_number.to_be_bytes(),
        &[destination.len() as u8],
        destination,
        &[0, 0],
        &(len | 0x4000).to_be_bytes(),
        &number.to_be_bytes(),
    ]
    .concat();
    let keys = InitialKeys::new(version, id);
    let mut nonce = keys.iv;
    nonce.iter_mut().skip(8).zip(number.to_be_bytes()).for_each(|(byte, number)| *byte ^= number);
    let mut body = frames.to_vec();
    let sealed = keys.payload.encrypt_in_place_detached(Nonce::from_slice(&nonce), &packet, &mut body);
    let at = packet.len();
    packet.extend_from_slice(&body);
    packet.extend(sealed.into_iter().flatten());
    let mut mask = [0; 16];
    mask.iter_mut().zip(packet.iter().skip(at)).for_each(|(mask, byte)| *mask = *byte);
    keys.header.encrypt_block((&mut mask).into());
    packet.iter_mut().take(1).for_each(|byte| *byte ^= mask[0] & 0x0f);
    packet.iter_mut().skip(at - 4).zip(&mask[1..5]).for_each(|(byte, mask)| *byte ^= mask);
    packet
}
