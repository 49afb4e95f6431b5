//! Response bodies of streams of JSON: a line for each object, or a server-sent event.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ardea_core::Result;
use axum::body::Bytes;
use hyper::body::{Body, Frame};
use serde::Serialize;
use tokio::sync::mpsc::Receiver;

use crate::ApiError;

/// Maximum number of lines in one frame.
const MOST_LINES: usize = 256;

/// The text around each object of a stream.
#[derive(Clone, Copy)]
struct Framing {
    before: &'static [u8],
    after: &'static [u8],
}

const LINES: Framing = Framing {
    before: b"",
    after: b"\n",
};
const SERVER_SENT_EVENTS: Framing = Framing {
    before: b"data: ",
    after: b"\n\n",
};

/// A response body that streams events. It is dropped when the client disconnects, and the producer
/// of the events then stops.
pub(super) struct JsonLinesBody<T, E> {
    stream: Receiver<Result<T>>,
    framing: Framing,
    line: fn(T) -> E,
    fault: fn(ApiError) -> E,
    is_over: bool,
}

impl<T, E> JsonLinesBody<T, E> {
    /// Creates a body of lines. `line` converts items, and `fault` converts the error that ends the
    /// stream.
    pub(super) fn of(
        stream: Receiver<Result<T>>,
        line: fn(T) -> E,
        fault: fn(ApiError) -> E,
    ) -> Self {
        JsonLinesBody {
            stream,
            framing: LINES,
            line,
            fault,
            is_over: false,
        }
    }

    /// Creates a body of server-sent events; see [`of`](Self::of).
    pub(super) fn events(
        stream: Receiver<Result<T>>,
        line: fn(T) -> E,
        fault: fn(ApiError) -> E,
    ) -> Self {
        JsonLinesBody {
            framing: SERVER_SENT_EVENTS,
            ..JsonLinesBody::of(stream, line, fault)
        }
    }
}

impl<T, E: Serialize> Body for JsonLinesBody<T, E> {
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
                    (self.fault)(ApiError::from(&error))
                }
            };
            text.extend_from_slice(self.framing.before);
            // Serialization of strings and numbers to memory can't fail.
            let _ = serde_json::to_writer(&mut text, &event);
            text.extend_from_slice(self.framing.after);
            if self.is_over {
                break;
            }
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(text)))))
    }
}
