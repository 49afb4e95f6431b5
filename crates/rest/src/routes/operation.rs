//! The operations of the interface, and the methods of their requests.

/// The operation of a route; each operation has exactly one route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    About,
    Events,
    Hosts,
    Drain,
    Undrain,
    List,
    Submit,
    RunProgram,
    PastJobs,
    Past,
    Describe,
    Kill,
    Resume,
    Pause,
    Restart,
    Update,
    Rescale,
    Recover,
    Savepoint,
    States,
    Upgrade,
    Checkpoints,
    CheckCheckpoints,
    Plans,
    Logs,
    Metrics,
    MetricsRange,
    Top,
    JobEvents,
    Traffic,
    Why,
    DeadLetters,
    Maps,
    MapEntry,
    MapEntries,
    MapChanges,
    PutEntry,
    RemoveEntry,
    DropMap,
    CreateToken,
    Tokens,
    RevokeToken,
    Audit,
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
    /// Returns the method as the OpenAPI document writes it.
    pub(crate) fn in_lower_case(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::Post => "post",
            Verb::Put => "put",
            Verb::Delete => "delete",
        }
    }
}
