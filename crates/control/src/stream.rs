//! Replies that are written while they are sent.
//!
//! Theory of operation. Whoever answers writes to a [`ChunkWriter`] on a thread that may block. What fits one chunk is sent
//! as a whole, with its length; what does not goes out chunk by chunk through a channel that holds a few, so that a listing
//! of millions of entries needs the memory of some thousands, and the listing waits for a reader that is slow. A reader that
//! goes away is an error of the writer, which ends the work. An error of the work after the first chunk cuts the reply off,
//! which HTTP's chunks make plain to the reader; before, it is a refusal like any other.

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
/// Chunks that wait for the reader.
const WAITING: usize = 4;

/// What goes through the channel.
enum Part {
    /// A chunk, and more to come.
    More(Bytes),
    /// The last chunk.
    Last(Bytes),
}

/// Collects what is written into chunks and sends them.
pub(crate) struct ChunkWriter {
    buffer: Vec<u8>,
    parts: mpsc::Sender<Result<Part, io::Error>>,
}

impl ChunkWriter {
    fn send(&mut self, part: impl FnOnce(Bytes) -> Part) -> io::Result<()> {
        let chunk = Bytes::from(std::mem::take(&mut self.buffer));
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "nobody reads the reply any more");
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

    /// Does nothing: a reply that is not complete is sent when there is a chunk of it.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The chunks behind the first.
struct Rest {
    first: Option<Bytes>,
    parts: mpsc::Receiver<Result<Part, io::Error>>,
    ended: bool,
}

impl hyper::body::Body for Rest {
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
            None => Some(Err(io::Error::other("the daemon failed in the middle of a reply"))),
        })
    }
}

/// The reply that `work` writes, on a thread of its own.
pub(crate) async fn reply(
    content_type: &'static str,
    work: impl FnOnce(&mut ChunkWriter) -> io::Result<()> + Send + 'static,
) -> Result<Response, Refusal> {
    let (sender, mut parts) = mpsc::channel(WAITING);
    tokio::task::spawn_blocking(move || {
        let mut writer = ChunkWriter { buffer: Vec::new(), parts: sender };
        if let Err(e) = work(&mut writer).and_then(|()| writer.send(Part::Last)) {
            // If it is the reader that is gone there is nobody to tell.
            let _ = writer.parts.blocking_send(Err(e));
        }
    });
    let refuse = |reason: String| Refusal::failed(format!("the reply could not be written: {reason}"));
    let body = match parts.recv().await {
        Some(Ok(Part::Last(whole))) => Body::from(whole),
        Some(Ok(Part::More(chunk))) => Body::new(Rest { first: Some(chunk), parts, ended: false }),
        Some(Err(e)) => return Err(refuse(e.to_string())),
        None => return Err(refuse("the daemon failed on this request".to_owned())),
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
    fn small_replies_are_whole_and_large_ones_come_in_chunks() {
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
    fn work_stops_when_nobody_reads_and_errors_cut_the_reply_off() {
        runtime().block_on(async {
            let (tell, told) = std::sync::mpsc::channel();
            let endless = reply("text/plain", move |out| {
                let end = (0u64..).find_map(|_| out.write_all(&[0; 4096]).err());
                tell.send(()).unwrap();
                Err(end.unwrap_or_else(|| io::Error::other("it ended")))
            });
            drop(endless.await.unwrap());
            told.recv_timeout(std::time::Duration::from_secs(10)).unwrap();

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
