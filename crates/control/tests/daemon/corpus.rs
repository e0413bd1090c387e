//! The properties of the fuzz targets `config` and `api` on their corpora.

use std::path::Path;

use crate::harness::daemon;

#[path = "../../../../fuzz/src/control/api.rs"]
mod api;
#[path = "../../../../fuzz/src/control/config.rs"]
mod config;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = std::fs::read_dir(folder).expect("the corpus");
    let files: Vec<_> =
        files.map(|file| std::fs::read(file.expect("a file").path()).expect("readable")).collect();
    assert!(files.len() >= 5, "{} files", files.len());
    files
}

#[test]
fn files_become_a_configuration_or_are_refused() {
    corpus("config").iter().for_each(|file| config::check(file));
}

#[test]
fn any_requests_leave_a_whole_configuration() {
    let daemon = daemon();
    let target = api::Daemon::new(daemon.control.clone());
    corpus("api").iter().for_each(|file| target.check(file));
    daemon.reset();
}
