//! `split`: sends sessions to different outputs.
//!
//! Theory of operation. The clauses are evaluated once for each session, as those of `acl`. The label of the
//! first clause that matches is the output for all packets of the session, in both directions. Sessions that
//! no clause matches leave by the output `rest`. The decision depends on the session's key alone, so it is
//! known before the session is opened, and functions that translate can follow any output.

use mmb_policy::Batch;

use crate::shared::clauses::{self, Clauses};
use crate::shared::label::{REST, label};
use mmb_nf::{
    ArgError, ConstantRewrite, Context, Function, OpeningPacket, Packet, Properties, SessionInfo, Setup,
    Verdict,
};

/// Most outputs: their numbers are bytes.
const MOST: usize = 255;

/// Sends each session to one of several outputs.
pub(crate) struct Split {
    clauses: Clauses,
    /// The output of each clause.
    outputs: Vec<u8>,
    /// The outputs' names; the last is [`REST`].
    labels: Vec<String>,
}

impl Split {
    fn output(&self, clause: Option<usize>) -> u8 {
        let rest = self.labels.len().saturating_sub(1) as u8;
        clause.and_then(|clause| self.outputs.get(clause)).copied().unwrap_or(rest)
    }
}

impl Function for Split {
    const TYPE: &'static str = "split";
    const USAGE: &'static str = "LABEL: MATCH… [LABEL: MATCH…]…";
    const HELP: &'static str =
        "sends sessions on by an output of their own, `rest` if no clause matches them";

    /// The output's number.
    type Pad = u8;
    type Local = Batch;

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let (mut texts, mut outputs, mut labels) = (Vec::<String>::new(), Vec::new(), Vec::<String>::new());
        for &word in setup.args {
            match (label(word), texts.last_mut()) {
                (Some(REST | "else"), _) => {
                    return Err(format!(
                        "`{word}` needs no clause: what no other matches leaves by `{REST}`"
                    )
                    .into());
                }
                (Some(name), _) => {
                    let known = labels.iter().position(|label| label == name);
                    outputs.push(known.unwrap_or(labels.len()) as u8);
                    if known.is_none() {
                        labels.push(name.to_owned());
                    }
                    texts.push(String::new());
                }
                (None, Some(text)) => clauses::add_word(text, word),
                (None, None) => {
                    return Err(
                        format!("`split` begins with a label such as `web:`, not with `{word}`").into()
                    );
                }
            }
        }
        if labels.is_empty() || labels.len() >= MOST {
            return Err(
                format!("`split` takes 1 to {} labels with matches: `web: tcp-dport 80`", MOST - 1).into()
            );
        }
        if let Some(at) = texts.iter().position(String::is_empty) {
            let name = outputs.get(at).and_then(|&output| labels.get(usize::from(output)));
            let name = name.map_or("", String::as_str);
            return Err(format!("`{name}:` has no match; `{name}: all` would match everything").into());
        }
        labels.push(REST.to_owned());
        Ok(Split { clauses: Clauses::new(&texts, setup.resolve_port)?, outputs, labels })
    }

    fn properties(&self) -> Properties {
        let outputs = self.labels.clone();
        Properties { outputs, routes: true, takes_large_frames: true, ..Properties::default() }
    }

    fn route(&self, first: &OpeningPacket<'_>, batch: &mut Batch) -> Option<u8> {
        Some(self.output(self.clauses.first(first.key, first.in_port, batch)))
    }

    fn open(&self, output: &mut u8, session: &SessionInfo, cx: &mut Context<'_, Batch>) {
        *output = self.output(self.clauses.first(&session.key, session.in_port, cx.local));
    }

    fn packet(&self, _: &mut Packet<'_>, output: &mut u8, _: &mut Context<'_, Batch>) -> Verdict {
        Verdict::Branch(*output)
    }

    /// All packets of a session leave by the same output.
    fn constant_rewrite(&self, _: &u8) -> Option<ConstantRewrite> {
        Some(ConstantRewrite::default())
    }
}

#[cfg(test)]
mod tests;
