//! Files that functions read.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use mmb_nf::{ArgError, FileAccess};
use mmb_system::FromStart;

/// Reads a whole text.
///
/// # Errors
/// Functions may not name the file, it cannot be read, it is no text, or it is longer than `most` bytes.
pub(crate) fn read_text(path: &str, files: &Arc<FileAccess>, most: u64) -> Result<String, ArgError> {
    let text = String::from_utf8(read_bytes(path, files, most)?);
    text.map_err(|_| format!("cannot read `{path}`: it is not UTF-8").into())
}

/// Reads a whole file.
///
/// # Errors
/// Functions may not name the file, it cannot be read, or it is longer than `most` bytes.
pub(crate) fn read_bytes(path: &str, files: &Arc<FileAccess>, most: u64) -> Result<Vec<u8>, ArgError> {
    // A path of the administrator's file is granted, so that it can be read again later.
    files.check(Path::new(path))?;
    let mut bytes = Vec::new();
    let mut file = FromStart::of(files.open_input(Path::new(path))?).take(most + 1);
    file.read_to_end(&mut bytes).map_err(|error| format!("cannot read `{path}`: {error}"))?;
    if bytes.len() as u64 > most {
        return Err(format!("`{path}` has more than {most} bytes").into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A list that is only read in part would let pass what it names.
    #[test]
    fn files_are_read_whole_or_refused() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"text").unwrap();
        let path = file.path().display().to_string();
        let read = |most| read_text(&path, &Arc::default(), most).map_err(|error| error.to_string());
        assert_eq!(read(4).as_deref(), Ok("text"));
        assert_eq!(read(3), Err(format!("`{path}` has more than 3 bytes")));
        file.write_all(b"\xff").unwrap();
        assert!(read(10).unwrap_err().starts_with("cannot read"));
    }

    #[test]
    fn a_file_of_the_administrator_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["early", "late"].map(|name| folder.path().join(name));
        paths.iter().for_each(|path| std::fs::write(path, "text").unwrap());
        std::fs::create_dir(folder.path().join("files")).unwrap();
        let files = Arc::new(FileAccess::within(&folder.path().join("files")).unwrap());
        let [early, late] = paths.map(|path| path.display().to_string());
        assert!(read_text(&early, &files, 10).is_ok());
        files.seal();
        assert!(read_text(&early, &files, 10).is_ok());
        assert!(read_text(&late, &files, 10).is_err());
    }
}
