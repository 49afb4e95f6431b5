//! Errors for users: the failed operation, its object, the reason, and a hint.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

/// The result type of this project.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A stable code for a kind of failure; scripts may rely on it.
///
/// These are the only codes of the project. A crate with its own error type returns one of them
/// from `code()`, or converts the error into an [`Error`] before a user sees it. Internal errors,
/// such as that of a full queue, and errors of tests have no code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorCode {
    /// The graph or a setting of the job is invalid.
    InvalidJob,
    /// A setting has a wrong name or value.
    InvalidConfig,
    /// An edge carries records of another type than its consumer reads.
    TypeMismatch,
    /// A processor wrote to an output that its vertex hasn't.
    NoSuchOutput,
    /// Records arrived at a processor that takes none.
    UnexpectedInput,
    /// The user's code panicked.
    UserPanic,
    /// The user's code returned an error.
    UserError,
    /// A record could not be decoded.
    BadRecord,
    /// An instance failed repeatedly and is not restarted any more.
    RestartLimitReached,
    /// The process that runs the code of an instance ended, hung, or broke the protocol.
    InstanceProcessFailed,
    /// Reading from an external system failed.
    ReadFailed,
    /// Writing to an external system failed.
    WriteFailed,
    /// An address is in use or can't be reached.
    Network,
    /// A store (file system, bucket, server) lacks a feature that the job requires.
    StoreUnsuitable,
    /// A limit of the engine or of the system is reached.
    LimitReached,
    /// The job was cancelled.
    Cancelled,
    /// The reader of the output has closed it.
    OutputClosed,
    /// A node of the metadata store is not in the expected state: read it again.
    MetastoreConflict,
    /// The metadata store does not allow this operation; a retry does not help.
    MetastoreRefused,
    /// The metadata store, or the primary of a grid partition, did not answer in time; nothing was
    /// changed.
    StateUnavailable,
    /// The response of the metadata store or of a grid member was lost: the change may or may not
    /// have been made.
    OutcomeUnknown,
    /// The data of the metadata store is damaged.
    MetastoreCorrupt,
    /// The session with the metadata store has ended, and its ephemeral nodes with it.
    SessionEnded,
    /// The resources that a job requires do not fit into its containers.
    ResourcesImpossible,
    /// A packing plan exceeds a limit, or does not contain each instance exactly once.
    BrokenPlan,
    /// Another job of the cluster has this name.
    NameTaken,
    /// The cluster has no such job.
    NoSuchJob,
    /// Two processes of one job have incompatible versions.
    VersionMismatch,
    /// The process belongs to another cluster or another job.
    WrongCluster,
    /// The leader or worker has been replaced by a newer one.
    Superseded,
    /// The job is in a state that does not allow this operation.
    WrongState,
    /// A process refused the connection of another and sent the reason.
    Refused,
    /// A message of another process can't be decoded.
    BadMessage,
    /// Another process of the job was lost, with its data in flight.
    PeerLost,
    /// A container's process could not be started.
    StartFailed,
    /// No host has room for a container.
    NoRoom,
    /// The scheduler's backend can't be reached, or does not fulfil a request.
    SchedulerUnavailable,
    /// The job has no such container, or the container no such output.
    NoSuchContainer,
    /// The cluster has no such host.
    NoSuchHost,
    /// The cluster has no such map, or the map no such key.
    NoSuchEntry,
    /// The package store has no such package.
    PackageMissing,
    /// A package has a wrong digest or wrong content.
    PackageCorrupt,
    /// The package store can't be reached, or broke off the transfer.
    PackageStoreUnavailable,
    /// The package store, or the host that unpacks it, does not accept this package: too large,
    /// unsafe, or not allowed.
    PackageRefused,
    /// There is no space left on the device.
    DiskFull,
    /// A batch of metrics can't be decoded.
    BrokenBatch,
    /// A part of a checkpoint is damaged or missing.
    CheckpointDamaged,
    /// The checkpoint does not exist, or was deleted.
    NoSuchCheckpoint,
    /// The snapshots of an epoch do not form a complete checkpoint.
    CheckpointRefused,
    /// The job's checkpoint store can't be read at the moment; the operation is retried.
    CheckpointStoreUnavailable,
    /// The state to restore is in use by an earlier attempt; the operation is retried.
    StateInUse,
    /// The request has no token, or a wrong one.
    Unauthorized,
    /// The caller of the cluster's API lacks the right for the request.
    Forbidden,
    /// The cluster's API does not understand the request.
    BadRequest,
    /// The response is not from a cluster's API, or from one of another version.
    BadResponse,
    /// An invariant of the engine is broken: please report it.
    Internal,
}

