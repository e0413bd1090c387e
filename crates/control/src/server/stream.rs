//! Replies that are sent while they are written.
//!
//! Theory of operation. The work writes to a [`ChunkWriter`] on a thread that may block. A reply that fits
//! one chunk is sent with its length. A longer one is sent chunk by chunk through a bounded channel, so that
//! a listing of millions of entries needs the memory of some thousands, and waits for a slow reader. If the
//! reader disconnects, the writer gets an error, which ends the work. An error of the work before the first
//! chunk is a refusal. An error after it cuts the reply off, which HTTP's chunked encoding shows to the
//! reader.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tokio::sync::mpsc;

use crate::error::Refusal;

/// Bytes in a chunk.
const CHUNK: usize = 64 << 10;
/// Maximum number of chunks in the channel.
const QUEUED: usize = 4;

/// An item of the channel.
enum Part {
    /// A chunk that is not the last.
    More(Bytes),
    /// The last chunk.
    Last(Bytes),
}

/// Collects written bytes into chunks and sends them.
pub(crate) struct ChunkWriter {
    buffer: Vec<u8>,
    parts: mpsc::Sender<Result<Part, io::Error>>,
}

impl ChunkWriter {
    fn send(&mut self, part: impl FnOnce(Bytes) -> Part) -> io::Result<()> {
        let chunk = Bytes::from(std::mem::take(&mut self.buffer));
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the reader has disconnected");
        self.parts.blocking_send(Ok(part(chunk))).map_err(gone)
    }
}

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > CHUNK && !self.buffer.is_empty() {
            self.send(Part::More)?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Sends what was written. Without a flush, bytes are sent when they fill a chunk.
    ///
    /// # Errors
    /// The reader has disconnected, even if there is nothing to send.
    fn flush(&mut self) -> io::Result<()> {
        match self.buffer.is_empty() {
            true if self.parts.is_closed() => {
                Err(io::Error::new(io::ErrorKind::BrokenPipe, "the reader has disconnected"))
            }
            true => Ok(()),
            false => self.send(Part::More),
        }
    }
}

/// The body of a reply of several chunks.
struct ChunkedBody {
    first: Option<Bytes>,
    parts: mpsc::Receiver<Result<Part, io::Error>>,
    ended: bool,
}

impl hyper::body::Body for ChunkedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        self.parts.poll_recv(context).map(|part| match part {
            Some(Ok(Part::More(chunk))) => Some(Ok(Frame::data(chunk))),
            Some(Ok(Part::Last(chunk))) => {
                self.ended = true;
                Some(Ok(Frame::data(chunk)))
            }
            Some(Err(e)) => Some(Err(e)),
            None => Some(Err(io::Error::other("the reply is incomplete: internal error"))),
        })
    }
}

/// The reply that `work` writes on a thread that may block.
pub(crate) async fn reply(
    content_type: &'static str,
    work: impl FnOnce(&mut ChunkWriter) -> io::Result<()> + Send + 'static,
) -> Result<Response, Refusal> {
    let (sender, mut parts) = mpsc::channel(QUEUED);
    tokio::task::spawn_blocking(move || {
        let mut writer = ChunkWriter { buffer: Vec::new(), parts: sender };
        if let Err(e) = work(&mut writer).and_then(|()| writer.send(Part::Last)) {
            // If the reader has disconnected, nobody receives the error.
            let _ = writer.parts.blocking_send(Err(e));
        }
    });
    let refuse = |reason: String| Refusal::failed(format!("cannot write the reply: {reason}"));
    let body = match parts.recv().await {
        Some(Ok(Part::Last(whole))) => Body::from(whole),
        Some(Ok(Part::More(chunk))) => Body::new(ChunkedBody { first: Some(chunk), parts, ended: false }),
        Some(Err(e)) => return Err(refuse(e.to_string())),
        None => return Err(refuse("internal error".to_owned())),
    };
    Ok(([(header::CONTENT_TYPE, content_type)], body).into_response())
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn small_replies_are_whole_and_large_ones_are_chunked() {
        runtime().block_on(async {
            let small = reply("text/plain", |out| out.write_all(b"hello")).await.unwrap();
            assert_eq!(hyper::body::Body::size_hint(small.body()).exact(), Some(5));
            let line = [b'x'; 1000];
            let large = reply("text/plain", move |out| (0..1000).try_for_each(|_| out.write_all(&line)));
            let mut body = large.await.unwrap().into_body();
            let (mut frames, mut bytes) = (0, 0);
            while let Some(frame) = body.frame().await {
                let data = frame.unwrap().into_data().unwrap();
                assert!(data.len() <= CHUNK);
                frames += 1;
                bytes += data.len();
            }
            assert_eq!((bytes, frames), (1_000_000, 1_000_000usize.div_ceil(65_000)));
        });
    }

    #[test]
    fn a_disconnected_reader_ends_the_work_and_errors_cut_the_reply_off() {
        runtime().block_on(async {
            let (sender, receiver) = std::sync::mpsc::channel();
            let endless = reply("text/plain", move |out| {
                let end = (0u64..).find_map(|_| out.write_all(&[0; 4096]).err());
                sender.send(()).unwrap();
                Err(end.unwrap_or_else(|| io::Error::other("it ended")))
            });
            drop(endless.await.unwrap());
            receiver.recv_timeout(std::time::Duration::from_secs(10)).unwrap();

            let failing = reply("text/plain", |out| {
                out.write_all(&[0; CHUNK])?;
                out.write_all(&[0; CHUNK])?;
                Err(io::Error::other("enough"))
            });
            assert!(failing.await.unwrap().into_body().collect().await.is_err());
            let refused = reply("text/plain", |_| Err(io::Error::other("not at all"))).await.unwrap_err();
            assert!(refused.message.contains("not at all"), "{refused}");
        });
    }
}
