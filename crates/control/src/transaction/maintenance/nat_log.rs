//! Log lines for events of NAT pools.

use mmb_flow::{NatEvent, NatEventKind};

/// The line for an event of a NAT pool. `now` is the time when the event was read, a fraction of a second
/// after it.
pub(super) fn line(now: &str, event: &NatEvent) -> String {
    let NatEvent { pool, host, what, .. } = event;
    match what {
        NatEventKind::BlockAllocated(block) => {
            let (low, high) = block.ports;
            format!("{now} nat: pool {pool}: block {} {low}-{high} allocated to {host}\n", block.address)
        }
        NatEventKind::BlockFreed(block) => {
            let (low, high) = block.ports;
            format!("{now} nat: pool {pool}: block {} {low}-{high} freed by {host}\n", block.address)
        }
        NatEventKind::Exhausted(proto) => {
            format!("{now} nat: pool {pool}: exhausted, no {} port for {host}\n", proto.name())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use mmb_flow::PortProto;

    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let block = mmb_flow::PortBlock { address: Ipv4Addr::new(192, 0, 2, 1), ports: (1024, 1087) };
        let event = |what| NatEvent { at: 0, pool: "p".into(), host: Ipv4Addr::new(10, 0, 0, 5), what };
        let line = |what| super::line("T", &event(what));
        let taken = line(NatEventKind::BlockAllocated(block));
        assert_eq!(taken, "T nat: pool p: block 192.0.2.1 1024-1087 allocated to 10.0.0.5\n");
        assert!(line(NatEventKind::BlockFreed(block)).ends_with("freed by 10.0.0.5\n"));
        assert!(
            line(NatEventKind::Exhausted(PortProto::Udp)).contains("exhausted, no udp port for 10.0.0.5")
        );
    }
}
