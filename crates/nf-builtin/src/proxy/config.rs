//! The arguments of `proxy`.

use std::time::Duration;

use mmb_nf::{ArgError, ProxyHeader};

use crate::lb::choice::Method;
use crate::lb::config::{Check, LbConfig, backend, check_distinct};
use crate::lb::health::Probe;

pub(super) const USAGE: &str = "ADDRESS[:PORT][*WEIGHT]… [by round-robin|least-connections|hash] \
     [check http PATH|tcp|none] [every SECONDS] [retries NUMBER] [sticky COOKIE] [send-proxy v1|v2]";

/// What may stand behind the servers.
const OPTIONS: [&str; 6] = ["by", "check", "every", "retries", "sticky", "send-proxy"];
/// Most servers.
const MOST: usize = 256;
/// The port of servers without one.
const HTTP: u16 = 80;
/// Most other servers that are tried for a request, and how many are if nothing is said.
pub(super) const MOST_RETRIES: usize = 7;
const RETRIES: usize = 2;
/// Most bytes of the name of a cookie.
const MOST_NAME: usize = 64;

/// The parsed arguments.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub servers: LbConfig,
    pub probe: Option<Probe>,
    pub retries: usize,
    /// The cookie that names the server of a client.
    pub sticky: Option<Box<[u8]>>,
    pub proxy_header: Option<ProxyHeader>,
}

impl Config {
    /// # Errors
    /// The argument that is wrong, and what is accepted.
    pub fn parse(words: &[&str]) -> Result<Config, ArgError> {
        let is_option = |word: &&&str| OPTIONS.contains(*word);
        let places = words.iter().take_while(|word| !is_option(word));
        let mut backends = places.map(|word| backend(word)).collect::<Result<Vec<_>, _>>()?;
        if backends.is_empty() || backends.len() > MOST {
            return Err(format!("`proxy` takes 1 to {MOST} servers: `proxy 10.0.0.1:80 10.0.0.2:80`").into());
        }
        let mut options = words.get(backends.len()..).unwrap_or(&[]);
        for (place, _) in &mut backends {
            place.port.get_or_insert(HTTP);
        }
        check_distinct(&backends)?;
        let every = Duration::from_secs(2);
        let servers = LbConfig { backends, method: Method::RoundRobin, check: Check::None, every };
        let mut parsed = Config { servers, probe: None, retries: RETRIES, sticky: None, proxy_header: None };
        let mut seen = Vec::new();
        while let [option, rest @ ..] = options {
            if seen.contains(option) {
                return Err(format!("`{option}` stands twice").into());
            }
            seen.push(*option);
            options = parsed.option(option, rest)?;
        }
        if parsed.probe.is_none() && seen.contains(&"every") {
            let message = "`every` says how often to check, but nothing is checked: add `check http PATH`";
            return Err(message.into());
        }
        if let Some(Probe::Http(_, header)) = &mut parsed.probe {
            *header = parsed.proxy_header;
        }
        Ok(parsed)
    }

    /// Parses one option. Returns the arguments behind it.
    fn option<'w, 's>(&mut self, option: &str, rest: &'w [&'s str]) -> Result<&'w [&'s str], ArgError> {
        match (option, rest) {
            ("by" | "every", _) => self.servers.option(option, rest),
            ("check", ["none", rest @ ..]) => Ok(rest),
            ("check", ["tcp", rest @ ..]) => {
                self.probe = Some(Probe::Tcp(None));
                Ok(rest)
            }
            ("check", ["http", path, rest @ ..]) => {
                if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
                    let expected = "must begin with `/` and have visible ASCII characters only";
                    return Err(ArgError::invalid("path", path, expected));
                }
                self.probe = Some(Probe::Http((*path).into(), None));
                Ok(rest)
            }
            ("retries", [number, rest @ ..]) => {
                let parsed = number.parse().ok().filter(|retries| *retries <= MOST_RETRIES);
                self.retries = parsed.ok_or_else(|| {
                    ArgError::invalid("number of retries", number, format!("must be 0 to {MOST_RETRIES}"))
                })?;
                Ok(rest)
            }
            ("sticky", [name, rest @ ..]) => {
                self.sticky = Some(cookie_name(name)?);
                Ok(rest)
            }
            ("send-proxy", [version @ ("v1" | "v2"), rest @ ..]) => {
                self.proxy_header = Some(if *version == "v1" { ProxyHeader::V1 } else { ProxyHeader::V2 });
                Ok(rest)
            }
            ("sticky", []) => Err(ArgError::missing("sticky", "the name of a cookie")),
            ("send-proxy", _) => Err("`send-proxy` is followed by `v1` or `v2`".into()),
            ("check", _) => Err("`check` is followed by `http PATH`, `tcp` or `none`".into()),
            ("retries", _) => Err("`retries` is followed by a number".into()),
            _ => Err(format!(
                "`{option}` is not understood: behind the servers stand `{}`",
                OPTIONS.join("`, `")
            )
            .into()),
        }
    }
}

/// Returns the name of a cookie (RFC 6265, 4.1.1).
fn cookie_name(name: &str) -> Result<Box<[u8]>, ArgError> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > MOST_NAME || !name.bytes().all(is_token) {
        let expected = format!("must have 1 to {MOST_NAME} letters, digits and hyphens");
        return Err(ArgError::invalid("cookie", name, expected));
    }
    Ok(name.as_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Config, String> {
        let words: Vec<_> = line.split_whitespace().collect();
        Config::parse(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn all_arguments_are_parsed() {
        let line = "10.0.0.1 [2001:db8::1]:81*3 check http /health?x every 0.5 by hash retries 0";
        let config = parse(line).unwrap();
        let places: Vec<_> =
            config.servers.backends.iter().map(|(place, weight)| format!("{place} {weight}")).collect();
        assert_eq!(places, ["10.0.0.1:80 1", "[2001:db8::1]:81 3"]);
        assert_eq!((config.servers.method, config.retries), (Method::Hash, 0));
        assert_eq!(config.probe, Some(Probe::Http("/health?x".into(), None)));
        let config = parse("10.0.0.1 send-proxy v2 check http / sticky id").unwrap();
        assert_eq!(config.probe, Some(Probe::Http("/".into(), Some(ProxyHeader::V2))));
        assert_eq!(config.sticky.as_deref(), Some(&b"id"[..]));
        let plain = parse("10.0.0.1:8080").unwrap();
        assert_eq!((plain.servers.method, plain.probe, plain.retries), (Method::RoundRobin, None, RETRIES));
    }

    #[test]
    fn errors_name_what_is_wrong() {
        for (line, named) in [
            ("", "1 to 256 servers"),
            ("by hash", "1 to 256 servers"),
            ("10.0.0.1 10.0.0.1:80", "twice"),
            ("10.0.0.1:0", "`10.0.0.1:0`"),
            ("10.0.0.1 by luck", "`luck`"),
            ("10.0.0.1 check", "`http PATH`"),
            ("10.0.0.1 check http", "`http PATH`"),
            ("10.0.0.1 check http health", "`health`"),
            ("10.0.0.1 every 2", "nothing is checked"),
            ("10.0.0.1 retries 8", "`8`"),
            ("10.0.0.1 by hash 10.0.0.2", "`10.0.0.2`"),
            ("10.0.0.1 sticky", "name of a cookie"),
            ("10.0.0.1 sticky a;b", "`a;b`"),
            ("10.0.0.1 send-proxy v3", "`v1` or `v2`"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
