//! The arguments of `lb`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::choice::Method;
use mmb_nf::ArgError;

/// Most back ends.
const MOST: usize = 256;
/// Largest weight.
const HEAVIEST: u16 = 100;
/// Limits of the time between two checks.
const FASTEST: Duration = Duration::from_millis(100);
const SLOWEST: Duration = Duration::from_secs(3600);

/// The address of a back end: `ADDRESS[:PORT]`, IPv6 addresses with a port in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackendAddress {
    pub address: IpAddr,
    pub port: Option<u16>,
}

impl BackendAddress {
    pub fn parse(word: &str) -> Option<BackendAddress> {
        if let Ok(address) = word.parse() {
            return Some(BackendAddress { address, port: None });
        }
        let socket: SocketAddr = word.parse().ok()?;
        (socket.port() != 0).then_some(BackendAddress { address: socket.ip(), port: Some(socket.port()) })
    }
}

impl std::fmt::Display for BackendAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.port {
            Some(port) => SocketAddr::new(self.address, port).fmt(f),
            None => self.address.fmt(f),
        }
    }
}

/// How back ends are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Not at all: they are assumed to be up.
    None,
    /// By a TCP connection to this port, or to the port of the back end.
    Tcp(Option<u16>),
}

impl Check {
    /// For `show functions`.
    pub fn report(self, every: Duration) -> Option<(String, String)> {
        let Check::Tcp(port) = self else { return None };
        let port = port.map_or_else(|| "its port".to_owned(), |port| port.to_string());
        Some(("check".to_owned(), format!("tcp {port} every {} s", every.as_secs_f64())))
    }
}

/// The parsed arguments.
#[derive(Clone, Debug)]
pub(crate) struct LbConfig {
    pub backends: Vec<(BackendAddress, u16)>,
    pub method: Method,
    pub check: Check,
    pub every: Duration,
}

impl LbConfig {
    /// # Errors
    /// The argument that is wrong, and what is accepted.
    pub fn parse(words: &[&str]) -> Result<LbConfig, ArgError> {
        let places = words.iter().take_while(|word| !matches!(**word, "by" | "check" | "every"));
        let backends = places.map(|word| backend(word)).collect::<Result<Vec<_>, _>>()?;
        let mut options = words.get(backends.len()..).unwrap_or(&[]);
        let mut parsed = LbConfig {
            backends,
            method: Method::RoundRobin,
            check: Check::None,
            every: Duration::from_secs(2),
        };
        parsed.examine()?;
        let mut seen = Vec::new();
        while let [option, rest @ ..] = options {
            if seen.contains(option) {
                return Err(format!("`{option}` stands twice").into());
            }
            seen.push(*option);
            options = parsed.option(option, rest)?;
        }
        parsed.verify(seen.contains(&"every"))?;
        Ok(parsed)
    }

    /// Checks options against each other and against the back ends. `has_every`: `every` was given.
    pub fn verify(&self, has_every: bool) -> Result<(), ArgError> {
        if self.check == Check::Tcp(None)
            && let Some((place, _)) = self.backends.iter().find(|(place, _)| place.port.is_none())
        {
            return Err(format!("`check tcp` needs a port, as `{place}` has none: `check tcp 80`").into());
        }
        if self.check == Check::None && has_every {
            return Err(
                "`every` says how often to check, but nothing is checked: add `check tcp PORT`".into()
            );
        }
        Ok(())
    }

    /// Checks the back ends.
    pub fn examine(&self) -> Result<(), ArgError> {
        if self.backends.is_empty() || self.backends.len() > MOST {
            return Err(format!("`lb` takes 1 to {MOST} back ends: `lb 10.0.0.1:80 10.0.0.2:80`").into());
        }
        check_distinct(&self.backends)
    }

    /// Parses one option. Returns the arguments behind it.
    pub fn option<'w, 's>(&mut self, option: &str, rest: &'w [&'s str]) -> Result<&'w [&'s str], ArgError> {
        match (option, rest) {
            ("by", [method, rest @ ..]) => {
                self.method = Method::parse(method).ok_or_else(|| {
                    format!("unknown method `{method}`: must be round-robin, least-connections or hash")
                })?;
                Ok(rest)
            }
            ("check", ["none", rest @ ..]) => {
                self.check = Check::None;
                Ok(rest)
            }
            ("check", ["tcp", rest @ ..]) => {
                let port = rest.first().and_then(|word| word.parse().ok()).filter(|port| *port != 0);
                self.check = Check::Tcp(port);
                Ok(rest.get(usize::from(port.is_some())..).unwrap_or(&[]))
            }
            ("every", [seconds, rest @ ..]) => {
                self.every = interval(seconds)?;
                Ok(rest)
            }
            ("by", _) => Err("`by` is followed by round-robin, least-connections or hash".into()),
            ("check", _) => Err("`check` is followed by `tcp PORT` or `none`".into()),
            ("every", _) => Err("`every` is followed by a number of seconds".into()),
            _ => Err(format!(
                "`{option}` is not understood: behind the back ends stand `by`, `check` and `every`"
            )
            .into()),
        }
    }
}

