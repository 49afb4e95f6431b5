//! The start parameters of a worker.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;

use ardea_coordination::control::{JobRef, WORKER_START_VARIABLE, WorkerStart};
use ardea_core::{Error, ErrorCode, Result, Token};

/// Returns the start parameters from the environment variable
/// [`ARDEA_WORKER`](WORKER_START_VARIABLE) (JSON). Returns `None` if this process was not started
/// as a container's worker.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the variable's value is invalid.
pub fn start_from_environment() -> Result<Option<WorkerStart>> {
    let Some(text) = std::env::var_os(WORKER_START_VARIABLE) else {
        return Ok(None);
    };
    let wrong = |error: Box<dyn std::error::Error + Send + Sync>| {
        Error::new(
            ErrorCode::InvalidConfig,
            format!("the variable {WORKER_START_VARIABLE} does not say how to start a worker"),
        )
        .because(error)
        .hint(
            "it is set by schedulers only; unset it, or run the same version of ardea on all hosts",
        )
    };
    let text = text
        .into_string()
        .map_err(|_| wrong("it is not valid UTF-8".into()))?;
    let start = serde_json::from_str(&text).map_err(|error| wrong(error.into()))?;
    Ok(Some(start))
}

/// Reads the cluster's secret from the file at `path`; `None` without a path.
pub(crate) fn read_token(path: Option<&str>) -> Result<Option<Token>> {
    let Some(path) = path else {
        return Ok(None);
    };
    let unreadable = |error: std::io::Error| {
        Error::new(
            ErrorCode::ReadFailed,
            format!("cannot read the cluster's token in {path}"),
        )
        .because(error)
        .hint("the file has to be readable for the user that workers run as")
    };
    let mode = fs::metadata(path).map_err(unreadable)?.mode();
    if mode & 0o077 != 0 {
        return Err(Error::new(
            ErrorCode::InvalidConfig,
            format!("the cluster's token in {path} is readable for other users"),
        )
        .hint(format!("restrict it to its owner: chmod 600 {path}")));
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let secret = text.trim();
    if secret.is_empty() {
        return Err(Error::new(
            ErrorCode::InvalidConfig,
            format!("the file {path} holds no token"),
        )
        .hint("write a long random text into it, the same on all hosts"));
    }
    Ok(Some(Token::new(secret)))
}

/// Returns the addresses at which a worker on `host` may listen, with this port.
pub(crate) fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let found = (bare, port).to_socket_addrs().map_err(|error| {
        Error::new(
            ErrorCode::Network,
            format!("the host's name {host:?} can't be resolved to an address"),
        )
        .because(error)
        .hint("give hosts names that all of them can resolve, or IP addresses")
    })?;
    let mut found: Vec<SocketAddr> = found.collect();
    found.dedup();
    Ok(found)
}

/// Formats `host:port`.
pub(crate) fn endpoint(host: &str, port: u16) -> String {
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// Returns the cluster name in the handshake between workers of one submission. With it they reject
/// all other peers.
pub(crate) fn exchange_cluster(job: &JobRef) -> String {
    format!("{}/{}", job.cluster, full_name(job))
}

/// Returns the full name of a submission, as used between its processes.
pub(crate) fn full_name(job: &JobRef) -> String {
    format!("{}#{:x}", job.name, job.submission)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "sesame\n").unwrap();
        let name = path.to_str().unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = read_token(Some(name)).unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(read_token(Some(name)).unwrap().unwrap().is("sesame"));
        fs::write(&path, "\n").unwrap();
        assert!(read_token(Some(name)).is_err());
    }

    #[test]
    fn an_endpoint_is_what_others_connect_to() {
        assert_eq!(endpoint("host-7", 7400), "host-7:7400");
        assert_eq!(endpoint("::1", 7400), "[::1]:7400");
        assert_eq!(endpoint("[::1]", 7400), "[::1]:7400");
        assert_eq!(addresses("[::1]", 7).unwrap().len(), 1);
    }
}
