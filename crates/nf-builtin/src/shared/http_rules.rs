//! Conditions of rules about requests, and the answers that clients get in the place of a server's.

use mmb_nf::{ArgError, L7Answer};

use super::http::media_type;
use super::wildcard::{matches, matches_path};

/// Most headers that rules name.
const MOST_HEADERS: usize = 15;

/// A condition of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Method(Box<[u8]>),
    /// A pattern.
    Host(Box<[u8]>),
    /// See [`matches_path`].
    Path(Box<[u8]>),
    /// Position of the name among the [`HeaderNames`], and a pattern of the value.
    Header(usize, Box<[u8]>),
    /// Position of `cookie` among the [`HeaderNames`], the name of a cookie, and a pattern of its value.
    Cookie(usize, Box<[u8]>, Box<[u8]>),
    /// A pattern of the media type of the response.
    Type(Box<[u8]>),
}

/// A request as rules compare it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request<'h> {
    pub method: &'h [u8],
    pub host: &'h [u8],
    /// The normal form of the path.
    pub path: &'h [u8],
}

/// Lower-case names of the headers that rules read. The first one is `host`.
#[derive(Clone, Debug)]
pub(crate) struct HeaderNames(Vec<Box<[u8]>>);

impl Default for HeaderNames {
    fn default() -> HeaderNames {
        HeaderNames(vec![(*b"host").into()])
    }
}

impl HeaderNames {
    fn add(&mut self, name: &str) -> Result<usize, ArgError> {
        let name = name.to_ascii_lowercase().into_bytes();
        if let Some(at) = self.0.iter().position(|known| **known == *name) {
            return Ok(at);
        }
        if self.0.len() == MOST_HEADERS {
            return Err(format!("rules name more than {MOST_HEADERS} headers").into());
        }
        self.0.push(name.into());
        Ok(self.0.len() - 1)
    }

    /// Returns the name of a header by its position.
    pub fn get(&self, at: usize) -> &[u8] {
        self.0.get(at).map_or(b"", |name| name)
    }

    /// Calls a closure with the names.
    pub fn with<R>(&self, f: impl FnOnce(&[&[u8]]) -> R) -> R {
        let mut names: [&[u8]; MOST_HEADERS] = [b""; MOST_HEADERS];
        names.iter_mut().zip(&self.0).for_each(|(place, name)| *place = name);
        f(names.get(..self.0.len()).unwrap_or(&[]))
    }
}

/// Conditions that all have to be true.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions(Vec<Condition>);

impl Conditions {
    /// Parses the conditions at the beginning of words. Returns the words behind them.
    ///
    /// # Errors
    /// The condition that is wrong.
    pub fn parse<'w, 's>(
        mut words: &'w [&'s str],
        names: &mut HeaderNames,
    ) -> Result<(Conditions, &'w [&'s str]), ArgError> {
        let mut conditions = Vec::new();
        loop {
            let (condition, rest) = match words {
                ["method", method, rest @ ..] => (Condition::Method(method.as_bytes().into()), rest),
                ["host", host, rest @ ..] => (Condition::Host(host.as_bytes().into()), rest),
                ["path", path, ..] if !path.starts_with(['/', '*']) => {
                    return Err(ArgError::invalid("path", path, "must begin with `/` or `*`"));
                }
                ["path", path, rest @ ..] => (Condition::Path(path.as_bytes().into()), rest),
                ["header", name, value, rest @ ..] => {
                    (Condition::Header(names.add(name)?, value.as_bytes().into()), rest)
                }
                ["cookie", name, value, rest @ ..] => {
                    let (name, value) = (name.as_bytes().into(), value.as_bytes().into());
                    (Condition::Cookie(names.add("cookie")?, name, value), rest)
                }
                ["type", pattern, rest @ ..] => (Condition::Type(pattern.as_bytes().into()), rest),
                [word @ ("header" | "cookie"), ..] => {
                    return Err(ArgError::missing(word, "a name and a pattern"));
                }
                [word @ ("method" | "host" | "path" | "type")] => {
                    return Err(ArgError::missing(word, "a pattern"));
                }
                _ => break,
            };
            conditions.push(condition);
            words = rest;
        }
        Ok((Conditions(conditions), words))
    }

    /// Returns the number of conditions.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether a condition is about responses.
    pub fn is_of_responses(&self) -> bool {
        self.0.iter().any(|condition| matches!(condition, Condition::Type(_)))
    }

    /// Whether a request fulfils all conditions. `value` returns the values of a header by its position.
    pub fn match_request<'h, V: Iterator<Item = &'h [u8]>>(
        &self,
        request: Request<'_>,
        value: impl Fn(usize) -> V,
    ) -> bool {
        self.0.iter().all(|condition| match condition {
            Condition::Method(method) => **method == *request.method,
            Condition::Host(pattern) => matches(pattern, request.host, true),
            Condition::Path(path) => matches_path(path, request.path),
            Condition::Header(at, pattern) => value(*at).any(|value| matches(pattern, value, false)),
            Condition::Cookie(at, name, pattern) => {
                let mut all = value(*at).flat_map(cookies);
                all.any(|(of, value)| of == &**name && matches(pattern, value, false))
            }
            Condition::Type(_) => false,
        })
    }

    /// Whether the Content-Type of a response fulfils a condition.
    pub fn match_response(&self, content_type: &[u8]) -> bool {
        let media = media_type(content_type);
        let is_match = |condition: &Condition| matches!(condition, Condition::Type(pattern) if matches(pattern, media, true));
        self.0.iter().any(is_match)
    }
}

