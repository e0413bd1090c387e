//! Registration of nodes with DPDK, and creation of graphs.

use std::ffi::{CString, c_char, c_void};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use mmb_dpdk_sys as sys;

use super::{Memory, NodeDef, NodeKind};
use crate::error::{GraphError, last_errno, strerror};
use crate::log;

/// Most nodes of a graph, and most edges of a node.
const NODES_MAX: usize = 1024;

/// A registered family of nodes.
pub(super) struct Family {
    shape: Vec<(&'static str, bool, &'static [&'static str])>,
    ids: Vec<sys::rte_node_t>,
    names: Vec<CString>,
}

pub(super) static FAMILIES: Mutex<Vec<Family>> = Mutex::new(Vec::new());

/// Checks the definitions for errors that DPDK would refuse, or accept and then misbehave.
pub(super) fn check<W>(defs: &[NodeDef<W>]) -> Result<(), GraphError> {
    let find = |name: &str| defs.iter().position(|def| def.name == name);
    if defs.len() > NODES_MAX {
        return Err(GraphError::TooManyNodes { count: defs.len(), limit: NODES_MAX });
    }
    let mut reached: Vec<bool> = defs.iter().map(|def| matches!(def.kind, NodeKind::Source(_))).collect();
    if !reached.contains(&true) {
        return Err(GraphError::NoSource);
    }
    for (at, def) in defs.iter().enumerate() {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if def.name.is_empty() || def.name.len() > 48 || !def.name.bytes().all(letter) {
            return Err(GraphError::InvalidName { name: def.name });
        }
        if find(def.name) != Some(at) {
            return Err(GraphError::DuplicateName { name: def.name });
        }
        if def.next.len() > NODES_MAX {
            return Err(GraphError::TooManyEdges { node: def.name, limit: NODES_MAX });
        }
        for next in def.next {
            match find(next) {
                None => return Err(GraphError::UnknownNode { node: def.name, next }),
                Some(to) if to == at => return Err(GraphError::EdgeToItself { node: def.name }),
                Some(to) if reached[to] => {
                    return Err(GraphError::EdgeToSource { node: def.name, next });
                }
                Some(_) => {}
            }
        }
    }
    let mut work: Vec<usize> = (0..defs.len()).filter(|at| reached[*at]).collect();
    while let Some(at) = work.pop() {
        for to in defs[at].next.iter().filter_map(|next| find(next)) {
            if !std::mem::replace(&mut reached[to], true) {
                work.push(to);
            }
        }
    }
    match reached.iter().position(|reached| !reached) {
        Some(at) => Err(GraphError::Unreachable { node: defs[at].name }),
        None => Ok(()),
    }
}

/// The family of these nodes. Registers it with DPDK if it is new.
pub(super) fn family<'f, W>(
    families: &'f mut Vec<Family>,
    defs: &[NodeDef<W>],
) -> Result<&'f Family, GraphError> {
    let source = |def: &NodeDef<W>| matches!(def.kind, NodeKind::Source(_));
    let shape: Vec<_> = defs.iter().map(|def| (def.name, source(def), def.next)).collect();
    if let Some(at) = families.iter().position(|family| family.shape == shape) {
        return Ok(&families[at]);
    }
    let suffix = if families.is_empty() { String::new() } else { format!("~{}", families.len()) };
    let registered = |name: &str| CString::new(format!("{name}{suffix}")).unwrap_or_default();
    let names: Vec<CString> = defs.iter().map(|def| registered(def.name)).collect();
    let mut ids = Vec::with_capacity(defs.len());
    for ((name, is_source, next), registered_name) in shape.iter().zip(&names) {
        let next: Vec<CString> = next.iter().map(|next| registered(next)).collect();
        let (id, reason) = log::capture(|| register(registered_name, *is_source, &next));
        if id == sys::RTE_NODE_ID_INVALID {
            let reason = reason.unwrap_or_else(|| strerror(last_errno()));
            return Err(GraphError::NotRegistered { node: name, reason });
        }
        ids.push(id);
    }
    families.push(Family { shape, ids, names });
    families.last().ok_or(GraphError::MissingNode)
}

