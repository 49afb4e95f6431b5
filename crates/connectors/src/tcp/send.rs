//! A sink that writes records to a TCP server.

use std::io;
use std::marker::PhantomData;
use std::net::TcpStream;
use std::sync::Arc;

use ardea_core::{
    Delivery, Epoch, Inbox, Instance, InstanceContext, Isolation, Ordinal, Outbox, Processor,
    Progress, Result, Sink,
};

use super::dial::{Backoff, Dialer};
use crate::format::{Encode, Lines};
use crate::record_writer::{OutputBuffer, RecordWriter, Writing, writing_options};

/// Returns a sink that sends each record as a line, formatted with `Display`, to the server at
/// `address`, such as `"localhost:7000"`.
pub fn send<T: Send + 'static>(address: impl Into<String>) -> SendSink<T, Lines> {
    SendSink {
        address: address.into(),
        backoff: None,
        writing: Writing::new(Lines),
        record: PhantomData,
    }
}

/// A sink that connects to a server and writes records to it.
///
/// A connection that cannot be made or that breaks fails the job. With
/// [`reconnect`](Self::reconnect) the sink reconnects and sends the current line again from its
/// beginning. Data that the kernel has accepted but not delivered before the break is lost, since
/// TCP does not report the loss. A header, for example of CSV, is sent once, with the first record.
/// Backpressure applies while the server does not read. A job with a delivery guarantee cannot use
/// this sink.
#[derive(Debug)]
pub struct SendSink<T, E> {
    address: String,
    backoff: Option<Backoff>,
    writing: Writing<E>,
    record: PhantomData<fn(T)>,
}

impl<T: Send + 'static, E: Clone> SendSink<T, E> {
    /// Sets the format.
    pub fn encode<F: Encode<T>>(self, encoder: F) -> SendSink<T, F> {
        let SendSink {
            address,
            backoff,
            writing,
            ..
        } = self;
        let writing = Writing {
            encoder,
            on_error: writing.on_error,
        };
        SendSink {
            address,
            backoff,
            writing,
            record: PhantomData,
        }
    }

    /// Reconnects when the connection cannot be made or breaks.
    pub fn reconnect(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }

    writing_options!();

    /// Builds the sink for a pipeline.
    pub fn build(self) -> Sink<T>
    where
        E: Encode<T>,
    {
        let SendSink {
            address,
            backoff,
            writing,
            ..
        } = self;
        let name = format!("send {address}");
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(SendP::<T, E> {
                dial: Dialer::new(address.clone(), backoff),
                stream: None,
                outgo: RecordWriter::new(&writing),
                pending: OutputBuffer::default(),
            }))
        };
        Sink::new(name, Arc::new(supply))
            .isolation(Isolation::Thread)
            .with_delivery(Delivery::Nothing)
    }
}

impl<T: Send + 'static, E: Encode<T>> From<SendSink<T, E>> for Sink<T> {
    fn from(sink: SendSink<T, E>) -> Self {
        sink.build()
    }
}

/// The processor that writes chunks to a connection in turns.
struct SendP<T, E> {
    dial: Dialer,
    stream: Option<TcpStream>,
    outgo: RecordWriter<T, E>,
    pending: OutputBuffer,
}

impl<T: Send + 'static, E: Encode<T>> SendP<T, E> {
    /// Returns true if the sink is connected; works on the connection for at most one turn.
    fn connected(&mut self) -> Result<bool> {
        if self.stream.is_some() {
            return Ok(true);
        }
        let Some(stream) = self.dial.connect()? else {
            return Ok(false);
        };
        // Non-blocking for writes in turns; no delay, since whole chunks are written.
        if let Err(error) = stream
            .set_nonblocking(true)
            .and_then(|()| stream.set_nodelay(true))
        {
            self.dial.failed(error)?;
            return Ok(false);
        }
        self.stream = Some(stream);
        Ok(true)
    }

    fn push_out(&mut self) -> Result<bool> {
        if self.pending.is_empty() {
            return Ok(true);
        }
        if !self.connected()? {
            return Ok(false);
        }
        let Some(stream) = &mut self.stream else {
            return Ok(false);
        };
        match self.pending.push_out(stream, usize::MAX) {
            Ok(emptied) => Ok(emptied),
            Err(error) => {
                self.broken(error)?;
                Ok(false)
            }
        }
    }

    fn broken(&mut self, error: io::Error) -> Result<()> {
        self.stream = None;
        self.pending.rewind_line();
        self.dial.failed(error)
    }
}

