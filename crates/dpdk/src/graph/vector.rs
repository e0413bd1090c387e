//! The vector that a node receives, and how it passes packets on.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use mmb_dpdk_sys as sys;

use super::{NodeKind, WALK_MAX, Worker};
use crate::memory::{Burst, Mbuf, Packet, Slots, VECTOR_MAX};
use crate::port::{TxCount, TxQueue};

/// The contents of a node's 16 bytes of context.
#[repr(C)]
#[derive(Clone, Copy)]
struct Context {
    worker: *mut c_void,
    /// A `fn` of the type that the node's trampoline expects.
    function: *const (),
}

const _: () = assert!(size_of::<Context>() == 16);

/// Binds a node to the worker's state and to its function.
///
/// # Safety
/// `node` belongs to a graph that is not walked now, and is walked only while `worker` lives.
pub(super) unsafe fn bind<W>(node: *mut sys::rte_node, kind: &NodeKind<W>, worker: NonNull<Worker<W>>) {
    let (function, process): (*const (), sys::rte_node_process_t) = match *kind {
        NodeKind::Source(function) => (function as *const (), Some(run_source::<W>)),
        NodeKind::Inner(function) => (function as *const (), Some(run_inner::<W>)),
    };
    // SAFETY: the caller's promise; the context is 16 bytes at the start of a cache line.
    unsafe {
        (&raw mut (*node).ctx).cast::<Context>().write(Context { worker: worker.as_ptr().cast(), function });
        (*node).__bindgen_anon_2.process = process;
    }
}

/// Selects the trampoline of an inner node: with the worker's observer, or without.
///
/// # Safety
/// `bind` has bound the node to an inner function and a worker of this W. The graph is not walked now.
pub(super) unsafe fn set_observed<W>(node: *mut sys::rte_node, is_observed: bool) {
    let process: sys::rte_node_process_t =
        if is_observed { Some(run_observed::<W>) } else { Some(run_inner::<W>) };
    // SAFETY: the caller's promise.
    unsafe { (*node).__bindgen_anon_2.process = process };
}

/// Shows the packets of an inner node to the worker's observer, and calls the node.
unsafe extern "C" fn run_observed<W>(
    graph: *mut sys::rte_graph,
    node: *mut sys::rte_node,
    objs: *mut *mut c_void,
    n: u16,
) -> u16 {
    // SAFETY: as in `run_inner`. The observer gets unique references to the node's packets, which end before
    // the node is called. It cannot pass packets on.
    unsafe {
        let context = (&raw const (*node).ctx).cast::<Context>().read();
        let worker = &mut *context.worker.cast::<Worker<W>>();
        let name = worker.inner.iter().find(|(_, known)| known.as_ptr() == node).map(|(name, _)| *name);
        if let (Some(observer), Some(name)) = (worker.observer, name) {
            let packets: &mut [&mut Packet] = std::slice::from_raw_parts_mut(objs.cast(), usize::from(n));
            for vector in packets.chunks_mut(VECTOR_MAX) {
                observer(&mut worker.state, name, vector);
            }
        }
        run_inner::<W>(graph, node, objs, n)
    }
}

