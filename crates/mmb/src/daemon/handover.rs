//! Taking over from a running daemon: what both daemons say to each other.
//!
//! Theory of operation. The new daemon connects to the socket `PATH.next`, which only root and the user of
//! the old daemon may use. It goes on only if root or its own user listens there, since the configuration
//! may name any file. It gets the running configuration, prepares all that it can, and asks for the
//! rest: first for copies of the sessions, which it restores while the old daemon goes on, and then for
//! everything. The old daemon forwards nothing more ([`Suspension`]) and sends descriptors: the lock and the
//! listening sockets of its control socket, and a file in memory with the sessions that have changed. It
//! closes its ports, while the new daemon restores these. The new daemon opens the ports and says so. The
//! old one agrees, and ends. Until then, the end of the connection, or silence, makes the old daemon go on
//! with everything; a new daemon that gets no agreement ends.
//!
//! | from | message |
//! |---|---|
//! | old | [`OFFER`], the configuration, the name of its file; or [`REFUSAL`] and a sentence |
//! | new | [`COPY`] |
//! | old | [`COPIES`], zero, a descriptor; or [`REFUSAL`], zero, a sentence |
//! | new | [`GO`] |
//! | old | [`SESSIONS`], a byte of flags, descriptors; or [`REFUSAL`], zero, a sentence |
//! | old | [`CLOSED`], when its ports are closed |
//! | new | [`DONE`] |
//! | old | [`AGREED`] |
//!
//! Texts have their length in front, as 32 bits in little-endian order. A file with sessions begins with the
//! positions of copies that are of no use, and their number, as words of 32 bits in the same order.

use std::fs::File;
use std::io::{self, BufWriter, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mmb_control::{ChangedSessions, Control, ControlSocket, SessionFile, SocketDescriptors, Suspension};
use mmb_system::log;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, UCred, recvmsg, sendmsg,
};
use tokio::net::UnixListener;

use super::sessions::owner_of;
use crate::failure::Failure;

const OFFER: u8 = b'c';
const REFUSAL: u8 = b'e';
const COPY: u8 = b'x';
const COPIES: u8 = b'k';
const GO: u8 = b'g';
const SESSIONS: u8 = b's';
const CLOSED: u8 = b'p';
const DONE: u8 = b'd';
const AGREED: u8 = b'a';

/// Time that the new daemon has to prepare itself.
const PREPARATION: Duration = Duration::from_secs(60);
/// Time that the new daemon has to open the ports.
const OPENING: Duration = Duration::from_secs(10);
/// Time for an answer that needs no work.
const ANSWER: Duration = Duration::from_secs(5);
/// Longest text: a configuration with a million rules has some 100 MB.
const LONGEST: u32 = 1 << 30;
/// Most descriptors: sessions, lock, sockets of takeovers, operators, readers, metrics, API and web page.
const FILES: usize = 8;
/// In a byte behind [`SESSIONS`]: there is a socket of readers.
const READERS: u8 = 1;

