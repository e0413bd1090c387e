//! `count`: packets, bytes and TCP flags of each session by direction, exported as IPFIX or JSON.
//!
//! Theory of operation. The scratchpad holds what has been seen since the last record of the session. A
//! record is made when the session ends, and every ACTIVE seconds while packets come. The first packet after
//! that time makes it, so that no timer is needed, and a silent session has nothing to report. The counters
//! then begin again at zero: the records of a session add up to all of it. A record is also made before a
//! counter overflows.
//!
//! Bytes are those of IP packets from the IP header on, without Ethernet padding: the octets of IPFIX (RFC
//! 5102, octetDeltaCount). Records name the initiator first (RFC 5103: a biflow with the initiator as
//! source). Addresses are those at the function's place in the chain.
//!
//! Records go to a thread of the instance through bounded queues. Records that do not fit are lost, and
//! counted.

mod export;
mod ipfix;
mod record;

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use mmb_flow::{KeyError, parse_key};

use self::record::{Ended, Record};
use crate::shared::export_queue::ExportQueue;
use crate::shared::log_file::LogFile;
use mmb_nf::WorkerCounters;
use mmb_nf::{
    ArgError, Background, Context, Direction, Function, Key, Packet, Properties, SessionInfo, Setup, Vector,
    Verdict,
};

/// Default seconds between records of a session that goes on.
const USUAL_ACTIVE: u32 = 60;
/// Most seconds.
const MOST_ACTIVE: u32 = 86_400;

/// Counters of [`Count::totals`].
const PACKETS: usize = 0;
const BYTES: usize = 1;
const RECORDS: usize = 2;

/// See the module's documentation.
pub(crate) struct Count {
    /// Milliseconds between records of a session that goes on; [`u32::MAX`] without export.
    active: u32,
    export: Option<Export>,
    /// Packets and bytes, as they come, and records.
    totals: WorkerCounters<3>,
}

/// The export of records.
struct Export {
    target: Target,
    outbox: Arc<ExportQueue<Record>>,
}

/// The target of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    /// A collector: host and port.
    Ipfix(String),
    Json(LogFile),
}

/// The state of a session: its packets since the last record.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Pad {
    bytes: [u64; 2],
    packets: [u32; 2],
    /// When the first of them came, and the last; milliseconds of the worker's clock.
    first: u32,
    last: u32,
    /// The union of their TCP flags.
    flags: [u8; 2],
    /// Not 0 after the first packet. The packet counters would tell it as well, but reading both right after
    /// a write to one of them stalls.
    begun: u8,
    unused: [u8; 5],
}

const _: () = assert!(size_of::<Pad>() == 40);

impl Function for Count {
    const TYPE: &'static str = "count";
    const USAGE: &'static str = "[ipfix HOST:PORT | json PATH] [active SECONDS]";
    const HELP: &'static str = "packets, bytes and TCP flags of each session, exported as IPFIX or JSON";

