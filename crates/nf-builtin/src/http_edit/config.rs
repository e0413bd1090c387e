//! The arguments of `http-edit`.

use mmb_nf::{ArgError, Direction, Setup};
use mmb_search::{Expression, Literals, Pattern};

use super::path::UriRewrite;
use crate::shared::http::media_type;
use crate::shared::input_file::read_bytes;
use crate::shared::wildcard::matches;

/// Most bytes of a new text of a body.
const MOST_TEXT: u64 = 16 << 10;
/// Most bytes of the headers that are added to a message.
const MOST_ADDED: usize = 2048;
/// Most texts of bodies that are replaced.
const MOST_TEXTS: usize = 64;
/// Headers that tell where a message ends, or what becomes of its connection.
const FRAMING: [&str; 5] = ["content-length", "transfer-encoding", "connection", "upgrade", "trailer"];
/// Media types of the responses whose bodies are edited, if none are named.
const TEXT: &[u8] = b"text/*";

pub(super) const USAGE: &str = "[errors reject|pass] [type PATTERN]… [nocase] [ranges remove|pass] \
     [no-transform honor|ignore] \
     request|response header set|add NAME VALUE | request|response header del NAME | \
     request path replace REGEX TEXT | response location replace REGEX TEXT | \
     [request|response] body replace TEXT TEXT|file FILE | \
     [request|response] body remove TEXT …";

/// A setting with two values, the usual one first.
struct Switch {
    name: &'static str,
    values: [&'static str; 2],
    /// For users.
    expected: &'static str,
}

const ERRORS: Switch = Switch { name: "errors", values: ["reject", "pass"], expected: "`reject` or `pass`" };
const RANGES: Switch = Switch { name: "ranges", values: ["remove", "pass"], expected: "`remove` or `pass`" };
const NO_TRANSFORM: Switch =
    Switch { name: "no-transform", values: ["honor", "ignore"], expected: "`honor` or `ignore`" };

impl Switch {
    /// Reads the value. Returns the words behind it.
    fn read<'w, 's>(&self, words: &'w [&'s str], is_other: &mut bool) -> Result<&'w [&'s str], ArgError> {
        match words {
            [word, rest @ ..] if self.values.contains(word) => {
                *is_other = *word == self.values[1];
                Ok(rest)
            }
            _ => Err(ArgError::missing(self.name, self.expected)),
        }
    }
}

/// The value of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(Box<[u8]>),
    ClientAddress,
    ServerAddress,
}

/// Edits of the headers of a direction.
#[derive(Clone, Debug, Default)]
pub(super) struct HeaderEdits {
    /// Names of headers that are removed.
    pub removed: Vec<Box<[u8]>>,
    /// Names and values of headers that are added.
    pub added: Vec<(Box<[u8]>, Value)>,
}

/// A text and the one in its place.
#[derive(Debug)]
struct Replacement {
    old: Box<[u8]>,
    new: Box<[u8]>,
}

/// Edits of the bodies of a direction.
#[derive(Debug)]
pub(super) struct BodyEdits {
    pub literals: Literals,
    replacements: Vec<Replacement>,
    ignores_case: bool,
    /// No edit changes a length.
    pub keeps_length: bool,
}

impl BodyEdits {
    fn new(texts: Vec<(Pattern, Box<[u8]>)>) -> Result<Option<BodyEdits>, ArgError> {
        if texts.is_empty() {
            return Ok(None);
        }
        let ignores_case = texts.iter().any(|(pattern, _)| pattern.ignores_case);
        let (patterns, new): (Vec<Pattern>, Vec<Box<[u8]>>) = texts.into_iter().unzip();
        let literals = Literals::new(&patterns).map_err(|error| error.to_string())?;
        let old = patterns.into_iter().map(|pattern| match pattern.expression {
            Expression::Literal(bytes) => bytes,
            Expression::Regex(_) => Box::default(),
        });
        let replacements: Vec<_> = old.zip(new).map(|(old, new)| Replacement { old, new }).collect();
        let keeps_length = replacements.iter().all(|one| one.old.len() == one.new.len());
        Ok(Some(BodyEdits { literals, replacements, ignores_case, keeps_length }))
    }

    /// Returns the text in the place of one that was found.
    pub fn text(&self, found: &[u8]) -> &[u8] {
        let is_same = |old: &[u8]| match self.ignores_case {
            true => old.eq_ignore_ascii_case(found),
            false => old == found,
        };
        self.replacements.iter().find(|one| is_same(&one.old)).map_or(&[], |one| &one.new)
    }
}

/// The edits of an instance.
#[derive(Debug)]
pub(super) struct Config {
    /// By direction.
    pub headers: [HeaderEdits; 2],
    /// By direction: of paths of requests, and of Location of responses.
    pub rewrites: [Vec<UriRewrite>; 2],
    /// By direction.
    pub bodies: [Option<BodyEdits>; 2],
    /// Patterns of the media types of responses whose bodies are edited.
    pub types: Vec<Box<[u8]>>,
    /// Malformed messages are not read, and pass.
    pub passes_errors: bool,
    /// Requests for a part of a body pass, also if bodies of responses are edited.
    pub passes_ranges: bool,
    /// Bodies of messages with `Cache-Control: no-transform` are edited.
    pub ignores_no_transform: bool,
}

