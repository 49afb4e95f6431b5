//! The handlers of the routes of tokens and of the audit log.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode};
use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, Uri};

use super::handlers::{
    InvalidRequest, Named, Outcome, QueryParams, Received, Shared, accepted, json_response,
    page_response, path_param, query_params, read,
};
use crate::{
    AuditLog, AuditQuery, AuditView, DEFAULT_AUDIT_ENTRIES, MAX_AUDIT_ENTRIES, PageQuery, TokenView,
};

pub(super) async fn create(State(shared): State<Shared>, uri: Uri, body: Received) -> Outcome {
    let request = read(body)?;
    let answer = shared.0.tokens().create_token(request).await;
    Ok(json_response(StatusCode::CREATED, answer, &uri))
}

pub(super) async fn list(
    State(shared): State<Shared>,
    uri: Uri,
    query: QueryParams<PageQuery>,
) -> Outcome {
    let tokens = shared.0.tokens().list_tokens().await;
    let cut = |query: &PageQuery, all| query.page(all, |token: &TokenView| &token.name);
    page_response(query, tokens, cut, &uri)
}

pub(super) async fn revoke(State(shared): State<Shared>, uri: Uri, name: Named) -> Outcome {
    let name = path_param(name)?;
    Ok(accepted(shared.0.tokens().revoke_token(&name).await, &uri))
}

/// The audit log of the server, as an extension of requests.
pub(super) type AuditExtension = Extension<Option<Arc<AuditLog>>>;

pub(super) async fn audit(
    Extension(log): AuditExtension,
    uri: Uri,
    query: QueryParams<AuditQuery>,
) -> Outcome {
    let limit = query_params(query)?.limit.unwrap_or(DEFAULT_AUDIT_ENTRIES);
    if limit > MAX_AUDIT_ENTRIES {
        let what = format!("limit can be {MAX_AUDIT_ENTRIES} at most");
        let error = Error::new(ErrorCode::BadRequest, what);
        return Err(InvalidRequest(StatusCode::BAD_REQUEST, error));
    }
    let Some(log) = log else {
        let none = AuditView {
            entries: Vec::new(),
            lost_count: 0,
        };
        return Ok(json_response(StatusCode::OK, Ok(none), &uri));
    };
    let read = tokio::task::spawn_blocking(move || log.latest(limit)).await;
    let answer = match read {
        Ok(view) => view.map_err(Into::into),
        Err(error) => {
            let what = "reading the audit log was interrupted";
            Err(Error::new(ErrorCode::Internal, what).because(error).into())
        }
    };
    Ok(json_response(StatusCode::OK, answer, &uri))
}
