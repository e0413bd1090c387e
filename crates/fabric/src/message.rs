//! Messages between the engine, the supervisor and the processes: one JSON value in one packet of a socket of
//! the family AF_UNIX, with descriptors of files beside it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::layout::Geometry;

/// The longest message. Arguments of a function and its report fit.
const LONGEST: usize = 128 << 10;
/// Characters of a reason that are shown.
const LONGEST_REASON: usize = 1000;
/// Most files that a function reads.
pub const MOST_INPUTS: usize = 32;
/// Most descriptors of a message.
const MOST_FILES: usize = 5 + MOST_INPUTS;

/// From the engine to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Start a process, whose end of a socket is the descriptor.
    Start,
    /// Kill a process, and wait for its end.
    Kill(i32),
}

/// From the supervisor to the engine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The number of the process. Descriptor: readable once it has ended.
    Started(i32),
    /// Why there is no process.
    Failed(String),
    /// The process has ended: how, in words.
    Ended(String),
}

/// The first message to a process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum First {
    /// It runs a function for packets.
    Function(Box<Hello>),
    /// It runs a broker, which knows what the value means.
    Broker(serde_json::Value),
}

/// The first message to the process of a function. Descriptors: pool, scratchpads, rings, bell, the packet
/// memory if the process reads packets where they are, and the files that the function reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub name: String,
    pub kind: String,
    pub args: Vec<String>,
    pub ports: Vec<(String, u16)>,
    pub seed: u64,
    /// The word of the mode.
    pub mode: String,
    /// The processor on which the process runs.
    pub cpu: Option<u16>,
    /// The priority of the engine.
    pub priority: i32,
    pub geometry: Geometry,
    /// Bytes from one buffer to the next.
    pub stride: usize,
    /// Where the packet memory begins in its file, and its bytes.
    pub packets: Option<(u64, usize)>,
    /// The paths of the files.
    pub files: Vec<PathBuf>,
}

/// From the engine to a process that runs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// `nf set`: the words, and the paths of the files that the function reads. Descriptors: these files.
    Set(Vec<String>, Vec<PathBuf>),
    /// `show functions`.
    Report,
}

/// From a process to the engine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The function runs.
    Ready,
    /// The answer to a request.
    Set(Result<(), String>),
    Report(Vec<(String, String)>),
    /// Lines for the log of the function, and how many had no room before.
    Lines {
        text: String,
        lost: u64,
    },
    /// The function does not run.
    Failed(String),
}

/// Tells a process which broker it is to run. It gets the value and the descriptors
/// ([`crate::BrokerStart`]).
///
/// # Errors
/// See [`send`].
pub fn send_broker(socket: impl AsFd, broker: serde_json::Value, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    send(socket, &First::Broker(broker), files)
}

/// Makes a pair of connected sockets.
///
/// # Errors
/// The error of the operating system.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Returns the beginning of a text of a process, without control characters.
pub fn printable(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { ' ' } else { one }).take(LONGEST_REASON).collect()
}

/// Whether there is a message, or the other side is gone.
pub fn is_readable(socket: BorrowedFd<'_>) -> bool {
    let mut files = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    poll(&mut files, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Sends a message.
///
/// # Errors
/// The message is too long, or the other side is gone.
pub fn send(socket: impl AsFd, message: &impl Serialize, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with(socket, message, files, SendFlags::NOSIGNAL)
}

/// Sends a message if there is room for it.
///
/// # Errors
/// There is no room, the message is too long, or the other side is gone.
pub fn try_send(socket: impl AsFd, message: &impl Serialize) -> io::Result<()> {
    send_with(socket, message, &[], SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

fn send_with(
    socket: impl AsFd,
    message: &impl Serialize,
    files: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > LONGEST {
        return Err(io::Error::other(format!(
            "the message has {} bytes, and may have {LONGEST}",
            bytes.len()
        )));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("too many descriptors"));
    }
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags)?;
    Ok(())
}

/// Receives a message. None: the other side is gone.
///
/// # Errors
/// The operating system's error, or what came is no such message.
pub fn receive<T: DeserializeOwned>(
    socket: impl AsFd,
    flags: RecvFlags,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            other => break other?,
        }
    };
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            files.extend(all);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(bytes.get(..received.bytes).unwrap_or_default())?, files)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_descriptors_arrive() {
        let (here, there) = pair().unwrap();
        let (file, _) = pair().unwrap();
        send(&here, &Request::Set(vec!["a b".into()], Vec::new()), &[file.as_fd()]).unwrap();
        let (request, files): (Request, _) = receive(&there, RecvFlags::empty()).unwrap().unwrap();
        assert!(matches!(request, Request::Set(words, _) if words == ["a b"]));
        assert_eq!(files.len(), 1);
        drop(here);
        assert!(receive::<Request>(&there, RecvFlags::empty()).unwrap().is_none());
    }

    #[test]
    fn reasons_have_one_line() {
        assert_eq!(printable("a\nb\u{1b}[31mc"), "a b [31mc");
        assert_eq!(printable(&"é".repeat(1100)), "é".repeat(1000));
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        let (here, there) = pair().unwrap();
        send(&here, &"nonsense", &[]).unwrap();
        assert!(receive::<Reply>(&there, RecvFlags::empty()).is_err());
        assert!(send(&here, &"x".repeat(LONGEST), &[]).is_err());
    }
}
