//! Compiled sets of patterns.

use std::sync::Arc;

use crate::automaton::{Automata, AutomatonScanner, STATE_BYTES};
use crate::hyperscan::{Database, HyperscanScanner, Library};
use crate::{Expression, Pattern, Scan, SearchError};

/// Most bytes of the state of a stream.
const MOST_STATE_BYTES: usize = 64 << 10;
/// Most bytes of the states of a scanner's streams.
const MOST_SCANNER_BYTES: usize = 64 << 20;

/// What searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The library `libhs`: literals and regular expressions.
    Hyperscan,
    /// Automata of this program: literals.
    AhoCorasick,
}

impl Backend {
    /// Returns the best backend of this machine.
    pub fn best() -> Backend {
        Library::get().map_or(Backend::AhoCorasick, |_| Backend::Hyperscan)
    }

    /// Returns the name, with the version of the library.
    pub fn name(self) -> String {
        match (self, Library::get()) {
            (Backend::Hyperscan, Ok(library)) => format!("hyperscan {}", library.version()),
            (Backend::Hyperscan, Err(_)) => "hyperscan".to_owned(),
            (Backend::AhoCorasick, _) => "aho-corasick".to_owned(),
        }
    }
}

/// A compiled set of patterns. Threads share it.
#[derive(Debug)]
pub struct PatternSet {
    patterns: Vec<Pattern>,
    engine: Engine,
}

#[derive(Debug)]
enum Engine {
    Hyperscan(Arc<Database>),
    AhoCorasick(Arc<Automata>),
}

impl PatternSet {
    /// Compiles patterns with the best backend. May take seconds.
    ///
    /// # Errors
    /// See [`SearchError`].
    pub fn compile(patterns: Vec<Pattern>) -> Result<PatternSet, SearchError> {
        Self::compile_with(Backend::best(), patterns)
    }

    /// Compiles patterns with a backend.
    ///
    /// # Errors
    /// See [`SearchError`].
    pub fn compile_with(backend: Backend, patterns: Vec<Pattern>) -> Result<PatternSet, SearchError> {
        Pattern::check_number(&patterns)?;
        let engine = match backend {
            Backend::Hyperscan => {
                let library = Library::get().map_err(|reason| SearchError::NoHyperscan { reason })?;
                let database = Database::compile(library, &patterns)?;
                let bytes = database.stream_bytes();
                if bytes > MOST_STATE_BYTES {
                    return Err(SearchError::StateTooLarge { bytes, most: MOST_STATE_BYTES });
                }
                Engine::Hyperscan(Arc::new(database))
            }
            Backend::AhoCorasick => {
                let is_regex = |pattern: &Pattern| matches!(pattern.expression, Expression::Regex(_));
                if let Some(index) = patterns.iter().position(is_regex) {
                    let text = patterns[index].text.to_string();
                    let reason = match Library::get() {
                        Err(reason) => reason,
                        Ok(_) => "another backend was chosen".to_owned(),
                    };
                    return Err(SearchError::NeedsHyperscan { index, text, reason });
                }
                Engine::AhoCorasick(Arc::new(Automata::new(&patterns)?))
            }
        };
        Ok(PatternSet { patterns, engine })
    }

    /// Returns the patterns. [`crate::Match::pattern`] is a position among them.
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// Returns the backend.
    pub fn backend(&self) -> Backend {
        match self.engine {
            Engine::Hyperscan(_) => Backend::Hyperscan,
            Engine::AhoCorasick(_) => Backend::AhoCorasick,
        }
    }

    /// Returns the bytes that are kept of a stream between two chunks.
    pub fn stream_bytes(&self) -> usize {
        match &self.engine {
            Engine::Hyperscan(database) => database.stream_bytes(),
            Engine::AhoCorasick(_) => STATE_BYTES,
        }
    }

    /// Makes a scanner with room for a number of streams, or for 64 MiB of state if that is less. Its memory
    /// is reserved now; what is not used stays with the kernel.
    ///
    /// # Errors
    /// The backend has no memory.
    pub fn scanner(&self, most_streams: usize) -> Result<Box<dyn Scan>, SearchError> {
        let most = most_streams.min(MOST_SCANNER_BYTES / self.stream_bytes().max(1)).max(1);
        Ok(match &self.engine {
            Engine::Hyperscan(database) => Box::new(HyperscanScanner::new(database, most)?),
            Engine::AhoCorasick(automata) => Box::new(AutomatonScanner::new(automata.clone(), most)),
        })
    }
}
