//! Patterns by Hyperscan.
//!
//! Theory of operation. Hyperscan allocates the state of a stream when it is opened, by a function that can
//! be replaced. Ours returns the slot of the scanner that is about to open a stream. So the state lies in
//! memory that was reserved before, and its end needs no call: the slot is used again. The other ways cost
//! more: packing a state into own memory and unpacking it (`hs_compress_stream`, `hs_expand_stream`) takes a
//! copy for each packet, and the search of single blocks needs a copy of the end of the chunk before, and
//! fails for regular expressions.
//!
//! A scratch space belongs to a scanner, which one thread uses at a time.

mod library;

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ops::ControlFlow;
use std::ptr::{self, NonNull};
use std::sync::Arc;

pub(crate) use library::Library;
use library::{HsDatabase, HsScratch, HsStream, SLOT};

use crate::{Expression, Match, OnMatch, Pattern, Scan, SearchError, Slots, StreamNumber};

/// `HS_SUCCESS`, `HS_SCAN_TERMINATED`, `HS_COMPILER_ERROR` of hs_common.h.
const SUCCESS: c_int = 0;
const TERMINATED: c_int = -3;
const COMPILER_ERROR: c_int = -4;
/// Flags of hs_compile.h.
const CASELESS: c_uint = 1;
const DOTALL: c_uint = 2;
const MULTILINE: c_uint = 4;
/// `HS_MODE_STREAM` of hs_compile.h.
const MODE_STREAM: c_uint = 2;

/// A compiled set of patterns.
#[derive(Debug)]
pub(crate) struct Database {
    library: &'static Library,
    database: NonNull<HsDatabase>,
    stream_bytes: usize,
}

// SAFETY: a database is not changed after it was compiled, and the functions that read it may be called by
// several threads at once (Hyperscan's developer reference, "Runtime").
#[allow(unsafe_code)]
unsafe impl Send for Database {}
// SAFETY: see above.
#[allow(unsafe_code)]
unsafe impl Sync for Database {}

impl Database {
    /// Compiles patterns.
    #[allow(unsafe_code)]
    pub fn compile(library: &'static Library, patterns: &[Pattern]) -> Result<Database, SearchError> {
        let mut expressions = Vec::with_capacity(patterns.len());
        for (index, pattern) in patterns.iter().enumerate() {
            let message = "a regular expression has no zero byte; write `\\x00`".to_owned();
            let text = pattern.text.to_string();
            let expression = CString::new(pattern.to_expression());
            expressions.push(expression.map_err(|_| SearchError::Pattern { index, text, message })?);
        }
        let pointers: Vec<*const c_char> = expressions.iter().map(|one| one.as_ptr()).collect();
        let flags: Vec<c_uint> = patterns.iter().map(flags).collect();
        let numbers: Vec<c_uint> = (0..patterns.len() as c_uint).collect();
        let (mut database, mut error) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the three arrays have as many elements as is said, the expressions end with zero bytes, and
        // all live until the call returns. Platform NULL is this machine.
        let status = unsafe {
            (library.compile_multi)(
                pointers.as_ptr(),
                flags.as_ptr(),
                numbers.as_ptr(),
                numbers.len() as c_uint,
                MODE_STREAM,
                ptr::null(),
                &mut database,
                &mut error,
            )
        };
        let Some(database) = NonNull::new(database).filter(|_| status == SUCCESS) else {
            return Err(library.compile_error(status, error, patterns));
        };
        let mut database = Database { library, database, stream_bytes: 0 };
        // SAFETY: the database is valid, and the size is written before the call returns.
        let status = unsafe { (library.stream_size)(database.database.as_ptr(), &mut database.stream_bytes) };
        match status {
            SUCCESS => Ok(database),
            status => Err(SearchError::Compile(format!("hs_stream_size fails with {status}"))),
        }
    }

    /// Returns the bytes of the state of a stream.
    pub fn stream_bytes(&self) -> usize {
        self.stream_bytes
    }
}

impl Drop for Database {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the database was made by hs_compile_multi, and no scanner uses it any more: each has a
        // reference.
        unsafe { (self.library.free_database)(self.database.as_ptr()) };
    }
}

