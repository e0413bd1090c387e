//! Changes of headers and payload that keep checksums right (RFC 1624).

use mmb_packet::checksum::{fold, sum, update16};
use mmb_packet::{Kind, PacketFlags};

use super::Packet;

/// Offset of the checksum in an IPv4 header.
const IP4_CHECKSUM: usize = 10;

impl Packet<'_> {
    /// Writes bytes into the IP header, from byte `at` of it on. Updates the IPv4 header checksum, and the
    /// transport checksum if addresses change.
    ///
    /// Returns false, and changes nothing, if the bytes are not all in the fixed header. The IPv4 checksum
    /// itself must not be written.
    pub fn write_ip(&mut self, at: usize, bytes: &[u8]) -> bool {
        let start = usize::from(self.meta.l3_off);
        let is_ip4 = self.meta.kind.l3() == Kind::IP4;
        let (len, addresses) = if is_ip4 { (20, 12) } else { (40, 8) };
        let fits = self.meta.kind.l3() != 0 && at + bytes.len() <= len && start + len <= self.head.len();
        if !fits {
            return false;
        }
        if at < addresses && at + bytes.len() > addresses {
            let (front, rest) = bytes.split_at(addresses - at);
            return self.write_ip(at, front) && self.write_ip(addresses, rest);
        }
        let (old, new) = overwrite(&mut self.head[start..], at, bytes);
        if is_ip4 {
            update(&mut self.head[start..], IP4_CHECKSUM, old, new);
        }
        // With a routing header, the checksum covers a destination that is elsewhere.
        let is_covered = at >= addresses && !self.meta.flags.contains(PacketFlags::ROUTED);
        if is_covered && self.meta.kind.l4() != Kind::ICMP {
            self.update_l4(old, new);
        }
        true
    }

    /// Writes bytes from byte `at` behind the beginning of the transport header on, and updates the checksum
    /// of TCP, UDP, ICMP and ICMPv6.
    ///
    /// Returns false, and changes nothing, if the bytes are not all in the contiguous head. The checksum
    /// itself must not be written. A UDP checksum of zero stays zero: over IPv4 there is none (RFC 768), and
    /// over IPv6 that is allowed in tunnels only (RFC 6935), whose ends, and no one else, know them.
    #[inline]
    pub fn write_l4(&mut self, at: usize, bytes: &[u8]) -> bool {
        let Some(l4) = self.head.get_mut(usize::from(self.meta.l4_off)..) else { return false };
        if at + bytes.len() > l4.len() {
            return false;
        }
        let (old, new) = overwrite(l4, at, bytes);
        self.update_l4(old, new);
        true
    }

    #[inline]
    fn update_l4(&mut self, old: u16, new: u16) {
        let field = match self.meta.kind.l4() {
            Kind::TCP => 16,
            Kind::UDP => 6,
            Kind::ICMP | Kind::ICMP6 => 2,
            _ => return,
        };
        let Some(l4) = self.head.get_mut(usize::from(self.meta.l4_off)..) else { return };
        let is_udp = field == 6;
        if is_udp && l4.get(field..field + 2) == Some(&[0, 0]) {
            return;
        }
        update(l4, field, old, new);
        if is_udp && let Some(checksum @ [0, 0]) = l4.get_mut(field..field + 2) {
            checksum.fill(0xff);
        }
    }
}

/// Writes bytes at an offset of a header. Returns the sums of the 16-bit words that they touch, before and
/// after. The last word may reach one byte behind the data; that byte counts as zero.
#[inline]
fn overwrite(header: &mut [u8], at: usize, bytes: &[u8]) -> (u16, u16) {
    let (start, end) = (at & !1, (at + bytes.len()).next_multiple_of(2).min(header.len()));
    let Some(words) = header.get_mut(start..end) else { return (0, 0) };
    let old = fold(sum(words, 0));
    words[at - start..at - start + bytes.len()].copy_from_slice(bytes);
    (old, fold(sum(words, 0)))
}

/// Updates the checksum at an offset of a header.
#[inline]
fn update(header: &mut [u8], at: usize, old: u16, new: u16) {
    if let Some([high, low]) = header.get_mut(at..at + 2) {
        [*high, *low] = update16(u16::from_be_bytes([*high, *low]), old, new).to_be_bytes();
    }
}
