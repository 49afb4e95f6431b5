//! The handlers of the routes: they decode the request, call the cluster, and encode the response.

use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};

use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode};
use axum::body::{Body, Bytes};
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_TYPE, LINK, LOCATION, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::lines::JsonLinesBody;
use crate::api_error::status_of;
use crate::problem_details::{PROBLEM_JSON, ProblemDetails};
use crate::query_number;
use crate::routes::DOCUMENT_PATH;
use crate::{
    Answer, Cluster, ClusterError, ContainersUpdate, DeadLettersQuery, HostView, JobSummary,
    KillQuery, LogEvent, LogQuery, MetricsQuery, PageQuery, ParallelismUpdate, PastJobSummary,
    ProgramRequest, RangeQuery, RecoverRequest, SavepointRequest, SubmitRequest, UpgradeRequest,
    check_job_name,
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const JSON_LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");
/// The value of `Retry-After`, in seconds. Retries should not be frequent, because for each the
/// host queries all other hosts.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// The state shared by all handlers.
#[derive(Clone)]
pub(super) struct Shared(pub(super) Arc<dyn Cluster>);

/// The path parameter with the name of a job, a host or a map.
pub(super) type Named = Result<Path<String>, PathRejection>;
type Job = Named;
type JobAndContainer = Result<Path<(String, String)>, PathRejection>;
pub(super) type QueryParams<T> = Result<Query<T>, QueryRejection>;
pub(super) type Received = Result<Bytes, BytesRejection>;
/// A response, or the error of an invalid request.
pub(super) type Outcome = Result<Response, InvalidRequest>;

/// The error of an invalid request.
pub(super) struct InvalidRequest(pub(super) StatusCode, pub(super) Error);

impl InvalidRequest {
    /// Creates the response to a request with an invalid value.
    fn of(error: Error) -> Self {
        InvalidRequest(StatusCode::BAD_REQUEST, error)
    }

    fn because(what: &str) -> Self {
        let error = Error::new(ErrorCode::BadRequest, shortened(what));
        let next = format!("{DOCUMENT_PATH} describes the interface");
        InvalidRequest(StatusCode::BAD_REQUEST, error.hint(next))
    }

    /// Creates the error from the innermost cause of a library's error about a path or query.
    fn found(what: &str, wrong: &(dyn std::error::Error + 'static)) -> Self {
        let mut innermost = wrong;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        InvalidRequest::because(&format!("{what}: {innermost}"))
    }
}

impl IntoResponse for InvalidRequest {
    fn into_response(self) -> Response {
        failed_with(self.0, &self.1)
    }
}

pub(super) async fn about(State(shared): State<Shared>, uri: Uri) -> Response {
    json_response(StatusCode::OK, shared.0.about().await, &uri)
}

pub(super) async fn hosts(
    State(shared): State<Shared>,
    uri: Uri,
    query: QueryParams<PageQuery>,
) -> Outcome {
    let cut = |query: &PageQuery, all| query.page(all, |host: &HostView| &host.name);
    page_response(query, shared.0.hosts().await, cut, &uri)
}

pub(super) async fn drain(State(shared): State<Shared>, uri: Uri, host: Named) -> Outcome {
    let host = path_param(host)?;
    Ok(accepted(shared.0.drain(&host).await, &uri))
}

pub(super) async fn undrain(State(shared): State<Shared>, uri: Uri, host: Named) -> Outcome {
    let host = path_param(host)?;
    Ok(accepted(shared.0.undrain(&host).await, &uri))
}

pub(super) async fn list(
    State(shared): State<Shared>,
    uri: Uri,
    query: QueryParams<PageQuery>,
) -> Outcome {
    let cut = |query: &PageQuery, all| query.page(all, |job: &JobSummary| &job.name);
    page_response(query, shared.0.list().await, cut, &uri)
}

pub(super) async fn submit(State(shared): State<Shared>, uri: Uri, body: Received) -> Outcome {
    let request: SubmitRequest = read(body)?;
    let answer = match check_job_name(&request.definition.job.name) {
        Ok(()) => shared.0.submit(request).await,
        Err(error) => Err(error.into()),
    };
    Ok(json_response(StatusCode::CREATED, answer, &uri))
}

pub(super) async fn past_jobs(
    State(shared): State<Shared>,
    uri: Uri,
    query: QueryParams<PageQuery>,
) -> Outcome {
    let cut =
        |query: &PageQuery, all| query.page_by_key(all, |job: &PastJobSummary| &job.submission);
    page_response(query, shared.0.past_jobs().await, cut, &uri)
}

pub(super) async fn past(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = path_param(job)?;
    Ok(json_response(
        StatusCode::OK,
        shared.0.past(&job).await,
        &uri,
    ))
}

pub(super) async fn describe(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = path_param(job)?;
    Ok(json_response(
        StatusCode::OK,
        shared.0.describe(&job).await,
        &uri,
    ))
}

pub(super) async fn kill(
    State(shared): State<Shared>,
    uri: Uri,
    job: Job,
    query: QueryParams<KillQuery>,
) -> Outcome {
    let (job, query) = (path_param(job)?, query_params(query)?);
    Ok(accepted(shared.0.kill(&job, query).await, &uri))
}

pub(super) async fn resume(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = path_param(job)?;
    Ok(accepted(shared.0.resume(&job).await, &uri))
}

pub(super) async fn pause(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = path_param(job)?;
    Ok(accepted(shared.0.pause(&job).await, &uri))
}

pub(super) async fn restart(
    State(shared): State<Shared>,
    uri: Uri,
    path: JobAndContainer,
) -> Outcome {
    let Path((job, container)) = path.map_err(|wrong| invalid_path(&wrong))?;
    let container = query_number::read(&container).map_err(|why| {
        let what = format!("{container:?} is not a container number: {why}");
        InvalidRequest::because(&what)
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
    let (job, update): (_, ParallelismUpdate) = (path_param(job)?, read(body)?);
    if update.parallelism.is_empty() {
        let what = "no vertex is given";
        let error = Error::new(ErrorCode::BadRequest, what);
        let next = "give at least one: {\"parallelism\": {\"counts\": 4}}";
        return Err(InvalidRequest(StatusCode::BAD_REQUEST, error.hint(next)));
    }
    Ok(accepted(shared.0.update(&job, update).await, &uri))
}

pub(super) async fn rescale(
    State(shared): State<Shared>,
    uri: Uri,
    job: Job,
    body: Received,
) -> Outcome {
    let (job, update): (_, ContainersUpdate) = (path_param(job)?, read(body)?);
    let Some(containers) = NonZeroU32::new(update.containers) else {
        let error = Error::new(ErrorCode::BadRequest, "a job needs at least one container");
        let next = "give at least one: {\"containers\": 3}";
        return Err(InvalidRequest(StatusCode::BAD_REQUEST, error.hint(next)));
    };
    Ok(accepted(shared.0.rescale(&job, containers).await, &uri))
}

pub(super) async fn recover(
    State(shared): State<Shared>,
    uri: Uri,
    job: Job,
    body: Received,
) -> Outcome {
    let (job, request): (_, RecoverRequest) = (path_param(job)?, read(body)?);
    if request.from_nothing && request.from_epoch.is_some() {
        let what = "from_nothing and from_epoch exclude each other";
        let error = Error::new(ErrorCode::BadRequest, what);
        let next = "give one of them: {\"from_epoch\": 7}";
        return Err(InvalidRequest(StatusCode::BAD_REQUEST, error.hint(next)));
    }
    Ok(accepted(shared.0.recover(&job, request).await, &uri))
}

pub(super) async fn savepoint(
    State(shared): State<Shared>,
    uri: Uri,
    job: Job,
    body: Received,
) -> Outcome {
    let (job, request): (_, SavepointRequest) = (path_param(job)?, read(body)?);
    let answer = shared.0.savepoint(&job, request).await;
    Ok(json_response(StatusCode::OK, answer, &uri))
}

pub(super) async fn states(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = path_param(job)?;
    Ok(json_response(
        StatusCode::OK,
        shared.0.states(&job).await,
        &uri,
    ))
}

pub(super) async fn upgrade(
    State(shared): State<Shared>,
    uri: Uri,
    job: Job,
    body: Received,
) -> Outcome {
    let (job, request): (_, UpgradeRequest) = (path_param(job)?, read(body)?);
    Ok(accepted(shared.0.upgrade(&job, request).await, &uri))
}

pub(super) async fn checkpoints(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = path_param(job)?;
    Ok(json_response(
        StatusCode::OK,
        shared.0.checkpoints(&job).await,
        &uri,
    ))
}

pub(super) async fn check_checkpoints(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = path_param(job)?;
    let answer = shared.0.check_checkpoints(&job).await;
    Ok(json_response(StatusCode::OK, answer, &uri))
}

pub(super) async fn plans(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = path_param(job)?;
    Ok(json_response(
        StatusCode::OK,
        shared.0.plans(&job).await,
        &uri,
    ))
}

pub(super) async fn logs(
    State(shared): State<Shared>,
    uri: Uri,
    job: Job,
    query: QueryParams<LogQuery>,
) -> Outcome {
    let (job, query): (_, LogQuery) = (path_param(job)?, query_params(query)?);
    query.check().map_err(InvalidRequest::of)?;
    let lines = match shared.0.logs(&job, query).await {
        Ok(lines) => lines,
        Err(unanswered) => return Ok(error_response(unanswered, &uri)),
    };
    let body = Body::new(JsonLinesBody::of(lines, LogEvent::Line, LogEvent::Fault));
    Ok(([(CONTENT_TYPE, JSON_LINES)], body).into_response())
}

pub(super) async fn metrics(
    State(shared): State<Shared>,
    uri: Uri,
    job: Job,
    query: QueryParams<MetricsQuery>,
) -> Outcome {
    let (job, query) = (path_param(job)?, query_params(query)?);
    let answer = shared.0.metrics(&job, query).await;
    Ok(json_response(StatusCode::OK, answer, &uri))
}

pub(super) async fn metrics_range(
    State(shared): State<Shared>,
    uri: Uri,
    job: Job,
    query: QueryParams<RangeQuery>,
) -> Outcome {
    let (job, query): (_, RangeQuery) = (path_param(job)?, query_params(query)?);
    if let (Some(from), Some(to)) = (query.from_ms, query.to_ms)
        && from > to
    {
        let what = format!("from_ms, {from}, is later than to_ms, {to}");
        return Err(InvalidRequest::because(&what));
    }
    let answer = shared.0.metrics_range(&job, query).await;
    Ok(json_response(StatusCode::OK, answer, &uri))
}

pub(super) async fn top(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = path_param(job)?;
    Ok(json_response(
        StatusCode::OK,
        shared.0.top(&job).await,
        &uri,
    ))
}

pub(super) async fn traffic(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = path_param(job)?;
    let answer = shared.0.traffic(&job).await;
    Ok(json_response(StatusCode::OK, answer, &uri))
}

pub(super) async fn why(State(shared): State<Shared>, uri: Uri, job: Job) -> Outcome {
    let job = path_param(job)?;
    Ok(json_response(
        StatusCode::OK,
        shared.0.why(&job).await,
        &uri,
    ))
}

pub(super) async fn dead_letters(
    State(shared): State<Shared>,
    uri: Uri,
    job: Job,
    query: QueryParams<DeadLettersQuery>,
) -> Outcome {
    let (job, query): (_, DeadLettersQuery) = (path_param(job)?, query_params(query)?);
    query.check().map_err(InvalidRequest::of)?;
    let answer = shared.0.dead_letters(&job, query).await;
    Ok(json_response(StatusCode::OK, answer, &uri))
}

pub(super) async fn run_program(State(shared): State<Shared>, uri: Uri, body: Received) -> Outcome {
    let request: ProgramRequest = read(body)?;
    request.check().map_err(InvalidRequest::of)?;
    let answer = shared.0.run_program(request).await;
    Ok(json_response(StatusCode::OK, answer, &uri))
}

pub(super) async fn document() -> Response {
    static DOCUMENT: LazyLock<String> = LazyLock::new(|| crate::openapi_document().to_string());
    ([(CONTENT_TYPE, JSON)], DOCUMENT.as_str()).into_response()
}

pub(super) fn path_param(job: Named) -> Result<String, InvalidRequest> {
    match job {
        Ok(Path(job)) => Ok(job),
        Err(wrong) => Err(invalid_path(&wrong)),
    }
}

fn invalid_path(wrong: &PathRejection) -> InvalidRequest {
    InvalidRequest::found("the path can't be read", wrong)
}

pub(super) fn query_params<T>(query: QueryParams<T>) -> Result<T, InvalidRequest> {
    match query {
        Ok(Query(query)) => Ok(query),
        Err(wrong) => Err(InvalidRequest::found("the query is invalid", &wrong)),
    }
}

pub(super) fn read<T: DeserializeOwned>(body: Received) -> Result<T, InvalidRequest> {
    // The body has already been read completely, see `bounds::receive`.
    let bytes = body.map_err(|wrong| {
        let what = format!("the body can't be read: {}", shortened(&wrong.body_text()));
        InvalidRequest(wrong.status(), Error::new(ErrorCode::BadRequest, what))
    })?;
    serde_json::from_slice(&bytes)
        .map_err(|wrong| InvalidRequest::because(&format!("the body is invalid: {wrong}")))
}

/// Truncates untrusted text for a message.
pub(super) fn shortened(text: &str) -> String {
    const MOST: usize = 300;
    let mut short: String = text.chars().take(MOST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

pub(super) fn json_response<T: Serialize>(
    status: StatusCode,
    answer: Answer<T>,
    asked: &Uri,
) -> Response {
    let answer = match answer {
        Ok(answer) => answer,
        Err(unanswered) => return error_response(unanswered, asked),
    };
    match serde_json::to_vec(&answer) {
        Ok(json) => (status, [(CONTENT_TYPE, JSON)], json).into_response(),
        Err(error) => failed(
            &Error::new(ErrorCode::Internal, "the response can't be encoded as JSON")
                .because(error)
                .hint("please report this"),
        ),
    }
}

/// Creates the response with a page of a list. `cut` returns the page, and the element that the
/// next page follows.
pub(super) fn page_response<T: Serialize>(
    query: QueryParams<PageQuery>,
    all: Answer<Vec<T>>,
    cut: impl FnOnce(&PageQuery, Vec<T>) -> (Vec<T>, Option<String>),
    asked: &Uri,
) -> Outcome {
    let query = query_params(query)?;
    query.check().map_err(InvalidRequest::of)?;
    let mut next = None;
    let page = all.map(|all| {
        let (page, after) = cut(&query, all);
        next = after;
        page
    });
    let mut response = json_response(StatusCode::OK, page, asked);
    if let Some(link) = next.and_then(|after| query.link(asked.path(), &after)) {
        response.headers_mut().insert(LINK, link);
    }
    Ok(response)
}

pub(super) fn accepted(answer: Answer<()>, asked: &Uri) -> Response {
    match answer {
        Ok(()) => StatusCode::ACCEPTED.into_response(),
        Err(unanswered) => error_response(unanswered, asked),
    }
}

/// Returns the body of a redirect, for clients that do not follow redirects.
fn elsewhere(location: &str) -> String {
    let message =
        "another host of the cluster handles this request: repeat it there (curl -L does)";
    serde_json::json!({ "message": message, "location": location }).to_string()
}

pub(super) fn error_response(unanswered: ClusterError, asked: &Uri) -> Response {
    let base = match unanswered {
        ClusterError::Failed(error) => return failed(&error),
        ClusterError::RetryLater(error) => return retry_soon(&error),
        ClusterError::Elsewhere { base } => base,
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
                format!("{base:?} is not the address of a host"),
            )
            .because(error)
            .hint("please report this"),
        ),
    }
}

/// Creates a response that asks the client to retry, because nothing was done.
pub(super) fn retry_soon(error: &Error) -> Response {
    soon(failed(error))
}

/// Asks the client of a response to retry.
pub(super) fn soon(response: Response) -> Response {
    ([(RETRY_AFTER, RETRY_AFTER_SECONDS)], response).into_response()
}

/// Creates the response for an error, with the status that belongs to its code.
pub(super) fn failed(error: &Error) -> Response {
    let status = StatusCode::from_u16(status_of(error.code()));
    failed_with(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), error)
}

pub(super) fn failed_with(status: StatusCode, error: &Error) -> Response {
    let problem = ProblemDetails::of(status, error);
    // Serialization of strings can't fail.
    let json = serde_json::to_vec(&problem).unwrap_or_default();
    let kind = HeaderValue::from_static(PROBLEM_JSON);
    (status, [(CONTENT_TYPE, kind)], json).into_response()
}
