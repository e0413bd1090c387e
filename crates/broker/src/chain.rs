//! Chains of functions, and where they run.
//!
//! A broker knows its chain as a [`ChainRunner`]. [`LocalChain`] calls the functions in the thread of the
//! broker. A runner that hands messages to processes has the same methods.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use mmb_nf::{Instance, L7Finished, L7Request, L7Response, L7Verdict, Upstream};

/// Runs a chain.
pub(crate) trait ChainRunner {
    /// Passes a request through the functions. Returns the verdict of the last function that saw it, and how
    /// many did.
    fn request(&mut self, request: &mut L7Request<'_>) -> (L7Verdict, usize);

    /// Passes a final response back through the first `passed` functions.
    fn response(&mut self, response: &mut L7Response<'_>, passed: usize) -> L7Verdict;

    /// An exchange has ended that the first `passed` functions have seen.
    fn finished(&mut self, exchange: &L7Finished, passed: usize);

    /// Returns the servers to which requests go.
    fn upstream(&self) -> Option<Arc<dyn Upstream>>;
}

/// A chain that exchanges share. An exchange keeps the chain with which it has begun.
pub(crate) type SharedChain = Rc<RefCell<dyn ChainRunner>>;

/// The functions of a chain that the bytes of connections pass.
#[derive(Default)]
pub(crate) struct Filters {
    pub functions: Vec<Arc<Instance>>,
    /// Names of the headers that they add to requests.
    pub request_headers: Vec<Box<[u8]>>,
}

impl Filters {
    /// Finds the functions of a chain.
    pub fn new(instances: &[Arc<Instance>]) -> Filters {
        let reads = |instance: &&Arc<Instance>| instance.l7().is_none() && instance.reads_bytes();
        let functions: Vec<_> = instances.iter().filter(reads).cloned().collect();
        let request_headers = functions.iter().flat_map(|function| function.request_headers()).collect();
        Filters { functions, request_headers }
    }
}

/// A chain whose functions run in the thread of the broker.
pub(crate) struct LocalChain {
    functions: Vec<(Arc<Instance>, Box<dyn Any + Send>)>,
    upstream: Option<Arc<dyn Upstream>>,
}

impl LocalChain {
    /// A chain of functions that brokers can use; others are left out.
    pub fn new(instances: &[Arc<Instance>]) -> LocalChain {
        let upstream =
            instances.iter().filter_map(|instance| instance.l7()).find_map(|function| function.servers());
        let functions = instances.iter().filter_map(|instance| {
            let local = instance.l7()?.new_local();
            Some((instance.clone(), local))
        });
        LocalChain { functions: functions.collect(), upstream }
    }
}

impl ChainRunner for LocalChain {
    fn request(&mut self, request: &mut L7Request<'_>) -> (L7Verdict, usize) {
        let mut passed = 0;
        for (instance, local) in &mut self.functions {
            passed += 1;
            let verdict = instance.l7().map(|function| function.on_request(request, &mut **local));
            match verdict {
                None | Some(L7Verdict::Pass) => {}
                Some(verdict) => return (verdict, passed),
            }
        }
        (L7Verdict::Pass, passed)
    }

    fn response(&mut self, response: &mut L7Response<'_>, passed: usize) -> L7Verdict {
        for (instance, local) in self.functions.iter_mut().take(passed).rev() {
            let verdict = instance.l7().map(|function| function.on_response(response, &mut **local));
            match verdict {
                None | Some(L7Verdict::Pass) => {}
                Some(verdict) => return verdict,
            }
        }
        L7Verdict::Pass
    }

    fn finished(&mut self, exchange: &L7Finished, passed: usize) {
        for (instance, local) in self.functions.iter_mut().take(passed) {
            if let Some(function) = instance.l7() {
                function.on_finished(exchange, &mut **local);
            }
        }
    }

    fn upstream(&self) -> Option<Arc<dyn Upstream>> {
        self.upstream.clone()
    }
}
