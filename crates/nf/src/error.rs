//! Errors of functions: why arguments or settings are not accepted.

use crate::Function;

/// Why a function does not accept its arguments.
///
/// The text of an error is one sentence without a full stop. The user who typed the line reads it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgError {
    /// An argument that the function does not know.
    #[error("unknown argument `{argument}`: `{function}` takes {usage}")]
    Unknown {
        /// The argument.
        argument: String,
        /// [`Function::TYPE`].
        function: &'static str,
        /// [`Function::USAGE`].
        usage: &'static str,
    },
    /// An option without its value.
    #[error("`{option}` needs {value}")]
    Missing {
        /// The option.
        option: String,
        /// The missing thing, with an article: `a path`.
        value: &'static str,
    },
    /// A value that is malformed or out of range.
    #[error("invalid {name} `{value}`: {expected}")]
    Invalid {
        /// What the value is for: `rate`.
        name: &'static str,
        /// The value.
        value: String,
        /// The accepted values.
        expected: String,
    },
    /// Any other error, as a sentence.
    #[error("{0}")]
    Other(String),
}

impl ArgError {
    /// An argument that function `F` does not know.
    pub fn unknown<F: Function>(argument: &str) -> ArgError {
        ArgError::Unknown { argument: argument.to_owned(), function: F::TYPE, usage: F::USAGE }
    }

    /// An option that lacks its value.
    pub fn missing(option: &str, value: &'static str) -> ArgError {
        ArgError::Missing { option: option.to_owned(), value }
    }

    /// A value that is malformed or out of range.
    pub fn invalid(name: &'static str, value: &str, expected: impl Into<String>) -> ArgError {
        ArgError::Invalid { name, value: value.to_owned(), expected: expected.into() }
    }
}

impl From<mmb_system::FileError> for ArgError {
    fn from(error: mmb_system::FileError) -> ArgError {
        ArgError::Other(error.to_string())
    }
}

impl From<String> for ArgError {
    fn from(sentence: String) -> ArgError {
        ArgError::Other(sentence)
    }
}

impl From<&str> for ArgError {
    fn from(sentence: &str) -> ArgError {
        ArgError::Other(sentence.to_owned())
    }
}
