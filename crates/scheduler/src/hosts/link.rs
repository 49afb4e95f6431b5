//! A scheduler's connection to the runner of one host, made again as often as it breaks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::{StateManager, layout};
use ardea_network::rpc::{Courier, Greeting, Security, connect};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::message::{Answer, FromRunner, Question, ToRunner};
use super::record::HostRecord;
use super::server::PURPOSE;
use crate::{ContainerEvent, LaunchPlan};

/// How long a host may be out of reach before questions to it fail at once: one that was started again is back by then.
const FOR_CONNECTION: Duration = Duration::from_secs(2);

/// How long one try to connect may take.
const FOR_CONNECTING: Duration = Duration::from_secs(3);

/// How often the host is asked for a sign of life.
const PING: Duration = Duration::from_millis(500);

/// A host that has said nothing for so long can't be reached: as long as a worker may be silent.
const SILENCE: Duration = Duration::from_secs(3);

/// The first and the longest wait before the next try to connect.
const RETRY: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// What a link tells its scheduler.
#[derive(Debug)]
pub(super) enum News {
    /// Something has happened to a container there.
    Event(ContainerEvent),
    /// The host can be asked now.
    Connected,
}

/// The connection to one host. When it is dropped, it is closed.
pub(super) struct Link {
    host: String,
    questions: mpsc::UnboundedSender<Asked>,
    reach: watch::Receiver<Reach>,
    trouble: Trouble,
    task: JoinHandle<()>,
}

/// Whether a host can be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    /// It can.
    Connected,
    /// It can't, and was heard last then.
    AwaySince(Instant),
}

struct Asked {
    question: Question,
    answer: oneshot::Sender<Result<Answer>>,
}

/// Why there is no connection at the moment.
#[derive(Clone, Default)]
struct Trouble(Arc<Mutex<Option<Error>>>);

impl Trouble {
    fn set(&self, why: Error) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    fn get(&self) -> Option<Error> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Link {
    /// A link to the host that is registered by that name, for a job.
    pub(super) fn new(
        host: &str,
        launch: Arc<LaunchPlan>,
        state: Arc<dyn StateManager>,
        security: Security,
        news: mpsc::UnboundedSender<(String, News)>,
    ) -> Self {
        let (questions, asked) = mpsc::unbounded_channel();
        let (tell_reach, reach) = watch::channel(Reach::AwaySince(Instant::now()));
        let trouble = Trouble::default();
        let line = Line {
            host: host.to_string(),
            launch,
            state,
            security,
            news,
            reach: tell_reach,
            trouble: trouble.clone(),
        };
        Link {
            host: host.to_string(),
            questions,
            reach,
            trouble,
            task: tokio::spawn(line.hold(asked)),
        }
    }

    /// Asks the host something, and waits for the answer as long as the host can be reached.
    pub(super) async fn ask(&self, question: Question) -> Result<Answer> {
        let mut reach = self.reach.clone();
        let wait = match *reach.borrow() {
            Reach::Connected => Duration::ZERO,
            Reach::AwaySince(heard) => FOR_CONNECTION.saturating_sub(heard.elapsed()),
        };
        let coming = reach.wait_for(|reach| *reach == Reach::Connected);
        let is_there = matches!(timeout(wait, coming).await, Ok(Ok(_)));
        if !is_there {
            return Err(self.away());
        }
        let (answer, answered) = oneshot::channel();
        let asked = Asked { question, answer };
        if self.questions.send(asked).is_err() {
            return Err(self.away());
        }
        // The other end is dropped when the connection breaks.
        answered.await.unwrap_or_else(|_| Err(self.away()))
    }

    fn away(&self) -> Error {
        let error = Error::new(
            ErrorCode::SchedulerUnavailable,
            format!("the runner of host {} can't be reached", self.host),
        );
        match self.trouble.get() {
            Some(why) => error.because(why.without_hint()),
            None => error,
        }
        .hint("it is tried again until the host is lost")
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({}, {:?})", self.host, *self.reach.borrow())
    }
}

/// The link's own side of it.
struct Line {
    host: String,
    launch: Arc<LaunchPlan>,
    state: Arc<dyn StateManager>,
    security: Security,
    news: mpsc::UnboundedSender<(String, News)>,
    reach: watch::Sender<Reach>,
    trouble: Trouble,
}

impl Line {
    async fn hold(self, mut asked: mpsc::UnboundedReceiver<Asked>) {
        let [mut wait, longest] = RETRY;
        loop {
            match self.connect().await {
                Ok(courier) => {
                    wait = RETRY[0];
                    let mut heard = Instant::now();
                    let why = self.talk(courier, &mut asked, &mut heard).await;
                    self.trouble.set(why);
                    self.reach.send_replace(Reach::AwaySince(heard));
                }
                Err(why) => self.trouble.set(why),
            }
            // Whoever asked in the last moment is not kept waiting.
            while asked.try_recv().is_ok() {}
            sleep(wait).await;
            wait = (wait * 2).min(longest);
        }
    }

    /// Connects to where the host says that it is now.
    async fn connect(&self) -> Result<Courier> {
        let path = layout::worker(&self.host)?;
        let Some(node) = self.state.get(&path).await? else {
            return Err(Error::new(
                ErrorCode::Network,
                "it is not registered any more",
            ));
        };
        let record = HostRecord::read(&self.host, &node.value)?;
        let job = self.launch.job();
        let greeting = Greeting::new(PURPOSE).of_job(format!("{job}#{:x}", job.submission));
        connect(&record.address, &greeting, &self.security, FOR_CONNECTING).await
    }

    /// Passes questions and answers, until the connection breaks: why. `heard` is when the host was heard last.
    async fn talk(
        &self,
        courier: Courier,
        asked: &mut mpsc::UnboundedReceiver<Asked>,
        heard: &mut Instant,
    ) -> Error {
        let (mut sender, mut receiver) = courier.split();
        let mut waiting = BTreeMap::new();
        let mut number = 0;
        let mut pings = interval(PING);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let begin = ToRunner::Begin(Box::new((*self.launch).clone()));
        if let Err(error) = sender.send(&begin).await {
            return error;
        }
        self.reach.send_replace(Reach::Connected);
        self.tell(News::Connected);
        loop {
            let message = tokio::select! {
                Some(asked) = asked.recv() => {
                    number += 1;
                    waiting.insert(number, asked.answer);
                    ToRunner::Ask(number, asked.question)
                }
                _ = pings.tick() => {
                    if heard.elapsed() > SILENCE {
                        return Error::new(ErrorCode::Network, "it does not answer");
                    }
                    ToRunner::Ping
                }
                received = receiver.receive() => {
                    *heard = Instant::now();
                    match received {
                        Ok(Some(FromRunner::Event(event))) => self.tell(News::Event(event)),
                        Ok(Some(FromRunner::Answer(number, answer))) => {
                            let answer = answer.map_err(|failure| failure.on(&self.host));
                            if let Some(waiting) = waiting.remove(&number) {
                                let _ = waiting.send(answer);
                            }
                        }
                        Ok(Some(FromRunner::Refused(failure))) => return failure.on(&self.host),
                        Ok(Some(FromRunner::Pong)) => {}
                        Ok(None) => return Error::new(ErrorCode::Network, "it has hung up"),
                        Err(error) => return error,
                    }
                    continue;
                }
            };
            match timeout(SILENCE, sender.send(&message)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error,
                Err(_) => return Error::new(ErrorCode::Network, "it does not read"),
            }
        }
    }

    fn tell(&self, news: News) {
        let _ = self.news.send((self.host.clone(), news));
    }
}
