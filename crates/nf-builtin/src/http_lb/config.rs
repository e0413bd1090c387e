//! The arguments of `http-lb`.

use std::sync::Arc;
use std::time::Duration;

use mmb_nf::ArgError;

use crate::lb::backends::Backends;
use crate::lb::choice::{Families, Method};
use crate::lb::config::{Check, LbConfig, backend};
use crate::shared::handshake::Promise;
use crate::shared::http_rules::{Conditions, HeaderNames};

/// Most groups of back ends.
pub(super) const MOST_GROUPS: usize = 32;
/// Limits of the time for a head.
const LEAST_TIMEOUT: u32 = 1;
const MOST_TIMEOUT: u32 = 300;

/// Back ends, and the requests that they get.
#[derive(Debug)]
pub(super) struct Group {
    /// The words of the conditions.
    pub name: String,
    /// None: all requests.
    pub conditions: Option<Conditions>,
    pub backends: Arc<Backends>,
}

/// The parsed arguments.
#[derive(Debug)]
pub(super) struct Config {
    pub groups: Vec<Group>,
    pub names: HeaderNames,
    pub method: Method,
    pub check: Check,
    pub every: Duration,
    pub promise: Promise,
    /// Milliseconds in which a head has to be complete.
    pub timeout: u32,
}

/// A group before options are known.
struct Clause {
    name: String,
    conditions: Option<Conditions>,
    backends: Vec<(crate::lb::config::BackendAddress, u16)>,
}

impl Config {
    /// # Errors
    /// The argument that is wrong, and what is accepted.
    pub fn parse(words: &[&str]) -> Result<Config, ArgError> {
        let mut names = HeaderNames::default();
        let (clauses, words) = clauses(words, &mut names)?;
        let mut common = LbConfig {
            backends: Vec::new(),
            method: Method::RoundRobin,
            check: Check::None,
            every: Duration::from_secs(2),
        };
        let (mut promise, mut timeout, mut seen) = (Promise::default(), 10, Vec::new());
        let mut rest = words;
        while let [option, behind @ ..] = rest {
            if seen.contains(option) {
                return Err(format!("`{option}` stands twice").into());
            }
            seen.push(*option);
            rest = match (*option, behind) {
                ("by" | "check" | "every", _) => common.option(option, behind)?,
                ("timeout", [seconds, behind @ ..]) => {
                    timeout = parse_timeout(seconds)?;
                    behind
                }
                ("timeout", []) => return Err(ArgError::missing("timeout", "a number of seconds")),
                _ => promise.option(rest)?.ok_or_else(|| {
                    format!("unknown argument `{option}`: `http-lb` takes {}", super::USAGE)
                })?,
            };
        }
        let group = |clause: Clause| -> Result<Group, ArgError> {
            let config = LbConfig { backends: clause.backends, ..common.clone() };
            config.examine()?;
            config.verify(seen.contains(&"every"))?;
            let backends = Arc::new(Backends::new(&config, Families::Separate));
            Ok(Group { name: clause.name, conditions: clause.conditions, backends })
        };
        let groups = clauses.into_iter().map(group).collect::<Result<_, _>>()?;
        let LbConfig { method, check, every, .. } = common;
        Ok(Config { groups, names, method, check, every, promise, timeout: timeout * 1000 })
    }
}

