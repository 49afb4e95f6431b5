//! What each route does: reads what came, asks the cluster, tells the answer.

use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};

use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode};
use axum::body::{Body, Bytes};
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::lines::Lines;
use crate::fault::status_of;
use crate::number;
use crate::routes::DOCUMENT_PATH;
use crate::{
    Answer, Cluster, ContainersUpdate, Fault, KillQuery, LogEvent, LogQuery, MetricsQuery,
    ParallelismUpdate, RangeQuery, RecoverRequest, SavepointRequest, SubmitRequest, Unanswered,
    UpgradeRequest, check_job_name,
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const JSON_LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");
/// In how many seconds whoever is told to ask again does: asking costs a host a look at all others.
const SOON: HeaderValue = HeaderValue::from_static("1");

/// What all handlers share.
#[derive(Clone)]
pub(super) struct Shared(pub(super) Arc<dyn Cluster>);

/// The name of a job, a host or a map.
pub(super) type Named = Result<Path<String>, PathRejection>;
type Job = Named;
type JobAndContainer = Result<Path<(String, String)>, PathRejection>;
pub(super) type Asked<T> = Result<Query<T>, QueryRejection>;
pub(super) type Received = Result<Bytes, BytesRejection>;
/// An answer, or what came is no request.
pub(super) type Outcome = Result<Response, Misread>;

/// What came is no request, for this reason.
pub(super) struct Misread(pub(super) StatusCode, pub(super) Error);

impl Misread {
    fn because(what: &str) -> Self {
        let error = Error::new(ErrorCode::BadRequest, shortened(what));
        let next = format!("{DOCUMENT_PATH} describes what there is");
        Misread(StatusCode::BAD_REQUEST, error.hint(next))
    }

    /// What a library found in the path or behind the `?`, without what it says of itself.
    fn found(what: &str, wrong: &(dyn std::error::Error + 'static)) -> Self {
        let mut innermost = wrong;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        Misread::because(&format!("{what}: {innermost}"))
    }
}

impl IntoResponse for Misread {
    fn into_response(self) -> Response {
        failed_with(self.0, &self.1)
    }
}

pub(super) async fn about(State(shared): State<Shared>, uri: Uri) -> Response {
    told(StatusCode::OK, shared.0.about().await, &uri)
}

pub(super) async fn hosts(State(shared): State<Shared>, uri: Uri) -> Response {
    told(StatusCode::OK, shared.0.hosts().await, &uri)
}

pub(super) async fn drain(State(shared): State<Shared>, uri: Uri, host: Named) -> Outcome {
    let host = named(host)?;
    Ok(accepted(shared.0.drain(&host).await, &uri))
}

pub(super) async fn undrain(State(shared): State<Shared>, uri: Uri, host: Named) -> Outcome {
    let host = named(host)?;
    Ok(accepted(shared.0.undrain(&host).await, &uri))
}

pub(super) async fn list(State(shared): State<Shared>, uri: Uri) -> Response {
    told(StatusCode::OK, shared.0.list().await, &uri)
}

pub(super) async fn submit(State(shared): State<Shared>, uri: Uri, body: Received) -> Outcome {
    let request: SubmitRequest = read(body)?;
    let answer = match check_job_name(&request.definition.job.name) {
        Ok(()) => shared.0.submit(request).await,
        Err(error) => Err(error.into()),
    };
    Ok(told(StatusCode::CREATED, answer, &uri))
}

pub(super) async fn past_jobs(State(shared): State<Shared>, uri: Uri) -> Response {
    told(StatusCode::OK, shared.0.past_jobs().await, &uri)
}

pub(super) async fn past(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = named(job)?;
    Ok(told(StatusCode::OK, shared.0.past(&job).await, &uri))
}

pub(super) async fn describe(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = named(job)?;
    Ok(told(StatusCode::OK, shared.0.describe(&job).await, &uri))
}

pub(super) async fn kill(
    State(shared): State<Shared>,
    uri: Uri,
    job: Job,
    query: Asked<KillQuery>,
) -> Outcome {
    let (job, query) = (named(job)?, asked(query)?);
    Ok(accepted(shared.0.kill(&job, query).await, &uri))
}

pub(super) async fn activate(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = named(job)?;
    Ok(accepted(shared.0.activate(&job).await, &uri))
}

pub(super) async fn deactivate(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = named(job)?;
    Ok(accepted(shared.0.deactivate(&job).await, &uri))
}

pub(super) async fn restart(
    State(shared): State<Shared>,
    uri: Uri,
    path: JobAndContainer,
) -> Outcome {
    let Path((job, container)) = path.map_err(|wrong| misread_path(&wrong))?;
    let container = number::read(&container).map_err(|why| {
        let what = format!("{container:?} is no container: they have numbers, and {why}");
        Misread::because(&what)
    })?;
    let answer = shared.0.restart(&job, ContainerId(container)).await;
    Ok(accepted(answer, &uri))
}

pub(super) async fn update(
    State(shared): State<Shared>,
    uri: Uri,
    job: Job,
    body: Received,
) -> Outcome {
    let (job, update): (_, ParallelismUpdate) = (named(job)?, read(body)?);
    if update.parallelism.is_empty() {
        let what = "no vertex is named that gets another number of instances";
        let error = Error::new(ErrorCode::BadRequest, what);
        let next = "name one at least: {\"parallelism\": {\"counts\": 4}}";
        return Err(Misread(StatusCode::BAD_REQUEST, error.hint(next)));
    }
    Ok(accepted(shared.0.update(&job, update).await, &uri))
}

pub(super) async fn rescale(
    State(shared): State<Shared>,
    uri: Uri,
    job: Job,
    body: Received,
) -> Outcome {
    let (job, update): (_, ContainersUpdate) = (named(job)?, read(body)?);
    let Some(containers) = NonZeroU32::new(update.containers) else {
        let error = Error::new(ErrorCode::BadRequest, "a job has one container at least");
        let next = "ask for one at least: {\"containers\": 3}";
        return Err(Misread(StatusCode::BAD_REQUEST, error.hint(next)));
    };
    Ok(accepted(shared.0.rescale(&job, containers).await, &uri))
}

pub(super) async fn recover(
    State(shared): State<Shared>,
    uri: Uri,
    job: Job,
    body: Received,
) -> Outcome {
    let (job, request): (_, RecoverRequest) = (named(job)?, read(body)?);
    if request.from_nothing && request.from_epoch.is_some() {
        let what = "it can't begin both with nothing and from an epoch";
        let error = Error::new(ErrorCode::BadRequest, what);
        let next = "say one of them: {\"from_epoch\": 7}";
        return Err(Misread(StatusCode::BAD_REQUEST, error.hint(next)));
    }
    Ok(accepted(shared.0.recover(&job, request).await, &uri))
}

pub(super) async fn savepoint(
    State(shared): State<Shared>,
    uri: Uri,
    job: Job,
    body: Received,
) -> Outcome {
    let (job, request): (_, SavepointRequest) = (named(job)?, read(body)?);
    let answer = shared.0.savepoint(&job, request).await;
    Ok(told(StatusCode::OK, answer, &uri))
}

pub(super) async fn states(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = named(job)?;
    Ok(told(StatusCode::OK, shared.0.states(&job).await, &uri))
}

pub(super) async fn upgrade(
    State(shared): State<Shared>,
    uri: Uri,
    job: Job,
    body: Received,
) -> Outcome {
    let (job, request): (_, UpgradeRequest) = (named(job)?, read(body)?);
    Ok(accepted(shared.0.upgrade(&job, request).await, &uri))
}

pub(super) async fn snapshots(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = named(job)?;
    Ok(told(StatusCode::OK, shared.0.snapshots(&job).await, &uri))
}

pub(super) async fn check_snapshots(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = named(job)?;
    let answer = shared.0.check_snapshots(&job).await;
    Ok(told(StatusCode::OK, answer, &uri))
}

pub(super) async fn plans(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = named(job)?;
    Ok(told(StatusCode::OK, shared.0.plans(&job).await, &uri))
}

pub(super) async fn logs(
    State(shared): State<Shared>,
    uri: Uri,
    job: Job,
    query: Asked<LogQuery>,
) -> Outcome {
    let (job, query): (_, LogQuery) = (named(job)?, asked(query)?);
    query
        .check()
        .map_err(|error| Misread(StatusCode::BAD_REQUEST, error))?;
    let lines = match shared.0.logs(&job, query).await {
        Ok(lines) => lines,
        Err(unanswered) => return Ok(not_here(unanswered, &uri)),
    };
    let body = Body::new(Lines::of(lines, LogEvent::Line, LogEvent::Fault));
    Ok(([(CONTENT_TYPE, JSON_LINES)], body).into_response())
}

pub(super) async fn metrics(
    State(shared): State<Shared>,
    uri: Uri,
    job: Job,
    query: Asked<MetricsQuery>,
) -> Outcome {
    let (job, query) = (named(job)?, asked(query)?);
    let answer = shared.0.metrics(&job, query).await;
    Ok(told(StatusCode::OK, answer, &uri))
}

pub(super) async fn metrics_range(
    State(shared): State<Shared>,
    uri: Uri,
    job: Job,
    query: Asked<RangeQuery>,
) -> Outcome {
    let (job, query): (_, RangeQuery) = (named(job)?, asked(query)?);
    if let (Some(from), Some(to)) = (query.from_ms, query.to_ms)
        && from > to
    {
        let what = format!("from_ms, {from}, is later than to_ms, {to}");
        return Err(Misread::because(&what));
    }
    let answer = shared.0.metrics_range(&job, query).await;
    Ok(told(StatusCode::OK, answer, &uri))
}

pub(super) async fn top(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = named(job)?;
    Ok(told(StatusCode::OK, shared.0.top(&job).await, &uri))
}

pub(super) async fn document() -> Response {
    static DOCUMENT: LazyLock<String> = LazyLock::new(|| crate::openapi_document().to_string());
    ([(CONTENT_TYPE, JSON)], DOCUMENT.as_str()).into_response()
}

pub(super) fn named(job: Named) -> Result<String, Misread> {
    match job {
        Ok(Path(job)) => Ok(job),
        Err(wrong) => Err(misread_path(&wrong)),
    }
}

fn misread_path(wrong: &PathRejection) -> Misread {
    Misread::found("the path can't be read", wrong)
}

pub(super) fn asked<T>(query: Asked<T>) -> Result<T, Misread> {
    match query {
        Ok(Query(query)) => Ok(query),
        Err(wrong) => Err(Misread::found("the query is not what is expected", &wrong)),
    }
}

pub(super) fn read<T: DeserializeOwned>(body: Received) -> Result<T, Misread> {
    // It has been read as a whole by now; see `bounds::receive`.
    let bytes = body.map_err(|wrong| {
        let what = format!("the body can't be read: {}", shortened(&wrong.body_text()));
        Misread(wrong.status(), Error::new(ErrorCode::BadRequest, what))
    })?;
    serde_json::from_slice(&bytes)
        .map_err(|wrong| Misread::because(&format!("the body is not what is expected: {wrong}")))
}

/// A text of others, so much of it as a message bears.
pub(super) fn shortened(text: &str) -> String {
    const MOST: usize = 300;
    let mut short: String = text.chars().take(MOST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

pub(super) fn told<T: Serialize>(status: StatusCode, answer: Answer<T>, asked: &Uri) -> Response {
    let answer = match answer {
        Ok(answer) => answer,
        Err(unanswered) => return not_here(unanswered, asked),
    };
    match serde_json::to_vec(&answer) {
        Ok(json) => (status, [(CONTENT_TYPE, JSON)], json).into_response(),
        Err(error) => failed(
            &Error::new(ErrorCode::Internal, "the answer is no JSON")
                .because(error)
                .hint("please report this"),
        ),
    }
}

pub(super) fn accepted(answer: Answer<()>, asked: &Uri) -> Response {
    match answer {
        Ok(()) => StatusCode::ACCEPTED.into_response(),
        Err(unanswered) => not_here(unanswered, asked),
    }
}

/// What whoever does not follow a redirection reads.
fn elsewhere(location: &str) -> String {
    let message = "another host of the cluster answers this: ask there (curl -L does)";
    serde_json::json!({ "message": message, "location": location }).to_string()
}

pub(super) fn not_here(unanswered: Unanswered, asked: &Uri) -> Response {
    let base = match unanswered {
        Unanswered::Failed(error) => return failed(&error),
        Unanswered::NotYet(error) => return retry_soon(&error),
        Unanswered::Elsewhere { base } => base,
    };
    let path = asked.path_and_query().map_or("/", |path| path.as_str());
    let location = format!("{}{path}", base.trim_end_matches('/'));
    match HeaderValue::try_from(&location) {
        Ok(at) => {
            let body = elsewhere(&location);
            let headers = [(LOCATION, at), (CONTENT_TYPE, JSON)];
            (StatusCode::TEMPORARY_REDIRECT, headers, body).into_response()
        }
        Err(error) => failed(
            &Error::new(
                ErrorCode::Internal,
                format!("{base:?} is the address of no host"),
            )
            .because(error)
            .hint("please report this"),
        ),
    }
}

/// The answer that says that nothing was done, and that the client may ask again.
pub(super) fn retry_soon(error: &Error) -> Response {
    ([(RETRY_AFTER, SOON)], failed(error)).into_response()
}

/// The answer that says what failed, with the status that belongs to its code.
pub(super) fn failed(error: &Error) -> Response {
    let status = StatusCode::from_u16(status_of(error.code()));
    failed_with(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), error)
}

pub(super) fn failed_with(status: StatusCode, error: &Error) -> Response {
    let fault = Fault::from(error);
    // Texts always become JSON.
    let json = serde_json::to_vec(&fault).unwrap_or_default();
    (status, [(CONTENT_TYPE, JSON)], json).into_response()
}