/// The party that can fix a failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Domain {
    /// The author of the job.
    User,
    /// The operator of a system that the job talks to.
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
    ErrorCode::RestartLimitReached,
    ErrorCode::InstanceProcessFailed,
    ErrorCode::ReadFailed,
    ErrorCode::WriteFailed,
    ErrorCode::Network,
    ErrorCode::StoreUnsuitable,
    ErrorCode::LimitReached,
    ErrorCode::Cancelled,
    ErrorCode::OutputClosed,
    ErrorCode::MetastoreConflict,
    ErrorCode::MetastoreRefused,
    ErrorCode::StateUnavailable,
    ErrorCode::OutcomeUnknown,
    ErrorCode::MetastoreCorrupt,
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
    ErrorCode::PackageStoreUnavailable,
    ErrorCode::PackageRefused,
    ErrorCode::DiskFull,
    ErrorCode::BrokenBatch,
    ErrorCode::CheckpointDamaged,
    ErrorCode::NoSuchCheckpoint,
    ErrorCode::CheckpointRefused,
    ErrorCode::CheckpointStoreUnavailable,
    ErrorCode::StateInUse,
    ErrorCode::Unauthorized,
    ErrorCode::Forbidden,
    ErrorCode::BadRequest,
    ErrorCode::BadResponse,
    ErrorCode::Internal,
];

impl ErrorCode {
    /// Returns the code with this stable name, if there is one, for names received from another
    /// process.
    ///
    /// ```
    /// use ardea_core::ErrorCode;
    ///
    /// assert_eq!(ErrorCode::from_name("ARD-101"), Some(ErrorCode::InvalidJob));
    /// assert_eq!(ErrorCode::from_name("ARD-0"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<ErrorCode> {
        ALL.iter().copied().find(|code| code.as_str() == name)
    }

    /// Returns the stable name, such as `ARD-101`.
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
            ErrorCode::RestartLimitReached => "ARD-204",
            ErrorCode::InstanceProcessFailed => "ARD-205",
            ErrorCode::ReadFailed => "ARD-301",
            ErrorCode::WriteFailed => "ARD-302",
            ErrorCode::Network => "ARD-303",
            ErrorCode::StoreUnsuitable => "ARD-304",
            ErrorCode::LimitReached => "ARD-401",
            ErrorCode::Cancelled => "ARD-402",
            ErrorCode::OutputClosed => "ARD-403",
            ErrorCode::MetastoreConflict => "ARD-501",
            ErrorCode::MetastoreRefused => "ARD-502",
            ErrorCode::StateUnavailable => "ARD-503",
            ErrorCode::OutcomeUnknown => "ARD-504",
            ErrorCode::MetastoreCorrupt => "ARD-505",
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
            ErrorCode::PackageStoreUnavailable => "ARD-633",
            ErrorCode::PackageRefused => "ARD-634",
            ErrorCode::DiskFull => "ARD-635",
            ErrorCode::BrokenBatch => "ARD-641",
            ErrorCode::CheckpointDamaged => "ARD-645",
            ErrorCode::NoSuchCheckpoint => "ARD-646",
            ErrorCode::CheckpointRefused => "ARD-647",
            ErrorCode::CheckpointStoreUnavailable => "ARD-648",
            ErrorCode::StateInUse => "ARD-649",
            ErrorCode::Unauthorized => "ARD-650",
            ErrorCode::Forbidden => "ARD-653",
            ErrorCode::BadRequest => "ARD-651",
            ErrorCode::BadResponse => "ARD-652",
            ErrorCode::Internal => "ARD-900",
        }
    }

    /// Returns true if all failures of this kind are [permanent](Error::is_permanent).
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

    /// Returns the party that can fix the failure.
    pub const fn domain(self) -> Domain {
        match self {
            ErrorCode::ReadFailed
            | ErrorCode::WriteFailed
            | ErrorCode::Network
            | ErrorCode::StoreUnsuitable
            | ErrorCode::StateUnavailable
            | ErrorCode::OutcomeUnknown
            | ErrorCode::MetastoreCorrupt
            | ErrorCode::SessionEnded
            | ErrorCode::BadMessage
            | ErrorCode::PeerLost
            | ErrorCode::BadResponse
            | ErrorCode::NoRoom
            | ErrorCode::SchedulerUnavailable
            | ErrorCode::PackageCorrupt
            | ErrorCode::PackageStoreUnavailable
            | ErrorCode::DiskFull
            | ErrorCode::BrokenBatch
            | ErrorCode::CheckpointDamaged
            | ErrorCode::CheckpointStoreUnavailable
            | ErrorCode::StateInUse => Domain::External,
            ErrorCode::CheckpointRefused | ErrorCode::Internal => Domain::Engine,
            _ => Domain::User,
        }
    }
}

