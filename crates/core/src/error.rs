//! Errors for people: what failed, on what, why, and what to do next.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

/// The result of anything that can fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A stable name for a kind of failure; scripts may rely on it.
///
/// These are the only codes of the project. A crate with an error type of its own says with `code()` which of them it is, or
/// converts it into an [`Error`] before a person sees it; errors that only code sees, such as that of a full queue, and
/// those of tests have none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorCode {
    /// The graph or a setting of the job makes no sense.
    InvalidJob,
    /// A setting has a wrong name or value.
    InvalidConfig,
    /// An edge carries records of another type than its consumer reads.
    TypeMismatch,
    /// A processor wrote to an output that its vertex hasn't.
    NoSuchOutput,
    /// Records came where none are taken.
    UnexpectedInput,
    /// The user's code panicked.
    UserPanic,
    /// The user's code returned an error.
    UserError,
    /// A record could not be decoded.
    BadRecord,
    /// An instance fails again and again, and is not started any more.
    FailsAgain,
    /// Reading from outside failed.
    ReadFailed,
    /// Writing to outside failed.
    WriteFailed,
    /// An address is in use or can't be reached.
    Network,
    /// A store (a file system, a bucket, a server) lacks what the job promises to do with it.
    StoreUnsuitable,
    /// The node has no place for more.
    LimitReached,
    /// The job was cancelled.
    Cancelled,
    /// Whoever read the output has gone: nobody wants the rest.
    OutputClosed,
    /// A node of the state manager's tree is not as the caller expected: read it again.
    StateConflict,
    /// The state manager's tree does not allow this, whoever asks and however often.
    StateRefused,
    /// The state manager, or who keeps a part of a grid's map, did not answer in time, and nothing was done.
    StateUnavailable,
    /// The answer of the state manager, or of a member of a grid, was lost: the change was made, or it was not.
    StateUnknown,
    /// What the state manager stored is damaged.
    StateCorrupt,
    /// The session with the state manager has ended, and its ephemeral nodes with it.
    SessionEnded,
    /// What a job asks for doesn't fit into the containers that it may have.
    ResourcesImpossible,
    /// A packing plan that doesn't hold each instance once and within the limits.
    BrokenPlan,
    /// Another job of the cluster has this name.
    NameTaken,
    /// The cluster has no such job.
    NoSuchJob,
    /// Two processes of one job are of versions that don't understand each other.
    VersionMismatch,
    /// A process of another cluster, or of another job.
    WrongCluster,
    /// Somebody newer has taken over: a master or a worker that was given up.
    Superseded,
    /// The job is in a state in which this can't be done.
    WrongState,
    /// A process refused the connection of another, and said why.
    Refused,
    /// What another process sent can't be read.
    BadMessage,
    /// Another process of the job is gone, with what was under way there.
    PeerLost,
    /// A container's process could not be started.
    StartFailed,
    /// No host has room for a container.
    NoRoom,
    /// What a scheduler gets its containers from can't be reached, or does not do what it is asked for.
    SchedulerUnavailable,
    /// The job has no such container, or the container no such output.
    NoSuchContainer,
    /// The cluster has no such host.
    NoSuchHost,
    /// The cluster has no such map, or the map no such key.
    NoSuchEntry,
    /// The package store has no such package.
    PackageMissing,
    /// What came is not what was asked for: its digest or its content is wrong.
    PackageCorrupt,
    /// The package store can't be reached, or broke off.
    PackageStoreAway,
    /// The package store, or whoever unpacks, does not accept this package: too large, unsafe, or not allowed.
    PackageRefused,
    /// There is no space left on the device.
    DiskFull,
    /// A batch of metrics that can't be read.
    BrokenBatch,
    /// A part of a snapshot is damaged or gone.
    SnapshotDamaged,
    /// There is no such snapshot, or not any more.
    NoSuchSnapshot,
    /// The cuts of an epoch do not make a snapshot together.
    SnapshotRefused,
    /// The place of a job's snapshots can't be read at the moment; it is waited for.
    SnapshotsAway,
    /// What the job has to go on with is still in the hands of a process of an earlier life of it; that is waited for.
    StillHeld,
    /// Whoever asks has no token, or a wrong one.
    Unauthorized,
    /// A request that the cluster's interface does not understand.
    BadRequest,
    /// What answered is no cluster's interface, or one of another version.
    BadAnswer,
    /// A broken invariant of the engine itself: please report it.
    Internal,
}

