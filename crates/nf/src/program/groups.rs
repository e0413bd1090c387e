//! Groups of stream functions: adjacent ones, behind their stream context.

use std::sync::Arc;

use mmb_lang::Step;
use mmb_stream::TcpStream;

use super::builder::Builder;
use super::class;
use super::errors::{ChainError, Located, fail};
use super::ir::{FunctionNode, GroupPlace, Node};
use super::path::PathState;
use crate::Instance;
use crate::held::MOST_APART;

impl Builder<'_> {
    /// Whether a node is a stream function or a stream context.
    pub fn is_in_stream(&self, node: Option<&Node>) -> bool {
        match node {
            Some(Node::Function(node)) => {
                let is_stream = |instance: &Arc<Instance>| instance.function.is_stream();
                node.instance >= self.first_context
                    || self.instances.get(usize::from(node.instance)).is_some_and(is_stream)
            }
            _ => false,
        }
    }

    /// Whether a node is a function that runs in a process.
    pub fn is_in_process(&self, node: Option<&Node>) -> bool {
        match node {
            Some(Node::Function(node)) => {
                let instance = self.instances.get(usize::from(node.instance));
                node.instance < self.first_context
                    && instance.is_some_and(|instance| instance.domain().is_some())
            }
            _ => false,
        }
    }

    /// Whether the step at a position belongs to adjacent stream functions of which one edits.
    pub fn is_edited(&self, steps: &[Step], at: usize, path: &PathState) -> bool {
        let stream = |step: &Step| {
            let number = step.function.as_ref().and_then(|word| self.names.get(&**word));
            let instance = number.and_then(|&number| self.instances.get(usize::from(number)))?;
            let is_member =
                instance.function.is_stream() && class::is_implied(&path.implied, instance.class());
            is_member.then(|| instance.function.edits())
        };
        let (front, behind) = steps.split_at(at);
        front.iter().rev().map_while(stream).chain(behind.iter().map_while(stream)).any(|edits| edits)
    }

    /// Makes the last stream context keep bytes.
    pub fn keep_bytes(&self, nodes: &mut [Node]) {
        if let Some(context) = self.last_context(nodes) {
            context.keeps_bytes = true;
        }
    }

    /// Makes the last stream context ask for room in the process of an instance.
    pub fn keep_room(&mut self, nodes: &mut [Node], instance: u16) -> Result<(), Located> {
        let number = self.apart.len();
        let Some(context) = self.last_context(nodes) else { return Ok(()) };
        let known = context.apart.map(usize::from);
        context.apart = known.or(Some(number)).and_then(|number| u16::try_from(number).ok());
        match known.and_then(|known| self.apart.get_mut(known)) {
            Some(others) if others.len() == MOST_APART => {
                let name = self.instances.get(usize::from(instance)).map_or("", |instance| instance.name());
                fail(name, ChainError::TooManyApart { name: name.to_owned(), max: MOST_APART })
            }
            Some(others) => {
                others.push(instance);
                Ok(())
            }
            None => {
                self.apart.push(vec![instance]);
                Ok(())
            }
        }
    }

    fn last_context<'n>(&self, nodes: &'n mut [Node]) -> Option<&'n mut FunctionNode> {
        nodes.iter_mut().rev().find_map(|node| match node {
            Node::Function(node) if node.instance >= self.first_context => Some(node),
            _ => None,
        })
    }

    /// Returns nodes in the order in which reverse packets meet them. A stream context comes before its
    /// functions in both directions.
    pub fn mirrored(&self, forward: &[Node]) -> Vec<Node> {
        let is_context = |node: &Node| match node {
            Node::Function(node) => node.instance >= self.first_context,
            _ => false,
        };
        let mut reverse: Vec<Node> = Vec::new();
        // Those of the group whose context comes next.
        let mut functions = 0;
        for node in forward.iter().rev() {
            if !is_context(node) {
                functions = if self.is_in_stream(Some(node)) { functions + 1 } else { 0 };
                reverse.push(node.clone());
                continue;
            }
            let at = reverse.len() - std::mem::take(&mut functions);
            reverse.insert(at, node.clone());
        }
        reverse
    }

    /// Gives the functions of each group, and their stream context, their places in the group. `is_chain`:
    /// the nodes are a whole chain.
    pub fn number_groups(&self, nodes: &mut [Node], is_chain: bool) {
        let count = nodes.len();
        let is_context =
            |node: &Node| matches!(node, Node::Function(node) if node.instance >= self.first_context);
        let is_member = |node: &Node| self.is_in_stream(Some(node)) && !is_context(node);
        for group in nodes.chunk_by_mut(|before, after| self.is_in_stream(Some(before)) && is_member(after)) {
            // Packets may be in a process when its function has read enough: their session stays.
            let is_alone =
                is_chain && group.len() == count && !group.iter().any(|node| self.is_in_process(Some(node)));
            let Some((Node::Function(context), functions)) = group.split_first_mut() else { continue };
            let can_detach = functions.len() <= TcpStream::MOST_DETACHED;
            let all = if can_detach { ((1 << functions.len()) - 1) as u8 } else { 0 };
            if !functions.is_empty() {
                context.group = GroupPlace { all, is_alone, ..GroupPlace::default() };
            }
            let context = context.instance;
            for (n, node) in functions.iter_mut().enumerate() {
                if let Node::Function(node) = node {
                    let bit = if can_detach { 1 << n } else { 0 };
                    node.group = GroupPlace { context, offset: 0, is_member: true, bit, all, is_alone };
                }
            }
        }
    }

    /// Adds the ends of groups of stream functions of which one edits.
    pub fn with_exits(&self, nodes: Vec<Node>) -> Vec<Node> {
        let mut all: Vec<Node> = Vec::with_capacity(nodes.len());
        let mut nodes = nodes.into_iter().peekable();
        while let Some(node) = nodes.next() {
            let context = match &node {
                Node::Function(context) if context.instance >= self.first_context => *context,
                _ => {
                    all.push(node);
                    continue;
                }
            };
            let first = all.len();
            all.push(node);
            while let Some(node) = nodes.next_if(|node| self.is_in_stream(Some(node))) {
                all.push(node);
            }
            let group = all.get_mut(first..).unwrap_or(&mut []);
            let edits = |node: &Node| match node {
                Node::Function(node) => self.edits(node.instance),
                _ => false,
            };
            if group.iter().any(edits) {
                for node in group {
                    if let Node::Function(function) = node {
                        function.edits = true;
                    }
                }
                all.push(Node::StreamExit(FunctionNode { edits: true, ..context }));
            }
        }
        all
    }

    pub fn edits(&self, instance: u16) -> bool {
        self.instances.get(usize::from(instance)).is_some_and(|instance| instance.function.edits())
    }
}
