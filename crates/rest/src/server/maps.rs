//! The handlers of the routes of maps.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::handlers::{
    InvalidRequest, JSON_LINES, Named, Outcome, QueryParams, Received, Shared, accepted,
    error_response, json_response, path_param, query_params, read,
};
use super::lines::JsonLinesBody;
use crate::{MapEvent, MapKeyQuery, MapQuery};

pub(super) async fn list(State(shared): State<Shared>, uri: Uri) -> Response {
    json_response(StatusCode::OK, shared.0.maps().list_maps().await, &uri)
}

pub(super) async fn entry(
    State(shared): State<Shared>,
    uri: Uri,
    map: Named,
    query: QueryParams<MapKeyQuery>,
) -> Outcome {
    let (map, query) = (path_param(map)?, query_params(query)?);
    let answer = shared.0.maps().map_entry(&map, &query.key).await;
    Ok(json_response(StatusCode::OK, answer, &uri))
}

pub(super) async fn put(
    State(shared): State<Shared>,
    uri: Uri,
    map: Named,
    query: QueryParams<MapKeyQuery>,
    body: Received,
) -> Outcome {
    let (map, query, request) = (path_param(map)?, query_params(query)?, read(body)?);
    let answer = shared.0.maps().put_entry(&map, &query.key, request).await;
    Ok(json_response(StatusCode::OK, answer, &uri))
}

pub(super) async fn remove(
    State(shared): State<Shared>,
    uri: Uri,
    map: Named,
    query: QueryParams<MapKeyQuery>,
) -> Outcome {
    let (map, query) = (path_param(map)?, query_params(query)?);
    let answer = shared.0.maps().remove_entry(&map, &query.key).await;
    Ok(json_response(StatusCode::OK, answer, &uri))
}

pub(super) async fn drop_map(State(shared): State<Shared>, uri: Uri, map: Named) -> Outcome {
    let map = path_param(map)?;
    Ok(accepted(shared.0.maps().drop_map(&map).await, &uri))
}

pub(super) async fn entries(
    State(shared): State<Shared>,
    uri: Uri,
    map: Named,
    query: QueryParams<MapQuery>,
) -> Outcome {
    let (map, query) = (path_param(map)?, checked(query)?);
    let answer = shared.0.maps().map_entries(&map, query).await;
    Ok(json_response(StatusCode::OK, answer, &uri))
}

pub(super) async fn changes(
    State(shared): State<Shared>,
    uri: Uri,
    map: Named,
    query: QueryParams<MapQuery>,
) -> Outcome {
    let (map, query) = (path_param(map)?, checked(query)?);
    let changes = match shared.0.maps().map_changes(&map, query).await {
        Ok(changes) => changes,
        Err(unanswered) => return Ok(error_response(unanswered, &uri)),
    };
    let body = Body::new(JsonLinesBody::of(changes, |event| event, MapEvent::Fault));
    Ok(([(CONTENT_TYPE, JSON_LINES)], body).into_response())
}

fn checked(query: QueryParams<MapQuery>) -> Result<MapQuery, InvalidRequest> {
    let query = query_params(query)?;
    let checked = query.check();
    checked.map_err(|error| InvalidRequest(StatusCode::BAD_REQUEST, error))?;
    Ok(query)
}
