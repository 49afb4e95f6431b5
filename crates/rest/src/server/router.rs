//! The router, built from the table of routes.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode};
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use axum::{Extension, Router};

use super::handlers::{self, Shared, failed_with};
use super::{ServerConfig, access, bounds, events, forward, guard, idempotency, maps, page};
use crate::Cluster;
use crate::routes::{DOCUMENT_PATH, Operation, ROUTES, Verb};

/// Builds the router, with authentication and limits in front of all routes.
pub(super) fn router(cluster: Arc<dyn Cluster>, config: &ServerConfig) -> Router {
    let all_bounds = Arc::new(bounds::Bounds::of(&config.limits));
    let mut router = Router::new();
    for route in ROUTES {
        router = router.route(route.path, method(route.verb, route.operation));
    }
    router
        .merge(page::routes())
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        .with_state(Shared(cluster))
        .layer(from_fn_with_state(
            Arc::new(forward::Forwarder::of(config)),
            forward::forward,
        ))
        .layer(from_fn_with_state(
            Arc::<idempotency::IdempotencyKeys>::default(),
            idempotency::repeat,
        ))
        .layer(Extension(config.audit.clone()))
        // `receive` enforces the limit.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(Arc::clone(&all_bounds), bounds::in_time))
        .layer(from_fn_with_state(all_bounds, bounds::receive))
        .layer(from_fn_with_state(
            Arc::new(guard::Guard::of(config)),
            guard::check,
        ))
}

fn method(verb: Verb, operation: Operation) -> MethodRouter<Shared> {
    let filter = match verb {
        Verb::Get => MethodFilter::GET,
        Verb::Post => MethodFilter::POST,
        Verb::Put => MethodFilter::PUT,
        Verb::Delete => MethodFilter::DELETE,
    };
    match operation {
        Operation::About => on(filter, handlers::about),
        Operation::Events => on(filter, events::cluster),
        Operation::Hosts => on(filter, handlers::hosts),
        Operation::Drain => on(filter, handlers::drain),
        Operation::Undrain => on(filter, handlers::undrain),
        Operation::List => on(filter, handlers::list),
        Operation::Submit => on(filter, handlers::submit),
        Operation::RunProgram => on(filter, handlers::run_program),
        Operation::PastJobs => on(filter, handlers::past_jobs),
        Operation::Past => on(filter, handlers::past),
        Operation::Describe => on(filter, handlers::describe),
        Operation::Kill => on(filter, handlers::kill),
        Operation::Resume => on(filter, handlers::resume),
        Operation::Pause => on(filter, handlers::pause),
        Operation::Restart => on(filter, handlers::restart),
        Operation::Update => on(filter, handlers::update),
        Operation::Rescale => on(filter, handlers::rescale),
        Operation::Recover => on(filter, handlers::recover),
        Operation::Savepoint => on(filter, handlers::savepoint),
        Operation::States => on(filter, handlers::states),
        Operation::Upgrade => on(filter, handlers::upgrade),
        Operation::Checkpoints => on(filter, handlers::checkpoints),
        Operation::CheckCheckpoints => on(filter, handlers::check_checkpoints),
        Operation::Plans => on(filter, handlers::plans),
        Operation::Logs => on(filter, handlers::logs),
        Operation::Metrics => on(filter, handlers::metrics),
        Operation::MetricsRange => on(filter, handlers::metrics_range),
        Operation::Top => on(filter, handlers::top),
        Operation::JobEvents => on(filter, events::job),
        Operation::Traffic => on(filter, handlers::traffic),
        Operation::Why => on(filter, handlers::why),
        Operation::DeadLetters => on(filter, handlers::dead_letters),
        Operation::Maps => on(filter, maps::list),
        Operation::MapEntry => on(filter, maps::entry),
        Operation::MapEntries => on(filter, maps::entries),
        Operation::MapChanges => on(filter, maps::changes),
        Operation::PutEntry => on(filter, maps::put),
        Operation::RemoveEntry => on(filter, maps::remove),
        Operation::DropMap => on(filter, maps::drop_map),
        Operation::CreateToken => on(filter, access::create),
        Operation::Tokens => on(filter, access::list),
        Operation::RevokeToken => on(filter, access::revoke),
        Operation::Audit => on(filter, access::audit),
        Operation::Document => on(filter, handlers::document),
    }
}

async fn no_such_route(request: Request) -> Response {
    let what = format!(
        "there is nothing at {}",
        handlers::shortened(request.uri().path())
    );
    let error = Error::new(ErrorCode::BadRequest, what);
    let hint = format!("{DOCUMENT_PATH} describes the interface");
    failed_with(StatusCode::NOT_FOUND, &error.hint(hint))
}

async fn no_such_method(request: Request) -> Response {
    let what = format!(
        "the method {} is not allowed for {}",
        handlers::shortened(request.method().as_str()),
        handlers::shortened(request.uri().path())
    );
    let error = Error::new(ErrorCode::BadRequest, what);
    let hint = format!("{DOCUMENT_PATH} describes the interface");
    failed_with(StatusCode::METHOD_NOT_ALLOWED, &error.hint(hint))
}
