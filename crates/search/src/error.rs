//! Why patterns are not accepted.

/// Why a pattern is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// There is nothing to search for.
    #[error("a pattern has no bytes")]
    Empty,
    /// The pattern is too long.
    #[error("a pattern of {len} bytes is too long: at most {most}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// The greatest length.
        most: usize,
    },
    /// A backslash with something else behind it.
    #[error(
        "`\\` is followed by one of `\\ | / #`, by `n`, `r`, `t`, `0`, or by `x` and two hexadecimal digits"
    )]
    Escape,
    /// Bytes in hexadecimal are wrong.
    #[error("`|` begins bytes in hexadecimal, such as `|0d 0a|`; write `\\|` for the character")]
    Hexadecimal,
    /// A regular expression does not end.
    #[error(
        "`/` begins a regular expression, which ends with `/`, `/i`, `/s` or `/m`; write `\\/` for the character"
    )]
    RegexEnd,
}

/// Why a set of patterns is not compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SearchError {
    /// There are none.
    #[error("there are no patterns")]
    NoPatterns,
    /// There are too many.
    #[error("{count} patterns are too many: at most {most}")]
    TooManyPatterns {
        /// Number of patterns.
        count: usize,
        /// Greatest number of patterns.
        most: usize,
    },
    /// A pattern of the set is not accepted.
    #[error("{message}")]
    Pattern {
        /// Position of the pattern in the set.
        index: usize,
        /// Its text.
        text: String,
        /// The reason.
        message: String,
    },
    /// A regular expression without Hyperscan.
    #[error("the regular expression `{text}` needs the library Hyperscan: {reason}")]
    NeedsHyperscan {
        /// Position of the pattern in the set.
        index: usize,
        /// Its text.
        text: String,
        /// Why Hyperscan cannot be used.
        reason: String,
    },
    /// Hyperscan is not available.
    #[error("the library Hyperscan cannot be used: {reason}")]
    NoHyperscan {
        /// The reason.
        reason: String,
    },
    /// The state of a stream would be too large.
    #[error(
        "a stream would need {bytes} bytes of state: at most {most}; use fewer or simpler regular expressions"
    )]
    StateTooLarge {
        /// Bytes of a stream.
        bytes: usize,
        /// Greatest number.
        most: usize,
    },
    /// The compiler of a backend does not accept the set.
    #[error("the patterns cannot be compiled: {0}")]
    Compile(String),
}

impl SearchError {
    /// Returns the position of the pattern that is not accepted.
    pub fn index(&self) -> Option<usize> {
        match self {
            SearchError::Pattern { index, .. } | SearchError::NeedsHyperscan { index, .. } => Some(*index),
            _ => None,
        }
    }
}