/// Iterates over names and values in a Cookie header (RFC 6265, 4.2.1).
fn cookies(header: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    header.split(|&byte| byte == b';').filter_map(|pair| {
        let pair = pair.trim_ascii();
        let at = pair.iter().position(|&byte| byte == b'=')?;
        Some((pair.get(..at)?, pair.get(at + 1..)?))
    })
}

/// A response that clients get in the place of the server's.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    bytes: Vec<u8>,
    head: usize,
    /// The answer of a broker.
    pub in_broker: L7Answer,
}

impl Default for Answer {
    fn default() -> Answer {
        Answer { bytes: Vec::new(), head: 0, in_broker: L7Answer::of_status(403) }
    }
}

impl Answer {
    pub fn new(status: &str, header: &str, page: &[u8]) -> Answer {
        let head = format!(
            "HTTP/1.1 {status}\r\n{header}Content-Type: text/html\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            page.len()
        );
        let code = status.split(' ').next().and_then(|code| code.parse().ok()).unwrap_or(403);
        let in_broker = L7Answer {
            headers: format!("{header}Cache-Control: no-store\r\n").into_bytes().into(),
            body: Some(page.into()),
            ..L7Answer::of_status(code)
        };
        Answer { head: head.len(), bytes: [head.as_bytes(), page].concat(), in_broker }
    }

    /// The answer to a request that no server can take.
    pub fn unavailable() -> Answer {
        Answer::new("503 Service Unavailable", "", &page("503 Service Unavailable"))
    }

    /// The answer to a client that takes too long to send a request.
    pub fn timeout() -> Answer {
        Answer::new("408 Request Timeout", "", &page("408 Request Timeout"))
    }

    /// The answer to a request that is malformed.
    pub fn bad_request() -> Answer {
        Answer::new("400 Bad Request", "", &page("400 Bad Request"))
    }

    /// The answer to a request with too long a head (RFC 6585, 5).
    pub fn too_large() -> Answer {
        const STATUS: &str = "431 Request Header Fields Too Large";
        Answer::new(STATUS, "", &page(STATUS))
    }

    /// Returns the bytes. The response to HEAD has no content.
    pub fn bytes(&self, is_head: bool) -> &[u8] {
        if is_head { self.bytes.get(..self.head).unwrap_or(&[]) } else { &self.bytes }
    }
}

/// Returns a page that consists of a title.
pub(crate) fn page(title: &str) -> Vec<u8> {
    format!("<!DOCTYPE html><title>{title}</title><h1>{title}</h1>\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_found_by_name() {
        let mut names = HeaderNames::default();
        let words = ["cookie", "session", "a*", "to"];
        let (conditions, rest) = Conditions::parse(&words, &mut names).expect("conditions");
        assert_eq!((conditions.len(), rest), (1, &["to"][..]));
        names.with(|names| assert_eq!(names, [&b"host"[..], b"cookie"]));
        for (header, expected) in [
            ("session=abc", true),
            ("x=1; session=a", true),
            ("x=session=a", false),
            ("Session=abc", false),
            ("session=b; session=ab", true),
            ("session", false),
            (";;session=a=b", true),
            ("", false),
        ] {
            let value = |at: usize| (at == 1).then_some(header.as_bytes()).into_iter();
            assert_eq!(conditions.match_request(Request::default(), value), expected, "{header}");
        }
    }
}
