//! Properties of the rewriter: it agrees with the oracle. The fuzz target `rewrite` runs them on rules and
//! frames from the fuzzer's bytes. Tests of the crate run them on the corpus and on random bytes.

use mmb_lang::{Match, Rule};
use mmb_oracle::{Outcome, Settings, Verdict, evaluate, evaluate_with, generate};
use mmb_packet::{DropReason, Kind, Meta, PacketBuf, PacketFlags, VecPacket, parse};
use mmb_rewrite::{EditLimits, EditProgram, apply_programs};

const IN_PORT: u16 = 0;
const OUT_PORT: u16 = 1;

/// Panics if rewriter and oracle disagree on the rules and frames in `bytes`, or on `bytes` as a frame.
pub fn check(bytes: &[u8]) {
    let (rules, frames) = generate::case(bytes);
    let always = unconditional(rules.clone());
    for frame in frames.iter().map(|frame| &**frame).chain([bytes]) {
        agree(&rules, frame);
        agree(&always, frame);
        if let Some(frame) = coming_to_zero(&always, frame) {
            agree(&always, &frame);
        }
    }
    any_metadata(&rules, bytes);
}

/// Returns the targets without conditions, so that every edit applies to every frame.
pub fn unconditional(mut rules: Vec<Rule>) -> Vec<Rule> {
    for rule in &mut rules {
        rule.matches = vec![Match::all()];
    }
    rules
}

/// Option bytes that can be added to a frame: more than any header holds, none, and the smallest number.
const GROWTH: [usize; 3] = [64, 0, 4];

/// Panics if the edits of the matching rules give another frame or output port than the oracle, for any
/// maximum frame length and any head room.
pub fn agree(rules: &[Rule], frame: &[u8]) {
    for growth in GROWTH {
        let most = frame.len() + growth;
        // The length of a redirected packet is checked by its output port.
        let frame_max = |port| if port == OUT_PORT { most } else { most + 4 };
        let settings = Settings { frame_max: &frame_max, ..Settings::default() };
        let rules = generate::numbered(rules);
        let outcome = evaluate_with(&settings, &rules, &generate::port, IN_PORT, OUT_PORT, frame);
        for room in GROWTH {
            agree_within(&rules, frame, &outcome, &frame_max, room);
        }
    }
}

fn agree_within(
    rules: &[(u32, Rule)],
    frame: &[u8],
    outcome: &Outcome,
    frame_max: &dyn Fn(u16) -> usize,
    room: usize,
) {
    let mut meta = Meta { out_port: OUT_PORT, ..Meta::default() };
    let parsed = parse(frame, frame.len(), &mut meta);
    if let Verdict::Drop(reason) = outcome.verdict {
        assert!(parsed.is_ok() || parsed == Err(reason), "{parsed:?} instead of {reason:?}");
        return;
    }
    assert_eq!(parsed, Ok(()));
    let matched = outcome.matched.iter().map(|index| program(&rules[*index as usize - 1].1));
    let programs: Vec<EditProgram> = matched.collect();
    let (mut packet, before) = (VecPacket::with_room(frame, room), meta);
    let done = apply_programs(programs.iter(), &mut packet, &mut meta, EditLimits { frame_max });
    let growth = outcome.bytes.len().saturating_sub(frame.len());
    if done == Err(DropReason::OptionRoom) || outcome.refused.is_some() || growth > room {
        assert_eq!(done, Err(outcome.refused.unwrap_or(DropReason::OptionRoom)));
        assert_eq!((packet.head(), meta), (frame, before), "refused, yet changed");
        return;
    }
    assert_eq!(done, Ok(()));
    assert_eq!(meta.out_port, outcome.out_port);
    assert_eq!(packet.head_room(), room + frame.len() - packet.len(), "the payload was moved");
    if let Err(difference) = outcome.check_bytes(packet.head()) {
        panic!("{difference} in {:?}", generate::Frame(packet.head().to_vec()));
    }
    still_fits(&packet, &meta);
}

/// The metadata equals that of a parse of the edited packet, except for the flow hash, which stays that of
/// the received packet.
fn still_fits(packet: &VecPacket, meta: &Meta) {
    let mut again = Meta { out_port: meta.out_port, ..Meta::default() };
    assert_eq!(parse(packet.head(), packet.len(), &mut again), Ok(()));
    let fields = |meta: &Meta| (meta.l3_off, meta.l4_off, meta.end, meta.kind, meta.proto, meta.flags);
    assert_eq!(fields(&again), fields(meta));
}

/// The frame with an error in its transport checksum for which the checksum becomes zero under these rules.
pub fn coming_to_zero(rules: &[Rule], frame: &[u8]) -> Option<Vec<u8>> {
    let mut meta = Meta::default();
    parse(frame, frame.len(), &mut meta).ok()?;
    let offset = match meta.kind.l4() {
        Kind::TCP => 16,
        Kind::UDP => 6,
        Kind::L4_NONE => return None,
        _ => 2,
    };
    let at = usize::from(meta.l4_off) + offset;
    let word = |bytes: &[u8]| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let after = word(&evaluate(&generate::numbered(rules), &generate::port, IN_PORT, OUT_PORT, frame).bytes);
    // Before minus after, in ones' complement. The same difference leads to zero.
    let (difference, borrow) = word(frame).overflowing_sub(after);
    let mut frame = frame.to_vec();
    frame[at..at + 2].copy_from_slice(&difference.wrapping_sub(u16::from(borrow)).to_be_bytes());
    Some(frame)
}

/// Metadata of another packet: nothing may panic, and only the bytes that it describes may change.
pub fn any_metadata(rules: &[Rule], bytes: &[u8]) {
    let Some((&[l3, l4, l4_high, kind, flags], head)) = bytes.split_first_chunk() else { return };
    let l4_off = u16::from_be_bytes([if l4_high < 0xf0 { 0 } else { l4_high }, l4]);
    let meta = Meta {
        l3_off: l3.into(),
        l4_off,
        kind: Kind(kind),
        flags: PacketFlags::from_bits_retain(flags),
        ..Meta::default()
    };
    let transport = (Kind::TCP..=Kind::ICMP6).contains(&meta.kind.l4());
    for rule in rules {
        let (mut packet, mut meta) = (VecPacket::new(head), meta);
        let done =
            apply_programs([program(rule)].iter(), &mut packet, &mut meta, EditLimits { frame_max: |_| 300 });
        let first = usize::from(meta.l3_off).min(if transport { usize::from(l4_off) } else { usize::MAX });
        let untouched = first.min(head.len());
        assert_eq!(packet.head()[..untouched], head[..untouched]);
        if done.is_err() || (transport && usize::from(l4_off) >= head.len()) {
            assert_eq!(packet.head(), head);
        }
    }
}

fn program(rule: &Rule) -> EditProgram {
    EditProgram::compile(&rule.targets, &generate::port)
        .unwrap_or_else(|error| panic!("{rule} does not compile: {}", error.message))
}
