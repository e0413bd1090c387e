//! `mirror`: a copy of each packet goes out by another port.
//!
//! The copy is the frame at the function's place in the chain, with Ethernet header and tags: functions in
//! front have changed it, functions behind have not. It passes no rule and no chain. Of a frame in several
//! segments only the first one is copied, which holds all headers, and counted as truncated.

use crate::shared::direction::DirectionFilter;
use mmb_nf::WorkerCounters;
use mmb_nf::{ArgError, Context, EmitTarget, Function, Packet, Properties, Setup, Verdict};

/// See the module's documentation.
pub(crate) struct Mirror {
    interface: String,
    port: u16,
    which: DirectionFilter,
    /// Copied frames, and truncated ones among them.
    counts: WorkerCounters<2>,
}

impl Function for Mirror {
    const TYPE: &'static str = "mirror";
    const USAGE: &'static str = "INTERFACE [forward|reverse]";
    const HELP: &'static str = "sends a copy of each packet out by another port";

    type Pad = ();
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let (interface, which) = match setup.args {
            [interface] => (*interface, DirectionFilter::Both),
            [interface, which] => {
                let which = DirectionFilter::of(which).ok_or_else(|| {
                    format!("`{which}` must be `forward` or `reverse`, or be left out for both")
                })?;
                (*interface, which)
            }
            _ => return Err(format!("`mirror` needs an interface: {}", Self::USAGE).into()),
        };
        let port = (setup.resolve_port)(interface)
            .ok_or_else(|| format!("there is no interface `{interface}`: `interface add` makes one"))?;
        Ok(Mirror { interface: interface.into(), port, which, counts: WorkerCounters::new(setup.workers) })
    }

    fn properties(&self) -> Properties {
        Properties {
            interfaces: vec![self.interface.clone()],
            needs_worker: Some("sends frames"),
            ..Properties::default()
        }
    }

    #[inline(always)]
    fn packet(&self, packet: &mut Packet<'_>, _: &mut (), cx: &mut Context<'_, ()>) -> Verdict {
        if self.which.is(packet.direction) {
            cx.emit(EmitTarget::Port(self.port), packet.head);
            self.counts.add(cx.worker, 0, 1);
            self.counts.add(cx.worker, 1, u64::from(packet.head.len() < packet.len as usize));
        }
        Verdict::Pass
    }

    fn report(&self) -> Vec<(String, String)> {
        let [copied, truncated] = [0, 1].map(|which| self.counts.sum(which).to_string());
        vec![("copied".into(), copied), ("truncated".into(), truncated)]
    }
}

#[cfg(test)]
mod tests {
    use mmb_packet::build::{Frame, Ip4, Udp};

    use super::*;
    use mmb_nf::testing::{Bench, Forward, Reverse, TAP, refused};

    fn frame(payload: usize) -> Vec<u8> {
        let ip = Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]);
        Frame::new(ip, Udp::new(1, 2)).vlan(9).payload(vec![0xa5; payload]).build()
    }

    #[test]
    fn whole_frames_are_copied_in_order() {
        let mut bench = Bench::<Mirror>::new("tap");
        let session = bench.open(&frame(0));
        let packets = [(session, Forward, frame(3)), (session, Reverse, frame(1400))];
        let done = bench.packets(&packets);
        assert!(
            done.iter()
                .zip(&packets)
                .all(|(done, sent)| done.verdict == Verdict::Pass && done.frame == sent.2)
        );
        assert_eq!(done[1].emitted, [(TAP, frame(3)), (TAP, frame(1400))]);
        assert_eq!(bench.function.properties().interfaces, ["tap"]);
    }

    #[test]
    fn one_direction_only() {
        let mut bench = Bench::<Mirror>::new("tap reverse");
        let session = bench.open(&frame(0));
        assert_eq!(bench.packet(session, Forward, &frame(3)).emitted, []);
        assert_eq!(bench.packet(session, Reverse, &frame(4)).emitted, [(TAP, frame(4))]);
    }

    #[test]
    fn only_the_first_segment_of_a_long_frame_is_mirrored() {
        let mut bench = Bench::<Mirror>::new("tap forward");
        bench.contiguous = 256;
        let session = bench.open(&frame(0));
        assert_eq!(
            bench.packet(session, Forward, &frame(3000)).emitted,
            [(TAP, frame(3000)[..256].to_vec())]
        );
        assert_eq!(bench.packet(session, Forward, &frame(10)).emitted, [(TAP, frame(10))]);
        let report = bench.function.report();
        assert_eq!(report, [("copied".into(), "2".into()), ("truncated".into(), "1".to_string())]);
    }

    #[test]
    fn invalid_arguments_are_refused() {
        assert_eq!(refused::<Mirror>("eth9"), "there is no interface `eth9`: `interface add` makes one");
        assert!(refused::<Mirror>("").contains("`mirror` needs an interface"));
        assert_eq!(
            refused::<Mirror>("tap up"),
            "`up` must be `forward` or `reverse`, or be left out for both"
        );
    }
}
