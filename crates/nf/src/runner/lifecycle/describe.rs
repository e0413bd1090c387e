//! What the functions of a session say about it.

use mmb_flow::{Direction, SessionId};

use crate::held::{HeldPlace, OUTER_SPACE};
use crate::program::ir::{ArmTarget, BodyId, FunctionNode};
use crate::runner::state::{ActiveProgram, RunnerState};

/// A session: its number, its branches, its scratchpad.
type Described<'a> = (SessionId, u32, &'a [u8]);

impl RunnerState {
    /// Appends names and descriptions of the functions of a body, and of all arms that the session has taken.
    pub fn describe(
        &self,
        active: &ActiveProgram,
        body: BodyId,
        session: Described<'_>,
        all: &mut Vec<(String, String)>,
    ) {
        let Some(body) = active.program.body(body) else { return };
        for node in &body.forward {
            if let Some(function) = node.function() {
                all.extend(self.describe_one(active, function, session));
            }
            for arm in node.taken_arms(session.1) {
                if let ArmTarget::Body(body) = arm {
                    self.describe(active, body, session, all);
                }
            }
        }
    }

    fn describe_one(
        &self,
        active: &ActiveProgram,
        node: &FunctionNode,
        (id, _, pad): Described<'_>,
    ) -> Option<(String, String)> {
        let instance = active.program.instances.get(usize::from(node.instance))?;
        let state = *active.states.get(usize::from(node.instance))?;
        let pad = pad.get(node.offset as usize..)?.get(..node.bytes as usize).filter(|_| !node.is_keyed)?;
        let place = HeldPlace { space: OUTER_SPACE, session: id.0, state: state as u32 };
        let held =
            [Direction::Forward, Direction::Reverse].map(|direction| self.held.held_of(place, direction));
        let text = instance.function.describe(pad, held)?;
        Some((instance.name().to_owned(), text))
    }
}
