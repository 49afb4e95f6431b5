//! The routes: one table, of which the server makes its router and the document its paths.

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::{
    ClusterInfo, ContainersUpdate, HostView, JobDescription, JobSummary, KillQuery, LogEvent,
    LogQuery, MapEntriesView, MapEntryView, MapEvent, MapKeyQuery, MapPutRequest, MapQuery,
    MapsView, MetricsQuery, MetricsRange, ParallelismUpdate, PastJobDescription, PastJobSummary,
    Plans, RangeQuery, RecoverRequest, SampleView, SavepointRequest, SavepointView, SnapshotsView,
    StatesView, SubmitRequest, TopView, UpgradeRequest,
};

/// What a route does; each has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    About,
    Hosts,
    Drain,
    Undrain,
    List,
    Submit,
    PastJobs,
    Past,
    Describe,
    Kill,
    Activate,
    Deactivate,
    Restart,
    Update,
    Rescale,
    Recover,
    Savepoint,
    States,
    Upgrade,
    Snapshots,
    CheckSnapshots,
    Plans,
    Logs,
    Metrics,
    MetricsRange,
    Top,
    Maps,
    MapEntry,
    MapEntries,
    MapChanges,
    PutEntry,
    RemoveEntry,
    DropMap,
    Document,
}

/// The method of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

impl Verb {
    /// As the document writes it.
    pub(crate) fn in_lower_case(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::Post => "post",
            Verb::Put => "put",
            Verb::Delete => "delete",
        }
    }
}

/// Makes the schema of a type.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// What a route answers when all is well.
#[derive(Clone, Copy)]
pub(crate) enum Success {
    /// 200 with JSON.
    Json(SchemaOf),
    /// 201 with JSON.
    Created(SchemaOf),
    /// 200 with JSON objects, one a line, as they come.
    Lines(SchemaOf),
    /// 202 without a body: it was decided, and will be done.
    Accepted,
    /// 200 with an OpenAPI document.
    Document,
}

impl Success {
    /// The status.
    pub(crate) fn status(self) -> u16 {
        match self {
            Success::Json(_) | Success::Lines(_) | Success::Document => 200,
            Success::Created(_) => 201,
            Success::Accepted => 202,
        }
    }
}

/// A route.
pub(crate) struct Route {
    pub(crate) verb: Verb,
    /// With its parameters in braces; those are `job`, `container`, `host` and `map`.
    pub(crate) path: &'static str,
    pub(crate) operation: Operation,
    /// Its name in the document, unique.
    pub(crate) id: &'static str,
    /// What it does, in one sentence.
    pub(crate) about: &'static str,
    /// The type whose fields are the parameters behind the `?`.
    pub(crate) query: Option<SchemaOf>,
    /// The type of the body.
    pub(crate) body: Option<SchemaOf>,
    pub(crate) success: Success,
    /// The statuses of its own failures; those of all routes are 400, 401, 408, 500 and 503.
    pub(crate) failures: &'static [u16],
}

impl Route {
    /// Whether it concerns one job, and so may be answered by another host.
    pub(crate) fn names_a_job(&self) -> bool {
        self.path.starts_with("/v1/jobs/{job}")
    }

