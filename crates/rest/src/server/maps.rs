//! What the routes of maps do.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::handlers::{
    Asked, JSON_LINES, Misread, Named, Outcome, Received, Shared, accepted, asked, named, not_here,
    read, told,
};
use super::lines::Lines;
use crate::{MapEvent, MapKeyQuery, MapQuery};

pub(super) async fn list(State(shared): State<Shared>, uri: Uri) -> Response {
    told(StatusCode::OK, shared.0.maps().list_maps().await, &uri)
}

pub(super) async fn entry(
    State(shared): State<Shared>,
    uri: Uri,
    map: Named,
    query: Asked<MapKeyQuery>,
) -> Outcome {
    let (map, query) = (named(map)?, asked(query)?);
    let answer = shared.0.maps().map_entry(&map, &query.key).await;
    Ok(told(StatusCode::OK, answer, &uri))
}

pub(super) async fn put(
    State(shared): State<Shared>,
    uri: Uri,
    map: Named,
    query: Asked<MapKeyQuery>,
    body: Received,
) -> Outcome {
    let (map, query, request) = (named(map)?, asked(query)?, read(body)?);
    let answer = shared.0.maps().put_entry(&map, &query.key, request).await;
    Ok(told(StatusCode::OK, answer, &uri))
}

pub(super) async fn remove(
    State(shared): State<Shared>,
    uri: Uri,
    map: Named,
    query: Asked<MapKeyQuery>,
) -> Outcome {
    let (map, query) = (named(map)?, asked(query)?);
    let answer = shared.0.maps().remove_entry(&map, &query.key).await;
    Ok(told(StatusCode::OK, answer, &uri))
}

pub(super) async fn drop_map(State(shared): State<Shared>, uri: Uri, map: Named) -> Outcome {
    let map = named(map)?;
    Ok(accepted(shared.0.maps().drop_map(&map).await, &uri))
}

pub(super) async fn entries(
    State(shared): State<Shared>,
    uri: Uri,
    map: Named,
    query: Asked<MapQuery>,
) -> Outcome {
    let (map, query) = (named(map)?, checked(query)?);
    let answer = shared.0.maps().map_entries(&map, query).await;
    Ok(told(StatusCode::OK, answer, &uri))
}

pub(super) async fn changes(
    State(shared): State<Shared>,
    uri: Uri,
    map: Named,
    query: Asked<MapQuery>,
) -> Outcome {
    let (map, query) = (named(map)?, checked(query)?);
    let changes = match shared.0.maps().map_changes(&map, query).await {
        Ok(changes) => changes,
        Err(unanswered) => return Ok(not_here(unanswered, &uri)),
    };
    let body = Body::new(Lines::of(changes, |event| event, MapEvent::Fault));
    Ok(([(CONTENT_TYPE, JSON_LINES)], body).into_response())
}

fn checked(query: Asked<MapQuery>) -> Result<MapQuery, Misread> {
    let query = asked(query)?;
    let checked = query.check();
    checked.map_err(|error| Misread(StatusCode::BAD_REQUEST, error))?;
    Ok(query)
}
