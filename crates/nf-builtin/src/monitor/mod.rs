//! `monitor`: the flow monitor of the paper (MiddleClick, Figures 2 and 16), in its 24 bytes.
//!
//! Theory of operation. The function counts packets and bytes of both directions together, and notes when the
//! first and the last packet came, like a NetFlow cache. It exports nothing; `count` does. It measures the
//! cost of a minimal function: three additions and stores into a cache line that the runner has prefetched.

use bytemuck::{Pod, Zeroable};

use mmb_nf::{ArgError, Context, Function, Packet, Properties, SessionInfo, Setup, Verdict};

/// See the module's documentation.
pub(crate) struct Monitor;

/// The state of a session.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Pad {
    packets: u64,
    /// When the session entered the function, in milliseconds of the worker's clock.
    first: u32,
    /// When its last packet came.
    last: u32,
    /// Bytes of frames. Not beside the packets: one vector addition for both is slower than two additions
    /// when packets of one session follow each other.
    bytes: u64,
}

const _: () = assert!(size_of::<Pad>() == 24);

impl Function for Monitor {
    const TYPE: &'static str = "monitor";
    const USAGE: &'static str = "";
    const HELP: &'static str = "packets, bytes and times of each session, in 24 bytes";

    type Pad = Pad;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        match setup.args {
            [] => Ok(Monitor),
            [word, ..] => Err(ArgError::invalid("argument", word, "`monitor` takes none")),
        }
    }

    fn properties(&self) -> Properties {
        Properties { is_read_only: true, takes_large_frames: true, ..Properties::default() }
    }

    fn open(&self, pad: &mut Pad, _: &SessionInfo, cx: &mut Context<'_, ()>) {
        (pad.first, pad.last) = (cx.now, cx.now);
    }

    #[inline(always)]
    fn packet(&self, packet: &mut Packet<'_>, pad: &mut Pad, cx: &mut Context<'_, ()>) -> Verdict {
        pad.packets += 1;
        pad.bytes += u64::from(packet.len);
        pad.last = cx.now;
        Verdict::Pass
    }
}

#[cfg(test)]
mod tests {
    use mmb_packet::build::{Frame, Ip4, Tcp};

    use super::*;
    use mmb_nf::testing::{Bench, Forward, Reverse, refused};

    #[test]
    fn both_directions_count_in_one() {
        let frame = |payload: usize| {
            Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Tcp::new(4000, 80))
                .payload(vec![0; payload])
                .build()
        };
        let mut bench = Bench::<Monitor>::new("");
        let (a, b) = (bench.open(&frame(0)), bench.open(&frame(1)));
        bench.now = 5000;
        let packets = [(a, Forward, frame(0)), (b, Forward, frame(7)), (a, Reverse, frame(100))];
        for (done, (_, _, frame)) in bench.packets(&packets).into_iter().zip(&packets) {
            assert_eq!((done.verdict, &done.frame), (Verdict::Pass, frame));
        }
        assert_eq!(bench.pad(a), Pad { packets: 2, bytes: 54 + 154, first: 1000, last: 5000 });
        assert_eq!(bench.pad(b), Pad { packets: 1, bytes: 61, first: 1000, last: 5000 });
    }

    #[test]
    fn monitor_takes_no_arguments() {
        assert_eq!(refused::<Monitor>("fast"), "invalid argument `fast`: `monitor` takes none");
    }
}
