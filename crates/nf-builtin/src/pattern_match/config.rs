//! The arguments of `match`, and where its patterns come from.

use std::sync::Arc;

use mmb_nf::{ArgError, FileAccess, Setup};
use mmb_search::{Pattern, PatternSet, SearchError};

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

/// Where patterns come from.
#[derive(Debug)]
pub(super) enum Source {
    Arguments(Vec<Pattern>),
    File { path: String, files: Arc<FileAccess>, ignores_case: bool },
}

impl Source {
    /// Reads and compiles the patterns.
    ///
    /// # Errors
    /// The pattern that is wrong, with its line if it is in a file.
    pub fn compile(&self) -> Result<PatternSet, ArgError> {
        match self {
            Source::Arguments(patterns) => {
                PatternSet::compile(patterns.clone()).map_err(|error| refused(&error).into())
            }
            Source::File { path, files, ignores_case } => {
                let text = read_text(path, files, MOST_BYTES)?;
                let patterns = Pattern::parse_lines(&text, *ignores_case)
                    .map_err(|(line, error)| format!("line {line} of `{path}`: {error}"))?;
                let (lines, patterns): (Vec<usize>, Vec<Pattern>) = patterns.into_iter().unzip();
                PatternSet::compile(patterns).map_err(|error| {
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
    pub log: LogFile,
    /// Most streams of a worker that are searched at the same time.
    pub streams: usize,
}

impl Config {
    pub const USAGE: &'static str = "PATTERN…|file FILE alert|close|reset [nocase] [forward|reverse] [log PATH] \
         [streams N]";

    /// Parses the arguments.
    ///
    /// # Errors
    /// The argument that is wrong or missing.
    pub fn parse(setup: &Setup<'_>) -> Result<Config, ArgError> {
        let needs_action = || ArgError::missing("match", "an action: `alert`, `close` or `reset`");
        let at = setup.args.iter().position(|word| Action::of(word).is_some()).ok_or_else(needs_action)?;
        let (patterns, rest) = setup.args.split_at(at);
        let (action, mut words) = match rest {
            [word, words @ ..] => (Action::of(word).ok_or_else(needs_action)?, words),
            [] => return Err(needs_action()),
        };
        let (mut which, mut log, mut ignores_case) = (DirectionFilter::Both, LogFile::default(), false);
        let mut streams = STREAMS;
        while let [word, rest @ ..] = words {
            words = match (*word, rest) {
                ("nocase", rest) => {
                    ignores_case = true;
                    rest
                }
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
                ("log", []) => return Err(ArgError::missing("log", "a path")),
                ("streams", []) => return Err(ArgError::missing("streams", "a number")),
                _ => {
                    let one = DirectionFilter::of(word);
                    which = one.ok_or_else(|| format!("unknown word `{word}`: {}", Self::USAGE))?;
                    rest
                }
            };
        }
        let source = match patterns {
            ["file", path] => {
                Source::File { path: (*path).to_owned(), files: setup.files.clone(), ignores_case }
            }
            ["file", ..] => return Err(ArgError::missing("file", "one path, and an action behind it")),
            [] => return Err(ArgError::missing("match", "a pattern, or `file` and a path")),
            words => {
                let parse = |word: &&str| {
                    let parsed = Pattern::parse(word, ignores_case);
                    parsed.map_err(|error| ArgError::invalid("pattern", word, error.to_string()))
                };
                Source::Arguments(words.iter().map(parse).collect::<Result<_, _>>()?)
            }
        };
        Ok(Config { source, action, which, log, streams })
    }
}
