//! `payload-count`: counts the bytes of streams.
//!
//! Each byte of a TCP connection counts once, however often it is sent. Of UDP, the payload of each datagram
//! counts.

use bytemuck::{Pod, Zeroable};

use mmb_nf::{
    ArgError, Context, Direction, Setup, StreamData, StreamFunction, StreamVerdict, WorkerCounters,
};

/// See the module's documentation.
pub(crate) struct PayloadCount {
    /// Bytes forward, bytes reverse, streams that have ended.
    totals: WorkerCounters<3>,
}

/// The counters of a session, by direction.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Counts {
    bytes: [u64; 2],
    packets: [u32; 2],
}

impl StreamFunction for PayloadCount {
    const TYPE: &'static str = "payload-count";
    const USAGE: &'static str = "";
    const HELP: &'static str = "counts the payload of sessions, each byte once, by direction";
    const READS_CONTENT: bool = false;

    type State = Counts;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        match setup.args {
            [] => Ok(PayloadCount { totals: WorkerCounters::new(setup.workers) }),
            [word, ..] => Err(format!("`payload-count` has no arguments, and `{word}` is one").into()),
        }
    }

    #[inline(always)]
    fn data(
        &self,
        data: &StreamData<'_, '_>,
        counts: &mut Counts,
        cx: &mut Context<'_, ()>,
    ) -> StreamVerdict {
        let (direction, len) = (data.direction() as usize, data.len() as u64);
        counts.bytes[direction] = counts.bytes[direction].wrapping_add(len);
        counts.packets[direction] = counts.packets[direction].wrapping_add(1);
        self.totals.add(cx.worker, direction, len);
        StreamVerdict::Pass
    }

    fn end(&self, _: Direction, _: &mut Counts, cx: &mut Context<'_, ()>) -> StreamVerdict {
        self.totals.add(cx.worker, 2, 1);
        StreamVerdict::Pass
    }

    fn describe(&self, counts: &Counts) -> Option<String> {
        let Counts { bytes, packets } = counts;
        Some(format!("{}/{} bytes in {}/{} packets", bytes[0], bytes[1], packets[0], packets[1]))
    }

    fn report(&self) -> Vec<(String, String)> {
        let names = ["bytes forward", "bytes reverse", "ended streams"];
        let counted = names.iter().enumerate();
        counted.map(|(which, name)| ((*name).to_owned(), self.totals.sum(which).to_string())).collect()
    }
}

#[cfg(test)]
mod tests;
