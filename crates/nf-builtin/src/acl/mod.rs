//! `acl`: an access list for sessions.
//!
//! Theory of operation. The clauses are evaluated once for each session, when it opens. The first clause that
//! matches decides. A session that no clause matches is denied. A denied session is refused: the flow manager
//! drops its further packets without calling the function. Replies belong to an allowed session and need no
//! clause.

use mmb_policy::Batch;

use crate::shared::clauses::{self, Clauses};
use mmb_nf::{
    ArgError, ConstantRewrite, Context, DropReason, Function, Packet, Properties, SessionInfo, Setup, Verdict,
};

/// Allows sessions, or denies them.
pub(crate) struct Acl {
    clauses: Clauses,
    /// Whether each clause allows.
    allows: Vec<bool>,
}

/// A session's scratchpad: a byte that is 1 if it is denied.
type Denied = u8;

impl Function for Acl {
    const TYPE: &'static str = "acl";
    const USAGE: &'static str = "allow|deny MATCH… [allow|deny MATCH…]…";
    const HELP: &'static str =
        "allows or denies sessions, by the first clause that matches; denies what none matches";

    type Pad = Denied;
    type Local = Batch;

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let (mut texts, mut allows) = (Vec::<String>::new(), Vec::new());
        for &word in setup.args {
            match (word, texts.last_mut()) {
                ("allow" | "deny", _) => {
                    texts.push(String::new());
                    allows.push(word == "allow");
                }
                (_, Some(text)) => clauses::add_word(text, word),
                (_, None) => {
                    return Err(format!("`acl` begins with `allow` or `deny`, not with `{word}`").into());
                }
            }
        }
        if !allows.contains(&true) {
            let all = "an `acl` that allows nothing denies all sessions: write what it allows, or `allow` at its end";
            return Err(all.into());
        }
        Ok(Acl { clauses: Clauses::new(&texts, setup.resolve_port)?, allows })
    }

    fn properties(&self) -> Properties {
        Properties { is_read_only: true, takes_large_frames: true, ..Properties::default() }
    }

    fn open(&self, denied: &mut Denied, session: &SessionInfo, cx: &mut Context<'_, Batch>) {
        let clause = self.clauses.first(&session.key, session.in_port, cx.local);
        let allowed = clause.and_then(|clause| self.allows.get(clause)).copied().unwrap_or(false);
        *denied = u8::from(!allowed);
    }

    fn packet(&self, _: &mut Packet<'_>, denied: &mut Denied, _: &mut Context<'_, Batch>) -> Verdict {
        match *denied {
            0 => Verdict::Pass,
            _ => Verdict::Refuse(DropReason::Acl),
        }
    }

    fn constant_rewrite(&self, denied: &Denied) -> Option<ConstantRewrite> {
        (*denied == 0).then(ConstantRewrite::default)
    }
}

#[cfg(test)]
mod tests;
