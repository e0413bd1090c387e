//! The type `flow`: the second flow manager, as far as it is a function. What it does is the runner's work.

use crate::{Context, Function, Packet, Properties, Setup, Verdict};

/// An instance of it.
pub(crate) struct Flow {
    /// Most sessions of a worker; none: as many as the flow manager's.
    pub sessions: Option<u32>,
}

impl Function for Flow {
    const TYPE: &'static str = "flow";
    const USAGE: &'static str = "[SESSIONS]";
    const HELP: &'static str = "looks packets up anew by their headers as they are there, in a table of its own, for the functions behind it";

    type Pad = ();
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, String> {
        let sessions = match setup.args {
            [] => None,
            [word] => match word.parse() {
                Ok(sessions @ 1..=mmb_flow::MAX_CAPACITY) => Some(sessions),
                _ => {
                    return Err(format!(
                        "`{word}` is no number of sessions for each worker: 1 to {}",
                        mmb_flow::MAX_CAPACITY
                    ));
                }
            },
            [_, more, ..] => {
                return Err(format!(
                    "`{more}` is too much: a function `flow` is told at most how many sessions each worker has room for"
                ));
            }
        };
        Ok(Flow { sessions })
    }

    fn properties(&self) -> Properties {
        Properties::default()
    }

    fn packet(&self, _: &mut Packet<'_>, (): &mut (), _: &mut Context<'_, ()>) -> Verdict {
        Verdict::Pass
    }
}
