//! The functions of a chain that translate.

use super::lifecycle::taken_arms;
use crate::Program;
use crate::program::ir::{ArmTarget, BodyId, Node};

/// Returns the instances that translate, on the branches that a session has taken, or on all.
pub(super) fn translators(program: &Program, body: BodyId, branches: Option<u32>) -> Vec<u64> {
    let mut uids = Vec::new();
    collect(program, body, branches, &mut uids);
    uids
}

fn collect(program: &Program, body: BodyId, branches: Option<u32>, uids: &mut Vec<u64>) {
    let Some(body) = program.body(body) else { return };
    for node in &body.forward {
        let targets: Vec<ArmTarget> = match node {
            Node::Function(function) => {
                let instance = program.instances.get(usize::from(function.instance));
                let instance = instance.filter(|instance| instance.properties().translates.any());
                uids.extend(instance.map(|instance| instance.uid));
                continue;
            }
            Node::Outputs { branch, diverges, arms, .. } => match branches {
                Some(word) => {
                    taken_arms(branch.get(word), *diverges, arms.len()).map(|arm| arms[arm]).collect()
                }
                None => arms.to_vec(),
            },
            Node::Choice { branch, arms, .. } => match branches {
                Some(word) => taken_arms(branch.get(word), false, arms.len()).map(|arm| arms[arm]).collect(),
                None => arms.to_vec(),
            },
            Node::Dispatch { branch, arms, .. } => {
                let is_taken = |arm: usize| branches.is_none_or(|word| branch.get(word) as usize == arm + 1);
                arms.iter().enumerate().filter(|(arm, _)| is_taken(*arm)).map(|(_, arm)| arm.target).collect()
            }
            Node::Translate | Node::StreamExit(_) | Node::Flow { .. } => continue,
        };
        for target in targets {
            if let ArmTarget::Body(body) = target {
                collect(program, body, branches, uids);
            }
        }
    }
}
