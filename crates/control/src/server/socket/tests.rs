use super::*;

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn binds_with_mode_0660_and_removes_the_socket_at_the_end() {
    let dir = dir();
    let path = dir.path().join("sub/mmb.sock");
    let socket = ControlSocket::bind(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o660);
    drop(socket);
    assert!(!path.exists());
}

#[test]
fn a_second_daemon_is_refused_and_the_first_keeps_its_socket() {
    let dir = dir();
    let path = dir.path().join("s");
    let first = ControlSocket::bind(&path).unwrap();
    let error = ControlSocket::bind(&path).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("another mmb daemon is already running on {}; stop it or use --socket", path.display())
    );
    assert!(UnixStream::connect(&path).is_ok());
    drop(first);
    assert!(ControlSocket::bind(&path).is_ok());
}

#[test]
fn a_dead_daemons_socket_is_replaced() {
    let dir = dir();
    let path = dir.path().join("s");
    // SIGKILL leaves a socket without a listener.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let _socket = ControlSocket::bind(&path).unwrap();
    assert!(UnixStream::connect(&path).is_ok());
}

#[test]
fn the_socket_of_another_program_is_kept() {
    let dir = dir();
    let path = dir.path().join("s");
    let _other = UnixListener::bind(&path).unwrap();
    let error = ControlSocket::bind(&path).unwrap_err();
    assert!(matches!(error, SocketError::Taken(_)), "{error}");
    assert!(UnixStream::connect(&path).is_ok());
}

#[test]
fn a_file_that_is_not_a_socket_is_kept() {
    let dir = dir();
    let path = dir.path().join("s");
    fs::write(&path, "precious").unwrap();
    let error = ControlSocket::bind(&path).unwrap_err();
    assert!(matches!(error, SocketError::NotASocket(_)), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    assert!(!dir.path().join("s.lock").exists());
}

#[test]
fn a_path_too_long_for_a_socket_address_is_refused() {
    let path = dir().path().join("x".repeat(120));
    assert!(matches!(ControlSocket::bind(&path).unwrap_err(), SocketError::TooLong(_)));
}

#[test]
fn one_of_many_daemons_that_start_at_once_gets_the_socket() {
    let dir = dir();
    let path = dir.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    let results: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| ControlSocket::bind(&path))).collect();
        starts.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 1);
    assert!(results.iter().all(|r| r.is_ok() || matches!(r, Err(SocketError::Running(_)))));
}
