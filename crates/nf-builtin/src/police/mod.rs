//! `police`: drops packets beyond a rate.
//!
//! Theory of operation. Each session, source, destination or pair of addresses has a token bucket (the
//! committed one of RFC 2697, color blind). It fills at RATE up to BURST. A packet takes the length of its
//! frame out of it. A packet that finds too little is dropped and takes nothing.
//!
//! The scratchpad holds what is *missing* in the bucket, so that zeros are a full one. The unit is a
//! thousandth of a bit. A rate in bits per second is the same number of units per millisecond of the worker's
//! clock, so that nothing is divided or rounded.
//!
//! Buckets belong to a worker. Packets of a session always come to the same worker. Sessions of one source
//! may belong to several workers, each of which passes RATE.

use bytemuck::{Pod, Zeroable};

use crate::shared::direction::DirectionFilter;
use mmb_nf::WorkerCounters;
use mmb_nf::{ArgError, Context, DropReason, Function, Packet, Properties, SessionKey, Setup, Verdict};

/// Units in a byte.
const BYTE: u64 = 8000;
/// Least burst in bytes: an Ethernet frame of 1500 bytes with a VLAN tag.
const LEAST_BURST: u64 = 1518;
/// The default burst: milliseconds of RATE.
const USUAL_BURST: u64 = 100;
/// Most bits per second: a terabit.
const MOST_RATE: u64 = 1_000_000_000_000;

/// See the module's documentation.
pub(crate) struct Police {
    /// Units per millisecond: bits per second.
    rate: u64,
    /// Units that fit in the bucket.
    burst: u64,
    key: SessionKey,
    which: DirectionFilter,
    /// Packets and bytes that were dropped.
    dropped: WorkerCounters<2>,
}

/// A bucket.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Bucket {
    /// Missing units at the time [`Bucket::at`].
    missing: u64,
    /// Time of the last change, in milliseconds of the worker's clock.
    at: u32,
    unused: u32,
}

impl Bucket {
    /// Takes a packet's bytes out. Returns false, and takes nothing, if there are too few.
    #[inline(always)]
    fn take(&mut self, now: u32, bytes: u32, rate: u64, burst: u64) -> bool {
        // The clock may go back if another worker hands a session over; that fills nothing.
        let elapsed = now.wrapping_sub(self.at).cast_signed().max(0);
        self.at = now;
        let filled = rate.saturating_mul(u64::from(elapsed.cast_unsigned()));
        self.missing = self.missing.saturating_sub(filled);
        let taken = self.missing + u64::from(bytes) * BYTE;
        let passes = taken <= burst;
        self.missing = if passes { taken } else { self.missing };
        passes
    }
}

impl Function for Police {
    const TYPE: &'static str = "police";
    const USAGE: &'static str = "RATE [burst BYTES] [per session|source|destination|pair] [forward|reverse]";
    const HELP: &'static str = "drops packets beyond a rate, by a token bucket for each session or address";

    type Pad = Bucket;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let [rate, options @ ..] = setup.args else {
            return Err("`police` needs a rate in bits per second, such as `10mbit`".into());
        };
        let rate = bits_per_second(rate)?;
        let mut police = Police {
            rate,
            burst: (rate * USUAL_BURST).max(10 * LEAST_BURST * BYTE),
            key: SessionKey::Session,
            which: DirectionFilter::Both,
            dropped: WorkerCounters::new(setup.workers),
        };
        police.options(options)?;
        Ok(police)
    }

    fn properties(&self) -> Properties {
        Properties { key: self.key, ..Properties::default() }
    }

    #[inline(always)]
    fn packet(&self, packet: &mut Packet<'_>, bucket: &mut Bucket, cx: &mut Context<'_, ()>) -> Verdict {
        if !self.which.is(packet.direction) || bucket.take(cx.now, packet.len, self.rate, self.burst) {
            return Verdict::Pass;
        }
        self.dropped.add(cx.worker, 0, 1);
        self.dropped.add(cx.worker, 1, u64::from(packet.len));
        Verdict::Drop(DropReason::Police)
    }

    fn report(&self) -> Vec<(String, String)> {
        let [packets, bytes] = [0, 1].map(|which| self.dropped.sum(which).to_string());
        vec![
            ("rate".into(), format!("{} bit/s", self.rate)),
            ("burst".into(), format!("{} bytes", self.burst / BYTE)),
            ("dropped packets".into(), packets),
            ("dropped bytes".into(), bytes),
        ]
    }
}

impl Police {
    fn options(&mut self, mut words: &[&str]) -> Result<(), ArgError> {
        while let [word, rest @ ..] = words {
            words = match (*word, rest) {
                ("burst", [bytes, rest @ ..]) => {
                    self.burst = burst(bytes)?;
                    rest
                }
                ("per", [what, rest @ ..]) => {
                    self.key = key(what)?;
                    rest
                }
                ("burst", []) => return Err("`burst` needs a number of bytes".into()),
                ("per", []) => {
                    return Err(ArgError::missing("per", "`session`, `source`, `destination` or `pair`"));
                }
                _ => {
                    self.which = DirectionFilter::of(word).ok_or_else(|| ArgError::unknown::<Self>(word))?;
                    rest
                }
            };
        }
        Ok(())
    }
}

/// `10mbit`, `500kbit`, `1gbit`, `64000`, `64000bit`.
fn bits_per_second(word: &str) -> Result<u64, ArgError> {
    let expected = "must be bits per second, such as `64000`, `500kbit`, `10mbit`, `1gbit`";
    let wrong = || ArgError::invalid("rate", word, expected);
    let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let (number, unit) = word.split_at(digits);
    let times = match unit {
        "" | "bit" => 1,
        "kbit" => 1_000,
        "mbit" => 1_000_000,
        "gbit" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    let rate = number.parse().ok().and_then(|n: u64| n.checked_mul(times)).ok_or_else(wrong)?;
    match rate {
        1..=MOST_RATE => Ok(rate),
        _ => Err(format!("rate `{word}` is out of bounds: 1 bit per second to 1000gbit").into()),
    }
}

/// Parses a burst in bytes. Returns units.
fn burst(word: &str) -> Result<u64, ArgError> {
    let bytes: u64 =
        word.parse().map_err(|_| ArgError::invalid("burst", word, "must be a number of bytes"))?;
    match bytes {
        LEAST_BURST..=0xffff_ffff => Ok(bytes * BYTE),
        _ => Err(format!(
            "burst `{word}` is out of bounds: {LEAST_BURST} bytes (no longer frame would ever pass) to 4294967295"
        ).into()),
    }
}

fn key(word: &str) -> Result<SessionKey, ArgError> {
    match word {
        "session" => Ok(SessionKey::Session),
        "source" => Ok(SessionKey::Source),
        "destination" => Ok(SessionKey::Destination),
        "pair" => Ok(SessionKey::Pair),
        _ => Err(format!("`per {word}`: must be `per session`, `source`, `destination` or `pair`").into()),
    }
}

#[cfg(test)]
mod tests;
