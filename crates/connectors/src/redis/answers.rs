//! Classification of responses and errors of a server.

use redis::{ErrorKind, RedisError, Value};

/// Returns the response; an error response is returned as an error.
pub(crate) fn expect(answer: Result<Value, RedisError>) -> Result<Value, RedisError> {
    match answer? {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

/// Returns the server's error response; `None` if the response is no error.
pub(crate) fn refusal(answer: Result<Value, RedisError>) -> Result<Option<RedisError>, RedisError> {
    match answer {
        Ok(Value::ServerError(error)) => Ok(Some(error.into())),
        Ok(_) => Ok(None),
        Err(error) if is_refusal(&error) => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// Returns true if the error is a response of the server.
pub(crate) fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

/// Returns true if the server temporarily refuses all commands.
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

/// Returns true if a cluster node redirects the command to another node.
pub(crate) fn is_redirection(error: &RedisError) -> bool {
    matches!(error.code(), Some("MOVED" | "ASK"))
}

/// Returns true if retrying is useless.
pub(crate) fn is_final(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
        || is_of_certificates(&error.to_string())
}

/// Returns true if `why` reports that the client or the server does not accept the other's
/// certificate.
fn is_of_certificates(why: &str) -> bool {
    const REASONS: [&str; 4] = [
        "invalid peer certificate",
        "CertificateRequired",
        "UnknownCA",
        "BadCertificate",
    ];
    REASONS.iter().any(|reason| why.contains(reason))
}

/// Returns the error of an unexpected response.
pub(crate) fn confused() -> RedisError {
    RedisError::from((
        ErrorKind::UnexpectedReturnType,
        "unexpected response to a transaction",
    ))
}
