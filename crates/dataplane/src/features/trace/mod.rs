//! Traces: the path of single packets through the graph.
//!
//! Theory of operation. While somebody traces, the graph shows the packets of every inner node to the
//! worker's [`tracer::Tracer`] before the node gets them ([`mmb_dpdk::Graph::observe`]). Without a tracer,
//! nodes are called directly: the only cost is one test for each walk. The tracer selects packets at
//! `l2-input`, and notes the bytes, the metadata and the session of these packets in front of each node. It
//! asks all rules itself, on the packet that the node will see, with the classifier of the packet path. So
//! nodes know nothing of traces.
//!
//! A packet is known by the address of its metadata, which does not change on its way. A packet that a node
//! keeps (a function that holds it, a fragment that waits) is followed until it goes on.
//!
//! Only traced packets cost memory and time. A request limits their number ([`live::LiveTrace`]), and few
//! packets of a vector are traced at most.

pub(crate) mod live;
pub(crate) mod record;
pub(crate) mod tracer;
