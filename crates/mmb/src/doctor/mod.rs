//! `mmb doctor`: whether this machine has what the daemon needs, and what to do where it does not.
//!
//! Theory of operation. Each check reads the system and has one finding. Nothing is changed, and no daemon is
//! needed. Files of the kernel are read below a root directory, so that tests can put others in their place.

mod daemon;
mod finding;
mod interfaces;
mod kernel;
mod memory;
mod rights;

use std::path::PathBuf;

use self::finding::{Report, System};
use crate::cli::DoctorArgs;
use crate::failure::{FAILED, Failure};
use crate::pager::Pager;

/// Runs all checks and prints their findings.
///
/// # Errors
/// A check has failed: the text for standard error is the number of failures.
pub fn run(args: &DoctorArgs, socket: Option<PathBuf>, json: bool, pager: &Pager) -> Result<(), Failure> {
    let system = System { root: PathBuf::from("/") };
    let mut checks = memory::check(&system);
    checks.extend(rights::check());
    checks.extend(kernel::check(&system));
    checks.extend(interfaces::cards(&system));
    checks.extend(args.interfaces.iter().flat_map(|name| interfaces::check(&system, name)));
    checks.extend(daemon::check(socket, args.state_dir.as_deref()));
    let report = Report::of(checks);
    if json {
        pager.print_json(&report)?
    } else {
        pager.print(&report.render())?
    }
    match report.failures {
        0 => Ok(()),
        1 => Err(Failure { text: "error: 1 check has failed".to_owned(), status: FAILED }),
        n => Err(Failure { text: format!("error: {n} checks have failed"), status: FAILED }),
    }
}
