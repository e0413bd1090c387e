//! Sessions of which the functions of a chain need no packets any more.
//!
//! Theory of operation. Each function on the path of a session is asked what it does to the session's packets
//! ([`crate::Function::constant_rewrite`]). Stream functions are not asked one by one: their stream context
//! knows whether one of them still reads the connection. A function that changes its mind without a packet
//! says so by its revision, which workers compare from time to time.

use mmb_stream::{Cause, Status, TcpStream};

use crate::ConstantRewrite;
use crate::program::ir::{ArmTarget, BodyId, FunctionNode, Node};
use crate::runner::header::Header;
use crate::runner::state::RunnerState;
use crate::stream::StreamContext;
use crate::{Instance, Program};

impl RunnerState {
    /// See [`crate::Runner::constant_rewrite`].
    pub fn constant_rewrite(&self, pad: &[u8]) -> Option<ConstantRewrite> {
        let header = Header::read(pad);
        rewrite_of_body(&self.loaded(header.program)?.program, header.body, (header.branches, pad))
    }

    /// See [`crate::Runner::revision`].
    pub fn revision(&self) -> u64 {
        let states = self.states.iter().flatten();
        states.fold(0, |sum, state| sum.wrapping_add(state.instance.function.revision()))
    }
}

/// The branches of a session, and its scratchpad.
type SessionPad<'a> = (u32, &'a [u8]);

fn rewrite_of_body(program: &Program, body: BodyId, session: SessionPad<'_>) -> Option<ConstantRewrite> {
    let nodes = &program.body(body)?.forward;
    nodes
        .iter()
        .try_fold(ConstantRewrite::default(), |all, node| all.and(rewrite_of_node(program, node, session)?))
}

fn rewrite_of_node(program: &Program, node: &Node, session: SessionPad<'_>) -> Option<ConstantRewrite> {
    let in_arm = |arm: ArmTarget| match arm {
        ArmTarget::Body(body) => rewrite_of_body(program, body, session),
        ArmTarget::Drop => None,
    };
    match node {
        Node::Function(function) => rewrite_of_function(program, function, session.1),
        // A packet may leave by another output than those before.
        Node::Outputs { diverges: true, .. } | Node::Flow { .. } => None,
        Node::Outputs { function, .. } => rewrite_of_function(program, function, session.1)?
            .and(in_arm(node.taken_arms(session.0).next()?)?),
        Node::Choice { .. } | Node::Dispatch { .. } => in_arm(node.taken_arms(session.0).next()?),
        Node::Translate | Node::StreamExit(_) => Some(ConstantRewrite::default()),
    }
}

fn rewrite_of_function(program: &Program, node: &FunctionNode, pad: &[u8]) -> Option<ConstantRewrite> {
    let instance: &Instance = program.instances.get(usize::from(node.instance))?;
    if instance.process().is_some() || node.is_keyed {
        return None;
    }
    if node.group.is_member {
        return Some(ConstantRewrite::default());
    }
    let bytes = pad.get(node.offset as usize..)?.get(..node.bytes as usize)?;
    if instance.kind() != StreamContext::KIND {
        return instance.function.constant_rewrite(bytes);
    }
    let stream: TcpStream = bytemuck::try_pod_read_unaligned(bytes).ok()?;
    let is_unread = stream.status() == Status::Passed(Cause::Detached)
        && node.group.all != 0
        && stream.detached() == node.group.all
        && stream.kept() == 0;
    is_unread.then(ConstantRewrite::default)
}