/// The persistence of a failure: transient if a retry may succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Persistence {
    Transient,
    Permanent,
}

/// A failure: the failed operation, its place, the reason, and a hint.
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
    /// Set by [`Error::permanent`] and [`Error::transient`]; if unset, code and cause decide.
    persistence: Option<Persistence>,
}

impl Error {
    /// Creates an error; `what` describes the failure in a phrase without a full stop.
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

    /// Sets the cause.
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// Sets a hint for the user.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Sets the vertex and instance unless an inner call has set them.
    pub fn in_vertex(mut self, vertex: &str, instance: u32) -> Self {
        self.0
            .vertex
            .get_or_insert_with(|| (vertex.to_string(), instance));
        self
    }

    /// Sets the record unless an inner call has set it: the input's ordinal and the record's
    /// position on it, from zero.
    pub fn at_record(mut self, input: usize, position: u64) -> Self {
        self.0.record.get_or_insert((input, position));
        self
    }

    /// Marks the failure as permanent regardless of code and cause: see
    /// [`is_permanent`](Self::is_permanent).
    pub fn permanent(mut self) -> Self {
        self.0.persistence = Some(Persistence::Permanent);
        self
    }

    /// Marks the failure as transient regardless of code and cause.
    pub fn transient(mut self) -> Self {
        self.0.persistence = Some(Persistence::Transient);
        self
    }

    /// Returns true if a retry fails in the same way until a user changes something.
    ///
    /// A job ends with such an error at once instead of being restarted; on a cluster it enters
    /// safe mode. Unless [`permanent`](Self::permanent) or [`transient`](Self::transient) was
    /// called, the failure is permanent in three cases:
    /// * Its code concerns the job's description or its environment: `InvalidJob`, `InvalidConfig`,
    ///   `StoreUnsuitable`, `TypeMismatch`, `NoSuchOutput`, `UnexpectedInput`, `VersionMismatch`,
    ///   `WrongCluster`.
    /// * Its code is `ReadFailed` or `WriteFailed`, and its cause an [`io::Error`] that a retry
    ///   cannot change: the path does not exist, is of the wrong kind, or access is denied.
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

    /// Returns true if the failure was marked as [`transient`](Self::transient).
    pub fn is_transient(&self) -> bool {
        self.0.persistence == Some(Persistence::Transient)
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

    /// Returns the kind of failure.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// Returns the hint, if there is one.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Returns the error without the hint.
    pub fn without_hint(&self) -> Error {
        let mut error = self.clone();
        error.0.hint = None;
        error
    }

    /// Returns the text without the code and the hint: failure, cause and place.
    pub fn message(&self) -> String {
        let text = self.without_hint().to_string();
        let behind = text.strip_prefix(self.code().as_str());
        match behind.and_then(|rest| rest.strip_prefix(": ")) {
            Some(message) => message.to_string(),
            None => text,
        }
    }

    /// Returns the vertex and instance that failed, if known.
    pub fn vertex(&self) -> Option<(&str, u32)> {
        self.0
            .vertex
            .as_ref()
            .map(|(name, instance)| (name.as_str(), *instance))
    }

    /// Returns the input ordinal and position of the record, if known.
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

/// Same as the display, for programs that return the error from `main`.
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
        assert!(missing().transient().is_transient() && !missing().is_transient());
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
        assert!(!over(ErrorCode::CheckpointStoreUnavailable).is_permanent());
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
            assert_eq!(ErrorCode::from_name(code.as_str()), Some(*code));
        }
    }
}
