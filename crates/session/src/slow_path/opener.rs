//! Judges a session by the packet that opened it, after the rules that opened it are gone.
//!
//! Theory of operation. A session whose rules are all gone goes on if the rules in force would open it: if
//! they match its first packet, and do not drop it. That packet is gone. What decides about it is made
//! again: the key of the session, the port that it came in by, and SYN for TCP. So the direction of the next
//! packet does not matter, nor a match on `tcp-syn`. Rules that match other properties of the first packet
//! do not match again. Sessions that rules would translate now cannot go on untranslated. ICMP is left out:
//! a query that fails is repeated as a new session.

use mmb_flow::Key;
use mmb_packet::{Kind, Meta, parse};
use mmb_policy::{Batch, Outcome, Verdict};

use crate::Environment;
use crate::chains::ChainState;
use crate::rules::RuleState;
use crate::rules::attached::{self, SessionRule};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Bytes of the longest packet: IPv6 and TCP.
const LONGEST: usize = ETHERNET + 40 + 20;

/// Buffers for the first packet of a session.
#[derive(Debug, Default)]
pub(crate) struct OpenerScratch {
    batch: Box<Batch>,
    edits: Vec<u32>,
}

/// Adds the stateful rules to `list` that would open the session now. Adds none if the first packet would be
/// dropped, or be translated.
///
/// `key`: the forward key of the session; `in_port`, `back_port`: the input ports of both directions.
pub(crate) fn add_opening_rules(
    rules: &mut RuleState,
    chains: &ChainState,
    env: &impl Environment,
    (key, [in_port, back_port]): (&Key, [u16; 2]),
    list: &mut Vec<SessionRule>,
) {
    let policy = env.policy();
    let Some((frame, len)) = first_packet(key) else { return };
    let (frame, mut meta) = (&frame[..len], Meta::default());
    if parse(frame, len, &mut meta).is_err() {
        return;
    }
    // The replies come in where the first packet went out.
    let out_port = if env.routed(in_port) { back_port } else { env.out_port(in_port) };
    let OpenerScratch { batch, edits } = &mut rules.opener;
    policy.classifier().classify_one(batch, frame, &meta, [in_port, out_port]);
    let mut outcome = Outcome::default();
    edits.clear();
    let sink = &mut (|_, _| (), |verdict: Verdict| outcome = verdict.outcome);
    policy.decide(batch, edits, || u32::MAX, sink);
    let infos = || batch.hits.iter().map(|hit| (hit.slot, policy.rule_info(hit.slot)));
    let opens = infos().any(|(_, info)| info.opens_sessions());
    let translates = infos().any(|(slot, info)| info.binds || chains.is_translated_by(policy, slot));
    if outcome.drop || !opens || translates {
        return;
    }
    for (slot, _) in infos().filter(|(_, info)| info.stateful) {
        if let Some(rule) = SessionRule::new(policy, slot, false) {
            attached::insert(list, rule);
        }
    }
}

/// A packet with this key, and its length. None for ICMP.
fn first_packet(key: &Key) -> Option<([u8; LONGEST], usize)> {
    let mut frame = [0; LONGEST];
    let is_ip4 = Kind(key.kind).l3() == Kind::IP4;
    let (transport, header) = match key.proto {
        1 | 58 => return None,
        6 => (20, if is_ip4 { 20 } else { 40 }),
        17 => (8, if is_ip4 { 20 } else { 40 }),
        _ => (0, if is_ip4 { 20 } else { 40 }),
    };
    let len = ETHERNET + header + transport;
    let ip = &mut frame[ETHERNET..len];
    if is_ip4 {
        ip[..10].copy_from_slice(&[0x45, 0, 0, (header + transport) as u8, 0, 0, 0, 0, 64, key.proto]);
        ip[12..16].copy_from_slice(&key.source[..4]);
        ip[16..20].copy_from_slice(&key.destination[..4]);
    } else {
        ip[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, transport as u8, key.proto, 64]);
        ip[8..24].copy_from_slice(&key.source);
        ip[24..40].copy_from_slice(&key.destination);
    }
    let segment = &mut ip[header..];
    if transport > 0 {
        segment[..2].copy_from_slice(&key.source_port);
        segment[2..4].copy_from_slice(&key.destination_port);
    }
    match transport {
        // Five words of header, and SYN.
        20 => segment[12..14].copy_from_slice(&[0x50, 0x02]),
        8 => segment[5] = 8,
        _ => {}
    }
    frame[12..ETHERNET].copy_from_slice(if is_ip4 { &[0x08, 0x00] } else { &[0x86, 0xdd] });
    Some((frame, len))
}
