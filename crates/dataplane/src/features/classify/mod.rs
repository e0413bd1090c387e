//! Rules: finding those that match, and applying their edits.

pub(crate) mod edit;
pub(crate) mod ingress;
pub(crate) mod matching;
pub(crate) mod node;
pub(crate) mod rewrite;
pub(crate) mod state;
