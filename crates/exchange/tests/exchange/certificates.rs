//! Certificates for two workers, made for the test.

use std::fs;

use ardea_tls::{Tls, TlsConfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// Certificates of an authority that nobody else has.
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
