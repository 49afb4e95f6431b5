//! A source that reads records from a TCP server.

use std::io;
use std::marker::PhantomData;
use std::net::TcpStream;
use std::sync::Arc;

use ardea_core::{
    Instance, InstanceContext, Isolation, Outbox, Processor, Progress, Result, Source,
    SourceControl, Unbounded,
};

use super::dial::{Backoff, Dialer};
use crate::OnDamage;
use crate::decompressed::Damage;
use crate::fd_poll::{CancellablePoll, not_now};
use crate::format::{Decode, Lines};
use crate::record_reader::{Intake, NextAction, READ_SIZE, Reading, reading_options};

/// Returns a source of lines of text from the server at `address`, such as `"localhost:7000"`.
pub fn connect(address: impl Into<String>) -> ConnectSource<String, Lines> {
    ConnectSource {
        address: address.into(),
        backoff: None,
        reading: Reading::new(Lines),
        record: PhantomData,
    }
}

/// A source that connects to a server and reads records from it.
///
/// Without [`reconnect`](Self::reconnect) the source ends when the server closes the connection; a
/// connection that cannot be made or that breaks fails the job. With `reconnect` the source
/// reconnects in all these cases; data sent meanwhile is lost. A partial line before a break is a
/// bad record; a partial line before an orderly end counts as the last line.
///
/// With [`on_damage`](Self::on_damage) `Keep` a broken connection ends the source, which keeps the
/// records received before. With `Fail` a connection that breaks within a line fails the job even
/// with `reconnect`. TCP keepalive probes are sent to a peer that is silent for more than a minute.
///
/// A job with state cannot use this source, since the data cannot be read again.
#[derive(Debug)]
pub struct ConnectSource<T, D> {
    address: String,
    backoff: Option<Backoff>,
    reading: Reading<D>,
    record: PhantomData<fn() -> T>,
}

impl<T: Send + 'static, D: Decode<T>> ConnectSource<T, D> {
    reading_options!();

    /// Sets the format.
    pub fn decode<U: Send + 'static, E: Decode<U>>(self, decoder: E) -> ConnectSource<U, E> {
        let ConnectSource {
            address,
            backoff,
            reading,
            ..
        } = self;
        ConnectSource {
            address,
            backoff,
            reading: reading.decode(decoder),
            record: PhantomData,
        }
    }

    /// Reconnects when the connection cannot be made, breaks or ends.
    pub fn reconnect(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }

    /// Builds the source for a pipeline.
    pub fn build(self) -> Source<T, Unbounded> {
        let ConnectSource {
            address,
            backoff,
            reading,
            ..
        } = self;
        let name = format!("connect {address}");
        let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
            let dial = Dialer::new(address.clone(), backoff);
            let stage = if instance.owns(0) {
                ClientState::Connecting
            } else {
                ClientState::Ending
            };
            Ok(Box::new(ConnectP::<T, D> {
                dial,
                stage,
                on_damage: reading.on_damage,
                intake: Intake::new(&reading, READ_SIZE),
            }))
        };
        Source::new(name, Arc::new(supply)).isolation(Isolation::Thread)
    }
}

impl<T: Send + 'static, D: Decode<T>> From<ConnectSource<T, D>> for Source<T, Unbounded> {
    fn from(source: ConnectSource<T, D>) -> Self {
        source.build()
    }
}

/// The state of the client.
enum ClientState {
    /// Connecting to the server.
    Connecting,
    /// Reading until the connection ends.
    Reading(CancellablePoll<TcpStream>),
    /// Emitting the last records of a connection that was closed in an orderly way.
    Closed,
    /// Emitting the last complete lines of a broken connection.
    Broken(io::Error),
    /// Emitting the last records before the source ends.
    Ending,
}

/// The processor that reads one connection after the other.
struct ConnectP<T, D> {
    dial: Dialer,
    stage: ClientState,
    /// The setting for damage. With `None`, a broken connection fails the job unless the source
    /// reconnects.
    on_damage: Option<OnDamage>,
    intake: Intake<T, D>,
}

impl<T: Send + 'static, D: Decode<T>> ConnectP<T, D> {
    /// Makes the next step once all complete lines have been emitted.
    fn advance(&mut self) -> Result<Progress> {
        if let Some(damage) = self.intake.bad_header() {
            self.stage = ClientState::Broken(io::Error::other(damage.clone()));
        }
        match std::mem::replace(&mut self.stage, ClientState::Connecting) {
            ClientState::Connecting => match self.dial.connect()? {
                None => return Ok(Progress::NONE),
                Some(stream) => {
                    self.intake.begin(self.dial.address());
                    self.stage = ClientState::Reading(CancellablePoll(stream));
                }
            },
            ClientState::Reading(mut stream) => {
                let read = self.intake.fill(&mut stream);
                self.stage = match read {
                    Ok(0) => {
                        self.intake.end();
                        ClientState::Closed
                    }
                    Err(error) if !not_now(&error) => ClientState::Broken(error),
                    Ok(_) => ClientState::Reading(stream),
                    Err(_) => {
                        self.stage = ClientState::Reading(stream);
                        return Ok(Progress::NONE);
                    }
                };
            }
            ClientState::Closed if self.dial.reconnects() => {
                self.dial
                    .failed(io::Error::other("the peer closed the connection"))?;
            }
            ClientState::Broken(error) => self.end_broken(error)?,
            ClientState::Closed | ClientState::Ending => return Ok(Progress::DONE),
        }
        Ok(Progress::MADE)
    }
}

