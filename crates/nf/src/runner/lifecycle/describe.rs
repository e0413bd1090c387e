//! What the functions of a session say about it.

use mmb_flow::{Direction, SessionId};

use super::taken_arms;
use crate::held::{HeldPlace, OUTER_SPACE};
use crate::program::ir::{ArmTarget, BodyId, FunctionNode, Node};
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
            let arms: Vec<ArmTarget> = match node {
                Node::Function(function) => {
                    all.extend(self.describe_one(active, function, session));
                    Vec::new()
                }
                Node::Outputs { function, branch, diverges, arms, .. } => {
                    all.extend(self.describe_one(active, function, session));
                    taken_arms(branch.get(session.1), *diverges, arms.len()).map(|arm| arms[arm]).collect()
                }
                Node::Choice { branch, arms, .. } => {
                    taken_arms(branch.get(session.1), false, arms.len()).map(|arm| arms[arm]).collect()
                }
                Node::Dispatch { branch, arms, .. } => {
                    let taken = (branch.get(session.1) as usize).wrapping_sub(1);
                    arms.get(taken).map(|arm| arm.target).into_iter().collect()
                }
                Node::Translate | Node::StreamExit(_) | Node::Flow { .. } => Vec::new(),
            };
            for arm in arms {
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
