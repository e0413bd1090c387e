//! The cost of a search beside that of `hs_scan_stream` alone, on the same chunks.
//!
//! `cargo run --release -p mmb-search --example search_cost [LITERALS] [BYTES]`: 100 literals and chunks of
//! 1460 bytes by default. Prints nanoseconds for each chunk, the least of ten rounds.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ops::ControlFlow;
use std::time::Instant;

use libloading::os::unix::{Library, Symbol};
use mmb_search::{Backend, Pattern, PatternSet};

const CHUNKS: usize = 20_000;
const ROUNDS: usize = 10;

type Handler = Option<unsafe extern "C" fn(c_uint, u64, u64, c_uint, *mut c_void) -> c_int>;
type CompileMulti = unsafe extern "C" fn(
    *const *const c_char,
    *const c_uint,
    *const c_uint,
    c_uint,
    c_uint,
    *const c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;
type ScanStream = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    c_uint,
    c_uint,
    *mut c_void,
    Handler,
    *mut c_void,
) -> c_int;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse().expect("a number"));
    let (literals, bytes) = (numbers.next().unwrap_or(100), numbers.next().unwrap_or(1460));
    // Words that do not occur, in text that has their letters.
    let mut random = 1u64;
    let mut next = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    let words: Vec<String> = (0..literals)
        .map(|_| (0..10).map(|_| char::from(b'a' + next(26) as u8)).collect::<String>() + "#")
        .collect();
    let text: Vec<u8> = (0..bytes * 64).map(|_| b'a' + next(26) as u8).collect();
    let chunks: Vec<&[u8]> = text.chunks_exact(bytes).cycle().take(CHUNKS).collect();
    // First: afterwards the library takes the memory of streams from scanners.
    println!("hs_scan_stream  {:8.1} ns", raw(&words, &chunks));
    for backend in [Backend::Hyperscan, Backend::AhoCorasick] {
        println!("{:14}  {:8.1} ns", backend.name(), ours(backend, &words, &chunks));
    }
}

/// Returns the least nanoseconds of a chunk.
fn least(mut round: impl FnMut()) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let begin = Instant::now();
        round();
        begin.elapsed().as_nanos() as f64 / CHUNKS as f64
    });
    times.fold(f64::INFINITY, f64::min)
}

fn ours(backend: Backend, words: &[String], chunks: &[&[u8]]) -> f64 {
    let patterns = words.iter().map(|word| Pattern::parse(word, false).expect("a literal")).collect();
    let set = PatternSet::compile_with(backend, patterns).expect("literals");
    let mut scanner = set.scanner(1).expect("memory");
    let stream = scanner.open().expect("room");
    let mut matches = 0;
    let time = least(|| {
        for chunk in chunks {
            let _ = scanner.scan(stream, chunk, &mut |_| {
                matches += 1;
                ControlFlow::Continue(())
            });
        }
    });
    assert_eq!(matches, 0);
    time
}

/// Loads the library, and calls it as a program in C does.
#[allow(unsafe_code)]
fn raw(words: &[String], chunks: &[&[u8]]) -> f64 {
    let words: Vec<CString> =
        words.iter().map(|word| CString::new(word.as_str()).expect("no zero")).collect();
    let pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
    let (flags, numbers) = (vec![0; words.len()], (0..words.len() as c_uint).collect::<Vec<_>>());
    let null = std::ptr::null_mut;
    let (mut database, mut error, mut scratch, mut stream) = (null(), null(), null(), null());
    // SAFETY: the types are those of hs_compile.h and hs_runtime.h, the arrays have as many elements as is
    // said, and all values live until the end of this function.
    unsafe {
        let library = Library::new("libhs.so.5").expect("Hyperscan");
        let compile: Symbol<CompileMulti> = library.get(b"hs_compile_multi").expect("a function");
        let count = words.len() as c_uint;
        let (mode, platform) = (2, std::ptr::null());
        let (of_flags, of_numbers) = (flags.as_ptr(), numbers.as_ptr());
        let status = compile(
            pointers.as_ptr(),
            of_flags,
            of_numbers,
            count,
            mode,
            platform,
            &mut database,
            &mut error,
        );
        assert_eq!(status, 0);
        type Alloc = unsafe extern "C" fn(*const c_void, *mut *mut c_void) -> c_int;
        let alloc: Symbol<Alloc> = library.get(b"hs_alloc_scratch").expect("a function");
        assert_eq!(alloc(database, &mut scratch), 0);
        type Open = unsafe extern "C" fn(*const c_void, c_uint, *mut *mut c_void) -> c_int;
        let open: Symbol<Open> = library.get(b"hs_open_stream").expect("a function");
        assert_eq!(open(database, 0, &mut stream), 0);
        let scan: Symbol<ScanStream> = library.get(b"hs_scan_stream").expect("a function");
        unsafe extern "C" fn ignore(_: c_uint, _: u64, _: u64, _: c_uint, _: *mut c_void) -> c_int {
            0
        }
        least(|| {
            for chunk in chunks {
                let status = scan(
                    stream,
                    chunk.as_ptr().cast(),
                    chunk.len() as c_uint,
                    0,
                    scratch,
                    Some(ignore),
                    null(),
                );
                assert_eq!(status, 0);
            }
        })
    }
}