fn send_text(stream: &mut UnixStream, text: &str) -> io::Result<()> {
    let length = u32::try_from(text.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    stream.write_all(&length.to_le_bytes())?;
    stream.write_all(text.as_bytes())
}

fn receive_text(stream: &mut UnixStream) -> io::Result<String> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    let read = stream.take(length.into()).read_to_end(&mut bytes)?;
    if read != length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn receive_byte(stream: &mut UnixStream, patience: Duration) -> io::Result<u8> {
    stream.set_read_timeout(Some(patience))?;
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    Ok(byte[0])
}

/// The process at the other end, and whether it is root's or this user's.
fn peer_of(stream: &UnixStream) -> io::Result<(UCred, bool)> {
    let peer = socket_peercred(stream)?;
    Ok((peer, peer.uid.is_root() || peer.uid == rustix::process::geteuid()))
}

/// The running daemon, as the one that takes over sees it.
pub struct Predecessor {
    stream: UnixStream,
    path: PathBuf,
    /// The text of its configuration.
    pub text: String,
    /// The file that its configuration came from.
    pub file: Option<PathBuf>,
}

impl Predecessor {
    /// Connects to the daemon on a control socket, and gets its configuration.
    ///
    /// # Errors
    /// There is none, this user may not take over, it is of a user that this one does not trust, or it
    /// refuses.
    pub fn connect(path: &Path) -> Result<Predecessor, Failure> {
        let mut stream = ControlSocket::connect_takeover(path).map_err(Failure::new)?;
        let (peer, is_trusted) = peer_of(&stream).map_err(|error| lost(path, &error))?;
        if !is_trusted {
            let user = peer.uid.as_raw();
            return Err(refused(path, &format!("user {user} has started it; take it over as that user")));
        }
        let mut receive = || {
            if receive_byte(&mut stream, ANSWER)? == REFUSAL {
                return Ok(Err(receive_text(&mut stream)?));
            }
            let text = receive_text(&mut stream)?;
            let file = receive_text(&mut stream)?;
            Ok(Ok((text, file)))
        };
        let answer = receive().map_err(|error| lost(path, &error))?;
        let (text, file) = answer.map_err(|reason| refused(path, &reason))?;
        let file = (!file.is_empty()).then(|| PathBuf::from(file));
        Ok(Predecessor { stream, path: path.to_owned(), text, file })
    }

    /// Returns copies of the sessions of the daemon, which goes on.
    ///
    /// # Errors
    /// It refuses, or the connection is lost.
    pub fn copy_sessions(&mut self) -> Result<SessionFile, Failure> {
        let (path, stream) = (self.path.clone(), &mut self.stream);
        let mut receive = || {
            stream.write_all(&[COPY])?;
            stream.set_read_timeout(Some(PREPARATION))?;
            let ([byte, _], files) = receive_files(stream)?;
            if byte == REFUSAL {
                return Ok(Err(receive_text(stream)?));
            }
            let file = files.into_iter().next().filter(|_| byte == COPIES);
            Ok(Ok(read_file(file.ok_or(io::ErrorKind::InvalidData)?)?))
        };
        let answer = receive().map_err(|error| lost(&path, &error))?;
        let bytes = answer.map_err(|reason| refused(&path, &reason))?;
        Ok(sessions_of(&path, &bytes)?.file)
    }

    /// Makes the daemon forward nothing more, and calls `stopped` at once. Returns its control socket and the
    /// sessions that have changed.
    ///
    /// # Errors
    /// It refuses, or the connection is lost. It goes on then.
    pub fn take(&mut self, stopped: impl FnOnce()) -> Result<(ControlSocket, ChangedSessions), Failure> {
        let (path, stream) = (self.path.clone(), &mut self.stream);
        let receive = || {
            stream.write_all(&[GO])?;
            stream.set_read_timeout(Some(OPENING))?;
            let ([byte, flags], files) = receive_files(stream)?;
            if byte == REFUSAL {
                return Ok(Err(receive_text(stream)?));
            }
            if byte != SESSIONS {
                return Err(io::ErrorKind::InvalidData.into());
            }
            stopped();
            let mut files = files.into_iter();
            let mut next = || files.next().ok_or(io::ErrorKind::InvalidData);
            let bytes = read_file(next()?)?;
            let (lock, takeover, operators) = (next()?, next()?, next()?);
            let readers = (flags & READERS != 0).then(&mut next).transpose()?;
            let services = files.collect();
            Ok(Ok((bytes, SocketDescriptors { lock, takeover, operators, readers, services })))
        };
        let answer = receive().map_err(|error| lost(&path, &error))?;
        let (bytes, descriptors) = answer.map_err(|reason| refused(&path, &reason))?;
        let sessions = sessions_of(&path, &bytes)?;
        let socket = ControlSocket::from_descriptors(&path, descriptors).map_err(Failure::new)?;
        Ok((socket, sessions))
    }

    /// Waits until the daemon has closed its ports.
    ///
    /// # Errors
    /// The connection is lost. It goes on then.
    pub fn wait_for_ports(&mut self) -> Result<(), Failure> {
        match receive_byte(&mut self.stream, OPENING) {
            Ok(CLOSED) => Ok(()),
            Ok(_) => Err(refused(&self.path, "it goes on")),
            Err(error) => Err(lost(&self.path, &error)),
        }
    }

    /// Tells the daemon that its ports are open here, and waits until it agrees.
    ///
    /// # Errors
    /// It does not: it goes on.
    pub fn finish(mut self) -> Result<(), Failure> {
        let mut agree = || {
            self.stream.write_all(&[DONE])?;
            receive_byte(&mut self.stream, ANSWER)
        };
        match agree() {
            Ok(AGREED) => Ok(()),
            Ok(_) => Err(refused(&self.path, "it goes on")),
            Err(error) => Err(lost(&self.path, &error)),
        }
    }
}

/// Reads a file in memory, whatever was read of it before.
fn read_file(file: OwnedFd) -> io::Result<Vec<u8>> {
    let (mut file, mut bytes) = (File::from(file), Vec::new());
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads sessions from the bytes of a file in memory.
fn sessions_of(path: &Path, bytes: &[u8]) -> Result<ChangedSessions, Failure> {
    let split = || {
        let (count, rest) = bytes.split_first_chunk()?;
        let (gone, rest) = rest.split_at_checked(u32::from_le_bytes(*count) as usize * 4)?;
        Some((gone.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect(), rest))
    };
    let (gone, rest) = split().ok_or_else(|| refused(path, "sessions: the file is truncated"))?;
    let file = SessionFile::read(rest).map_err(|error| refused(path, &format!("sessions: {error}")))?;
    Ok(ChangedSessions { gone, file })
}

fn refused(path: &Path, reason: &str) -> Failure {
    Failure::new(format!("the daemon at {} is not taken over: {reason}", path.display()))
}

fn lost(path: &Path, error: &io::Error) -> Failure {
    refused(path, &format!("the connection to it is lost: {error}"))
}

/// Hands this daemon, with the control socket at `path`, over to the first one that takes it. Returns the
/// number of that process. All descriptors that this needs are there when the function returns.
pub fn serve(
    control: Arc<Control>,
    socket: &SocketDescriptors,
    path: &Path,
) -> impl Future<Output = u32> + use<> {
    let owner = owner_of(path);
    let opened = socket.copy().and_then(|socket| Ok((socket.takeover.try_clone()?, Arc::new(socket))));
    async move {
        let opened =
            opened.and_then(|(listener, socket)| Ok((UnixListener::from_std(listener.into())?, socket)));
        match opened {
            Ok((listener, socket)) => accept(control, &listener, socket, owner).await,
            Err(error) => {
                log::error(format!("error: nobody can take over this daemon: {error}\n"));
                std::future::pending().await
            }
        }
    }
}

/// Hands this daemon over to one that connects to `listener`. Returns the number of that process.
async fn accept(
    control: Arc<Control>,
    listener: &UnixListener,
    socket: Arc<SocketDescriptors>,
    owner: String,
) -> u32 {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: some may come back.
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        let (control, socket, owner) = (control.clone(), socket.clone(), owner.clone());
        let exchange = move || {
            let stream = stream.into_std()?;
            stream.set_nonblocking(false)?;
            hand_over(&control, &socket, &owner, stream)
        };
        match tokio::task::spawn_blocking(exchange).await {
            Ok(Ok(Some(process))) => return process,
            Ok(Ok(None)) | Err(_) => {}
            Ok(Err(error)) => log::error(format!("error: another daemon has not taken over: {error}\n")),
        }
    }
}

/// Hands this daemon over. Returns the number of the process that has taken over; none if it was refused.
fn hand_over(
    control: &Control,
    socket: &SocketDescriptors,
    owner: &str,
    mut stream: UnixStream,
) -> io::Result<Option<u32>> {
    let (peer, is_trusted) = peer_of(&stream)?;
    if !is_trusted {
        return Ok(None);
    }
    stream.set_write_timeout(Some(ANSWER))?;
    let mut refuse = |reason: String| {
        stream.write_all(&[REFUSAL])?;
        send_text(&mut stream, &reason)?;
        Ok(None)
    };
    let text = match control.transferable_text() {
        Ok(text) => text,
        Err(reason) => return refuse(reason.to_string()),
    };
    stream.write_all(&[OFFER])?;
    send_text(&mut stream, &text)?;
    let file = control.file().map(Path::to_string_lossy).unwrap_or_default();
    send_text(&mut stream, &file)?;
    let (mut request, mut copies) = (receive_byte(&mut stream, PREPARATION)?, None);
    if request == COPY {
        let Some((file, marks)) = control.copy_sessions(owner) else {
            return refuse_late(stream, "its workers do not respond");
        };
        let copied = memory_file(&ChangedSessions { gone: Vec::new(), file })?;
        send_files(&stream, [COPIES, 0], &[copied.as_fd()])?;
        copies = Some(marks);
        request = receive_byte(&mut stream, PREPARATION)?;
    }
    if request != GO {
        return Ok(None);
    }
    let (sessions, mut suspension) = match control.suspend(owner, copies) {
        Ok(suspended) => suspended,
        Err(reason) => return refuse_late(stream, &reason.to_string()),
    };
    // From here on, an error drops the suspension, and everything goes on.
    send_sessions(&stream, &sessions, socket)?;
    suspension.close();
    stream.write_all(&[CLOSED])?;
    drop(sessions);
    finish(stream, suspension)?;
    Ok(Some(peer.pid.as_raw_nonzero().get().cast_unsigned()))
}

/// Refuses what has a byte of flags in its answer.
fn refuse_late(mut stream: UnixStream, reason: &str) -> io::Result<Option<u32>> {
    stream.write_all(&[REFUSAL, 0])?;
    send_text(&mut stream, reason)?;
    Ok(None)
}

/// Waits until the other daemon has opened the ports.
fn finish(mut stream: UnixStream, suspension: Suspension<'_>) -> io::Result<()> {
    if receive_byte(&mut stream, OPENING)? != DONE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    stream.write_all(&[AGREED])?;
    suspension.complete();
    Ok(())
}

/// Sends the sessions and the descriptors of the control socket.
fn send_sessions(
    stream: &UnixStream,
    sessions: &ChangedSessions,
    socket: &SocketDescriptors,
) -> io::Result<()> {
    let file = memory_file(sessions)?;
    let mut files =
        vec![file.as_fd(), socket.lock.as_fd(), socket.takeover.as_fd(), socket.operators.as_fd()];
    files.extend(socket.readers.iter().chain(&socket.services).map(AsFd::as_fd));
    let flags = if socket.readers.is_some() { READERS } else { 0 };
    send_files(stream, [SESSIONS, flags], &files)
}

/// Writes sessions to a file in memory.
fn memory_file(sessions: &ChangedSessions) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"mmb-sessions", MemfdFlags::CLOEXEC)?);
    let mut out = BufWriter::with_capacity(1 << 20, &mut file);
    for number in std::iter::once(sessions.gone.len() as u32).chain(sessions.gone.iter().copied()) {
        out.write_all(&number.to_le_bytes())?;
    }
    sessions.file.write(&mut out)?;
    out.flush()?;
    drop(out);
    Ok(file)
}

/// Sends two bytes with descriptors.
fn send_files(stream: &UnixStream, bytes: [u8; 2], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(files));
    sendmsg(stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives two bytes with descriptors.
fn receive_files(stream: &UnixStream) -> io::Result<([u8; 2], Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let (mut control, mut bytes) = (RecvAncillaryBuffer::new(&mut space), [0; 2]);
    let received =
        recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes != bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    Ok((bytes, files.flatten().collect()))
}
