//! Properties of configuration files for any text. The fuzz target `config` runs them on the fuzzer's bytes,
//! a test of the crate on the corpus.
//!
//! * A file is a configuration, or it is refused with errors that have a place in it.
//! * The text of a configuration is a configuration, and the same one.
//! * Two files in turn give what the second one gives alone, if it has interfaces.

use std::sync::{Arc, LazyLock};

use mmb_control::{Config, Platform, Refusal, file};
use mmb_system::FileAccess;

/// Maximum length of an input in bytes.
const LONGEST: usize = 1 << 14;

/// Panics if a property does not hold. A zero byte separates two files.
pub fn check(bytes: &[u8]) {
    if bytes.len() > LONGEST {
        return;
    }
    let mut files = bytes.splitn(2, |byte| *byte == 0);
    let empty = empty();
    let first = load(files.next().unwrap_or_default(), &empty);
    let (Some(first), Some(text)) = (first, files.next()) else { return };
    let alone = load(text, &empty);
    let successor = load(text, &first);
    if let (Some(alone), Some(successor)) = (alone, successor)
        && !alone.interfaces().is_empty()
    {
        assert_eq!(file::text(&alone), file::text(&successor));
    }
}

/// A configuration without a line. The directory of its files is empty.
fn empty() -> Config {
    static FILES: LazyLock<Arc<FileAccess>> = LazyLock::new(|| {
        let directory = tempfile::tempdir().expect("a directory").keep();
        let files = FileAccess::within(&directory).expect("a directory");
        files.seal();
        Arc::new(files)
    });
    Config::with_platform(Platform { workers: 2, files: FILES.clone(), ..Platform::default() })
}

/// Loads a file and checks what it becomes.
fn load(text: &[u8], base: &Config) -> Option<Config> {
    let checked = file::check(text, base).is_ok();
    match file::load(text, base) {
        Ok(config) => {
            check_text(&config, base);
            Some(config)
        }
        Err(refusal) => {
            assert!(!checked || !base.interfaces().is_empty(), "{refusal}");
            check_refusal(text, &refusal);
            None
        }
    }
}

fn check_text(config: &Config, base: &Config) {
    let text = file::text(config);
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    let again = match file::load(text.as_bytes(), base) {
        Ok(again) => again,
        Err(refusal) => panic!("{text}: {refusal}"),
    };
    assert_eq!(file::text(&again), text);
    let (before, after) = (file::Snapshot::new(config), file::Snapshot::new(&again));
    let changes = file::diff(&before, &after);
    assert!(changes.added.is_empty() && changes.removed.is_empty() && !changes.reordered, "{changes:?}");
}

fn check_refusal(text: &[u8], refusal: &Refusal) {
    assert!(!refusal.message.is_empty() && !refusal.diagnostics.is_empty());
    let lines = text.split(|byte| *byte == b'\n').count();
    for error in &refusal.diagnostics {
        assert!(!error.message.is_empty(), "{error:?}");
        assert!((1..=lines).contains(&(error.line as usize)), "{error:?} of {lines} lines");
        assert!(error.start <= error.end && error.end <= text.len() as u64, "{error:?}");
    }
}
