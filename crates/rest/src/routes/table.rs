//! All routes.

use super::{DOCUMENT_PATH, Operation, Route, Success, Verb, command, get, query, schema};
use crate::{
    AuditQuery, AuditView, CheckpointsView, ClusterEvent, ClusterInfo, ContainersUpdate,
    DeadLettersQuery, DeadLettersView, DiagnosisView, HostView, JobDescription, JobEvent,
    JobEventsQuery, JobSummary, KillQuery, LogEvent, LogQuery, MapEntriesView, MapEntryView,
    MapEvent, MapKeyQuery, MapPutRequest, MapQuery, MapsView, MetricsQuery, MetricsRange,
    NewTokenView, PageQuery, ParallelismUpdate, PastJobDescription, PastJobSummary, Plans,
    ProgramOutcome, ProgramRequest, RangeQuery, RecoverRequest, SampleView, SavepointRequest,
    SavepointView, StatesView, SubmitRequest, TokenRequest, TokenView, TopView, TrafficView,
    UpgradeRequest,
};

/// All routes of the REST interface.
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
        about: "A stream of the state of the cluster: its jobs and hosts when they change, and their load every second",
        success: Success::Events(schema::<ClusterEvent>),
        ..get(
            "/v1/events",
            Operation::Events,
            "followCluster",
            schema::<ClusterEvent>,
        )
    },
    Route {
        about: "The hosts of the cluster, sorted by name; by pages with limit and after",
        query: Some(query::<PageQuery>),
        ..get(
            "/v1/hosts",
            Operation::Hosts,
            "listHosts",
            schema::<Vec<HostView>>,
        )
    },
    Route {
        about: "Drain a host: no container is placed there any more, and its containers move to other hosts",
        ..command(
            Verb::Post,
            "/v1/hosts/{host}/drain",
            Operation::Drain,
            "drainHost",
        )
    },
    Route {
        about: "End the draining of a host; moved containers do not return",
        failures: &[404],
        ..command(
            Verb::Delete,
            "/v1/hosts/{host}/drain",
            Operation::Undrain,
            "undrainHost",
        )
    },
    Route {
        about: "All jobs, sorted by name; by pages with limit and after",
        query: Some(query::<PageQuery>),
        ..get(
            "/v1/jobs",
            Operation::List,
            "listJobs",
            schema::<Vec<JobSummary>>,
        )
    },
    Route {
        verb: Verb::Post,
        about: "Submit a job whose package is in the store; idempotent for the same submission",
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
        verb: Verb::Post,
        about: "Submit a topology or a job program whose file is in the request, compare its states with those of a job, or upgrade a job to it",
        body: Some(schema::<ProgramRequest>),
        failures: &[404, 409, 422],
        ..get(
            "/v1/programs",
            Operation::RunProgram,
            "runProgram",
            schema::<ProgramOutcome>,
        )
    },
    Route {
        about: "The jobs that have ended and are still recorded, the latest first; by pages with limit and after",
        query: Some(query::<PageQuery>),
        ..get(
            "/v1/history",
            Operation::PastJobs,
            "listPastJobs",
            schema::<Vec<PastJobSummary>>,
        )
    },
    Route {
        about: "The recorded jobs of a name that have ended, the latest first",
        ..get(
            "/v1/history/{job}",
            Operation::Past,
            "describePastJobs",
            schema::<Vec<PastJobDescription>>,
        )
    },
    Route {
        about: "The details of a job",
        failures: &[404],
        ..get(
            "/v1/jobs/{job}",
            Operation::Describe,
            "describeJob",
            schema::<JobDescription>,
        )
    },
    Route {
        about: "Kill a job, and delete its state",
        query: Some(query::<KillQuery>),
        ..command(Verb::Delete, "/v1/jobs/{job}", Operation::Kill, "killJob")
    },
    Route {
        about: "Resume the sources of a job",
        ..command(
            Verb::Post,
            "/v1/jobs/{job}/resume",
            Operation::Resume,
            "resumeJob",
        )
    },
    Route {
        about: "Pause the sources of a job until it is resumed",
        ..command(
            Verb::Post,
            "/v1/jobs/{job}/pause",
            Operation::Pause,
            "pauseJob",
        )
    },
    Route {
        about: "Restart a container",
        ..command(
            Verb::Post,
            "/v1/jobs/{job}/containers/{container}/restart",
            Operation::Restart,
            "restartContainer",
        )
    },
    Route {
        about: "Change the parallelism of vertices of a running job",
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
        about: "Spread the instances of a running job over another number of containers",
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
        about: "Restart a job in safe mode: from its latest committed epoch, from an earlier one, or without state",
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
        about: "Write a savepoint of a job with a guarantee to a folder; responds when it is complete",
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
        about: "The states of a job with a guarantee",
        failures: &[404, 409],
        ..get(
            "/v1/jobs/{job}/states",
            Operation::States,
            "listStates",
            schema::<StatesView>,
        )
    },
    Route {
        about: "Upgrade a job to another program, keeping its state; rolls back automatically if the new program doesn't start",
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
        about: "The checkpoints of a job with a guarantee",
        failures: &[404, 409],
        ..get(
            "/v1/jobs/{job}/checkpoints",
            Operation::Checkpoints,
            "listCheckpoints",
            schema::<CheckpointsView>,
        )
    },
    Route {
        verb: Verb::Post,
        about: "Read and verify all files of a job's checkpoints; for a running job this ends an epoch, whose checkpoint is held until it is read",
        failures: &[404, 409],
        ..get(
            "/v1/jobs/{job}/checkpoints/check",
            Operation::CheckCheckpoints,
            "checkCheckpoints",
            schema::<CheckpointsView>,
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
        about: "The output of a job's processes",
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
        about: "The latest values of a job's matching metrics; empty if there are none",
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
        about: "The values of a job's matching metric over a time range; empty if there are none",
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
        about: "The current load of each vertex and container of a job",
        failures: &[404],
        ..get(
            "/v1/jobs/{job}/top",
            Operation::Top,
            "getTop",
            schema::<TopView>,
        )
    },
    Route {
        about: "A stream of the state of a job: its details when they change, and its load every second",
        query: Some(query::<JobEventsQuery>),
        success: Success::Events(schema::<JobEvent>),
        failures: &[404],
        ..get(
            "/v1/jobs/{job}/events",
            Operation::JobEvents,
            "followJob",
            schema::<JobEvent>,
        )
    },
    Route {
        about: "The measured traffic between the instances of a job, and their processor time",
        failures: &[404],
        ..get(
            "/v1/jobs/{job}/traffic",
            Operation::Traffic,
            "getTraffic",
            schema::<TrafficView>,
        )
    },
    Route {
        about: "The causes for which a job is slow, late or stuck, the most severe first",
        failures: &[404],
        ..get(
            "/v1/jobs/{job}/why",
            Operation::Why,
            "getWhy",
            schema::<DiagnosisView>,
        )
    },
    Route {
        about: "The first dead letters of a job: records that it could not process, in the order of their containers",
        query: Some(query::<DeadLettersQuery>),
        failures: &[404],
        ..get(
            "/v1/jobs/{job}/dead-letters",
            Operation::DeadLetters,
            "listDeadLetters",
            schema::<DeadLettersView>,
        )
    },
    Route {
        about: "The maps of the cluster, sorted by name, with their memory use",
        ..get("/v1/maps", Operation::Maps, "listMaps", schema::<MapsView>)
    },
    Route {
        verb: Verb::Delete,
        about: "Remove a map with all its entries",
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
        about: "Set the value of a key of a map; returns the stored entry",
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
        about: "Remove an entry of a map; returns the removed entry",
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
        about: "A stream of the changes of a map, starting now",
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
        verb: Verb::Post,
        about: "Create a named token; the response has its secret, which is never shown again",
        body: Some(schema::<TokenRequest>),
        success: Success::Created(schema::<NewTokenView>),
        failures: &[409],
        ..get(
            "/v1/tokens",
            Operation::CreateToken,
            "createToken",
            schema::<NewTokenView>,
        )
    },
    Route {
        about: "The named tokens, sorted by name, without their secrets; by pages with limit and after",
        query: Some(query::<PageQuery>),
        ..get(
            "/v1/tokens",
            Operation::Tokens,
            "listTokens",
            schema::<Vec<TokenView>>,
        )
    },
    Route {
        about: "Revoke a named token",
        failures: &[404],
        ..command(
            Verb::Delete,
            "/v1/tokens/{token}",
            Operation::RevokeToken,
            "revokeToken",
        )
    },
    Route {
        about: "The latest actions of callers on this host",
        query: Some(query::<AuditQuery>),
        ..get(
            "/v1/audit",
            Operation::Audit,
            "getAudit",
            schema::<AuditView>,
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