fn flags(pattern: &Pattern) -> c_uint {
    let case = if pattern.ignores_case { CASELESS } else { 0 };
    match &pattern.expression {
        Expression::Literal(_) => case,
        Expression::Regex(regex) => {
            let dot = if regex.dot_matches_all { DOTALL } else { 0 };
            case | dot | if regex.is_multiline { MULTILINE } else { 0 }
        }
    }
}

impl Library {
    /// Makes the error of a compilation, and frees what Hyperscan has written.
    #[allow(unsafe_code)]
    fn compile_error(
        &self,
        status: c_int,
        error: *mut library::HsCompileError,
        patterns: &[Pattern],
    ) -> SearchError {
        if status != COMPILER_ERROR || error.is_null() {
            return SearchError::Compile(format!("hs_compile_multi fails with {status}"));
        }
        // SAFETY: with HS_COMPILER_ERROR, `error` points to a valid structure, whose message is a text with a
        // zero byte at its end, until hs_free_compile_error is called, here and only once.
        let (message, expression) = unsafe {
            let message = CStr::from_ptr((*error).message).to_string_lossy().trim_end_matches('.').to_owned();
            let expression = (*error).expression;
            (self.free_compile_error)(error);
            (message, expression)
        };
        match usize::try_from(expression).ok().and_then(|index| Some((index, patterns.get(index)?))) {
            Some((index, pattern)) => SearchError::Pattern { index, text: pattern.text.to_string(), message },
            None => SearchError::Compile(message),
        }
    }
}

/// A part of the memory of streams. Its alignment is the one of cache lines.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

/// See [`Scan`].
pub(crate) struct HyperscanScanner {
    database: Arc<Database>,
    scratch: NonNull<HsScratch>,
    /// The states of streams. The capacity never changes, so that states do not move.
    memory: Vec<Line>,
    lines_per_stream: usize,
    slots: Slots,
}

// SAFETY: scratch space and states may be used by any thread, one at a time. Methods take `&mut self`.
#[allow(unsafe_code)]
unsafe impl Send for HyperscanScanner {}

impl HyperscanScanner {
    /// Reserves memory for a number of streams.
    #[allow(unsafe_code)]
    pub fn new(database: &Arc<Database>, most_streams: usize) -> Result<HyperscanScanner, SearchError> {
        let mut scratch = ptr::null_mut();
        // SAFETY: the database is valid. NULL asks for a new scratch space.
        let status = unsafe { (database.library.alloc_scratch)(database.database.as_ptr(), &mut scratch) };
        let Some(scratch) = NonNull::new(scratch).filter(|_| status == SUCCESS) else {
            return Err(SearchError::Compile(format!("hs_alloc_scratch fails with {status}")));
        };
        let lines_per_stream = database.stream_bytes().div_ceil(size_of::<Line>());
        Ok(HyperscanScanner {
            database: database.clone(),
            scratch,
            memory: Vec::with_capacity(most_streams * lines_per_stream),
            lines_per_stream,
            slots: Slots::new(most_streams),
        })
    }

    /// Returns the state of a stream. None: the stream is not open.
    fn state(&mut self, stream: StreamNumber) -> Option<*mut HsStream> {
        let is_open = self.slots.is_open(stream.slot());
        self.place(stream.slot()).filter(|_| is_open).map(|place| place.cast())
    }

    /// Returns the memory of a slot.
    fn place(&mut self, slot: usize) -> Option<*mut Line> {
        let from = slot * self.lines_per_stream;
        Some(self.memory.get_mut(from..from + self.lines_per_stream)?.as_mut_ptr())
    }

    /// Makes the state of a stream in its slot.
    #[allow(unsafe_code)]
    fn init(&mut self, slot: usize) -> Option<()> {
        let place = self.place(slot)?;
        let mut stream = ptr::null_mut();
        SLOT.set(place.cast());
        // SAFETY: the database is valid. Hyperscan allocates once, the number of bytes of hs_stream_size, and
        // gets `place`, which has at least as many.
        let status =
            unsafe { (self.database.library.open_stream)(self.database.database.as_ptr(), 0, &mut stream) };
        SLOT.set(ptr::null_mut());
        (status == SUCCESS && ptr::eq(stream.cast(), place)).then_some(())
    }

