//! A body of lines that come one after the other: newline-delimited JSON.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use hyper::body::{Body, Frame};

use crate::{Fault, LogEvent, LogStream};

/// As many lines go into one frame as are there.
const MOST_LINES: usize = 256;

/// The lines of a log as a body. When the client goes, it is dropped, and whoever sends the lines learns of it.
pub(super) struct Lines {
    stream: LogStream,
    is_over: bool,
}

impl Lines {
    pub(super) fn of(stream: LogStream) -> Self {
        Lines {
            stream,
            is_over: false,
        }
    }
}

impl Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let mut lines = Vec::new();
        if ready!(self.stream.poll_recv_many(context, &mut lines, MOST_LINES)) == 0 {
            return Poll::Ready(None);
        }
        let mut text = Vec::new();
        for line in lines {
            let event = match line {
                Ok(line) => LogEvent::Line(line),
                Err(error) => {
                    self.is_over = true;
                    LogEvent::Fault(Fault::from(&error))
                }
            };
            // Texts and numbers always become JSON, and memory takes it.
            let _ = serde_json::to_writer(&mut text, &event);
            text.push(b'\n');
            if self.is_over {
                break;
            }
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(text)))))
    }
}
