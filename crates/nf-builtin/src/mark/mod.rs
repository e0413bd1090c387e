//! `mark`: writes the DSCP of IP packets (RFC 2474) and the priority of VLAN tags (IEEE 802.1Q).
//!
//! The two bits beside the DSCP are ECN's (RFC 3168) and stay. The IPv4 header checksum is updated from the
//! difference (RFC 1624); transport checksums do not cover either field. Of several tags the outermost is
//! marked; a frame without tags has no priority to write and stays as it is.

use mmb_packet::{Kind, checksum};

use crate::shared::direction::DirectionFilter;
use mmb_nf::{ArgError, Context, Function, Packet, Properties, Setup, Verdict};

/// See the module's documentation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// In the upper six bits.
    dscp: Option<u8>,
    /// In the upper three bits.
    priority: Option<u8>,
    which: DirectionFilter,
}

impl Function for Mark {
    const TYPE: &'static str = "mark";
    const USAGE: &'static str = "[dscp N|NAME] [vlan-priority N] [forward|reverse]";
    const HELP: &'static str = "writes the DSCP of IP packets, the priority of VLAN tags";

    type Pad = ();
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let mut mark = Mark { dscp: None, priority: None, which: DirectionFilter::Both };
        let mut words = setup.args;
        while let [word, rest @ ..] = words {
            words = match (*word, rest) {
                ("dscp", [value, rest @ ..]) => {
                    mark.dscp = Some(dscp(value)? << 2);
                    rest
                }
                ("vlan-priority", [value, rest @ ..]) => {
                    mark.priority = Some(priority(value)? << 5);
                    rest
                }
                ("dscp" | "vlan-priority", []) => return Err(format!("`{word}` needs a value").into()),
                _ => {
                    mark.which = DirectionFilter::of(word).ok_or_else(|| ArgError::unknown::<Self>(word))?;
                    rest
                }
            };
        }
        match mark {
            Mark { dscp: None, priority: None, .. } => {
                Err("`mark` needs `dscp N`, `vlan-priority N` or both".into())
            }
            mark => Ok(mark),
        }
    }

    fn properties(&self) -> Properties {
        Properties { takes_large_frames: true, ..Properties::default() }
    }

    #[inline(always)]
    fn packet(&self, packet: &mut Packet<'_>, _: &mut (), _: &mut Context<'_, ()>) -> Verdict {
        if self.which.is(packet.direction) {
            if let Some(dscp) = self.dscp {
                set_dscp(packet, dscp);
            }
            if let Some(priority) = self.priority {
                set_priority(packet, priority);
            }
        }
        Verdict::Pass
    }
}

/// The first word of either IP header has the version in its upper four bits; then come IPv4's header length
/// and the byte of DSCP and ECN, or IPv6's such byte and the flow label's beginning.
#[inline(always)]
fn set_dscp(packet: &mut Packet<'_>, dscp: u8) {
    const CHECKSUM_AT: usize = 10;
    let l3 = usize::from(packet.meta.l3_off);
    let Some(header) = packet.head.get_mut(l3..) else { return };
    let Some(word) = header.first_chunk_mut() else { return };
    let old = u16::from_be_bytes(*word);
    if packet.meta.kind.l3() == Kind::IP4 {
        let new = old & !0x00fc | u16::from(dscp);
        *word = new.to_be_bytes();
        if let Some([a, b]) = header.get_mut(CHECKSUM_AT..CHECKSUM_AT + 2) {
            let csum = checksum::update16(u16::from_be_bytes([*a, *b]), old, new);
            [*a, *b] = csum.to_be_bytes();
        }
    } else if packet.meta.kind.l3() == Kind::IP6 {
        *word = (old & !0x0fc0 | u16::from(dscp) << 4).to_be_bytes();
    }
}

/// The tag control information begins with the priority.
#[inline(always)]
fn set_priority(packet: &mut Packet<'_>, priority: u8) {
    /// Behind the addresses and the tag's protocol identifier, if the network header does not begin there.
    const CONTROL_AT: u16 = 14;
    if packet.meta.l3_off > CONTROL_AT
        && let Some(control) = packet.head.get_mut(usize::from(CONTROL_AT))
    {
        *control = *control & 0x1f | priority;
    }
}

fn priority(word: &str) -> Result<u8, ArgError> {
    match word.parse() {
        Ok(n @ 0..=7) => Ok(n),
        _ => Err(ArgError::invalid("VLAN priority", word, "must be 0 to 7")),
    }
}

/// A number, or a name of RFC 2474 (`cs`), 2597 (`af`), 3246 (`ef`), 5865 (`va`, voice-admit) or 8622 (`le`).
fn dscp(word: &str) -> Result<u8, ArgError> {
    let digit = |at: usize| word.as_bytes().get(at).map_or(0, |byte| byte.wrapping_sub(b'0'));
    match (word, word.get(..2), word.len()) {
        ("ef", ..) => return Ok(46),
        ("va", ..) => return Ok(44),
        ("le", ..) => return Ok(1),
        (_, Some("cs"), 3) if digit(2) <= 7 => return Ok(digit(2) * 8),
        (_, Some("af"), 4) if (1..=4).contains(&digit(2)) && (1..=3).contains(&digit(3)) => {
            return Ok(digit(2) * 8 + digit(3) * 2);
        }
        _ => {}
    }
    match word.parse() {
        Ok(n @ 0..=63) => Ok(n),
        _ => Err(format!(
            "DSCP `{word}` is neither a number from 0 to 63 nor one of `ef`, `va`, `le`, `cs0` to `cs7`, `af11` to `af43`"
        ).into()),
    }
}

#[cfg(test)]
mod tests;