/// Checks that no back end stands twice.
pub(crate) fn check_distinct(backends: &[(BackendAddress, u16)]) -> Result<(), ArgError> {
    for (at, (place, _)) in backends.iter().enumerate() {
        if backends[..at].iter().any(|(other, _)| other == place) {
            return Err(format!("`{place}` stands twice; give it a weight instead: `{place}*2`").into());
        }
    }
    Ok(())
}

/// Parses a back end and its weight.
pub(crate) fn backend(word: &str) -> Result<(BackendAddress, u16), ArgError> {
    let (place, weight) = match word.split_once('*') {
        Some((place, weight)) => {
            (place, weight.parse().ok().filter(|weight| (1..=HEAVIEST).contains(weight)))
        }
        None => (word, Some(1)),
    };
    let weight =
        weight.ok_or_else(|| format!("the weight of `{word}` is not a number from 1 to {HEAVIEST}"))?;
    let place = BackendAddress::parse(place).ok_or_else(|| {
        format!("`{place}` is not a back end: write `ADDRESS` or `ADDRESS:PORT` (`[2001:db8::1]:80`)")
    })?;
    Ok((place, weight))
}

/// Parses a number of seconds.
fn interval(seconds: &str) -> Result<Duration, ArgError> {
    let plain = seconds.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let time = seconds.parse().ok().filter(|_| plain).and_then(|s| Duration::try_from_secs_f64(s).ok());
    let in_range = time.filter(|time| (FASTEST..=SLOWEST).contains(time));
    let expected = || format!("must be 0.1 to {} seconds", SLOWEST.as_secs());
    in_range.ok_or_else(|| ArgError::invalid("interval", seconds, expected()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<LbConfig, String> {
        let words: Vec<_> = line.split_whitespace().collect();
        LbConfig::parse(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn all_arguments_are_parsed() {
        let words =
            parse("10.0.0.1 10.0.0.2:80*3 [2001:db8::1]:81 2001:db8::2 every 0.5 by hash check tcp 8080");
        let words = words.unwrap();
        let places: Vec<_> =
            words.backends.iter().map(|(place, weight)| format!("{place} {weight}")).collect();
        assert_eq!(places, ["10.0.0.1 1", "10.0.0.2:80 3", "[2001:db8::1]:81 1", "2001:db8::2 1"]);
        assert_eq!((words.method, words.check), (Method::Hash, Check::Tcp(Some(8080))));
        assert_eq!(words.every, Duration::from_millis(500));
        let least = parse("10.0.0.1:80 by least-connections check tcp").unwrap();
        assert_eq!((least.method, least.check), (Method::LeastConnections, Check::Tcp(None)));
        let plain = parse("10.0.0.1").unwrap();
        assert_eq!((plain.method, plain.check), (Method::RoundRobin, Check::None));
    }

    #[test]
    fn invalid_arguments_are_named() {
        for (line, named) in [
            ("", "1 to 256"),
            ("by hash", "1 to 256"),
            ("10.0.0.300", "`10.0.0.300`"),
            ("10.0.0.1:0", "`10.0.0.1:0`"),
            ("10.0.0.1*0", "`10.0.0.1*0`"),
            ("10.0.0.1*101", "1 to 100"),
            ("10.0.0.1 10.0.0.1", "twice"),
            ("10.0.0.1 by", "round-robin"),
            ("10.0.0.1 by luck", "`luck`"),
            ("10.0.0.1 by hash by hash", "`by` stands twice"),
            ("10.0.0.1 check", "`tcp PORT`"),
            ("10.0.0.1 check tcp", "`10.0.0.1` has none"),
            ("10.0.0.1 check http", "`tcp PORT`"),
            ("10.0.0.1 every 2", "nothing is checked"),
            ("10.0.0.1:80 check tcp every 1e-3", "`1e-3`"),
            ("10.0.0.1:80 check tcp every 0", "`0`"),
            ("10.0.0.1:80 check tcp every inf", "`inf`"),
            ("10.0.0.1 by hash 10.0.0.2", "`10.0.0.2`"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
