//! Packets that rules log.
//!
//! Theory of operation. Decisions with a rule that logs each packet are never cached, so its packets come
//! to the slow path. A rule that opens sessions logs the packets that open them. The headers are noted
//! before the packet is translated or becomes an answer, and the event is made when its verdict is known.
//! The limit of the rule comes first, so a packet beyond it costs no more than a counter.

use mmb_packet::{Kind, Meta, PacketBuf, PacketFlags};

use super::SlowPath;
use super::packet::SlowPacket;
use crate::environment::{LogVerdict, LoggedHeaders, LoggedPacket};
use crate::store::SessionStore;
use crate::{Environment, Next};

impl SlowPath {
    /// Processes a packet while some rule logs.
    #[inline(never)]
    pub(super) fn process_logged<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
    ) -> Next {
        let policy = pkt.env.policy();
        if !pkt.hits.iter().any(|hit| policy.rule_log(hit.slot).is_some()) {
            return self.process_and_answer(store, pkt);
        }
        let headers = read_headers(pkt.packet.head(), pkt.meta, pkt.bytes());
        let opened_before = store.counters.created;
        let next = self.process_and_answer(store, pkt);
        let verdict = match next {
            // Another worker logs it, or it comes again.
            Next::HandOff | Next::Hold | Next::Relookup | Next::PerPacketRules | Next::SlowPath => {
                return next;
            }
            Next::Drop => LogVerdict::Dropped(pkt.meta.drop_reason),
            Next::Reply => LogVerdict::Answered(pkt.meta.drop_reason),
            _ => LogVerdict::Passed(if next == Next::Pass {
                pkt.env.out_port(pkt.in_port)
            } else {
                pkt.meta.out_port
            }),
        };
        let opened = store.counters.created != opened_before;
        for hit in pkt.hits {
            if let Some(log) = policy.rule_log(hit.slot)
                && (opened || policy.logs_each_packet(hit.slot))
                && log.take(pkt.now)
            {
                let rule = policy.index(hit.slot).unwrap_or(0);
                pkt.env.log(LoggedPacket { rule, log: log.clone(), in_port: pkt.in_port, verdict, headers });
            }
        }
        next
    }
}

/// Reads what a line shows of the headers of a packet. `length`: bytes of the frame.
fn read_headers(head: &[u8], meta: &Meta, length: u32) -> LoggedHeaders {
    let ip = head.get(usize::from(meta.l3_off)..).unwrap_or_default();
    let transport = head.get(usize::from(meta.l4_off)..).unwrap_or_default();
    let mut headers = LoggedHeaders { protocol: meta.proto, length, ..LoggedHeaders::default() };
    headers.addresses = match meta.kind.l3() {
        Kind::IP4 => ip.get(12..20).and_then(|ends| {
            let (source, destination) = (ends.first_chunk::<4>()?, ends.last_chunk::<4>()?);
            Some([(*source).into(), (*destination).into()])
        }),
        Kind::IP6 => ip.get(8..40).and_then(|ends| {
            let (source, destination) = (ends.first_chunk::<16>()?, ends.last_chunk::<16>()?);
            Some([(*source).into(), (*destination).into()])
        }),
        _ => None,
    };
    if let Some((destination, rest)) = head.split_first_chunk()
        && let Some(source) = rest.first_chunk()
    {
        headers.ethernet = [*source, *destination];
    }
    headers.is_fragment = meta.flags.contains(PacketFlags::FRAGMENT);
    match (meta.kind.l4(), transport) {
        (Kind::TCP | Kind::UDP, [a, b, c, d, ..]) => {
            headers.ports = Some([u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])]);
            headers.tcp_flags = transport.get(13).copied().filter(|_| meta.kind.l4() == Kind::TCP);
        }
        (Kind::ICMP | Kind::ICMP6, [kind, code, ..]) => headers.icmp = Some([*kind, *code]),
        _ => {}
    }
    headers
}
