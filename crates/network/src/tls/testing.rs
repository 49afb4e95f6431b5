//! Certificates for tests.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::tls::{Tls, TlsConfig};

/// Creates the certificates of a test cluster, signed by a new authority.
///
/// # Panics
/// If the machine has no folder for temporary files.
pub fn certificates() -> Tls {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let params = CertificateParams::new(vec!["harbour".into()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let signed = params.signed_by(&key, &authority).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let config = TlsConfig {
        authority: put("ca.pem", authority.pem()),
        certificate: put("host.pem", signed.pem()),
        key: put("host.key", key.serialize_pem()),
        name: Some("harbour".into()),
    };
    Tls::load(config).unwrap()
}
