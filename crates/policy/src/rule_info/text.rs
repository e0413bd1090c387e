//! The text of a rule.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The text of a rule, and which part of it is the body: the text without name and comment.
#[derive(Clone, Debug)]
pub(crate) struct RuleText {
    text: Arc<str>,
    body: u32,
    /// Part of a hash of the body, so that few bodies have to be compared.
    pub hash: u32,
}

impl RuleText {
    /// A text whose first `body` bytes, at most 1 MiB, are the body.
    pub fn new(text: Arc<str>, body: usize) -> RuleText {
        let mut hasher = DefaultHasher::new();
        text[..body].hash(&mut hasher);
        RuleText { text, body: body as u32, hash: hasher.finish() as u32 }
    }

    pub fn whole(&self) -> &str {
        &self.text
    }

    pub fn body(&self) -> &str {
        &self.text[..self.body as usize]
    }
}
