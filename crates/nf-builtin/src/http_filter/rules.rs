//! The rules of an instance, and the answers that clients get.

use mmb_nf::{ArgError, Setup};

use crate::shared::http_rules::{Answer, Conditions, HeaderNames, Request, page};
use crate::shared::input_file::read_bytes;

/// Most bytes of a page, so that an answer fits the first window of a connection.
const MOST_PAGE: u64 = 4096;

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Allow,
    Block,
    Redirect,
    Reset,
}

#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub action: Action,
    conditions: Conditions,
    pub answer: Answer,
}

/// The rules of an instance, in the order of the arguments.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    rules: Vec<Rule>,
    pub names: HeaderNames,
    /// Malformed messages are not read, and pass.
    pub passes_errors: bool,
    /// A rule reads responses.
    pub read_responses: bool,
}

impl Rules {
    pub fn parse(setup: &Setup<'_>) -> Result<Rules, ArgError> {
        let mut rules = Rules::default();
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
        words: &'w [&'s str],
    ) -> Result<&'w [&'s str], ArgError> {
        let (conditions, rest) = Conditions::parse(words, &mut self.names)?;
        if conditions.is_of_responses() && conditions.len() > 1 {
            return Err("`type` is of responses: a rule with it has no other condition".into());
        }
        self.read_responses |= conditions.is_of_responses();
        self.rules.push(Rule { action, conditions, answer });
        Ok(rest)
    }

    /// Returns the name of a header by its position.
    pub fn header(&self, at: usize) -> &[u8] {
        self.names.get(at)
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
            !rule.conditions.is_of_responses() && rule.conditions.match_request(request, &value)
        })
    }

    /// Returns the first rule that matches the Content-Type of a response.
    pub fn of_response(&self, content_type: &[u8]) -> Option<usize> {
        self.rules.iter().position(|rule| rule.conditions.match_response(content_type))
    }
}
