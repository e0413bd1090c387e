//! The MTUs of paths that datagrams of chains have met.
//!
//! Theory of operation. A TCP segment that functions make longer is split; a datagram cannot be. So no
//! function makes a datagram longer than its output takes, nor than its path takes, as far as that is known:
//! an ICMP error about a datagram of a session ("too big", RFC 1191 and RFC 8201) is noted for its
//! destination. The sender keeps to the MTU then, and the edit of its next datagram is refused, where it
//! would be lost again and again. There is one place for each hash of a destination. A note is believed for
//! ten minutes (RFC 1191, 6.3), and not below what every link has to carry.

/// Places. A power of two.
const PLACES: usize = 1024;
/// Milliseconds for which a note is believed.
const LIFETIME: u32 = 600_000;
/// The least MTU that is believed: a host accepts so many bytes (RFC 791, 3.2), and every link of IPv6
/// carries so many (RFC 8200, 5).
const LEAST4: u32 = 576;
const LEAST6: u32 = 1280;

/// An address, as in [`mmb_flow::Key`].
type Address = [u8; 16];

#[derive(Clone, Copy, Debug, Default)]
struct Note {
    destination: Address,
    /// 0: there is no note.
    mtu: u16,
    /// When it was made, in milliseconds.
    since: u32,
}

/// The MTUs of paths of a worker.
#[derive(Debug, Default)]
pub(crate) struct PathMtus {
    /// Empty before the first note.
    notes: Vec<Note>,
}

fn place(destination: &Address) -> usize {
    let hash = u128::from_be_bytes(*destination);
    // Halves that are equal must not cancel each other.
    let hash = (hash as u64 ^ ((hash >> 64) as u64).rotate_left(31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 32) as usize % PLACES
}

impl PathMtus {
    /// Notes the MTU of the path to a destination.
    pub fn note(&mut self, now: u32, destination: Address, is_ip4: bool, mtu: u32) {
        self.notes.resize(PLACES, Note::default());
        let mtu = u16::try_from(mtu.max(if is_ip4 { LEAST4 } else { LEAST6 })).unwrap_or(u16::MAX);
        if let Some(note) = self.notes.get_mut(place(&destination)) {
            *note = Note { destination, mtu, since: now };
        }
    }

    /// Returns the bytes of the longest IP packet that the path to a destination takes, as far as known.
    pub fn get(&self, now: u32, destination: &Address) -> usize {
        let note = self.notes.get(place(destination)).filter(|note| {
            note.mtu != 0 && note.destination == *destination && now.wrapping_sub(note.since) < LIFETIME
        });
        note.map_or(usize::MAX, |note| note.mtu.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_believed_for_a_while_and_to_a_limit() {
        let mut paths = PathMtus::default();
        let (one, other) = ([1; 16], [2; 16]);
        assert_eq!(paths.get(0, &[0; 16]), usize::MAX);
        paths.note(u32::MAX, one, true, 1400);
        assert_eq!((paths.get(LIFETIME - 2, &one), paths.get(0, &other)), (1400, usize::MAX));
        assert_eq!(paths.get(LIFETIME - 1, &one), usize::MAX);
        paths.note(5, one, true, 68);
        paths.note(5, other, false, 68);
        assert_eq!((paths.get(5, &one), paths.get(5, &other)), (576, 1280));
        paths.note(5, one, true, 1 << 20);
        assert_eq!(paths.get(5, &one), 65_535);
    }
}