/// Registers a node with DPDK, which copies the definition.
fn register(name: &CString, source: bool, next: &[CString]) -> sys::rte_node_t {
    // The structure ends with an array of name pointers: a vector of words provides size and alignment.
    let header = size_of::<sys::rte_node_register>();
    let mut words = vec![0u64; header.div_ceil(8) + next.len()];
    let node: *mut sys::rte_node_register = words.as_mut_ptr().cast();
    // SAFETY: `words` is zeroed, aligned and large enough for the header and all pointers; names fit (at most
    // 48 bytes and a suffix in 64); everything outlives the call.
    unsafe {
        for (to, from) in (*node).name.iter_mut().zip(name.as_bytes_with_nul()) {
            *to = from.cast_signed();
        }
        (*node).flags = if source { u64::from(sys::RTE_NODE_SOURCE_F) } else { 0 };
        (*node).process = Some(unbound);
        (*node).parent_id = sys::RTE_NODE_ID_INVALID;
        (*node).nb_edges = next.len() as u16;
        let edges: *mut *const c_char = node.cast::<u8>().add(header).cast();
        for (at, name) in next.iter().enumerate() {
            *edges.add(at) = name.as_ptr();
        }
        sys::__rte_node_register(node)
    }
}

/// The process function of an unbound node, which is never called.
unsafe extern "C" fn unbound(
    _: *mut sys::rte_graph,
    _: *mut sys::rte_node,
    _: *mut *mut c_void,
    _: u16,
) -> u16 {
    0
}

/// Creates a graph of a family's nodes.
pub(super) fn create<W>(family: &Family, defs: &[NodeDef<W>]) -> Result<Memory, GraphError> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name =
        CString::new(format!("mmb-graph-{}", NUMBER.fetch_add(1, Ordering::Relaxed))).unwrap_or_default();
    let mut patterns: Vec<*const c_char> = family.names.iter().map(|name| name.as_ptr()).collect();
    let mut parameters = sys::rte_graph_param {
        socket_id: -1,
        nb_node_patterns: patterns.len() as u16,
        node_patterns: patterns.as_mut_ptr(),
    };
    // SAFETY: EAL runs; names and parameters outlive the call. Node names contain no pattern characters.
    let (id, reason) = log::capture(|| unsafe { sys::rte_graph_create(name.as_ptr(), &mut parameters) });
    if u32::from(id) == sys::RTE_GRAPH_ID_INVALID {
        return Err(GraphError::Dpdk { reason: reason.unwrap_or_else(|| strerror(last_errno())) });
    }
    // SAFETY: the graph exists under that name.
    let graph = NonNull::new(unsafe { sys::rte_graph_lookup(name.as_ptr()) });
    let find = |(id_of_node, def): (&sys::rte_node_t, &NodeDef<W>)| {
        // SAFETY: the graph exists.
        NonNull::new(unsafe { sys::rte_graph_node_get(id, *id_of_node) }).map(|node| (def.name, node))
    };
    let nodes: Option<Vec<_>> = family.ids.iter().zip(defs).map(find).collect();
    match (graph, nodes) {
        (Some(graph), Some(nodes)) => Ok(Memory { id, graph, nodes }),
        _ => {
            // SAFETY: the graph exists and is not used.
            unsafe { sys::rte_graph_destroy(id) };
            Err(GraphError::MissingNode)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Emit, Vector};

    fn source(_: &mut (), _: &mut Emit<'_>) -> usize {
        0
    }

    fn sink(_: &mut (), vector: Vector<'_>) {
        vector.free();
    }

    fn def(name: &'static str, inner: bool, next: &'static [&'static str]) -> NodeDef<()> {
        NodeDef { name, kind: if inner { NodeKind::Inner(sink) } else { NodeKind::Source(source) }, next }
    }

    #[test]
    fn invalid_graphs_are_refused() {
        let wrong =
            |defs: &[NodeDef<()>]| check(defs).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(wrong(&[def("a", true, &[])]), "it has no source node");
        assert_eq!(wrong(&[def("a", false, &["b"])]), "node 'a' leads to 'b', which does not exist");
        assert_eq!(wrong(&[def("a", false, &["a"])]), "node 'a' leads to itself");
        assert_eq!(
            wrong(&[def("a", false, &["b"]), def("b", true, &["a"])]),
            "node 'b' leads to the source 'a'"
        );
        assert_eq!(
            wrong(&[def("a", false, &[]), def("b", true, &[])]),
            "node 'b' is not reachable from a source"
        );
        assert_eq!(wrong(&[def("a", false, &[]), def("a", true, &[])]), "two nodes have the name 'a'");
        assert_eq!(wrong(&[def("a*", false, &[])]), "'a*' is not a valid node name");
        assert_eq!(check(&[def("a", false, &["b"]), def("b", true, &["c"]), def("c", true, &["b"])]), Ok(()));
    }
}
