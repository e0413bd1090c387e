//! `mss-clamp`: lowers the maximum segment size of TCP connections.
//!
//! The option (RFC 9293, 3.7.1; RFC 6691) is in segments with SYN, and tells how much the sender can receive
//! in one segment. A greater value is lowered in both directions, so that neither end sends segments that a
//! tunnel would have to fragment. A SYN without the option is not changed: its sender is assumed to receive
//! 536 bytes over IPv4 and 1220 over IPv6. The value does not depend on other options of the segment (RFC
//! 6691, 2). The checksum is updated incrementally (RFC 1624).

use mmb_packet::{TcpOptions, checksum};

use mmb_nf::WorkerCounters;
use mmb_nf::{ArgError, ConstantRewrite, Context, Function, Packet, Properties, Setup, Verdict};

const SYN: u8 = 0x02;
const FIXED: usize = 20;
const CHECKSUM_AT: usize = 16;
const MSS: u8 = 2;

/// See the module's documentation.
pub(crate) struct MssClamp {
    most: u16,
    clamped: WorkerCounters<1>,
}

impl Function for MssClamp {
    const TYPE: &'static str = "mss-clamp";
    const USAGE: &'static str = "BYTES";
    const HELP: &'static str = "lowers the maximum segment size that TCP connections agree on";

    type Pad = ();
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let [word] = setup.args else {
            return Err("`mss-clamp` needs one number, the greatest segment in bytes, such as `1360`".into());
        };
        match word.parse() {
            Ok(most @ 64..) => Ok(MssClamp { most, clamped: WorkerCounters::new(setup.workers) }),
            _ => Err(ArgError::invalid("segment size", word, "must be 64 to 65535")),
        }
    }

    fn properties(&self) -> Properties {
        Properties { takes_large_frames: true, ..Properties::default() }
    }

    #[inline(always)]
    fn packet(&self, packet: &mut Packet<'_>, _: &mut (), cx: &mut Context<'_, ()>) -> Verdict {
        if packet.tcp_flags() & SYN != 0 && self.clamp(packet) {
            self.clamped.add(cx.worker, 0, 1);
        }
        Verdict::Pass
    }

    /// Only SYNs are changed.
    fn constant_rewrite(&self, (): &()) -> Option<ConstantRewrite> {
        Some(ConstantRewrite::default())
    }

    fn report(&self) -> Vec<(String, String)> {
        vec![("lowered SYNs".into(), self.clamped.sum(0).to_string())]
    }
}

impl MssClamp {
    /// Lowers the options of a segment. Returns whether one was lowered.
    #[inline(never)]
    fn clamp(&self, packet: &mut Packet<'_>) -> bool {
        let Some(segment) = packet.head.get_mut(usize::from(packet.meta.l4_off)..) else { return false };
        let mut lowered = false;
        // Offset behind the last option, from the end of the fixed header.
        let mut next = 0;
        while let Some((at, old)) = find(segment, &mut next) {
            if old > self.most {
                set(segment, at, old, self.most);
                lowered = true;
            }
        }
        lowered
    }
}

/// Returns offset and value of the next maximum segment size option. An option with a wrong length is
/// skipped.
fn find(segment: &[u8], next: &mut usize) -> Option<(usize, u16)> {
    let end = usize::from(segment.get(12)? >> 4) * 4;
    let mut options = TcpOptions::new(segment.get(FIXED + *next..end)?);
    let option = options.find(|option| option.kind == MSS && option.data.len() == 2)?;
    let (at, data) = (FIXED + *next + option.at + 2, option.data);
    *next += options.position();
    Some((at, u16::from_be_bytes(data.try_into().ok()?)))
}

/// Writes a value and updates the checksum. At an odd offset the value lies across two words of the sum, as
/// if its bytes were swapped (RFC 1071, 2.B).
fn set(segment: &mut [u8], at: usize, old: u16, new: u16) {
    if let Some(value) = segment.get_mut(at..at + 2) {
        value.copy_from_slice(&new.to_be_bytes());
    }
    let words = if at.is_multiple_of(2) { (old, new) } else { (old.swap_bytes(), new.swap_bytes()) };
    if let Some([a, b]) = segment.get_mut(CHECKSUM_AT..CHECKSUM_AT + 2) {
        let csum = checksum::update16(u16::from_be_bytes([*a, *b]), words.0, words.1);
        [*a, *b] = csum.to_be_bytes();
    }
}

#[cfg(test)]
mod tests;