impl<T: Send + 'static, D: Decode<T>> ConnectP<T, D> {
    /// Handles a broken connection after all complete lines before the break were emitted.
    fn end_broken(&mut self, error: io::Error) -> Result<()> {
        let damage = Damage::of(&error).cloned().unwrap_or_else(|| {
            let place = match self.intake.has_partial() {
                true => "in the middle of this line",
                false => "after the last line",
            };
            Damage::transient(format!("the connection broke {place}: {error}"))
        });
        match self.on_damage {
            Some(OnDamage::Keep) if !self.dial.reconnects() => {
                self.intake.damage(&damage)?;
                self.stage = ClientState::Ending;
                Ok(())
            }
            Some(OnDamage::Fail) if self.intake.has_partial() => self.intake.damage(&damage),
            _ => {
                self.intake.report_partial(&damage.reason)?;
                self.dial.failed(error)
            }
        }
    }
}

impl<T: Send + 'static, D: Decode<T>> Processor for ConnectP<T, D> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.intake.attach_only(context);
        self.dial.attach(&context.clock);
        Ok(())
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        Some(
            "data sent by the server, which can't be requested again (store it in a file or a queue such as Kafka, and read that)",
        )
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        match self.intake.turn(outbox)? {
            NextAction::Return(progress) => Ok(progress),
            NextAction::End => {
                self.intake
                    .report_partial("the job was drained in the middle of this line")?;
                Ok(Progress::DONE)
            }
            NextAction::Read => self.advance(),
        }
    }

    fn close(&mut self) {
        self.stage = ClientState::Ending;
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl<T: Send + 'static, D: Decode<T>> SourceControl for ConnectP<T, D> {
    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.complete(outbox)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::time::Duration;

    use ardea_core::ErrorCode;
    use socket2::SockRef;

    use super::*;
    use crate::format::JsonLines;
    use crate::testing::{Driven, signals};

    fn server() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, address)
    }

    /// Serves one text to each connection in turn, on another thread.
    fn serve(listener: TcpListener, texts: Vec<&'static str>) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || {
            for text in texts {
                listener
                    .accept()
                    .unwrap()
                    .0
                    .write_all(text.as_bytes())
                    .unwrap();
            }
        })
    }

    #[test]
    fn it_ends_with_the_connection_and_delivers_the_last_line() {
        let (listener, address) = server();
        let served = serve(listener, vec!["a\nb\nc"]);
        let mut driven = Driven::start(connect(address));
        assert_eq!(driven.run().unwrap().values(), ["a", "b", "c"]);
        served.join().unwrap();
    }

    #[test]
    fn it_connects_again_and_names_the_peer_in_dead_letters() {
        let (listener, address) = server();
        let served = serve(listener, vec!["1\nx\n", "2\n"]);
        let quick = Backoff {
            first: Duration::from_millis(1),
            ..Backoff::default()
        };
        let source = connect(&address)
            .decode::<i32, _>(JsonLines)
            .reconnect(quick);
        let mut driven = Driven::start(source);
        driven.run_until_records(2);
        served.join().unwrap();
        assert_eq!(driven.values(), [&1, &2]);
        assert_eq!(driven.letters()[0].0, format!("{address}:2"));
    }

    #[test]
    fn a_reset_connection_fails_the_job_and_half_a_line_is_kept_aside() {
        let (listener, address) = server();
        let mut driven = Driven::start(connect(&address));
        let _ = driven.step().unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"whole\nhalf").unwrap();
        driven.run_until_records(1);
        SockRef::from(&stream)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(stream);
        let error = driven.run().err().expect("an error");
        assert_eq!(error.code(), ErrorCode::Network);
        assert!(error.to_string().contains(&address), "{error}");
        assert_eq!(driven.context.dead_letters.sample()[0].raw, b"half");
    }

    /// Sends `whole`, `half`, and resets the connection.
    fn reset(stream: &mut std::net::TcpStream, driven: &mut Driven<String>) {
        stream.write_all(b"whole\nhalf").unwrap();
        let expected = driven.records.len() + 1;
        driven.run_until_records(expected);
        SockRef::from(&*stream)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
    }

    #[test]
    fn a_broken_connection_is_damage_that_can_be_kept_or_can_fail_one_that_is_made_anew() {
        let (listener, address) = server();
        let mut driven = Driven::start(connect(&address).on_damage(OnDamage::Keep));
        let _ = driven.step().unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        reset(&mut stream, &mut driven);
        drop(stream);
        assert_eq!(driven.run().unwrap().values(), ["whole"]);
        assert_eq!(driven.context.dead_letters.sample()[0].raw, b"half");
        assert_eq!(driven.context.metrics.snapshot().bad, 1);

        let again = connect(&address).reconnect(Backoff::default());
        let mut driven = Driven::start(again.on_damage(OnDamage::Fail));
        let _ = driven.step().unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        reset(&mut stream, &mut driven);
        drop(stream);
        let error = driven.run().err().expect("an error");
        assert_eq!(error.code(), ErrorCode::ReadFailed);
        let text = error.to_string();
        assert!(text.contains("1 lines") && text.contains("broke"), "{text}");
    }

    #[test]
    fn a_silent_server_does_not_hold_up_draining_or_cancelling() {
        for drain in [true, false] {
            let (listener, address) = server();
            let mut driven = Driven::start(connect(address));
            let _ = driven.step().unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"a\nhalf").unwrap();
            driven.run_until_records(1);
            let signals = signals(&driven.context);
            if drain {
                signals.drain()
            } else {
                signals.cancel()
            }
            driven.run().unwrap();
            assert_eq!(driven.values(), ["a"]);
            assert_eq!(driven.letters().len(), usize::from(drain));
        }
    }
}
