//! Encryption and authentication of connections to brokers.

use std::fmt;
use std::path::PathBuf;

/// A password. Its [`Debug`] output hides it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

#[cfg(any(feature = "avro", feature = "protobuf"))]
impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// TLS settings for connections to brokers. Files are in PEM format.
///
/// Without a [CA file](Self::ca_file) the system's trusted certificates are used. A broker's
/// certificate must contain the host name that the client connects to.
///
/// ```
/// use ardea_connectors::kafka::{Tls, read};
///
/// let tls = Tls::new().ca_file("/etc/kafka/ca.pem").client_certificate("/etc/kafka/job.pem", "/etc/kafka/job.key");
/// let source = read("kafka:9093", "flights").tls(tls);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tls {
    ca: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
    key_password: Option<Secret>,
    accepts_any_host: bool,
}

impl Tls {
    /// Enables TLS with the system's trusted certificates.
    pub fn new() -> Self {
        Tls::default()
    }

    /// Sets the file of trusted certificate authorities.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(path.into());
        self
    }

    /// Sets the files of the client certificate and of its private key.
    pub fn client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Sets the password of the private key.
    pub fn key_password(mut self, password: impl Into<String>) -> Self {
        self.key_password = Some(Secret(password.into()));
        self
    }

    /// Accepts a broker's certificate under any host name. Its signature is still verified.
    pub fn accept_any_host_name(mut self) -> Self {
        self.accepts_any_host = true;
        self
    }

    fn properties(&self, out: &mut Vec<(&'static str, String)>) {
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        if let Some(ca) = &self.ca {
            out.push(("ssl.ca.location", text(ca)));
        }
        if let Some((certificate, key)) = &self.certificate {
            out.push(("ssl.certificate.location", text(certificate)));
            out.push(("ssl.key.location", text(key)));
        }
        if let Some(Secret(password)) = &self.key_password {
            out.push(("ssl.key.password", password.clone()));
        }
        if self.accepts_any_host {
            out.push(("ssl.endpoint.identification.algorithm", "none".into()));
        }
    }
}

/// SASL user, password and mechanism.
///
/// ```
/// use ardea_connectors::kafka::{Sasl, Tls, read};
///
/// # let password = String::new();
/// let source = read("kafka:9093", "flights").tls(Tls::new()).sasl(Sasl::scram_sha_512("job", password));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sasl {
    mechanism: &'static str,
    user: String,
    password: Secret,
}

impl Sasl {
    /// Uses the mechanism PLAIN, which sends the password in clear: use it with [`Tls`] only.
    pub fn plain(user: impl Into<String>, password: impl Into<String>) -> Self {
        Sasl::by("PLAIN", user.into(), password.into())
    }

    /// Uses the mechanism SCRAM-SHA-256.
    pub fn scram_sha_256(user: impl Into<String>, password: impl Into<String>) -> Self {
        Sasl::by("SCRAM-SHA-256", user.into(), password.into())
    }

    /// Uses the mechanism SCRAM-SHA-512.
    pub fn scram_sha_512(user: impl Into<String>, password: impl Into<String>) -> Self {
        Sasl::by("SCRAM-SHA-512", user.into(), password.into())
    }

    fn by(mechanism: &'static str, user: String, password: String) -> Self {
        Sasl {
            mechanism,
            user,
            password: Secret(password),
        }
    }
}

/// Connection security as librdkafka properties.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Security {
    pub tls: Option<Tls>,
    pub sasl: Option<Sasl>,
}

impl Security {
    pub fn properties(&self) -> Vec<(&'static str, String)> {
        let protocol = match (&self.tls, &self.sasl) {
            (None, None) => return Vec::new(),
            (Some(_), None) => "ssl",
            (None, Some(_)) => "sasl_plaintext",
            (Some(_), Some(_)) => "sasl_ssl",
        };
        let mut out = vec![("security.protocol", protocol.to_string())];
        if let Some(tls) = &self.tls {
            tls.properties(&mut out);
        }
        if let Some(sasl) = &self.sasl {
            out.push(("sasl.mechanism", sasl.mechanism.to_string()));
            out.push(("sasl.username", sasl.user.clone()));
            out.push(("sasl.password", sasl.password.0.clone()));
        }
        out
    }
}

/// Returns true if the value of a librdkafka property must not appear in messages.
pub(crate) fn is_secret(property: &str) -> bool {
    [
        "password",
        "secret",
        "key.pem",
        "oauthbearer.config",
        "jaas",
    ]
    .iter()
    .any(|part| property.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_and_sasl_decide_the_protocol() {
        let protocol = |tls, sasl| {
            let security = Security { tls, sasl };
            let properties = security.properties();
            let protocol = properties
                .into_iter()
                .find(|(k, _)| *k == "security.protocol");
            protocol.map(|(_, value)| value)
        };
        let (tls, sasl) = (Tls::new(), Sasl::plain("u", "p"));
        assert_eq!(protocol(None, None), None);
        assert_eq!(protocol(Some(tls.clone()), None).as_deref(), Some("ssl"));
        let both = protocol(Some(tls), Some(sasl.clone()));
        assert_eq!(both.as_deref(), Some("sasl_ssl"));
        assert_eq!(
            protocol(None, Some(sasl)).as_deref(),
            Some("sasl_plaintext")
        );
    }

    #[test]
    fn passwords_are_not_shown() {
        let security = Security {
            tls: Some(Tls::new().key_password("hush-1")),
            sasl: Some(Sasl::scram_sha_256("user", "hush-2")),
        };
        let shown = format!("{security:?}");
        assert!(!shown.contains("hush"), "{shown}");
        let secret = ["sasl.password", "ssl.key.password", "ssl.key.pem"];
        assert!(secret.into_iter().all(is_secret));
        assert!(!is_secret("ssl.key.location") && !is_secret("sasl.username"));
    }
}
