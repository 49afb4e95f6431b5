//! The table of routes. The server's router and the paths of the OpenAPI document are built from
//! it.

mod operation;
mod table;

use schemars::{JsonSchema, Schema, SchemaGenerator};

pub(crate) use operation::{Operation, Verb};
pub(crate) use table::ROUTES;

/// A function that creates the schema of a type.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The successful response of a route.
#[derive(Clone, Copy)]
pub(crate) enum Success {
    /// 200 with JSON.
    Json(SchemaOf),
    /// 201 with JSON.
    Created(SchemaOf),
    /// 200 with a stream of JSON objects, each on a line.
    Lines(SchemaOf),
    /// 200 with a stream of server-sent events, each with a JSON object.
    Events(SchemaOf),
    /// 202 without a body: the command was accepted, and will be carried out.
    Accepted,
    /// 200 with an OpenAPI document.
    Document,
}

impl Success {
    /// Returns the HTTP status.
    pub(crate) fn status(self) -> u16 {
        match self {
            Success::Json(_) | Success::Lines(_) | Success::Events(_) | Success::Document => 200,
            Success::Created(_) => 201,
            Success::Accepted => 202,
        }
    }
}

/// A route.
pub(crate) struct Route {
    pub(crate) verb: Verb,
    /// Path with parameters in braces: `job`, `container`, `host`, `map` or `token`.
    pub(crate) path: &'static str,
    pub(crate) operation: Operation,
    /// Unique operation id in the OpenAPI document.
    pub(crate) id: &'static str,
    /// Summary of the operation, in one sentence.
    pub(crate) about: &'static str,
    /// Type whose fields are the query parameters.
    pub(crate) query: Option<SchemaOf>,
    /// Type of the request body.
    pub(crate) body: Option<SchemaOf>,
    pub(crate) success: Success,
    /// Statuses of the route's specific failures, in addition to 400, 401, 403, 408, 429, 500 and
    /// 503 of all routes.
    pub(crate) failures: &'static [u16],
}

impl Route {
    /// Returns true if the route is about one job, so that requests may be redirected to another
    /// host.
    pub(crate) fn names_a_job(&self) -> bool {
        self.path.starts_with("/v1/jobs/{job}")
    }

    /// Returns the names of the parameters in the path.
    pub(crate) fn path_parameters(&self) -> impl Iterator<Item = &'static str> {
        self.path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Returns the schema of a query type, whose properties are the parameters.
fn query<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    T::json_schema(generator)
}

const fn get(
    path: &'static str,
    operation: Operation,
    id: &'static str,
    answer: SchemaOf,
) -> Route {
    Route {
        verb: Verb::Get,
        path,
        operation,
        id,
        about: "",
        query: None,
        body: None,
        success: Success::Json(answer),
        failures: &[],
    }
}

const fn command(verb: Verb, path: &'static str, operation: Operation, id: &'static str) -> Route {
    Route {
        verb,
        path,
        operation,
        id,
        about: "",
        query: None,
        body: None,
        success: Success::Accepted,
        failures: &[404, 409],
    }
}

/// Path of the OpenAPI document.
pub(crate) const DOCUMENT_PATH: &str = "/v1/openapi.json";