impl Config {
    /// Whether requests get `Accept-Encoding: identity`, so that bodies of responses can be edited.
    pub fn adds_encoding(&self) -> bool {
        self.bodies[1].is_some()
    }

    /// Whether a header of a message of a direction asks for a coding or a part of a body, and is removed.
    pub fn removes_request_header(&self, direction: usize, name: &[u8]) -> bool {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        let is_range = || !self.passes_ranges && (is(b"range") || is(b"if-range"));
        direction == 0 && self.adds_encoding() && (is(b"accept-encoding") || is_range())
    }

    /// Returns how many bytes of a body wait for the end of a text, at most.
    pub fn most_undecided(&self) -> usize {
        self.bodies.iter().flatten().map(|edits| edits.literals.longest()).max().unwrap_or(0)
    }

    /// Whether a header has the address of an end.
    pub fn names_addresses(&self) -> bool {
        let is_address = |(_, value): &(_, Value)| !matches!(value, Value::Text(_));
        self.headers.iter().any(|edits| edits.added.iter().any(is_address))
    }

    /// Whether the bodies of responses with a Content-Type are edited.
    pub fn is_edited_type(&self, content_type: &[u8]) -> bool {
        let media = media_type(content_type);
        self.types.iter().any(|pattern| matches(pattern, media, true))
    }
}

/// The arguments so far.
#[derive(Default)]
struct Parsed {
    headers: [HeaderEdits; 2],
    rewrites: [Vec<UriRewrite>; 2],
    texts: [Vec<(Pattern, Box<[u8]>)>; 2],
    types: Vec<Box<[u8]>>,
    ignores_case: bool,
    passes_errors: bool,
    passes_ranges: bool,
    ignores_no_transform: bool,
}

impl Config {
    /// Parses the arguments.
    ///
    /// # Errors
    /// The argument that is wrong or missing.
    pub fn parse(setup: &Setup<'_>) -> Result<Config, ArgError> {
        let mut parsed = Parsed { ignores_case: setup.args.contains(&"nocase"), ..Parsed::default() };
        let mut words = setup.args;
        while let [word, rest @ ..] = words {
            words = match (*word, rest) {
                ("errors", rest) => ERRORS.read(rest, &mut parsed.passes_errors)?,
                ("ranges", rest) => RANGES.read(rest, &mut parsed.passes_ranges)?,
                ("no-transform", rest) => NO_TRANSFORM.read(rest, &mut parsed.ignores_no_transform)?,
                ("nocase", rest) => rest,
                ("type", [pattern, rest @ ..]) => {
                    parsed.types.push(pattern.as_bytes().into());
                    rest
                }
                ("type", []) => return Err(ArgError::missing("type", "a media type such as `text/html`")),
                ("request", rest) => parsed.edit(Direction::Forward, rest, setup)?,
                ("response", rest) => parsed.edit(Direction::Reverse, rest, setup)?,
                ("body", _) => parsed.edit(Direction::Reverse, words, setup)?,
                _ => return Err(format!("unknown argument `{word}`: `http-edit` takes {USAGE}").into()),
            };
        }
        parsed.finish()
    }
}

impl Parsed {
    fn finish(mut self) -> Result<Config, ArgError> {
        let has_headers = |edits: &HeaderEdits| !edits.removed.is_empty() || !edits.added.is_empty();
        let has_texts = self.texts.iter().any(|texts| !texts.is_empty());
        let has_rewrites = self.rewrites.iter().any(|rewrites| !rewrites.is_empty());
        if !has_texts && !has_rewrites && !self.headers.iter().any(has_headers) {
            return Err(ArgError::missing("http-edit", "an edit: `request header del X-Debug`"));
        }
        if self.types.is_empty() {
            self.types.push(TEXT.into());
        }
        let [requests, responses] = self.texts;
        let bodies = [BodyEdits::new(requests)?, BodyEdits::new(responses)?];
        let Parsed { headers, rewrites, types, passes_errors, passes_ranges, ignores_no_transform, .. } =
            self;
        Ok(Config { headers, rewrites, bodies, types, passes_errors, passes_ranges, ignores_no_transform })
    }

