//! The function type `flow`: a flow manager within a chain. [`crate::Runner`] does its work.

use crate::{ArgError, Context, Function, Packet, Properties, Setup, Verdict};

/// An instance of type `flow`.
pub(crate) struct Flow {
    /// Most sessions of a worker. None: as many as the flow manager has.
    pub sessions: Option<u32>,
}

impl Function for Flow {
    const TYPE: &'static str = "flow";
    const USAGE: &'static str = "[SESSIONS]";
    const HELP: &'static str = "looks packets up by their current headers, in a session table of its own, for the functions \
         behind it";

    type Pad = ();
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let sessions = match setup.args {
            [] => None,
            [number] => match number.parse() {
                Ok(sessions @ 1..=mmb_flow::MAX_CAPACITY) => Some(sessions),
                _ => {
                    let expected = format!("1 to {} sessions for each worker", mmb_flow::MAX_CAPACITY);
                    return Err(ArgError::invalid("capacity", number, expected));
                }
            },
            [_, extra, ..] => return Err(ArgError::unknown::<Self>(extra)),
        };
        Ok(Flow { sessions })
    }

    fn properties(&self) -> Properties {
        Properties { takes_large_frames: true, ..Properties::default() }
    }

    fn packet(&self, _: &mut Packet<'_>, (): &mut (), _: &mut Context<'_, ()>) -> Verdict {
        Verdict::Pass
    }
}
