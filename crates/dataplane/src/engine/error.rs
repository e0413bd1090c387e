//! Errors of the engine.

/// Why the engine did not start; displays as one sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct EngineError(pub(crate) String);
