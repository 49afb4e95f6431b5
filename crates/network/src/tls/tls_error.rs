//! Explanations of TLS errors.

use ardea_core::Timestamp;
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// Returns a text for users about an error of a connection or a certificate.
pub fn explain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(reason) => certificate(reason),
        Error::NoCertificatesPresented => {
            "the peer presented no certificate; it needs one of the cluster's authority".into()
        }
        Error::AlertReceived(alert) => {
            format!("the peer closed the connection: {}", of_peer(*alert))
        }
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType
            | InvalidMessage::UnknownProtocolVersion
            | InvalidMessage::MessageTooLarge,
        ) => "the peer doesn't speak TLS; both have to be configured with certificates, or neither"
            .into(),
        Error::PeerIncompatible(_) => {
            format!("the peer does not support the required TLS 1.3: {error}")
        }
        other => other.to_string(),
    }
}

fn certificate(reason: &CertificateError) -> String {
    match reason {
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("it expired at {}", at(*not_after))
        }
        CertificateError::Expired => "it has expired".into(),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!(
                "it is not valid before {}; are the clocks right?",
                at(*not_before)
            )
        }
        CertificateError::NotValidYet => "it is not valid yet; are the clocks right?".into(),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "it was signed by another authority than the cluster's".into()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let names = if presented.is_empty() {
                "no name".into()
            } else {
                presented.join(", ")
            };
            format!("it bears {names}, and should bear {}", expected.to_str())
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it may not be used on this side of a connection: it needs both serverAuth and clientAuth"
                .into()
        }
        other => format!("the certificate is not accepted: {other:?}"),
    }
}

/// Describes the fault that a peer reported about this process.
fn of_peer(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::CertificateExpired => "the certificate of this process has expired",
        AlertDescription::UnknownCA => {
            "the certificate of this process was signed by another authority than the peer's"
        }
        AlertDescription::CertificateRequired => "this process presented no certificate",
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::AccessDenied => "it does not accept the certificate of this process",
        AlertDescription::ProtocolVersion => "it does not speak TLS 1.3",
        AlertDescription::DecryptError => "the key of this process is not that of its certificate",
        _ => "it rejected a message of this process",
    }
}

fn at(time: UnixTime) -> Timestamp {
    Timestamp::from_secs(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}