/// Calls a source node.
unsafe extern "C" fn run_source<W>(
    graph: *mut sys::rte_graph,
    node: *mut sys::rte_node,
    _objs: *mut *mut c_void,
    _n: u16,
) -> u16 {
    // SAFETY: `bind` wrote the context with a worker of this W and a source function. During a walk nothing
    // else uses the worker. A panic in the function aborts the process: it cannot unwind through C.
    unsafe {
        let context = (&raw const (*node).ctx).cast::<Context>().read();
        let function: fn(&mut W, &mut Emit<'_>) -> usize = std::mem::transmute(context.function);
        let worker = &mut *context.worker.cast::<Worker<W>>();
        let mut emit = Emit { graph, node, emitted: &mut worker.emitted, brand: PhantomData };
        function(&mut worker.state, &mut emit).min(usize::from(u16::MAX)) as u16
    }
}

/// Calls an inner node with vectors of at most [`VECTOR_MAX`] packets.
unsafe extern "C" fn run_inner<W>(
    graph: *mut sys::rte_graph,
    node: *mut sys::rte_node,
    objs: *mut *mut c_void,
    n: u16,
) -> u16 {
    // SAFETY: as in `run_source`, with an inner function. `objs` holds `n` packets that the node owns. No
    // edge leads back to this node, so passing packets on modifies its stream only if the vector is the whole
    // stream.
    unsafe {
        let context = (&raw const (*node).ctx).cast::<Context>().read();
        let function: fn(&mut W, Vector<'_>) = std::mem::transmute(context.function);
        let worker = &mut *context.worker.cast::<Worker<W>>();
        let (state, emitted): (&mut W, _) = (&mut worker.state, &raw mut worker.emitted);
        if usize::from(n) <= VECTOR_MAX {
            function(state, Vector { graph, node, objs, n, whole: true, emitted, brand: PhantomData });
            return n;
        }
        let mut from = 0;
        while from < n {
            let piece = (n - from).min(VECTOR_MAX as u16);
            let objs = objs.add(usize::from(from));
            let piece_of = Vector { graph, node, objs, n: piece, whole: false, emitted, brand: PhantomData };
            function(state, piece_of);
            from += piece;
            (*node).total_calls += u64::from(from < n);
        }
        n
    }
}

/// Makes a lifetime invariant.
type Brand<'a> = PhantomData<fn(&'a ()) -> &'a ()>;

/// The packets of a node, which must pass them on. Dropping a vector frees them.
#[must_use = "packets that are not passed on are freed"]
pub struct Vector<'a> {
    graph: *mut sys::rte_graph,
    node: *mut sys::rte_node,
    objs: *mut *mut c_void,
    n: u16,
    /// Whether these are all packets of the node's stream.
    whole: bool,
    /// Number of packets that entered in this walk. Nothing else uses it while the vector lives.
    emitted: *mut usize,
    brand: Brand<'a>,
}

impl<'a> Vector<'a> {
    /// Number of packets: 1 to [`VECTOR_MAX`].
    #[inline(always)]
    pub fn len(&self) -> usize {
        usize::from(self.n)
    }

    /// Whether the vector is empty, which a node's vector is only after packets were extracted.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// The packets. They may be modified and reordered.
    #[inline(always)]
    pub fn packets(&mut self) -> &mut [&'a mut Packet] {
        // SAFETY: `objs` holds `n` addresses of different packet headers that this vector owns; a reference
        // to a Packet is such an address.
        unsafe { std::slice::from_raw_parts_mut(self.objs.cast(), usize::from(self.n)) }
    }

    /// Passes all packets to the node behind an edge.
    ///
    /// # Panics
    /// When the node has no such edge.
    #[inline]
    pub fn send_all(self, edge: u16) {
        let this = ManuallyDrop::new(self);
        // SAFETY: the vector owns its packets and passes ownership on; the edge exists.
        unsafe {
            assert!(edge < (*this.node).nb_edges, "no edge {edge}");
            if this.whole {
                sys::mmb_node_move_all(this.graph, this.node, edge);
            } else if this.n > 0 {
                sys::mmb_node_enqueue(this.graph, this.node, edge, this.objs, this.n);
            }
        }
    }

    /// Passes packet i to the node behind `edges[i]`. Cheapest when equal edges are adjacent.
    ///
    /// # Panics
    /// When `edges` and the vector differ in length, or the node has no such edge.
    #[inline]
    pub fn send(self, edges: &[u16]) {
        let this = ManuallyDrop::new(self);
        assert!(edges.len() == usize::from(this.n), "{} edges for {} packets", edges.len(), this.n);
        if this.n == 0 {
            return;
        }
        let last = edges.iter().fold(0, |last, edge| last.max(*edge));
        // SAFETY: the vector owns its packets and passes ownership on; all edges exist.
        unsafe {
            assert!(last < (*this.node).nb_edges, "no edge {last}");
            let whole = i32::from(this.whole);
            sys::mmb_node_enqueue_next(this.graph, this.node, edges.as_ptr(), this.objs, this.n, whole);
        }
    }

    /// Frees all packets.
    #[inline]
    pub fn free(self) {
        drop(self);
    }

