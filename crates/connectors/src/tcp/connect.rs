//! Reads records from a TCP server.

use std::io;
use std::marker::PhantomData;
use std::net::TcpStream;
use std::sync::Arc;

use ardea_core::{
    Instance, InstanceContext, Isolation, Outbox, Processor, Progress, Result, Source, Unbounded,
};

use super::dial::{Backoff, Dial};
use crate::OnDamage;
use crate::decompressed::Damage;
use crate::format::{Decode, Lines};
use crate::intake::{Intake, READ_SIZE, Reading, Turn, reading_options};
use crate::ready::{InTurns, not_now};

/// Lines of text from the server at `address`, such as `"localhost:7000"`.
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
/// Without [`reconnect`](Self::reconnect) it ends when the server closes the connection, and a connection that
/// can't be made or that breaks fails the job. With it the connection is made anew in all these cases; what the
/// server sent meanwhile is not asked for again. Half a line at a break is a bad record; at an orderly end it is a
/// last line, since the protocol does not tell. With [`on_damage`](Self::on_damage) `Keep` a connection that breaks ends the
/// source, which keeps what has come; with `Fail` one that breaks within a line fails the job even if it would be made anew. A peer that is silent for more than a minute is asked by the system whether it is still there.
///
/// What has been read can't be read again, so a job that keeps its state can't have it.
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

    /// Connects again when the connection can't be made, breaks or ends.
    pub fn reconnect(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }

    /// The source, for a pipeline.
    pub fn build(self) -> Source<T, Unbounded> {
        let ConnectSource {
            address,
            backoff,
            reading,
            ..
        } = self;
        let name = format!("connect {address}");
        let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
            let dial = Dial::new(address.clone(), backoff);
            let stage = if instance.owns(0) {
                Stage::Connecting
            } else {
                Stage::Ending
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

/// What the client is doing.
enum Stage {
    /// Trying to reach the server.
    Connecting,
    /// Reading until the connection ends.
    Reading(InTurns<TcpStream>),
    /// Delivering the last records of a connection that ended in good order.
    Closed,
    /// Delivering the last whole lines of a connection that broke.
    Broken(io::Error),
    /// Delivering the last records of all.
    Ending,
}

/// Reads one connection after the other.
struct ConnectP<T, D> {
    dial: Dial,
    stage: Stage,
    /// `None` if nothing was said: then a break fails the job unless the connection is made anew.
    on_damage: Option<OnDamage>,
    intake: Intake<T, D>,
}

impl<T: Send + 'static, D: Decode<T>> ConnectP<T, D> {
    /// Goes on when all whole lines have been delivered.
    fn advance(&mut self) -> Result<Progress> {
        if let Some(damage) = self.intake.bad_header() {
            self.stage = Stage::Broken(io::Error::other(damage.clone()));
        }
        match std::mem::replace(&mut self.stage, Stage::Connecting) {
            Stage::Connecting => match self.dial.connect()? {
                None => return Ok(Progress::NONE),
                Some(stream) => {
                    self.intake.begin(self.dial.address());
                    self.stage = Stage::Reading(InTurns(stream));
                }
            },
            Stage::Reading(mut stream) => {
                let read = self.intake.fill(&mut stream);
                self.stage = match read {
                    Ok(0) => {
                        self.intake.end();
                        Stage::Closed
                    }
                    Err(error) if !not_now(&error) => Stage::Broken(error),
                    Ok(_) => Stage::Reading(stream),
                    Err(_) => {
                        self.stage = Stage::Reading(stream);
                        return Ok(Progress::NONE);
                    }
                };
            }
            Stage::Closed if self.dial.reconnects() => {
                self.dial
                    .failed(io::Error::other("the peer closed the connection"))?;
            }
            Stage::Broken(error) => self.end_broken(error)?,
            Stage::Closed | Stage::Ending => return Ok(Progress::DONE),
        }
        Ok(Progress::MADE)
    }
}

impl<T: Send + 'static, D: Decode<T>> ConnectP<T, D> {
    /// The connection has broken, and all whole lines before that are delivered.
    fn end_broken(&mut self, error: io::Error) -> Result<()> {
        let damage = Damage::of(&error).cloned().unwrap_or_else(|| {
            let place = match self.intake.has_partial() {
                true => "in the middle of this line",
                false => "behind the last line",
            };
            Damage::transient(format!("the connection broke {place}: {error}"))
        });
        match self.on_damage {
            Some(OnDamage::Keep) if !self.dial.reconnects() => {
                self.intake.damage(&damage)?;
                self.stage = Stage::Ending;
                Ok(())
            }
            Some(OnDamage::Fail) if self.intake.has_partial() => self.intake.damage(&damage),
            _ => {
                self.intake.break_off(&damage.told)?;
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

    fn forgets(&self) -> Option<&'static str> {
        Some(
            "what the server has sent, which it can't be asked for again (have a file or a queue such as Kafka keep it, and read that)",
        )
    }

    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.complete(outbox)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        match self.intake.turn(outbox)? {
            Turn::Return(progress) => Ok(progress),
            Turn::End => {
                self.intake
                    .break_off("the job was drained in the middle of this line")?;
                Ok(Progress::DONE)
            }
            Turn::Read => self.advance(),
        }
    }

    fn close(&mut self) {
        self.stage = Stage::Ending;
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

    /// Serves each connection in turn with one text, on another thread.
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
