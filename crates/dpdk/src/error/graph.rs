//! Why a graph cannot be built.

/// Why a graph cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// The graph has too many nodes.
    #[error("{count} nodes are over the limit of {limit}")]
    TooManyNodes {
        /// Its nodes.
        count: usize,
        /// Highest possible number.
        limit: usize,
    },
    /// The graph has no source node.
    #[error("it has no source node")]
    NoSource,
    /// A name is empty, too long, or has other characters than letters, digits, '-', '_' and '.'.
    #[error("'{name}' is not a valid node name")]
    InvalidName {
        /// The name.
        name: &'static str,
    },
    /// Two nodes have the same name.
    #[error("two nodes have the name '{name}'")]
    DuplicateName {
        /// The name.
        name: &'static str,
    },
    /// A node has too many edges.
    #[error("node '{node}' has more than {limit} edges")]
    TooManyEdges {
        /// The node.
        node: &'static str,
        /// Highest possible number.
        limit: usize,
    },
    /// An edge leads to an unknown node.
    #[error("node '{node}' leads to '{next}', which does not exist")]
    UnknownNode {
        /// The node.
        node: &'static str,
        /// The end of its edge.
        next: &'static str,
    },
    /// An edge leads back to its own node.
    #[error("node '{node}' leads to itself")]
    EdgeToItself {
        /// The node.
        node: &'static str,
    },
    /// An edge leads to a source.
    #[error("node '{node}' leads to the source '{next}'")]
    EdgeToSource {
        /// The node.
        node: &'static str,
        /// The source.
        next: &'static str,
    },
    /// No path from a source leads to a node.
    #[error("node '{node}' is not reachable from a source")]
    Unreachable {
        /// The node.
        node: &'static str,
    },
    /// DPDK refuses to register a node.
    #[error("node '{node}' cannot be registered: {reason}")]
    NotRegistered {
        /// The node.
        node: &'static str,
        /// DPDK's message, or the description of its error.
        reason: String,
    },
    /// DPDK refuses to create the graph.
    #[error("{reason}")]
    Dpdk {
        /// DPDK's message, or the description of its error.
        reason: String,
    },
    /// DPDK has created the graph without one of its nodes.
    #[error("DPDK does not find one of its nodes")]
    MissingNode,
}