    /// The names of the parameters in the path.
    pub(crate) fn path_parameters(&self) -> impl Iterator<Item = &'static str> {
        self.path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The schema of a query itself, whose properties are the parameters.
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

/// All of them.
pub(crate) static ROUTES: &[Route] = &[
    Route {
        about: "The cluster itself",
        ..get(
            "/v1/cluster",
            Operation::About,
            "describeCluster",
            schema::<ClusterInfo>,
        )
    },
    Route {
        about: "The hosts of the cluster, sorted by name",
        ..get(
            "/v1/hosts",
            Operation::Hosts,
            "listHosts",
            schema::<Vec<HostView>>,
        )
    },
    Route {
        about: "Drain a host: no container is placed there any more, and those that are there go to others",
        ..command(
            Verb::Post,
            "/v1/hosts/{host}/drain",
            Operation::Drain,
            "drainHost",
        )
    },
    Route {
        about: "Take it back that a host is drained; what has gone elsewhere stays there",
        failures: &[404],
        ..command(
            Verb::Delete,
            "/v1/hosts/{host}/drain",
            Operation::Undrain,
            "undrainHost",
        )
    },
    Route {
        about: "All jobs, sorted by name",
        ..get(
            "/v1/jobs",
            Operation::List,
            "listJobs",
            schema::<Vec<JobSummary>>,
        )
    },
    Route {
        verb: Verb::Post,
        about: "Submit a job whose package is in the store; the same again is no error and has no effect",
        body: Some(schema::<SubmitRequest>),
        success: Success::Created(schema::<JobSummary>),
        failures: &[409, 422],
        ..get(
            "/v1/jobs",
            Operation::Submit,
            "submitJob",
            schema::<JobSummary>,
        )
    },
    Route {
        about: "The jobs that are gone and remembered, the latest first",
        ..get(
            "/v1/history",
            Operation::PastJobs,
            "listPastJobs",
            schema::<Vec<PastJobSummary>>,
        )
    },
    Route {
        about: "What is remembered of the jobs of a name that are gone, the latest first",
        ..get(
            "/v1/history/{job}",
            Operation::Past,
            "describePastJobs",
            schema::<Vec<PastJobDescription>>,
        )
    },
    Route {
        about: "All that is known of a job",
        failures: &[404],
        ..get(
            "/v1/jobs/{job}",
            Operation::Describe,
            "describeJob",
            schema::<JobDescription>,
        )
    },
    Route {
        about: "End a job, and leave nothing of it behind",
        query: Some(query::<KillQuery>),
        ..command(Verb::Delete, "/v1/jobs/{job}", Operation::Kill, "killJob")
    },
    Route {
        about: "Have the sources of a job read again",
        ..command(
            Verb::Post,
            "/v1/jobs/{job}/activate",
            Operation::Activate,
            "activateJob",
        )
    },
    Route {
        about: "Have the sources of a job read nothing until it is activated",
        ..command(
            Verb::Post,
            "/v1/jobs/{job}/deactivate",
            Operation::Deactivate,
            "deactivateJob",
        )
    },
    Route {
        about: "Stop what runs in a container, and start it again",
        ..command(
            Verb::Post,
            "/v1/jobs/{job}/containers/{container}/restart",
            Operation::Restart,
            "restartContainer",
        )
    },
    Route {
        about: "Give vertices other numbers of instances, while the job runs",
        body: Some(schema::<ParallelismUpdate>),
        failures: &[404, 409, 422],
        ..command(
            Verb::Put,
            "/v1/jobs/{job}/parallelism",
            Operation::Update,
            "updateParallelism",
        )
    },
    Route {
        about: "Spread all instances over another number of containers, while the job runs",
        body: Some(schema::<ContainersUpdate>),
        failures: &[404, 409, 422],
        ..command(
            Verb::Put,
            "/v1/jobs/{job}/container-count",
            Operation::Rescale,
            "updateContainerCount",
        )
    },
    Route {
        about: "Have a job in safe mode begin again: from its newest committed epoch, from an earlier one, or with nothing",
        body: Some(schema::<RecoverRequest>),
        failures: &[404, 409, 422],
        ..command(
            Verb::Post,
            "/v1/jobs/{job}/recover",
            Operation::Recover,
            "recoverJob",
        )
    },
    Route {
        verb: Verb::Post,
        about: "End an epoch of a job with a guarantee, write a savepoint of it to a folder, and answer when it is there",
        body: Some(schema::<SavepointRequest>),
        failures: &[404, 409, 422],
        ..get(
            "/v1/jobs/{job}/savepoint",
            Operation::Savepoint,
            "writeSavepoint",
            schema::<SavepointView>,
        )
    },
    Route {
        about: "What a job with a guarantee remembers",
        failures: &[404, 409],
        ..get(
            "/v1/jobs/{job}/states",
            Operation::States,
            "listStates",
            schema::<StatesView>,
        )
    },
    Route {
        about: "Have another program follow that of a job, with its state; if it doesn't come up the one before comes back",
        body: Some(schema::<UpgradeRequest>),
        failures: &[404, 409, 422],
        ..command(
            Verb::Post,
            "/v1/jobs/{job}/upgrade",
            Operation::Upgrade,
            "upgradeJob",
        )
    },
    Route {
        about: "The snapshots of a job that has a guarantee",
        failures: &[404, 409],
        ..get(
            "/v1/jobs/{job}/snapshots",
            Operation::Snapshots,
            "listSnapshots",
            schema::<SnapshotsView>,
        )
    },
    Route {
        verb: Verb::Post,
        about: "Read all that the snapshots of a job consist of, and verify it; of one that runs an epoch is ended, whose snapshot is held until it is read",
        failures: &[404, 409],
        ..get(
            "/v1/jobs/{job}/snapshots/check",
            Operation::CheckSnapshots,
            "checkSnapshots",
            schema::<SnapshotsView>,
        )
    },
    Route {
        about: "The logical, physical and packing plan of a job",
        failures: &[404],
        ..get(
            "/v1/jobs/{job}/plan",
            Operation::Plans,
            "getPlans",
            schema::<Plans>,
        )
    },
    Route {
        about: "What the processes of a job have written",
        query: Some(query::<LogQuery>),
        success: Success::Lines(schema::<LogEvent>),
        failures: &[404],
        ..get(
            "/v1/jobs/{job}/logs",
            Operation::Logs,
            "getLogs",
            schema::<LogEvent>,
        )
    },
    Route {
        about: "The latest values of a job's metrics; none where nothing is measured that matches",
        query: Some(query::<MetricsQuery>),
        failures: &[404],
        ..get(
            "/v1/jobs/{job}/metrics",
            Operation::Metrics,
            "getMetrics",
            schema::<Vec<SampleView>>,
        )
    },
    Route {
        about: "The values of a metric of a job over a time; none where nothing was measured that matches",
        query: Some(query::<RangeQuery>),
        failures: &[404],
        ..get(
            "/v1/jobs/{job}/metrics/range",
            Operation::MetricsRange,
            "getMetricsRange",
            schema::<MetricsRange>,
        )
    },
    Route {
        about: "How each vertex and container of a job is doing at the moment",
        failures: &[404],
        ..get(
            "/v1/jobs/{job}/top",
            Operation::Top,
            "getTop",
            schema::<TopView>,
        )
    },
    Route {
        about: "The maps of the cluster, sorted by name, and what they take in memory",
        ..get("/v1/maps", Operation::Maps, "listMaps", schema::<MapsView>)
    },
    Route {
        verb: Verb::Delete,
        about: "Remove all that a map has, and its name",
        failures: &[404],
        ..command(
            Verb::Delete,
            "/v1/maps/{map}",
            Operation::DropMap,
            "dropMap",
        )
    },
    Route {
        about: "The entry of a key of a map",
        query: Some(query::<MapKeyQuery>),
        failures: &[404],
        ..get(
            "/v1/maps/{map}/entry",
            Operation::MapEntry,
            "getEntry",
            schema::<MapEntryView>,
        )
    },
    Route {
        verb: Verb::Put,
        about: "Give a key of a map a value; the answer is the entry as it is kept",
        query: Some(query::<MapKeyQuery>),
        body: Some(schema::<MapPutRequest>),
        failures: &[404],
        ..get(
            "/v1/maps/{map}/entry",
            Operation::PutEntry,
            "putEntry",
            schema::<MapEntryView>,
        )
    },
    Route {
        verb: Verb::Delete,
        about: "Remove what a key of a map has; the answer is what it had",
        query: Some(query::<MapKeyQuery>),
        failures: &[404],
        ..get(
            "/v1/maps/{map}/entry",
            Operation::RemoveEntry,
            "removeEntry",
            schema::<MapEntryView>,
        )
    },
    Route {
        about: "Entries of a map, sorted by key",
        query: Some(query::<MapQuery>),
        failures: &[404],
        ..get(
            "/v1/maps/{map}/entries",
            Operation::MapEntries,
            "listEntries",
            schema::<MapEntriesView>,
        )
    },
    Route {
        about: "What happens to entries of a map, from now on",
        query: Some(query::<MapQuery>),
        success: Success::Lines(schema::<MapEvent>),
        failures: &[404],
        ..get(
            "/v1/maps/{map}/changes",
            Operation::MapChanges,
            "watchMap",
            schema::<MapEvent>,
        )
    },
    Route {
        about: "This document",
        success: Success::Document,
        ..get(
            DOCUMENT_PATH,
            Operation::Document,
            "getDocument",
            schema::<LogEvent>,
        )
    },
];

/// Where the document is.
pub(crate) const DOCUMENT_PATH: &str = "/v1/openapi.json";
