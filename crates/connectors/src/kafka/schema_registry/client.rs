//! The thread of an instance that talks to a schema registry.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, InstanceContext, OutageReporter, Result};

use super::SchemaRegistry;
use super::requests::{RegisteredSchema, RequestOutcome, Requests, SchemaKind};
use crate::blocking_worker::{BlockingWorker, CANCEL_CHECK_INTERVAL, WorkerContext, runtime};

/// The first delay before a request is repeated; it doubles with each failure.
const FIRST_DELAY: Duration = Duration::from_millis(200);

/// The maximum delay before a request is repeated.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// A request to a registry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegistryRequest {
    /// The schema with an id.
    Schema(u32),
    /// The id of a schema of a subject, which is registered if `registers`.
    Id {
        subject: String,
        kind: SchemaKind,
        text: String,
        registers: bool,
    },
}

/// The answer to a request.
#[derive(Debug)]
pub enum RegistryAnswer {
    Schema(u32, std::result::Result<RegisteredSchema, String>),
    Id(std::result::Result<u32, String>),
}

#[derive(Default)]
struct Exchange {
    requests: VecDeque<RegistryRequest>,
    answers: VecDeque<RegistryAnswer>,
}

/// A client of a registry. Requests are made one after the other.
pub struct RegistryClient(BlockingWorker<Exchange>);

impl RegistryClient {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if the URL is malformed, `LimitReached` if no thread can be
    /// started.
    pub fn start(registry: &SchemaRegistry, context: &InstanceContext) -> Result<Self> {
        let requests = Requests::new(registry.clone())?;
        let registry = registry.clone();
        let run = move |context: WorkerContext<Exchange>| {
            if let Err(error) = serve(&context, &registry, &requests) {
                context.fail(error);
            }
        };
        let waker = context.waker.clone();
        BlockingWorker::start("schema-registry", waker, Exchange::default(), run)
            .map(RegistryClient)
    }

    /// Adds a request.
    pub fn request(&self, request: RegistryRequest) {
        self.0
            .update(|exchange| exchange.requests.push_back(request));
    }

    /// Waits up to 100 ms for an answer; returns `None` on timeout.
    ///
    /// # Errors
    /// The registry denies access, or has not answered within its limit.
    pub fn answer(&self) -> Result<Option<RegistryAnswer>> {
        self.0.take(CANCEL_CHECK_INTERVAL, |exchange| {
            exchange.answers.pop_front()
        })
    }
}

/// Makes the requests until shutdown.
fn serve(
    context: &WorkerContext<Exchange>,
    registry: &SchemaRegistry,
    requests: &Requests,
) -> Result<()> {
    let runtime = runtime()?;
    let outage = OutageReporter::new(format!("schema registry {}", registry.url));
    while let Some(request) = context.next(|exchange| exchange.requests.pop_front()) {
        let mut retries = RequestRetry::new(registry);
        let answer = loop {
            let why = match runtime.block_on(make(requests, &request))? {
                Ok(answer) => break answer,
                Err(why) => why,
            };
            outage.away(&why);
            let delay = retries.retry(&why)?;
            context.rest(delay, |_| false);
            if context.is_over() {
                return Ok(());
            }
        };
        outage.answers();
        context.update(|exchange| exchange.answers.push_back(answer));
        context.wake();
    }
    Ok(())
}

/// Makes a request. Returns the reason if the registry does not answer.
async fn make(
    requests: &Requests,
    request: &RegistryRequest,
) -> Result<std::result::Result<RegistryAnswer, String>> {
    Ok(match request {
        RegistryRequest::Schema(id) => match requests.schema(*id).await? {
            RequestOutcome::Done(schema) => Ok(RegistryAnswer::Schema(*id, Ok(schema))),
            RequestOutcome::Unknown(why) => Ok(RegistryAnswer::Schema(*id, Err(why))),
            RequestOutcome::Away(why) => Err(why),
        },
        RegistryRequest::Id {
            subject,
            kind,
            text,
            registers,
        } => match requests.id_of(subject, (*kind, text), *registers).await? {
            RequestOutcome::Done(id) => Ok(RegistryAnswer::Id(Ok(id))),
            RequestOutcome::Unknown(why) => Ok(RegistryAnswer::Id(Err(why))),
            RequestOutcome::Away(why) => Err(why),
        },
    })
}

/// The retries of one request.
struct RequestRetry<'a> {
    registry: &'a SchemaRegistry,
    begun: Option<Instant>,
    delay: Duration,
}

impl<'a> RequestRetry<'a> {
    fn new(registry: &'a SchemaRegistry) -> Self {
        RequestRetry {
            registry,
            begun: None,
            delay: FIRST_DELAY,
        }
    }

    /// Returns the delay before the next attempt.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] once the limit of the registry is exceeded.
    fn retry(&mut self, why: &str) -> Result<Duration> {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        if let Some(limit) = self.registry.give_up_after
            && begun.elapsed() >= limit
        {
            let url = &self.registry.url;
            let what = format!("the schema registry {url} has not answered for {limit:?}");
            return Err(Error::new(ErrorCode::Network, what)
                .because(why)
                .hint("check that the registry runs, and its URL"));
        }
        let delay = self.delay;
        self.delay = (delay * 2).min(MAX_DELAY);
        Ok(delay)
    }
}
