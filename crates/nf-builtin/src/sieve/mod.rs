//! `sieve`: computes all primes up to a number, for each packet or for each request of a broker.
//!
//! It changes nothing. It is a function that needs much processor time, to measure chains of such functions:
//! the one of MiddleNet's experiments (Zeng et al., TNSM 2022, Figure 11).

mod atkin;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mmb_nf::{
    ArgError, Context, Function, L7Function, L7Handler, L7Request, L7Verdict, Packet, Setup, Verdict,
};

use self::atkin::{MOST, Primes};

const TYPE: &str = "sieve";
const USAGE: &str = "N [requests]";
const HELP: &str = "computes all primes up to N for each packet or request; used for benchmarks";
/// The argument that makes it a function of brokers.
const REQUESTS: &str = "requests";

/// Whether the arguments are those of [`RequestPrimes`].
pub(crate) fn is_for_requests(args: &[&str]) -> bool {
    args.last() == Some(&REQUESTS)
}

/// What both kinds do.
struct Work {
    up_to: u32,
    /// How often the primes were computed. Beside that work, a counter that all threads share costs nothing.
    times: AtomicU64,
    /// How many primes there are; 0: they were not computed yet.
    found: AtomicU64,
}

impl Work {
    fn new(number: &[&str]) -> Result<Work, ArgError> {
        let [number] = number else { return Err(ArgError::missing(TYPE, "one number")) };
        let wrong = || ArgError::invalid("number", number, format!("must be 1 to {MOST}"));
        let up_to = number.parse().ok().filter(|number| (1..=MOST).contains(number)).ok_or_else(wrong)?;
        let [times, found] = [0; 2].map(AtomicU64::new);
        Ok(Work { up_to, times, found })
    }

    fn compute(&self, primes: &mut Primes) {
        // That their number is kept is what makes a compiler compute them.
        self.found.store(primes.count(self.up_to).into(), Relaxed);
        self.times.fetch_add(1, Relaxed);
    }

    fn report(&self) -> Vec<(String, String)> {
        let shown = [("computed", &self.times), ("primes", &self.found)];
        shown.map(|(name, count)| (name.to_owned(), count.load(Relaxed).to_string())).into()
    }
}

/// The function for packets.
pub(crate) struct PacketPrimes(Work);

impl Function for PacketPrimes {
    const TYPE: &'static str = TYPE;
    const USAGE: &'static str = USAGE;
    const HELP: &'static str = HELP;

    type Pad = ();
    type Local = Primes;

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        Work::new(setup.args).map(PacketPrimes)
    }

    fn packet(&self, _: &mut Packet<'_>, _: &mut (), cx: &mut Context<'_, Primes>) -> Verdict {
        self.0.compute(cx.local);
        Verdict::Pass
    }

    fn report(&self) -> Vec<(String, String)> {
        self.0.report()
    }
}

/// The function for requests of brokers.
pub(crate) struct RequestPrimes(Work);

impl L7Handler for RequestPrimes {
    type Local = Primes;

    fn local(&self) -> Primes {
        Primes::default()
    }

    fn request(&self, _: &mut L7Request<'_>, primes: &mut Primes) -> L7Verdict {
        self.0.compute(primes);
        L7Verdict::Pass
    }
}

impl L7Function for RequestPrimes {
    const TYPE: &'static str = TYPE;
    const USAGE: &'static str = USAGE;
    const HELP: &'static str = HELP;

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let number = setup.args.split_last().map_or(setup.args, |(_, number)| number);
        Work::new(number).map(RequestPrimes)
    }

    fn report(&self) -> Vec<(String, String)> {
        self.0.report()
    }
}

#[cfg(test)]
mod tests;