/// Who can mend a failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Domain {
    /// The author of the job.
    User,
    /// Whoever runs what the job talks to.
    External,
    /// The engine's authors.
    Engine,
}

/// All codes.
const ALL: &[ErrorCode] = &[
    ErrorCode::InvalidJob,
    ErrorCode::InvalidConfig,
    ErrorCode::TypeMismatch,
    ErrorCode::NoSuchOutput,
    ErrorCode::UnexpectedInput,
    ErrorCode::UserPanic,
    ErrorCode::UserError,
    ErrorCode::BadRecord,
    ErrorCode::FailsAgain,
    ErrorCode::ReadFailed,
    ErrorCode::WriteFailed,
    ErrorCode::Network,
    ErrorCode::StoreUnsuitable,
    ErrorCode::LimitReached,
    ErrorCode::Cancelled,
    ErrorCode::OutputClosed,
    ErrorCode::StateConflict,
    ErrorCode::StateRefused,
    ErrorCode::StateUnavailable,
    ErrorCode::StateUnknown,
    ErrorCode::StateCorrupt,
    ErrorCode::SessionEnded,
    ErrorCode::ResourcesImpossible,
    ErrorCode::BrokenPlan,
    ErrorCode::NameTaken,
    ErrorCode::NoSuchJob,
    ErrorCode::VersionMismatch,
    ErrorCode::WrongCluster,
    ErrorCode::Superseded,
    ErrorCode::WrongState,
    ErrorCode::Refused,
    ErrorCode::BadMessage,
    ErrorCode::PeerLost,
    ErrorCode::StartFailed,
    ErrorCode::NoRoom,
    ErrorCode::SchedulerUnavailable,
    ErrorCode::NoSuchContainer,
    ErrorCode::NoSuchHost,
    ErrorCode::NoSuchEntry,
    ErrorCode::PackageMissing,
    ErrorCode::PackageCorrupt,
    ErrorCode::PackageStoreAway,
    ErrorCode::PackageRefused,
    ErrorCode::DiskFull,
    ErrorCode::BrokenBatch,
    ErrorCode::SnapshotDamaged,
    ErrorCode::NoSuchSnapshot,
    ErrorCode::SnapshotRefused,
    ErrorCode::SnapshotsAway,
    ErrorCode::StillHeld,
    ErrorCode::Unauthorized,
    ErrorCode::BadRequest,
    ErrorCode::BadAnswer,
    ErrorCode::Internal,
];

impl ErrorCode {
    /// The code of this stable name, if there is one; what travelled between processes as a text is found again by it.
    ///
    /// ```
    /// use ardea_core::ErrorCode;
    ///
    /// assert_eq!(ErrorCode::named("ARD-101"), Some(ErrorCode::InvalidJob));
    /// assert_eq!(ErrorCode::named("ARD-0"), None);
    /// ```
    pub fn named(name: &str) -> Option<ErrorCode> {
        ALL.iter().copied().find(|code| code.as_str() == name)
    }

