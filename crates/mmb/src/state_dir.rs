//! The directory of what the daemon keeps, and of the files that clients name.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use mmb_system::FileAccess;

use crate::failure::Failure;

/// Where files of clients are, inside the state directory.
const FILES: &str = "files";

/// The state directory of a daemon.
pub struct StateDirectory {
    /// The files that commands may name.
    pub files: FileAccess,
    /// Why there is no directory.
    pub warning: Option<String>,
}

/// Opens the state directory, and creates it if it does not exist.
///
/// # Errors
/// A directory that the user named cannot be created. Without the default one, the daemon starts too.
pub fn open(named: Option<&Path>, is_root: bool) -> Result<StateDirectory, Failure> {
    let path = named.map(Path::to_owned).or_else(|| default_path(is_root));
    let opened = path.ok_or_else(|| "neither XDG_STATE_HOME nor HOME is set".to_owned()).and_then(|path| {
        let files = path.join(FILES);
        let create = DirBuilder::new().recursive(true).mode(0o750).create(&files);
        create.map_err(|error| format!("cannot create {}: {error}", files.display()))?;
        FileAccess::within(&files).map_err(|error| error.to_string())
    });
    match opened {
        Ok(files) => Ok(StateDirectory { files, warning: None }),
        Err(reason) if named.is_some() => Err(Failure::new(reason)),
        Err(reason) => {
            let warning = format!("no state directory: {reason}; commands cannot name files");
            Ok(StateDirectory { files: FileAccess::unrestricted(), warning: Some(warning) })
        }
    }
}

/// The state directory of a daemon that this user would start; none if the environment names none.
pub fn path(named: Option<&Path>) -> Option<PathBuf> {
    named.map(Path::to_owned).or_else(|| default_path(rustix::process::geteuid().is_root()))
}

/// The directory of a systemd service, else `/var/lib/mmb` for root, else the one of the user.
fn default_path(is_root: bool) -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    // systemd separates directories by colons; the first is the main one of the service.
    if let Some(dirs) = variable("STATE_DIRECTORY") {
        return dirs.to_string_lossy().split(':').next().map(PathBuf::from);
    }
    if is_root {
        return Some(PathBuf::from("/var/lib/mmb"));
    }
    let home = || variable("HOME").map(|home| Path::new(&home).join(".local/state"));
    variable("XDG_STATE_HOME").map(PathBuf::from).or_else(home).map(|base| base.join("mmb"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_named_must_be_there() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b");
        let state = open(Some(&path), false).unwrap_or_else(|failure| panic!("{}", failure.text));
        assert_eq!(state.files.directory(), Some(path.join("files").as_path()));
        let file = root.path().join("file");
        std::fs::write(&file, "").unwrap();
        let failure = open(Some(&file), false).err().unwrap();
        assert!(failure.text.contains(&format!("cannot create {}", file.join("files").display())));
    }
}
