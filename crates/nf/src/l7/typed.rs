//! Functions of layer 7 without their types.

use std::any::Any;
use std::sync::Arc;

use super::{L7Finished, L7Function, L7Handler, L7Request, L7Response, L7Verdict, Upstream};
use crate::instance::{DynFunction, RawContext};
use crate::set::Set;
use crate::vector::RawVector;
use crate::{ArgError, Background, Properties, SessionInfo};

/// A [`L7Handler`] without its type. `local` is a value of [`DynL7::new_local`].
pub trait DynL7: Send + Sync {
    /// See [`L7Handler::local`].
    fn new_local(&self) -> Box<dyn Any + Send>;
    /// See [`L7Handler::request`].
    fn on_request(&self, request: &mut L7Request<'_>, local: &mut dyn Any) -> L7Verdict;
    /// See [`L7Handler::response`].
    fn on_response(&self, response: &mut L7Response<'_>, local: &mut dyn Any) -> L7Verdict;
    /// See [`L7Handler::finished`].
    fn on_finished(&self, exchange: &L7Finished, local: &mut dyn Any);
    /// See [`L7Handler::upstream`].
    fn servers(&self) -> Option<Arc<dyn Upstream>>;
}

impl<F: L7Handler> DynL7 for F {
    fn new_local(&self) -> Box<dyn Any + Send> {
        Box::new(self.local())
    }

    fn on_request(&self, request: &mut L7Request<'_>, local: &mut dyn Any) -> L7Verdict {
        local.downcast_mut().map_or(L7Verdict::Close, |local| self.request(request, local))
    }

    fn on_response(&self, response: &mut L7Response<'_>, local: &mut dyn Any) -> L7Verdict {
        local.downcast_mut().map_or(L7Verdict::Close, |local| self.response(response, local))
    }

    fn on_finished(&self, exchange: &L7Finished, local: &mut dyn Any) {
        if let Some(local) = local.downcast_mut() {
            self.finished(exchange, local);
        }
    }

    fn servers(&self) -> Option<Arc<dyn Upstream>> {
        self.upstream()
    }
}

/// An instance of a type that only brokers can use. No packet reaches it.
pub(crate) struct TypedL7<F>(pub F);

impl<F: L7Function> DynFunction for TypedL7<F> {
    fn any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> &'static str {
        F::TYPE
    }

    fn properties(&self) -> Properties {
        // It sees no packets.
        Properties { takes_large_frames: true, ..Properties::default() }
    }

    fn pad(&self) -> (usize, usize) {
        (0, 1)
    }

    fn is_l7_only(&self) -> bool {
        true
    }

    fn l7(&self) -> Option<&dyn DynL7> {
        Some(&self.0)
    }

    fn local(&self) -> Box<dyn Any + Send> {
        Box::new(())
    }

    fn open(&self, _: &mut [u8], _: &SessionInfo, _: RawContext<'_>, _: &mut dyn Any) {}

    fn release(&self, _: &mut [u8], _: &SessionInfo, _: RawContext<'_>, _: &mut dyn Any) {}

    fn vector(&self, _: RawVector<'_, '_>, _: &mut dyn Any) -> Set {
        Set::EMPTY
    }

    fn set(&self, args: &[&str]) -> Result<(), ArgError> {
        self.0.set(args)
    }

    fn report(&self) -> Vec<(String, String)> {
        self.0.report()
    }

    fn background(&self) -> Option<Background> {
        self.0.background()
    }
}