    /// The stable name, such as `ARD-101`.
    pub const fn as_str(self) -> &'static str {
        match self {
            ErrorCode::InvalidJob => "ARD-101",
            ErrorCode::InvalidConfig => "ARD-102",
            ErrorCode::TypeMismatch => "ARD-103",
            ErrorCode::NoSuchOutput => "ARD-104",
            ErrorCode::UnexpectedInput => "ARD-105",
            ErrorCode::UserPanic => "ARD-201",
            ErrorCode::UserError => "ARD-202",
            ErrorCode::BadRecord => "ARD-203",
            ErrorCode::FailsAgain => "ARD-204",
            ErrorCode::ReadFailed => "ARD-301",
            ErrorCode::WriteFailed => "ARD-302",
            ErrorCode::Network => "ARD-303",
            ErrorCode::StoreUnsuitable => "ARD-304",
            ErrorCode::LimitReached => "ARD-401",
            ErrorCode::Cancelled => "ARD-402",
            ErrorCode::OutputClosed => "ARD-403",
            ErrorCode::StateConflict => "ARD-501",
            ErrorCode::StateRefused => "ARD-502",
            ErrorCode::StateUnavailable => "ARD-503",
            ErrorCode::StateUnknown => "ARD-504",
            ErrorCode::StateCorrupt => "ARD-505",
            ErrorCode::SessionEnded => "ARD-506",
            ErrorCode::ResourcesImpossible => "ARD-601",
            ErrorCode::BrokenPlan => "ARD-602",
            ErrorCode::NameTaken => "ARD-603",
            ErrorCode::NoSuchJob => "ARD-604",
            ErrorCode::VersionMismatch => "ARD-605",
            ErrorCode::WrongCluster => "ARD-606",
            ErrorCode::Superseded => "ARD-607",
            ErrorCode::WrongState => "ARD-608",
            ErrorCode::Refused => "ARD-610",
            ErrorCode::BadMessage => "ARD-611",
            ErrorCode::PeerLost => "ARD-612",
            ErrorCode::StartFailed => "ARD-621",
            ErrorCode::NoRoom => "ARD-622",
            ErrorCode::SchedulerUnavailable => "ARD-623",
            ErrorCode::NoSuchContainer => "ARD-624",
            ErrorCode::NoSuchHost => "ARD-625",
            ErrorCode::NoSuchEntry => "ARD-626",
            ErrorCode::PackageMissing => "ARD-631",
            ErrorCode::PackageCorrupt => "ARD-632",
            ErrorCode::PackageStoreAway => "ARD-633",
            ErrorCode::PackageRefused => "ARD-634",
            ErrorCode::DiskFull => "ARD-635",
            ErrorCode::BrokenBatch => "ARD-641",
            ErrorCode::SnapshotDamaged => "ARD-645",
            ErrorCode::NoSuchSnapshot => "ARD-646",
            ErrorCode::SnapshotRefused => "ARD-647",
            ErrorCode::SnapshotsAway => "ARD-648",
            ErrorCode::StillHeld => "ARD-649",
            ErrorCode::Unauthorized => "ARD-650",
            ErrorCode::BadRequest => "ARD-651",
            ErrorCode::BadAnswer => "ARD-652",
            ErrorCode::Internal => "ARD-900",
        }
    }

    /// Whether all failures of this kind are [permanent](Error::is_permanent).
    const fn is_permanent(self) -> bool {
        matches!(
            self,
            ErrorCode::InvalidJob
                | ErrorCode::InvalidConfig
                | ErrorCode::StoreUnsuitable
                | ErrorCode::TypeMismatch
                | ErrorCode::NoSuchOutput
                | ErrorCode::UnexpectedInput
                | ErrorCode::VersionMismatch
                | ErrorCode::WrongCluster
        )
    }

    /// Who can mend it.
    pub const fn domain(self) -> Domain {
        match self {
            ErrorCode::ReadFailed
            | ErrorCode::WriteFailed
            | ErrorCode::Network
            | ErrorCode::StoreUnsuitable
            | ErrorCode::StateUnavailable
            | ErrorCode::StateUnknown
            | ErrorCode::StateCorrupt
            | ErrorCode::SessionEnded
            | ErrorCode::BadMessage
            | ErrorCode::PeerLost
            | ErrorCode::BadAnswer
            | ErrorCode::NoRoom
            | ErrorCode::SchedulerUnavailable
            | ErrorCode::PackageCorrupt
            | ErrorCode::PackageStoreAway
            | ErrorCode::DiskFull
            | ErrorCode::BrokenBatch
            | ErrorCode::SnapshotDamaged
            | ErrorCode::SnapshotsAway
            | ErrorCode::StillHeld => Domain::External,
            ErrorCode::SnapshotRefused | ErrorCode::Internal => Domain::Engine,
            _ => Domain::User,
        }
    }
}

