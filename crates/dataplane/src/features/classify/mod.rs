//! Stateless rules: the node that finds matching rules, and the node that applies their edits.

pub(crate) mod node;
pub(crate) mod rewrite;