    /// Sets a stream back. With a closure, it gets the matches at the end of the stream.
    #[allow(unsafe_code)]
    fn reset(&mut self, state: *mut HsStream, on_match: Option<&mut Report<'_, '_>>) {
        let (handler, context): (Option<library::MatchHandler>, _) = match on_match {
            Some(report) => (Some(report_match), ptr::from_mut(report).cast::<c_void>()),
            None => (None, ptr::null_mut()),
        };
        // SAFETY: the state is one that hs_open_stream has made, the scratch space is for its database and
        // not in use, and the handler uses `context` during the call only, with its type.
        let status = unsafe {
            (self.database.library.reset_stream)(state, 0, self.scratch.as_ptr(), handler, context)
        };
        debug_assert!(matches!(status, SUCCESS | TERMINATED), "hs_reset_stream: {status}");
    }
}

impl Drop for HyperscanScanner {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: hs_alloc_scratch has made it, and it is not in use. The states are plain memory.
        unsafe { (self.database.library.free_scratch)(self.scratch.as_ptr()) };
    }
}

/// What a handler needs.
struct Report<'a, 'b> {
    on_match: &'a mut OnMatch<'b>,
    is_ended: bool,
}

/// Hyperscan calls this for each match (`match_event_handler`). A result other than 0 ends the scan.
#[allow(unsafe_code)]
unsafe extern "C" fn report_match(
    pattern: c_uint,
    _: u64,
    end: u64,
    _: c_uint,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `context` is the `Report` of the call that is running, and nobody else uses it meanwhile.
    let report = unsafe { &mut *context.cast::<Report<'_, '_>>() };
    report.is_ended |= (report.on_match)(Match { end, pattern }).is_break();
    c_int::from(report.is_ended)
}

impl Scan for HyperscanScanner {
    fn open(&mut self) -> Option<StreamNumber> {
        let (slot, is_new) = self.slots.take()?;
        if is_new {
            let len = self.memory.len() + self.lines_per_stream;
            debug_assert!(len <= self.memory.capacity());
            self.memory.resize(len, Line([0; 64]));
        }
        if self.init(slot).is_none() {
            self.slots.release(slot);
            return None;
        }
        StreamNumber::of_slot(slot)
    }

    fn close(&mut self, stream: StreamNumber) {
        self.slots.release(stream.slot());
    }

    #[allow(unsafe_code)]
    fn scan(&mut self, stream: StreamNumber, bytes: &[u8], on_match: &mut OnMatch<'_>) -> ControlFlow<()> {
        let Some(state) = self.state(stream) else { return ControlFlow::Continue(()) };
        let mut report = Report { on_match, is_ended: false };
        for chunk in bytes.chunks(c_uint::MAX as usize) {
            // SAFETY: the state is one that hs_open_stream has made, the scratch space is for its database
            // and not in use, `chunk` has as many bytes as is said, and the handler uses the report during
            // the call only.
            let status = unsafe {
                (self.database.library.scan_stream)(
                    state,
                    chunk.as_ptr().cast(),
                    chunk.len() as c_uint,
                    0,
                    self.scratch.as_ptr(),
                    Some(report_match),
                    ptr::from_mut(&mut report).cast(),
                )
            };
            if status != SUCCESS {
                // With valid arguments, this is HS_SCAN_TERMINATED.
                debug_assert_eq!(status, TERMINATED, "hs_scan_stream");
                self.reset(state, None);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn finish(&mut self, stream: StreamNumber, on_match: &mut OnMatch<'_>) -> ControlFlow<()> {
        let Some(state) = self.state(stream) else { return ControlFlow::Continue(()) };
        let mut report = Report { on_match, is_ended: false };
        self.reset(state, Some(&mut report));
        if report.is_ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn open_streams(&self) -> usize {
        self.slots.open()
    }

    fn most_streams(&self) -> usize {
        self.slots.most
    }
}
