//! Sessions whose TCP connections end at a broker of this machine.
//!
//! Theory of operation. A connection goes to a broker if a rule with the target `broker` matches its SYN.
//! The session keeps the port that leads to the broker until it ends, whatever rules change meanwhile, and a
//! connection that began without the broker never goes there. Packets of the session that come in by another
//! port, its ICMP errors and its later fragments go to that port, behind translation. Packets that come from
//! brokers are routed. A connection that comes from a broker, to a server and with the address of a client,
//! has a session in the same way, which needs no rule.
//!
//! The flow towards the broker has [`FlowFlags::XLAT_SLOW`] even if nothing is translated, so that its
//! packets leave the loop over established packets. The other flow stays in it.

use mmb_flow::{Direction, FlowFlags, FlowRef, SessionId, Table, TcpSegment, TrackInput};
use mmb_packet::Meta;

use crate::Environment;

/// Whether a packet begins a connection.
pub(crate) fn begins_connection(input: &TrackInput) -> bool {
    matches!(input, TrackInput::Tcp(segment) if segment.flags & (TcpSegment::SYN | TcpSegment::ACK) == TcpSegment::SYN)
}

/// Makes a new session one of a broker, to which `towards` leads.
pub(crate) fn join(table: &mut Table, id: SessionId, port: u16, towards: Direction) {
    table.set_broker(id, port);
    table.flow_mut(FlowRef::new(id, towards)).flags |= FlowFlags::XLAT_SLOW;
}

/// Sends a packet to the broker of its session. Returns false, with the packet unchanged, if the session has
/// none, or if the packet comes from there.
pub(crate) fn divert(
    table: &Table,
    env: &impl Environment,
    flow: FlowRef,
    in_port: u16,
    (head, meta): (&mut [u8], &mut Meta),
) -> bool {
    let Some(port) = table.broker(flow.session()).filter(|_| !env.leads_to_broker(in_port)) else {
        return false;
    };
    if let (Some(address), Some(to)) = (env.mac_of(port), head.first_chunk_mut()) {
        *to = address;
    }
    meta.out_port = port;
    true
}
