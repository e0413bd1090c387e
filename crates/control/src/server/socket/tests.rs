use super::*;

fn bind(path: &Path) -> Result<ControlSocket, SocketError> {
    ControlSocket::bind(path, &SocketGroups::default())
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn binds_with_mode_0660_and_removes_the_socket_at_the_end() {
    let dir = dir();
    let path = dir.path().join("sub/mmb.sock");
    let socket = bind(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o660);
    drop(socket);
    assert!(!path.exists());
}

#[test]
fn a_second_daemon_is_refused_and_the_first_keeps_its_socket() {
    let dir = dir();
    let path = dir.path().join("s");
    let first = bind(&path).unwrap();
    let error = bind(&path).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("another mmb daemon is already running on {}; stop it or use --socket", path.display())
    );
    assert!(UnixStream::connect(&path).is_ok());
    drop(first);
    assert!(bind(&path).is_ok());
}

#[test]
fn a_dead_daemons_socket_is_replaced() {
    let dir = dir();
    let path = dir.path().join("s");
    // SIGKILL leaves a socket without a listener.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let _socket = bind(&path).unwrap();
    assert!(UnixStream::connect(&path).is_ok());
}

#[test]
fn the_socket_of_another_program_is_kept() {
    let dir = dir();
    let path = dir.path().join("s");
    let _other = UnixListener::bind(&path).unwrap();
    let error = bind(&path).unwrap_err();
    assert!(matches!(error, SocketError::Taken(_)), "{error}");
    assert!(UnixStream::connect(&path).is_ok());
}

#[test]
fn a_file_that_is_not_a_socket_is_kept() {
    let dir = dir();
    let path = dir.path().join("s");
    fs::write(&path, "precious").unwrap();
    let error = bind(&path).unwrap_err();
    assert!(matches!(error, SocketError::NotASocket(_)), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    assert!(!dir.path().join("s.lock").exists());
}

#[test]
fn a_path_too_long_for_a_socket_address_is_refused() {
    let path = dir().path().join("x".repeat(120));
    assert!(matches!(bind(&path).unwrap_err(), SocketError::TooLong(_)));
}

#[test]
fn one_of_many_daemons_that_start_at_once_gets_the_socket() {
    let dir = dir();
    let path = dir.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    let results: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| bind(&path))).collect();
        starts.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 1);
    assert!(results.iter().all(|r| r.is_ok() || matches!(r, Err(SocketError::Running(_)))));
}

#[test]
fn readers_have_a_socket_of_their_own() {
    let dir = dir();
    let path = dir.path().join("s");
    let own = Group::from_gid(nix::unistd::getegid()).unwrap().unwrap().name;
    let groups = SocketGroups { operators: None, readers: Some(own) };
    let mut socket = ControlSocket::bind(&path, &groups).unwrap();
    assert!(socket.take_listeners().unwrap().readers.is_some());
    let read = dir.path().join("s.read");
    assert_eq!(fs::metadata(&read).unwrap().permissions().mode() & 0o7777, 0o660);
    drop(socket);
    assert!(!path.exists() && !read.exists());
    let groups = SocketGroups { operators: Some("no such group".into()), readers: None };
    let error = ControlSocket::bind(&path, &groups).unwrap_err().to_string();
    assert!(error.starts_with("there is no group `no such group`"), "{error}");
}

#[test]
fn the_paths_pass_to_another_daemon_without_a_gap() {
    let dir = dir();
    let path = dir.path().join("s");
    let mut old = bind(&path).unwrap();
    assert_eq!(fs::metadata(takeover_path(&path)).unwrap().permissions().mode() & 0o7777, 0o600);
    drop(ControlSocket::connect_takeover(&path).unwrap());
    // A daemon that fails leaves everything as it was.
    drop(ControlSocket::from_descriptors(&path, old.descriptors().copy().unwrap()).unwrap());
    assert!(UnixStream::connect(&path).is_ok() && path.exists());
    let mut new = ControlSocket::from_descriptors(&path, old.descriptors().copy().unwrap()).unwrap();
    old.set_removed(false);
    drop(old);
    assert!(UnixStream::connect(&path).is_ok());
    assert!(matches!(bind(&path).unwrap_err(), SocketError::Running(_)), "the lock has passed, too");
    new.set_removed(true);
    drop(new);
    assert!(!path.exists() && !takeover_path(&path).exists());
    assert!(bind(&path).is_ok());
}