impl<T: Send + 'static, E: Encode<T>> Processor for SendP<T, E> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.outgo.attach(context);
        self.dial.attach(&context.clock);
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        // Records stay in the inbox, where they are counted, until there is a connection.
        if self.push_out()? && self.connected()? {
            self.outgo.encode_all(inbox, &mut self.pending.bytes)?;
        }
        self.on_wake(outbox)
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        OutputBuffer::wake_if_pending(self.push_out()?, outbox);
        Ok(())
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        Some(
            "data sent that the server may not have received, which TCP does not report (write to a file or to a queue such as Kafka)",
        )
    }

    fn on_epoch(&mut self, _: Epoch, _: &mut Outbox) -> Result<Progress> {
        self.push_out().map(Progress::done_if)
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.push_out().map(Progress::done_if)
    }

    fn close(&mut self) {
        self.stream = None;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use ardea_core::ErrorCode;

    use super::*;
    use crate::format::JsonLines;
    use crate::testing::{Fed, eventually};

    #[test]
    fn records_arrive_as_lines_of_the_format() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let received = std::thread::spawn(move || {
            let mut all = String::new();
            listener
                .accept()
                .unwrap()
                .0
                .read_to_string(&mut all)
                .map(|_| all)
        });
        let mut fed = Fed::start(send(address).encode(JsonLines));
        fed.feed([("a", 1)])
            .unwrap()
            .feed([("b", 2)])
            .unwrap()
            .finish()
            .unwrap();
        drop(fed);
        assert_eq!(received.join().unwrap().unwrap(), "[\"a\",1]\n[\"b\",2]\n");
    }

    #[test]
    fn a_server_that_is_not_there_fails_the_job_and_is_named() {
        let address = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .to_string();
        let error = Fed::start(send(&address))
            .feed([1])
            .err()
            .expect("an error");
        assert_eq!(error.code(), ErrorCode::Network);
        assert!(error.to_string().contains(&address), "{error}");
    }

    #[test]
    fn a_broken_connection_is_made_anew_and_lines_stay_whole() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let quick = Backoff {
            first: Duration::from_millis(1),
            ..Backoff::default()
        };
        let again = Arc::new(AtomicBool::new(false));
        let accepted = Arc::clone(&again);
        let server = std::thread::spawn(move || {
            let (first, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(first).read_line(&mut line).unwrap();
            let (second, _) = listener.accept().unwrap();
            accepted.store(true, Ordering::Release);
            BufReader::new(second)
                .lines()
                .map(|line| line.unwrap())
                .collect::<Vec<_>>()
        });
        let mut fed = Fed::start(send(address).reconnect(quick));
        let mut sent = 0u64;
        eventually("a second connection", || {
            fed.feed(sent..sent + 10).unwrap();
            sent += 10;
            again.load(Ordering::Acquire)
        });
        fed.finish().unwrap();
        drop(fed);
        let lines = server.join().unwrap();
        let numbers: Vec<u64> = lines.iter().map(|line| line.parse().unwrap()).collect();
        assert_eq!(numbers.last(), Some(&(sent - 1)));
        assert!(
            numbers.windows(2).all(|pair| pair[1] == pair[0] + 1),
            "no gap, nothing twice"
        );
    }
}