    type Pad = Pad;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let (mut target, mut active, mut words) = (None, None, setup.args);
        while let [word, rest @ ..] = words {
            words = match (*word, rest) {
                ("ipfix" | "json", _) if target.is_some() => {
                    return Err("`count` exports to one place: add another instance for the other".into());
                }
                ("ipfix", [place, rest @ ..]) => {
                    target = Some(Target::Ipfix(export::collector(place)?));
                    rest
                }
                ("json", [path, rest @ ..]) => {
                    target = Some(Target::Json(LogFile::at(path, setup.files)?));
                    rest
                }
                ("active", [number, rest @ ..]) => {
                    active = Some(seconds(number)?);
                    rest
                }
                ("ipfix", []) => return Err("`ipfix` needs a collector: HOST:PORT".into()),
                ("json", []) => return Err("`json` needs a path".into()),
                ("active", []) => return Err("`active` needs a number of seconds".into()),
                _ => return Err(ArgError::unknown::<Self>(word)),
            };
        }
        let active = match (&target, active) {
            (None, Some(_)) => return Err("`active` needs `ipfix HOST:PORT` or `json PATH`".into()),
            (None, None) => u32::MAX,
            (Some(_), active) => active.unwrap_or(USUAL_ACTIVE) * 1000,
        };
        let outbox = || Arc::new(ExportQueue::new(setup.workers));
        let export = target.map(|target| Export { target, outbox: outbox() });
        Ok(Count { active, export, totals: WorkerCounters::new(setup.workers) })
    }

    fn properties(&self) -> Properties {
        Properties { is_read_only: true, takes_large_frames: true, ..Properties::default() }
    }

    #[inline(always)]
    fn packet(&self, packet: &mut Packet<'_>, pad: &mut Pad, cx: &mut Context<'_, ()>) -> Verdict {
        if pad.begun == 0 {
            (pad.begun, pad.first) = (1, cx.now);
        }
        pad.last = cx.now;
        let way = packet.direction as usize;
        pad.packets[way] += 1;
        pad.bytes[way] += ip_bytes(packet);
        pad.flags[way] |= packet.tcp_flags();
        if cx.now.wrapping_sub(pad.first) >= self.active || pad.packets[way] == u32::MAX {
            self.goes_on(packet, pad, cx);
        }
        Verdict::Pass
    }

    fn vector(&self, vector: &mut Vector<'_, '_, Self>) {
        let (mut worker, mut packets, mut bytes) = (0, 0, 0);
        vector.for_each(|packet, pad, cx| {
            (worker, packets, bytes) = (cx.worker, packets + 1, bytes + ip_bytes(packet));
            self.packet(packet, pad, cx)
        });
        self.totals.add(worker, PACKETS, packets);
        self.totals.add(worker, BYTES, bytes);
    }

    fn release(&self, pad: &mut Pad, session: &SessionInfo, cx: &mut Context<'_, ()>) {
        self.tell(pad, &session.key, Ended::Idle, cx);
    }

    fn report(&self) -> Vec<(String, String)> {
        let counted = [("records", RECORDS), ("packets", PACKETS), ("bytes", BYTES)];
        let mut report: Vec<_> =
            counted.map(|(name, which)| (name.to_owned(), self.totals.sum(which).to_string())).into();
        if let Some(Export { target, outbox }) = &self.export {
            report.push(match target {
                Target::Ipfix(collector) => ("ipfix".into(), collector.clone()),
                Target::Json(file) => {
                    ("json".into(), file.path().map_or_else(String::new, |path| path.display().to_string()))
                }
            });
            report.extend(outbox.report());
        }
        report
    }

    fn background(&self) -> Option<Background> {
        let Export { target, outbox } = self.export.as_ref()?;
        let (target, outbox) = (target.clone(), Arc::clone(outbox));
        Some(Box::new(move |stop| match target {
            Target::Ipfix(collector) => export::ipfix(&outbox, &collector, stop),
            Target::Json(file) => export::json(&outbox, &file, stop),
        }))
    }
}

impl Count {
    /// Makes a record of a session that goes on. The packet gives the key; later fragments have none.
    #[inline(never)]
    fn goes_on(&self, packet: &Packet<'_>, pad: &mut Pad, cx: &Context<'_, ()>) {
        let (Ok(key) | Err(KeyError::FirstFragment(key))) = parse_key(packet.head, packet.meta) else {
            let way = packet.direction as usize;
            pad.packets[way] = pad.packets[way].min(u32::MAX - 1);
            return;
        };
        let key = match packet.direction {
            Direction::Forward => key,
            Direction::Reverse => key.reversed(),
        };
        self.tell(pad, &key, Ended::Active, cx);
    }

    /// Makes a record of the scratchpad, unless it is empty, and clears it.
    fn tell(&self, pad: &mut Pad, key: &Key, ended: Ended, cx: &Context<'_, ()>) {
        let Pad { bytes, packets, first, last, flags, .. } = std::mem::replace(pad, Pad::zeroed());
        if packets == [0; 2] {
            return;
        }
        self.totals.add(cx.worker, RECORDS, 1);
        if let Some(export) = &self.export {
            let ended = ended.or_closed(key.proto, flags);
            let record = Record { key: *key, bytes, packets, first, last, flags, ended };
            export.outbox.put(cx.worker, cx.now, record);
        }
    }
}

/// Returns the length of a packet from its IP header on.
#[inline(always)]
fn ip_bytes(packet: &Packet<'_>) -> u64 {
    packet.meta.end.saturating_sub(packet.meta.l3_off).into()
}

fn seconds(word: &str) -> Result<u32, ArgError> {
    match word.parse() {
        Ok(n @ 1..=MOST_ACTIVE) => Ok(n),
        _ => Err(format!("`active {word}`: must be a number of seconds from 1 to {MOST_ACTIVE}").into()),
    }
}

#[cfg(test)]
mod tests;
