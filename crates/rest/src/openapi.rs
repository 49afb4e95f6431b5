//! The OpenAPI 3.1 document of the interface, generated from the table of routes and the types.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::ProblemDetails;
use crate::problem_details::PROBLEM_JSON;
use crate::routes::{Operation, ROUTES, Route, Success, Verb};

/// HTTP statuses of failures that all routes may return.
const COMMON_FAILURES: [u16; 7] = [400, 401, 403, 408, 429, 500, 503];

/// Returns the OpenAPI 3.1 document of the interface.
///
/// ```
/// let document = ardea_rest::openapi_document();
/// assert_eq!(document["openapi"], "3.1.0");
/// assert!(document["paths"]["/v1/jobs/{job}"]["get"].is_object());
/// ```
pub fn openapi_document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = SchemaGenerator::new(settings);
    let fault = generator.subschema_for::<ProblemDetails>();
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let operation = operation(route, &mut generator, fault.as_value());
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.verb.in_lower_case()] = operation;
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ardea cluster",
            "summary": "Queries and commands of a cluster and its jobs",
            "description": "Times are milliseconds since 1970, sizes bytes. A command is answered when it has been decided and stored; \
                the phase of the job shows when it has been carried out.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "version": env!("CARGO_PKG_VERSION"),
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }, {}],
        "tags": [
            { "name": "cluster", "description": "The cluster and its hosts" },
            { "name": "jobs", "description": "The jobs of the cluster" },
            { "name": "maps", "description": "The maps of the cluster" },
        ],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The cluster's token or a named one; without a token the cluster is reachable only from the same machine.",
                },
            },
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator, fault: &Value) -> Value {
    let of_jobs = ["/v1/jobs", "/v1/history"];
    let tag = if of_jobs.iter().any(|path| route.path.starts_with(path)) {
        "jobs"
    } else if route.path.starts_with("/v1/maps") {
        "maps"
    } else {
        "cluster"
    };
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.about,
        "tags": [tag],
        "responses": responses(route, generator, fault),
    });
    let parameters = parameters(route, generator);
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    if let Some(body) = route.body {
        operation["requestBody"] = json!({
            "required": true,
            "content": { "application/json": { "schema": body(generator) } },
        });
    }
    if route.operation == Operation::Document {
        // The document reveals nothing about the cluster.
        operation["security"] = json!([]);
    }
    operation
}

fn parameters(route: &Route, generator: &mut SchemaGenerator) -> Vec<Value> {
    let mut parameters: Vec<Value> = route
        .path_parameters()
        .map(|name| {
            let (about, schema) = match name {
                "container" => (
                    "The number of the container",
                    json!({ "type": "integer", "format": "uint32", "minimum": 0 }),
                ),
                "host" => ("The name of the host", json!({ "type": "string" })),
                "map" => ("The name of the map", json!({ "type": "string" })),
                "token" => ("The name of the token", json!({ "type": "string" })),
                _ => ("The name of the job", json!({ "type": "string" })),
            };
            json!({ "name": name, "in": "path", "required": true, "description": about, "schema": schema })
        })
        .collect();
    if route.verb != Verb::Get {
        parameters.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "required": false,
            "description": "Key of the action, which is carried out once: a request with the key of an earlier one has its response. Each host keeps the last 1,000 keys for a day.",
            "schema": { "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$" },
        }));
    }
    let Some(query) = route.query else {
        return parameters;
    };
    let fields = query(generator).to_value();
    let required = |name: &str| {
        let names = fields["required"].as_array();
        names.is_some_and(|names| names.iter().any(|known| known == name))
    };
    for (name, schema) in fields["properties"].as_object().into_iter().flatten() {
        let mut schema = schema.clone();
        let about = schema
            .as_object_mut()
            .and_then(|schema| schema.remove("description"));
        let schema = never_null(schema);
        parameters.push(json!({
            "name": name,
            "in": "query",
            "required": required(name),
            "description": about,
            "schema": schema,
        }));
    }
    parameters
}

