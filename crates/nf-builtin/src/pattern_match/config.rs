//! The arguments of `match`, and where its patterns come from.

use std::sync::Arc;

use mmb_nf::{ArgError, FileAccess, Setup};
use mmb_search::{Expression, Pattern, PatternSet, SearchError};

use super::depth::Depth;
use crate::shared::direction::DirectionFilter;
use crate::shared::input_file::read_text;
use crate::shared::log_file::LogFile;

/// Most streams of a worker, if nothing else is said: both directions of 65,536 sessions.
const STREAMS: usize = 131_072;
/// Most streams of a worker.
const MOST_STREAMS: usize = 1 << 24;
/// Most bytes of a file.
const MOST_BYTES: u64 = 16 << 20;

/// The treatment of a session in which a pattern is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A line in the log.
    Alert,
    /// Both ends get a FIN, and all further packets are dropped.
    Close,
    /// Both ends get a reset, and all further packets are dropped.
    Reset,
}

impl Action {
    fn of(word: &str) -> Option<Action> {
        match word {
            "alert" => Some(Action::Alert),
            "close" => Some(Action::Close),
            "reset" => Some(Action::Reset),
            _ => None,
        }
    }

    /// Returns the word behind a line of the log.
    pub fn done(self) -> &'static str {
        match self {
            Action::Alert => "",
            Action::Close => " closed",
            Action::Reset => " reset",
        }
    }
}

/// What stands in the place of a literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    /// As many asterisks.
    Mask,
    /// Nothing.
    Remove,
    /// Other bytes.
    Replace(Box<[u8]>),
}

/// Where patterns come from.
#[derive(Debug)]
pub(super) enum Source {
    Arguments(Vec<Pattern>),
    File { path: String, files: Arc<FileAccess>, ignores_case: bool },
}

impl Source {
    /// Makes a source of the words in front of the action.
    fn new(words: &[&str], ignores_case: bool, setup: &Setup<'_>) -> Result<Source, ArgError> {
        match words {
            ["file", path] => {
                Ok(Source::File { path: (*path).to_owned(), files: setup.files.clone(), ignores_case })
            }
            ["file", ..] => Err(ArgError::missing("file", "one path, and an action behind it")),
            [] => Err(ArgError::missing("match", "a pattern, or `file` and a path")),
            words => {
                let parse = |word: &&str| {
                    let parsed = Pattern::parse(word, ignores_case);
                    parsed.map_err(|error| ArgError::invalid("pattern", word, error.to_string()))
                };
                Ok(Source::Arguments(words.iter().map(parse).collect::<Result<_, _>>()?))
            }
        }
    }

    /// Checks the words of `nf set`, of which there is one.
    ///
    /// # Errors
    /// It is another one, or there is no file to read again.
    pub fn check_reload(&self, args: &[&str]) -> Result<(), ArgError> {
        match (args, self) {
            (["reload"], Source::File { .. }) => Ok(()),
            (["reload"], Source::Arguments(_)) => Err("the patterns are not from a file".into()),
            _ => Err("`match` has one setting: `reload` reads its file again".into()),
        }
    }

    /// Reads the patterns, and compiles them for a search.
    ///
    /// # Errors
    /// The pattern that is wrong, with its line if it is in a file.
    pub fn compile(&self) -> Result<PatternSet, ArgError> {
        self.compile_with(PatternSet::compile)
    }

    /// Reads the patterns, and compiles them.
    ///
    /// # Errors
    /// The pattern that is wrong, with its line if it is in a file.
    pub fn compile_with<T>(
        &self,
        compile: impl FnOnce(Vec<Pattern>) -> Result<T, SearchError>,
    ) -> Result<T, ArgError> {
        match self {
            Source::Arguments(patterns) => compile(patterns.clone()).map_err(|error| refused(&error).into()),
            Source::File { path, files, ignores_case } => {
                let text = read_text(path, files, MOST_BYTES)?;
                let patterns = Pattern::parse_lines(&text, *ignores_case)
                    .map_err(|(line, error)| format!("line {line} of `{path}`: {error}"))?;
                let (lines, patterns): (Vec<usize>, Vec<Pattern>) = patterns.into_iter().unzip();
                compile(patterns).map_err(|error| {
                    let sentence = refused(&error);
                    match error.index().and_then(|index| lines.get(index)) {
                        Some(line) => format!("line {line} of `{path}`: {sentence}").into(),
                        None => format!("`{path}`: {sentence}").into(),
                    }
                })
            }
        }
    }
}

fn refused(error: &SearchError) -> String {
    match error {
        SearchError::Pattern { text, message, .. } => format!("invalid pattern `{text}`: {message}"),
        _ => error.to_string(),
    }
}

/// The arguments.
pub(super) struct Config {
    pub source: Source,
    pub action: Action,
    pub which: DirectionFilter,
    pub depth: Depth,
    pub log: LogFile,
    /// Most streams of a worker that are searched at the same time.
    pub streams: usize,
}

impl Config {
    pub const HELP: &'static str =
        "searches streams for patterns, and logs or edits them, or closes or resets those that have one";
    pub const USAGE: &'static str = "PATTERN…|file FILE alert|close|reset|mask|remove|replace TEXT [nocase] \
         [forward|reverse] [first BYTES] [log PATH] [streams N] [http-body]";