    /// Sends the packets in order, as far as the port takes them now. Packets without room are added to
    /// `rest`.
    #[inline]
    pub fn transmit(self, queue: &mut TxQueue, rest: &mut Burst) -> TxCount {
        let this = ManuallyDrop::new(self);
        // SAFETY: the vector owns its packets. `send_from` takes the first ones; those behind them are taken
        // here.
        unsafe {
            let count = queue.send_from(this.objs.cast(), this.n);
            for at in count.sent..usize::from(this.n) - count.too_big - count.merged {
                if let Some(packet) = NonNull::new((*this.objs.add(at)).cast()) {
                    // A packet that does not fit is freed.
                    drop(rest.push(Mbuf::from_raw(packet)));
                }
            }
            count
        }
    }

    /// Removes the packets at the positions that `which` selects and gives them to `f`, in order. The others
    /// move up.
    pub fn extract_if(&mut self, mut which: impl FnMut(usize) -> bool, mut f: impl FnMut(Mbuf)) {
        let all = usize::from(std::mem::take(&mut self.n));
        self.whole = false;
        for at in 0..all {
            // SAFETY: the vector owns the first `n` packets and those from `at` on; `n` is at most `at`. If
            // `f` panics, the packets from `at` on leak.
            unsafe {
                let object = *self.objs.add(at);
                match NonNull::new(object.cast()) {
                    Some(packet) if which(at) => f(Mbuf::from_raw(packet)),
                    _ => {
                        *self.objs.add(usize::from(self.n)) = object;
                        self.n += 1;
                    }
                }
            }
        }
    }

    /// Adds a packet to the stream of the node behind `edge`.
    ///
    /// # Errors
    /// The packet, when [`WALK_MAX`] packets have entered in this walk.
    ///
    /// # Panics
    /// When the node has no such edge.
    pub fn inject(&mut self, edge: u16, packet: Mbuf) -> Result<(), Mbuf> {
        // SAFETY: the pointer is to the counter of the walked graph, which nothing else uses meanwhile. The
        // edge exists, and the node behind it becomes the packet's owner.
        unsafe {
            assert!(edge < (*self.node).nb_edges, "no edge {edge}");
            if *self.emitted >= WALK_MAX {
                return Err(packet);
            }
            *self.emitted += 1;
            let mut object: *mut c_void = packet.into_raw().cast();
            sys::mmb_node_enqueue(self.graph, self.node, edge, &raw mut object, 1);
        }
        Ok(())
    }

    /// Removes all packets and gives them to `f`, in order.
    #[inline]
    pub fn drain(self, mut f: impl FnMut(Mbuf)) {
        let this = ManuallyDrop::new(self);
        for at in 0..usize::from(this.n) {
            // SAFETY: the vector owns its packets; each changes owner once.
            unsafe {
                if let Some(packet) = NonNull::new((*this.objs.add(at)).cast()) {
                    f(Mbuf::from_raw(packet));
                }
            }
        }
    }
}

impl Drop for Vector<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the vector owns its packets and does not use them afterwards.
        unsafe { sys::mmb_pktmbuf_free_bulk(self.objs.cast(), u32::from(self.n)) }
    }
}

/// The output of a source node.
pub struct Emit<'a> {
    graph: *mut sys::rte_graph,
    node: *mut sys::rte_node,
    emitted: &'a mut usize,
    brand: Brand<'a>,
}

impl Emit<'_> {
    /// Returns how many packets may still enter in this walk.
    pub fn room(&self) -> usize {
        WALK_MAX - *self.emitted
    }

    /// Calls `f`, which may push up to `max` packets into the stream of the node behind `edge`. Returns how
    /// many it pushed. The room shrinks to 0 as [`WALK_MAX`] packets have entered in this walk.
    ///
    /// # Panics
    /// When the node has no such edge.
    #[inline]
    pub fn emit(&mut self, edge: u16, max: usize, f: impl FnOnce(&mut Slots<'_>)) -> usize {
        let room = max.min(VECTOR_MAX).min(WALK_MAX - *self.emitted);
        // SAFETY: the edge exists; the stream has `room` free entries at the returned address, and the node
        // behind the edge becomes the owner of the pushed packets.
        unsafe {
            assert!(edge < (*self.node).nb_edges, "no edge {edge}");
            let start = sys::mmb_node_stream_get(self.graph, self.node, edge, room as u16);
            let mut slots = Slots::new(start.cast(), room);
            f(&mut slots);
            let n = slots.len();
            sys::mmb_node_stream_put(self.graph, self.node, edge, n as u16);
            *self.emitted += n;
            n
        }
    }
}
