//! A file as the body of a request or response.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::fs::File;
use tokio::io::{AsyncRead, ReadBuf};

use crate::artifacts::directory::PIECE;

/// A counter of transferred pieces. A transfer is stalled if the counter does not grow.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<AtomicU64>);

impl Progress {
    pub(super) fn note(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub(super) fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A file of known size, streamed with one piece in memory at a time.
pub(super) struct FileBody {
    file: File,
    left: u64,
    piece: Vec<u8>,
    progress: Progress,
}

impl FileBody {
    pub(super) fn new(file: File, bytes: u64, progress: Progress) -> Self {
        FileBody {
            file,
            left: bytes,
            piece: Vec::new(),
            progress,
        }
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        if this.left == 0 {
            return Poll::Ready(None);
        }
        if this.piece.is_empty() {
            this.piece = vec![0; PIECE.min(usize::try_from(this.left).unwrap_or(PIECE))];
        }
        let mut buffer = ReadBuf::new(&mut this.piece);
        ready!(Pin::new(&mut this.file).poll_read(context, &mut buffer))?;
        let read = buffer.filled().len();
        if read == 0 {
            let error = io::Error::other("it became shorter while it was read");
            return Poll::Ready(Some(Err(error)));
        }
        let mut piece = std::mem::take(&mut this.piece);
        piece.truncate(read);
        this.left -= read as u64;
        this.progress.note();
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
