//! The rules of an instance, and the answers that clients get.

use mmb_nf::{ArgError, Setup};

use crate::shared::http::media_type;
use crate::shared::input_file::read_bytes;
use crate::shared::wildcard::{matches, matches_path};

/// Most bytes of a page, so that an answer fits the first window of a connection.
const MOST_PAGE: u64 = 4096;
/// Most headers that rules name.
const MOST_HEADERS: usize = 15;

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Allow,
    Block,
    Redirect,
    Reset,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Method(Box<[u8]>),
    /// A pattern.
    Host(Box<[u8]>),
    /// See [`matches_path`].
    Path(Box<[u8]>),
    /// Position of the name among [`Rules::names`], and a pattern of the value.
    Header(usize, Box<[u8]>),
    /// A pattern of the media type of the response.
    Type(Box<[u8]>),
}

#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub action: Action,
    conditions: Vec<Condition>,
    pub answer: Answer,
}

/// A response that clients get in the place of the server's.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    bytes: Vec<u8>,
    head: usize,
}

impl Answer {
    fn new(status: &str, header: &str, page: &[u8]) -> Answer {
        let head = format!(
            "HTTP/1.1 {status}\r\n{header}Content-Type: text/html\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            page.len()
        );
        Answer { head: head.len(), bytes: [head.as_bytes(), page].concat() }
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

fn page(title: &str) -> Vec<u8> {
    format!("<!DOCTYPE html><title>{title}</title><h1>{title}</h1>\n").into_bytes()
}

/// A request as rules compare it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Request<'h> {
    pub method: &'h [u8],
    pub host: &'h [u8],
    /// The normal form of the path.
    pub path: &'h [u8],
}

/// The rules of an instance, in the order of the arguments.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    rules: Vec<Rule>,
    /// Lower-case names of the headers that rules read. The first one is `host`.
    names: Vec<Box<[u8]>>,
    /// Malformed messages are not read, and pass.
    pub passes_errors: bool,
    /// A rule reads responses.
    pub read_responses: bool,
}

impl Rules {
    pub fn parse(setup: &Setup<'_>) -> Result<Rules, ArgError> {
        let mut rules = Rules { names: vec![(*b"host").into()], ..Rules::default() };
        let mut blocked = page("403 Forbidden");
        let mut words = setup.args;
        while let [word, rest @ ..] = words {
            words = match (*word, rest) {
                ("errors", ["pass", rest @ ..]) => {
                    rules.passes_errors = true;
                    rest
                }
                ("errors", ["reject", rest @ ..]) => rest,
                ("errors", _) => return Err(ArgError::missing("errors", "`reject` or `pass`")),
                ("page", [path, rest @ ..]) => {
                    blocked = read_bytes(path, setup.files, MOST_PAGE)?;
                    rest
                }
                ("page", []) => return Err(ArgError::missing("page", "a path")),
                ("allow", rest) => rules.add(Action::Allow, Answer::default(), rest)?,
                ("block", rest) => {
                    rules.add(Action::Block, Answer::new("403 Forbidden", "", &blocked), rest)?
                }
                ("reset", rest) => rules.add(Action::Reset, Answer::default(), rest)?,
                ("redirect", [url, rest @ ..]) => {
                    if url.is_empty() || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
                        return Err(ArgError::invalid("URL", url, "must have visible ASCII characters only"));
                    }
                    let answer =
                        Answer::new("302 Found", &format!("Location: {url}\r\n"), &page("302 Found"));
                    rules.add(Action::Redirect, answer, rest)?
                }
                ("redirect", []) => return Err(ArgError::missing("redirect", "a URL")),
                _ => {
                    let usage = super::USAGE;
                    return Err(format!("unknown argument `{word}`: `http-filter` takes {usage}").into());
                }
            };
        }
        if rules.rules.is_empty() {
            return Err(ArgError::missing("http-filter", "a rule: `block host ads.example`"));
        }
        Ok(rules)
    }

    /// Adds a rule with the conditions at the beginning of the words. Returns the words behind them.
    fn add<'w, 's>(
        &mut self,
        action: Action,
        answer: Answer,
        mut words: &'w [&'s str],
    ) -> Result<&'w [&'s str], ArgError> {
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
                    (Condition::Header(self.name(name)?, value.as_bytes().into()), rest)
                }
                ["type", pattern, rest @ ..] => (Condition::Type(pattern.as_bytes().into()), rest),
                ["header", ..] => return Err(ArgError::missing("header", "a name and a pattern")),
                [word @ ("method" | "host" | "path" | "type")] => {
                    return Err(ArgError::missing(word, "a pattern"));
                }
                _ => break,
            };
            conditions.push(condition);
            words = rest;
        }
        let is_type = |condition: &Condition| matches!(condition, Condition::Type(_));
        if conditions.iter().any(is_type) && conditions.len() > 1 {
            return Err("`type` is of responses: a rule with it has no other condition".into());
        }
        let rule = Rule { action, conditions, answer };
        self.read_responses |= rule.is_of_responses();
        self.rules.push(rule);
        Ok(words)
    }

    fn name(&mut self, name: &str) -> Result<usize, ArgError> {
        let name = name.to_ascii_lowercase().into_bytes();
        if let Some(at) = self.names.iter().position(|known| **known == *name) {
            return Ok(at);
        }
        if self.names.len() == MOST_HEADERS {
            return Err(format!("rules name more than {MOST_HEADERS} headers").into());
        }
        self.names.push(name.into());
        Ok(self.names.len() - 1)
    }

    /// Calls a closure with the names of headers that rules read.
    pub fn with_names<R>(&self, f: impl FnOnce(&[&[u8]]) -> R) -> R {
        let mut names: [&[u8]; MOST_HEADERS] = [b""; MOST_HEADERS];
        names.iter_mut().zip(&self.names).for_each(|(place, name)| *place = name);
        f(names.get(..self.names.len()).unwrap_or(&[]))
    }

    pub fn get(&self, number: usize) -> Option<&Rule> {
        self.rules.get(number)
    }

    /// Returns the first rule that matches a request. `value` returns the values of a header.
    pub fn of_request<'h, V: Iterator<Item = &'h [u8]>>(
        &self,
        request: Request<'_>,
        value: impl Fn(usize) -> V,
    ) -> Option<usize> {
        self.rules.iter().position(|rule| {
            !rule.is_of_responses()
                && rule.conditions.iter().all(|condition| match condition {
                    Condition::Method(method) => **method == *request.method,
                    Condition::Host(pattern) => matches(pattern, request.host, true),
                    Condition::Path(path) => matches_path(path, request.path),
                    Condition::Header(at, pattern) => value(*at).any(|value| matches(pattern, value, false)),
                    Condition::Type(_) => false,
                })
        })
    }

    /// Returns the first rule that matches the Content-Type of a response.
    pub fn of_response(&self, content_type: &[u8]) -> Option<usize> {
        let media = media_type(content_type);
        let is_match = |condition: &Condition| matches!(condition, Condition::Type(pattern) if matches(pattern, media, true));
        self.rules.iter().position(|rule| rule.conditions.iter().any(is_match))
    }
}

impl Rule {
    fn is_of_responses(&self) -> bool {
        self.conditions.iter().any(|condition| matches!(condition, Condition::Type(_)))
    }
}
