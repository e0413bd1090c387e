//! `mark`: writes the DSCP of IP packets (RFC 2474) and the priority of VLAN tags (IEEE 802.1Q).
//!
//! The two bits beside the DSCP are ECN's (RFC 3168) and stay. The IPv4 header checksum is updated from the
//! difference (RFC 1624); transport checksums do not cover either field. Of several tags the outermost is
//! marked; a frame without tags has no priority to write and stays as it is.

use mmb_packet::{Kind, checksum};

use crate::shared::direction::DirectionFilter;
use mmb_nf::{ArgError, Context, Function, Packet, Setup, Verdict};

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
mod tests {
    use mmb_packet::build::{Extension, Frame, Icmp, Ip4, Ip6, Tcp, Udp};
    use proptest::prelude::*;

    use super::*;
    use mmb_nf::testing::{Bench, Forward, Reverse, assert_checksums, refused};

    /// Builds a packet with a byte of DSCP and ECN, and a priority in its tag.
    fn frame(ip6: bool, tos: u8, tag: Option<u16>, payload: usize) -> Vec<u8> {
        let frame = if ip6 {
            let ip = Ip6::new([1; 16], [2; 16]).with(vec![Extension::Plain { number: 0, body: vec![1, 4] }]);
            Frame::new(Ip6 { traffic_class: tos, flow_label: 0xf_abcd, ..ip }, Udp::new(1, 2))
        } else {
            let ip = Ip4 { tos, id: 77, options: vec![1; 3], ..Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]) };
            Frame::new(ip, Tcp::new(1, 2))
        };
        let frame = frame.payload(vec![0x5a; payload]);
        match tag {
            Some(tci) => frame.tag(0x88a8, tci).vlan(0xe007).build(),
            None => frame.build(),
        }
    }

    proptest! {
        #[test]
        fn a_marked_packet_is_as_if_it_had_been_sent_so(
            ip6: bool, tos: u8, dscp in 0..64u8, priority in 0..8u16, tci: u16, tagged: bool, payload in 0..40usize,
        ) {
            let mut bench = Bench::<Mark>::new(&format!("dscp {dscp} vlan-priority {priority}"));
            let before = frame(ip6, tos, tagged.then_some(tci), payload);
            let after = frame(ip6, dscp << 2 | tos & 3, tagged.then_some(tci & 0x1fff | priority << 13), payload);
            let session = bench.open(&before);
            for direction in [Forward, Reverse] {
                let done = bench.packet(session, direction, &before);
                prop_assert_eq!(done.verdict, Verdict::Pass);
                prop_assert_eq!(&done.frame, &after);
                assert_checksums(&done.frame);
            }
        }
    }

    #[test]
    fn a_wrong_checksum_stays_wrong() {
        let mut bench = Bench::<Mark>::new("dscp ef");
        let mut before = frame(false, 0, None, 3);
        before[14 + 10] ^= 0x40;
        let session = bench.open(&before);
        let done = bench.packet(session, Forward, &before);
        let right = frame(false, 46 << 2, None, 3);
        let field = |frame: &[u8]| u16::from_be_bytes([frame[24], frame[25]]);
        assert_ne!(field(&done.frame), field(&right));
        assert_eq!(done.frame[15], 46 << 2);
    }

    #[test]
    fn one_direction_only() {
        let mut bench = Bench::<Mark>::new("dscp 10 reverse");
        let before = frame(false, 0, None, 0);
        let session = bench.open(&before);
        assert_eq!(bench.packet(session, Forward, &before).frame, before);
        assert_eq!(bench.packet(session, Reverse, &before).frame[15], 40);
    }

    #[test]
    fn later_fragments_are_marked_too() {
        let ip = Ip4 { fragment_offset: 100, ..Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]) };
        let echo = Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Icmp::new(8)).build();
        let fragment = Frame::new(ip, mmb_packet::build::Transport::Raw(17)).payload(vec![1; 5]).build();
        let mut bench = Bench::<Mark>::new("dscp cs7");
        let session = bench.open(&echo);
        let done = bench.packet(session, Forward, &fragment);
        assert_eq!(done.frame[15], 56 << 2);
        assert_checksums(&done.frame);
    }

    /// RFC 4594, figure 3.
    #[test]
    fn names_of_code_points() {
        for (name, value) in [
            ("cs0", 0),
            ("cs1", 8),
            ("cs7", 56),
            ("af11", 10),
            ("af23", 22),
            ("af31", 26),
            ("af43", 38),
            ("ef", 46),
            ("va", 44),
            ("le", 1),
            ("63", 63),
        ] {
            assert_eq!(dscp(name), Ok(value), "{name}");
        }
        for wrong in ["", "64", "cs8", "cs", "cs77", "af10", "af51", "af1", "efx", "-1", "é"] {
            assert!(dscp(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_refused() {
        assert_eq!(refused::<Mark>(""), "`mark` needs `dscp N`, `vlan-priority N` or both");
        assert_eq!(refused::<Mark>("forward"), "`mark` needs `dscp N`, `vlan-priority N` or both");
        assert_eq!(refused::<Mark>("vlan-priority 8"), "invalid VLAN priority `8`: must be 0 to 7");
        assert_eq!(refused::<Mark>("dscp"), "`dscp` needs a value");
        assert!(refused::<Mark>("dscp 1 both").contains("unknown argument `both`"));
    }
}
