use std::io::{Read, Write};
use std::os::unix::fs::symlink;

use super::*;

/// A directory for clients, beside a file that is not theirs.
struct TestFiles {
    _root: tempfile::TempDir,
    inside: PathBuf,
    secret: PathBuf,
    access: FileAccess,
}

fn test_files() -> TestFiles {
    let root = tempfile::tempdir().unwrap();
    let (inside, secret) = (root.path().join("files"), root.path().join("secret"));
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(&secret, "kept").unwrap();
    let access = FileAccess::within(&inside).unwrap();
    access.seal();
    TestFiles { inside, secret, access, _root: root }
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn clients_name_files_of_one_directory_only() {
    let place = test_files();
    for outside in [place.secret.clone(), "../secret".into(), "a/../../secret".into(), "/etc/passwd".into()] {
        assert!(matches!(place.access.check(&outside), Err(FileError::Outside { .. })), "{outside:?}");
        assert!(place.access.open_input(&outside).is_err());
        assert!(place.access.create_output(&outside).is_err());
        assert!(place.access.open_log(&outside).is_err());
        assert!(place.access.socket(&outside).is_err());
    }
    for invalid in ["", "a\nb", "a\u{1b}[31m"] {
        let refused = place.access.check(Path::new(invalid));
        assert!(matches!(refused, Err(FileError::Invalid { .. })), "{invalid:?}");
    }
    for inside in [place.inside.join("a"), "a".into(), "./a".into()] {
        place.access.check(&inside).unwrap();
    }
    place.access.create_output(Path::new("a")).unwrap().write_all(b"new").unwrap();
    let mut read = String::new();
    place.access.open_input(&place.inside.join("a")).unwrap().read_to_string(&mut read).unwrap();
    assert_eq!((read.as_str(), text(&place.secret).as_str()), ("new", "kept"));
}

#[test]
fn symbolic_links_lead_nowhere() {
    let place = test_files();
    symlink(&place.secret, place.inside.join("file")).unwrap();
    symlink(place.secret.parent().unwrap(), place.inside.join("up")).unwrap();
    for path in ["file", "up/secret", "up/new"] {
        let path = Path::new(path);
        assert!(place.access.open_input(path).is_err(), "{path:?}");
        assert!(place.access.create_output(path).is_err(), "{path:?}");
        assert!(place.access.open_log(path).is_err(), "{path:?}");
    }
    assert!(place.access.socket(Path::new("file")).is_err());
    assert!(place.access.socket(Path::new("up/socket")).is_err());
    assert_eq!(text(&place.secret), "kept");
    assert!(!place.secret.with_file_name("new").exists());
}

#[test]
fn a_file_of_the_administrator_can_be_named_anywhere_and_is_not_overwritten() {
    let TestFiles { inside, secret, .. } = &test_files();
    let access = FileAccess::within(inside).unwrap();
    let new = secret.with_file_name("new");
    access.check(secret).unwrap();
    access.check(&new).unwrap();
    access.seal();
    access.open_input(secret).unwrap();
    assert!(matches!(access.create_output(secret), Err(FileError::Exists { .. })));
    access.create_output(&new).unwrap();
    access.create_output(&new).expect("this process has created it");
    symlink(secret, secret.with_file_name("link")).unwrap();
    assert!(access.check(&secret.with_file_name("link")).is_err(), "not granted");
    assert_eq!(text(secret), "kept");
}

#[test]
fn logs_are_appended() {
    let place = test_files();
    for line in ["a\n", "b\n"] {
        place.access.open_log(Path::new("log")).unwrap().write_all(line.as_bytes()).unwrap();
    }
    assert_eq!(text(&place.inside.join("log")), "a\nb\n");
}

#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let place = test_files();
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, place.inside.join("fifo"), rustix::fs::FileType::Fifo, mode, 0)
        .unwrap();
    std::fs::create_dir(place.inside.join("directory")).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(place.inside.join("socket")).unwrap();
    for name in ["fifo", "directory", "socket"] {
        let path = Path::new(name);
        assert!(place.access.open_input(path).is_err(), "{name}");
        assert!(place.access.create_output(path).is_err(), "{name}");
        assert!(place.access.open_log(path).is_err(), "{name}");
        assert_eq!(place.access.socket(path).is_ok(), name == "socket", "{name}");
    }
    assert_eq!(place.access.socket(Path::new("new")).unwrap().name, "new");
}

#[test]
fn kept_files_are_those_that_were_opened_last() {
    let (folder, access) = (tempfile::tempdir().unwrap(), FileAccess::unrestricted());
    let path = folder.path().join("a");
    let content = |file: Option<File>| file.map(|file| std::io::read_to_string(file).unwrap());
    std::fs::write(&path, "old").unwrap();
    let keeping = access.keeping();
    assert!(keeping.kept_input(&path).is_none(), "nobody has opened it");
    keeping.open_input(&path).unwrap();
    access.open_input(&path).unwrap();
    assert!(access.kept_input(&path).is_none());
    // What takes its place later is another file.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "new").unwrap();
    assert_eq!(content(keeping.kept_input(&path)).as_deref(), Some("old"));
    keeping.open_input(&path).unwrap();
    assert_eq!(content(keeping.kept_input(&path)).as_deref(), Some("new"));
    let other =
        FileAccess::from_opener(move |path| keeping.kept_input(path).ok_or(io::ErrorKind::NotFound.into()));
    assert_eq!(content(other.open_input(&folder.path().join("b")).ok()), None);
    assert!(other.open_input(&path).is_ok());
}

/// What a directory has is known where it cannot be listed, too.
#[test]
fn directories_are_listed_without_links_and_hidden_files() {
    let place = test_files();
    let keeping = Arc::new(place.access.keeping());
    let site = place.inside.join("site");
    std::fs::create_dir_all(site.join("css/deep")).unwrap();
    for name in ["index.html", ".hidden", "css/a.css", "css/deep/b c.css", "with\nline"] {
        std::fs::write(site.join(name), name).unwrap();
    }
    symlink(&place.secret, site.join("secret")).unwrap();
    symlink("..", site.join("up")).unwrap();
    let expected = ["css/a.css", "css/deep/b c.css", "index.html"].map(PathBuf::from);
    for path in [site.clone(), "site".into()] {
        assert_eq!(keeping.list_directory(&path, 3).unwrap(), expected);
    }
    let refused = keeping.list_directory(Path::new("site"), 2).unwrap_err().to_string();
    assert_eq!(refused, "site has more than 2 files");
    for outside in
        [&place.secret, Path::new("../"), Path::new("site/secret"), Path::new("site/up"), Path::new("none")]
    {
        assert!(keeping.list_directory(outside, 9).is_err(), "{outside:?}");
    }
    let opener = keeping.clone();
    let apart =
        FileAccess::from_opener(move |path| opener.kept_input(path).ok_or(io::ErrorKind::NotFound.into()));
    for _ in 0..2 {
        assert_eq!(apart.list_directory(Path::new("site"), 3).unwrap(), expected);
    }
    assert!(apart.list_directory(Path::new("other"), 3).is_err());
}