    /// Parses one edit of messages of a direction. Returns the words behind it.
    fn edit<'w, 's>(
        &mut self,
        direction: Direction,
        words: &'w [&'s str],
        setup: &Setup<'_>,
    ) -> Result<&'w [&'s str], ArgError> {
        let is_request = direction == Direction::Forward;
        match words {
            ["header", action @ ("set" | "add"), name, value, rest @ ..] => {
                self.add_header(direction, action, name, value)?;
                Ok(rest)
            }
            ["header", "del", name, rest @ ..] => {
                let name = header_name(name)?;
                if is_request && *name == *b"host" {
                    return Err("a request cannot lose its Host header: `set` replaces it".into());
                }
                self.headers[direction as usize].removed.push(name);
                Ok(rest)
            }
            ["header", ..] => {
                Err(ArgError::missing("header", "`set NAME VALUE`, `add NAME VALUE` or `del NAME`"))
            }
            ["path", "replace", regex, text, rest @ ..] if is_request => {
                self.rewrites[0].push(UriRewrite::of_paths(regex, text)?);
                Ok(rest)
            }
            ["path", ..] if is_request => Err(ArgError::missing("path", "`replace REGEX TEXT`")),
            ["location", "replace", regex, text, rest @ ..] if !is_request => {
                self.rewrites[1].push(UriRewrite::of_locations(regex, text)?);
                Ok(rest)
            }
            ["location", ..] if !is_request => Err(ArgError::missing("location", "`replace REGEX TEXT`")),
            ["body", "replace", old, "file", path, rest @ ..] => {
                let new = read_bytes(path, setup.files, MOST_TEXT)?;
                self.add_text(direction, old, new.into())?;
                Ok(rest)
            }
            ["body", "replace", old, new, rest @ ..] if *new != "file" => {
                self.add_text(direction, old, literal("text", new, false)?.1)?;
                Ok(rest)
            }
            ["body", "remove", old, rest @ ..] => {
                self.add_text(direction, old, Box::default())?;
                Ok(rest)
            }
            ["body", ..] => Err(ArgError::missing(
                "body",
                "`replace TEXT TEXT`, `replace TEXT file FILE` or `remove TEXT`",
            )),
            _ if is_request => Err(ArgError::missing("request", "`header`, `path` or `body`")),
            _ => Err(ArgError::missing("response", "`header`, `location` or `body`")),
        }
    }

    fn add_header(
        &mut self,
        direction: Direction,
        action: &str,
        name: &str,
        value: &str,
    ) -> Result<(), ArgError> {
        let lower = header_name(name)?;
        let edits = &mut self.headers[direction as usize];
        if action == "set" {
            if edits.added.iter().any(|(known, _)| known.eq_ignore_ascii_case(&lower)) {
                return Err(format!("the header `{name}` is added twice").into());
            }
            edits.removed.push(lower);
        } else if *lower == *b"host" {
            return Err("a second Host header would be invalid: `set` replaces it".into());
        }
        let value = match value {
            "client-address" => Value::ClientAddress,
            "server-address" => Value::ServerAddress,
            text => Value::Text(header_value(text)?),
        };
        edits.added.push((name.as_bytes().into(), value));
        let len = |value: &Value| if let Value::Text(text) = value { text.len() } else { 45 };
        let bytes: usize = edits.added.iter().map(|(name, value)| name.len() + len(value) + 4).sum();
        if bytes > MOST_ADDED {
            return Err(format!("the added headers have more than {MOST_ADDED} bytes").into());
        }
        Ok(())
    }

    fn add_text(&mut self, direction: Direction, old: &str, new: Box<[u8]>) -> Result<(), ArgError> {
        let texts = &mut self.texts[direction as usize];
        if texts.len() == MOST_TEXTS {
            return Err(format!("more than {MOST_TEXTS} texts are replaced").into());
        }
        let (pattern, _) = literal("text", old, self.ignores_case)?;
        texts.push((pattern, new));
        Ok(())
    }
}

/// Returns the name of a header in lower case.
pub(crate) fn header_name(name: &str) -> Result<Box<[u8]>, ArgError> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(ArgError::invalid("header", name, "letters, digits and hyphens are accepted"));
    }
    let lower = name.to_ascii_lowercase();
    if FRAMING.contains(&lower.as_str()) {
        return Err(format!(
            "the header `{name}` cannot be edited: it tells where a message or its connection ends"
        )
        .into());
    }
    Ok(lower.into_bytes().into())
}

pub(crate) fn header_value(text: &str) -> Result<Box<[u8]>, ArgError> {
    let is_accepted = |byte: u8| byte == b' ' || byte == b'\t' || byte.is_ascii_graphic() || byte >= 128;
    if !text.bytes().all(is_accepted) || text.trim() != text {
        let expected = "control characters, and blanks around the value, are not accepted";
        return Err(ArgError::invalid("value", text, expected));
    }
    Ok(text.as_bytes().into())
}

/// Parses a text as `match` does. Returns it with its bytes.
fn literal(name: &'static str, text: &str, ignores_case: bool) -> Result<(Pattern, Box<[u8]>), ArgError> {
    let pattern = Pattern::parse(text, ignores_case)
        .map_err(|error| ArgError::invalid(name, text, error.to_string()))?;
    match &pattern.expression {
        Expression::Literal(bytes) => {
            let bytes = bytes.clone();
            Ok((pattern, bytes))
        }
        Expression::Regex(_) => {
            Err(ArgError::invalid(name, text, "must not be a regular expression; `\\/` is a slash"))
        }
    }
}
