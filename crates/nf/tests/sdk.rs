//! A function that uses what the SDK offers for payload: all segments, edits with checksums, a drop reason of
//! its own, and frames longer than a buffer.

use mmb_nf::testing::{Bench, FAR, Forward, assert_checksums};
use mmb_nf::{ArgError, Context, DropReason, EmitTarget, Function, Packet, Setup, Verdict};
use mmb_packet::build::{Frame, Ip4, Udp};

/// Sums the payload bytes of a session. Writes the sum into the UDP source port. Drops what exceeds a limit,
/// and then sends a report.
struct Sum {
    limit: u64,
    reason: DropReason,
}

/// Bytes of the report: more than any packet buffer has.
const REPORT: usize = 30_000;

impl Function for Sum {
    const TYPE: &'static str = "sum";
    const USAGE: &'static str = "LIMIT";
    const HELP: &'static str = "sums payload bytes";
    const DROP_REASONS: &'static [(&'static str, &'static str)] =
        &[("sum-limit", "payload bytes of the session add up to too much")];
    type Pad = u64;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let limit = setup.args.first().and_then(|limit| limit.parse().ok());
        let limit = limit.ok_or_else(|| ArgError::missing("sum", "a limit"))?;
        Ok(Sum { limit, reason: setup.drop_reason("sum-limit") })
    }

    fn packet(&self, packet: &mut Packet<'_>, sum: &mut u64, cx: &mut Context<'_, ()>) -> Verdict {
        *sum += packet.payload().flatten().map(|&byte| u64::from(byte)).sum::<u64>();
        packet.write_l4(0, &(*sum as u16).to_be_bytes());
        if *sum <= self.limit {
            return Verdict::Pass;
        }
        cx.emit_segments(EmitTarget::Egress, &[&packet.head[..14], &[0; REPORT]]);
        Verdict::Drop(self.reason)
    }
}

fn datagram(payload: &[u8]) -> Vec<u8> {
    Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Udp::new(1000, 53)).payload(payload.to_vec()).build()
}

#[test]
fn a_function_sees_and_edits_segmented_packets() {
    let frame = datagram(&[7; 600]);
    let mut bench = Bench::<Sum>::new("5000");
    bench.contiguous = 100;
    let session = bench.open(&frame);
    let sent = bench.packet(session, Forward, &frame);
    assert_eq!((sent.verdict, bench.pad(session)), (Verdict::Pass, 4200));
    assert_eq!(sent.frame[34..36], 4200u16.to_be_bytes());
    assert_checksums(&sent.frame);

    let sent = bench.packet(session, Forward, &frame);
    let Verdict::Drop(reason) = sent.verdict else { panic!("{:?}", sent.verdict) };
    assert_eq!((reason.name(), reason.help()), (Sum::DROP_REASONS[0].0, Sum::DROP_REASONS[0].1));
    assert_eq!(DropReason::find("sum-limit"), Some(reason));
    let [(port, report)] = &sent.emitted[..] else { panic!("one report") };
    assert_eq!((*port, report.len()), (FAR, 14 + REPORT));
}
