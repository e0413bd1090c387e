//! What a rule's matches ask of the window.

use crate::masked::Masked;

/// A compiled match: the window must satisfy all of `must` and none of the exclusions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    must: Masked,
    not: Vec<Exclusion>,
}

/// What the window must not satisfy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exclusion {
    /// What is excluded …
    pub what: Masked,
    /// … except where this holds too: `! ip-proto != udp` excludes IPv4 packets unless they are UDP.
    pub unless: Option<Masked>,
}

impl Pattern {
    /// IP packets that satisfy `must` and none of the exclusions; None: `must` is about other packets.
    pub fn new(must: &Masked, not: impl IntoIterator<Item = Exclusion>) -> Option<Pattern> {
        let must = must.and(&Masked::IP)?;
        // What contradicts `must` excludes nothing that is left.
        let not = not.into_iter().filter(|not| must.and(&not.what).is_some()).collect();
        Some(Pattern { must, not })
    }

    /// What must hold.
    pub fn must(&self) -> &Masked {
        &self.must
    }

    /// What must not.
    pub fn not(&self) -> &[Exclusion] {
        &self.not
    }
}
