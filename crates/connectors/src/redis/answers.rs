//! Kinds of answers, and of errors, of a server.

use redis::{ErrorKind, RedisError, Value};

/// Returns the answer, or the error that it is.
pub(crate) fn expect(answer: Result<Value, RedisError>) -> Result<Value, RedisError> {
    match answer? {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

/// Returns the error with which the server has answered, if it has.
pub(crate) fn refusal(answer: Result<Value, RedisError>) -> Result<Option<RedisError>, RedisError> {
    match answer {
        Ok(Value::ServerError(error)) => Ok(Some(error.into())),
        Ok(_) => Ok(None),
        Err(error) if is_refusal(&error) => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// Returns true if the server has answered with an error.
pub(crate) fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

/// Returns true if the server refuses any command at the moment, and will not for ever.
pub(crate) fn is_passing(error: &RedisError) -> bool {
    const CODES: [&str; 9] = [
        "LOADING",
        "BUSY",
        "OOM",
        "MISCONF",
        "READONLY",
        "MASTERDOWN",
        "NOREPLICAS",
        "CLUSTERDOWN",
        "TRYAGAIN",
    ];
    error.code().is_some_and(|code| CODES.contains(&code))
}

/// Returns true if a node of a cluster says that another one has the key, or is about to get it.
pub(crate) fn is_redirection(error: &RedisError) -> bool {
    matches!(error.code(), Some("MOVED" | "ASK"))
}

/// Returns true if trying again is of no use.
pub(crate) fn is_final(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
        || is_of_certificates(&error.to_string())
}

/// Returns true if one side does not accept the other's certificate.
fn is_of_certificates(why: &str) -> bool {
    const REASONS: [&str; 4] = [
        "invalid peer certificate",
        "CertificateRequired",
        "UnknownCA",
        "BadCertificate",
    ];
    REASONS.iter().any(|reason| why.contains(reason))
}

/// Describes an answer that belongs to nothing.
pub(crate) fn confused() -> RedisError {
    RedisError::from((
        ErrorKind::UnexpectedReturnType,
        "the server answered a transaction with something else",
    ))
}
