//! The functions of a chain that translate.

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
        if let Node::Function(function) = node {
            let instance = program.instances.get(usize::from(function.instance));
            let instance = instance.filter(|instance| instance.properties().translates.any());
            uids.extend(instance.map(|instance| instance.uid));
        }
        let targets: Vec<ArmTarget> = match branches {
            Some(word) => node.taken_arms(word).collect(),
            None => node.arms().collect(),
        };
        for target in targets {
            if let ArmTarget::Body(body) = target {
                collect(program, body, branches, uids);
            }
        }
    }
}
