//! Settings of the kernel that were changed, and their previous values.
//!
//! Theory of operation. The previous values are in a file before a setting is changed, and the file is
//! removed after they are restored. So the next start can restore them if the process was killed. A file
//! belongs to a network namespace, by its inode, and to an interface. The number of an inode can be used
//! again after a namespace was deleted, so a value is restored only where the changed one still is.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use mmb_system::log;

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
    directory: Option<PathBuf>,
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
        SettingsStore { directory: state.map(|state| state.join(DIRECTORY)) }
    }

    /// Keeps the values before settings of an interface are changed. If they cannot be written, a killed
    /// process leaves the changed ones.
    pub fn save(&self, interface: &str, settings: Vec<Setting>) -> SavedSettings {
        let file = self.directory.as_ref().filter(|_| !settings.is_empty()).and_then(|directory| {
            let file = directory.join(format!("{}-{interface}", namespace().ok()?));
            let written = write(&file, &settings);
            if let Err(reason) = &written {
                log::error(format!(
                    "error: cannot keep the kernel's settings of {interface} in {}: {reason}; \
                     if the process is killed, they stay changed\n",
                    directory.display()
                ));
            }
            written.ok().map(|()| file)
        });
        SavedSettings { settings, file }
    }

    /// Restores what a killed process has left in this network namespace.
    pub fn restore_left(&self) {
        let Some(directory) = &self.directory else { return };
        let Ok(namespace) = namespace() else { return };
        let own = format!("{namespace}-");
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&own) {
                let text = fs::read_to_string(entry.path()).unwrap_or_default();
                SavedSettings { settings: parse(&text), file: Some(entry.path()) }.restore();
            }
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

/// The inode of the network namespace of the calling thread.
fn namespace() -> io::Result<u64> {
    fs::metadata("/proc/thread-self/ns/net").map(|found| found.ino())
}

/// Writes a file as a whole.
fn write(file: &Path, settings: &[Setting]) -> io::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    let line = |s: &Setting| format!("{} {} {}\n", s.path.display(), s.old, s.new);
    let text: String = settings.iter().map(line).collect();
    let part = directory.join(format!(".{}", std::process::id()));
    // Never through a link that somebody has made in the directory.
    let _ = fs::remove_file(&part);
    let mut out = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&part)?;
    out.write_all(text.as_bytes())?;
    out.sync_all()?;
    fs::rename(part, file)
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
    fn no_file_is_written_through_a_link() {
        let root = tempfile::tempdir().unwrap();
        let victim = root.path().join("victim");
        fs::write(&victim, "text").unwrap();
        let part = root.path().join(format!(".{}", std::process::id()));
        std::os::unix::fs::symlink(&victim, part).unwrap();
        let setting = Setting { path: "/proc/sys/net/x".into(), old: "0".into(), new: "1".into() };
        write(&root.path().join("1-eth0"), &[setting]).unwrap();
        assert_eq!(fs::read_to_string(victim).unwrap(), "text");
        assert!(fs::symlink_metadata(root.path().join("1-eth0")).unwrap().is_file());
    }

    #[test]
    fn only_settings_of_the_network_are_read_back() {
        let path = "/proc/sys/net/ipv4/conf/eth0/arp_ignore";
        let good = Setting { path: path.into(), old: "0".into(), new: "8".into() };
        let text = format!("{path} 0 8\n/etc/passwd 0 8\n/proc/sys/net/../kernel/x 0 8\n{path} 0\n\n");
        assert_eq!(parse(&text), [good]);
    }
}
