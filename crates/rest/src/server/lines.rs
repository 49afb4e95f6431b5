//! A body of lines that come one after the other: newline-delimited JSON.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ardea_core::Result;
use axum::body::Bytes;
use hyper::body::{Body, Frame};
use serde::Serialize;
use tokio::sync::mpsc::Receiver;

use crate::Fault;

/// As many lines go into one frame as are there.
const MOST_LINES: usize = 256;

/// What comes one after the other as a body. When the client goes, it is dropped, and whoever sends the lines learns of it.
pub(super) struct Lines<T, E> {
    stream: Receiver<Result<T>>,
    line: fn(T) -> E,
    fault: fn(Fault) -> E,
    is_over: bool,
}

impl<T, E> Lines<T, E> {
    /// A line says what `line` makes of what comes, or the last one what `fault` makes of why no more does.
    pub(super) fn of(stream: Receiver<Result<T>>, line: fn(T) -> E, fault: fn(Fault) -> E) -> Self {
        Lines {
            stream,
            line,
            fault,
            is_over: false,
        }
    }
}

impl<T, E: Serialize> Body for Lines<T, E> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
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
                Ok(line) => (self.line)(line),
                Err(error) => {
                    self.is_over = true;
                    (self.fault)(Fault::from(&error))
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