/// Whether another attempt at the same may succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Persistence {
    Transient,
    Permanent,
}

/// What failed, where, why, and what to do next.
///
/// ```
/// use ardea_core::{Error, ErrorCode};
///
/// let error = Error::new(ErrorCode::ReadFailed, "cannot read flights.csv")
///     .because(std::io::Error::other("disk on fire"))
///     .hint("check the path and its permissions")
///     .in_vertex("flights", 0);
/// assert_eq!(
///     error.to_string(),
///     "ARD-301: cannot read flights.csv: disk on fire (vertex \"flights\", instance 0); check the path and its permissions"
/// );
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    code: ErrorCode,
    what: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    hint: Option<String>,
    vertex: Option<(String, u32)>,
    record: Option<(usize, u64)>,
    /// Set by [`Error::permanent`] and [`Error::transient`]; unset, code and cause decide.
    persistence: Option<Persistence>,
}

impl Error {
    /// `what` failed: a phrase without a full stop.
    pub fn new(code: ErrorCode, what: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            code,
            what: what.into(),
            source: None,
            hint: None,
            vertex: None,
            record: None,
            persistence: None,
        }))
    }

    /// Why.
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// What to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Where; the innermost place is kept.
    pub fn in_vertex(mut self, vertex: &str, instance: u32) -> Self {
        self.0
            .vertex
            .get_or_insert_with(|| (vertex.to_string(), instance));
        self
    }

    /// On which record: the input's ordinal and the record's position on it, from zero; the innermost is kept.
    pub fn at_record(mut self, input: usize, position: u64) -> Self {
        self.0.record.get_or_insert((input, position));
        self
    }

    /// Marks the failure as permanent, whatever its code and cause: see [`is_permanent`](Self::is_permanent).
    pub fn permanent(mut self) -> Self {
        self.0.persistence = Some(Persistence::Permanent);
        self
    }

    /// Marks the failure as one that another attempt may outlast, whatever its code and cause.
    pub fn transient(mut self) -> Self {
        self.0.persistence = Some(Persistence::Transient);
        self
    }

    /// Returns whether another attempt fails in the same way until a person changes something.
    ///
    /// A job ends with such an error at once instead of being restarted; on a cluster it enters safe mode.
    /// Unless [`permanent`](Self::permanent) or [`transient`](Self::transient) says so, the failure is permanent in three cases:
    ///
    /// * Its code concerns the job's description or its surroundings: `InvalidJob`, `InvalidConfig`, `StoreUnsuitable`, `TypeMismatch`,
    ///   `NoSuchOutput`, `UnexpectedInput`, `VersionMismatch`, `WrongCluster`.
    /// * Its code is `ReadFailed` or `WriteFailed`, and its cause an [`io::Error`] that another attempt cannot change: the path does
    ///   not exist, is of the wrong kind, or access is denied.
    /// * Its cause is a permanent error of the same code.
    ///
    /// ```
    /// use std::io;
    /// use ardea_core::{Error, ErrorCode};
    ///
    /// let read = |kind: io::ErrorKind| Error::new(ErrorCode::ReadFailed, "cannot read a.csv").because(io::Error::from(kind));
    /// assert!(read(io::ErrorKind::NotFound).is_permanent());
    /// assert!(!read(io::ErrorKind::TimedOut).is_permanent());
    /// assert!(Error::new(ErrorCode::ReadFailed, "there is no topic \"orders\"").permanent().is_permanent());
    /// ```
    pub fn is_permanent(&self) -> bool {
        match self.0.persistence {
            Some(persistence) => persistence == Persistence::Permanent,
            None => self.0.code.is_permanent() || self.has_permanent_cause(),
        }
    }

    fn has_permanent_cause(&self) -> bool {
        let Some(cause) = &self.0.source else {
            return false;
        };
        if let Some(error) = cause.downcast_ref::<Error>() {
            return error.code() == self.code() && error.is_permanent();
        }
        let is_of_files = matches!(self.code(), ErrorCode::ReadFailed | ErrorCode::WriteFailed);
        is_of_files
            && cause.downcast_ref::<io::Error>().is_some_and(|error| {
                matches!(
                    error.kind(),
                    io::ErrorKind::NotFound
                        | io::ErrorKind::PermissionDenied
                        | io::ErrorKind::IsADirectory
                        | io::ErrorKind::NotADirectory
                        | io::ErrorKind::ReadOnlyFilesystem
                        | io::ErrorKind::Unsupported
                )
            })
    }

    /// The kind of failure.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// What to do next, if that is known.
    pub fn what_next(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The error without what to do next: code, what, why and where.
    pub fn without_hint(&self) -> Error {
        let mut error = self.clone();
        error.0.hint = None;
        error
    }

    /// What failed, why and where: without the code and what to do next.
    pub fn message(&self) -> String {
        let text = self.without_hint().to_string();
        let behind = text.strip_prefix(self.code().as_str());
        match behind.and_then(|rest| rest.strip_prefix(": ")) {
            Some(message) => message.to_string(),
            None => text,
        }
    }

    /// The vertex and instance that failed, if the failure has a place.
    pub fn vertex(&self) -> Option<(&str, u32)> {
        self.0
            .vertex
            .as_ref()
            .map(|(name, instance)| (name.as_str(), *instance))
    }

    /// The input ordinal and the position of the record at hand, if there was one.
    pub fn record(&self) -> Option<(usize, u64)> {
        self.0.record
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        write!(f, "{}: {}", inner.code.as_str(), inner.what)?;
        if let Some(source) = &inner.source {
            write!(f, ": {source}")?;
        }
        if let Some((vertex, instance)) = &inner.vertex {
            write!(f, " (vertex {vertex:?}, instance {instance}")?;
            if let Some((input, position)) = inner.record {
                write!(f, ", record {position} of input {input}")?;
            }
            f.write_str(")")?;
        }
        if let Some(hint) = &inner.hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

/// As it is displayed: a program that returns the error from `main` prints it so.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_outweighs_code_and_cause() {
        let missing = || {
            let cause = io::Error::from(io::ErrorKind::NotFound);
            Error::new(ErrorCode::ReadFailed, "x").because(cause)
        };
        assert!(missing().is_permanent());
        assert!(!missing().transient().is_permanent());
        assert!(!missing().permanent().transient().is_permanent());
        assert!(Error::new(ErrorCode::InvalidJob, "x").is_permanent());
        assert!(!Error::new(ErrorCode::UserPanic, "x").is_permanent());
        assert!(
            Error::new(ErrorCode::Network, "x")
                .permanent()
                .is_permanent()
        );
    }

    #[test]
    fn a_permanent_cause_counts_only_under_its_own_code() {
        let cause = || Error::new(ErrorCode::ReadFailed, "no topic").permanent();
        let over = |code| Error::new(code, "x").because(cause());
        assert!(over(ErrorCode::ReadFailed).is_permanent());
        assert!(!over(ErrorCode::SnapshotsAway).is_permanent());
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(
            !Error::new(ErrorCode::Network, "x")
                .because(denied)
                .is_permanent()
        );
    }

    #[test]
    fn every_code_is_found_by_its_name_and_no_two_have_one_name() {
        let source = include_str!("error.rs");
        let named = source.matches(concat!("=> \"ARD", "-")).count();
        assert_eq!(
            ALL.len(),
            named,
            "a code is missing in ALL, or is there twice"
        );
        for code in ALL {
            assert_eq!(ErrorCode::named(code.as_str()), Some(*code));
        }
    }
}