/// Removes `null` from the schema of a query parameter. Unlike a field of a body, a parameter is
/// never `null`, but may be omitted.
fn never_null(mut schema: Value) -> Value {
    for (list, is_null) in [
        ("type", (|kind| kind == "null") as fn(&Value) -> bool),
        ("anyOf", |schema| schema["type"] == "null"),
    ] {
        let Some(choices) = schema.get_mut(list).and_then(Value::as_array_mut) else {
            continue;
        };
        choices.retain(|choice| !is_null(choice));
        if let [only] = &mut choices[..] {
            let only = only.take();
            match list {
                "type" => schema["type"] = only,
                _ => return only,
            }
        }
    }
    schema
}

fn responses(route: &Route, generator: &mut SchemaGenerator, fault: &Value) -> Value {
    let (about, content) = match route.success {
        Success::Json(schema) => (
            "Success",
            Some(("application/json", schema(generator).to_value())),
        ),
        Success::Created(schema) => (
            "It was created",
            Some(("application/json", schema(generator).to_value())),
        ),
        Success::Lines(schema) => (
            "A stream of JSON objects, one per line",
            Some(("application/x-ndjson", schema(generator).to_value())),
        ),
        Success::Events(schema) => (
            "A stream of server-sent events, each with a JSON object",
            Some(("text/event-stream", schema(generator).to_value())),
        ),
        Success::Accepted => ("The command was accepted, and will be carried out", None),
        Success::Document => (
            "An OpenAPI 3.1 document",
            Some(("application/json", json!({ "type": "object" }))),
        ),
    };
    let mut responses = Map::new();
    let mut success = json!({ "description": about });
    if let Some((kind, schema)) = content {
        success["content"] = json!({ kind: { "schema": schema } });
    }
    responses.insert(route.success.status().to_string(), success);
    if route.operation == Operation::Document {
        return Value::Object(responses);
    }
    if route.names_a_job() {
        let elsewhere = json!({
            "description": "Another host leads the job: repeat the request there",
            "headers": { "Location": { "description": "The URL at that host", "schema": { "type": "string" } } },
            "content": { "application/json": { "schema": {
                "type": "object",
                "properties": { "message": { "type": "string" }, "location": { "type": "string" } },
                "required": ["message", "location"],
            } } },
        });
        responses.insert("307".into(), elsewhere);
    }
    let has_body = route.body.is_some();
    let too_large = [413].into_iter().filter(|_| has_body);
    // The failures of idempotency keys.
    let of_keys = [409, 422].into_iter().filter(|_| route.verb != Verb::Get);
    for status in COMMON_FAILURES
        .into_iter()
        .chain(route.failures.iter().copied())
        .chain(too_large)
        .chain(of_keys)
    {
        let content = json!({ PROBLEM_JSON: { "schema": fault } });
        let mut failure = json!({ "description": meaning(status), "content": content });
        if status == 503 {
            let about = "Seconds until a retry; the request was not carried out";
            let schema = json!({ "type": "integer", "minimum": 0 });
            failure["headers"] =
                json!({ "Retry-After": { "description": about, "schema": schema } });
        }
        responses.insert(status.to_string(), failure);
    }
    responses.sort_keys();
    Value::Object(responses)
}

fn meaning(status: u16) -> &'static str {
    match status {
        400 => "The request is invalid",
        401 => "The token is missing or wrong",
        403 => "The caller lacks the right for the request",
        404 => "There is no such job or host",
        408 => "The request was not complete in time",
        409 => {
            "A conflict with the current state: a name is taken, the job is busy, or the request with this idempotency key is being carried out"
        }
        413 => "The body is too large",
        422 => {
            "The job doesn't fit into the containers, or the idempotency key belongs to another request"
        }
        429 => "The address sends too many requests; try again in a second",
        503 => {
            "Unavailable at present; try again. With a header Retry-After the request was not carried out"
        }
        _ => "Something failed within the cluster",
    }
}
