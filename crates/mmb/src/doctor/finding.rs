//! Findings of checks, and the files of the kernel that checks read.

use std::path::PathBuf;

use serde::Serialize;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    /// As it should be.
    Ok,
    /// Something works worse than it could, or not in all configurations.
    Warning,
    /// Something does not work.
    Failure,
}

impl Status {
    pub(super) fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warning => "warning",
            Status::Failure => "failure",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The name of the check.
    pub(super) check: String,
    pub(super) status: Status,
    /// The result in words.
    pub(super) text: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &str, text: impl Into<String>) -> Finding {
        Finding { check: check.to_owned(), status: Status::Ok, text: text.into(), advice: None }
    }

    pub(super) fn warning(check: &str, text: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { status: Status::Warning, advice: Some(advice.into()), ..Finding::ok(check, text) }
    }

    pub(super) fn failure(check: &str, text: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { status: Status::Failure, advice: Some(advice.into()), ..Finding::ok(check, text) }
    }
}

/// The findings as a document.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) checks: Vec<Finding>,
    pub(super) warnings: usize,
    pub(super) failures: usize,
}

/// The files of the kernel.
pub(super) struct System {
    pub(super) root: PathBuf,
}

impl System {
    /// The path of a file, given from the root of the file system.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The text of a file without blanks at its ends; none if it cannot be read.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.path(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// The number in a file.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.parse().ok()
    }

    /// The names in a directory, in their order.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The last part of the target of a link.
    pub(super) fn link(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }
}

impl Report {
    pub(super) fn of(checks: Vec<Finding>) -> Report {
        let count = |status| checks.iter().filter(|check| check.status == status).count();
        Report { warnings: count(Status::Warning), failures: count(Status::Failure), checks }
    }

    /// One line for each check.
    pub(super) fn render(&self) -> String {
        let width = self.checks.iter().map(|check| check.check.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for Finding { check, status, text: found, advice } in &self.checks {
            let advice = advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
            text.push_str(&format!("{:<7}  {check:<width$}  {found}{advice}\n", status.word()));
        }
        text
    }
}

/// A root directory with these files.
#[cfg(test)]
pub(super) fn system(files: &[(&str, &str)]) -> (tempfile::TempDir, System) {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let system = System { root: root.path().to_owned() };
    (root, system)
}

/// The status of a check.
#[cfg(test)]
pub(super) fn status(findings: &[Finding], check: &str) -> Status {
    findings.iter().find(|f| f.check == check).unwrap_or_else(|| panic!("{check} in {findings:?}")).status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_has_one_line_and_advice_only_where_something_is_wrong() {
        let report = Report::of(vec![
            Finding::ok("memory", "enough"),
            Finding::warning("huge-pages", "none", "add some"),
            Finding::failure("x", "bad", "mend it"),
        ]);
        assert_eq!((report.warnings, report.failures), (1, 1));
        assert_eq!(
            report.render(),
            "ok       memory      enough\nwarning  huge-pages  none; add some\nfailure  x           bad; mend it\n"
        );
        let document = serde_json::to_value(&report).unwrap();
        assert_eq!(
            document["checks"][0],
            serde_json::json!({"check": "memory", "status": "ok", "text": "enough"})
        );
        assert_eq!(document["checks"][2]["advice"], "mend it");
    }
}
