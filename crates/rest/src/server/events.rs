//! The handlers of streams of server-sent events. One task for each stream polls the cluster, and
//! ends with its client.

use std::sync::Arc;

use ardea_core::Result;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::mpsc::{self, Sender};

use super::handlers::{
    Named, Outcome, QueryParams, Shared, error_response, path_param, query_params,
};
use super::lines::JsonLinesBody;
use crate::events::{FIGURES_INTERVAL, INSTANCE_METRICS, INTERVALS_PER_LIST};
use crate::{
    Cluster, ClusterError, ClusterEvent, ContainerState, JobDescription, JobEvent, JobEventsQuery,
    MetricsQuery, TopView,
};

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// Number of events that may wait for a slow client. Later figures are then delayed.
const MAX_WAITING_EVENTS: usize = 4;

/// Streams the events of the cluster.
pub(super) async fn cluster(State(shared): State<Shared>) -> Response {
    let (sender, receiver) = mpsc::channel(MAX_WAITING_EVENTS);
    tokio::spawn(send_cluster(shared.0, sender));
    stream(JsonLinesBody::events(
        receiver,
        |event| event,
        ClusterEvent::Fault,
    ))
}

/// Streams the events of a job.
pub(super) async fn job(
    State(shared): State<Shared>,
    uri: Uri,
    job: Named,
    query: QueryParams<JobEventsQuery>,
) -> Outcome {
    let (job, query) = (path_param(job)?, query_params(query)?);
    // An unknown job, and one that another host leads, has to be known before the response starts.
    let first = match shared.0.describe(&job).await {
        Ok(described) => described,
        Err(unanswered) => return Ok(error_response(unanswered, &uri)),
    };
    let (sender, receiver) = mpsc::channel(MAX_WAITING_EVENTS);
    tokio::spawn(send_job(shared.0, job, query, first, sender));
    Ok(stream(JsonLinesBody::events(
        receiver,
        |event| event,
        JobEvent::Fault,
    )))
}

fn stream<T, E>(body: JsonLinesBody<T, E>) -> Response
where
    T: Send + 'static,
    E: Serialize + Send + 'static,
{
    let headers = [(CONTENT_TYPE, EVENT_STREAM), (CACHE_CONTROL, NO_STORE)];
    (headers, Body::new(body)).into_response()
}

/// Sends the events of the cluster until the client disconnects or an operation fails.
async fn send_cluster(cluster: Arc<dyn Cluster>, events: Sender<Result<ClusterEvent>>) {
    let (mut jobs, mut hosts) = (None, None);
    for interval in 0_u32.. {
        if interval % INTERVALS_PER_LIST == 0 {
            let listed = match cluster.list().await {
                Ok(listed) => listed,
                Err(unanswered) => return fail(&events, unanswered).await,
            };
            let present = match cluster.hosts().await {
                Ok(present) => present,
                Err(unanswered) => return fail(&events, unanswered).await,
            };
            if jobs.as_ref() != Some(&listed) {
                let event = ClusterEvent::Jobs(listed.clone());
                jobs = Some(listed);
                if events.send(Ok(event)).await.is_err() {
                    return;
                }
            }
            if hosts.as_ref() != Some(&present) {
                let event = ClusterEvent::Hosts(present.clone());
                hosts = Some(present);
                if events.send(Ok(event)).await.is_err() {
                    return;
                }
            }
        }
        let mut loads: Vec<TopView> = Vec::new();
        for job in jobs.iter().flatten() {
            // Other hosts have the load of the jobs that they lead.
            loads.extend(cluster.top(&job.name).await.ok());
        }
        if events.send(Ok(ClusterEvent::Loads(loads))).await.is_err() {
            return;
        }
        tokio::time::sleep(FIGURES_INTERVAL).await;
    }
}

/// Sends the events of a job until the client disconnects, the job ends, or another host leads it.
async fn send_job(
    cluster: Arc<dyn Cluster>,
    job: String,
    query: JobEventsQuery,
    first: JobDescription,
    events: Sender<Result<JobEvent>>,
) {
    let mut described = first;
    let mut sent: Option<JobDescription> = None;
    loop {
        if sent.as_ref().map(without_heartbeats) != Some(without_heartbeats(&described)) {
            let event = JobEvent::Job(Box::new(described.clone()));
            sent = Some(described);
            if events.send(Ok(event)).await.is_err() {
                return;
            }
        }
        // A job without a leader has no figures.
        if let Ok(top) = cluster.top(&job).await
            && events.send(Ok(JobEvent::Top(top))).await.is_err()
        {
            return;
        }
        if let Some(vertex) = &query.vertex {
            let wanted = MetricsQuery {
                vertex: Some(vertex.clone()),
                ..MetricsQuery::default()
            };
            if let Ok(mut samples) = cluster.metrics(&job, wanted).await {
                samples.retain(|sample| INSTANCE_METRICS.contains(&sample.name.as_str()));
                if events.send(Ok(JobEvent::Samples(samples))).await.is_err() {
                    return;
                }
            }
        }
        tokio::time::sleep(FIGURES_INTERVAL).await;
        described = match cluster.describe(&job).await {
            Ok(described) => described,
            Err(unanswered) => return fail(&events, unanswered).await,
        };
    }
}

/// Returns a description without the times of the workers' reports, which always change. The time
/// of a silent worker stays.
fn without_heartbeats(job: &JobDescription) -> JobDescription {
    let mut job = job.clone();
    for container in &mut job.containers {
        if container.state == ContainerState::Up {
            container.heard_ms = None;
        }
    }
    job
}

/// Ends a stream with an error. If another host leads the job now, the client is redirected when it
/// connects again.
async fn fail<T>(events: &Sender<Result<T>>, unanswered: ClusterError) {
    if let ClusterError::Failed(error) | ClusterError::RetryLater(error) = unanswered {
        // A client that has disconnected needs no error.
        let _ = events.send(Err(error)).await;
    }
}
