//! Settings of the kernel that were changed, and their previous values.
//!
//! Theory of operation. The previous values are in a file before a setting is changed, so that the next start
//! can restore them if the process was killed ([`InterfaceFiles`]). The file may be that of an interface in
//! another namespace with the same number, so a value is restored only where the changed one still is.

use std::fs;
use std::path::{Path, PathBuf};

use mmb_system::{InterfaceFiles, log};

/// The directory of the files, inside the state directory.
const DIRECTORY: &str = "kernel-settings";
/// All settings are below this directory.
const ROOT: &str = "/proc/sys/net/";

/// A setting with its previous value and the one that it was changed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub path: PathBuf,
    pub old: String,
    pub new: String,
}

/// Where previous values are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingsStore {
    /// None: they are lost when the process is killed.
    files: Option<InterfaceFiles>,
}

/// Previous values of the settings of an interface.
#[derive(Debug)]
pub(crate) struct SavedSettings {
    settings: Vec<Setting>,
    file: Option<PathBuf>,
}

impl SettingsStore {
    /// A store in a state directory.
    pub fn new(state: Option<&Path>) -> SettingsStore {
        SettingsStore { files: state.map(|state| InterfaceFiles::new(state.join(DIRECTORY))) }
    }

    /// Keeps the values before settings of an interface are changed. If they cannot be written, a killed
    /// process leaves the changed ones.
    pub fn save(&self, interface: &str, settings: Vec<Setting>) -> SavedSettings {
        let file = self.files.as_ref().filter(|_| !settings.is_empty()).and_then(|files| {
            let written = files.write(interface, &text(&settings));
            if let Err(reason) = &written {
                log::error(format!(
                    "error: cannot keep the kernel's settings of {interface} in {}: {reason}; \
                     if the process is killed, they stay changed\n",
                    files.directory().display()
                ));
            }
            written.ok()
        });
        SavedSettings { settings, file }
    }

    /// Restores what a killed process has left in this network namespace.
    pub fn restore_left(&self) {
        for left in self.files.iter().flat_map(InterfaceFiles::left) {
            SavedSettings { settings: parse(&left.text), file: Some(left.path) }.restore();
        }
    }
}

impl SavedSettings {
    /// The settings.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Restores the previous values in reverse order, where nobody has changed them since.
    pub fn restore(self) {
        for Setting { path, old, new } in self.settings.iter().rev() {
            if fs::read_to_string(path).is_ok_and(|now| now.trim_end() == new) {
                // The interface may be gone meanwhile.
                let _ = fs::write(path, old);
            }
        }
        if let Some(file) = self.file {
            // A file that stays does no harm: its values are not those of the settings any more.
            let _ = fs::remove_file(file);
        }
    }
}

/// The text of a file.
fn text(settings: &[Setting]) -> String {
    settings.iter().map(|s| format!("{} {} {}\n", s.path.display(), s.old, s.new)).collect()
}

/// The settings of a file. Lines that are not settings are left out.
fn parse(text: &str) -> Vec<Setting> {
    let setting = |line: &str| {
        let [path, old, new] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let is_setting = path.starts_with(ROOT) && !path.contains("/../");
        is_setting.then(|| Setting { path: path.into(), old: old.to_owned(), new: new.to_owned() })
    };
    text.lines().filter_map(setting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_in_a_file_and_restored_where_nobody_changed_them() {
        let root = tempfile::tempdir().unwrap();
        let store = SettingsStore::new(Some(root.path()));
        let file = |name: &str, value: &str| {
            let path = root.path().join(name);
            fs::write(&path, format!("{value}\n")).unwrap();
            path
        };
        let (a, b) = (file("a", "1"), file("b", "7"));
        let setting = |path: &Path| Setting { path: path.to_owned(), old: "0".into(), new: "1".into() };
        let saved = store.save("eth0", vec![setting(&a), setting(&b)]);
        let kept = saved.file.clone().unwrap();
        assert!(kept.exists());
        saved.restore();
        assert_eq!([a, b].map(|path| fs::read_to_string(path).unwrap()), ["0", "7\n"]);
        assert!(!kept.exists());
    }

    #[test]
    fn only_settings_of_the_network_are_read_back() {
        let path = "/proc/sys/net/ipv4/conf/eth0/arp_ignore";
        let good = Setting { path: path.into(), old: "0".into(), new: "8".into() };
        let text = format!("{path} 0 8\n/etc/passwd 0 8\n/proc/sys/net/../kernel/x 0 8\n{path} 0\n\n");
        assert_eq!(parse(&text), [good]);
    }
}
