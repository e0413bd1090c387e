//! An instance of a function, whatever its type.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mmb_lang::{Match, NfAdd};

use crate::context::Emissions;
use crate::flow_type::Flow;
use crate::set::Set;
use crate::vector::RawVector;
use crate::{Admission, Background, Context, Function, OpeningPacket, Properties, SessionInfo, Vector};

/// `nf add INSTANCE TYPE ARG…`, made.
pub struct Instance {
    name: Arc<str>,
    kind: &'static str,
    args: Vec<Box<str>>,
    traits: Properties,
    class: Vec<Match>,
    flow: Option<Option<u32>>,
    /// Tells it from all others that this process has made.
    pub(crate) uid: u64,
    pub(crate) function: Box<dyn Erased>,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Most outputs of a function.
const MOST_OUTPUTS: usize = 64;

static MADE: AtomicU64 = AtomicU64::new(0);

impl Instance {
    pub(crate) fn new(name: &str, args: &[Box<str>], function: Box<dyn Erased>) -> Result<Instance, String> {
        let traits = function.properties();
        let class = if traits.accepts.trim().is_empty() {
            Ok(Vec::new())
        } else {
            mmb_lang::parse_matches(&traits.accepts)
        };
        let class = class.map_err(|error| {
            format!("the function's class `{}` is not understood: {error}", traits.accepts)
        })?;
        check_outputs(&traits.outputs)?;
        Ok(Instance {
            name: name.into(),
            kind: function.kind(),
            args: args.to_vec(),
            traits,
            class,
            flow: function.any().downcast_ref::<Holder<Flow>>().map(|holder| holder.0.sessions),
            uid: MADE.fetch_add(1, Ordering::Relaxed),
            function,
        })
    }

    /// What chains know it by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The function's [`Function::TYPE`].
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The words behind its type.
    pub fn args(&self) -> &[Box<str>] {
        &self.args
    }

    /// What the function says of itself.
    pub fn properties(&self) -> &Properties {
        &self.traits
    }

    /// The traffic it takes: all of these hold.
    pub fn class(&self) -> &[Match] {
        &self.class
    }

    /// Whether it is what the line makes.
    pub(crate) fn is(&self, add: &NfAdd) -> bool {
        *self.name == *add.name.text && *self.kind == *add.kind.text && self.args == add.args
    }

    /// Size and alignment of its scratchpad.
    pub(crate) fn pad(&self) -> (usize, usize) {
        self.function.pad()
    }

    /// A second flow manager, and how many sessions it has been told to have room for.
    pub(crate) fn flow(&self) -> Option<Option<u32>> {
        self.flow
    }

    /// Bytes of its scratchpad.
    pub fn bytes(&self) -> usize {
        self.function.pad().0
    }

    /// See [`Function::set`].
    ///
    /// # Errors
    /// The function's.
    pub fn set(&self, words: &[&str]) -> Result<(), String> {
        self.function.set(words)
    }

    /// See [`Function::report`].
    pub fn report(&self) -> Vec<(String, String)> {
        self.function.report()
    }

    /// See [`Function::background`]: to be asked for once.
    pub fn background(&self) -> Option<Background> {
        self.function.background()
    }
}

/// Whether brackets can name them.
fn check_outputs(outputs: &[String]) -> Result<(), String> {
    if outputs.len() > MOST_OUTPUTS {
        return Err(format!("a function has at most {MOST_OUTPUTS} outputs"));
    }
    for (n, output) in outputs.iter().enumerate() {
        if output == "else" {
            return Err(
                "no output can be called `else`, which in brackets stands for all that are not named"
                    .to_owned(),
            );
        }
        if outputs[..n].contains(output) {
            return Err(format!("two outputs are called `{output}`"));
        }
    }
    Ok(())
}

/// What surrounds a function that is at work, before it is known which.
pub(crate) struct RawContext<'a> {
    pub now: u32,
    pub worker: u16,
    pub emissions: &'a mut Emissions,
    pub at: Option<u8>,
    pub back: u16,
}

/// A function whose type is forgotten. Scratchpads are bytes, `local` is what [`Erased::local`] made.
pub(crate) trait Erased: Send + Sync {
    fn any(&self) -> &dyn Any;
    fn kind(&self) -> &'static str;
    fn properties(&self) -> Properties;
    /// Size and alignment of the scratchpad.
    fn pad(&self) -> (usize, usize);
    fn local(&self) -> Box<dyn Any + Send>;
    fn admit(&self, first: &mut OpeningPacket<'_>, local: &mut dyn Any) -> Admission;
    fn route(&self, first: &OpeningPacket<'_>, local: &mut dyn Any) -> Option<u8>;
    fn open(&self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>, local: &mut dyn Any);
    fn release(&self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>, local: &mut dyn Any);
    /// The positions of packets that do not pass.
    fn vector(&self, raw: RawVector<'_, '_>, local: &mut dyn Any) -> Set;
    fn set(&self, words: &[&str]) -> Result<(), String>;
    fn report(&self) -> Vec<(String, String)>;
    fn background(&self) -> Option<Background>;
}

pub(crate) struct Holder<F>(pub F);

impl<F: Function> Erased for Holder<F> {
    fn any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> &'static str {
        F::TYPE
    }

    fn properties(&self) -> Properties {
        self.0.properties()
    }

    fn pad(&self) -> (usize, usize) {
        (size_of::<F::Pad>(), align_of::<F::Pad>())
    }

    fn local(&self) -> Box<dyn Any + Send> {
        Box::new(F::Local::default())
    }

    fn admit(&self, first: &mut OpeningPacket<'_>, local: &mut dyn Any) -> Admission {
        local.downcast_mut().map_or(Admission::Open, |local| self.0.admit(first, local))
    }

    fn route(&self, first: &OpeningPacket<'_>, local: &mut dyn Any) -> Option<u8> {
        local.downcast_mut().and_then(|local| self.0.route(first, local))
    }

    fn open(&self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>, local: &mut dyn Any) {
        if let (Ok(pad), Some(local)) = (bytemuck::try_from_bytes_mut(pad), local.downcast_mut()) {
            self.0.open(pad, session, &mut cx.typed(local));
        }
    }

    fn release(&self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>, local: &mut dyn Any) {
        if let (Ok(pad), Some(local)) = (bytemuck::try_from_bytes_mut(pad), local.downcast_mut()) {
            self.0.release(pad, session, &mut cx.typed(local));
        }
    }

    fn vector(&self, raw: RawVector<'_, '_>, local: &mut dyn Any) -> Set {
        let Some(local) = local.downcast_mut() else { return Set::EMPTY };
        let mut vector = Vector { raw, local };
        self.0.vector(&mut vector);
        vector.raw.events
    }

    fn set(&self, words: &[&str]) -> Result<(), String> {
        self.0.set(words)
    }

    fn report(&self) -> Vec<(String, String)> {
        self.0.report()
    }

    fn background(&self) -> Option<Background> {
        self.0.background()
    }
}

impl<'a> RawContext<'a> {
    fn typed<L>(self, local: &'a mut L) -> Context<'a, L> {
        let RawContext { now, worker, emissions, at, back } = self;
        Context { now, worker, local, emissions, at, back }
    }
}
