//! The C library, loaded at run time.
//!
//! The declarations are those of hs_common.h, hs_compile.h and hs_runtime.h of Hyperscan 5. Vectorscan has
//! the same.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};

/// The name of the library with the version of its interface.
const NAME: &str = "libhs.so.5";

/// `hs_database_t`, which only the library reads.
#[repr(C)]
pub(super) struct HsDatabase([u8; 0]);
/// `hs_scratch_t`.
#[repr(C)]
pub(super) struct HsScratch([u8; 0]);
/// `hs_stream_t`.
#[repr(C)]
pub(super) struct HsStream([u8; 0]);

/// `hs_compile_error_t`.
#[repr(C)]
pub(super) struct HsCompileError {
    pub message: *const c_char,
    pub expression: c_int,
}

/// `match_event_handler`: pattern, from, to, flags, context. The positions are `unsigned long long`.
pub(super) type MatchHandler = unsafe extern "C" fn(c_uint, u64, u64, c_uint, *mut c_void) -> c_int;
type Alloc = unsafe extern "C" fn(usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);

type CompileMulti = unsafe extern "C" fn(
    *const *const c_char,
    *const c_uint,
    *const c_uint,
    c_uint,
    c_uint,
    *const c_void,
    *mut *mut HsDatabase,
    *mut *mut HsCompileError,
) -> c_int;
type ScanStream = unsafe extern "C" fn(
    *mut HsStream,
    *const c_char,
    c_uint,
    c_uint,
    *mut HsScratch,
    Option<MatchHandler>,
    *mut c_void,
) -> c_int;
type ResetStream =
    unsafe extern "C" fn(*mut HsStream, c_uint, *mut HsScratch, Option<MatchHandler>, *mut c_void) -> c_int;

/// Functions of the library. It stays loaded.
pub(crate) struct Library {
    pub(super) compile_multi: CompileMulti,
    pub(super) free_compile_error: unsafe extern "C" fn(*mut HsCompileError) -> c_int,
    pub(super) free_database: unsafe extern "C" fn(*mut HsDatabase) -> c_int,
    pub(super) stream_size: unsafe extern "C" fn(*const HsDatabase, *mut usize) -> c_int,
    pub(super) alloc_scratch: unsafe extern "C" fn(*const HsDatabase, *mut *mut HsScratch) -> c_int,
    pub(super) free_scratch: unsafe extern "C" fn(*mut HsScratch) -> c_int,
    pub(super) open_stream: unsafe extern "C" fn(*const HsDatabase, c_uint, *mut *mut HsStream) -> c_int,
    pub(super) scan_stream: ScanStream,
    pub(super) reset_stream: ResetStream,
    version: String,
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library").field("version", &self.version).finish_non_exhaustive()
    }
}

thread_local! {
    /// The memory of the stream that this thread is opening.
    pub(super) static SLOT: Cell<*mut c_void> = const { Cell::new(ptr::null_mut()) };
}

/// Returns the memory of the stream that is being opened, once. NULL if there is none.
#[allow(unsafe_code)]
unsafe extern "C" fn take_slot(_: usize) -> *mut c_void {
    SLOT.replace(ptr::null_mut())
}

/// The memory belongs to a scanner.
#[allow(unsafe_code)]
unsafe extern "C" fn keep_slot(_: *mut c_void) {}

impl Library {
    /// Returns the library, which is loaded with the first call. The error is a sentence.
    pub fn get() -> Result<&'static Library, String> {
        static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
        LIBRARY.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    /// Returns the version of the library.
    pub fn version(&self) -> &str {
        &self.version
    }

    #[allow(unsafe_code)]
    fn load() -> Result<Library, String> {
        // SAFETY: the name has no path, so that the file is one of the system's libraries, which root has
        // installed. Its initialisation touches nothing of this program.
        let handle = unsafe { Handle::open(Some(NAME), RTLD_NOW | RTLD_LOCAL) };
        let handle = handle.map_err(|_| format!("install {NAME} (Debian: libhyperscan5)"))?;
        // SAFETY: each symbol has the type of its declaration in the library's headers.
        let library = unsafe {
            Library {
                compile_multi: symbol(&handle, c"hs_compile_multi")?,
                free_compile_error: symbol(&handle, c"hs_free_compile_error")?,
                free_database: symbol(&handle, c"hs_free_database")?,
                stream_size: symbol(&handle, c"hs_stream_size")?,
                alloc_scratch: symbol(&handle, c"hs_alloc_scratch")?,
                free_scratch: symbol(&handle, c"hs_free_scratch")?,
                open_stream: symbol(&handle, c"hs_open_stream")?,
                scan_stream: symbol(&handle, c"hs_scan_stream")?,
                reset_stream: symbol(&handle, c"hs_reset_stream")?,
                version: version(symbol(&handle, c"hs_version")?),
            }
        };
        // SAFETY: as above. The functions that are given may be called by any thread. Nobody has opened a
        // stream yet.
        unsafe {
            let is_valid: unsafe extern "C" fn() -> c_int = symbol(&handle, c"hs_valid_platform")?;
            if is_valid() != super::SUCCESS {
                return Err("the processor lacks SSSE3".to_owned());
            }
            let set: unsafe extern "C" fn(Alloc, Free) -> c_int =
                symbol(&handle, c"hs_set_stream_allocator")?;
            if set(take_slot, keep_slot) != super::SUCCESS {
                return Err("it does not accept an allocator".to_owned());
            }
        }
        // The functions are used until the process ends.
        std::mem::forget(handle);
        Ok(library)
    }
}

/// Returns a function of the library.
///
/// # Safety
/// `F` is the type of the function.
#[allow(unsafe_code)]
unsafe fn symbol<F: Copy>(handle: &Handle, name: &CStr) -> Result<F, String> {
    // SAFETY: the caller promises the type.
    let found = unsafe { handle.get::<F>(name.to_bytes_with_nul()) };
    found.map(|symbol| *symbol).map_err(|_| format!("{NAME} has no function {}", name.to_string_lossy()))
}

/// Returns the version without the date of the build.
#[allow(unsafe_code)]
fn version(version: unsafe extern "C" fn() -> *const c_char) -> String {
    // SAFETY: hs_version returns a constant text with a zero byte at its end.
    let text = unsafe { CStr::from_ptr(version()) }.to_string_lossy();
    text.split_whitespace().next().unwrap_or_default().to_owned()
}