/// Parses the clauses at the beginning of words. Returns the words behind them.
fn clauses<'w, 's>(
    words: &'w [&'s str],
    names: &mut HeaderNames,
) -> Result<(Vec<Clause>, &'w [&'s str]), ArgError> {
    let (mut clauses, mut rest) = (Vec::<Clause>::new(), words);
    loop {
        let (conditions, behind) = match rest {
            ["default", behind @ ..] => (None, behind),
            _ => {
                let (conditions, behind) = Conditions::parse(rest, names)?;
                (Some(conditions), behind)
            }
        };
        let name = rest.get(..rest.len() - behind.len()).unwrap_or(&[]).join(" ");
        if name.is_empty() {
            break;
        }
        if conditions.as_ref().is_some_and(Conditions::is_of_responses) {
            return Err("`type` is of responses, and the server is chosen by the request".into());
        }
        let ["to", behind @ ..] = behind else {
            return Err(format!("`{name}` is followed by `to` and back ends: `{name} to 10.0.0.2:80`").into());
        };
        // Addresses have dots or colons, and other arguments have none.
        let count = behind.iter().take_while(|word| word.contains(['.', ':'])).count();
        let (places, behind) = behind.split_at(count);
        let backends = places.iter().map(|word| backend(word)).collect::<Result<Vec<_>, _>>()?;
        if backends.is_empty() {
            return Err(ArgError::missing("to", "addresses of back ends"));
        }
        if clauses.last().is_some_and(|last| last.conditions.is_none()) {
            return Err(format!("`{name}` stands behind `default`, which takes all requests").into());
        }
        clauses.push(Clause { name, conditions, backends });
        rest = behind;
    }
    match clauses.len() {
        0 => Err(ArgError::missing("http-lb", "a clause: `host www.example.org to 10.0.0.2:80`")),
        1..=MOST_GROUPS => Ok((clauses, rest)),
        _ => Err(format!("there are more than {MOST_GROUPS} clauses").into()),
    }
}

fn parse_timeout(seconds: &str) -> Result<u32, ArgError> {
    let in_range = seconds.parse().ok().filter(|time| (LEAST_TIMEOUT..=MOST_TIMEOUT).contains(time));
    let expected = || format!("must be {LEAST_TIMEOUT} to {MOST_TIMEOUT} seconds");
    in_range.ok_or_else(|| ArgError::invalid("timeout", seconds, expected()))
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
        let config = parse(
            "host www.a.example path /x to 10.0.0.2 10.0.0.3:80*2 header X-T a to [2001:db8::1]:80 \
             cookie s b* to 10.0.0.4 default to 10.0.0.5:80 by hash check tcp 80 every 1 timeout 5 mss 1400 no-sack",
        )
        .unwrap();
        let names: Vec<_> =
            config.groups.iter().map(|group| (&*group.name, group.backends.all().len())).collect();
        let expected =
            [("host www.a.example path /x", 2), ("header X-T a", 1), ("cookie s b*", 1), ("default", 1)];
        assert_eq!(names, expected);
        assert_eq!((config.method, config.check), (Method::Hash, Check::Tcp(Some(80))));
        assert_eq!((config.timeout, config.promise.mss, config.promise.sack), (5000, Some(1400), false));
        assert!(config.groups[3].conditions.is_none());
    }

    #[test]
    fn invalid_arguments_are_named() {
        for (line, named) in [
            ("", "a clause"),
            ("10.0.0.1", "a clause"),
            ("host", "a pattern"),
            ("host a", "`host a` is followed by `to`"),
            ("host a to", "addresses"),
            ("host a to www", "addresses"),
            ("host a to 10.0.0.300", "`10.0.0.300`"),
            ("host a to 10.0.0.1 10.0.0.1", "twice"),
            ("path x to 10.0.0.1", "must begin with"),
            ("type text/* to 10.0.0.1", "responses"),
            ("default to 10.0.0.1 host a to 10.0.0.2", "behind `default`"),
            ("default to 10.0.0.1 by luck", "`luck`"),
            ("default to 10.0.0.1 by hash by hash", "`by` stands twice"),
            ("default to 10.0.0.1 check tcp", "needs a port"),
            ("default to 10.0.0.1 every 1", "nothing is checked"),
            ("default to 10.0.0.1 timeout 0", "`0`"),
            ("default to 10.0.0.1 timeout", "seconds"),
            ("default to 10.0.0.1 soon", "`soon`"),
            ("default to 10.0.0.1 mss 9", "`mss 9`"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
        let many = "host a to 10.0.0.1 ".repeat(MOST_GROUPS + 1);
        assert!(parse(&many).unwrap_err().contains("more than 32"));
    }
}