    /// Parses the arguments.
    ///
    /// # Errors
    /// The argument that is wrong or missing.
    pub fn parse(setup: &Setup<'_>) -> Result<Config, ArgError> {
        let needs_action = || {
            ArgError::missing("match", "an action: `alert`, `close`, `reset`, `mask`, `remove` or `replace`")
        };
        let at = setup.args.iter().position(|word| Action::of(word).is_some()).ok_or_else(needs_action)?;
        let (patterns, rest) = setup.args.split_at(at);
        let (action, mut words) = match rest {
            [word, words @ ..] => (Action::of(word).ok_or_else(needs_action)?, words),
            [] => return Err(needs_action()),
        };
        let (mut which, mut log, mut ignores_case) = (DirectionFilter::Both, LogFile::default(), false);
        let (mut streams, mut depth) = (STREAMS, Depth::default());
        while let [word, rest @ ..] = words {
            words = match (*word, rest) {
                ("nocase", rest) => {
                    ignores_case = true;
                    rest
                }
                // Another function than that for streams reads the arguments.
                ("http-body", rest) => rest,
                ("log", [path, rest @ ..]) => {
                    log = LogFile::at(path, setup.files)?;
                    rest
                }
                ("streams", [number, rest @ ..]) => {
                    let parsed = number.parse().ok().filter(|streams| (1..=MOST_STREAMS).contains(streams));
                    let expected = || format!("must be a number from 1 to {MOST_STREAMS}");
                    streams = parsed.ok_or_else(|| ArgError::invalid("streams", number, expected()))?;
                    rest
                }
                ("first", [bytes, rest @ ..]) => {
                    depth = Depth::parse(bytes)?;
                    rest
                }
                ("first", []) => return Err(ArgError::missing("first", "a number of bytes")),
                ("log", []) => return Err(ArgError::missing("log", "a path")),
                ("streams", []) => return Err(ArgError::missing("streams", "a number")),
                _ => {
                    let one = DirectionFilter::of(word);
                    which = one.ok_or_else(|| format!("unknown word `{word}`: {}", Self::USAGE))?;
                    rest
                }
            };
        }
        let source = Source::new(patterns, ignores_case, setup)?;
        Ok(Config { source, action, which, depth, log, streams })
    }

    /// Whether arguments ask for the bodies of HTTP messages.
    pub fn reads_bodies(args: &[&str]) -> bool {
        let Some(at) = args.iter().position(|word| Action::of(word).is_some()) else { return false };
        let mut words = args.get(at + 1..).unwrap_or(&[]);
        while let [word, rest @ ..] = words {
            words = match *word {
                "http-body" => return true,
                "log" | "streams" | "first" => rest.get(1..).unwrap_or(&[]),
                _ => rest,
            };
        }
        false
    }
}

/// The arguments with an action that edits.
pub(super) struct EditConfig {
    pub source: Source,
    pub edit: Edit,
    pub which: DirectionFilter,
    pub depth: Depth,
}

impl EditConfig {
    /// Whether the action of arguments edits.
    pub fn applies(args: &[&str]) -> bool {
        let is_edit = |word: &&&str| matches!(**word, "mask" | "remove" | "replace");
        let mut actions = args.iter().filter(|word| Action::of(word).is_some() || is_edit(word));
        actions.next().is_some_and(|word| is_edit(&word))
    }

    /// Parses the arguments.
    ///
    /// # Errors
    /// The argument that is wrong or missing.
    pub fn parse(setup: &Setup<'_>) -> Result<EditConfig, ArgError> {
        let is_edit = |word: &&str| EditConfig::applies(&[word]);
        let at = setup.args.iter().position(is_edit).unwrap_or(setup.args.len());
        let (patterns, rest) = setup.args.split_at(at);
        let (edit, words) = match rest {
            ["mask", words @ ..] => (Edit::Mask, words),
            ["remove", words @ ..] => (Edit::Remove, words),
            ["replace", text, words @ ..] => {
                let text = Pattern::parse(text, false).map(|pattern| pattern.expression);
                match text {
                    Ok(Expression::Literal(bytes)) => (Edit::Replace(bytes), words),
                    _ => {
                        return Err(ArgError::invalid(
                            "replace",
                            rest[1],
                            "must be a text, not a regular expression",
                        ));
                    }
                }
            }
            _ => return Err(ArgError::missing("replace", "a text")),
        };
        let (mut which, mut depth, mut ignores_case) = (DirectionFilter::Both, Depth::default(), false);
        let mut words = words;
        while let [word, rest @ ..] = words {
            words = match (*word, rest) {
                ("nocase", rest) => {
                    ignores_case = true;
                    rest
                }
                ("http-body", _) => {
                    return Err("an edit has no `http-body`: `http-edit` edits the bodies of messages".into());
                }
                ("first", [bytes, rest @ ..]) => {
                    depth = Depth::parse(bytes)?;
                    rest
                }
                ("first", []) => return Err(ArgError::missing("first", "a number of bytes")),
                _ => {
                    let known = "an edit has `nocase`, `forward`, `reverse` and `first BYTES`";
                    let one = DirectionFilter::of(word);
                    which = one.ok_or_else(|| format!("unknown word `{word}`: {known}"))?;
                    rest
                }
            };
        }
        Ok(EditConfig { source: Source::new(patterns, ignores_case, setup)?, edit, which, depth })
    }
}
