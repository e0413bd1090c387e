//! The arguments of `police`.

use super::bucket::Filling;
use super::shared_buckets::Scope;
use super::{Police, Unit};
use crate::shared::direction::DirectionFilter;
use mmb_nf::{ArgError, SessionKey};

/// Units in a byte: thousandths of a bit.
const BYTE: u64 = 8000;
/// Units in a packet or session.
const ONE: u64 = 1000;
/// Least burst in bytes: an Ethernet frame of 1500 bytes with a VLAN tag.
const LEAST_BURST: u64 = 1518;
/// Most bits per second: a terabit. Packets and sessions: one in each nanosecond.
const MOST_BITS: u64 = 1_000_000_000_000;
const MOST_PACKETS: u64 = 1_000_000_000;

/// Names of units, what they count, and how many.
const UNITS: [(&str, Unit, u64); 8] = [
    ("bit", Unit::Bytes, 1),
    ("kbit", Unit::Bytes, 1_000),
    ("mbit", Unit::Bytes, 1_000_000),
    ("gbit", Unit::Bytes, 1_000_000_000),
    ("pps", Unit::Packets, 1),
    ("kpps", Unit::Packets, 1_000),
    ("mpps", Unit::Packets, 1_000_000),
    ("sessions/s", Unit::Sessions, 1),
];

/// The arguments of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PoliceConfig {
    pub unit: Unit,
    /// Bits, packets or sessions per second.
    pub rate: u64,
    /// Bytes, packets or sessions.
    pub burst: u64,
    pub scope: Scope,
    pub direction: DirectionFilter,
}

impl PoliceConfig {
    pub fn parse(words: &[&str]) -> Result<PoliceConfig, ArgError> {
        let (unit, rate, words) = parse_rate(words)?;
        let mut config = PoliceConfig {
            unit,
            rate,
            burst: match unit {
                Unit::Bytes => (rate / 80).max(10 * LEAST_BURST),
                Unit::Packets => (rate / 10).max(10),
                Unit::Sessions => rate,
            },
            scope: if unit == Unit::Sessions { Scope::Instance } else { Scope::Key(SessionKey::Session) },
            direction: DirectionFilter::Both,
        };
        config.parse_options(words)?;
        if unit == Unit::Sessions && config.scope == Scope::Key(SessionKey::Session) {
            let names = "`per source`, `destination`, `pair` or `instance`";
            return Err(format!("`sessions/s` cannot be `per session`: write {names}").into());
        }
        if unit == Unit::Sessions && config.direction != DirectionFilter::Both {
            return Err("`sessions/s` has no direction: a session is opened once".into());
        }
        Ok(config)
    }

    /// Returns rate and burst, in units.
    pub fn filling(&self) -> Filling {
        let per = if self.unit == Unit::Bytes { BYTE } else { ONE };
        Filling::new(self.rate, self.burst * per)
    }

    fn parse_options(&mut self, mut words: &[&str]) -> Result<(), ArgError> {
        while let [word, rest @ ..] = words {
            words = match (*word, rest) {
                ("burst", [number, rest @ ..]) => {
                    self.burst = parse_burst(number, self.unit)?;
                    rest
                }
                ("per", [what, rest @ ..]) => {
                    self.scope = parse_scope(what)?;
                    rest
                }
                ("burst", []) => return Err(format!("`burst` needs a number of {}", self.unit.name()).into()),
                ("per", []) => {
                    let expected = "`session`, `source`, `destination`, `pair` or `instance`";
                    return Err(ArgError::missing("per", expected));
                }
                _ => {
                    self.direction =
                        DirectionFilter::of(word).ok_or_else(|| ArgError::unknown::<Police>(word))?;
                    rest
                }
            };
        }
        Ok(())
    }
}

impl Unit {
    /// What a burst counts.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Packets => "packets",
            Unit::Sessions => "sessions",
        }
    }

    /// What a rate counts.
    pub fn rate_name(self) -> &'static str {
        match self {
            Unit::Bytes => "bit/s",
            Unit::Packets => "packets/s",
            Unit::Sessions => "sessions/s",
        }
    }

    /// Returns how much of a burst a packet of `len` bytes takes.
    #[inline(always)]
    pub fn units(self, len: u32) -> u64 {
        match self {
            Unit::Bytes => u64::from(len) * BYTE,
            Unit::Packets | Unit::Sessions => ONE,
        }
    }
}

/// Parses `10mbit`, `10kpps`, `100sessions/s`, also with a blank before the unit. Returns the words behind.
fn parse_rate<'a, 'w>(words: &'a [&'w str]) -> Result<(Unit, u64, &'a [&'w str]), ArgError> {
    const EXPECTED: &str = "must be a number with a unit, such as `10mbit` (bit, kbit, mbit, gbit per second), \
         `10kpps` (pps, kpps, mpps: packets per second) or `100 sessions/s` (new sessions)";
    let [first, rest @ ..] = words else {
        return Err(format!("`police` needs a rate: {}", EXPECTED.trim_start_matches("must be ")).into());
    };
    let (number, unit) = first.split_at(first.find(|c: char| !c.is_ascii_digit()).unwrap_or(first.len()));
    let named = |name: &str| UNITS.iter().find(|(unit, ..)| *unit == name);
    let (unit, rest) = match rest {
        [next, rest @ ..] if unit.is_empty() && named(next).is_some() => (*next, rest),
        _ => (unit, rest),
    };
    let wrong = || ArgError::invalid("rate", first, EXPECTED);
    let (_, unit, times) = named(unit).ok_or_else(wrong)?;
    let rate = number.parse().ok().and_then(|n: u64| n.checked_mul(*times)).ok_or_else(wrong)?;
    let most = if *unit == Unit::Bytes { MOST_BITS } else { MOST_PACKETS };
    if rate == 0 || rate > most {
        return Err(format!("rate `{first}` is out of bounds: 1 to {most} {}", unit.rate_name()).into());
    }
    Ok((*unit, rate, rest))
}

fn parse_burst(word: &str, unit: Unit) -> Result<u64, ArgError> {
    let expected = format!("must be a number of {}", unit.name());
    let burst: u64 = word.parse().map_err(|_| ArgError::invalid("burst", word, expected))?;
    let (least, why) = match unit {
        Unit::Bytes => (LEAST_BURST, " (no longer frame would ever pass)"),
        Unit::Packets | Unit::Sessions => (1, ""),
    };
    if burst < least || burst > u64::from(u32::MAX) {
        let name = unit.name();
        return Err(format!("burst `{word}` is out of bounds: {least} {name}{why} to {}", u32::MAX).into());
    }
    Ok(burst)
}

fn parse_scope(word: &str) -> Result<Scope, ArgError> {
    Ok(Scope::Key(match word {
        "session" => SessionKey::Session,
        "source" => SessionKey::Source,
        "destination" => SessionKey::Destination,
        "pair" => SessionKey::Pair,
        "instance" => return Ok(Scope::Instance),
        _ => {
            let names = "`per session`, `source`, `destination`, `pair` or `instance`";
            return Err(format!("`per {word}`: must be {names}").into());
        }
    }))
}
